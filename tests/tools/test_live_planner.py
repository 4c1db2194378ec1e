"""A live planner's folder as a log, and as the rates in force."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.formatting import number
from freshopt.tools.live_planner import read_planner
from tests.ground_truth.command_lines import Run, fields, refuse
from tests.ground_truth.refusals import present

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
JOB = ("--bandwidth", "6/day", "--horizon", "7d", "--draws", "0")


@pytest.fixture
def planner(folder: Path) -> Path:
    """A month of two sources and of one that was removed; dates."""
    with fo.Planner(folder / "state", bandwidth="4/day") as own:
        own.add_many(["often", "seldom", "gone"], importance=[1.0, 2.0, 1.0])
        for k in range(240):
            now = BEGIN + timedelta(hours=3 * k)
            for visit in own.due(now):
                own.observed(visit.source, now, changed=visit.source == "often" or k % 40 == 0)
        own.remove("gone")
    return folder / "state"


def test_a_plan_of_what_a_planner_observed(run: Run, planner: Path) -> None:
    with fo.Planner(planner) as own:
        log, rates = own.log(), own.to_frame()
    names = log.names.tolist()
    crawls = sum(
        log.offsets[names.index(name) + 1] - log.offsets[names.index(name)] for name in ("often", "seldom")
    )
    for unit in ("day", "hour"):
        shown = fields(
            run("plan", "--details", "state", *JOB, "--time-unit", unit, "--out", f"plan-{unit}").output
        )
        assert shown["log"].startswith(
            f"live planner in state: {crawls} crawls of 2 sources, 2026-03-02 to 2026-0"
        )
    known = pl.read_parquet("plan-day/change_rates.parquet")
    assert known["source"].to_list() == ["often", "seldom"]
    assert known["importance"].to_list() == [1.0, 2.0]
    hourly = pl.read_parquet("plan-hour/change_rates.parquet")["change_rate"]
    assert (hourly * 24.0 / known["change_rate"]).to_list() == pytest.approx([1.0, 1.0], rel=1e-6)
    # The rates in force are those that the planner has.
    ran = run("plan", "--details", "state", *JOB, "--compare", "state", "--out", "again")
    output = " ".join(ran.output.split())
    assert f"{number(float(rates['rate'].sum()))} refreshes per day, staleness" in output
    assert "2 of 2 intervals changed" in output
    for name, interval in rates.select("source", "interval").iter_rows():
        assert f"{interval:.3g} days" in output or f"{24 * interval:.3g} hours" in output, name
    assert json.loads(Path("again/summary.json").read_text())["changes"]["gone"] == 0


def test_other_commands_read_it_too(run: Run, planner: Path) -> None:
    assert "of 2 sources" in run("estimate", "state", "--out", "estimates.csv").output
    assert "live planner in state" in run("poisson-check", "state").output
    assert (planner / "planner.sqlite").exists()


@pytest.mark.parametrize("dated", [True, False])
def test_the_log_is_the_planners_own(folder: Path, dated: bool) -> None:
    with fo.Planner(folder / "own", bandwidth=2.0, time_unit="hour") as own:
        own.add_many(["b", "a"], importance=[2.0, 3.0])
        own.due(BEGIN if dated else 0.0)
        for name, hour, changes in (("a", 1, 0), ("b", 2, 0), ("a", 5, 2), ("b", 7, 0), ("a", 9, 0)):
            time = BEGIN + timedelta(hours=hour) if dated else float(hour)
            # The second date is later than the crawl whose state it describes: it is not used.
            date = {("b", 2): 1.5, ("b", 7): 6.0}.get((name, hour))
            modified = BEGIN + timedelta(hours=date) if dated and date else date
            counted = changes if name == "a" else None
            own.observed(name, time, changes > 0, changes=counted, last_modified=modified)
        log = own.log()
    for unit, scale in (("hour", 1.0), ("day", 24.0)):
        read, importance = read_planner(folder / "own", unit)
        assert importance.tolist() == [3.0, 2.0]
        assert read.names.tolist() == log.names.tolist() == ["a", "b"]
        assert (read.origin, read.time_unit) == (log.origin, unit)
        np.testing.assert_allclose(read.time * scale, log.time, rtol=1e-12)
        np.testing.assert_array_equal(read.changed, log.changed)
        np.testing.assert_array_equal(present(read.changes), present(log.changes))
        assert log.last_modified is not None
        np.testing.assert_allclose(present(read.last_modified) * scale, log.last_modified, rtol=1e-12)


def test_a_database_of_something_else_is_refused(folder: Path) -> None:
    (folder / "state").mkdir()
    (folder / "state" / "planner.sqlite").write_text("no database, but as long as the head of one " * 9)
    refuse(folder, ["plan", "state", *JOB, "--out", "p"], ("planner.sqlite cannot be read", "copy"))


@pytest.mark.usefixtures("planner")
def test_what_does_not_go_with_it(folder: Path) -> None:
    refuse(folder, ["plan", "state", *JOB, "--out", "p", "--columns", "a=source"], ("--columns", "planner"))
    refuse(folder, ["plan", "state", *JOB, "--out", "state", "--overwrite"], ("planner.sqlite", "lost"))
    with fo.Planner(folder / "new", bandwidth=1.0) as own:
        own.add("a")
    refuse(folder, ["plan", "new", *JOB, "--out", "p"], ("observed none of its sources yet", "Crawl first"))
    refuse(
        folder, ["plan", "state", *JOB, "--out", "p", "--compare", "new"], ("no rates in force yet", "new")
    )
    with fo.Planner(folder / "state") as own:
        own.remove("often", "seldom")
    refuse(folder, ["plan", "state", *JOB, "--out", "p"], ("observed none of its sources yet",))
