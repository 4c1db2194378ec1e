"""The main job: what it prints, what it writes, and that the parts chained are the whole."""

import gzip
import json
import math
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import click
import numpy as np
import polars as pl
import pytest

from freshopt.cli import COMMANDS, main
from freshopt.formatting import number
from freshopt.naming import OBJECTIVES, PLANNED
from freshopt.planning import plan_steps
from tests.ground_truth.command_lines import BEGIN, EXAMPLE, MAIN_JOB, Run, crawl_log, fields
from tests.ground_truth.refusals import present
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR


def test_the_main_job_on_the_example(run: Run) -> None:
    shown = fields(run("plan", "--details", *EXAMPLE, "--out", "plan").output)
    heads = ("At your freshness (99.5 %)", "At your 4 fetches/day", "Refresh every", "Against your crawls")
    rows = ["log", "change rates", "objective", "saving", "time fresh", "value", "today's crawls"]
    rows += ("intervals", "bandwidth", "shadow price", "schedule", "expected", "certificate", "time")
    assert list(shown)[:-1] == [*heads, "Next", *rows]
    facts = json.loads(Path("plan/summary.json").read_text(encoding="utf-8"))
    counts = facts["counts"]
    assert shown["log"] == "debian-uploads: 434,205 crawls of 344 sources, 2019-07-06 to 2023-02-01"
    assert f"{counts['refreshes']} refreshes in 90 days" in shown["schedule"]
    over = f"staleness over that time {facts['schedule_value']:.4g}"
    assert shown["schedule"].endswith(f"{over}: copies have the ages that the log leaves")
    assert shown["value"].startswith(f"staleness {facts['value']:.4g} in the long run")
    assert shown["bandwidth"] == "4 of 4 refreshes per day used"
    proved = "optimal for the estimated change rates: no other plan is better by more than 1e-15 "
    assert shown["certificate"].startswith(proved)
    # Freshness by its formula, independently: (1 - e^-u) / u for u changes between two refreshes.
    table = pl.read_parquet("plan/rates.parquet").join(pl.read_parquet("plan/change_rates.parquet"), "source")
    u = (table["change_rate"] / table["rate"]).to_numpy()
    fresh = float(np.mean(-np.expm1(-u) / u))
    assert facts["findings"]["fresh"]["plan"] == pytest.approx(fresh, rel=SCALAR)
    assert shown["time fresh"].startswith(f"copies are up to date {100 * fresh:.1f} % of the time")
    gain = 0.01 * facts["price"] * facts["bandwidth"] / facts["value"]
    assert shown["shadow price"].endswith(f"lowers staleness by at most {100 * gain:.3f} %")
    rates = pl.read_parquet("plan/rates.parquet")
    assert math.fsum(rates["rate"]) == pytest.approx(4.0, rel=EXACT)
    assert abs(counts["refreshes"] - 4 * 90) <= len(rates)
    schedule = pl.read_parquet("plan/schedule.parquet")
    assert schedule.columns == ["source", "time", "timestamp"]
    first = schedule.row(0, named=True)
    since = timedelta(days=first["time"])
    assert abs(first["timestamp"] - datetime(2023, 2, 1, tzinfo=UTC) - since) < timedelta(microseconds=2)


def test_without_options_it_fetches_as_often_as_the_log_does(run: Run, log: Path) -> None:
    shown = json.loads(run("plan", str(log), "--json").output)
    assert shown == json.loads(Path("plan/summary.json").read_text(encoding="utf-8"))
    frame = pl.read_parquet(log)
    crawls = frame.group_by("source").agg(pl.len() - 1, (pl.max("time") - pl.min("time")).alias("span"))
    own = crawls.select(pl.col("len") / pl.col("span").dt.total_microseconds() * 86_400e6).to_series().sum()
    assert shown["bandwidth"] == pytest.approx(own, rel=SCALAR)
    assert shown["horizon"] == 7.0
    assert run("plan", str(log), "-b", f"{own!r}/day", "-o", "quiet", "-q", "--draws", "0").output == ""
    mine, same = (
        pl.read_parquet(f"{folder}/rates.parquet")["rate"].to_numpy() for folder in ("plan", "quiet")
    )
    np.testing.assert_allclose(mine, same, rtol=SCALAR)


def test_draws_that_are_asked_for_and_not_made_are_told(
    run: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_steps, "MOST_SOURCES", 7)
    job = ("plan", str(log), "--overwrite")
    told = "--draws 5: nothing is drawn, as there are more than 7 sources, which would take long."
    assert told in run(*job, "--draws", "5").stderr.splitlines()
    for silent in ((), ("--draws", "0"), ("--draws", "5", "--quiet")):
        assert "nothing is drawn" not in run(*job, *silent).stderr
    changed = run(*job, "--draws", "5", "--changed-cost", "3").stderr
    assert "nothing is drawn, as fetches cost what they bring." in changed


@pytest.mark.exhaustive
def test_it_runs_twice_with_overwrite_and_leaves_nothing_else(run: Run, log: Path) -> None:
    job = ("plan", str(log), *MAIN_JOB, "--out", "plan")
    run(*job)
    before = {path.name: path.read_bytes() for path in Path("plan").iterdir()}
    assert "--overwrite" in run(*job, code=2).output
    run(*job, "--overwrite")
    for name, content in before.items():
        assert name == "summary.json" or Path("plan", name).read_bytes() == content
    run(*job, "--overwrite", "--csv")
    assert sorted(os.listdir("plan")) == [
        *("change_rates.csv", "per_source.csv", "plan.toml", "rates.csv", "report.html", "schedule.csv"),
        "summary.json",
    ]
    assert sorted(os.listdir()) == ["log.parquet", "plan"]


@pytest.mark.exhaustive
def test_the_example_follows_the_time_unit(run: Run) -> None:
    run("plan", *EXAMPLE, "--out", "days")
    shown = fields(run("plan", "--details", *EXAMPLE, "--out", "hours", "--time-unit", "hour").output)
    assert "in 90 days" in shown["schedule"]
    days, hours = (pl.read_parquet(f"{unit}/rates.parquet")["rate"].to_numpy() for unit in ("days", "hours"))
    np.testing.assert_allclose(hours * 24.0, days, rtol=1e-6)
    stamps = [pl.read_parquet(f"{unit}/schedule.parquet")["timestamp"] for unit in ("days", "hours")]
    assert abs(stamps[0] - stamps[1]).max() < timedelta(seconds=1)  # type: ignore[operator]


@pytest.mark.exhaustive
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
    shown = fields(run("plan", "--details", "log.csv", *options).output)
    assert shown["log"] == "log.csv: 90 crawls of 3 sources, times as plain numbers of hours, from 0 to 58"
    assert "in 1 day at equal" in shown["schedule"]
    schedule = pl.read_csv("plan/schedule.csv")
    assert schedule.columns == ["source", "time"]
    assert set(schedule["source"].to_list()) == {7, 8, 10}
    assert len(schedule) == pytest.approx(24, abs=3)
    assert math.fsum(pl.read_csv("plan/rates.csv")["rate"]) == pytest.approx(1.0, rel=EXACT)


def test_a_missing_log_is_told_before_the_folder_that_is_there(run: Run, log: Path) -> None:
    Path("plan").mkdir()
    Path("plan/summary.json").write_text("{}")
    assert "there is no file nothing.csv" in run("plan", "nothing.csv", code=2).output
    assert "plan already holds a result" in run("plan", str(log), code=2).output


CELLS = [(name, refresh.value) for name in PLANNED for refresh in OBJECTIVES[name].refreshes]
KINDS = {
    "harmonic": "HarmonicStaleness",
    "binary": "BinaryFreshness",
    "delay": "AccumulatedDelay",
    "age": "Age",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("objective", "refresh"), CELLS)
def test_the_parts_in_a_row_do_what_the_main_job_does(
    objective: str, refresh: str, run: Run, log: Path
) -> None:
    own = {"power": ("--exponent", "0.3"), "deadline": ("--deadline", "12h")}
    how = ("--objective", objective, "--refresh", refresh, *own.get(objective, ()))
    run("plan", str(log), *how, *MAIN_JOB, "--seed", "5", "--out", "plan")
    run("estimate", str(log), "--out", "change_rates.csv")
    run("solve", "change_rates.csv", *how, "--bandwidth", "6/day", "--out", "rates.csv")
    end = crawl_log()["time"].max()
    assert isinstance(end, datetime)
    parts = ("--refresh", refresh, "--seed", "5", "--horizon", "1w", "--start", end.isoformat())
    run("schedule", "rates.csv", *parts, "--out", "schedule.parquet")
    facts = json.loads(Path("plan/summary.json").read_text(encoding="utf-8"))
    kind = KINDS.get(objective, "SynchronizationCost")
    assert (facts["objective"], facts["discipline"]) == (kind, refresh)
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


@pytest.mark.exhaustive
def test_importance_and_bounds_reach_the_rates(run: Run, log: Path) -> None:
    names = [f"page/{k}" for k in range(8)]
    weights = pl.DataFrame({"source": names[::-1], "importance": [0, 1, 1, 1, 1, 1, 1, 50]})
    weights.write_csv("weights.csv")
    shown = fields(
        run("plan", "--details", str(log), *MAIN_JOB, "--importance", "weights.csv", "--out", "a").output
    )
    rates = dict(pl.read_parquet("a/rates.parquet").select("source", "rate").iter_rows())
    assert rates["page/7"] == 0.0
    assert rates["page/0"] == max(rates.values())
    assert shown["intervals"].endswith("; 1 source never refreshed")
    run("plan", str(log), *MAIN_JOB, "--min-rate", "0.6/day", "--max-rate", "0.04/h", "--out", "b")
    bounded = pl.read_parquet("b/rates.parquet")["rate"].to_numpy()
    assert bounded.min() == 0.6
    assert bounded.max() == pytest.approx(0.96, rel=EXACT)


@matrix(names=[("007", "008", "010"), ("1.10", "1.20", "1.30"), ("2024-01-01", "2024-01-02", "7")], every=3)
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
    job = ("--details", *MAIN_JOB, "--draws", "0", "--out", "plan")
    shown = fields(run("plan", "log.parquet", *job).output)
    assert re.search(r": 1 source was last crawled 1[89]\.\d+ days before it begins$", shown["schedule"])


def test_one_of_anything_is_singular(run: Run) -> None:
    Path("log.csv").write_text("source,time,changed\na,0,0\na,1,1\na,2,0\n")
    shown = fields(
        run("plan", "--details", "log.csv", "--bandwidth", "1", "--horizon", "1", "--out", "plan").output
    )
    assert shown["log"] == "log.csv: 3 crawls of 1 source, times as plain numbers of days, from 0 to 2"
    assert shown["intervals"] == "1 day; 0 sources never refreshed"
    assert shown["schedule"].startswith("1 refresh in 1 day at equal intervals")


def test_a_history_tells_no_bandwidth(run: Run) -> None:
    Path("changes.csv").write_text("source,time\na,0\na,2\nb,1\n")
    told = run("plan", "--history", "changes.csv", code=2).output
    assert "a history of changes tells no crawls, and so no bandwidth" in told
    assert "200/day" in told


def test_version_and_help(run: Run) -> None:
    assert run("--version").output == f"freshopt, version {version('freshopt')}\n"
    assert run("-h").output == run("--help").output


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_of_a_command_explains_every_option(name: str, run: Run) -> None:
    text = run(name, "--help").output
    command = present(main.get_command(click.Context(main), name))
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            assert present(parameter.name).upper() in text
        elif isinstance(parameter, click.Option) and not parameter.hidden:
            assert all(option in text for option in parameter.opts)
            assert parameter.help, parameter.opts
            if parameter.required:
                assert "[required]" in text
    assert command.help


@pytest.mark.exhaustive
def test_the_installed_command_runs_and_colours_only_a_terminal(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("freshopt")
    done = subprocess.run(
        [command, "plan", *EXAMPLE, "--out", tmp_path / "plan"], capture_output=True, text=True, check=True
    )
    # No progress bar where nobody watches; a slow machine says in a line what takes its time.
    assert all(re.fullmatch(r"\.\.\. [\w -]+: \d+ s", line) for line in done.stderr.splitlines())
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith("344 sources, 3.6 years of crawls.")
    assert (tmp_path / "plan" / "summary.json").exists()


def test_a_cost_that_vanishes_is_no_gap(run: Run, log: Path) -> None:
    easy = ("--objective", "deadline", "--deadline", "30d")
    shown = fields(run("plan", "--details", str(log), *MAIN_JOB, *easy, "--out", "plan").output)
    assert shown["value"].startswith("cost of age 0 in the long run")
    told = r"optimal for .*: no other plan is better by more than"
    assert re.match(told, shown["certificate"])
    facts = json.loads(Path("plan/summary.json").read_text(encoding="utf-8"))
    assert facts["value"] == 0.0
    assert facts["relative_gap"] in (None, 0.0)


@pytest.mark.exhaustive
def test_host_limits_hold_and_cost_what_they_must(run: Run, log: Path) -> None:
    hosts = ["even.org" if k % 2 == 0 else "odd.org" for k in range(8)]
    table = pl.DataFrame({"source": [f"page/{k}" for k in range(8)], "host": hosts})
    table.write_csv("hosts.csv")
    Path("limits.csv").write_text("host,limit\nodd.org,0.75\n")
    run("plan", str(log), *MAIN_JOB, "--out", "free")
    limits = ("--hosts", "hosts.csv", "--host-limits", "limits.csv")
    shown = fields(run("plan", "--details", str(log), *MAIN_JOB, *limits, "--out", "limited").output)
    (priced,) = json.loads(Path("limited/summary.json").read_text())["findings"]["hosts"]["hosts"]
    words = "1 of 1 limit binds: a limit higher by 1 refresh per day lowers staleness by at most "
    assert shown["host limits"] == f"{words}{number(priced['price'])} for 'odd.org'"
    # A limit higher by a little lowers the value by so much a unit, and by no more.
    Path("higher.csv").write_text("host,limit\nodd.org,0.751\n")
    run("plan", str(log), *MAIN_JOB, *limits[:2], "--host-limits", "higher.csv", "--out", "higher")
    before, after = (
        json.loads(Path(name, "summary.json").read_text())["value"] for name in ("limited", "higher")
    )
    assert 0.99 * 0.001 * priced["price"] <= before - after <= 0.001 * priced["price"]
    # Today's crawls exceed the limit: it is what they keep fresh within it that is compared.
    assert "exceed maximum rates or host limits; cut to them they are" in shown["saving"]
    tables = (pl.read_parquet(f"{name}/rates.parquet") for name in ("free", "limited"))
    free, limited = (rates.join(table, on="source") for rates in tables)
    sums = dict(limited.group_by("host").agg(pl.col("rate").sum()).iter_rows())
    assert sums["odd.org"] == pytest.approx(0.75, rel=EXACT)
    assert sums["even.org"] == pytest.approx(5.25, rel=EXACT)
    assert free.filter(host="odd.org")["rate"].sum() > 0.75
    Path("limits.csv").write_text("host,limit\nodd.org,90\n")
    loose = fields(run("plan", "--details", str(log), *MAIN_JOB, *limits, "--out", "loose").output)
    assert loose["host limits"] == "none of 1 limit binds"
    assert "exceed" not in loose["saving"]
    values = [json.loads(Path(name, "summary.json").read_text())["value"] for name in ("free", "limited")]
    assert values[0] < values[1]


TIGHT = ("--max-rate", "0.5/day", "--draws", "0", "--out", "tight")
LATE = ("--objective", "deadline", "--deadline", "100d", "--draws", "0", "--out", "late")


def test_bandwidth_that_limits_leave_unused_is_called_so(run: Run, log: Path) -> None:
    of_no_use = "0: maximum rates or host limits are reached, or nothing is left to gain"
    tight = run("plan", "--details", str(log), *MAIN_JOB, *TIGHT).output
    assert fields(tight)["bandwidth"] == "4 of 6 refreshes per day used"
    assert fields(tight)["shadow price"] == of_no_use
    enough = run("plan", "--details", str(log), *MAIN_JOB, *LATE).output
    assert fields(enough)["bandwidth"] == "0.08 of 6 refreshes per day used"
    assert fields(enough)["shadow price"] == of_no_use


def test_freshness_is_told_with_its_whole(run: Run, log: Path) -> None:
    how = ("--objective", "binary", "--draws", "0", "--out", "plan")
    value = fields(run("plan", "--details", str(log), *MAIN_JOB, *how).output)["value"]
    assert re.match(r"freshness [\d.]+ of 8 in the long run, .* % a source \([\d.]+ if all were ", value)


def test_an_objective_that_shares_its_class_is_called_by_its_name(run: Run, log: Path) -> None:
    output = run("plan", "--details", str(log), *MAIN_JOB, "--objective", "power", "--out", "plan").output
    assert fields(output)["objective"].startswith("SynchronizationCost, power (lower is better): ")


@pytest.fixture
def weekly_log(tmp_path: Path) -> Path:
    """Crawls every seven hours or so of sources that change on weekdays, in office hours."""
    rng = np.random.default_rng(4)
    hours = np.arange(24 * 200)
    work = np.cumsum((hours // 24 % 7 < 5) & (hours % 24 // 8 == 1))
    rows = []
    for k in range(30):
        time = np.cumsum(rng.exponential(0.5, 200))
        passed = np.interp(time * 24.0, hours + 1.0, work)
        changed = rng.random(200) < -np.expm1(-0.02 * np.diff(passed, prepend=0.0))
        changed[0] = False
        dates = np.datetime64("2024-01-01T00:00:00", "us") + (time * 86400e6).astype("timedelta64[us]")
        rows.append(
            pl.DataFrame({"source": [f"s{k}"] * 200, "time": dates, "changed": changed.astype(np.int64)})
        )
    path = tmp_path / "weekly.parquet"
    pl.concat(rows).write_parquet(path)
    return path


@pytest.mark.exhaustive
def test_a_weekly_cycle_is_told_and_can_be_left_alone(run: Run, weekly_log: Path) -> None:
    job = ("plan", str(weekly_log), "--bandwidth", "8/day", "--horizon", "28d", "--draws", "0", "--details")
    shown = fields(run(*job, "--out", "plan").output)
    facts = json.loads(Path("plan/summary.json").read_text(encoding="utf-8"))["phases"]
    assert shown["weekly cycle"] == (
        f"{facts['peak']}: crawling after the peaks saves {100 * facts['saved']:.1f} % of the cost at twice "
        "the mean load; --load-limit 1 keeps the load flat"
    )
    assert facts["peak"].startswith("Changes peak Mon-Fri")
    assert facts["evidence"] > 8.0
    flat = fields(run(*job, "--out", "flat", "--load-limit", "1").output)
    assert "weekly cycle" not in flat
    told = json.loads(Path("flat/summary.json").read_text(encoding="utf-8"))
    assert told["phases"] is None
    assert told["value"] == facts["value_without"]
    assert told["findings"]["fresh"]["plan"] == pytest.approx(facts["fresh_without"], rel=1e-12)
    # What knows no weekly cycle says so beside a plan that does, and only there.
    for row in ("time fresh", "value"):
        assert "without the weekly timing" in shown[row]
        assert "without the weekly timing" not in flat[row]
    assert shown["saving"].startswith("at equal intervals the same")
    assert flat["saving"].startswith("the same")
    assert f"({number(told['value'])} without the weekly timing, " in shown["value"]
    few = fields(run(*job, "--out", "few", "--compare", "flat", "--max-churn", "20%").output)
    assert few["weekly cycle"].endswith("old and new rates are valued at equal intervals")
    assert f"{number(told['value'])} at equal intervals under today's estimates" in few["changes"]
    assert few["changes"].endswith("at most 6; that costs no more than changing all")
    less = ("--bandwidth", "7/day")
    kept = fields(run(*job, "--out", "less", "--compare", "flat", "--max-churn", "20%", *less).output)
    assert kept["shadow price"].endswith("of the best rates, of which all may change")
    gentle = fields(run(*job, "--out", "gentle", "--load-limit", "1.5").output)
    assert "at 1.5 times the mean load" in gentle["weekly cycle"]
    assert "--load-limit" in run(*job, "--out", "bad", "--load-limit", "0.5", code=2).output
    refused = run(*job, "--out", "bad", "--load-limit", "2", "--engine", "dask", code=2).output
    assert "--load-limit is for --engine memory" in " ".join(refused.split())
