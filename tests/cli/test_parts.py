"""The parts by themselves: `estimate`, `solve`, `schedule`, `examples`, `doctor`."""

import math
import re
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt import versions
from freshopt.datasets.change_histories import load_example
from freshopt.terminal.inputs import example_log
from freshopt.terminal.options import SOLVERS
from tests.ground_truth.command_lines import EXAMPLE, Run, fields, refuse, unwrapped
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import SCALAR


def test_estimate_says_how_many_sources_are_of_which_kind(run: Run) -> None:
    Path("log.csv").write_text("source,time,changed\na,0,0\na,1,1\na,2,0\nb,0,0\nc,0,0\nc,1,1\n")
    shown = fields(run("estimate", "log.csv", "--out", "rates.csv", "--smoothing", "0").output)
    assert shown["log"] == (
        "log.csv: 6 crawls of 3 sources, 2 found a change, times as plain numbers of days, from 0 to 2"
    )
    assert shown["change rates"] == "median source one in 1.44 days; 1 always changed, 1 baseline only, 1 ok"
    frame = pl.read_csv("rates.csv")
    assert frame.columns == ["source", "change_rate", "lower", "upper", "flag"]
    np.testing.assert_allclose(frame["change_rate"].to_numpy(), [math.log(2), np.nan, np.inf], rtol=SCALAR)


def test_solve_takes_bounds_and_weights_and_any_solver(run: Run) -> None:
    Path("sources.csv").write_text(
        "source,change_rate,importance,min_rate,max_rate\n"
        "a,1,1,0.5,inf\nb,2,3,0,0.7\nc,4,0,0,9\nd,0.2,1,0,1e9\n"
    )
    rates = {}
    for solver in ("auto", "water-filling", "clarabel", "ecos", "scs"):
        how = ("--objective", "delay", "--bandwidth", "2", "--solver", solver, "--out", f"{solver}.csv")
        output = run("solve", "sources.csv", *how).output
        assert "solution: optimal, by " in output
        assert f"wrote: {solver}.csv" in output
        rates[solver] = pl.read_csv(f"{solver}.csv")["rate"].to_numpy()
        np.testing.assert_allclose(rates[solver], rates["auto"], atol=1e-3)
    # b is held at 0.7 and c has no weight; a and d share the rest by the square roots of 1 and 0.2.
    share = 1.3 / (1.0 + math.sqrt(0.2))
    np.testing.assert_allclose(rates["auto"], [share, 0.7, 0.0, 1.3 - share], rtol=SCALAR)


def test_schedule_reads_a_table_of_rates_from_anywhere(run: Run) -> None:
    Path("rates.csv").write_text("source,rate,comment\n10,2,often\n3,0,never\n4,0.5,seldom\n")
    moment = "2024-02-28T22:00:00+02:00"
    run("schedule", "rates.csv", "--horizon", "4d", "--start", moment, "--out", "schedule.parquet")
    frame = pl.read_parquet("schedule.parquet")
    assert dict(frame["source"].value_counts().iter_rows()) == {10: 8, 4: 2}
    begin = datetime(2024, 2, 28, 20, tzinfo=UTC)
    for time, stamp in frame.select("time", "timestamp").iter_rows():
        assert abs(stamp - begin - timedelta(days=time)) < timedelta(microseconds=2)
    run("schedule", "rates.csv", "--horizon", "4d", "--out", "plain.csv")
    assert pl.read_csv("plain.csv").columns == ["source", "time"]


def test_signalled_sources_are_read_as_such(run: Run) -> None:
    Path("sources.csv").write_text("source,change_rate,signalled\na,1,TRUE\nb,1,false\n")
    how = ("--refresh", "poisson", "--bandwidth", "1", "--out", "rates.csv")
    run("solve", "sources.csv", *how)
    rates = pl.read_csv("rates.csv")["rate"].to_list()
    problem = fo.Problem(
        fo.problems.HarmonicStaleness(fo.Refresh.POISSON),
        fo.Sources([1.0, 1.0], signalled=[True, False]),
        bandwidth=1.0,
    )
    np.testing.assert_allclose(rates, fo.solve(problem).rates, rtol=SCALAR)
    assert rates[0] != pytest.approx(rates[1], rel=0.01)


@pytest.mark.exhaustive
def test_examples_are_listed_and_written_with_their_dates(run: Run) -> None:
    listed = run("examples").output
    uploads = r"debian-uploads +upload days of 344 Debian source packages, .*"
    assert re.fullmatch(uploads + r"\ngstreamer-plugins +commits to 368 plugins .*\n", listed)
    assert "434205 crawls of 344 sources" in run("examples", "debian-uploads").output
    run("examples", "debian-uploads", "--out", "log.parquet")
    frame, log = pl.read_parquet("log.parquet"), load_example("debian-uploads")
    assert frame.columns == ["source", "time", "changed"]
    assert frame["time"].dtype == pl.Datetime("us")
    assert frame["changed"].to_list() == log.changed.astype(int).tolist()
    run("plan", "log.parquet", *EXAMPLE[2:], "--out", "own")
    run("plan", *EXAMPLE, "--out", "bundled")
    for name in ("change_rates", "rates", "schedule"):
        assert Path("own", f"{name}.parquet").read_bytes() == Path("bundled", f"{name}.parquet").read_bytes()


def test_an_example_with_dates_is_read_as_it_was_written(run: Run) -> None:
    run("examples", "gstreamer-plugins", "--out", "log.parquet")
    log, again = load_example("gstreamer-plugins"), fo.read_log("log.parquet")
    assert log.last_modified is not None
    assert again.names.tolist() == log.names.tolist()
    np.testing.assert_array_equal(again.changed, log.changed)
    np.testing.assert_allclose(again.time, log.time, atol=1e-9)
    np.testing.assert_allclose(present(again.last_modified), log.last_modified, atol=1e-9)
    hours = present(example_log("gstreamer-plugins", "hour").last_modified)
    np.testing.assert_allclose(hours, 24.0 * log.last_modified, atol=1e-6)


@pytest.mark.exhaustive
def test_every_name_in_the_help_is_accepted(run: Run) -> None:
    Path("sources.csv").write_text("source,change_rate\na,1\nb,2\n")
    suited = {"lambda-crawl": "harmonic", "lambda-crawl-approx": "harmonic", "binary-lambda-crawl": "binary"}
    for solver in SOLVERS:
        cell: tuple[str, ...] = ("--objective", suited.get(solver, "delay"), "--refresh", "poisson")
        cell = ("--objective", "deadline", "--deadline", "1d") if solver == "highs" else cell
        how = (*cell, "--bandwidth", "1", "--solver", solver, "--out", f"{solver}.csv")
        if solver in (
            "nested-water-filling",
            "ratio-water-filling",
            "leximin",
            "water-filling-cuda",
            "lifetime-rule",
        ):
            # They are for declared constraints, for the worst of several groups, for a GPU, and for caches.
            assert "does not apply" in run("solve", "sources.csv", *how, code=2).output
            continue
        run("solve", "sources.csv", *how)
        assert math.fsum(pl.read_csv(f"{solver}.csv")["rate"]) == pytest.approx(1.0, rel=SCALAR)


def test_tables_remember_their_time_unit(run: Run, log: Path) -> None:
    hours = ("--time-unit", "hour")
    run("estimate", str(log), "--out", "change_rates.csv", *hours)
    assert set(pl.read_csv("change_rates.csv")["time_unit"]) == {"hour"}
    shown = run("solve", "change_rates.csv", "--bandwidth", "6/day", "--out", "rates.parquet").output
    shown = unwrapped(shown)
    assert "bandwidth=0.25 per hour" in shown
    run("schedule", "rates.parquet", "--horizon", "2d", "--out", "hours.parquet")
    run("estimate", str(log), "--out", "daily.csv")
    assert "time_unit" not in pl.read_csv("daily.csv").columns
    run("solve", "daily.csv", "--bandwidth", "6/day", "--out", "days.csv")
    run("schedule", "days.csv", "--horizon", "2d", "--out", "days.parquet")
    tables = (pl.read_parquet(f"{unit}.parquet") for unit in ("hours", "days"))
    by_hour, by_day = (table.sort("source", "time") for table in tables)
    assert by_hour["source"].to_list() == by_day["source"].to_list()
    np.testing.assert_allclose(by_hour["time"].to_numpy() / 24.0, by_day["time"].to_numpy(), atol=1e-6)
    run("plan", str(log), "--bandwidth", "6/day", "--horizon", "7d", "--out", "plan", *hours, "--csv")
    for name in ("change_rates", "rates"):
        assert set(pl.read_csv(f"plan/{name}.csv")["time_unit"]) == {"hour"}


def test_a_time_unit_that_contradicts_the_table_is_refused(folder: Path) -> None:
    Path("hourly.csv").write_text("source,rate,time_unit\na,1,hour\nb,2,hour\n")
    schedule = ["schedule", "hourly.csv", "--horizon", "7d", "--out", "out.csv"]
    refuse(folder, [*schedule, "--time-unit", "day"], ("hourly.csv is per hour, and not per day", "Leave"))
    Path("mixed.csv").write_text("source,rate,time_unit\na,1,hour\nb,2,day\n")
    refuse(folder, ["schedule", "mixed.csv", *schedule[2:]], ("'time_unit' of mixed.csv", "Write the same"))
    Path("mixed.csv").write_text("source,rate,time_unit\na,1,moon\n")
    refuse(folder, ["schedule", "mixed.csv", *schedule[2:]], ("'moon' is not known", "hour, day"))


def test_doctor_names_versions_extras_and_whether_the_cache_hits(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = fields(run("doctor").output)
    assert shown["freshopt"].startswith(f"{version('freshopt')} in ")
    for name in ("numpy", "polars", "click", "rich"):
        assert shown[name] == version(name)
    assert re.fullmatch(r".+, \d+ threads? used", shown["processor"])
    assert shown["[dask]"] == "found"
    assert shown["compiler cache"].endswith(": a second process finds it")
    versions.show_versions()
    assert fields(capsys.readouterr().out) == shown


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "kept_code_found", lambda: (None, False))
    monkeypatch.setattr(
        versions,
        "requires",
        lambda _: ["numpy>=2", "no-such-package; extra == 'dask'", "freshopt[dask]; extra == 'test'"],
    )
    found = versions.versions()
    assert found["[dask]"] == "missing: no-such-package"
    assert found["compiler cache"].startswith("none: ")
    assert "scipy" not in found
