"""Warnings of a run, wherever a plan is told: on standard error, in the summary, on the page, in Python."""

import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import Result

import freshopt as fo
from tests.ground_truth.command_lines import fields, refuse, unwrapped
from tests.ground_truth.refusals import refused

Run = Callable[..., Result]
JOB = ("--bandwidth", "2/day", "--horizon", "7d", "--draws", "0")
ALONE = "no status 304, hash or ETag: every answer counts as a change"
ASKED = "--answers-are-changes"


def answers(*, conditional: bool = False) -> pl.DataFrame:
    """Three pages, crawled daily, of which the second changes each time; some last_modified are no dates."""
    rng = np.random.default_rng(2)
    rows = [
        (
            f"p{k}",
            f"2026-03-{day:02d}T00:00:00Z",
            200 if not conditional or k == 1 or rng.random() < 0.4 else 304,
        )
        for k in range(3)
        for day in range(1, 31)
    ]
    frame = pl.DataFrame(rows, schema=["source", "time", "status"], orient="row")
    return frame.with_columns(last_modified=pl.when(pl.int_range(pl.len()) % 9 == 0).then(pl.lit("0")))


def page_of(folder: str) -> str:
    return Path(folder, "report.html").read_text(encoding="utf-8")


def test_answers_alone_are_planned_for_only_where_that_is_asked_for(run: Run) -> None:
    answers().write_csv("log.csv")
    answers().drop("last_modified").write_csv("bare.csv")
    for command in (
        ("plan", "bare.csv", *JOB, "--out", "plan"),
        ("estimate", "bare.csv", "--out", "rates.csv"),
        ("poisson-check", "bare.csv"),
    ):
        refuse(Path(), command, ("bare.csv has no status 304, hash or ETag", ASKED))
    refused("no status 304, hash or ETag", fo.plan, "bare.csv", bandwidth=2.0, horizon=7.0)
    ran = run("plan", "log.csv", *JOB, ASKED, "--out", "plan")
    assert ran.stderr.count(f"Warning: log.csv has {ALONE}") == 1
    facts = json.loads(Path("plan/summary.json").read_text())
    # The one that makes the rates wrong comes first, although it was said last.
    assert [text.partition(" in ")[0].partition(":")[0] for text in facts["warnings"]] == [
        "log.csv has no status 304, hash or ETag",
        "each of 87 crawls found a change",
        "last_modified is no date",
    ]
    page = page_of("plan")
    lead, doubt, proof = (
        page.index(text) for text in ('class="lead"', f"Warning: log.csv has {ALONE}", "Proved optimal")
    )
    assert doubt < lead < proof
    assert "Warning: last_modified is no date in 10 rows" in page
    assert ALONE not in unwrapped(ran.stdout)
    # A page that is made again says it again.
    Path("plan/report.html").unlink()
    run("report", "plan", "--overwrite")
    assert f"Warning: log.csv has {ALONE}" in page_of("plan")


def test_a_log_that_asks_conditionally_needs_no_word(run: Run) -> None:
    answers(conditional=True).drop("last_modified").write_csv("log.csv")
    ran = run("plan", "log.csv", *JOB, "--out", "plan")
    assert ran.stderr == ""
    assert json.loads(Path("plan/summary.json").read_text())["warnings"] == []
    assert "Warning:" not in page_of("plan")
    assert "warning" not in fields(ran.stdout)
    refuse(Path(), ("plan", "--example", "debian-uploads", *JOB, ASKED, "--out", "x"), ("is for LOG",))


def test_python_has_the_warnings_that_nobody_was_shown(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    answers().write_csv(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = fo.read_log(path, answers_are_changes=True)
        made = fo.plan(log, bandwidth=2.0, horizon=7.0, draws=0)
    assert [text.count(ALONE) for text in made.warnings] == [1, 0, 0]
    assert made.warnings[2].startswith(
        "last_modified is no date in 10 rows, such as '0' in row 1, line 2 of "
    )
    assert repr(made).count("last_modified is no date") == 1
    log = pickle.loads(pickle.dumps(log))
    with pytest.warns(fo.SourceDataWarning, match="each of 87 crawls"):
        again = fo.plan(log, bandwidth=3.0, horizon=7.0, draws=0)
    assert again.warnings == made.warnings
    with pytest.warns(fo.SourceDataWarning, match="each of 87 crawls"):
        lives = fo.plan_lifetimes(log, dict.fromkeys(log.names.tolist(), 5.0), bandwidth=2.0)
    assert lives.warnings == made.warnings
    lives.write(tmp_path / "lives")
    assert json.loads((tmp_path / "lives" / "summary.json").read_text())["warnings"] == list(made.warnings)
    assert f"{ALONE}, and" in page_of(str(tmp_path / "lives"))


def test_every_log_keeps_what_was_warned_of(tmp_path: Path) -> None:
    times = ["1970-01-02T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"]
    with pytest.warns(fo.SourceDataWarning, match="time is not in the years"):
        log = fo.CrawlLog(["a"] * 3, times, [0, 1, 0])
    with pytest.warns(fo.SourceDataWarning, match="time is not in the years"):
        history = fo.ChangeHistory(["a"] * 3, times)
    frame = pl.DataFrame({"source": ["a"] * 3, "time": times, "changed": [0, 1, 0]})
    frame.write_csv(tmp_path / "log.csv")
    with pytest.warns(fo.SourceDataWarning, match="time is not in the years"):
        from_path = fo.plan(tmp_path / "log.csv", bandwidth=2.0, horizon=7.0, draws=0)
    for made in (from_path, *(fo.plan(each, bandwidth=2.0, horizon=7.0, draws=0) for each in (log, history))):
        assert len(made.warnings) == 1
        assert made.warnings[0].startswith("time is not in the years 1971 to 2100")


def test_plans_over_partitions_have_the_warnings_of_all_files(run: Run) -> None:
    answers().with_columns(pl.col("time").str.to_datetime("%Y-%m-%dT%H:%M:%SZ")).write_parquet(
        "whole.parquet"
    )
    for name, conditional in (("alone", False), ("some", True)):
        Path(name).mkdir()
        rows = answers(conditional=conditional)
        for k in range(3):
            own = rows.filter(pl.col("source") == f"p{k}")
            own.with_columns(pl.col("time").str.to_datetime("%Y-%m-%dT%H:%M:%SZ")).write_parquet(
                f"{name}/{k}.parquet"
            )
    job = ("--engine", "dask", "--bandwidth", "2/day", "--horizon", "7d")
    refuse(Path(), ("plan", "alone", *job, "--out", "a"), ("no status 304, hash or ETag", ASKED))
    run("plan", "alone", *job, ASKED, "--out", "a")
    told = json.loads(Path("a/summary.json").read_text())["warnings"]
    assert [text.count(ALONE) for text in told] == [1, 0, 0, 0]
    # The second page has no 304 in its own file, and others in theirs.
    run("plan", "some", *job, "--out", "b")
    told = json.loads(Path("b/summary.json").read_text())["warnings"]
    assert [text.count(ALONE) for text in told] == [0, 0, 0]
    run("report", "a", "--overwrite")
    assert ALONE in page_of("a")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        # Exp(-60/once) = 5 % where 60 source-days saw no change.
        (
            0,
            "none of 60 crawls found a change. All that they show is that sources change less than once in 2",
        ),
        (1, "each of 60 crawls found a change: sources may change far more often than they were crawled"),
    ],
)
def test_a_log_that_decides_nothing_is_doubted(changed: int, words: str) -> None:
    days = list(range(31))
    log = fo.CrawlLog(["a"] * 31 + ["b"] * 31, days * 2, [changed] * 62)
    with pytest.warns(fo.SourceDataWarning, match=words):
        made = fo.plan(log, draws=0)
    assert made.warnings[0].startswith(words)
    assert repr(made).replace("\n", " ").startswith(f"Warning: {words}")
    one = fo.CrawlLog(["a"] * 31 + ["b"] * 31, days * 2, [changed] * 40 + [1 - changed] + [changed] * 21)
    assert fo.plan(one, draws=0).warnings == ()
