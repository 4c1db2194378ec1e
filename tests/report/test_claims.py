"""A sentence is on the page only where the numbers beside it say so: summaries that contradict each claim."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.planning.plan import make_plan
from freshopt.planning.plan_files import summary, write_plan
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from freshopt.report import write_report
from freshopt.report.context import Context
from freshopt.report.context import Facts as Known
from freshopt.report.held_out import PolicyRow, saved
from freshopt.report.page import findings
from tests.ground_truth.crawl_logs import log_at
from tests.ground_truth.named import PERIODIC
from tests.ground_truth.page_reader import PageReader
from tests.ground_truth.plans import crawls, plan_request
from tests.ground_truth.strata import matrix

Facts = dict[str, Any]
Edit = Callable[[Facts], None]

OPTIMAL = ("Proved optimal for these estimates.", "Proved optimal for the estimated change rates.")
NOT_OPTIMAL = ("Not proved optimal: ", "Not proved optimal.")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of twelve sources, with everything that a summary may hold."""
    folder = tmp_path_factory.mktemp("claims") / "plan"
    names = [f"s{k:02d}" for k in range(12)]
    asked = plan_request(
        HarmonicStaleness(PERIODIC),
        draws=4,
        hosts=lambda _: np.array(["x", "y"] * 6),
        host_limits={"x": 1e6, "y": 1e6},
        importance=lambda given: 1.0 + np.isin(given, names[:3]),
    )
    write_plan(make_plan(fo.CrawlLog(**crawls()), asked), folder)
    return folder


def page(folder: Path, edit: Edit, target: Path) -> str:
    """Return the text of the page of an edited summary."""
    facts = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    edit(facts)
    target.mkdir()
    for file in folder.glob("*.parquet"):
        (target / file.name).write_bytes(file.read_bytes())
    (target / "summary.json").write_text(json.dumps(facts), encoding="utf-8")
    text = PageReader(write_report(target).read_text(encoding="utf-8")).text
    return " ".join(text.replace("\xa0", " ").split())


def put(*path: str | int, value: Any) -> Edit:  # noqa: ANN401
    """Return an edit that puts a value at a place of the summary."""

    def edit(facts: Facts) -> None:
        within: Any = facts
        for key in path[:-1]:
            within = within[key]
        within[path[-1]] = value

    return edit


def scaled(*path: str | int, by: float) -> Edit:
    """Return an edit that multiplies a number of the summary."""

    def edit(facts: Facts) -> None:
        within: Any = facts
        for key in path[:-1]:
            within = within[key]
        within[path[-1]] *= by

    return edit


def both(*edits: Edit) -> Edit:
    def edit(facts: Facts) -> None:
        for each in edits:
            each(facts)

    return edit


def frontier(key: str, of: Callable[[float], object]) -> Edit:
    """Return an edit of a number of each point along the bandwidth, as a function of the bandwidth."""

    def edit(facts: Facts) -> None:
        for point in facts["findings"]["frontier"]:
            point[key] = of(point["bandwidth"])

    return edit


def held_out(uniform: float, error: float | None = 0.02, verdict: str = "The plan saves.") -> Edit:
    """Return an edit that adds held-out data with what equal rates save of the plan's cost."""
    told = {"plan": 0.0, "uniform": uniform, "best static in hindsight": 0.4, "current": -0.2}
    rows = [
        {
            "policy": key,
            "refreshes": 9.0,
            "predicted": None if key == "current" else 48.0,
            "realised": 50.0 * (1.0 - saving),
            "error": error,
            "fresh": 0.5,
            "saving": saving,
            "saving_error": error,
            "hidden": 0.22,
        }
        for key, saving in told.items()
    ]
    window = {"begin": 0.0, "end": 9.0, "splits": 3, "sources": 12, "left_out": 0, "verdict": verdict}
    return put("held_out", value={**window, "policies": rows})


FLAT = frontier("value", lambda _: 1.0)
RISING = frontier("value", lambda bandwidth: 100.0 - bandwidth)
FREE = both(put("price", value=0.0), frontier("price", lambda _: 0.0))
# Edits, what the page then says, and what it does not.
CLAIMS: dict[str, tuple[Edit, tuple[str, ...], tuple[str, ...]]] = {
    "as it is": (
        lambda _: None,
        (
            *(*OPTIMAL, "and proved optimal", "It falls:"),
            *("10 % more bandwidth", "is the shadow price plus that of its host's limit", "No host would be"),
        ),
        (*NOT_OPTIMAL, "no other rates can do better", "Tested on your own past", "brings nothing"),
    ),
    "another status": (
        put("status", value="inaccurate"),
        NOT_OPTIMAL,
        (*OPTIMAL, "No host would be"),
    ),
    "an inaccurate certificate": (put("relative_gap", value=3e-4), NOT_OPTIMAL, OPTIMAL),
    "no relative gap and a large one": (
        both(put("relative_gap", value=None), put("gap", value=0.5)),
        NOT_OPTIMAL,
        OPTIMAL,
    ),
    "a bound that is no bound": (scaled("bound", by=0.5), NOT_OPTIMAL, OPTIMAL),
    "no bound": (put("bound", value=None), ("Nothing is proved",), (*OPTIMAL, "No host would be")),
    "equal rates win on held-out data": (
        held_out(uniform=0.2),
        ("Tested on your own past", "22 % of the plan's cost; half of it counts", OPTIMAL[1]),
        ("measured, not predicted",),
    ),
    "the plan wins on held-out data": (
        held_out(uniform=-0.2),
        ("Tested on your own past", "in 3 windows", "The plan saves.", "-20.0 ± 2.0", "unreachable bound"),
        ("equal rates did better", "rates in hindsight did better"),
    ),
    "a lead within two standard errors": (held_out(uniform=0.2, error=0.15), (), ("did better",)),
    "no errors": (held_out(uniform=0.2, error=None), ("20.0",), ("did better", "±  ")),
    "no base for the regret": (
        put("uncertainty", "mean_optimal_value", value=None),
        ("ore data would help by",),
        ("of the mean optimal value",),
    ),
    "equal rates keep copies fresher": (
        lambda facts: facts["findings"]["fresh"].update(plan=0.603, uniform=0.606),
        ("60.3 % of the time up to date", "all alike: 60.6 %", "what is optimised"),
        (),
    ),
    "copies are as fresh as at equal rates": (
        lambda facts: facts["findings"]["fresh"].update(plan=0.606, uniform=0.606),
        (),
        ("what is optimised", "all alike"),
    ),
    "a price of 0 while more bandwidth helps": (both(FREE, RISING), (), ("does not bind", "brings nothing")),
    "a price of 0 and nothing helps": (
        both(FREE, lambda facts: frontier("value", lambda _: facts["value"])(facts)),
        ("More bandwidth brings nothing", "is the same at every bandwidth"),
        (),
    ),
    "a price that rises": (frontier("price", lambda bandwidth: bandwidth), (), ("It falls", "diminish")),
    "a point that is not proved": (
        put("findings", "frontier", 0, "status", value="inaccurate"),
        ("each solved anew",),
        ("solved anew and proved",),
    ),
    "more bandwidth that costs": (
        scaled("findings", "more_bandwidth", "value", by=10.0),
        (" more.Sources",),
        (" less.Sources",),
    ),
    "another raise": (
        scaled("findings", "more_bandwidth", "bandwidth", by=1.5 / 1.1),
        ("50 % more bandwidth",),
        ("10 % more bandwidth", "Ten percent"),
    ),
    "marginal values that differ": (
        put("findings", "interior", "deviation", value=0.1),
        (),
        ("is the shadow price plus", "between their bounds"),
    ),
    "a single source between its bounds": (
        put("findings", "interior", "sources", value=1),
        (),
        ("is the shadow price plus", "between their bounds"),
    ),
    "settings that are not known": (put("settings", value=None), ("Change rates are estimates",), ("95 %",)),
}


@matrix(name=CLAIMS, every=5)
def test_claims_follow_the_numbers(name: str, plan: Path, tmp_path: Path) -> None:
    edit, present, absent = CLAIMS[name]
    text = page(plan, edit, tmp_path / "edited")
    for words in present:
        assert words in text
    for words in absent:
        assert words not in text


def log_of(outcomes: list[list[int]]) -> fo.CrawlLog:
    """A daily log of sources with these outcomes."""
    return log_at(np.arange(len(outcomes[0])), outcomes)


LOGS: dict[str, tuple[fo.CrawlLog, tuple[str, ...], tuple[str, ...]]] = {
    "a single source": (
        log_of([[0, 1, 0, 1]]),
        ("as many",),
        ("between their bounds",),
    ),
    "no changes": (log_of([[0] * 5] * 3), ("Of 3 sources: 3 never changed.",), ("few data",)),
    "all alike": (
        log_of([[0, 1, 0, 0, 1]] * 4),
        ("as many",),
        ("all alike",),
    ),
}


@matrix(name=LOGS, every=3)
def test_claims_of_degenerate_logs(name: str, tmp_path: Path) -> None:
    log, present, absent = LOGS[name]
    write_plan(make_plan(log, plan_request(bandwidth=2.0, draws=2)), tmp_path / "plan")
    text = page(tmp_path / "plan", lambda _: None, tmp_path / "edited")
    for words in (*present, *OPTIMAL):
        assert words in text
    for words in absent:
        assert words not in text


def test_reasons_not_to_refresh_are_those_of_the_source(tmp_path: Path) -> None:
    """Too dear, of no importance, barred by its maximum rate; nothing else is said of any."""
    log = fo.CrawlLog(**crawls())
    dear = plan_request(BinaryFreshness(PERIODIC), bandwidth=0.3)
    made = make_plan(log, dear)
    write_plan(made, tmp_path / "dear")
    text = page(tmp_path / "dear", lambda _: None, tmp_path / "one")
    assert "marginal value below the shadow price" in text
    assert "importance over change rate" in text
    other = page(tmp_path / "dear", put("objective", value="PollingKnapsack"), tmp_path / "two")
    assert "importance over change rate" not in other
    barred = make_plan(log, plan_request(BinaryFreshness(PERIODIC), bandwidth=2.0, max_rate=0.0))
    told = barred.findings["never_refreshed"]
    assert (told["not_worth_it"], told["no_importance"], told["max_rate_zero"]) == (0, 0, 12)
    write_plan(barred, tmp_path / "barred")
    text = page(tmp_path / "barred", lambda _: None, tmp_path / "three")
    assert "12: with a maximum rate of 0." in text
    assert "marginal value below the shadow price" not in text
    assert "at --max-rate" not in text


def told_of(facts: Facts) -> dict[str, str]:
    """Return the sentences of a summary's findings by label."""
    return {found.label: found.sentence for found in findings(Context.of(Known(Path("x"), facts)))}


def test_the_summary_in_rows_follows_the_numbers() -> None:
    made = make_plan(fo.CrawlLog(**crawls()), plan_request(draws=4))
    rows = told_of(summary(made))
    assert rows["certificate"].startswith("optimal for the estimated change rates: ")
    assert told_of({**summary(made), "status": "inaccurate"})["certificate"].startswith("inaccurate: ")
    facts = {
        "counts": {"flags": {}, "refreshes": 1, "sources": 1, "never_refreshed": 0},
        "change_rate": {"sum": 1.0},
        **dict.fromkeys(("objective", "sense", "discipline", "method", "status"), "x"),
        "time_unit": "day",
        **dict.fromkeys(("value", "schedule_value", "bandwidth", "horizon"), 1.0),
        "baselines": {},
    }
    spare = told_of({**facts, "price": 0.0, "bandwidth_used": 0.5})["shadow price"]
    full = told_of({**facts, "price": 0.0, "bandwidth_used": 1.0})["shadow price"]
    paid = told_of({**facts, "price": 2.0, "bandwidth_used": 1.0})["shadow price"]
    assert "maximum rates or host limits are reached" in spare
    assert "more bandwidth gains nothing" in full
    assert "gains nothing" not in spare + paid


def test_savings_have_their_errors() -> None:
    def row(policy: str, saving: float | None) -> PolicyRow:
        return PolicyRow(policy, 1.0, 2.0, None, 0.5, 2.0, saving, 0.1)

    rows = [row("plan", 0.0), row("uniform", -0.00001), row("uniform", None)]
    assert [saved(each) for each in rows] == ["", "0.0 ± 10.0", ""]


def test_the_console_says_so_too_where_copies_are_less_fresh_than_at_equal_rates(plan: Path) -> None:
    """The default objective trades copies that are fresh for copies that miss fewer changes."""
    facts = json.loads((plan / "summary.json").read_text(encoding="utf-8"))
    facts["findings"]["fresh"] = {"plan": 0.603, "uniform": 0.606}
    told = told_of(facts)["time fresh"]
    assert told.startswith(
        "copies are up to date 60.3 % of the time, less than at equal rates, as it is staleness that"
    )
    facts["findings"]["fresh"] = {"plan": 0.606, "uniform": 0.603}
    assert "optimised" not in told_of(facts)["time fresh"]
