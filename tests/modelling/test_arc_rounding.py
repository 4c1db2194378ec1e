"""Costs that are concave in the bandwidth used: bounds and values against brute force, gaps of one source."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import gamma

import freshopt as fo
from freshopt.problems import PowerCost, SynchronizationCost
from freshopt.solvers import MirrorDescent

Array = npt.NDArray[np.float64]


def problem_of(e: Array, ratio: Array, bandwidth: float, *, periodic: bool, **more: object) -> fo.Problem:
    refresh = fo.Refresh.PERIODIC if periodic else fo.Refresh.POISSON
    limits = more.pop("host_limits", None)
    sources = fo.Sources(np.ones(len(e)), changed_cost=ratio, **more)  # type: ignore[arg-type]
    objective = SynchronizationCost(PowerCost(1.0, e), refresh)
    return fo.Problem(objective, sources, bandwidth, host_limits=limits)  # type: ignore[arg-type]


def cost_of_bandwidth(used: Array, e: float, ratio: float, periodic: bool) -> Array:
    """Return the cost at Δ = c₀ = w = 1, from a table of rates."""
    x = np.geomspace(1e-8, 1e8, 200_001)
    fresh = x * -np.expm1(-1.0 / x) if periodic else x / (x + 1.0)
    cost = x**-e * (1.0 / (1.0 + e) if periodic else gamma(1.0 + e))
    return np.asarray(np.exp(np.interp(np.log(used), np.log(x + ratio * fresh), np.log(cost))))


def cheapest(e: Array, ratio: Array, bandwidth: float, periodic: bool) -> float:
    """Return the least cost of up to three sources, over a grid of shares."""
    half = np.geomspace(1e-5, 0.5, 500)
    share = np.unique(np.concatenate((half, 1.0 - half, [1.0] if len(e) == 1 else [])))
    each = [
        cost_of_bandwidth(share * bandwidth, own, dear, periodic) for own, dear in zip(e, ratio, strict=True)
    ]
    if len(e) == 1:
        return float(each[0][-1])
    if len(e) == 2:
        return float(np.min(each[0] + cost_of_bandwidth((1.0 - share) * bandwidth, e[1], ratio[1], periodic)))
    rest = 1.0 - share[:, None] - share
    last = cost_of_bandwidth(np.maximum(rest, 1e-9) * bandwidth, e[2], ratio[2], periodic)
    return float(np.min(np.where(rest > 0.0, each[0][:, None] + each[1] + last, np.inf)))


def furthest(e: float, ratio: float, periodic: bool) -> float:
    """Return the largest distance of one cost from its hull: that from the best chord of a grid."""
    used = np.geomspace(1e-2 * ratio, 1e3 * ratio, 801)
    cost = cost_of_bandwidth(used, e, ratio, periodic)
    most = 0.0
    for k in range(1, len(used) - 1):
        before, after = slice(0, k), slice(k + 1, None)
        share = (used[after] - used[k]) / (used[after] - used[before][:, None])
        chord = share * cost[before][:, None] + (1.0 - share) * cost[after]
        most = max(most, float(cost[k] - np.min(chord)))
    return most


@pytest.mark.exhaustive
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("periodic", [False, True])
def test_the_best_is_between_bound_and_value(n: int, periodic: bool) -> None:
    rng = np.random.default_rng(n)
    inside = 0
    for _ in range(4):
        e, ratio = rng.uniform(0.1, 0.4, n), rng.uniform(1000.0, 3000.0, n)
        bandwidth = float(np.sum(ratio) * rng.uniform(0.4, 1.0))
        solution = fo.solve(problem_of(e, ratio, bandwidth, periodic=periodic), throw=False)
        proof, best = solution.certificate, cheapest(e, ratio, bandwidth, periodic)
        assert proof is not None
        assert proof.bound <= best * (1.0 + 1e-6)
        assert solution.value >= best * (1.0 - 1e-3)
        assert solution.bandwidth_used == pytest.approx(bandwidth, rel=1e-14)
        at = [
            cost_of_bandwidth(np.array([used]), *own, periodic)[0]
            for used, own in zip(
                solution.problem.used_by_source(solution.rates), zip(e, ratio, strict=True), strict=True
            )
        ]
        assert solution.value == pytest.approx(sum(at), rel=1e-6)
        assert solution.status is (fo.Status.OPTIMAL if proof.relative_gap <= 1e-6 else fo.Status.INACCURATE)
        inside += proof.relative_gap > 1e-6
    assert inside or n == 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("periodic", [False, True])
def test_the_gap_is_that_of_one_source(periodic: bool) -> None:
    one = furthest(0.2, 2000.0, periodic)
    for n in (1, 10, 100, 1000):
        problem = problem_of(np.full(n, 0.2), np.full(n, 2000.0), 1000.0 * n + 137.0, periodic=periodic)
        proof = fo.solve(problem, throw=False).certificate
        assert proof is not None
        assert 0.0 <= proof.gap <= one * 1.001 + 1e-9
        assert proof.relative_gap <= 2.0 * one / n / abs(proof.value / n)


def test_any_rates_are_valued_as_they_are() -> None:
    problem = problem_of(np.full(2, 0.2), np.full(2, 2000.0), 2000.0, periodic=False)
    rates = np.full(2, 1.0)
    proof = fo.certify(problem, 0.9 * rates)
    assert proof.value == pytest.approx(2.0 * gamma(1.2) * 0.9**-0.2, rel=1e-12)
    assert proof.bound <= fo.solve(problem, throw=False).value


@pytest.mark.exhaustive
def test_hosts_bounds_and_other_solvers() -> None:
    problem = problem_of(
        np.full(6, 0.2),
        np.full(6, 2000.0),
        6000.0,
        periodic=True,
        host=list("aabbbb"),
        min_rate=[0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        max_rate=[np.inf, np.inf, 0.5, np.inf, np.inf, np.inf],
        host_limits={"a": 2500.0},
    )
    best = fo.solve(problem, throw=False)
    proof = best.certificate
    assert proof is not None
    used = problem.used_by_source(best.rates)
    assert used[:2].sum() <= 2500.0 * (1.0 + 1e-14)
    assert used.sum() == pytest.approx(6000.0, rel=1e-14)
    assert bool(np.all((best.rates >= problem.lower) & (best.rates <= problem.upper)))
    assert proof.gap <= 2.002 * furthest(0.2, 2000.0, periodic=True)
    other = fo.solve(problem, MirrorDescent(), throw=False)
    assert other.value >= proof.bound
    uncertified = fo.solve(problem, certify=False)
    assert uncertified.value == pytest.approx(best.value, rel=1e-12)


def test_a_gap_above_the_tolerance_says_why() -> None:
    problem = problem_of(np.array([0.2]), np.array([2000.0]), 1000.0, periodic=False)
    with pytest.raises(fo.errors.CertificateError, match="lower convex hull; a tolerance above it") as caught:
        fo.solve(problem)
    assert "\n" not in str(caught.value)
    assert fo.solve(problem, tolerance=0.5).status is fo.Status.OPTIMAL
