"""Where a command's log comes from: files, other tools' records, and the schedule's own crawls."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.datasets import load_example
from freshopt.goodness_of_fit import interpret, poisson_check
from freshopt.goodness_of_fit.interpretation import verdict
from freshopt.terminal.own_crawls import with_own_crawls
from freshopt.tools import read_git
from tests.ground_truth.command_lines import Run, refuse, unwrapped
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import SCALAR
from tests.tools.test_dbt import RUNS
from tests.tools.test_git import Repository


@pytest.fixture
def repository(folder: Path) -> Path:
    made = Repository(folder / "repo")
    rng = np.random.default_rng(1)
    days = np.sort(rng.uniform(0, 40, 30))
    for k, day in enumerate(days.tolist()):
        made.commit(day, **{f"f{k % 3}": str(k), "often": str(k)})
    return made.path


def test_a_plan_for_a_git_repository(run: Run, repository: Path) -> None:
    run("import", "git", str(repository), "--out", "git.csv")
    ran = run("plan", "git.csv", "--bandwidth", "1/day", "--horizon", "7d", "--out", "out", "--details")
    history = read_git(repository)
    assert f"git.csv: {len(history)} changes of 4 sources" in unwrapped(ran.output)
    assert "certificate   optimal" in ran.output
    rates = pl.read_parquet("out/rates.parquet")
    assert sorted(rates["source"].to_list()) == ["f0", "f1", "f2", "often"]
    assert json.loads(Path("out/summary.json").read_text())["counts"]["sources"] == 4


def test_change_rates_of_a_git_repository(run: Run, repository: Path) -> None:
    run("import", "git", str(repository), "--out", "git.csv")
    run("estimate", "git.csv", "--smoothing", "0", "--out", "r.csv")
    frame = pl.read_csv("r.csv").sort("source")
    history = read_git(repository)
    expected = history.changes / (history.end - history.start)
    np.testing.assert_allclose(frame["change_rate"].to_numpy(), expected, rtol=SCALAR)


def test_change_rates_from_dbt_and_a_table_of_changes(run: Run, folder: Path) -> None:
    for name, document in RUNS.items():
        (folder / "dbt" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "dbt" / name).write_text(json.dumps(document))
    run("import", "dbt", "dbt", "--out", "dbt.csv")
    ran = run("estimate", "dbt.csv", "--out", "d.csv")
    assert "dbt.csv: 5 crawls of 2 sources, 2 found a change" in ran.output
    (folder / "changes.csv").write_text("source,time\na,0\na,2\nb,3\na,10\n")
    run("import", "history", "changes.csv", "--out", "all.csv")
    ran = run("estimate", "all.csv", "--out", "h.csv", "--smoothing", "0")
    assert "all.csv: 4 changes of 2 sources in 10 days, all known" in ran.output
    np.testing.assert_allclose(pl.read_csv("h.csv")["change_rate"].to_numpy(), [0.3, 0.1], rtol=SCALAR)


def test_poisson_check_prints_writes_and_draws(run: Run, repository: Path) -> None:
    run("import", "git", str(repository), "--out", "git.csv")
    ran = run("poisson-check", "git.csv", "--out", "p.parquet", "--plot", "p.png")
    check = poisson_check(read_git(repository))
    shown = unwrapped(ran.output)
    assert interpret(check) in shown if not check.tested.any() else verdict(check) in shown
    frame = pl.read_parquet("p.parquet")
    assert frame["source"].to_list() == check.sources_.tolist()
    np.testing.assert_array_equal(frame["dispersion_p"].to_numpy(), check.p_value["dispersion"])
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


def test_poisson_check_of_the_example(run: Run) -> None:
    ran = run("poisson-check", "--example", "debian-uploads", "--level", "0.01")
    rows = {line.split("  ")[0]: line for line in ran.output.splitlines() if line}
    assert "434,205 crawls of 344 sources, 4,303 found a change" in rows["data"]
    assert {"result", "dispersion", "gaps", "weekly", "drift"} <= set(rows)
    assert "FDR 1%" in rows["test"]
    check = poisson_check(load_example("debian-uploads"), level=0.01)
    index = check.pooled["dispersion"]
    assert rows["dispersion"].split()[1] == f"{check.share_rejected('dispersion'):.0%}"
    assert f"variance {index:.2g} (Poisson: 1)" in rows["dispersion"]
    assert f"widen change-rate intervals {math.sqrt(index):.1f}-fold" in rows["dispersion"]
    assert all(len(line) <= 100 for line in ran.output.splitlines())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["poisson-check"], ("LOG or --example", "freshopt import", "freshopt poisson-check --help")),
        (["poisson-check", "log.csv", "--git", "."], ("not both", "freshopt poisson-check --help")),
        (["import", "git", "."], ("git cannot read .", "not a git repository")),
        (["poisson-check", "log.csv", "--since", "2024-01-01"], ("--since is for --git", "Leave it out")),
        (["estimate", "log.csv", "--min-changes", "3", "--out", "o.csv"], ("--min-changes is for --git",)),
        (["poisson-check", "log.csv", "--level", "2"], ("between 0 and 1",)),
        (["poisson-check", "log.csv", "--out", "log.csv"], ("is the file that is read",)),
        (["poisson-check", "--history", "log.csv", "--out", "log.csv"], ("is the file that is read",)),
        (["poisson-check", "log.csv", "--out", "o.xlsx"], ("o.xlsx ends in '.xlsx'",)),
        (["poisson-check", "log.csv", "--plot", "p.png"], ("nothing to draw",)),
        (["poisson-check", "log.csv", "--plot", "p.txt"], ("p.txt is no picture", "Rename")),
        (["poisson-check", "rates.csv"], ("rates.csv has no column 'changed'",)),
        (["import", "history", "rates.csv"], ("rates.csv has no column 'time'",)),
        (["import", "dbt", "."], ("no JSON file", "dbt source freshness")),
    ],
)
def test_refusals(folder: Path, arguments: list[str], words: tuple[str, ...]) -> None:
    refuse(folder, arguments, words)


def file(folder: Path, text: str, name: str = "own.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_first_row_follows_the_last_crawl_of_the_log(tmp_path: Path) -> None:
    log = fo.CrawlLog(["a", "a", "b"], [0.0, 2.0, 1.0], [0, 1, 0])
    own = file(tmp_path, "source,time,changed\nb,4,1\na,2.5,1\na,7,0\nc,5,1\n")
    more = with_own_crawls(log, [own])
    assert more.names.tolist() == ["a", "b", "c"]
    assert more.time.tolist() == [0.0, 2.0, 2.5, 7.0, 1.0, 4.0, 5.0]
    np.testing.assert_array_equal(more.interval, [np.nan, 2.0, 0.5, 4.5, np.nan, 3.0, np.nan])
    assert more.changed.tolist() == [False, True, True, False, False, True, False]
    assert with_own_crawls(log, []) is log


def test_nothing_is_learnt_of_first_hashes_that_follow_none(tmp_path: Path) -> None:
    log = fo.CrawlLog(["a", "a", "b"], [0.0, 2.0, 1.0], [0, 1, 0])
    own = file(
        tmp_path, "source,time,hash,status\nb,4,x,\nb,5,y,200\na,3,,304\na,4,,503\na,7,z,200\na,9,z,\n"
    )
    more = with_own_crawls(log, [own])
    assert more.time.tolist() == [0.0, 2.0, 3.0, 7.0, 9.0, 1.0, 4.0, 5.0]
    np.testing.assert_array_equal(more.interval, [np.nan, 2.0, 1.0, np.nan, 2.0, np.nan, np.nan, 1.0])
    assert more.changed.tolist() == [False, True, False, False, False, False, False, True]
    # The failed fetch is none of the crawls, and is paid for: 6 fetches of a over 9 days, 3 of b over 4.
    assert more.other_fetches is not None
    assert [column.tolist() for column in more.other_fetches] == [[0], [4.0], [False]]
    assert present(more.attempt_rate).tolist() == [5.0 / 9.0, 2.0 / 4.0]
    later = with_own_crawls(more, [file(tmp_path, "source,time,hash,status\nb,6,,502\nb,8,v,\n")])
    assert sorted(present(later.other_fetches).time.tolist()) == [4.0, 6.0]


@pytest.mark.parametrize("counted", [False, True])
def test_dates_counts_and_known_first_intervals_stay(counted: bool, tmp_path: Path) -> None:
    days = np.array(["2026-01-05T06:00", "2026-01-07T06:00", "2026-01-06T00:00"], "M8[us]")
    told: dict[str, Any] = {"changes": [2, 1, 0]}
    if not counted:
        told = {"last_modified": [None, days[1] - np.timedelta64(3, "h"), None]}
    log = fo.CrawlLog([1, 1, 2], days, [1, 1, 0], start=days[0] - np.timedelta64(1, "D"), **told)
    key, value = ("changes", "3") if counted else ("last_modified", "2026-01-08T00:00:00Z")
    text = f"source,time,changed,{key}\n1,2026-01-08T06:00Z,1,{value}\n2,2026-01-09T00:00Z,0,\n"
    also = file(tmp_path, "source,time,changed\n1,2026-01-10T06:00Z,0\n", "later.csv")
    more = with_own_crawls(log, [also, file(tmp_path, text)])
    assert more.origin == log.origin
    assert more.time.tolist() == [0.25, 2.25, 3.25, 5.25, 1.0, 4.0]
    assert more.interval.tolist() == [1.0, 2.0, 1.0, 2.0, 1.75, 3.0]
    expected = [2, 1, 3, np.nan, 0, np.nan] if counted else [np.nan, 2.125, 3.0, *[np.nan] * 3]
    np.testing.assert_allclose(getattr(more, key), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source,time,changed\na,1.5,1\n", "before the log's last crawl of 'a'"),
        ("source,time,changed\na,3,1\na,3,0\n", "twice at one time of 'a'"),
        ("source,time,changed\na,2,1\n", "'a'"),
        ("source,elapsed,changed\na,3,1\n", "no column 'time'"),
        ("source,time,changed\na,2026-01-05,1\n", "own.csv: "),
        ("source,changed\na,1\n", "no column 'time'"),
    ],
)
def test_what_cannot_follow_is_refused(text: str, words: str, tmp_path: Path) -> None:
    log = fo.CrawlLog(["a", "a", "b"], [0.0, 2.0, 1.0], [0, 1, 0])
    refused(words, with_own_crawls, log, [file(tmp_path, text)])


def test_a_log_without_times_cannot_be_continued(tmp_path: Path) -> None:
    log = fo.CrawlLog.from_columns({"source": ["a"] * 2, "elapsed": [1.0, 2.0], "changed": [0, 1]})
    refused("no times", with_own_crawls, log, [file(tmp_path, "source,time,changed\na,9,1\n")])
