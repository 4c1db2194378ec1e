"""The hull of powers per bandwidth used, against the hull of points on a fine grid."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import gamma

import freshopt as fo
from freshopt.problems import PowerCost, SynchronizationCost
from freshopt.separable.conditional_hull import ConditionalHull, concave_rates
from freshopt.separable.conditional_kernel import largest_cost_ratio

Array = npt.NDArray[np.float64]
EXPONENTS, BEYOND = np.array([0.01, 0.2, 0.5, 0.9]), np.array([1.01, 2.0, 30.0, 1e4])


def curve(x: Array, e: float, ratio: float, periodic: bool) -> tuple[Array, Array]:
    """Return bandwidth and cost at Δ = c₀ = 1."""
    fresh = x * -np.expm1(-1.0 / x) if periodic else x / (x + 1.0)
    return x + ratio * fresh, x**-e * (1.0 / (1.0 + e) if periodic else gamma(1.0 + e))


def segment_of_points(used: Array, cost: Array) -> tuple[float, float, float]:
    """Return slope and ends of the longest segment of the lower hull of points, by a scan with a stack."""
    kept: list[int] = []
    for k in range(len(used)):
        while len(kept) > 1:
            i, j = kept[-2], kept[-1]
            if (cost[j] - cost[i]) * (used[k] - used[i]) < (cost[k] - cost[i]) * (used[j] - used[i]):
                break
            kept.pop()
        kept.append(k)
    jump = int(np.argmax(np.diff(kept)))
    a, c = kept[jump], kept[jump + 1]
    return float((cost[a] - cost[c]) / (used[c] - used[a])), float(used[a]), float(used[c])


def hull_of(e: Array, ratio: Array, periodic: bool, **bounds: object) -> ConditionalHull:
    refresh = fo.Refresh.PERIODIC if periodic else fo.Refresh.POISSON
    sources = fo.Sources(np.ones(len(e)), refresh_cost=1.0, changed_cost=ratio, **bounds)  # type: ignore[arg-type]
    problem = fo.Problem(SynchronizationCost(PowerCost(1.0, e), refresh), sources, 1e12)
    twin = problem.per_bandwidth
    assert twin is not None
    assert isinstance(twin.numerics, ConditionalHull)
    return twin.numerics


@pytest.mark.parametrize("periodic", [False, True])
def test_the_cost_is_concave_between_the_rates(periodic: bool) -> None:
    ratio = BEYOND * largest_cost_ratio(EXPONENTS, periodic=periodic)
    first, last = concave_rates(EXPONENTS, np.ones(4), ratio, periodic=periodic)
    for e, own, low, high in zip(EXPONENTS, ratio, first, last, strict=True):
        for x, falls in ((low, (True, False)), (high, (False, True))):
            around = x * np.array([0.998, 0.999, 1.001, 1.002])
            slope = (1.0 + around) ** -2
            if periodic:
                slope = 1.0 - (1.0 + 1.0 / around) * np.exp(-1.0 / around)
            marginal = around ** -(1.0 + e) / (1.0 + own * slope)
            assert (bool(marginal[1] < marginal[0]), bool(marginal[3] < marginal[2])) == falls
    assert bool(
        np.all(np.isnan(concave_rates(EXPONENTS, np.ones(4), 0.99 * ratio / BEYOND, periodic=periodic)[0]))
    )


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(
    "bounds",
    [
        (0.0, np.inf),
        *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ((0.7, np.inf), (0.0, 3.0), (0.7, 2.5))),
    ],
)
def test_segments_are_those_of_points_on_a_grid(periodic: bool, bounds: tuple[float, float]) -> None:
    e, ratio = np.array([0.2, 0.3]), np.array([900.0, 3000.0])
    low, high = bounds
    hull = hull_of(e, ratio, periodic, min_rate=low, max_rate=high)
    x = np.geomspace(max(low, 1e-4), min(high, 1e6), 40_001)
    for k in range(2):
        used, cost = curve(x, float(e[k]), float(ratio[k]), periodic)
        slope, left, right = segment_of_points(used, cost)
        assert hull.slope[k] == pytest.approx(slope, rel=1e-6)
        assert (hull.left[k], hull.right[k]) == pytest.approx((left, right), rel=2e-3)
        assert np.clip(hull.left[k], used[0], used[-1]) == pytest.approx(hull.left[k], rel=1e-12)


@pytest.mark.exhaustive
def test_the_hull_is_convex_and_below() -> None:
    e, ratio = EXPONENTS, BEYOND * largest_cost_ratio(EXPONENTS, periodic=True)
    hull = hull_of(e, ratio, periodic=True)
    assert bool(np.all(hull.left < hull.right))
    grid = np.geomspace(1e-3, 1e3, 400)[:, None] * np.sqrt(hull.left * hull.right)
    marginal = np.array([hull.marginal(used) for used in grid])
    assert bool(np.all(np.diff(marginal, axis=0) <= 1e-12 * marginal[1:]))
    for used in grid:
        assert bool(np.all(hull.cost(used) <= hull.curve.cost(used) * (1.0 + 1e-12)))
    for price in marginal:
        found = hull.inverse_marginal(price * (1.0 + 1e-9))
        assert not bool(np.any(hull.inside(found)))
        assert hull.marginal(found) == pytest.approx(price, rel=1e-7)
