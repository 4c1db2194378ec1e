"""What a planner and commands that fetch a source refuse or find, and that a folder stays as it was."""

import hashlib
import math
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.live import sqlite_store
from freshopt.live.source_command import SourceCommand
from freshopt.problems import PowerCost, SynchronizationCost
from tests.ground_truth.refusals import refused


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
        ({"bandwidth": 5, "host_limits": {3: "1/day"}}, "host_limits name 3. Hosts are text"),
        (
            {"bandwidth": 5, "objective": fo.problems.Age(fo.Refresh.ON_REQUEST)},
            "which are never due: the first request",
        ),
    ],
)
def test_settings_that_cannot_be_used_leave_nothing_behind(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    refused(words, fo.Planner, tmp_path / "state", error=fo.FreshoptError, **settings)
    assert not (tmp_path / "state").exists()


CALLS: dict[str, tuple[Callable[[fo.Planner], object], str]] = {
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
    with fo.Planner(tmp_path, bandwidth=5.0, host_limits={"h": "1/day"}) as planner:
        planner.add("a", min_rate=1.0)
        planner.add("b", host="h")
        planner.due(2.5)
        planner.observed("a", 1.0, True)
        before = snapshot(tmp_path)
        call, words = CALLS[name]
        refused(words, call, planner, error=fo.FreshoptError)
        assert snapshot(tmp_path) == before
        assert planner.observed("a", 3.0, False)


def test_a_bandwidth_below_the_least_rates_is_refused_when_reopened(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, bandwidth=5.0) as planner:
        planner.add("a", min_rate=4.0)
    before = snapshot(tmp_path)
    with pytest.raises(fo.InfeasibleProblemError, match="need 4 refreshes per day but bandwidth is 2"):
        fo.Planner(tmp_path, bandwidth=2.0)
    refused(r"counts days\. Leave it out", fo.Planner, tmp_path, time_unit="hour")
    assert snapshot(tmp_path) == before


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused(r"has other files, such as 'notes.txt', and no planner", fo.Planner, tmp_path, bandwidth=5.0)
    with pytest.raises(
        fo.SourceDataError, match=r"notes.txt' cannot hold a planner: it is a file. Pass a folder.$"
    ):
        fo.Planner(tmp_path / "notes.txt", bandwidth=5.0)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    other = tmp_path / "other"
    other.mkdir()
    with sqlite3.connect(other / "planner.sqlite") as database:
        database.execute("CREATE TABLE mine (x)")
    refused("is an SQLite database of something else", fo.Planner, other, bandwidth=5.0)
    (other / "planner.sqlite").write_bytes(b"not a database, " * 1000)
    refused(r"cannot be read: file is not a database", fo.Planner, other, bandwidth=5.0)
    refused("is no address of a database", fo.Planner, "mysql://host/base", bandwidth=5.0)


def test_tables_of_a_newer_version_are_left_alone(tmp_path: Path) -> None:
    fo.Planner(tmp_path, bandwidth=5.0).close()
    with sqlite3.connect(tmp_path / "planner.sqlite") as database:
        database.execute("UPDATE planner SET value = '99' WHERE key = 'schema'")
    before = snapshot(tmp_path)
    refused("tables of version 99, and this freshopt knows version 3", fo.Planner, tmp_path, bandwidth=6.0)
    assert snapshot(tmp_path) == before


def test_a_locked_database_is_waited_for_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "WAIT", 0.1)
    with fo.Planner(tmp_path, bandwidth=5.0) as planner:
        planner.add("a")
        other = sqlite3.connect(tmp_path / "planner.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(fo.FreshoptError, match=r"was locked by another process for 0.1 s. Nothing was"):
            planner.observed("a", 1.0, True)
        other.execute("ROLLBACK")
        other.close()
        assert planner.observed("a", 1.0, True)


def test_a_closed_planner_says_so(tmp_path: Path) -> None:
    planner = fo.Planner(tmp_path, bandwidth=5.0)
    planner.close()
    refused(r"is closed\. Open it again", planner.add, "a", error=fo.FreshoptError)
    assert "closed" in repr(planner)


class Cubed(fo.Objective):
    """An objective of the user's own."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -3))


def test_an_objective_of_ones_own_is_passed_at_each_opening(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, bandwidth=5.0, objective=Cubed()) as planner:
        planner.add_many(["a", "b"], importance=[1.0, 4.0])
        planner.due(0.0)
        rates = planner.to_frame()["rate"].to_numpy()
        # Of equal change rates the optimum has rates in the proportion of importance to the power 1/4.
        np.testing.assert_allclose(rates[1] / rates[0], 4.0**0.25, rtol=1e-6)
    refused("one of your own, which is not kept", fo.Planner, tmp_path)
    with fo.Planner(tmp_path, objective=Cubed()) as planner:
        assert len(planner.due(5.0)) > 0


def test_an_objective_with_parameters_is_kept(tmp_path: Path) -> None:
    objective = SynchronizationCost(PowerCost(2.0, 0.5))
    fo.Planner(tmp_path, bandwidth=5.0, objective=objective).close()
    with fo.Planner(tmp_path) as planner:
        assert repr(planner.settings.objective) == repr(objective)


SHELL = "sh -c '{}' sh {{source}}"


def shell(script: str, **settings: object) -> SourceCommand:
    return SourceCommand.parse(SHELL.format(script), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a b", "x; touch never", "$(id)", "--help'\"", "ü\n2", "{host}"])
def test_a_name_comes_out_as_it_is(name: str) -> None:
    found = SourceCommand.parse("printf %s {source}").run(name)
    assert found.content == hashlib.sha256(name.encode()).hexdigest()


def test_a_backslash_between_folders_is_no_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: program)
    for sep, program in (("/", "C:toolsget.exe"), ("\\", "C:\\tools\\get.exe")):
        monkeypatch.setattr("os.sep", sep)
        assert SourceCommand.parse(r"C:\tools\get.exe 'a b' {source}").words == (program, "a b", "{source}")


def test_the_output_tells_a_change() -> None:
    command = shell('echo "$1"; echo noise >&2')
    assert command.run("a").content == command.run("a").content
    assert command.run("a").content != command.run("b").content


def test_the_exit_code_tells_a_change() -> None:
    command = shell("exit $1", changed_by="exit-code")
    assert command.run("0").changed is False
    assert command.run("1").changed is True
    assert command.run("2").failure == "exit code 2"


def test_a_failure_is_no_evidence() -> None:
    found = shell("echo half; echo no such page >&2; exit 22").run("a")
    assert (found.content, found.changed, found.failure) == ("", None, "exit code 22 (no such page)")
    assert shell("kill -9 $$").run("a").failure == "signal 9"
    assert "NUL" not in shell("true").run("a\0b").content
    assert shell("true").run("a\0b").failure


def test_what_hangs_is_ended_with_all_that_it_started() -> None:
    mark = f"{os.getpid()}.25"
    found = shell(f"sleep {mark} & sleep {mark}; echo late", timeout=0.3).run("a")
    assert found.failure == "took more than 0.3 s and was ended"
    time.sleep(0.1)
    running = subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert f"sleep {mark}" not in running
    assert shell("yes", timeout=0.2).run("a").failure


@pytest.mark.parametrize("raised", [ProcessLookupError, PermissionError])
def test_a_group_that_has_ended_is_no_error(raised: type[OSError], monkeypatch: pytest.MonkeyPatch) -> None:
    def killpg(_group: int, _signal: int) -> None:
        raise raised

    monkeypatch.setattr("os.killpg", killpg)
    assert shell("true").run("a").content
    assert shell("exit 1", changed_by="exit-code").run("a").changed is True


def test_refusals() -> None:
    for text, why in (
        ("cat 'x {source}", r"cannot be split into words"),
        ("cat {url} {source}", r"has \{url\}, which is unknown"),
        ("cat x", r"does not name the source"),
        ("no-such-program {source}", r"the program no-such-program of the command is not there"),
    ):
        refused(why, SourceCommand.parse, text)
