"""The commands `schedule`, `replay` and `frontier`, and what they refuse."""

import json
import math
import re
import shlex
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.formatting import WIDTH
from freshopt.problems import BinaryFreshness
from freshopt.scheduling import Greedy
from tests.ground_truth import export_parsers as parse
from tests.ground_truth.command_lines import Run, fields, refusals, refuse
from tests.ground_truth.cron_rules import CRONIE, DEBIAN, given_to_shell, load
from tests.ground_truth.tolerances import SCALAR

URLS = "source,rate\nhttps://a.org/x,24\nhttps://b.org/?q=%41&r='1',2.7\nhttp://c.org/never,0\n"
SOURCES = "source,change_rate,importance\na,1,1\nb,4,2\nc,0.1,5\n"


@pytest.mark.parametrize("kind", ["nutch", "stormcrawler", "changedetection", "crontab"])
def test_intervals_are_written_and_their_total_is_told(kind: str, run: Run) -> None:
    Path("rates.csv").write_text(URLS)
    shown = fields(run("schedule", "rates.csv", "--format", kind, "--out", "out").output)
    assert shown["format"].startswith(f"{kind}: 2 sources with an interval; 1 source never refreshed: ")
    told, planned = shown["total rate"].split(" per day")[0].split(" of ")
    assert planned == "26.7"
    path = Path("out")
    if kind == "nutch":
        found = parse.tab_seeds((path / "seeds" / "seeds.tsv").read_text()).values()
        realised = sum(86_400 / int(data["nutch.fetchInterval.fixed"]) for data in found)
    elif kind == "stormcrawler":
        delays = (int(data["scheduler.delay.mins"]) for data in parse.tab_seeds(path.read_text()).values())
        realised = sum(1440 / delay for delay in delays if delay > 0)
    elif kind == "changedetection":
        spans = (
            watch["time_between_check"] for watch in json.loads(path.read_text()) if "paused" not in watch
        )
        realised = sum(
            24 / (24 * (7 * t["weeks"] + t["days"]) + t["hours"] + t["minutes"] / 60 + t["seconds"] / 3600)
            for t in spans
        )
    else:
        year = [date(2023, 1, 1) + timedelta(days=k) for k in range(365)]
        realised = sum(
            len(job.fields[0]) * len(job.fields[1]) * sum(map(job.runs_on, year)) / 365.0
            for job in load(path.read_bytes(), CRONIE)
        )
    assert float(told) == pytest.approx(realised, rel=1e-3)
    run("schedule", "rates.csv", "--format", kind, "--out", "out", "--overwrite")
    run("schedule", "rates.csv", "--format", kind, "--out", "out", code=2)


def test_what_is_lost_to_a_coarse_clock_is_told(run: Run) -> None:
    Path("rates.csv").write_text("source,rate,time_unit\nhttp://a/,40,hour\n")  # every 90 s
    shown = fields(run("schedule", "rates.csv", "--format", "stormcrawler", "--out", "s.txt").output)
    assert (
        shown["total rate"]
        == "30 of 40 per hour planned: 25 % less than planned, as intervals are rounded up"
    )
    Path("rates.csv").write_text("source,rate,time_unit\nhttp://a/,40,hour\nhttp://b/,60,hour\n")
    shown = fields(run("schedule", "rates.csv", "--format", "stormcrawler", "--out", "u.txt").output)
    assert shown["total rate"].endswith(
        "10 % less than planned, as intervals are rounded up (at most 25 % for a source)"
    )
    Path("rates.csv").write_text("source,rate,time_unit\nhttp://a/,30,hour\n")
    shown = fields(run("schedule", "rates.csv", "--format", "stormcrawler", "--out", "t.txt").output)
    assert shown["total rate"] == "30 of 30 per hour planned"


def test_settings_of_formats(run: Run) -> None:
    Path("rates.csv").write_text("source,rate\nhttp://a/,0.005\n")
    run("schedule", "rates.csv", "--format", "nutch", "--longest", "365d", "--out", "n")
    assert "=17280000\n" in Path("n/seeds/seeds.tsv").read_text()
    run("schedule", "rates.csv", "--format", "crontab", "--command", "curl -s -o '%f'", "--out", "c")
    (job,) = load(Path("c").read_bytes(), DEBIAN)
    assert given_to_shell(job.command, DEBIAN)[0] == b"curl -s -o '%f' http://a/"
    Path("names.csv").write_text("source,rate\nprod/db,24\n")
    run("schedule", "names.csv", "--format", "external-secrets", "--out", "e.yaml")
    assert parse.yaml_documents(Path("e.yaml").read_text())[0]["spec.refreshInterval"] == "1h0m0s"


def test_names_like_formulas_pass_from_a_log_to_a_crontab(run: Run) -> None:
    """They are harmless in the plan's CSV files, and themselves again in what is made of those."""
    names = ["=1+1", "@scope/name", "-x", "'=1", "+1"]
    rows = [f"{name},{day},{day % 2}\n" for name in names for day in range(6)]
    Path("log.csv").write_text("source,time,changed\n" + "".join(rows).replace("'=1", "''=1"))
    run("plan", "log.csv", "--bandwidth", "9/day", "--horizon", "2d", "--csv", "--out", "p")
    for table in ("rates", "change_rates", "schedule"):
        text = Path(f"p/{table}.csv").read_text()
        assert {line[:2] for line in text.splitlines()[1:]} == {"'=", "'@", "'-", "''", "'+"}
    run("schedule", "p/rates.csv", "--format", "crontab", "--command", "fetch --", "--out", "c")
    jobs = load(Path("c").read_bytes(), DEBIAN)
    assert {shlex.split(job.command.decode())[2] for job in jobs} == set(names)


def test_methods_and_their_times(run: Run) -> None:
    Path("rates.csv").write_text("source,rate\na,1\nb,4\nc,0.5\n")
    Path("sources.csv").write_text(SOURCES)
    how = {"carousel": (), "earliest-deadline": (), "poisson": ("--seed", "3"), "periodic": ()}
    greedy = {"greedy": ("--sources", "sources.csv", "--objective", "binary")}
    for method, more in {**how, **greedy}.items():
        run("schedule", "rates.csv", "--method", method, *more, "--horizon", "20d", "--out", f"{method}.csv")
        times = pl.read_csv(f"{method}.csv")["time"].to_numpy()
        if method in ("carousel", "earliest-deadline", "greedy"):
            np.testing.assert_allclose(np.diff(times), 1.0 / 5.5, rtol=1e-9)
    known = fo.Sources([1.0, 4.0, 0.1], [1.0, 2.0, 5.0])
    problem = fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), known, bandwidth=5.5)
    picks = Greedy(problem).times(np.array([1.0, 4.0, 0.5]), 20.0)[0]
    assert pl.read_csv("greedy.csv")["source"].to_list() == ["abc"[k] for k in picks]
    as_before = ("--refresh", "poisson", "--seed", "3", "--horizon", "20d", "--out", "old.csv")
    told = run("schedule", "rates.csv", *as_before).stderr
    assert told.startswith("Warning: --refresh goes in 0.3.0. Write --method.\n")
    assert Path("old.csv").read_bytes() == Path("poisson.csv").read_bytes()


def test_a_calendar(run: Run) -> None:
    Path("rates.csv").write_text('source,rate\n"a;b,c",3\n')
    run("schedule", "rates.csv", "--horizon", "2d", "--start", "2026-01-31T06:00+02:00", "--out", "x.ics")
    events = parse.calendar_events(Path("x.ics").read_bytes())
    assert {event.summary for event in events} == {"refresh a;b,c"}
    starts = [event.start for event in events]
    assert len(starts) == 6
    assert datetime(2026, 1, 31, 4, tzinfo=UTC) <= starts[0]
    assert all(
        abs(later - one - timedelta(hours=8)) <= timedelta(seconds=1) for one, later in pairwise(starts)
    )


REFUSED = refusals(
    """
RATES --format nutch --horizon 7d -> --horizon is for --format csv | Leave it out
RATES --format nutch --method poisson -> --method is for --format csv | not for nutch
RATES --format crontab --start 2026-01-01 -> --start is for
RATES --format crontab --longest 9d -> --longest is for --format nutch, not for crontab
RATES --format nutch --command x -> --command is for --format crontab
RATES --format nutch --longest 1000w -> 'http://never you mind' | no URL
RATES --format nutch --longest 90000d -> --longest: '90000d' | 68 years
RATES --format csv -> --horizon, such as 7d
RATES --format csv --horizon 7d -> out is to be csv, whose names end in .csv | Rename
schedule urls.csv --horizon 7d --out out.ics -> has dates | --start
schedule urls.csv --out out.txt -> out.txt ends in '.txt'
TIMES --method greedy -> --sources
TIMES --method greedy --sources three.csv
    -> three.csv does not list the sources of the rates in their order | 'c'
TIMES --sources three.csv -> greedy
replay times.csv -> Give one of --history, --log and --sources
replay times.csv --sources sources.csv -> refreshes 'z' | drop these rows
replay negative.csv --sources sources.csv -> row 2, line 3 of negative.csv: -1 | Correct
replay none.csv --sources sources.csv -> none.csv has no refreshes | --horizon
replay rates.csv --sources sources.csv -> no column 'time'
frontier sources.csv --bandwidths 0,1 -> --bandwidths | > 0
frontier sources.csv --bandwidths 1,x -> --bandwidths: 'x' | 200/day
frontier sources.csv --out sources.csv --overwrite -> the file that is read
""",
    RATES="schedule urls.csv --out out",
    TIMES="schedule rates.csv --horizon 7d --out o.csv",
)


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_refused(arguments: tuple[str, ...], words: tuple[str, ...], folder: Path) -> None:
    Path("urls.csv").write_text("source,rate\nhttp://a.org/,1\nhttp://never you mind,0\n")
    Path("three.csv").write_text(SOURCES)
    Path("times.csv").write_text("source,time\na,0\nz,1\n")
    Path("negative.csv").write_text("source,time\na,0\nb,-1\n")
    Path("none.csv").write_text("source,time\n")
    refuse(folder, arguments, words)


def test_replay_of_a_history_by_hand(run: Run) -> None:
    """a is stale from 1 to 2 and from 5 to 6, b from 4 on; each of ten days."""
    Path("history.csv").write_text("source,time\na,0\na,1\na,5\na,5.5\nb,4\nb,10\n")
    Path("times.csv").write_text("source,time\na,2\na,6\nb,1\n")
    Path("weights.csv").write_text("source,importance\na,3\nb,1\n")
    how = ("--history", "history.csv", "--horizon", "10d", "--origin", "0")
    shown = fields(
        run("replay", "times.csv", *how, "--importance", "weights.csv", "--out", "cost.csv").output
    )
    assert shown["schedule"].startswith("3 refreshes from 0 to 10 days; 0 sources never refreshed")
    cost = {row["cost"]: row["value"] for row in pl.read_csv("cost.csv").iter_rows(named=True)}
    assert cost["binary"] == pytest.approx(3 * 0.8 + 0.4, rel=SCALAR)
    assert cost["delay"] == pytest.approx(3 * (1.0 + 0.5 + 1.0) / 10 + 0.6, rel=SCALAR)
    assert cost["age"] == pytest.approx(3 * (0.5 + 0.5) / 10 + 18.0 / 10, rel=SCALAR)


def test_a_source_counts_until_its_last_crawl_in_a_log(run: Run) -> None:
    """a changes at .5 and 2.5, in the middle of gaps, and is known until 3; b changes at 2.5, until 10."""
    Path("log.csv").write_text("source,time,changed\na,0,0\na,1,1\na,2,0\na,3,1\nb,0,0\nb,5,1\nb,10,0\n")
    Path("times.csv").write_text("source,time\na,1.5\na,7\nb,3\n")
    how = ("--log", "log.csv", "--horizon", "20d", "--out", "cost.csv")
    shown = fields(run("replay", "times.csv", *how).output)
    assert "from 0 to 10 days (of the last 10 days of the schedule no changes are known)" in shown["schedule"]
    assert shown["known"] == "1 source only until before 10; costs count until then"
    cost = {row["cost"]: row["value"] for row in pl.read_csv("cost.csv").iter_rows(named=True)}
    assert cost["binary"] == pytest.approx(2.0 * (1.5 + 9.5) / 13.0, rel=SCALAR)
    assert cost["delay"] == pytest.approx(2.0 * (1.5 + 0.5) / 13.0, rel=SCALAR)


@pytest.mark.exhaustive
def test_replay_of_drawn_changes_is_as_predicted(run: Run) -> None:
    Path("sources.csv").write_text(SOURCES)
    run("solve", "sources.csv", "--objective", "binary", "--bandwidth", "10/day", "--out", "rates.csv")
    run("schedule", "rates.csv", "--horizon", "3000d", "--out", "times.parquet")
    how = ("--sources", "sources.csv", "--skip", "100d", "--seed", "4", "--out", "cost.parquet")
    run("replay", "times.parquet", *how)
    row = pl.read_parquet("cost.parquet").row(0, named=True)
    rate, weight = pl.read_csv("rates.csv")["rate"].to_numpy(), np.array([1.0, 2.0, 5.0])
    u = np.array([1.0, 4.0, 0.1]) / rate
    assert abs(row["value"] - np.sum(weight * (1.0 - np.exp(-u)) / u)) < 4.0 * row["error"]


def test_a_schedule_with_timestamps_finds_its_place(run: Run) -> None:
    Path("history.csv").write_text("source,time\na,2026-01-01\na,2026-01-03T12:00\na,2026-01-09\n")
    Path("rates.csv").write_text("source,rate\na,1\n")
    how = ("--horizon", "4d", "--start", "2026-01-02")
    for name in ("times.csv", "times.parquet"):
        run("schedule", "rates.csv", *how, "--out", name)
        first = pl.read_csv("times.csv")["time"][0]
        shown = fields(run("replay", name, "--history", "history.csv", "--horizon", "4d").output)
        assert shown["schedule"].startswith("4 refreshes from 1 to 5 days")
        stale = math.ceil(1.5 - first) + first - 1.5  # from the change to the next refresh
        assert float(shown["binary"].split(":")[0].split(" ")[0].rstrip(",")) == pytest.approx(
            1 - stale / 4, abs=1e-4
        )


def test_frontier(run: Run) -> None:
    Path("sources.csv").write_text("source,change_rate,min_rate\na,1,1\nb,4,0\n")
    how = ("--objective", "delay", "--refresh", "poisson", "--bandwidths", "12/day,3,0.5/day")
    output = run("frontier", "sources.csv", *how, "--out", "f.csv").output
    table = pl.read_csv("f.csv")
    assert table["status"].to_list() == ["optimal", "optimal", "infeasible"]
    np.testing.assert_allclose(table["value"].to_list()[:2], [9.0 / 12.0, 3.0], rtol=SCALAR)
    np.testing.assert_allclose(table["price"].to_list()[:2], [9.0 / 144.0, 1.0], rtol=SCALAR)
    # Heads of more than a line: so that a table is never wider than the console.
    lines = output.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert "missed changes" in lines[0]
    assert re.split(r"  +", lines[1].strip())[-2:] == ["per day", "status"]
    lines = lines[1:]
    # Optimal rates of Δ/ρ are as √Δ: (1, 2) of 3. At Poisson refreshes a copy is fresh ρ/(Δ + ρ).
    fresh = 0.5 * (1.0 / 2.0 + 2.0 / 6.0)
    cells = re.split(r"  +", lines[2].strip())
    assert (cells[1], cells[4]) == (f"{100.0 * fresh:.1f} %", "3")
    assert [line.split()[-1] for line in lines[1:4]] == ["optimal", "optimal", "infeasible"]
    default = run("frontier", "sources.csv", "--objective", "delay", "--refresh", "poisson").output
    assert len(default.splitlines()) == 11
