"""What good phases save, and costs that are concave in the bandwidth used."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import gamma

import freshopt as fo
from freshopt.estimators import WeeklyProfile
from freshopt.modelling.phased_objective import GAPS, PhasedObjective, plain
from freshopt.problems import PowerCost, SynchronizationCost
from freshopt.solvers import MirrorDescent
from tests.ground_truth.curves import mean_penalty, penalty
from tests.ground_truth.hull_truth import NAMES, Floats, Savings
from tests.ground_truth.named import AGE_PERIODIC, BINARY, BINARY_PERIODIC, DELAY, HARMONIC_PERIODIC, present
from tests.ground_truth.strata import matrix
from tests.separable.test_hulls import OBJECTIVES

HOUR = np.arange(168)
OFFICE = np.where((HOUR // 24 < 5) & (HOUR % 24 >= 9) & (HOUR % 24 < 17), 4.0, 0.4)
WAVES = 1.0 + 0.5 * np.sin(2 * np.pi * HOUR / 168) + 0.3 * np.sin(2 * np.pi * HOUR / 24)


def phased_cost(name: str, g: Floats, gap: float, change: float) -> float:
    """Mean cost of refreshes at the better half of phases, from the changing rate itself."""
    fine, n = 10, 1680
    mean_changes = np.concatenate(([0.0], np.cumsum(np.repeat(g / np.mean(g), fine)))) * 7.0 / n
    parts = max(1, round(7.0 / gap))
    steps = round(gap / 7.0 * n)
    time = np.arange(steps + 1)
    costs, waits = [], []
    for phase in range(0, n // parts, 20):
        cost = wait = 0.0
        for part in range(parts):
            begin = phase + part * n // parts
            end = begin + time
            x = (end // n) * 7.0 + mean_changes[end % n] - mean_changes[begin % n] - (begin // n) * 7.0
            cost += float(np.trapezoid(penalty(name, change * x), time)) / steps / parts
            wait += float(np.trapezoid(x, time)) / steps / parts
        costs.append(cost)
        waits.append(wait)
    best = np.argsort(waits)[: len(waits) // 2]
    return float(np.mean(np.array(costs)[best]))


@matrix(name=NAMES, shape=[OFFICE, WAVES], gap=[14.0, 7.0, 1.0], u=[0.1, 1.0, 3.0], every=3)
def test_promises_are_kept(name: str, shape: Floats, gap: float, u: float) -> None:
    change = u / gap
    objective = PhasedObjective(OBJECTIVES[name], WeeklyProfile(shape))
    rate, saving = objective.points(fo.Sources([change]))
    at = np.flatnonzero(np.isclose(rate, 1.0 / gap))
    random = float(mean_penalty(name, np.array([u]))[0])
    saved = random - phased_cost(name, shape, gap, change)
    promised = float(saving[at[0], 0]) if len(at) else 0.0
    assert promised <= saved + 0.002 * random
    if name == "delay":
        assert promised == pytest.approx(saved, abs=0.002 * random)


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_that_saves_nothing_changes_no_bit(name: str) -> None:
    rng = np.random.default_rng(1)
    sources = fo.Sources(rng.lognormal(-2.0, 2.0, 300), rng.lognormal(0.0, 1.0, 300))
    without = fo.solve(fo.Problem(OBJECTIVES[name], sources, 40.0))
    for profile, load in (
        (WeeklyProfile(np.ones(168)), 2.0),
        (WeeklyProfile(OFFICE), 1.0),
        (Savings(0.0), 3.0),
    ):
        problem = fo.Problem(OBJECTIVES[name], sources, 40.0, profile=profile, load_limit=load)
        assert problem.objective is OBJECTIVES[name]
        assert np.array_equal(fo.solve(problem).rates, without.rates)


def test_units_of_sources_and_profile_do_not_matter() -> None:
    days = fo.Sources([0.1, 1.0], time_unit="day")
    hours = fo.Sources(np.array([0.1, 1.0]) / 24.0, time_unit="hour")
    found = [
        fo.solve(fo.Problem(BINARY_PERIODIC, sources, bandwidth, profile=profile)).value
        for sources, bandwidth in ((days, 0.4), (hours, 0.4 / 24.0))
        for profile in (Savings(), Savings(time_unit="hour"))
    ]
    np.testing.assert_allclose(found, found[0], rtol=1e-12)


def test_changed_problems_keep_the_profile() -> None:
    problem = fo.Problem(OBJECTIVES["delay"], fo.Sources([0.1, 1.0]), 0.4, profile=Savings(), load_limit=3.0)
    for other in (problem.with_bandwidth(0.6), problem.with_change_rate([0.2, 0.5])):
        assert isinstance(other.objective, PhasedObjective)
        assert other.objective.load_limit == 3.0
    again = fo.Problem(OBJECTIVES["delay"], fo.Sources([0.2, 0.5]), 0.4, profile=Savings(), load_limit=3.0)
    changed = problem.with_change_rate([0.2, 0.5])
    assert np.array_equal(fo.solve(changed).rates, fo.solve(again).rates)
    assert plain(problem.objective) is OBJECTIVES["delay"]
    assert plain(OBJECTIVES["delay"]) is OBJECTIVES["delay"]


def test_a_higher_load_limit_never_costs_more() -> None:
    sources = fo.Sources([0.02, 0.1, 0.5, 2.0])
    values = [
        fo.solve(
            fo.Problem(OBJECTIVES["harmonic"], sources, 1.0, profile=WeeklyProfile(OFFICE), load_limit=load)
        ).value
        for load in (1.0, 1.2, 1.5, 2.0, 4.0)
    ]
    assert np.all(np.diff(values) < 0.0)


@pytest.mark.parametrize(
    ("objective", "settings", "why"),
    [
        (BINARY, {}, "have no phase"),
        (DELAY, {}, "have no phase"),
        (AGE_PERIODIC, {}, "no function of the mean number"),
        (fo.Spend(), {}, "no function of the mean number"),
        (HARMONIC_PERIODIC, {"constraints": [fo.Target(BINARY, at_least=0.1)]}, "constraints"),
    ],
)
def test_what_has_no_phases_is_refused(
    objective: fo.Objective, settings: dict[str, object], why: str
) -> None:
    with pytest.raises(fo.ObjectiveError, match=why) as refused:
        fo.Problem(objective, fo.Sources([1.0]), 1.0, profile=Savings(), **settings)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("settings", [{"profile": 3}, {"profile": Savings(), "load_limit": 0.5}])
def test_what_is_no_profile_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(fo.SourceDataError, match=r"profile|load_limit"):
        fo.Problem(OBJECTIVES["delay"], fo.Sources([1.0]), 1.0, **settings)  # type: ignore[arg-type]


def test_budgets_by_host_are_solved() -> None:
    sources = fo.Sources([0.1, 1.0, 0.2], host=["a", "a", "b"])
    short = fo.Problem(OBJECTIVES["binary"], sources, 0.5, {"a": 0.3}, profile=Savings())
    declared = [fo.Budget(0.5), fo.Budget({"a": 0.3}, by="host", name="host")]
    long = fo.Problem(OBJECTIVES["binary"], sources, constraints=declared, profile=Savings())
    assert np.array_equal(fo.solve(short).rates, fo.solve(long).rates)


def test_gaps_are_weeks_or_parts_of_one() -> None:
    assert np.all(WeeklyProfile([1.0]).cycles(7.0 * np.array(GAPS)) != 0)


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
@matrix(n=[1, 2, 3], periodic=[False, True])
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
        proof = present(fo.solve(problem, throw=False).certificate)
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
    proof = present(best.certificate)
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
