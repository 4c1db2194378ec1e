"""The page's answers to questions: freshness as today, what was promised, and changes of earlier rates."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from freshopt.formatting import number
from freshopt.report.page import write_report
from freshopt.units import duration
from tests.ground_truth.command_lines import MAIN_JOB, Run
from tests.ground_truth.page_reader import PageReader


def page(folder: str) -> PageReader:
    return PageReader((Path(folder) / "report.html").read_text(encoding="utf-8"))


def facts(folder: str) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((Path(folder) / "summary.json").read_text())
    return found


def prose(text: PageReader) -> str:
    return text.prose.replace("\xa0", " ")


@pytest.mark.usefixtures("log")
def test_the_head_says_what_todays_freshness_needs(run: Run) -> None:
    run("plan", "log.parquet", *MAIN_JOB, "--draws", "0", "--out", "plan")
    sentence = str(facts("plan")["today"]["sentence"])
    assert f"{sentence[0].upper()}{sentence[1:]}." in prose(page("plan"))
    run("plan", "log.parquet", "--freshness", "80%", "--horizon", "7d", "--draws", "0", "--out", "promised")
    needed = str(facts("promised")["needed"]["sentence"])
    assert needed.startswith("80 % fresh needs ")
    assert f"{needed}." in prose(page("promised"))
    run("plan", "log.parquet", "--freshness", "today", "--horizon", "7d", "--draws", "0", "--out", "same")
    assert prose(page("same")).count("as the log's own crawls") == 1  # told once
    assert "As fresh as today" not in prose(page("same"))
    # A summary of an earlier version has neither.
    told = facts("plan")
    Path("plan/summary.json").write_text(json.dumps({**told, "today": {"bandwidth": 1.0}}))
    write_report("plan")
    assert "as the log's own crawls" not in prose(page("plan"))


@pytest.mark.usefixtures("log")
def test_changes_of_earlier_rates_are_a_section(run: Run) -> None:
    names = [f"page/{k}" for k in range(1, 8)] + ["away"]
    old = pl.DataFrame({"source": names, "rate": [1.0, 0.2, *[0.5] * 5, 2.0]})
    old.write_csv("old.csv")
    job = ("plan", "log.parquet", *MAIN_JOB, "--draws", "0", "--compare", "old.csv")
    run(*job, "--out", "plan")
    run(*job, "--csv", "--out", "text")
    rates = pl.read_parquet("plan/rates.parquet").join(old, on="source", suffix="_old")
    known = {name: (before, now) for name, now, before in rates.select("source", "rate", "rate_old").rows()}
    changes = pl.read_parquet("plan/changes.parquet").drop_nulls("old_rate")
    for folder in ("plan", "text"):
        text, value = page(folder), facts(folder)["changes"]["value"]
        words = text.sections["earlier"].replace("\xa0", " ")
        assert "7 of 7 intervals changed; 1 new source; 1 source gone." in words
        assert isinstance(value, float)
        assert f"with a staleness of {number(value)} under" in words
        (table,) = [each for each in text.tables if each.caption.endswith("that bring most")]
        assert table.rows[0][1:] == ["refreshed every", "now every", "times as often", "gain: staleness"]
        assert [row[0] for row in table.rows[1:]] == changes["source"].to_list()
        for name, before, now, times, _ in table.rows[1:]:
            was, rate = known[name]
            assert (before, now) == (duration(1.0 / was, "day"), duration(1.0 / rate, "day"))
            assert times == (f"× {number(rate / was)}" if rate >= was else f"÷ {number(was / rate)}")


@pytest.mark.usefixtures("log")
def test_few_changes_and_sources_never_refreshed_before(run: Run) -> None:
    old = pl.DataFrame({"source": [f"page/{k}" for k in range(8)], "rate": [0.0, 1.0, *[0.5] * 6]})
    old.write_csv("old.csv")
    job = ("plan", "log.parquet", *MAIN_JOB, "--draws", "0", "--compare", "old.csv", "--out", "plan")
    shown = run(*job, "--max-churn", "40%").output
    sentence = str(facts("plan")["few_changes"]["sentence"])
    assert sentence in " ".join(shown.split())
    text = page("plan")
    assert f"{sentence}." in prose(text)
    assert "inf" not in text.sections["earlier"]
    (row,) = [row for table in text.tables for row in table.rows if row[:2] == ["page/0", "never"]]
    assert row[3:] == ["", "all"]


@pytest.mark.usefixtures("log")
def test_ages_and_prices_have_units(run: Run) -> None:
    job = ("plan", "log.parquet", *MAIN_JOB, "--objective", "age", "--replay", "--draws", "0")
    assert "age in" in run(*job, "--out", "plan").output
    text = page("plan")
    heads = {head for table in text.tables for row in table.rows[:1] for head in row}
    assert {
        "age in days (lower is better)",
        "age in days",
        "shadow price per refresh/day",
        "cost: age in days",
    } <= heads
    assert " days of age per refresh/day" in prose(text)
    assert any("shadow price per refresh/day " in each for each in text.tooltips)
