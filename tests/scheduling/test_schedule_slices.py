"""Schedules read by a crawler: iterated, cut by time, and asked what is due; weights reach the replay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.errors import SourceDataError
from freshopt.problems import HarmonicStaleness
from freshopt.scheduling import Periodic

NAMES = ["news", "blog", "archive"]
BEGIN = datetime(2026, 3, 1, 6, tzinfo=UTC)


@pytest.fixture
def plan() -> fo.Schedule:
    sources = fo.Sources([2.0, 1.0, 0.3], importance=[3.0, 2.0, 1.0], name=NAMES)
    solution = fo.solve(fo.Problem(HarmonicStaleness(), sources, bandwidth=4.0))
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
    with pytest.raises(SourceDataError, match=message):
        call(plan)


def test_a_replay_weighs_sources_as_the_schedule_does(plan: fo.Schedule) -> None:
    """A recorded world knows no weights; those of the plan count, and not all alike."""
    world = fo.World.poisson(fo.Sources([2.0, 1.0, 0.3], name=NAMES), seed=4)
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
