"""Replays: five changes by hand, windows, requests, signals, and what every discipline predicts."""

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

import freshopt as fo
from freshopt import problems
from freshopt.scheduling.expected_cost import expected_value
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR

OBJECTIVES: dict[str, type[Any]] = {
    "binary": problems.BinaryFreshness,
    "harmonic": problems.HarmonicStaleness,
    "delay": problems.AccumulatedDelay,
    "age": problems.Age,
}
POISSON, PERIODIC = fo.Refresh.POISSON, fo.Refresh.PERIODIC


def five_events() -> fo.World:
    """Source 0 changes at 11, 12, 15, 16 and 16.5; source 1 appears at 14 and never changes."""
    return fo.World.from_events(
        {"source": ["a"] * 5, "time": [11.0, 12.0, 15.0, 16.0, 16.5]},
        names=["a", "b"],
        start=[10.0, 14.0],
        horizon=30.0,
    )


def test_five_events_by_hand() -> None:
    # Refreshed at 14 and at 16, with the change there: after it. Stale 11..14, 15..16 and 16.5..20 of 10..20;
    # two changes missed in 12..14, else one. Source 1 is there, and fresh, for 6 of the 10 days.
    plan = fo.Schedule([0, 1, 0], [4.0, 5.0, 6.0], horizon=10.0, rates=[0.2, 0.1], names=["a", "b"])
    root = problems.ExpectedPenalty(np.sqrt)
    found = fo.replay(plan, five_events(), importance=[3.0, 1.0], objective=root)
    whole = 3.0 * 10.0 + 1.0 * 6.0
    by_hand = {
        "binary": 1.0 - 3.0 * (3.0 + 1.0 + 3.5) / whole,
        "harmonic": 3.0 * (1.0 + 1.5 * 2.0 + 1.0 + 3.5) / whole,
        "delay": 3.0 * (1.0 + 2.0 * 2.0 + 1.0 + 3.5) / whole,
        "age": 3.0 * (3.0**2 + 1.0 + 3.5**2) / 2.0 / whole,
        repr(root): 3.0 * (1.0 + math.sqrt(2.0) * 2.0 + 1.0 + 3.5) / whole,
    }
    assert list(found.costs) == list(by_hand)
    for name, mean in by_hand.items():
        assert found.costs[name].mean == pytest.approx(mean, rel=EXACT)
        assert found.costs[name].value == pytest.approx(4.0 * mean, rel=EXACT)
    assert found.per_source["delay"] == pytest.approx([0.95, 0.0], rel=EXACT)
    assert (found.begin, found.end, found.refreshes, found.on_signal, found.runs) == (10.0, 20.0, 3.0, 0.0, 1)
    # Two sources as a sample: residuals ±3·(7.5 − 10·m), where m = 22.5/36 is the mean stale share.
    error = math.sqrt(2.0 * 2.0 * (3.0 * (7.5 - 10.0 * 22.5 / 36.0)) ** 2) / whole
    assert found.costs["binary"].error == pytest.approx(4.0 * error, rel=EXACT)
    assert repr(found) == "Replay(3 refreshes of 2 sources in 10..20 days: fresh 0.3750 ± 0.2)"
    frame = found.to_frame()
    assert frame.columns == ["cost", "value", "error", "mean"]
    assert frame.filter(pl.col("cost") == "age")["mean"].item() == pytest.approx(by_hand["age"], rel=EXACT)


def test_an_origin_a_later_window_and_an_end_for_each_source() -> None:
    # From 11.5 on, fresh then; the change at 12 is missed until 14. What counts begins at 13 and ends at 15.5
    # for source 0 (stale 13..14 and 15..15.5) and at 16 for source 1.
    plan = fo.Schedule([0], [2.5], horizon=20.0, rates=[0.1, 0.0])
    found = fo.replay(plan, five_events(), origin=11.5, skip=1.5, end=[15.5, 16.0])
    assert found.per_source["binary"] == pytest.approx([1.5 / 2.5, 0.0], rel=EXACT)
    assert found.per_source["age"] == pytest.approx([(2.0**2 - 1.0 + 0.5**2) / 2.0 / 2.5, 0.0], rel=EXACT)
    assert found.costs["binary"].mean == pytest.approx(1.0 - 1.5 / 4.5, rel=EXACT)
    assert found.refreshes == 1.0
    # A source whose history ends before the window is not there.
    gone = fo.replay(plan, five_events(), origin=11.5, skip=1.5, end=[12.5, 16.0])
    assert np.isnan(gone.per_source["binary"][0])
    assert gone.costs["binary"].value == 1.0
    assert math.isnan(gone.costs["binary"].error)


def test_given_requests_meet_the_copy_that_there_is() -> None:
    # Fresh 10..11, 14..15, 16..16.5; a request at a refresh (14, 16) comes after it, at a change (11) too.
    plan = fo.Schedule([0, 0], [4.0, 6.0], horizon=10.0, rates=[0.2, 0.0])
    times = [10.5, 11.0, 13.0, 14.0, 14.9, 15.5, 16.0, 16.4, 19.0, 25.0, 13.0, 15.0]
    who = [0] * 10 + [1] * 2  # the last of source 0 comes too late, the first of source 1 too early
    found = fo.replay(plan, five_events(), requests=(who, times))
    assert found.costs["requests"].mean == pytest.approx((5 + 1) / 10, rel=EXACT)
    error = math.sqrt(2.0 * ((5 - 9 * 0.6) ** 2 + (1 - 0.6) ** 2)) / 10
    assert found.costs["requests"].error == pytest.approx(2.0 * error, rel=EXACT)


def test_requests_of_a_poisson_process_see_time_averages() -> None:
    rng = np.random.default_rng(4)
    sources = fo.Sources(rng.lognormal(0.0, 1.0, 200), rng.pareto(1.5, 200) + 1.0)
    plan = fo.schedule(dict(enumerate(np.full(200, 1.0))), 50.0, fo.scheduling.Periodic())
    found = fo.replay(plan, fo.World.poisson(sources, seed=2), skip=5.0, requests=200_000)
    seen, average = found.costs["requests"], found.costs["binary"]
    # Both look at the same copies, so that only the sampling of the requests is between them.
    sampling = math.sqrt(average.mean * (1.0 - average.mean) / 200_000)
    assert abs(seen.mean - average.mean) < 4.0 * sampling
    assert seen.error / float(np.sum(sources.importance)) > sampling


def instance(kind: str, refresh: fo.Refresh, *, signalled: npt.ArrayLike = False) -> fo.Problem:
    rng = np.random.default_rng(12)
    n = 300
    flags = np.broadcast_to(np.asarray(signalled, dtype=bool), (n,))
    sources = fo.Sources(rng.lognormal(0.0, 1.0, n), rng.pareto(2.5, n) + 1.0, signalled=flags)
    return fo.Problem(OBJECTIVES[kind](refresh=refresh), sources, bandwidth=0.8 * n)


def methods(problem: fo.Problem) -> dict[str, Any]:
    return {
        "periodic": fo.scheduling.Periodic(),
        "poisson": fo.scheduling.PoissonArrivals(seed=5),
        "carousel": fo.scheduling.Carousel(),
        "deadline": fo.scheduling.EarliestDeadline(),
        "greedy": fo.scheduling.Greedy(problem),
        "counts": fo.scheduling.DiscreteCounts(problem),
    }


@matrix(kind=OBJECTIVES, method=["periodic", "poisson", "carousel", "deadline", "greedy", "counts"], every=5)
def test_what_a_schedule_predicts_is_what_it_costs(kind: str, method: str) -> None:
    problem = instance(kind, PERIODIC)
    rates = fo.solve(problem).rates if method != "poisson" else np.full(300, 0.8)
    plan = fo.schedule(dict(enumerate(rates)), 12.0, methods(problem)[method])
    predicted = expected_value(plan, problem.objective, problem.sources)
    for seed in (1, 100):
        world = fo.World.poisson(problem.sources, seed=seed)
        found = fo.replay(plan, world, redraw=False).of(problem.objective)
        assert abs(found.z(predicted)) < 4.0
        assert found.error < 0.05 * abs(predicted)


@pytest.mark.exhaustive
@matrix(kind=OBJECTIVES, refresh=[POISSON, PERIODIC])
def test_what_a_solution_predicts_is_what_its_discipline_costs_in_the_long_run(
    kind: str, refresh: fo.Refresh
) -> None:
    # Half of the sources announce their changes, where the objective knows what that is worth.
    half = np.arange(300) % 2 == 0
    mixed = refresh is POISSON or kind != "age"
    problem = instance(kind, refresh, signalled=half if mixed else False)
    solution = fo.solve(problem)
    # Poisson refreshes have other times in each run, signals other coins.
    plan = fo.schedule(
        solution, 120.0, fo.scheduling.PoissonArrivals() if refresh is POISSON else fo.scheduling.Periodic()
    )
    found = fo.replay(plan, fo.World.poisson(problem.sources, seed=10), skip=60.0)
    assert (found.on_signal > 0) == mixed
    cost = found.of(problem.objective)
    assert abs(cost.z(solution.value)) < 4.0
    assert cost.error < 0.02 * abs(solution.value)


@pytest.mark.exhaustive
def test_costs_of_the_copys_age_are_the_expected_value_itself() -> None:
    sources = fo.Sources([1.0, 2.0, 3.0], [1.0, 5.0, 2.0])
    power = problems.SynchronizationCost(problems.PowerCost(scale=[1.0, 2.0, 0.5], exponent=0.5))
    plan = fo.schedule({"a": 1.0, "b": 2.0, "c": 0.0}, 7.3, fo.scheduling.PoissonArrivals(seed=1))
    found = fo.replay(plan, fo.World.poisson(sources, seed=1), objective=power, runs=2, redraw=False)
    assert found.of(power).value == pytest.approx(expected_value(plan, power, sources), rel=SCALAR)
    assert found.of(power).error == 0.0
    # Drawn anew, the times alone make the cost vary: by hand from two schedules.
    other = fo.schedule({"a": 1.0, "b": 2.0, "c": 0.0}, 7.3, fo.scheduling.PoissonArrivals(seed=2))
    pair = [expected_value(each, power, sources) for each in (plan, other)]
    again = fo.replay(plan, fo.World.poisson(sources, seed=1), objective=power, runs=2)
    assert again.of(power).value == pytest.approx(sum(pair) / 2.0, rel=SCALAR)
    assert again.of(power).error > 0.0
    root = problems.ExpectedPenalty(lambda m: np.asarray(m))
    same = fo.replay(plan, fo.World.poisson(sources, seed=1), objective=root)
    assert same.of(root) == same.of(problems.AccumulatedDelay(fo.Refresh.POISSON))


def test_a_share_of_signals_is_crawled_at_equal_numbers_beside_equal_gaps() -> None:
    sources = fo.Sources([3.0, 3.0, 3.0], signalled=[True, True, False])
    plan = fo.Schedule([2], [50.0], 100.0, rates=[1.5, 3.0, 0.01], crawl_probability=[0.5, 1.0, np.nan])
    found = fo.replay(plan, fo.World.poisson(sources, seed=3), runs=1)
    assert found.per_source["binary"][1] == 0.0
    assert abs(found.per_source["binary"][0] - 0.5) < 0.1
    offsets, _ = fo.World.poisson(sources, seed=3).events(0.0, 100.0)
    changes = np.diff(offsets)
    assert found.refreshes == found.on_signal + 1.0
    assert abs(found.on_signal - changes[1] - 0.5 * changes[0]) <= 0.5
    random = fo.schedule({"a": 1.5, "b": 3.0, "c": 0.01}, 100.0, fo.scheduling.PoissonArrivals(seed=1))
    drawn = fo.Schedule(
        plan.source,
        plan.time,
        100.0,
        plan.rates,
        crawl_probability=plan.crawl_probability,
        random_method=random.random_method,
    )
    coins = fo.replay(drawn, fo.World.poisson(sources, seed=3), runs=1, redraw=False)
    off = abs(coins.on_signal - changes[1] - 0.5 * changes[0])
    assert 0.5 < off < 4.0 * math.sqrt(0.25 * changes[0])
    assert found.per_source["harmonic"][0] < 0.9 * coins.per_source["harmonic"][0]
    again = fo.replay(plan, fo.World.poisson(sources, seed=3), runs=1)
    assert again.costs == found.costs
    others = [fo.replay(plan, fo.World.poisson(sources, seed=3), runs=1, seed=s).costs for s in range(1, 9)]
    assert any(costs != found.costs for costs in others)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda p, _: fo.replay(p, fo.World.poisson(fo.Sources([1.0]), 1)),
            fo.SourceDataError,
            "world has 1",
        ),
        (lambda p, w: fo.replay(p, w, origin=40.0), fo.SourceDataError, "nothing is left to count"),
        (lambda p, w: fo.replay(p, w, origin=5.0), fo.SourceDataError, "nothing is left to count"),
        (lambda p, w: fo.replay(p, w, skip=99.0), fo.SourceDataError, "nothing is left to count"),
        (lambda p, w: fo.replay(p, w, runs=2), fo.SourceDataError, "happened once"),
        (lambda p, w: fo.replay(p, w, runs=0), fo.SourceDataError, "Pass a whole number"),
        (lambda p, w: fo.replay(p, w, runs=cast("int", 1.5)), fo.SourceDataError, "Pass a whole number"),
        (lambda p, w: fo.replay(p, w, importance=0.0), fo.SourceDataError, "not all 0"),
        (
            lambda p, w: fo.replay(p, w, objective=problems.PollingKnapsack()),
            fo.ObjectiveError,
            "cannot be measured",
        ),
        (lambda p, w: fo.replay(p, w).of(problems.PollingKnapsack()), fo.ObjectiveError, "was not measured"),
        (
            lambda p, w: fo.replay(p, w, requests=([0], [99.0])),
            fo.SourceDataError,
            "no requests in the window",
        ),
        (lambda p, w: fo.replay(p, w, requests=([7], [11.0])), fo.SourceDataError, r"range over 7\.\.7"),
        (lambda p, w: fo.replay(p, w, requests=([0, 1], [1.0])), fo.SourceDataError, "Give each both"),
        (
            lambda _, w: fo.replay(fo.Schedule([], [], 1.0, [1.0, 1.0], names=["a", "c"]), w),
            fo.SourceDataError,
            "source 1 is 'c' in the schedule and 'b' in the world",
        ),
        (
            lambda _, w: fo.replay(fo.Schedule([], [], 1.0, [1.0, 1.0], time_unit="hour"), w),
            fo.SourceDataError,
            "counts hours, the world days",
        ),
        (
            lambda _, w: fo.replay(fo.Schedule([], [], 1.0, [1.0, 1.0], crawl_probability=[np.nan, 0.5]), w),
            fo.SourceDataError,
            "waits for signals of source 1",
        ),
    ],
)
def test_refusals(
    call: Callable[[fo.Schedule, fo.World], fo.Replay], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(fo.Schedule([0], [4.0], horizon=10.0, rates=[0.1, 0.0]), five_events())
