"""Orders of refreshes and the expected value of a schedule: by hand, simulated, to the bit, and refusals."""

import math
from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import exp1

import freshopt as fo
from freshopt.compiled.backend import fast
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.objective import Refresh
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.scheduling import Carousel, EarliestDeadline, Periodic, PoissonArrivals, Schedule, refresh_loops
from freshopt.scheduling import refresh_order as order_module
from freshopt.scheduling.expected_cost import expected_value
from freshopt.scheduling.schedule import Method
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR

Floats = npt.NDArray[np.float64]
OBJECTIVES: dict[str, fo.Objective] = {
    "harmonic": HarmonicStaleness(Refresh.POISSON),
    "binary": BinaryFreshness(Refresh.POISSON),
    "delay": AccumulatedDelay(Refresh.POISSON),
}


def cost_of_age(kind: str, change_rate: float, age: float) -> float:
    """c(s), from the definition: the expected cost of the changes missed in a time s."""
    u = change_rate * age
    if kind == "delay":
        return u
    if kind == "binary":
        return -math.expm1(-u)
    return float(np.euler_gamma + math.log(u) + exp1(u)) if u > 0 else 0.0  # E H(N), N Poisson of mean u


def cost_of_gap(kind: str, change_rate: float, begin: float, end: float) -> float:
    """The integral of c over ages from `begin` to `end`."""
    return float(quad(lambda s: cost_of_age(kind, change_rate, s), begin, end, epsabs=1e-13, epsrel=1e-12)[0])


def test_delay_by_hand() -> None:
    # Δ = 2, weight 3: a gap of τ costs 3τ². Gaps 1 + 0.5 (of which the horizon has the last 0.5), 1, 0.5.
    schedule = Schedule([0, 0], [0.5, 1.5], horizon=2.0, rates=[1.0])
    sources = fo.Sources([2.0], importance=[3.0])
    assert expected_value(schedule, AccumulatedDelay(Refresh.POISSON), sources, 1.0) == pytest.approx(
        ((1.5**2 - 1.0**2) + 1.0**2 + 0.5**2) * 3 / 2, rel=EXACT
    )


def test_binary_freshness_by_hand() -> None:
    # Fresh at 0 and at 1, horizon 2: each half is fresh e^{-s} of the time, s after the refresh.
    schedule = Schedule([0], [1.0], horizon=2.0, rates=[0.5])
    sources = fo.Sources([1.0, 4.0], importance=[1.0, 0.0])
    both = Schedule([0], [1.0], horizon=2.0, rates=[0.5, 0.0])
    fresh = 1.0 - math.exp(-1.0)
    assert expected_value(schedule, BinaryFreshness(Refresh.POISSON), fo.Sources([1.0])) == pytest.approx(
        fresh, rel=EXACT
    )
    assert expected_value(both, BinaryFreshness(Refresh.POISSON), sources) == pytest.approx(fresh, rel=EXACT)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_any_gaps_cost_the_integral_of_the_cost_of_age(kind: str) -> None:
    rng = np.random.default_rng(1)
    rates, ages = rng.uniform(0.2, 3.0, 4), np.array([0.0, 0.7, 5.0, 0.1])
    weights, horizon = rng.uniform(0.5, 2.0, 4), 3.0
    times = [sorted(rng.uniform(0.0, horizon, n)) for n in (3, 0, 1, 6)]
    expected = 0.0
    for k in range(4):
        ends = [*times[k], horizon]
        pieces = cost_of_gap(kind, rates[k], ages[k], ages[k] + ends[0])
        pieces += sum(cost_of_gap(kind, rates[k], 0.0, b - a) for a, b in pairwise(ends))
        expected += weights[k] * pieces / horizon
    if kind == "binary":
        expected = float(np.sum(weights)) - expected
    moments = sorted((time, k) for k in range(4) for time in times[k])
    schedule = Schedule([k for _, k in moments], [t for t, _ in moments], horizon, rates=np.ones(4))
    sources = fo.Sources(rates, weights)
    assert expected_value(schedule, OBJECTIVES[kind], sources, ages) == pytest.approx(expected, rel=SCALAR)


def simulated_cost(
    schedule: Schedule, change_rate: Floats, age: Floats, kind: str, runs: int, seed: int
) -> Floats:
    """The cost, averaged over the horizon, of `runs` independent histories of changes."""
    rng = np.random.default_rng(seed)
    cost = np.zeros(runs)
    for k, rate in enumerate(change_rate):
        own = schedule.time[schedule.source == k]
        count = rng.poisson(rate * (age[k] + schedule.horizon), runs)
        run = np.repeat(np.arange(runs), count)
        time = -age[k] + rng.random(len(run)) * (age[k] + schedule.horizon)
        order = np.lexsort((time, run))
        run, time = run[order], time[order]
        gap = np.searchsorted(own, time, side="right")  # a change is seen by the first refresh after it
        end = np.append(own, schedule.horizon)[gap]
        begins = np.ones(len(run), dtype=bool)
        begins[1:] = (run[1:] != run[:-1]) | (gap[1:] != gap[:-1])
        start = np.maximum.accumulate(np.where(begins, np.arange(len(run)), 0))
        missed = np.arange(len(run)) - start + 1  # how many changes the copy has missed from here on
        weight = {"delay": np.ones(len(run)), "binary": missed == 1, "harmonic": 1.0 / missed}[kind]
        np.add.at(cost, run, weight * (end - np.maximum(time, 0.0)))
    return cost / schedule.horizon


@matrix(kind=OBJECTIVES, every=2)
@pytest.mark.parametrize("method", [Periodic(), PoissonArrivals(seed=3)], ids=["periodic", "poisson"])
def test_it_agrees_with_simulated_changes(kind: str, method: Periodic | PoissonArrivals) -> None:
    change_rate, age = np.array([0.3, 1.0, 2.5, 6.0]), np.array([0.0, 2.0, 0.4, 0.1])
    schedule = fo.schedule({"a": 0.5, "b": 1.0, "c": 0.0, "d": 4.0}, 3.0, method)
    assert len(schedule) > 5
    value = expected_value(schedule, OBJECTIVES[kind], fo.Sources(change_rate), age)
    cost = simulated_cost(schedule, change_rate, age, kind, runs=20_000, seed=11)
    mean, error = float(np.mean(cost)), float(np.std(cost)) / math.sqrt(len(cost))
    mean = len(change_rate) - mean if kind == "binary" else mean
    assert abs(value - mean) < 4.0 * error  # false alarm once in 16 000
    assert error < 0.01 * mean


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_equal_gaps_have_the_periodic_cells_value(kind: str) -> None:
    rates = np.array([0.5, 2.0, 4.0])
    sources = fo.Sources(change_rate=[0.1, 1.0, 9.0], importance=[3.0, 1.0, 0.5])
    objective = type(OBJECTIVES[kind])(fo.Refresh.PERIODIC)  # type: ignore[call-arg]
    long_run = fo.certify(fo.Problem(objective, sources, float(np.sum(rates))), rates).value
    moments = sorted((j / rate, k) for k, rate in enumerate(rates) for j in range(int(10 * rate)))
    whole = Schedule([k for _, k in moments], [t for t, _ in moments], 10.0, rates=rates)
    # Refreshed at 0, so that its age does not matter.
    assert expected_value(whole, objective, sources, 7.0) == pytest.approx(long_run, rel=SCALAR)
    spread = fo.schedule(dict(enumerate(rates)), 20_000.0, Periodic())
    assert expected_value(spread, objective, sources) == pytest.approx(long_run, rel=1e-4)


def test_without_refreshes_copies_age_from_where_they_are() -> None:
    empty = Schedule([], [], horizon=2.0, rates=[0.0, 0.0])
    sources = fo.Sources([1.0, 3.0])
    expected = (3.0**2 - 1.0**2) / 2 / 2 + 3 * 2.0**2 / 2 / 2
    assert expected_value(empty, AccumulatedDelay(Refresh.POISSON), sources, [1.0, 0.0]) == pytest.approx(
        expected, rel=EXACT
    )


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_horizon_cut_in_two_adds_up(kind: str) -> None:
    sources = fo.Sources(change_rate=[0.4, 2.0])
    whole = Schedule([0, 1, 0, 1], [0.5, 1.0, 2.5, 3.5], horizon=4.0, rates=[0.5, 0.5])
    first = Schedule([0, 1], [0.5, 1.0], horizon=1.5, rates=[0.5, 0.5])
    second = Schedule([0, 1], [1.0, 2.0], horizon=2.5, rates=[0.5, 0.5])
    objective = OBJECTIVES[kind]
    parts = 1.5 * expected_value(first, objective, sources, [0.2, 3.0])
    parts += 2.5 * expected_value(second, objective, sources, [1.0, 0.5])
    assert 4.0 * expected_value(whole, objective, sources, [0.2, 3.0]) == pytest.approx(parts, rel=EXACT)


@given(
    times=st.lists(st.floats(0.0, 9.99), max_size=8).map(sorted),
    extra=st.floats(0.0, 9.99),
    age=st.floats(0.0, 50.0),
    kind=st.sampled_from(sorted(OBJECTIVES)),
)
def test_one_more_refresh_never_hurts_and_an_older_copy_never_helps(
    times: list[float], extra: float, age: float, kind: str
) -> None:
    def cost(moments: list[float], begin: float) -> float:
        schedule = Schedule([0] * len(moments), moments, 10.0, rates=[1.0])
        value = expected_value(schedule, OBJECTIVES[kind], fo.Sources([0.7]), begin)
        return 1.0 - value if kind == "binary" else value

    slack = 1e-9 * (1.0 + cost(times, age))
    assert cost(sorted([*times, extra]), age) <= cost(times, age) + slack
    assert cost(times, age) <= cost(times, age + 1.0) + slack


def test_the_declared_discipline_does_not_matter() -> None:
    schedule = Schedule([0], [0.3], horizon=1.0, rates=[1.0])
    poisson, periodic = (HarmonicStaleness(refresh) for refresh in (fo.Refresh.POISSON, fo.Refresh.PERIODIC))
    sources = fo.Sources([2.0])
    assert expected_value(schedule, poisson, sources) == expected_value(schedule, periodic, sources)


class Undeclared(fo.Objective):
    """An objective without a cost of age."""


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda s: expected_value(s, AccumulatedDelay(Refresh.POISSON), fo.Sources([1.0])),
            SourceDataError,
            "for 2 sources, not 1",
        ),
        (
            lambda s: expected_value(
                s, BinaryFreshness(Refresh.POISSON), fo.Sources([1.0, 1.0], signalled=[True, False])
            ),
            SourceDataError,
            "signalled source has no refresh times",
        ),
        (
            lambda s: expected_value(
                s, AccumulatedDelay(Refresh.POISSON), fo.Sources([1.0, 1.0]), [0.0, -1.0]
            ),
            SourceDataError,
            "age must be numbers >= 0",
        ),
        (
            lambda s: expected_value(s, AccumulatedDelay(Refresh.POISSON), fo.Sources([1.0, 1.0]), math.nan),
            SourceDataError,
            "age must be numbers >= 0",
        ),
        (
            lambda s: expected_value(
                s, AccumulatedDelay(Refresh.POISSON), fo.Sources([1.0, 1.0]), [0.0, 1.0, 2.0]
            ),
            SourceDataError,
            "age has shape",
        ),
        (lambda s: expected_value(s, Undeclared(), fo.Sources([1.0, 1.0])), ObjectiveError, "no cost of age"),
    ],
    ids=["sources", "signalled", "negative", "nan", "shape", "undeclared"],
)
def test_refusals(call: Callable[[Schedule], float], error: type[Exception], message: str) -> None:
    refused(message, call, Schedule([0, 1], [0.0, 0.5], horizon=1.0, rates=[1.0, 1.0]), error=error)


@pytest.mark.parametrize("kind", sorted(OBJECTIVES))
def test_attempts_that_fail_by_all_their_outcomes(kind: str) -> None:
    """The mean over the 2^m outcomes of m attempts, each with its own gaps, by quadrature."""
    times, change, chance, ages, horizon = (
        [[0.3, 1.1, 1.9, 2.0], [0.5]],
        [1.3, 0.4],
        [0.4, 0.7],
        [0.2, 2.5],
        3.0,
    )
    expected = 0.0
    for own, rate, success, age in zip(times, change, chance, ages, strict=True):
        for outcome in product((True, False), repeat=len(own)):
            likely = math.prod(success if fetched else 1.0 - success for fetched in outcome)
            kept = [-age, *(at for at, fetched in zip(own, outcome, strict=True) if fetched), horizon]
            first = cost_of_gap(kind, rate, age, kept[1] + age)
            expected += likely * (
                first + sum(cost_of_gap(kind, rate, 0.0, b - a) for a, b in pairwise(kept[1:]))
            )
    sources = fo.Sources(change, success=chance)
    plan = Schedule([0, 1, 0, 0, 0], [0.3, 0.5, 1.1, 1.9, 2.0], horizon=horizon, rates=[1.0, 1.0])
    value = 2.0 - expected / horizon if kind == "binary" else expected / horizon
    assert expected_value(plan, OBJECTIVES[kind], sources, ages) == pytest.approx(value, rel=1e-11)


def test_a_long_schedule_of_attempts_costs_what_its_rates_promise() -> None:
    objective, chance = AccumulatedDelay(fo.Refresh.PERIODIC), np.array([0.25, 1.0])
    sources = fo.Sources([1.0, 3.0], success=chance)
    rates = np.array([2.0, 1.0])
    source, time = Periodic().times(rates, 4000.0)
    plan = Schedule(source=source, time=time, horizon=4000.0, rates=rates)
    promised = float(np.sum(sources.change_rate * (2.0 - chance) / (2.0 * chance * rates)))
    assert expected_value(plan, objective, sources) == pytest.approx(promised, rel=2e-3)


def bunched(kind: str, many: int) -> Floats:
    """Times of refreshes, more or less alike."""
    random = np.random.default_rng(many)
    if kind == "uniform":
        return random.random(many) * 7.0
    if kind == "equal":
        return np.full(many, 3.5)
    if kind == "ties":
        return np.asarray(random.integers(0, 5, many) * 0.25)
    if kind == "clusters":
        return random.choice([0.0, 1.0, 1e9], many) + random.random(many) * 1e-3
    if kind == "outlier":
        return np.where(np.arange(many) == many // 2, 1e300, random.random(many))
    if kind == "neighbours":  # distances whose reciprocals are beyond all floats
        return np.asarray(random.integers(0, 3, many) * 5e-324)
    return np.sort(random.exponential(1.0, many) ** 9)[::-1] - 0.5


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["uniform", "equal", "ties", "clusters", "outlier", "neighbours", "falling"])
@pytest.mark.parametrize("many", [0, 1, 2, 17, 100, 5000, 40_000])
def test_refreshes_come_by_time_then_source(kind: str, many: int) -> None:
    time = bunched(kind, many)
    cuts = np.sort(np.random.default_rng(1).integers(0, many + 1, 300))
    count = np.diff([0, *cuts.tolist(), many]).astype(np.int64)
    source, ordered = np.empty(many, dtype=np.int64), np.empty(many)
    fast(refresh_loops.order_by_time)(count, time, source, ordered)
    owner = [k for k, own in enumerate(count.tolist()) for _ in range(own)]
    assert list(zip(ordered.tolist(), source.tolist(), strict=True)) == sorted(
        zip(time.tolist(), owner, strict=True)
    )


@pytest.mark.parametrize("many", [0, 1, 2, 3000])
def test_the_order_of_keys_is_stable(many: int) -> None:
    random = np.random.default_rng(many)
    for values in (random.lognormal(0.0, 9.0, many), random.integers(0, 7, many) * 1.0, np.zeros(many)):
        order = fast(refresh_loops.radix_order)(values.view(np.uint64))
        assert order.tolist() == sorted(range(many), key=values.tolist().__getitem__)


def rates_of(family: str, n: int) -> Floats:
    random = np.random.default_rng(n)
    if family == "lognormal":
        return random.lognormal(0.0, 1.5, n)
    if family == "ties":
        return random.integers(0, 4, n).astype(np.float64)
    if family == "wide":
        return np.asarray(10.0 ** random.uniform(-6.0, 2.0, n))
    return np.where(random.random(n) < 0.5, -0.0, 1.0)


@matrix(family=["lognormal", "ties", "wide", "signed zeros"], every=5)
@pytest.mark.parametrize(("n", "horizon"), [(1, 5.0), (1, 0.01), (40, 365.0), (3000, 7.0)])
@pytest.mark.parametrize(
    "method", [Periodic(), PoissonArrivals(seed=4), Carousel(), EarliestDeadline(age=0.7)], ids=repr
)
def test_compiled_and_numpy_have_the_same_bits(
    family: str, n: int, horizon: float, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = rates_of(family, n)
    found = []
    for least in (0, 10**9):
        monkeypatch.setattr(order_module, "AT_HAND", least)
        monkeypatch.setattr(order_module, "WORTHWHILE", least)
        found.append([array.tobytes() for array in method.times(rates, horizon)])
    assert found[0] == found[1]
