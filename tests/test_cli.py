"""The commands: what they print, what they write, and that the parts chained are the whole."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

import click
import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result

import freshopt as fo
from freshopt.cli import main
from freshopt.cli.options import OBJECTIVES, SOLVERS
from freshopt.examples.histories import load_example
from tests.tolerances import EXACT, SCALAR

Run: TypeAlias = Callable[..., Result]
EXAMPLE = ("--example", "debian-uploads", "--bandwidth", "4/day", "--horizon", "90d")
MAIN_JOB = ("--bandwidth", "6/day", "--horizon", "7d")
BEGIN = datetime(2024, 3, 30, tzinfo=UTC)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return a runner of command lines in an empty folder, which end well unless said otherwise."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == code, result.output
        return result

    return call


def crawl_log(n: int = 8, crawls: int = 40) -> pl.DataFrame:
    """A log of dates: sources with change rates from 0.1 to 3 per day, crawled about twice a day."""
    rng = np.random.default_rng(2)
    rows = []
    for k, rate in enumerate(np.geomspace(0.1, 3.0, n)):
        gaps = rng.uniform(0.1, 0.9, crawls)
        for day, gap in zip(np.cumsum(gaps).round(4), gaps, strict=True):
            changed = bool(rng.random() < -math.expm1(-rate * gap))
            rows.append((f"page/{k}", BEGIN + timedelta(days=float(day)), changed))
    return pl.DataFrame(rows, schema=["source", "time", "changed"], orient="row")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    crawl_log().write_parquet(tmp_path / "log.parquet")
    return Path("log.parquet")


def fields(output: str) -> dict[str, str]:
    """Return the labelled rows that a command printed."""
    return dict(re.split(r"  +", line, maxsplit=1) for line in output.splitlines() if "  " in line)


def test_the_main_job_on_the_example(run: Run) -> None:
    shown = fields(run("plan", *EXAMPLE, "--out", "plan").output)
    assert list(shown) == [
        *("log", "change rates", "objective", "bandwidth", "intervals", "value", "schedule", "proof", "time")
    ]
    facts = json.loads(Path("plan/summary.json").read_text(encoding="utf-8"))
    counts = facts["counts"]
    assert shown["log"] == "debian-uploads: 434,205 crawls of 344 sources, 2019-07-06 to 2023-02-01"
    assert f"{counts['refreshes']} refreshes in 90 days" in shown["schedule"]
    assert shown["schedule"].endswith(f"value over that time {facts['schedule_value']:.4g}")
    assert shown["value"].startswith(f"{facts['value']:.4g} in the long run")
    assert shown["bandwidth"].startswith("4 of 4 per day used; one more refresh per day would be worth up to")
    assert shown["proof"] == "optimal: relative gap below 1e-15"
    rates = pl.read_parquet("plan/rates.parquet")
    assert math.fsum(rates["rate"]) == pytest.approx(4.0, rel=EXACT)
    assert abs(counts["refreshes"] - 4 * 90) <= len(rates)
    schedule = pl.read_parquet("plan/schedule.parquet")
    assert schedule.columns == ["source", "time", "timestamp"]
    first = schedule.row(0, named=True)
    since = timedelta(days=first["time"])
    assert abs(first["timestamp"] - datetime(2023, 2, 1, tzinfo=UTC) - since) < timedelta(microseconds=2)


def test_it_runs_twice_with_overwrite_and_leaves_nothing_else(run: Run) -> None:
    run("plan", *EXAMPLE, "--out", "plan")
    before = {path.name: path.read_bytes() for path in Path("plan").iterdir()}
    assert "--overwrite" in run("plan", *EXAMPLE, "--out", "plan", code=2).output
    run("plan", *EXAMPLE, "--out", "plan", "--overwrite")
    for name, content in before.items():
        assert name == "summary.json" or Path("plan", name).read_bytes() == content
    run("plan", *EXAMPLE, "--out", "plan", "--overwrite", "--csv")
    assert sorted(os.listdir("plan")) == ["change_rates.csv", "rates.csv", "schedule.csv", "summary.json"]
    assert os.listdir() == ["plan"]


def test_the_example_follows_the_time_unit(run: Run) -> None:
    run("plan", *EXAMPLE, "--out", "days")
    shown = fields(run("plan", *EXAMPLE, "--out", "hours", "--time-unit", "hour").output)
    assert "2,160 hours" in shown["schedule"]
    days, hours = (pl.read_parquet(f"{unit}/rates.parquet")["rate"].to_numpy() for unit in ("days", "hours"))
    np.testing.assert_allclose(hours * 24.0, days, rtol=1e-6)
    stamps = [pl.read_parquet(f"{unit}/schedule.parquet")["timestamp"] for unit in ("days", "hours")]
    assert abs(stamps[0] - stamps[1]).max() < timedelta(seconds=1)  # type: ignore[operator]


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_logs_of_any_kind_give_the_same_plan(ending: str, run: Run) -> None:
    frame = crawl_log()
    frame.write_parquet("same.parquet")
    text = frame.with_columns(pl.col("time").dt.to_string("iso:strict"), pl.col("changed").cast(pl.Int8))
    if ending == "csv":
        text.write_csv("log.csv")
    elif ending == "csv.gz":
        Path("log.csv.gz").write_bytes(gzip.compress(text.write_csv().encode()))
    else:
        frame.reverse().write_parquet("log.parquet")
    run("plan", "same.parquet", *MAIN_JOB, "--out", "same")
    run("plan", f"log.{ending}", *MAIN_JOB, "--out", "plan")
    for name in ("change_rates", "rates", "schedule"):
        assert Path("plan", f"{name}.parquet").read_bytes() == Path("same", f"{name}.parquet").read_bytes()


def test_numbers_as_times_count_in_the_unit_and_have_no_timestamp(run: Run) -> None:
    rows = [(source, hour, int(hour % 5 == source % 5)) for source in (7, 8, 10) for hour in range(0, 60, 2)]
    pl.DataFrame(rows, schema=["source", "time", "changed"], orient="row").write_csv("log.csv")
    options = ("--bandwidth", "1/hour", "--horizon", "1d", "--time-unit", "hour", "--csv", "--out", "plan")
    shown = fields(run("plan", "log.csv", *options).output)
    assert shown["log"] == "log.csv: 90 crawls of 3 sources, time 0 to 58 hours"
    assert "in 24 hours" in shown["schedule"]
    schedule = pl.read_csv("plan/schedule.csv")
    assert schedule.columns == ["source", "time"]
    assert set(schedule["source"].to_list()) == {7, 8, 10}
    assert len(schedule) == pytest.approx(24, abs=3)
    assert math.fsum(pl.read_csv("plan/rates.csv")["rate"]) == pytest.approx(1.0, rel=EXACT)


@pytest.mark.parametrize("refresh", ["periodic", "poisson"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_parts_in_a_row_do_what_the_main_job_does(
    objective: str, refresh: str, run: Run, log: Path
) -> None:
    how = ("--objective", objective, "--refresh", refresh)
    run("plan", str(log), *how, *MAIN_JOB, "--seed", "5", "--out", "plan")
    run("estimate", str(log), "--out", "change_rates.csv")
    run("solve", "change_rates.csv", *how, "--bandwidth", "6/day", "--out", "rates.csv")
    end = crawl_log()["time"].max()
    assert isinstance(end, datetime)
    parts = ("--refresh", refresh, "--seed", "5", "--horizon", "1w", "--start", end.isoformat())
    run("schedule", "rates.csv", *parts, "--out", "schedule.parquet")
    facts = json.loads(Path("plan/summary.json").read_text(encoding="utf-8"))
    kinds = {
        "harmonic": "HarmonicStaleness",
        "binary": "BinaryFreshness",
        "delay": "AccumulatedDelay",
        "age": "Age",
    }
    assert (facts["objective"], facts["discipline"]) == (kinds[objective], refresh)
    change_rates, rates = pl.read_csv("change_rates.csv"), pl.read_csv("rates.csv")
    assert change_rates.equals(pl.read_parquet("plan/change_rates.parquet"))
    whole = pl.read_parquet("plan/rates.parquet")
    assert rates.columns == whole.columns
    assert rates["source"].to_list() == whole["source"].to_list()
    np.testing.assert_allclose(rates["rate"].to_numpy(), whole["rate"].to_numpy(), rtol=SCALAR)
    schedule, wanted = pl.read_parquet("schedule.parquet"), pl.read_parquet("plan/schedule.parquet")
    assert schedule["source"].to_list() == wanted["source"].to_list()
    np.testing.assert_allclose(schedule["time"].to_numpy(), wanted["time"].to_numpy(), rtol=SCALAR)
    assert abs(schedule["timestamp"] - wanted["timestamp"]).max() < timedelta(seconds=1)  # type: ignore[operator]


def test_importance_and_bounds_reach_the_rates(run: Run, log: Path) -> None:
    names = [f"page/{k}" for k in range(8)]
    weights = pl.DataFrame({"source": names[::-1], "importance": [0, 1, 1, 1, 1, 1, 1, 50]})
    weights.write_csv("weights.csv")
    shown = fields(run("plan", str(log), *MAIN_JOB, "--importance", "weights.csv", "--out", "a").output)
    rates = dict(pl.read_parquet("a/rates.parquet").select("source", "rate").iter_rows())
    assert rates["page/7"] == 0.0
    assert rates["page/0"] == max(rates.values())
    assert shown["intervals"].endswith("; 1 source never refreshed")
    run("plan", str(log), *MAIN_JOB, "--min-rate", "0.6/day", "--max-rate", "0.04/h", "--out", "b")
    bounded = pl.read_parquet("b/rates.parquet")["rate"].to_numpy()
    assert bounded.min() == 0.6
    assert bounded.max() == pytest.approx(0.96, rel=EXACT)


@pytest.mark.parametrize(
    "names", [("007", "008", "010"), ("1.10", "1.20", "1.30"), ("2024-01-01", "2024-01-02", "7")]
)
def test_names_that_look_like_something_else_stay_names(names: tuple[str, str, str], run: Run) -> None:
    rows = [(name, day, day % 2) for name in names for day in range(6)]
    pl.DataFrame(rows, schema=["source", "time", "changed"], orient="row").write_csv("log.csv")
    weights = zip(names, (0, 1, 3), strict=True)
    pl.DataFrame(list(weights), schema=["source", "importance"], orient="row").write_csv("weights.csv")
    run("plan", "log.csv", *MAIN_JOB, "--importance", "weights.csv", "--out", "plan")
    rates = dict(pl.read_parquet("plan/rates.parquet").select("source", "rate").iter_rows())
    assert sorted(rates) == sorted(names)
    assert 0.0 == rates[names[0]] < rates[names[1]] < rates[names[2]]
    run("estimate", "log.csv", "--out", "change_rates.csv")
    run("solve", "change_rates.csv", "--bandwidth", "2", "--out", "rates.csv")
    run("schedule", "rates.csv", "--horizon", "9d", "--out", "schedule.parquet")
    assert set(pl.read_parquet("schedule.parquet")["source"].to_list()) == set(names)


def test_old_copies_explain_the_value_over_the_horizon(run: Run) -> None:
    frame = crawl_log()
    late = frame.filter((pl.col("source") != "page/7") | (pl.col("time") < BEGIN + timedelta(days=2)))
    late.write_parquet("log.parquet")
    shown = fields(run("plan", "log.parquet", *MAIN_JOB, "--out", "plan").output)
    assert re.search(
        r"\(1 source last crawled longer than that before it, at most 1[89]\.\d+ days\)$", shown["schedule"]
    )


def test_one_of_anything_is_singular(run: Run) -> None:
    Path("log.csv").write_text("source,time,changed\na,0,0\na,1,1\na,2,0\n")
    shown = fields(run("plan", "log.csv", "--bandwidth", "1", "--horizon", "1", "--out", "plan").output)
    assert shown["log"] == "log.csv: 3 crawls of 1 source, time 0 to 2 days"
    assert shown["intervals"] == "from 1 to 1, median 1 day; 0 sources never refreshed"
    assert shown["schedule"].startswith("1 refresh in 1 day, Periodic()")


def test_estimate_says_how_many_sources_are_of_which_kind(run: Run) -> None:
    Path("log.csv").write_text("source,time,changed\na,0,0\na,1,1\na,2,0\nb,0,0\nc,0,0\nc,1,1\n")
    shown = fields(run("estimate", "log.csv", "--out", "rates.csv", "--smoothing", "0").output)
    assert shown["log"] == "log.csv: 6 crawls of 3 sources, 2 found a change"
    assert shown["change rates"] == "median 0.6931 per day; 1 always changed, 1 baseline only, 1 ok"
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
        fo.problems.HarmonicStaleness(), fo.Sources([1.0, 1.0], signalled=[True, False]), bandwidth=1.0
    )
    np.testing.assert_allclose(rates, fo.solve(problem).rates, rtol=SCALAR)
    assert rates[0] != pytest.approx(rates[1], rel=0.01)


def test_check_proves_that_the_solvers_agree(run: Run) -> None:
    output = run("check", "--refresh", "poisson").output
    assert output.count("The solvers agree.") == 2 * len(OBJECTIVES)
    assert "NOT" not in output
    for name in ("WaterFilling(", "Conic(backend='CLARABEL'", "Conic(backend='ECOS'", "Conic(backend='SCS'"):
        line = rf"^{re.escape(name)}.* optimal .* proved optimal$"
        assert len(re.findall(line, output, re.MULTILINE)) == 2 * len(OBJECTIVES)
    assert len(re.findall(r"^Uniform\(\) +inaccurate .* baseline$", output, re.MULTILINE)) == 2 * len(
        OBJECTIVES
    )


def test_check_of_own_sources_fails_when_a_solver_falls_short(run: Run) -> None:
    Path("sources.csv").write_text("source,change_rate\na,1\nb,2\nc,10\n")
    own = ("check", "sources.csv", "--objective", "delay", "--bandwidth", "48/h", "--time-unit", "hour")
    output = run(*own, "--solvers", "water-filling, closed-form").output
    assert "n=3, bandwidth=48 per hour" in output
    assert output.count("proved optimal") == 2
    output = run(*own, "--solvers", "scs", "--tolerance", "1e-300", code=1).output
    assert "NOT optimal" in output
    assert "The solvers do NOT agree." in output
    # Of all objectives the closed form applies to delay only.
    output = run(*own[:2], "--solvers", "closed-form", code=1).output
    assert output.count("does not apply") == len(OBJECTIVES) - 1
    assert output.count("The solvers agree.") == 1


def test_examples_are_listed_and_written_with_their_dates(run: Run) -> None:
    listed = run("examples").output
    assert re.fullmatch(r"debian-uploads  upload days of 344 Debian source packages, .*\n", listed)
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


def test_version_and_help(run: Run) -> None:
    assert run("--version").output == f"freshopt, version {version('freshopt')}\n"
    assert run("-h").output == run("--help").output
    for name in main.commands:
        assert re.search(rf"^  {name} +\S", run("--help").output, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(main.commands))
def test_the_help_of_a_command_explains_every_option(name: str, run: Run) -> None:
    text = run(name, "--help").output
    command = main.commands[name]
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            assert parameter.name is not None
            assert parameter.name.upper() in text
        elif isinstance(parameter, click.Option):
            assert all(option in text for option in parameter.opts)
            assert parameter.help, parameter.opts
            if parameter.required:
                assert "[required]" in text
    assert command.help


def test_every_name_in_the_help_is_accepted(run: Run) -> None:
    Path("sources.csv").write_text("source,change_rate\na,1\nb,2\n")
    suited = {"lambda-crawl": "harmonic", "lambda-crawl-approx": "harmonic", "binary-lambda-crawl": "binary"}
    for solver in SOLVERS:
        cell = ("--objective", suited.get(solver, "delay"), "--refresh", "poisson")
        how = (*cell, "--bandwidth", "1", "--solver", solver, "--out", f"{solver}.csv")
        run("solve", "sources.csv", *how)
        assert math.fsum(pl.read_csv(f"{solver}.csv")["rate"]) == pytest.approx(1.0, rel=SCALAR)


def test_the_installed_command_runs_and_colours_only_a_terminal(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("freshopt")
    done = subprocess.run(
        [command, "plan", *EXAMPLE, "--out", tmp_path / "plan"], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""  # no progress bar where nobody watches
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[0].startswith("log           debian-uploads: 434,205 crawls")
    assert (tmp_path / "plan" / "summary.json").exists()
