"""Every percentage that a plan prints names its base, and is that share of it.

The texts are parsed: each sign % must stand in a phrase of the grammar below, which names the base, and the
number before it is computed anew from ``summary.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from click.testing import CliRunner

from freshopt.cli import main
from freshopt.report.held_out import POLICIES
from freshopt.terminal import console
from tests.ground_truth.command_lines import EXAMPLE, LOG, crawl_log
from tests.ground_truth.page_reader import PageReader

Facts = dict[str, Any]
Pairs = list[tuple[str, float]]  # a number as it is shown, and what it must be

NUMBER = r"(-?\d[\d.,]*(?:e[+-]?\d+)?)"
ERROR = r"(?: ± [\d.,]+(?:e[+-]?\d+)?)?"
# A time is shown in the unit that fits it, and then not compared with the number of the log's unit.
UNIT = rf"(?:[\d.,]+ (?:second|minute|hour|day|year)s?|{NUMBER})"
PERCENT = rf"{NUMBER} %"
WORDS = r"[a-z][a-z ]*?"
RULES = r"the rates in force|equal rates|rates ∝ change rates"
POLICY = rf"({RULES}|rates ∝ √\(importance × change rate\)|the log's own crawls at as many crawls)"
KEYS = {
    "equal rates": "uniform",
    "rates in proportion to change rates": "proportional",
    "rates ∝ change rates": "proportional",
    "the rates in force": "rates in force",
    "rates ∝ √(importance × change rate)": "∝ √(w·Δ)",
    "the log's own crawls at as many crawls": "current",
}
SHARE = rf"{NUMBER}(?: ± {NUMBER})? %(?: on a single source)?"


class Printed(NamedTuple):
    """What a plan printed: on the terminal, in the summary, on the page."""

    output: str
    facts: Facts
    page: PageReader


def regret(facts: Facts, found: re.Match[str]) -> Pairs:
    spread = facts["uncertainty"]
    mean, base = spread["mean_regret"], spread["mean_optimal_value"]
    pairs = [(found[1], mean), (found[2], 100.0 * mean / base), (found[3], base)]
    return [(text, exact) for text, exact in pairs if text]


def rows_of(facts: Facts) -> dict[str, Facts]:
    return {row["policy"]: row for row in facts["held_out"]["policies"]}


def of_the_plan(facts: Facts, found: re.Match[str]) -> Pairs:
    """What a policy saves of the plan's cost."""
    words, value, error = found.groups()
    row = rows_of(facts)[KEYS[words[0].lower() + words[1:]]]
    shown = [] if error is None else [(error, 100.0 * row["saving_error"])]
    return [(value, 100.0 * row["saving"]), *shown]


def hidden(facts: Facts, found: re.Match[str]) -> Pairs:
    """What crawls hid of the plan's cost, at either bandwidth."""
    rows = rows_of(facts)
    return [
        (found[1], 100.0 * max(rows[key]["hidden"] for key in ("plan", "plan at current") if key in rows))
    ]


def by_the_plan(facts: Facts, found: re.Match[str]) -> Pairs:
    """What the plan saves of a policy's cost."""
    value, error, words = found.groups()
    row = rows_of(facts)[KEYS[words]]
    ratio = 1.0 - row["saving"]
    shown = [] if error is None else [(error, 100.0 * row["saving_error"] / ratio)]
    return [(value, 100.0 * (1.0 - 1.0 / ratio)), *shown]


def undecided(facts: Facts, found: re.Match[str]) -> Pairs:
    words, value, error = found.groups()
    ratio = 1.0 - rows_of(facts)[KEYS[words]]["saving"]
    shown = [] if error is None else [(error, 100.0 * rows_of(facts)[KEYS[words]]["saving_error"] / ratio)]
    return [(value, 100.0 * (1.0 - 1.0 / ratio)), *shown]


def replayed(facts: Facts, found: re.Match[str]) -> Pairs:
    words, percent = found[1], found[2]
    (policy,) = (key for key, label in POLICIES.items() if label == words)
    return [(percent, 100.0 * rows_of(facts)[policy]["fresh"])]


def undecided_loss(facts: Facts, found: re.Match[str]) -> Pairs:
    (value, share), *error = undecided(facts, found)
    return [(value, -share), *error]


def as_today(facts: Facts, found: re.Match[str]) -> Pairs:
    told, (share, percent, word) = facts["today"], found.groups()
    saved = [] if percent is None else [(percent, 100.0 * abs(told["saving"]))]
    assert word is None or (word == "fewer") == (told["saving"] > 0.0)
    return [(share, 100.0 * told["fresh"]), *saved]


def as_today_alone(facts: Facts, found: re.Match[str]) -> Pairs:
    return [(found[1], 100.0 * facts["today"]["fresh"])]


def beyond_limits(facts: Facts, found: re.Match[str]) -> Pairs:
    """The log's own crawls where they exceed limits, and what is left of them within."""
    told = facts["today"]
    shares = (told["fresh"], told["cut"]["fresh"], told["saving"])
    return [(found[k], 100.0 * share) for k, share in zip((1, 3, 4), shares, strict=True)]


def baseline(facts: Facts, found: re.Match[str]) -> Pairs:
    percent, word, words = found.groups()
    value, other = facts["value"], facts["baselines"][KEYS[words]]
    assert (word == "more") == (value > other)
    return [(percent, 100.0 * abs(value - other) / abs(other))]


def fresh(facts: Facts, found: re.Match[str]) -> Pairs:
    shares = facts["findings"]["fresh"]
    return [
        (found[1], 100.0 * shares["plan"]),
        *([(found[2], 100.0 * shares["uniform"])] if found[2] else []),
    ]


def costs(facts: Facts, found: re.Match[str]) -> Pairs:
    whole, rows = facts["findings"]["cost"], facts["findings"]["most_costly"]
    return [(found[1], 100.0 * sum(row["cost"] for row in rows) / whole), (found[2], whole)]


def more(facts: Facts, found: re.Match[str]) -> Pairs:
    raised = facts["findings"]["more_bandwidth"]["bandwidth"]
    return [(found[1], 100.0 * (raised / facts["bandwidth"] - 1.0)), (found[2], raised)]


def point(facts: Facts, found: re.Match[str]) -> Pairs:
    """Freshness at a bandwidth that was solved."""
    near = min(facts["findings"]["frontier"], key=lambda one: abs(one["bandwidth"] - amount(found[1])))
    return [(found[1], near["bandwidth"]), (found[2], 100.0 * near["fresh"])]


def of_the_crawls(facts: Facts, found: re.Match[str]) -> Pairs:
    """The plan's refreshes, of the crawls that the table has rates of."""
    used, crawled = facts["bandwidth_used"], facts["_tables"]["crawl_rate"].sum()
    return [(found[1], crawled), (found[2], used), (found[3], 100.0 * used / crawled)]


def amount(shown: str) -> float:
    return float(shown.replace(",", ""))


def forecast(facts: Facts, found: re.Match[str]) -> Pairs:
    told = facts["forecast"]
    exact = [told["expected"], 90.0, *told["value_90_percent"]]
    return [(text, value) for text, value in zip(found.groups(), exact, strict=True) if text]


def time_fresh(facts: Facts, found: re.Match[str]) -> Pairs:
    """Freshness of the plan and, where they are named, of the simple rules."""
    rules = ("plan", "uniform", "proportional", "square-root")
    told = zip(found.groups(), rules, strict=True)
    return [(text, 100.0 * facts["findings"]["fresh"][rule]) for text, rule in told if text]


def dearer(facts: Facts, found: re.Match[str]) -> Pairs:
    """What the shadow price says of a hundredth more bandwidth."""
    gain = facts["price"] * 0.01 * facts["bandwidth"]
    return [(found[1], 1.0), (found[2], 100.0 * gain / abs(facts["value"]))]


def of_a_source(facts: Facts, found: re.Match[str]) -> Pairs:
    return [(found[1], 100.0 * facts["value"] / facts["findings"]["importance"])]


# Phrases that hold percentages, with what the numbers in them must be.
GRAMMAR: list[tuple[str, Callable[[Facts, re.Match[str]], Pairs]]] = [
    (
        rf"{PERCENT} of the time, by importance"
        rf"(?:, less than at equal rates, as it is {WORDS} that is optimised)?"
        rf"(?:; uniform rates {PERCENT}, proportional {PERCENT}, square-root {PERCENT})?",
        time_fresh,
    ),
    (rf"{PERCENT} more bandwidth (?:raises|lowers) {WORDS} by at most {PERCENT}", dearer),
    (rf"right, {PERCENT} a source", of_a_source),
    (rf"{UNIT} under the posterior; {PERCENT} interval {UNIT}–{UNIT}", forecast),
    (rf"{WORDS} of this plan is {NUMBER}; its {PERCENT} interval is from {NUMBER} to {NUMBER}", forecast),
    (rf"{UNIT} under the posterior; {PERCENT} at (?:least|most) {UNIT}", lambda _, found: [(found[2], 90.0)]),
    (rf"It is {PERCENT} of the plan's cost", hidden),
    (rf"saves {PERCENT} of the cost at", lambda facts, found: [(found[1], 100.0 * facts["phases"]["saved"])]),
    (
        rf"{WORDS} of this plan is {NUMBER}; its {PERCENT} interval is (?:{NUMBER} or (?:more|less)|open)",
        lambda _, found: [(found[2], 90.0)],
    ),
    (rf"{PERCENT} posterior interval", lambda _, found: [(found[1], 90.0)]),
    (rf"(?:error: |is ){UNIT}, {PERCENT} of the mean optimal value {UNIT}", regret),
    (rf"(?i){POLICY} save {SHARE} of the plan's cost", of_the_plan),
    (rf"plan saves {SHARE} of the cost of {POLICY}", by_the_plan),
    (rf"the plan and {POLICY} this log does not decide \(the plan saves {SHARE}\)", undecided),
    (rf"the plan and {POLICY} this log does not decide \(the plan costs {SHARE} more\)", undecided_loss),
    (rf"(?m)^(\S.*?)  +\d[^%]* {PERCENT}$", replayed),
    (rf"{PERCENT} (more|less)(?: {WORDS})? than (equal rates|rates in proportion to change rates)", baseline),
    (
        rf"expected to keep copies up to date {PERCENT} of the time(?:, against {PERCENT} at equal rates)?",
        fresh,
    ),
    (rf"{PERCENT} ?of the time copies are expected up to date(?:; {PERCENT} at equal rates)?", fresh),
    (rf"own crawls keep copies fresh {PERCENT} of the time", as_today_alone),
    (rf"{PERCENT} fresh is out of reach", as_today_alone),
    (
        rf"per day and {PERCENT} of the time fresh, exceed maximum rates or host limits; "
        rf"cut to them they are {UNIT} per day and {PERCENT} fresh, for which {PERCENT} fewer",
        beyond_limits,
    ),
    (rf"own crawls \({PERCENT} of the time\) needs (?:{PERCENT} (fewer|more)|as many) crawls", as_today),
    (rf"makes? up {PERCENT} of the {WORDS}, {NUMBER}\.", costs),
    (rf"{PERCENT} more bandwidth: {NUMBER} per", more),
    (rf"{NUMBER} per \w+, (?:this plan|{WORDS}|[\d.]+ times), up to date {PERCENT}", point),
    (rf"bandwidth{NUMBER} per [^%]*?time up to date{PERCENT}", point),
    (rf"crawls were {NUMBER} per [^%]*? refreshes {NUMBER} times per \w+, {PERCENT} of that", of_the_crawls),
    (rf"about as often \(within {PERCENT}\)", lambda _, found: [(found[1], 5.0)]),
    (rf"{PERCENT} intervals?", lambda facts, found: [(found[1], 100.0 * facts["settings"]["confidence"])]),
]
Column = Callable[[Facts], Iterator[float | None]]
# Columns of percentages, by the captions and heads that name their bases.
COLUMNS: dict[tuple[str, str], Column] = {
    ("In the long run", "share of time up to date"): lambda facts: (
        facts["findings"]["fresh"][rule] for rule in ("plan", "uniform", "proportional", "square-root")
    ),
    ("Rates planned from the first part", "share of time up to date"): lambda facts: (
        row["fresh"] for row in facts["held_out"]["policies"]
    ),
    ("Nearest to being refreshed", "marginal value, of the price"): lambda facts: (
        row["worth"] / row["price"] for row in facts["findings"]["never_refreshed"]["sources"]
    ),
    ("More and less bandwidth", "difference from this plan's"): lambda facts: (
        (point["value"] - facts["value"]) / abs(facts["value"]) or None
        for point in facts["findings"]["frontier"]
        if point["value"] is not None
        and round(point["bandwidth"] / facts["bandwidth"], 9) in (0.25, 0.5, 1, 1.5, 2, 3)
    ),
    ("More and less bandwidth", "time up to date"): lambda facts: (
        point["fresh"]
        for point in facts["findings"]["frontier"]
        if point["value"] is not None
        and round(point["bandwidth"] / facts["bandwidth"], 9) in (0.25, 0.5, 1, 1.5, 2, 3)
    ),
    ("Sources", "time up to date"): lambda facts: facts["_tables"]["fresh"],
    ("The 25 that", "time up to date"): lambda facts: facts["_tables"]["fresh"][:25],
    ("Load by host", "of all refreshes"): lambda facts: facts["_hosts"]["len"] / facts["counts"]["refreshes"],
    ("Most costly sources", "share of the"): lambda facts: (
        row["cost"] / facts["findings"]["cost"] for row in facts["findings"]["most_costly"]
    ),
    ("Binding limits", "used, of the limit"): lambda facts: (
        row["used"] / row["limit"] for row in facts["findings"]["hosts"]["hosts"]
    ),
}


def agrees(shown: str, exact: float) -> bool:
    """Return whether a number is shown as rounded to its last digit, or to four digits."""
    digits = shown.replace(",", "")
    places = len(digits.partition("e")[0].partition(".")[2])
    half = 0.5 * 10.0 ** -(places - int(digits.partition("e")[2] or 0))
    return abs(float(digits) - exact) <= half * (1.0 + 1e-6) + 1e-12 * abs(exact)


def unexplained(text: str, facts: Facts) -> list[str]:
    """Return the lines with a percentage whose base is unnamed or that is no such share of it."""
    plain = text.replace("\xa0", " ")
    covered: set[int] = set()
    wrong = []
    for pattern, check in GRAMMAR:
        for found in re.finditer(pattern, plain):
            signs = {k for k in range(*found.span()) if plain[k] == "%"}
            if signs & covered:
                continue
            covered |= signs
            wrong += [
                f"{found[0]}: {shown} for {exact}"
                for shown, exact in check(facts, found)
                if not agrees(shown, exact)
            ]
    bare = [k for k, sign in enumerate(plain) if sign == "%" and k not in covered]
    return wrong + [f"...{plain[max(0, k - 80) : k + 30]}..." for k in bare]


def unexplained_cells(page: PageReader, facts: Facts) -> list[str]:
    """Return the cells of tables with such a percentage."""
    wrong = []
    for caption, (head, *rows) in page.tables:
        for k, title in enumerate(head):
            cells = [row[k].replace("\xa0", " ") for row in rows]
            if not any("%" in cell for cell in cells):
                continue
            known = [
                column
                for (of, name), column in COLUMNS.items()
                if caption.startswith(of) and title.startswith(name)
            ]
            wanted = list(known[0](facts)) if known else [None] * len(cells)
            for cell, exact in zip(cells, wanted, strict=True):
                number = cell.removesuffix(" %").replace("−", "-").removeprefix("+")
                if exact is None and not cell:
                    continue
                if exact is None or not cell.endswith(" %") or not agrees(number, 100.0 * exact):
                    wrong.append(f"{caption}, {title}: {cell} for {exact}")
    return wrong


JOB = ("--bandwidth", "6/day", "--horizon", "7d")
TINY = ("--bandwidth", "1/day", "--horizon", "7d")
PLANS: dict[str, tuple[str, ...]] = {
    "bundled": EXAMPLE,
    "generated": ("log.parquet", *JOB, "--replay"),
    "freshness": (
        "log.parquet",
        *JOB,
        "--objective",
        "binary",
        "--bandwidth",
        "0.7/day",
        "--confidence",
        "0.8",
    ),
    "hosts": ("log.parquet", *JOB, "--hosts", "hosts.csv", "--host-limits", "limits.csv", "--draws", "0"),
    "tiny": ("tiny.csv", *TINY, "--replay"),
    "alone": ("alone.csv", *TINY, "--replay"),
}
MORE = [
    (name, objective)
    for name in ("bundled", "generated", "tiny", "alone")
    for objective in ("binary", "delay", "age")
]


def printed(folder: Path, *arguments: str) -> Printed:
    """Run ``freshopt plan`` in a folder of logs."""
    crawl_log().write_parquet(folder / "log.parquet")
    (folder / "tiny.csv").write_text(LOG)
    (folder / "alone.csv").write_text("source,time,changed\na,0,0\na,1,0\na,2,0\na,3,0\n")
    names = [f"page/{k}" for k in range(8)]
    pl.DataFrame({"source": names, "host": ["x", "y"] * 4}).write_csv(folder / "hosts.csv")
    (folder / "limits.csv").write_text("host,limit\nx,0.5\ny,100\n")
    own = [str(folder / word) if (folder / word).is_file() else word for word in arguments]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "WIDTH", 1000)  # a sentence is a line, and so is a row
        done = CliRunner().invoke(main, ["plan", *own, "--out", str(folder / "plan")])
    assert done.exit_code == 0, done.output
    facts = json.loads((folder / "plan" / "summary.json").read_text(encoding="utf-8"))
    known, costs, times = (
        pl.read_parquet(folder / "plan" / f"{name}.parquet")
        for name in ("change_rates", "per_source", "schedule")
    )
    facts["_tables"] = known.join(costs, on="source").sort("cost", descending=True, maintain_order=True)
    if "host" in known.columns:
        counted = times.join(known, on="source").group_by("host").len()
        facts["_hosts"] = counted.sort("len", "host", descending=[True, False])
    return Printed(
        done.stdout,
        facts,
        PageReader((folder / "plan" / "report.html").read_text(encoding="utf-8")),
    )


def check(found: Printed) -> None:
    """Check all percentages on the terminal and on the page."""
    assert unexplained(found.output, found.facts) == []
    assert unexplained(found.page.prose, found.facts) == []
    assert unexplained("\n".join([*found.page.labels, *found.page.tooltips]), found.facts) == []
    assert unexplained_cells(found.page, found.facts) == []
    ticks = [text for text in found.page.drawn if "%" in text]
    assert set(ticks) <= {f"{k} %" for k in range(0, 101, 10)}
    assert ("share of sources, slowest first" in found.page.drawn) or not ticks
    assert found.output.count("%") >= (2 if found.facts["uncertainty"] else 0)
    assert found.page.prose.count("%") >= 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PLANS)
def test_every_percentage_is_a_share_of_what_it_names(name: str, tmp_path: Path) -> None:
    check(printed(tmp_path, *PLANS[name]))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "objective"), MORE)
def test_so_it_is_under_every_objective(name: str, objective: str, tmp_path: Path) -> None:
    check(printed(tmp_path, *PLANS[name], "--replay", "--objective", objective))


@pytest.mark.parametrize(
    "text",
    [
        "expected regret of estimation error: 1.972 (11 %)",
        "expected regret of estimation error: 1.972, 11 % of the mean optimal value 19.54",
        "expected regret of estimation error: 1.972, 10.1 % of the mean optimal value 18.54",
        "this plan has 10 % less expected staleness than equal rates",
        "stale 0.5 % of the time; this plan 0.5 %: 16 % less",
    ],
)
def test_wrong_and_nameless_percentages_are_found(text: str) -> None:
    facts = {
        "uncertainty": {"mean_regret": 1.972, "mean_optimal_value": 19.54},
        "baselines": {"uniform": 25.0},
        "value": 20.0,
    }
    assert len(unexplained(text, facts)) > 0
    assert unexplained("error: 1.972, 10.1 % of the mean optimal value 19.54", facts) == []
    assert unexplained("has 20 % less expected staleness than equal rates", facts) == []
