"""`freshopt run`: a crawler of commands."""

import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result

import freshopt as fo
from freshopt.cli import main
from tests.ground_truth.command_lines import file_with, refuse

FETCH = """#!/bin/sh
[ "$1" = bad ] && { echo "no such page" >&2; exit 22; }
[ "$1" = a ] && date +%s%N
cat "$2/$1"
"""


@pytest.fixture
def pages(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text("first\n")
    script = file_with(tmp_path / "fetch", FETCH)
    script.chmod(0o755)
    (tmp_path / "sources.txt").write_text("# pages\na\nb\n\nbad\n")


def run(tmp_path: Path, *options: str) -> Result:
    words = ["run", str(tmp_path / "state"), "--command", f"{tmp_path}/fetch {{source}} {tmp_path}/pages"]
    return CliRunner().invoke(main, [*words, *options])


def begin(tmp_path: Path, *options: str) -> Result:
    own = ("--bandwidth", "20/second", "--sources", str(tmp_path / "sources.txt"), "--once", *options)
    return run(tmp_path, *own)


@pytest.mark.usefixtures("pages")
def test_fetches_are_recorded_and_failures_are_not(tmp_path: Path) -> None:
    first = begin(tmp_path)
    assert first.exit_code == (1 if "bad: exit code" in first.output else 0), first.output
    deadline = time.monotonic() + 30.0
    with fo.Planner(tmp_path / "state") as planner:
        while planner.status().observations < 4 and time.monotonic() < deadline:
            again = run(tmp_path, "--once")
            assert again.exit_code == (1 if "bad: exit code" in again.output else 0), again.output
        log = planner.log()
        assert planner.status().leased == 0
    assert log.names.tolist() == ["a", "b"]
    of_a, of_b = (log.changed[log.offsets[k] : log.offsets[k + 1]].tolist() for k in (0, 1))
    assert of_a[1:] == [True] * (len(of_a) - 1)
    assert not any(of_b)
    assert "bad: exit code 22 (no such page)" in first.output or "0 failed" in first.output


@pytest.mark.usefixtures("pages")
def test_without_a_command_it_tells_how_the_plan_stands(tmp_path: Path) -> None:
    begin(tmp_path)
    before = (tmp_path / "state" / "planner.sqlite").read_bytes()
    shown = CliRunner().invoke(main, ["run", str(tmp_path / "state")])
    assert shown.exit_code == 0, shown.output
    assert "next hand-out " in shown.output
    assert "refreshes per second in force" in shown.output
    assert "fetched" not in shown.output
    assert (tmp_path / "state" / "planner.sqlite").read_bytes() == before
    none = CliRunner().invoke(main, ["run", str(tmp_path / "none")])
    assert (none.exit_code, none.output.count("\n")) == (2, 1)
    assert not (tmp_path / "none").exists()


def test_hosts_of_urls_are_filled_in_and_kept_to_their_limits(tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_text("".join(f"https://{'a' if k else 'b'}.org/{k}\n" for k in range(4)))
    (tmp_path / "limits.csv").write_text("host,limit\na.org,6\n")
    own = ["run", str(tmp_path / "state"), "--bandwidth", "20/day", "--objective", "binary"]
    own += ["--sources", str(tmp_path / "urls.txt"), "--host-limits", str(tmp_path / "limits.csv")]
    done = CliRunner().invoke(
        main, [*own, "--command", "test {host} = a.org -o {host} = b.org -o {source}", "--once"]
    )
    assert done.exit_code == 0, done.output
    with fo.Planner(tmp_path / "state") as planner:
        rates = planner.to_frame().filter(pl.col("source").str.contains("a.org"))["rate"]
        assert rates.sum() <= 6.0 * (1.0 + 1e-9)
        assert rates.sum() == pytest.approx(6.0, rel=1e-6)
        assert planner.status().kind == "BinaryFreshness"
        assert planner.status().observations > 0  # the command has seen the host
    (tmp_path / "urls.txt").write_text("no url\n")
    refused = CliRunner().invoke(main, [*own, "--command", "cat {source}"])
    assert (refused.exit_code, refused.output.count("\n")) == (2, 1)
    assert "no host can be read from 'no url'" in refused.output


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("postgresql://nobody@localhost:1/nothing", "nothing"),
        ("mysql://localhost/x", "'mysql://localhost/x' is no address of a database that a planner knows"),
    ],
)
def test_an_address_is_no_folder(address: str, words: str, here: Path) -> None:
    (here / "s.txt").write_text("a\n")
    how = ["--bandwidth", "2/day", "--sources", "s.txt"]
    for options in (how, []):
        refused = CliRunner().invoke(main, ["run", address, *options])
        assert (refused.exit_code, refused.output.count("\n")) == (2, 1), refused.output
        assert words in refused.output or "psycopg" in refused.output
    assert [path.name for path in here.iterdir()] == ["s.txt"]


def test_sources_in_json_lines(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"source": "a", "importance": 2}\n{"source": "b", "importance": 1}\n')
    words = ["run", str(tmp_path / "state"), "--bandwidth", "2/day", "--sources", str(tmp_path / "s.jsonl")]
    assert CliRunner().invoke(main, words).exit_code == 0
    with fo.Planner(tmp_path / "state") as planner:
        assert planner.to_frame().select("source", "importance").rows() == [("a", 2.0), ("b", 1.0)]


BOUNDS: dict[str, list[tuple[float | None, float | None]]] = {
    "source,min_rate,max_rate\na,1/2h,48/day\nb,,inf\n": [(12.0, 48.0), (0.0, None)],
    "source,max_interval,min_interval\na,2h,30m\nb,1,0\n": [(12.0, 48.0), (1.0, None)],
    "source,min_rate,time_unit\na,0.5,hour\nb,12/day,hour\n": [(12.0, None), (12.0, None)],
}


@pytest.mark.parametrize("table", BOUNDS)
@pytest.mark.parametrize("unit", ["day", "hour"])
@pytest.mark.usefixtures("here")
def test_bounds_in_a_list_of_sources_are_read_as_limits_are(table: str, unit: str) -> None:
    Path("bounds.csv").write_text(table)
    Path("sources.txt").write_text("a\nb\n")
    for k, words in enumerate((["bounds.csv"], ["sources.txt", "--limits", "bounds.csv"])):
        fo.Planner(f"state{k}", "99/day", time_unit=unit).close()
        done = CliRunner().invoke(main, ["run", f"state{k}", "--sources", *words])
        assert done.exit_code == 0, done.output
        with sqlite3.connect(f"state{k}/planner.sqlite") as database:
            found = database.execute("SELECT min_rate, max_rate FROM source ORDER BY name").fetchall()
        per = 1.0 if unit == "day" else 1.0 / 24.0
        for own, bounds in zip(found, BOUNDS[table], strict=True):
            assert own == tuple(each if each is None else pytest.approx(per * each) for each in bounds)
    # What a list does not tell stays; change rates are learnt, whatever a list says.
    Path("weights.csv").write_text("source,importance,change_rate\na,3,3/day\n")
    assert CliRunner().invoke(main, ["run", "state0", "--sources", "weights.csv"]).exit_code == 0
    with sqlite3.connect("state0/planner.sqlite") as database:
        assert database.execute("SELECT min_rate, max_rate FROM source ORDER BY name").fetchone() == found[0]


@pytest.mark.usefixtures("pages")
def test_refusals_are_one_line_and_leave_nothing(here: Path) -> None:
    file_with(Path("none.txt"), "\n# nothing\n")
    file_with(Path("unnamed.csv"), "what\na\n")
    file_with(Path("most.csv"), "source,max_rate\na,-1\n")
    file_with(Path("least.csv"), "source,min_rate\na,9\n")
    job = ["run", "state", "--command", f"{here}/fetch {{source}} {here}/pages"]
    refuse(here, [*job, "--once"], ["Give --bandwidth"])
    refuse(here, [*job, "--bandwidth", "5/day", "--once"], ["--sources"])
    file_with(Path("unread.csv"), "source,max_rate\na,5 apples\n")
    told = {
        "none.txt": "lists no sources. Write one a line.",
        "unnamed.csv": "source",
        "unread.csv": "apples",
    }
    for own in (False, True):  # an empty folder of the user's own stays, empty
        if own:
            Path("state").mkdir()
        for name, words in {**told, "most.csv": "max_rate", "least.csv": "min_rate"}.items():
            refuse(here, [*job, "--bandwidth", "2/day", "--sources", name], [words])


def dumped(folder: str) -> list[str]:
    """Return all that a planner keeps, as statements."""
    with closing(sqlite3.connect(f"{folder}/planner.sqlite")) as database:
        return list(database.iterdump())


@pytest.mark.usefixtures("pages")
def test_a_start_that_is_refused_leaves_a_planner_as_it_was(here: Path) -> None:
    """Neither its settings, nor its sources, nor its log have anything of it."""
    with fo.Planner("state", "5/day", objective="binary") as planner:
        planner.add_many(["a", "b"])
    fo.Planner("numbers", "5/day").close()
    with fo.Planner("numbers") as planner:
        planner.add("a")
        planner.due(1.0)
    file_with(Path("least.csv"), "source,min_rate\na,9\n")
    file_with(Path("more.csv"), "source,importance\na,3\nc,1\n")
    ago, ahead = (f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}" for days in (-2, 9))
    file_with(Path("later.csv"), f"source,time,changed\na,{ago},0\na,{ahead},1\n")
    dated = file_with(Path("dated.csv"), "source,time,changed\na,2026-01-01,0\na,2026-01-02,1\n")
    new = ["--bandwidth", "7/day", "--burst", "1h"]
    starts = {
        "state": (["--sources", "least.csv"], "min_rate need 9"),
        "./state": (["--sources", "more.csv", "--log", "later.csv"], "ahead of now"),
        "numbers": (["--sources", "more.csv", "--log", str(dated)], "numbers"),
    }
    for folder, (how, words) in starts.items():
        before = dumped(folder)
        refuse(here, ["run", folder, *new, *how], [words])
        assert dumped(folder) == before
    with fo.Planner("state") as planner:
        assert (planner.settings.bandwidth, len(planner)) == (5.0, 2)


@pytest.mark.usefixtures("pages")
def test_an_interrupt_finishes_what_runs_and_hands_back_the_rest(tmp_path: Path) -> None:
    begin(tmp_path)
    slow = "sh -c 'sleep 1; echo {source}'"
    words = [sys.executable, "-m", "freshopt", "run", str(tmp_path / "state"), "--command", slow, "--quiet"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with fo.Planner(tmp_path / "state") as planner:
        deadline = time.monotonic() + 30.0
        while planner.status().leased == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30.0)
        assert process.returncode == 0, err
        assert "Finishing what is running" in err
        assert planner.status().leased == 0
        assert "fetched" in out


@pytest.mark.usefixtures("pages")
def test_a_log_of_crawls_so_far_is_where_it_begins(tmp_path: Path) -> None:
    """Its sources are planned for, its crawls are evidence, and given again they change nothing."""
    log = tmp_path / "crawls.csv"
    rows = [f"{name},2026-01-{day:02d}T06:00:00Z,{int(name == 'a')}" for day in (1, 2, 4) for name in "ab"]
    log.write_text("source,time,changed\n" + "\n".join(rows) + "\n")
    for _ in range(2):
        done = run(tmp_path, "--bandwidth", "20/second", "--log", str(log), "--once", "--quiet")
        assert done.exit_code == 0, done.output
    with fo.Planner(tmp_path / "state") as planner:
        found, rates = planner.log(), planner.to_frame()
    assert found.names.tolist() == ["a", "b"]
    of_a, of_b = (found.changed[found.offsets[k] : found.offsets[k + 1]][:3].tolist() for k in (0, 1))
    assert (of_a, of_b) == ([False, True, True], [False] * 3)
    assert rates["change_rate"][0] > 3.0 * rates["change_rate"][1]


@pytest.mark.usefixtures("pages")
def test_a_log_without_dates_or_of_other_sources(tmp_path: Path) -> None:
    log = file_with(tmp_path / "crawls.csv", "source,time,changed\na,1,0\na,2,1\n")
    done = begin(tmp_path, "--log", str(log))
    assert done.exit_code == 2
    assert "crawls.csv has numbers for times" in done.output
    assert not (tmp_path / "state").exists()
    log.write_text("source,time,changed\nelsewhere,2026-01-01,0\na,2026-01-02,0\na,2026-01-03,1\n")
    assert begin(tmp_path, "--log", str(log)).exit_code in (0, 1)
    with fo.Planner(tmp_path / "state") as planner:
        assert set(planner.log().names.tolist()) <= {"a", "b"}


def overdue(tmp_path: Path, names: list[str], bandwidth: str, **settings: str) -> None:
    """Begin a planner of which all sources are overdue and the bandwidth of a minute is free."""
    with fo.Planner(tmp_path / "state", bandwidth, **settings) as planner:  # type: ignore[arg-type]
        planner.add_many(names, host="one")
        for ago in (3, 2, 1):
            moment = datetime.now(UTC) - timedelta(hours=ago)
            planner.due(moment, limit=1)
            planner.observed_many(names, moment, [ago == 1] * len(names))


def fetched_at(tmp_path: Path) -> list[float]:
    """Return the moments, in seconds, of what a run has fetched."""
    with fo.Planner(tmp_path / "state") as planner:
        log = planner.log()
        seconds = np.sort(log.time) * 86_400.0
    return [float(each) for each in seconds if each > seconds[0] + 2.5 * 3600.0]


def test_a_loop_that_is_started_again_has_no_burst(tmp_path: Path) -> None:
    """Of 38 sources that are overdue at four a second five come at once, and then four a second."""
    names = [f"s{k}" for k in range(38)]
    overdue(tmp_path, names, "4/second", update="9d", replan="99d")
    done = CliRunner().invoke(
        main, ["run", str(tmp_path / "state"), "--command", "true {source}", "--for", "2s", "--quiet"]
    )
    assert done.exit_code == 0, done.output
    moments = fetched_at(tmp_path)
    assert len(moments) > 4
    for k, begin in enumerate(moments):
        for many, end in enumerate(moments[k:], 1):
            # Four a second in any span, those of a second at once, and one.
            assert many <= 4.0 * (end - begin + 1.0) + 1.0 + 1e-6


def test_once_waits_for_the_gap_of_a_host(tmp_path: Path) -> None:
    """What was due is fetched, one after the other, and what the bandwidth has no room for is not."""
    overdue(tmp_path, ["a", "b", "c"], "1/second", burst="1min")
    words = ["run", str(tmp_path / "state"), "--command", "true {source}", "--once", "--quiet"]
    done = CliRunner().invoke(main, [*words, "--host-gap", "0.2s", "--burst", "30s"])
    assert done.exit_code == 0, done.output
    with fo.Planner(tmp_path / "state") as planner:
        assert planner.settings.burst == pytest.approx(30.0 / 86_400.0)
        assert planner.settings.host_gap == pytest.approx(0.2 / 86_400.0)
    moments = fetched_at(tmp_path)
    assert len(moments) >= 3
    assert min(later - before for before, later in pairwise(moments)) >= 0.2 - 1e-5
    none = CliRunner().invoke(main, [*words, "--host-gap", "0"])
    assert none.exit_code == 0, none.output
    with fo.Planner(tmp_path / "state") as planner:
        assert planner.settings.host_gap == 0.0
    for option, given in (("--host-gap", "-2s"), ("--burst", "0"), ("--burst", "much")):
        refuse(tmp_path, [*words, option, given], [f"Error: {option}"])
