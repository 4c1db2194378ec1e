"""The ten lines that head a plan and the page's answers: each follows from the summary, or is left out."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from freshopt.formatting import number
from freshopt.report.context import Context, Facts
from freshopt.report.headline import closing, headline, hero
from freshopt.report.page import write_report
from freshopt.units import duration
from tests.ground_truth.command_lines import MAIN_JOB, Run
from tests.ground_truth.page_reader import PageReader

Summary = dict[str, Any]
FACTS: Summary = {
    "objective": "HarmonicStaleness",
    "sense": "minimise",
    "discipline": "periodic",
    "time_unit": "day",
    "log": {"begin": "2024-01-01T00:00:00+00:00", "end": "2024-03-01T00:00:00+00:00", "crawled": True},
    "bandwidth": 4.0,
    "bandwidth_used": 4.0,
    "horizon": 7.0,
    "status": "optimal",
    "warnings": [],
    "value": 90.0,
    "bound": 90.0,
    "gap": 1e-12,
    "relative_gap": 1e-14,
    "price": 2.0,
    "baselines": {"uniform": 100.0},
    "findings": {"fresh": {"plan": 0.75, "uniform": 0.7}},
    "forecast": {"realised_over_predicted": [0.64, 1.0, 1.17]},
    "today": {"bandwidth": 10.0, "fresh": 0.9, "needed": 7.5, "saving": 0.25, "sentence": "so"},
    "intervals": {
        "shortest": {"interval": 0.5, "whose": "https://a.example/x"},
        "median": 2.0,
        "longest": {"interval": 30.0, "whose": "never changed"},
    },
    "moved": {"crawled": 10.0, "more": 1, "less": 6, "about": 0, "never": 1, "sources": []},
    "change_rate": {"sum": 3.0, "median": 0.2},
    "counts": {"sources": 8, "refreshes": 28, "never_refreshed": 1, "flags": {"ok": 7, "never changed": 1}},
}


def put(*path: str, value: Any) -> Callable[[Summary], None]:  # noqa: ANN401 - whatever JSON has
    """Return an edit that puts a value at a place."""

    def edit(facts: Summary) -> None:
        for key in path[:-1]:
            facts = facts[key]
        facts[path[-1]] = value

    return edit


CUT = {"bandwidth": 5.0, "fresh": 0.6}
NEEDED = {"freshness": 0.95, "bandwidth": 20.0, "sentence": "95 % fresh needs 20 refreshes per day"}
# Edits, what is then said, and what is not.
CASES: dict[str, tuple[list[Callable[[Summary], None]], tuple[str, ...], tuple[str, ...]]] = {
    "as it is": (
        [],
        (
            "8 sources, 60 days of crawls. Half change less than once in 5 days; 1 never changed.",
            "At your freshness (90 %)   7.5 fetches/day instead of 10   25 % fewer",
            "At your 4 fetches/day      75 % of the time up to date     (all alike: 70 %)",
            "Refresh every              12 hours (a.example/x) to 30 days (never changed); median 2 days; ",
            "Against your crawls        6 less often, 1 more often, 1 no more",
            "Next                       28 fetches in 7 days, about 4/day",
            "Proved optimal for these estimates. Costs on your own past were -36 to +17 % off the",
        ),
        ("Warning", "what is optimised"),
    ),
    "as many fetches as today": (
        [put("bandwidth_used", value=10.0), put("bandwidth", value=10.0)],
        ("At your 10 fetches/day", "75 % of the time up to date", "(now: 90 %)"),
        ("all alike: 70",),
    ),
    "own crawls beyond the limits": (
        [put("today", "cut", value=CUT), put("today", "needed", value=4.5)],
        ("Your crawls, cut to the limits (60 %)   4.5 fetches/day instead of 5", "10 % fewer"),
        ("At your freshness", "(now"),
    ),
    "limits that leave bandwidth unused": (
        [put("bandwidth", value=12.0), put("counts", "at_max_rate", value=3)],
        (
            "At your 12 fetches/day     75 % of the time up to date",
            "only 4 of them are used: your limits allow no more",
        ),
        ("At your 4",),
    ),
    "bandwidth of which more gains nothing": (
        [put("bandwidth", value=12.0)],
        ("only 4 of them are used: more would gain nothing",),
        ("your limits",),
    ),
    "limits of which none binds": (
        [put("bandwidth", value=12.0), put("constraints", value={"binding": 0, "rows": 2, "listed": []})],
        ("only 4 of them are used: more would gain nothing", "0 of 2 bind"),
        ("your limits",),
    ),
    "bounds that ask for more than the own crawls": (
        [put("today", "needed", value=12.0)],
        ("At your 4 fetches/day",),
        ("At your freshness", "% more"),
    ),
    "less than a percent": (
        [put("today", "needed", value=9.9359)],
        ("0.6 % fewer",),
        ("0.641",),
    ),
    "no own crawls": (
        [put("today", value=None), put("moved", value=None), put("log", "crawled", value=False)],
        ("60 days of known changes",),
        ("At your freshness", "Against your crawls"),
    ),
    "a freshness": (
        [
            put("needed", value=NEEDED),
            put("objective", value="BinaryFreshness"),
            put("sense", value="maximise"),
        ],
        ("To be 95 % up to date      20 fetches/day", "100 % more than your crawls"),
        ("At your 4 fetches",),
    ),
    "less fresh than equal rates": (
        [put("findings", "fresh", value={"plan": 0.603, "uniform": 0.606})],
        ("60.3 % of the time up to date", "(all alike: 60.6 %)", "10 % less staleness than all alike"),
        (),
    ),
    "less fresh and no better": (
        [put("findings", "fresh", value={"plan": 0.603, "uniform": 0.606}), put("value", value=120.0)],
        ("(all alike: 60.6 %)",),
        ("what is optimised",),
    ),
    "the least bandwidth": (
        [put("objective", value="Spend")],
        ("Fewest within the constraints   4 fetches/day", "75 % of the time up to date"),
        ("At your 4",),
    ),
    "failing fetches": (
        [put("success", value={"least": 0.5, "mean": 0.9, "retry_at_once": False})],
        ("7.5 attempts/day", "Attempt every"),
        ("fetches",),
    ),
    "fetches that cost what they bring": (
        [put("changed_cost", value={"mean": 2.0, "fetches": 4.0, "asking": 4.0, "downloads": 1.0})],
        ("28 refreshes in 7 days",),
        ("28 units",),
    ),
    "earlier rates": (
        [put("changes", value={"changed": 3, "new": 1, "gone": 2})],
        ("Against the old rates      3 of 7 intervals changed, 1 new source, 2 gone",),
        ("Against your crawls",),
    ),
    "a back-test": (
        [put("held_out", value={"verdict": "The plan saves 14 ± 3 % of the cost of equal rates."})],
        ("On your own past: the plan saves 14 ± 3 %",),
        ("off the prediction",),
    ),
    "nothing proved": (
        [put("status", value="inaccurate")],
        ("Not proved optimal: inaccurate.",),
        ("Proved optimal",),
    ),
    "limits": (
        [
            put("findings", "hosts", value={"limited": 9, "binding": 1, "hosts": [{"host": "a.example"}]}),
            put("constraints", value={"rows": 2, "binding": 0, "listed": [{"label": "kB", "price": 0.0}]}),
        ],
        ("Host limits                1 of 9 binds: a.example", "Constraints                0 of 2 bind\n"),
        ("kB",),
    ),
    "nothing refreshed": (
        [put("intervals", value={}), put("counts", "refreshes", value=0)],
        ("Next                       0 fetches in 7 days",),
        ("Refresh every",),
    ),
    "warnings": (
        [put("warnings", value=[f"odd {k}" for k in range(5)])],
        ("Warning: odd 0\nWarning: odd 1\nWarning: odd 2\nWarning: and 2 more",),
        ("odd 3",),
    ),
    "names that would drive a terminal": (
        [
            put("intervals", "shortest", "whose", value="\x1b]0;x\x07a\nb"),
            put("findings", "hosts", value={"limited": 9, "binding": 1, "hosts": [{"host": "\x1b[2Jh"}]}),
            put("warnings", value=["of \x1b[2J\nx"]),
        ],
        (r"(\x1b]0;x\x07a b)", r"binds: \x1b[2Jh", r"Warning: of \x1b[2J x"),
        ("\x1b", "\x07"),
    ),
    "of a plan over partitions": (
        [put(key, value=None) for key in ("findings", "today", "forecast", "intervals", "moved")],
        ("At your 4 fetches/day   staleness 90", "10 % less staleness than all alike"),
        ("Refresh every",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_lines_follow_from_the_summary(name: str) -> None:
    edits, present, absent = CASES[name]
    facts = copy.deepcopy(FACTS)
    for edit in edits:
        edit(facts)
    told = headline(Context.of(Facts(Path("summary.json"), facts)))
    assert max(map(len, told.splitlines())) <= 100
    for words in present:
        assert words in told
    for words in absent:
        assert words not in told


def test_the_first_sentence_of_the_page_is_the_saving() -> None:
    facts = copy.deepcopy(FACTS)
    told = Context.of(Facts(Path("summary.json"), facts))
    assert hero(told) == "The same freshness with 25 % fewer fetches: 7.5 fetches/day instead of 10."
    facts["today"] = None
    assert hero(told) == "Copies are 75 % of the time up to date with 4 fetches/day."


@pytest.mark.parametrize(
    ("objective", "takes"), [("HarmonicStaleness", True), ("BinaryFreshness", True), ("Mine", False)]
)
def test_todays_freshness_is_a_hint_where_it_is_taken(objective: str, takes: bool) -> None:
    told = Context.of(Facts(Path("summary.json"), {**FACTS, "objective": objective}))
    said = closing(told, Path("plan"), ["rates.csv"], details=False, replayed=False)
    assert ("--freshness today" in said) is takes
    assert said.endswith("--replay to test it on your history, --details")


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
        assert "7 of 7 intervals changed; 1 new source; 1 source gone; staleness" in words
        assert isinstance(value, float)
        assert f"staleness {number(value)} under today's estimates" in words
        (table,) = [each for each in text.tables if each.caption.endswith("that bring most")]
        assert table.rows[0][1:] == ["refreshed every", "now every", "gain: staleness"]
        assert [row[0] for row in table.rows[1:]] == changes["source"].to_list()
        for name, before, now, _ in table.rows[1:]:
            was, rate = known[name]
            assert (before, now) == (duration(1.0 / was, "day"), duration(1.0 / rate, "day"))


@pytest.mark.usefixtures("log")
def test_few_changes_and_sources_never_refreshed_before(run: Run) -> None:
    old = pl.DataFrame({"source": [f"page/{k}" for k in range(8)], "rate": [0.0, 1.0, *[0.5] * 6]})
    old.write_csv("old.csv")
    job = ("plan", "log.parquet", *MAIN_JOB, "--draws", "0", "--compare", "old.csv", "--out", "plan")
    shown = run(*job, "--max-churn", "40%", "--details").output
    sentence = str(facts("plan")["few_changes"]["sentence"])
    assert sentence in " ".join(shown.split())
    text = page("plan")
    assert f"{sentence}." in prose(text)
    assert "inf" not in text.sections["earlier"]
    (row,) = [row for table in text.tables for row in table.rows if row[:2] == ["page/0", "never"]]
    assert row[3:] == ["all"]


@pytest.mark.usefixtures("log")
def test_ages_and_prices_have_units(run: Run) -> None:
    job = ("plan", "log.parquet", *MAIN_JOB, "--objective", "age", "--replay", "--draws", "0")
    assert "age in" in run(*job, "--details", "--out", "plan").output
    text = page("plan")
    heads = {head for table in text.tables for row in table.rows[:1] for head in row}
    assert {
        "age in days (lower is better)",
        "age in days",
        "shadow price per refresh/day",
        "cost: age in days",
    } <= heads
    assert "hours per refresh/day: 1 % more bandwidth lowers age" in prose(text)
    assert any("shadow price per refresh/day " in each for each in text.tooltips)
