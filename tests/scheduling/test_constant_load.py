"""Carousel, earliest deadline and greedy index: against a heap, a loop over all sources, and flat loads."""

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness, PollingKnapsack
from freshopt.scheduling import (
    Carousel,
    DiscreteCounts,
    EarliestDeadline,
    Greedy,
    Periodic,
    PoissonArrivals,
    crawl_counts,
)
from freshopt.scheduling.expected_cost import expected_value
from freshopt.scheduling.phases import flat_phases
from freshopt.scheduling.refresh_order import points_before, spread_phases
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR

Floats = npt.NDArray[np.float64]
PERIODIC = fo.Refresh.PERIODIC
OBJECTIVES: dict[str, Any] = {
    "binary": BinaryFreshness(PERIODIC),
    "harmonic": HarmonicStaleness(PERIODIC),
    "delay": AccumulatedDelay(PERIODIC),
    "age": Age(PERIODIC),
}


def lognormal(n: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).lognormal(0.0, 1.5, n)


def served(first: Floats, rates: Floats, slots: int) -> list[int]:
    """Who is picked in each slot: a heap of deadlines, the next one 1/ρ after the last."""
    heap = [(first[k], k) for k in range(len(rates)) if rates[k] > 0]
    heapq.heapify(heap)
    count = np.zeros(len(rates))
    picked = []
    for _ in range(slots):
        _, k = heapq.heappop(heap)
        picked.append(k)
        count[k] += 1
        heapq.heappush(heap, (first[k] + count[k] / rates[k], k))
    return picked


@matrix(n=[1, 2, 50, 400], aged=[False, True])
def test_deadlines_are_served_as_a_heap_serves_them(n: int, aged: bool) -> None:
    rates = lognormal(n)
    age = np.random.default_rng(2).exponential(1.0, n) if aged else np.zeros(n)
    source, time = EarliestDeadline(age).times(rates, 6.0)
    assert source.tolist() == served(np.maximum(1.0 / rates - age, 0.0), rates, len(time))
    assert len(time) == math.ceil(6.0 * rates.sum() - 0.5)


@pytest.mark.parametrize("method", [Carousel(), EarliestDeadline()], ids=repr)
@pytest.mark.parametrize("horizon", [0.3, 1.0, 7.0])
def test_one_refresh_in_the_middle_of_every_slot(method: Any, horizon: float) -> None:  # noqa: ANN401
    rates = np.concatenate([lognormal(300), [0.0, 5.0, 5.0]])
    source, time = method.times(rates, horizon)
    slot = 1.0 / rates.sum()
    assert time == pytest.approx(slot * (np.arange(len(time)) + 0.5), rel=EXACT)
    assert time[-1] < horizon <= time[-1] + slot
    assert 300 not in source


@pytest.mark.parametrize("n", [3, 100, 3000])
def test_the_carousel_keeps_every_sources_gaps(n: int) -> None:
    rates = lognormal(n)
    source, time = Carousel().times(rates, 20.0)
    _, points = Periodic().times(rates, 20.0)
    line = np.abs(np.arange(len(points)) - rates.sum() * points).max() + 1.0  # in slots
    for k in np.random.default_rng(0).choice(n, min(n, 100), replace=False):
        own = time[source == k]
        assert np.all(np.abs(np.diff(own) - 1.0 / rates[k]) <= 2.0 * line / rates.sum() + EXACT)
        assert abs(len(own) - 20.0 * rates[k]) <= 1.0 + rates[k] * line / rates.sum()


def busiest(time: Floats, slots: int) -> float:
    """The number of refreshes in the busiest of equal slots of one day, over the mean."""
    return float(np.bincount((time * slots).astype(int), minlength=slots).max() * slots / len(time))


def test_the_load_per_minute_is_flat() -> None:
    rates = lognormal(100_000)
    rates *= 100 * 1440 / rates.sum()  # a hundred refreshes per minute on average
    assert busiest(Carousel().times(rates, 1.0)[1], 1440) == 1.0
    # Independent arrivals: P(N > 125) of mean 100 is 7e-3, some of 1440 minutes. Measured: 1.08 and 1.31.
    assert busiest(Periodic().times(rates, 1.0)[1], 1440) < 1.12
    assert busiest(PoissonArrivals(seed=1).times(rates, 1.0)[1], 1440) > 1.25


@pytest.mark.exhaustive
def test_flat_phases_give_each_source_as_many_refreshes_as_spread_ones() -> None:
    for horizon in (0.5, 1.0, 3.0):
        rates = np.concatenate([lognormal(30_000), np.ones(500), np.zeros(3), [3000.0]])
        spread, flat = spread_phases(rates), flat_phases(rates, horizon)
        assert not np.array_equal(flat, spread)
        assert np.all((flat >= 0.0) & (flat < 1.0))
        assert np.array_equal(points_before(horizon, rates, flat), points_before(horizon, rates, spread))


def greedily(objective: Any, sources: fo.Sources, age: Floats, time: Floats) -> list[int]:  # noqa: ANN401
    """All indices for every slot; V by its definition s·c(s) − ∫c, a rule of 60 nodes for the integral."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    cost: dict[type, Callable[[Floats, Floats], Floats]] = {
        BinaryFreshness: lambda s, d: -np.expm1(-d * s),
        AccumulatedDelay: lambda s, d: d * s,
        Age: lambda s, d: s + np.expm1(-d * s) / d,
    }
    c, last, picked = cost[type(objective)], -age, []
    for t in time:
        s = t - last
        within = s * (nodes[:, None] + 1.0) / 2.0
        integral = s / 2.0 * (weights @ c(within, sources.change_rate))
        k = int(np.argmax(sources.importance * (s * c(s, sources.change_rate) - integral)))
        picked.append(k)
        last[k] = t
    return picked


@matrix(kind=["binary", "delay", "age"], n=[1, 5, 150])
def test_greedy_picks_the_largest_index(kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    # Ages that spread the indices: those of fresh copies lie below what a quadrature can tell apart.
    sources, age = fo.Sources(rng.lognormal(0.0, 1.0, n), rng.pareto(1.5, n) + 1.0), rng.exponential(2.0, n)
    problem = fo.Problem(OBJECTIVES[kind], sources, bandwidth=float(n))
    source, time = Greedy(problem, age).times(np.ones(n), 5.0)
    assert source.tolist() == greedily(OBJECTIVES[kind], sources, age.copy(), time)


def one_at_a_time(problem: fo.Problem, time: Floats, age: Floats) -> list[int]:
    """All indices for every slot, from the curve."""
    curve = problem.objective.curve(problem.sources)  # type: ignore[attr-defined]
    last, picked = -age, []
    for t in time:
        k = int(np.argmax(problem.sources.importance * curve.index(t - last + 0.0, *curve.parameters)))
        picked.append(k)
        last[k] = t
    return picked


@pytest.mark.exhaustive
@matrix(kind=OBJECTIVES, case=["alike", "pairs", "few kinds", "worthless", "aged"], n=[7, 700])
def test_contenders_leave_out_nobody(kind: str, case: str, n: int) -> None:
    rng = np.random.default_rng(n)
    change_rate, weight, age = rng.lognormal(0.0, 1.5, n), rng.pareto(1.5, n) + 1.0, np.zeros(n)
    if case == "alike":  # equal in everything: the first position goes first
        change_rate, weight = np.ones(n), np.ones(n)
    elif case == "pairs":
        change_rate, weight = np.repeat(change_rate, 2)[:n], np.repeat(weight, 2)[:n]
    elif case == "few kinds":
        change_rate, weight = rng.integers(1, 4, n).astype(float), rng.integers(1, 3, n).astype(float)
    elif case == "worthless":
        weight[::2] = 0.0
    else:
        age = rng.exponential(1.0, n)
    problem = fo.Problem(OBJECTIVES[kind], fo.Sources(change_rate, weight), bandwidth=float(n))
    source, time = Greedy(problem, age).times(np.ones(n), 4.0)
    assert source.tolist() == one_at_a_time(problem, time, age)


def test_nobody_worth_a_pick_leaves_it_to_the_first() -> None:
    problem = fo.Problem(BinaryFreshness(fo.Refresh.POISSON), fo.Sources(np.ones(3), 0.0), bandwidth=3.0)
    assert Greedy(problem).times(np.ones(3), 1.0)[0].tolist() == [0, 0, 0]


@pytest.mark.exhaustive
def test_a_day_of_many_sources_settles_near_the_optimum() -> None:
    rng = np.random.default_rng(4)
    sources = fo.Sources(rng.lognormal(0.0, 1.5, 5000), rng.pareto(1.5, 5000) + 1.0)
    problem = fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), sources, bandwidth=5000.0)
    solution = fo.solve(problem)
    plan = fo.schedule(solution, 30.0, Greedy(problem))
    assert expected_value(plan, problem.objective, problem.sources) >= solution.value * (1.0 - SCALAR)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_greedy_settles_into_the_optimal_rates(kind: str) -> None:
    rng = np.random.default_rng(3)
    sources = fo.Sources(rng.lognormal(0.0, 1.0, 150), rng.pareto(1.5, 150) + 1.0)
    problem = fo.Problem(OBJECTIVES[kind], sources, bandwidth=150.0)
    solution = fo.solve(problem)
    source, time = Greedy(problem).times(np.ones(150), 90.0)
    counts = np.bincount(source[time > 20.0], minlength=150)
    assert np.abs(counts / 70.0 - solution.rates).sum() <= 0.02 * solution.rates.sum()


def test_greedy_leaves_signalled_sources_to_their_signals() -> None:
    sources = fo.Sources(np.ones(4), signalled=[False, True, False, True])
    solution = fo.solve(fo.Problem(BinaryFreshness(fo.Refresh.POISSON), sources, bandwidth=2.0))
    plan = fo.schedule(solution, 30.0, Greedy(solution.problem))
    assert set(plan.source.tolist()) <= {0, 2}
    assert plan.crawl_probability is not None


def cost_of(problem: fo.Problem, count: npt.ArrayLike, horizon: float, shift: int) -> float:
    """Σ w·J at equal gaps, from closed forms and, for harmonic, from a rule of 60 nodes."""
    w, d = problem.sources.importance, problem.sources.change_rate
    nodes, weights = np.polynomial.legendre.leggauss(60)
    with np.errstate(all="ignore"):
        s = horizon / (np.asarray(count) + shift)
        u = d * s
        stale = np.where(np.isinf(u), 1.0, 1.0 + np.expm1(-u) / u)
        within = u * (nodes[:, None] + 1.0) / 2.0
        ein = u / 2.0 * (weights @ (-np.expm1(-within) / within))
        cells: dict[type, Floats] = {
            BinaryFreshness: stale,
            AccumulatedDelay: u / 2.0,
            Age: s / 2.0 - stale / d,
            HarmonicStaleness: ein - stale,
        }
        each = cells[type(problem.objective)]
        return float(w @ np.where(np.isnan(each), np.inf, each))


@matrix(kind=OBJECTIVES, repeats=[True, False], every=5)
def test_counts_are_the_best_of_all(kind: str, repeats: bool) -> None:
    rng = np.random.default_rng(8)
    for spend in range(3, 10):
        sources = fo.Sources(rng.lognormal(0.0, 1.0, 3), rng.lognormal(0.0, 1.0, 3))
        horizon = float(rng.lognormal(0.0, 1.0))
        problem = fo.Problem(OBJECTIVES[kind], sources, bandwidth=spend / horizon)
        counts = crawl_counts(problem, horizon, repeats=repeats)
        assert counts.sum() == spend
        every = [x for x in itertools.product(range(spend + 1), repeat=3) if sum(x) == spend]
        costs = [cost_of(problem, x, horizon, 0 if repeats else 1) for x in every]
        found = cost_of(problem, counts, horizon, 0 if repeats else 1)
        assert found <= min(costs) * (1.0 + SCALAR)


def bought_one_by_one(problem: fo.Problem, horizon: float, spend: int, least: int, most: int) -> float:
    """The cost after buying the largest gain again and again."""
    count = np.full(len(problem.sources), least)

    def each(x: npt.NDArray[np.int64]) -> Floats:
        u = problem.sources.change_rate * horizon / (x + 1.0)
        return problem.sources.importance * (1.0 + np.expm1(-u) / u)

    for _ in range(spend - count.sum()):
        gain = np.where(count < most, each(count) - each(count + 1), -1.0)
        count[int(np.argmax(gain))] += 1
    return float(each(count).sum())


@pytest.mark.exhaustive
def test_counts_of_many_sources_with_bounds() -> None:
    rng = np.random.default_rng(9)
    sources = fo.Sources(
        rng.lognormal(0.0, 2.0, 6000), rng.pareto(1.5, 6000) + 1.0, min_rate=0.4, max_rate=2.2
    )
    problem = fo.Problem(OBJECTIVES["binary"], sources, bandwidth=9000.0)
    counts = crawl_counts(problem, 2.0, repeats=False)
    assert counts.sum() == 18_000
    assert counts.min() == 1  # 0.8, rounded up
    assert counts.max() == 4  # 4.4, rounded down
    best = bought_one_by_one(problem, 2.0, 18_000, 1, 4)
    assert cost_of(problem, counts, 2.0, 1) == pytest.approx(best, rel=SCALAR)


def test_counts_beat_rounded_rates_and_lie_at_equal_gaps() -> None:
    rng = np.random.default_rng(10)
    sources = fo.Sources(rng.lognormal(0.0, 1.0, 500), rng.pareto(1.5, 500) + 1.0)
    problem = fo.Problem(OBJECTIVES["harmonic"], sources, bandwidth=1000.0)
    solution = fo.solve(problem)
    plan = fo.schedule(solution, 1.0, DiscreteCounts(problem))
    counts = crawl_counts(problem, 1.0)
    assert plan.counts.tolist() == counts.tolist()
    assert counts.sum() == 1000
    rounded = np.maximum(np.floor(solution.rates), 1.0)
    rest = np.argsort(-(solution.rates - rounded))[: int(1000 - rounded.sum())]
    rounded[rest] += 1.0
    assert rounded.sum() == 1000
    assert solution.value <= cost_of(problem, counts, 1.0, 0) < cost_of(problem, rounded, 1.0, 0)
    for k in range(0, 500, 50):
        own = plan.time[plan.source == k]
        assert np.diff(own) == pytest.approx(np.full(len(own) - 1, 1.0 / counts[k]), rel=SCALAR)


def problem_of(min_rate: float = 0.0, max_rate: float = math.inf, cost: npt.ArrayLike = 1.0) -> fo.Problem:
    sources = fo.Sources([1.0, 2.0], min_rate=min_rate, max_rate=max_rate, refresh_cost=cost)
    return fo.Problem(OBJECTIVES["harmonic"], sources, bandwidth=3.0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Greedy(problem_of(max_rate=2.0)), fo.SourceDataError, "the problem has a max_rate"),
        (lambda: Greedy(problem_of(min_rate=0.1)), fo.SourceDataError, "the problem has a min_rate"),
        (lambda: Greedy(problem_of(cost=[1.0, 2.0])), fo.SourceDataError, "unequal costs"),
        (
            lambda: Greedy(fo.Problem(PollingKnapsack(), fo.Sources([0.1, 0.2]), 1.0)),
            fo.ObjectiveError,
            "hence no index",
        ),
        (lambda: Greedy(problem_of()).times(np.ones(3), 1.0), fo.SourceDataError, "3 rates for 2 sources"),
        (lambda: Greedy(problem_of(), -1.0).times(np.ones(2), 1.0), fo.SourceDataError, "age must be"),
        (lambda: EarliestDeadline([1.0]).times(np.ones(2), 1.0), fo.SourceDataError, "age has shape"),
        (lambda: crawl_counts(problem_of(), 0.0), fo.SourceDataError, "horizon is 0"),
        (lambda: crawl_counts(problem_of(cost=[1.0, 2.0]), 1.0), fo.SourceDataError, "unequal costs"),
        (lambda: crawl_counts(problem_of(), 0.5), fo.InfeasibleProblemError, "2 sources cost infinitely"),
        (lambda: crawl_counts(problem_of(min_rate=1.2), 1.0), fo.InfeasibleProblemError, "bounds need 4"),
        (lambda: crawl_counts(problem_of(), 1.0, refreshes=-1), fo.SourceDataError, "refreshes is -1"),
        (lambda: DiscreteCounts(problem_of()).times(np.ones(3), 1.0), fo.SourceDataError, "3 rates for 2"),
    ],
)
def test_refusals(call: Callable[[], object], error: type[Exception], message: str) -> None:
    refused(message, call, error=error)
