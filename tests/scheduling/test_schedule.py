"""Schedules: the times that a method gives to rates, iterated, cut by time, asked what is due; refusals."""

import math
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest

import freshopt as fo
from freshopt.numerics.arrays import Array
from freshopt.problems import HarmonicStaleness
from freshopt.scheduling import (
    Carousel,
    EarliestDeadline,
    Periodic,
    PoissonArrivals,
    Schedule,
    SlotAssignment,
)
from freshopt.scheduling.refresh_order import PEAK_BYTES
from freshopt.scheduling.schedule import Method, schedule
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT

METHODS: list[Method] = [
    Periodic(),
    PoissonArrivals(seed=3),
    Carousel(),
    EarliestDeadline(),
    EarliestDeadline(age=0.5),
    SlotAssignment(slot=0.05, capacity=10_000),
    SlotAssignment(slot=0.05, capacity=120, preferred=PoissonArrivals(seed=3)),
]


def lognormal_rates(n: int) -> Array:
    return np.random.default_rng(1).lognormal(0.0, 1.5, n)


def table(rates: npt.ArrayLike) -> dict[int, float]:
    return dict(enumerate(np.asarray(rates, dtype=float).tolist()))


def solved(rates: npt.ArrayLike, **columns: Any) -> Any:  # noqa: ANN401 - stands in for a Solution
    """Return what `schedule` uses of a solution."""
    return SimpleNamespace(rates=np.asarray(rates), problem=SimpleNamespace(sources=fo.Sources(**columns)))


def load_deviation(time: Array, rate: float) -> float:
    """Return the largest distance of the number of refreshes so far from the straight line rate·t."""
    done = np.arange(len(time) + 1)
    line = rate * time
    return float(max(np.max(np.abs(done[1:] - line)), np.max(np.abs(done[:-1] - line))))


def test_periodic_gaps_are_exactly_the_reciprocal_of_the_rate() -> None:
    rates = np.concatenate([lognormal_rates(200), [1e-9, 1e-3, 250.0]])
    plan = schedule(table(rates), 40.0, Periodic())
    for k, rate in enumerate(rates):
        time = plan.time[plan.source == k]
        assert np.all(np.abs(np.diff(time) - 1 / rate) <= EXACT * 40.0)
        assert len(time) == 0 or 0 <= time[0] < 1 / rate


@matrix(horizon=[1e-3, 1.0, 7.0, 365.25], every=3)
def test_periodic_counts_are_within_one_of_rate_times_horizon(horizon: float) -> None:
    rates = np.concatenate([lognormal_rates(500), np.arange(1.0, 20.0), np.arange(1.0, 20.0) / 7.0])
    plan = schedule(table(rates), horizon, Periodic())
    assert np.all(np.abs(plan.counts - rates * horizon) < 1 + EXACT)
    assert plan.counts.sum() == len(plan)


@matrix(n=[10, 100, 1000, 10_000], every=2)
def test_periodic_load_of_equal_rates_has_the_discrepancy_of_the_golden_sequence(n: int) -> None:
    # Kuipers & Niederreiter, Uniform Distribution of Sequences, chapter 2, Theorem 3.4, partial quotients 1:
    # N·D_N ≤ 3 + (1/ln φ + 1/ln 2)·ln N, φ the golden ratio. Measured: 0.9, 1.4, 1.3, 2.6.
    plan = schedule(table(np.ones(n)), 10.0, Periodic())
    golden = (1 + math.sqrt(5)) / 2
    assert load_deviation(plan.time, n) <= 3 + (1 / math.log(golden) + 1 / math.log(2)) * math.log(n)


@matrix(n=[1000, 10_000], family=["lognormal", "zipf"])
def test_periodic_load_of_unequal_rates_is_flatter_than_random_phases_give(family: str, n: int) -> None:
    rates = lognormal_rates(n) if family == "lognormal" else 1 / np.arange(1.0, n + 1)
    rates *= n / rates.sum()
    plan = schedule(table(rates), 10.0, Periodic())
    # With independent uniform phases the deviation at one instant has variance Σ f(1-f) ≈ n/6, f the
    # fractional part of ρt, and its maximum over time is about √n. Measured here: at most 0.5 √n.
    assert load_deviation(plan.time, n) <= 2 / 3 * math.sqrt(n)


def test_poisson_counts_are_poisson() -> None:
    rates = lognormal_rates(2000)
    counts = schedule(table(rates), 25.0, PoissonArrivals(seed=0)).counts
    mean = rates * 25.0
    # Pearson's statistic has mean n and variance 2n + Σ 1/mean; five standard deviations.
    statistic = np.sum((counts - mean) ** 2 / mean)
    assert abs(statistic - len(rates)) <= 5 * math.sqrt(2 * len(rates) + np.sum(1 / mean))
    assert abs(counts.sum() - mean.sum()) <= 5 * math.sqrt(mean.sum())


def test_poisson_gaps_are_exponential() -> None:
    plan = schedule({"a": 3.0}, 20_000.0, PoissonArrivals(seed=0))
    gap = np.sort(np.diff(plan.time, prepend=0.0))
    expected = -np.expm1(-3.0 * gap)
    m = len(gap)
    distance = max(np.max(np.arange(1, m + 1) / m - expected), np.max(expected - np.arange(m) / m))
    assert distance <= 1.95 / math.sqrt(m)  # Kolmogorov's critical value at level 0.001


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_schedules_are_sorted_deterministic_and_inside_the_horizon(method: Method) -> None:
    rates = lognormal_rates(300)
    plan, again = (schedule(table(rates), 7.0, method) for _ in range(2))
    assert np.array_equal(plan.source, again.source)
    assert np.array_equal(plan.time, again.time)
    assert np.array_equal(np.lexsort((plan.source, plan.time)), np.arange(len(plan)))
    assert plan.time[0] >= 0
    assert plan.time[-1] < 7.0


def test_equal_times_are_ordered_by_source() -> None:
    def together(rates: Array, horizon: float) -> tuple[npt.NDArray[np.int64], Array]:
        return np.tile(np.arange(len(rates)), 2), np.repeat([0.0, horizon / 2], len(rates))

    plan = schedule({"a": 1.0, "b": 1.0}, 2.0, SimpleNamespace(times=together))
    assert plan.counts.tolist() == [2, 2]
    with pytest.raises(fo.SourceDataError, match="refresh 1 at 0 comes after one at 0"):
        Schedule(source=[1, 0], time=[0.0, 0.0], horizon=1.0, rates=[1.0, 1.0])


def test_different_seeds_give_different_schedules() -> None:
    first, second = (schedule({"a": 100.0}, 1.0, PoissonArrivals(seed=seed)) for seed in (0, 1))
    assert len(first) != len(second) or not np.array_equal(first.time, second.time)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_sources_of_rate_zero_are_absent(method: Method) -> None:
    plan = schedule({"a": 0.0, "b": 5.0, "c": 0.0}, 4.0, method)
    assert set(plan.source.tolist()) == {1}
    assert plan.counts[[0, 2]].tolist() == [0, 0]
    assert len(schedule({"a": 0.0}, 4.0, method)) == 0


def test_single_source() -> None:
    plan = schedule({"only": 2.0}, 3.0, Periodic())
    assert len(plan) == 6
    assert repr(plan) == "Schedule(6 refreshes of 1 source in 3 days, Periodic())"


@pytest.mark.exhaustive
def test_no_refresh_falls_on_the_horizon() -> None:
    # For every one of these pairs ρ·T is a whole number in exact arithmetic but often not in float64.
    for horizon in (0.1, 0.3, 0.7, 1.1, 49.0):
        for wanted in range(1, 200):
            _, time = Periodic().times(np.array([wanted / horizon]), horizon)
            assert time[-1] < horizon
            assert abs(len(time) - wanted) <= 1


def test_a_solution_brings_names_unit_and_signals() -> None:
    solution = solved(
        [2.0, 0.25, 1.0],
        change_rate=[1.0, 0.5, 1.0],
        names=["a", "b", "c"],
        signalled=[False, True, True],
        time_unit="hour",
    )
    plan = schedule(solution, 5.0, Periodic())
    assert plan.time_unit == "hour"
    assert present(plan.names).tolist() == ["a", "b", "c"]
    assert plan.counts.tolist() == [10, 0, 0]
    np.testing.assert_array_equal(present(plan.crawl_probability), [np.nan, 0.5, 1.0])
    assert repr(plan) == "Schedule(10 refreshes of 3 sources in 5 hours, 2 crawled on signal, Periodic())"


def test_a_table_gives_the_same_schedule_as_a_mapping() -> None:
    columns = {"source": ["a", "b"], "rate": [3.0, 0.7]}
    expected = schedule({"a": 3.0, "b": 0.7}, 9.0, Periodic())
    for frame in (pl.DataFrame(columns), pd.DataFrame(columns)):
        plan = schedule(frame, 9.0, Periodic(), time_unit="day")
        assert np.array_equal(plan.time, expected.time)
        assert np.array_equal(plan.source, expected.source)
        assert plan.crawl_probability is None


def test_a_table_with_signals() -> None:
    frame = pl.DataFrame(
        {"source": [7, 9], "rate": [1.0, 1.0], "signalled": [False, True], "change_rate": [1.0, 4.0]}
    )
    plan = schedule(frame, 3.0, Periodic())
    assert plan.counts.tolist() == [3, 0]
    assert present(plan.crawl_probability)[1] == 0.25
    refused("no column 'change_rate'", schedule, frame.drop("change_rate"), 3.0, Periodic())


def test_to_frame_names_sources_and_adds_timestamps() -> None:
    plan = Schedule(
        source=[1, 0], time=[0.0, 1.5], horizon=2.0, rates=[0.5, 0.5], names=["a", "b"], time_unit="hour"
    )
    assert plan.to_frame().rows() == [("b", 0.0), ("a", 1.5)]
    expected = [datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, 30, tzinfo=UTC)]
    paris = timezone(timedelta(hours=1))
    origins: list[datetime | np.datetime64] = [
        np.datetime64("2026-01-01T12"),
        datetime(2026, 1, 1, 12),
        datetime(2026, 1, 1, 13, tzinfo=paris),
    ]
    for origin in origins:
        frame = plan.to_frame(origin)
        assert frame["timestamp"].to_list() == expected
        assert frame.schema["timestamp"] == pl.Datetime("us", "UTC")
    unnamed = Schedule(source=[1, 0], time=[0.0, 1.5], horizon=2.0, rates=[0.5, 0.5])
    assert unnamed.to_frame()["source"].to_list() == [1, 0]


def test_arrays_are_read_only_views() -> None:
    time = np.array([0.0, 1.0])
    plan = Schedule(source=np.array([0, 0]), time=time, horizon=2.0, rates=np.array([1.0]))
    assert plan.time.base is time
    assert not plan.time.flags.writeable
    assert time.flags.writeable


@pytest.mark.parametrize("horizon", [0.0, -1.0, math.nan, math.inf])
def test_a_horizon_must_be_positive_and_finite(horizon: float) -> None:
    refused("horizon is", schedule, {"a": 1.0}, horizon, Periodic())


@pytest.mark.parametrize("bad", [math.nan, -0.5, math.inf])
def test_a_rate_that_is_no_rate_is_refused_by_name(bad: float) -> None:
    refused(r"rate out of range for 'b': ", schedule, {"a": 1.0, "b": bad}, 1.0, Periodic())
    with pytest.raises(fo.SourceDataError, match=r"rate out of range for source 1: "):
        schedule(solved([1.0, bad], change_rate=[1.0, 1.0]), 1.0, Periodic())


@pytest.mark.parametrize(
    ("free", "room", "longest"),
    [(None, "the limit is 16 GiB", 16 * 2**30 / 64 / 2e9), (2**31, "2 GiB are free", 2**31 / 64 / 2e9)],
)
def test_a_schedule_that_does_not_fit_in_memory_is_refused_with_the_longest_that_does(
    free: int | None, room: str, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshopt.scheduling.refresh_order.free_memory", lambda: free)
    rates = {"a": 1e9, "b": 1e9}
    refused(rf"GiB until .*, and {room}.*at most {longest:.3g} days", schedule, rates, 30.0, Periodic())
    refused(room, schedule, {"a": 1e100}, 1.0, PoissonArrivals())


def test_what_a_schedule_takes_until_it_is_written_is_no_more_than_is_counted() -> None:
    """A process of its own, whose largest memory tells."""
    script = """
import re, sys, numpy as np, freshopt as fo
from pathlib import Path
from freshopt.logs.tables import write_table
def made(days):
    frame = fo.schedule({"a": 6e5, "b": 4e5}, days, start=np.datetime64("2026-01-01")).to_frame()
    write_table(frame, sys.argv[1])
    # The largest of this process: getrusage's is at least that of the one which started it.
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
before = made(2.0)  # with all that is loaded
print((made(6.0) - before) / (4.0 * 1e6))
"""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", script, f"{folder}/times.parquet"]
        each = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 20.0 < each < 1.25 * PEAK_BYTES


def test_signalled_sources_are_not_crawled_more_often_than_they_change() -> None:
    columns: dict[str, Any] = {"change_rate": [1.0], "names": ["a"], "signalled": True}
    with pytest.raises(fo.SourceDataError, match=r"crawled more often than signalled: 'a': 1\.1 > 1"):
        schedule(solved([1.1], **columns), 1.0, Periodic())
    plan = schedule(solved([1.0 + EXACT], **columns), 1.0, Periodic())
    assert present(plan.crawl_probability)[0] == 1.0


def test_tables_that_cannot_be_read_are_refused() -> None:
    method = Periodic()
    with pytest.raises(fo.SourceDataError, match="no column 'rate', it has 'source', 'speed'"):
        schedule(pl.DataFrame({"source": ["a"], "speed": [1.0]}), 1.0, method)
    with pytest.raises(fo.SourceDataError, match="more than one rate for 'a'"):
        schedule(pl.DataFrame({"source": ["a", "b", "a"], "rate": [1.0, 1.0, 1.0]}), 1.0, method)
    with pytest.raises(fo.SourceDataError, match="column 'rate' has 1 empty cell\\."):
        schedule(pl.DataFrame({"source": ["a", "b"], "rate": [1.0, None]}), 1.0, method)
    refused("rates are a ndarray", schedule, np.ones(3), 1.0, method)
    refused("there are no rates", schedule, {}, 1.0, method)
    refused("time_unit 'fortnight' is not known", schedule, {"a": 1.0}, 1.0, method, time_unit="fortnight")
    with pytest.raises(fo.SourceDataError, match="time_unit is 'hour' but the solution's rates are per day"):
        schedule(solved([1.0], change_rate=[1.0]), 1.0, method, time_unit="hour")


def test_schedules_whose_arrays_do_not_fit_are_refused() -> None:
    refused("Give one source per time", Schedule, source=[0], time=[0.0, 1.0], horizon=2.0, rates=[1.0])
    refused("one name per rate", Schedule, source=[0], time=[0.0], horizon=2.0, rates=[1.0], names=["a", "b"])
    with pytest.raises(fo.SourceDataError, match=r"source ranges over 0\.\.1, but there are 1"):
        Schedule(source=[0, 1], time=[0.0, 1.0], horizon=2.0, rates=[1.0])
    refused("comes after one at 1", Schedule, source=[0, 0], time=[1.0, 0.5], horizon=2.0, rates=[1.0])
    for outside in (-0.5, 2.0, math.nan):
        refused(r"outside \[0, 2\)", Schedule, source=[0], time=[outside], horizon=2.0, rates=[1.0])


def test_importing_scheduling_loads_no_heavy_library() -> None:
    code = (
        "import sys, freshopt.scheduling, freshopt.scheduling.schedule\n"
        "print(*{'polars', 'scipy', 'cvxpy', 'numba', 'narwhals'} & set(sys.modules))\n"
        "print(*[name for name in sys.modules if name.startswith('freshopt.estimators.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, estimators = done.stdout.splitlines()
    assert heavy == ""
    assert {name.rpartition(".")[2] for name in estimators.split()} == {
        "week_clock",
        "weekly_learning",
        "weekly_profile",
    }


NAMES = ["news", "blog", "archive"]
BEGIN = datetime(2026, 3, 1, 6, tzinfo=UTC)


@pytest.fixture
def plan() -> fo.Schedule:
    sources = fo.Sources([2.0, 1.0, 0.3], importance=[3.0, 2.0, 1.0], names=NAMES)
    solution = fo.solve(fo.Problem(HarmonicStaleness(fo.Refresh.POISSON), sources, bandwidth=4.0))
    return fo.schedule(solution, horizon=10.0, method=Periodic(), start=BEGIN)


def test_iterating_yields_times_and_names_in_turn(plan: fo.Schedule) -> None:
    visits = list(plan)
    assert len(visits) == len(plan)
    assert [visit.time for visit in visits] == plan.time.tolist()
    assert [visit.source for visit in visits] == [NAMES[k] for k in plan.source]
    time, source = visits[0]
    assert (time, source) == (plan.time[0], NAMES[plan.source[0]])
    bare = fo.Schedule([1, 0], [0.0, 0.5], horizon=1.0, rates=[1.0, 1.0])
    assert [visit.source for visit in bare] == [1, 0]


def test_long_schedules_are_iterated_in_pieces() -> None:
    n = 20_001
    long = fo.Schedule(np.zeros(n, dtype=int), np.arange(n) / n, horizon=1.0, rates=[float(n)], names=["a"])
    assert [visit.time for visit in long] == long.time.tolist()


def test_slices_are_half_open_on_the_same_clock_and_make_up_the_whole(plan: fo.Schedule) -> None:
    cuts = [0.0, 1.25, float(plan.time[7]), 6.0, 10.0]
    parts = [plan.between(begin, end) for begin, end in pairwise(cuts)]
    assert np.concatenate([part.time for part in parts]).tolist() == plan.time.tolist()
    assert np.concatenate([part.source for part in parts]).tolist() == plan.source.tolist()
    assert parts[2].time[0] == plan.time[7]
    for part in parts:
        assert (part.horizon, part.time_unit, part.method) == (plan.horizon, plan.time_unit, plan.method)
        assert part.start == plan.start
        assert part.importance is not None
    assert len(plan.between(3.0, 3.0)) == 0
    moments = plan.between(BEGIN + timedelta(days=2), np.datetime64("2026-03-06T06:00"))
    assert moments.time.tolist() == plan.between(2.0, 5.0).time.tolist()


def test_asking_again_and_again_misses_none_and_gives_none_twice(plan: fo.Schedule) -> None:
    asked = [0.0, float(plan.time[3]), 4.4, 10.0]
    found = [plan.due(asked[0])] + [plan.due(now, since=last) for last, now in pairwise(asked)]
    assert np.concatenate([part.time for part in found]).tolist() == plan.time.tolist()
    assert plan.due(BEGIN + timedelta(hours=12)).time.tolist() == plan.time[plan.time <= 0.5].tolist()
    naive = plan.due(datetime(2026, 3, 1, 18))
    assert naive.time.tolist() == plan.due(0.5).time.tolist()


def test_a_table_has_timestamps_where_the_start_is_known(plan: fo.Schedule) -> None:
    stamps = plan.to_frame()["timestamp"]
    assert stamps.dtype == pl.Datetime("us", "UTC")
    assert stamps[0] == BEGIN + timedelta(days=float(plan.time[0]))
    assert "timestamp" not in fo.schedule({"a": 1.0}, horizon=2.0).to_frame().columns


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda plan: plan.between(2.0, 1.0), "the end, 1, comes before the begin, 2"),
        (lambda plan: plan.due(1.0, since=2.0), "now, 1, comes before since, 2"),
        (lambda plan: plan.between(np.nan, 1.0), "begin is nan"),
        (lambda plan: plan.due(np.datetime64("NaT")), "NaT"),
        (lambda _: fo.schedule({"a": 1.0}, horizon=2.0).due(BEGIN), "does not know when it starts"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, message: str, plan: fo.Schedule) -> None:  # noqa: ANN401
    refused(message, call, plan)


def test_a_replay_weighs_sources_as_the_schedule_does(plan: fo.Schedule) -> None:
    """A recorded world knows no weights; those of the plan count, and not all alike."""
    world = fo.World.poisson(fo.Sources([2.0, 1.0, 0.3], names=NAMES), seed=4)
    offsets, time = world.events(0.0, 10.0)
    recorded = fo.World.from_events(
        {"source": np.repeat(NAMES, np.diff(offsets)), "time": time}, names=np.array(NAMES), horizon=10.0
    )
    own = fo.replay(plan, recorded).costs["harmonic"].value
    told = fo.replay(plan, recorded, importance=[3.0, 2.0, 1.0]).costs["harmonic"].value
    alike = fo.replay(plan, recorded, importance=1.0).costs["harmonic"].value
    assert own == told != alike
    table = pl.DataFrame({"source": NAMES, "rate": [1.0, 0.5, 0.1], "importance": [1.0, 4.0, 2.0]})
    assert fo.schedule(table, horizon=2.0).importance is not None
    assert fo.schedule({"a": 1.0}, horizon=2.0).importance is None
