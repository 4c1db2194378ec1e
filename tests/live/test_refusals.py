"""What a planner refuses, in one line each, and that its folder stays as it was."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.live import sqlite_store
from freshopt.live.planner import Planner
from freshopt.problems import PowerCost, SynchronizationCost


def snapshot(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of a planner's database."""
    with sqlite3.connect(folder / "planner.sqlite") as database:
        tables = ("planner", "source", "observation")
        return {name: sorted(database.execute(f"SELECT * FROM {name}"), key=repr) for name in tables}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, r"there is no planner in '.*'. Pass bandwidth="),
        ({"bandwidth": -5}, "bandwidth is -5"),
        ({"bandwidth": 0}, "bandwidth is 0. Pass a rate > 0"),
        ({"bandwidth": "5 days"}, "is a duration, not a rate"),
        ({"bandwidth": 5, "replan": 0}, "replan is 0. Pass a duration > 0"),
        ({"bandwidth": 5, "lease": math.inf}, "lease is inf"),
        ({"bandwidth": 5, "gap_limit": 2}, "gap_limit is 2. Pass a share from 0 to 1"),
        ({"bandwidth": 5, "explore": math.nan}, "explore is nan"),
        ({"bandwidth": 5, "time_unit": "fortnight"}, "time_unit 'fortnight' is not known"),
        ({"bandwidth": 5, "host_limits": {"a": -1}}, "the limit of host 'a' is -1"),
        ({"bandwidth": 5, "host_limits": {3: 1}}, "host_limits name 3. Hosts are text"),
        (
            {"bandwidth": 5, "objective": fo.problems.Age(fo.Refresh.ON_REQUEST)},
            "which are never due: the first request",
        ),
    ],
)
def test_settings_that_cannot_be_used_leave_nothing_behind(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(fo.FreshoptError, match=words) as caught:
        Planner(tmp_path / "state", **settings)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "state").exists()


CALLS: dict[str, tuple[Callable[[Planner], object], str]] = {
    "unknown source": (lambda p: p.observed("x", 2.0, True), "there is no source 'x'"),
    "far ahead": (
        lambda p: p.observed("a", 1e9, True),
        "time of 'a' is 1000000000.0, more than a day and a lease",
    ),
    "no time": (lambda p: p.observed("a", math.nan, True), "time is nan in row 0"),
    "a date": (lambda p: p.observed("a", datetime.now(UTC), True), "time is a date"),
    "no outcome": (lambda p: p.observed("a", 2.0, "yes"), "changed of 'a' is 'yes'"),  # type: ignore[arg-type]
    "contradiction": (lambda p: p.observed("a", 1.0, False), "recorded as changed, and now reported as unch"),
    "counts": (lambda p: p.observed("a", 2.0, False, changes=2), "changes of 'a' is 2, and changed is False"),
    "half a change": (lambda p: p.observed("a", 2.0, True, changes=0.5), "changes of 'a' is 0.5"),
    "one of many": (lambda p: p.observed_many(["a", "x"], [2.0, 2.0], [1, 1]), "there is no source 'x'"),
    "twice unlike": (lambda p: p.observed_many(["a", "a"], [2.0, 2.0], [0, 1]), "Report each crawl once"),
    "lengths": (lambda p: p.observed_many(["a", "b"], [2.0, 2.0, 3.0], [1, 1]), "time has 3 values for 2"),
    "name": (lambda p: p.add(7), "source is 7. A planner's sources are named by text"),  # type: ignore[arg-type]
    "empty name": (lambda p: p.add(""), "source is ''"),
    "half a letter": (lambda p: p.add("\ud800"), "no text that can be written"),
    "importance": (lambda p: p.add("c", importance=-1.0), "importance of 'c' is -1.0. Pass a number 0 or"),
    "free": (lambda p: p.add("c", refresh_cost=0.0), "refresh_cost of 'c' is 0.0. Pass a number > 0"),
    "crossed": (lambda p: p.add("a", min_rate=2.0, max_rate=1.0), "min_rate exceeds max_rate for 'a'"),
    "too much": (lambda p: p.add("c", min_rate=9.0), "min_rate need 10 refreshes per day but bandwidth is 5"),
    "host": (lambda p: p.add("c", host="h", min_rate=1.5), "of host 'h' need 1.5 .* limit is 1"),
    "twice": (lambda p: p.add_many(["c", "c"]), "source 'c' is named twice"),
    "no names": (lambda p: p.add_many(fo.Sources([1.0, 2.0])), "the sources have no names"),
    "one name": (lambda p: p.add_many("abc"), "sources is 'abc'. Pass several names"),
    "not there": (lambda p: p.remove("a", "x"), "there is no source 'x'. Nothing was removed"),
    "no present": (lambda p: p.due(), "now is missing, and this planner counts days"),
    "limit": (lambda p: p.due(2.0, limit=-1), "limit is -1"),
    "failed": (lambda p: p.failed("x", 2.0), "there is no source 'x'"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_refused_changes_nothing(tmp_path: Path, name: str) -> None:
    with Planner(tmp_path, bandwidth=5.0, host_limits={"h": 1.0}) as planner:
        planner.add("a", min_rate=1.0)
        planner.add("b", host="h")
        planner.due(2.5)
        planner.observed("a", 1.0, True)
        before = snapshot(tmp_path)
        call, words = CALLS[name]
        with pytest.raises(fo.FreshoptError, match=words) as caught:
            call(planner)
        assert "\n" not in str(caught.value)
        assert snapshot(tmp_path) == before
        assert planner.observed("a", 3.0, False)


def test_a_bandwidth_below_the_least_rates_is_refused_when_reopened(tmp_path: Path) -> None:
    with Planner(tmp_path, bandwidth=5.0) as planner:
        planner.add("a", min_rate=4.0)
    before = snapshot(tmp_path)
    with pytest.raises(fo.InfeasibleProblemError, match="need 4 refreshes per day but bandwidth is 2"):
        Planner(tmp_path, bandwidth=2.0)
    with pytest.raises(fo.SourceDataError, match=r"counts days\. Leave it out"):
        Planner(tmp_path, time_unit="hour")
    assert snapshot(tmp_path) == before


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(fo.SourceDataError, match=r"has other files, such as 'notes.txt', and no planner"):
        Planner(tmp_path, bandwidth=5.0)
    with pytest.raises(
        fo.SourceDataError, match=r"notes.txt' cannot hold a planner: it is a file. Pass a folder.$"
    ):
        Planner(tmp_path / "notes.txt", bandwidth=5.0)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    other = tmp_path / "other"
    other.mkdir()
    with sqlite3.connect(other / "planner.sqlite") as database:
        database.execute("CREATE TABLE mine (x)")
    with pytest.raises(fo.SourceDataError, match="is an SQLite database of something else"):
        Planner(other, bandwidth=5.0)
    (other / "planner.sqlite").write_bytes(b"not a database, " * 1000)
    with pytest.raises(fo.SourceDataError, match=r"cannot be read: file is not a database"):
        Planner(other, bandwidth=5.0)
    with pytest.raises(fo.SourceDataError, match="is no address of a database"):
        Planner("mysql://host/base", bandwidth=5.0)


def test_tables_of_a_newer_version_are_left_alone(tmp_path: Path) -> None:
    Planner(tmp_path, bandwidth=5.0).close()
    with sqlite3.connect(tmp_path / "planner.sqlite") as database:
        database.execute("UPDATE planner SET value = '99' WHERE key = 'schema'")
    before = snapshot(tmp_path)
    with pytest.raises(fo.SourceDataError, match="tables of version 99, and this freshopt knows version 3"):
        Planner(tmp_path, bandwidth=6.0)
    assert snapshot(tmp_path) == before


def test_a_locked_database_is_waited_for_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "WAIT", 0.1)
    with Planner(tmp_path, bandwidth=5.0) as planner:
        planner.add("a")
        other = sqlite3.connect(tmp_path / "planner.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(fo.FreshoptError, match=r"was locked by another process for 0.1 s. Nothing was"):
            planner.observed("a", 1.0, True)
        other.execute("ROLLBACK")
        other.close()
        assert planner.observed("a", 1.0, True)


def test_a_closed_planner_says_so(tmp_path: Path) -> None:
    planner = Planner(tmp_path, bandwidth=5.0)
    planner.close()
    with pytest.raises(fo.FreshoptError, match=r"is closed\. Open it again"):
        planner.add("a")
    assert "closed" in repr(planner)


class Cubed(fo.Objective):
    """An objective of the user's own."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -3))


def test_an_objective_of_ones_own_is_passed_at_each_opening(tmp_path: Path) -> None:
    with Planner(tmp_path, bandwidth=5.0, objective=Cubed()) as planner:
        planner.add_many(["a", "b"], importance=[1.0, 4.0])
        planner.due(0.0)
        rates = planner.to_frame()["rate"].to_numpy()
        # Of equal change rates the optimum has rates in the proportion of importance to the power 1/4.
        np.testing.assert_allclose(rates[1] / rates[0], 4.0**0.25, rtol=1e-6)
    with pytest.raises(fo.SourceDataError, match="one of your own, which is not kept"):
        Planner(tmp_path)
    with Planner(tmp_path, objective=Cubed()) as planner:
        assert len(planner.due(5.0)) > 0


def test_an_objective_with_parameters_is_kept(tmp_path: Path) -> None:
    objective = SynchronizationCost(PowerCost(2.0, 0.5))
    Planner(tmp_path, bandwidth=5.0, objective=objective).close()
    with Planner(tmp_path) as planner:
        assert repr(planner.settings.objective) == repr(objective)
