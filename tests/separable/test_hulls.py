"""Lower hulls of costs, also of conditional fetches."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import gamma

import freshopt as fo
from freshopt.modelling import phased_objective
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.phased_objective import GAPS, PhasedObjective
from freshopt.problems import PowerCost, SynchronizationCost
from freshopt.separable.conditional_hull import ConditionalHull, concave_rates
from freshopt.separable.conditional_kernel import largest_cost_ratio
from freshopt.separable.hull_numerics import HullNumerics
from freshopt.separable.kernel import Numerics
from tests.ground_truth.hull_truth import NAMES, Floats, Grid, Savings
from tests.ground_truth.named import BINARY_PERIODIC, DELAY_PERIODIC, HARMONIC_PERIODIC, present
from tests.ground_truth.strata import matrix, rare

OBJECTIVES = {
    "delay": DELAY_PERIODIC,
    "binary": BINARY_PERIODIC,
    "harmonic": HARMONIC_PERIODIC,
}
WEEKS = 7.0 * np.array(GAPS)
BOUNDS = [(0.0, np.inf), (0.05, 0.9), (1 / 7, 1 / 7), (0.0, 1 / 7), (1 / 28, 1.0)]


def numerics(name: str, sources: fo.Sources, profile: Savings) -> Numerics:
    found, _ = numerics_of(PhasedObjective(OBJECTIVES[name], profile), sources)
    return present(found)


def at(one: Numerics, method: str, values: Floats) -> Floats:
    """Evaluate the numerics of a single source at many rates or prices."""
    found: Floats = getattr(one.take(np.zeros(len(values), dtype=np.int64)), method)(values)
    return found


@matrix(name=NAMES, bounds=BOUNDS, change=[1e-6, 0.03, 0.3, 2.0, 1e4], every=4)
def test_the_hull_is_the_lower_hull_of_curve_and_points(
    name: str, bounds: tuple[float, float], change: float
) -> None:
    profile, (low, high), weight = Savings(), bounds, 3e5
    one = numerics(name, fo.Sources([change], [weight], min_rate=low, max_rate=high), profile)
    truth = Grid.of(name, change, weight, WEEKS, profile.saving(WEEKS, 2.0), low, high)
    cost = at(one, "cost", truth.rate)
    # The grid's hull has chords for arcs: it is above by the square of a step.
    assert np.max(np.abs(cost - truth.hull()) / truth.hull()) < 2e-4
    price = np.geomspace(1e-7, 1e2, 60) * weight * max(change, 1e-3)
    response = np.clip(at(one, "inverse_marginal", price), low, high)
    known = (response >= truth.rate[0]) & (response <= truth.rate[-1])
    reached = at(one, "cost", response[known]) + price[known] * response[known]
    best = truth.lagrangian(price[known])
    assert np.all(reached <= best * (1.0 + 1e-10))
    assert np.all(reached >= best * (1.0 - 1e-4))


@pytest.mark.parametrize("name", NAMES)
def test_marginals_fall_and_are_the_slopes_of_the_cost(name: str) -> None:
    one = numerics(name, fo.Sources([0.2], [2.0]), Savings())
    rate = np.geomspace(1e-3, 50.0, 4001)
    marginal = at(one, "marginal", rate)
    assert np.all(np.diff(marginal) <= 1e-12 * marginal[:-1])
    fall = -np.diff(at(one, "cost", rate)) / np.diff(rate)
    assert np.all(fall <= marginal[:-1] * (1.0 + 1e-9))
    assert np.all(fall >= marginal[1:] * (1.0 - 1e-9))


def test_the_best_response_has_crossed_the_price() -> None:
    one = numerics("binary", fo.Sources([0.2], [2.0]), Savings())
    price = np.geomspace(1e-4, 5.0, 3001)
    rate = at(one, "inverse_marginal", price)
    assert np.all(np.diff(rate) <= 0.0)
    assert np.all(at(one, "marginal", rate) <= price * (1.0 + 1e-12))
    before = at(one, "marginal", np.maximum(rate * (1.0 - 1e-9), 0.0))
    assert np.all((before >= price * (1.0 - 1e-12)) | (rate == 0.0))


@pytest.mark.parametrize("name", NAMES)
def test_gains_are_the_importance_less_the_cost(name: str) -> None:
    one = numerics(name, fo.Sources([0.2], [2.0]), Savings())
    rate = np.array([0.01, 1 / 7, 0.2, 1.0, 30.0])
    gain = one.take(np.zeros(5, dtype=np.int64)).gain(rate)
    assert (gain is None) == (name != "binary")
    if gain is not None:
        np.testing.assert_allclose(gain, 2.0 - at(one, "cost", rate), rtol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_tangents_agrees_with_solving(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    n = 500
    low = np.where(rng.random(n) < 0.3, 0.05, 0.0)
    high = np.where(rng.random(n) < 0.3, 0.6, np.inf)
    sources = fo.Sources(
        10.0 ** rng.uniform(-6.0, 4.0, n), rng.lognormal(0.0, 3.0, n), min_rate=low, max_rate=high
    )
    solved = numerics(name, sources, Savings())
    monkeypatch.setattr(phased_objective, "MANY", 10)
    tabled = numerics(name, sources, Savings())
    assert isinstance(solved, HullNumerics)
    assert isinstance(tabled, HullNumerics)
    assert np.mean(np.isfinite(solved.left)) > 0.3
    corner = np.isfinite(solved.left) & np.isfinite(tabled.left)
    # A point whose interval of prices is as narrow as rounding may be a corner of one and not of the other.
    assert np.mean(np.isfinite(solved.left) != np.isfinite(tabled.left)) < 1e-3
    for which in ("least_price", "most_price"):
        a, b = getattr(solved, which)[corner], getattr(tabled, which)[corner]
        np.testing.assert_allclose(b, a, rtol=1e-9)
    for scale in (0.01, 0.1, 0.3, 1.0, 5.0):
        rate = np.clip(scale * np.ones(n), low, np.minimum(high, 100.0))
        np.testing.assert_allclose(tabled.cost(rate), solved.cost(rate), rtol=1e-12)
        np.testing.assert_allclose(tabled.marginal(rate), solved.marginal(rate), rtol=1e-6)


def test_points_that_save_nothing_leave_the_curve() -> None:
    sources = fo.Sources([0.1, 1e4], [0.0, 1.0])
    curve, _ = numerics_of(OBJECTIVES["binary"], sources)
    assert type(numerics("binary", sources, Savings())) is type(curve)


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
    twin = present(problem.per_bandwidth)
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


@matrix(periodic=[False, True], bounds=[(0.0, np.inf), *rare((0.7, np.inf), (0.0, 3.0), (0.7, 2.5))])
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
