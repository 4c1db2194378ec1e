"""Every percentage that a plan prints names its base, and is that share of it.

The texts are parsed: each sign % must stand in a phrase of the grammar below, which names the base, and the
number before it is computed anew from ``summary.json``.
"""

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
NUM = NUMBER[1:-1]
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
AS_CRAWLED = rf"(?: if at equal intervals, {PERCENT} as they came)?"
SHARE = rf"{NUMBER}(?: ± {NUMBER})? %(?: on a single source)?"


class Printed(NamedTuple):
    """What a plan printed: on the terminal, in the summary, on the page."""

    output: str
    facts: Facts
    page: PageReader


def regret(facts: Facts, found: re.Match[str]) -> Pairs:
    return [(found[1], 100.0 * facts["uncertainty"]["relative_regret"])]


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
    told, (share, came, percent, word) = facts["today"], found.groups()
    assert word is None or (word == "fewer") == (told["saving"] > 0.0)
    shares = ((share, told["fresh"]), (came, told["as_crawled"]), (percent, abs(told["saving"])))
    return [(shown, 100.0 * exact) for shown, exact in shares if shown is not None]


def as_today_alone(facts: Facts, found: re.Match[str]) -> Pairs:
    return [(found[1], 100.0 * facts["today"]["fresh"])]


def as_crawled(facts: Facts, found: re.Match[str]) -> Pairs:
    return [(found[1], 100.0 * facts["today"]["as_crawled"])]


def saved(facts: Facts, found: re.Match[str]) -> Pairs:
    """How many fewer fetches are as fresh as the log's own crawls, or what limits leave of them."""
    now = facts["today"].get("cut") or facts["today"]
    saving = 100.0 * (1.0 - facts["today"]["needed"] / now["bandwidth"])
    pairs = [(found["fresh"], 100.0 * now["fresh"]), (found["fewer"], saving), (found["more"], -saving)]
    return [(shown, exact) for shown, exact in pairs if shown]


def saving(facts: Facts, found: re.Match[str]) -> Pairs:
    now = facts["today"].get("cut") or facts["today"]
    return [(found[1], 100.0 * (1.0 - facts["today"]["needed"] / now["bandwidth"]))]


def reached(facts: Facts, found: re.Match[str]) -> Pairs:
    """The time up to date, beside that of the log's own crawls or of equal rates."""
    shares, today = facts["findings"]["fresh"], facts["today"]
    pairs = [(found["here"], shares["plan"]), (found["alike"], shares["uniform"])]
    pairs += [(found["now"], today["fresh"] if today else 0.0)]
    return [(shown, 100.0 * exact) for shown, exact in pairs if shown]


def curve(facts: Facts, found: re.Match[str]) -> Pairs:
    """Freshness of the best and of equal rates at a bandwidth of the picture at the top."""
    points = facts["findings"]["freshness"]
    shown = [[100.0 * point["best"], 100.0 * point["equal"]] for point in points]
    told = [amount(found[1]), amount(found[2])]
    best, equal = min(shown, key=lambda each: abs(each[0] - told[0]) + abs(each[1] - told[1]))
    return [(found[1], best), (found[2], equal)]


MARKS = ("as fresh as today", "today", "this plan", "equally often")


def marked(facts: Facts, found: re.Match[str]) -> Pairs:
    """The marks of that picture."""
    today, shares = facts["today"], facts["findings"]["fresh"]
    now = (today.get("cut") or today)["fresh"] if today else 0.0
    of = {"this plan": shares["plan"], "today": now, "as fresh as today": now}
    return [(found[2], 100.0 * {**of, "equally often": shares["uniform"]}[found[1]])]


def off(facts: Facts, found: re.Match[str]) -> Pairs:
    """How far costs in back-tests were from what was predicted."""
    ratios = facts["forecast"]["realised_over_predicted"]
    ends = [(found[1], min(ratios)), (found[2] or found[1], max(ratios))]
    return [(shown.removeprefix("+"), 100.0 * (ratio - 1.0)) for shown, ratio in ends]


def alike(facts: Facts, found: re.Match[str]) -> Pairs:
    value, other = facts["value"], facts["baselines"]["uniform"]
    return [(found[1], 100.0 * abs(value - other) / abs(other))]


def beyond_limits(facts: Facts, found: re.Match[str]) -> Pairs:
    """The log's own crawls where they exceed limits, and what is left of them within."""
    told = facts["today"]
    shares = {1: told["fresh"], 2: told["as_crawled"], 4: told["cut"]["fresh"], 5: told["saving"]}
    return [(found[k], 100.0 * share) for k, share in shares.items() if found[k] is not None]


def more(facts: Facts, found: re.Match[str]) -> Pairs:
    raised = facts["findings"]["more_bandwidth"]["bandwidth"]
    return [(found[1], 100.0 * (raised / facts["bandwidth"] - 1.0)), (found[2], raised)]


def point(facts: Facts, found: re.Match[str]) -> Pairs:
    """Freshness at a bandwidth that was solved."""
    near = min(facts["findings"]["frontier"], key=lambda one: abs(one["bandwidth"] - amount(found[1])))
    return [(found[1], near["bandwidth"]), (found[2], 100.0 * near["fresh"])]


def amount(shown: str) -> float:
    return float(shown.replace(",", ""))


def forecast(facts: Facts, found: re.Match[str]) -> Pairs:
    told = facts["forecast"]
    exact = [told["expected"], 90.0, *told["value_90_percent"]]
    return [(text, value) for text, value in zip(found.groups(), exact, strict=True) if text]


def time_fresh(facts: Facts, found: re.Match[str]) -> Pairs:
    """Freshness of the plan and, where they are named, of the plan without its cycle and of simple rules."""
    shares, cycle = facts["findings"]["fresh"], facts["phases"]
    known = [shares["plan"], cycle and cycle["fresh_without"]]
    known += [shares.get(rule) for rule in ("uniform", "proportional", "square-root")]
    return [(text, 100.0 * share) for text, share in zip(found.groups(), known, strict=True) if text]


def dearer(facts: Facts, found: re.Match[str]) -> Pairs:
    """What the shadow price says of a hundredth more bandwidth."""
    gain = facts["price"] * 0.01 * facts["bandwidth"]
    return [(found[1], 1.0), (found[2], 100.0 * gain / abs(facts["value"]))]


def of_a_source(facts: Facts, found: re.Match[str]) -> Pairs:
    return [(found[1], 100.0 * facts["value"] / facts["findings"]["importance"])]


# Phrases that hold percentages, with what the numbers in them must be.
GRAMMAR: list[tuple[str, Callable[[Facts, re.Match[str]], Pairs]]] = [
    (
        rf"(?:At your freshness|Your crawls, cut to the limits) \((?P<fresh>{NUM}) %\)"
        rf"\s*[\d.,]+ \w+/\w+ instead of [\d.,]+\s*"
        rf"(?:(?P<fewer>{NUM}) % fewer|(?P<more>{NUM}) % more|as many)",
        saved,
    ),
    (rf"The same freshness(?: within the limits)? with {PERCENT} fewer", saving),
    (rf"{PERCENT} fewer than today", saving),
    (r"(?m)^(?:0|[1-9]0|100) %$", lambda *_: []),
    (
        rf"(?P<here>{NUM}) % of the time up to date"
        rf"(?:\s*\((?:now: (?P<now>{NUM})|all alike: (?P<alike>{NUM})) %\))?",
        reached,
    ),
    (rf"{PERCENT} at best, {PERCENT} if all alike", curve),
    (
        rf"(as fresh as today|today|this plan|equally often): {PERCENT}(?: of the time)? at [\d.,]+ \w+/\w+",
        marked,
    ),
    (r"on your own past were ([+-]?\d+)(?: to ([+-]?\d+))? % off the prediction", off),
    (rf"{PERCENT} (?:less|more) {WORDS} than all alike", alike),
    (
        rf"opies are up to date {PERCENT} of the time"
        rf"(?:, less than at equal rates, as it is {WORDS} that is optimised)?"
        rf"(?: \((?:{PERCENT} without the weekly timing, )?{PERCENT} if all were fetched equally often, "
        rf"{PERCENT} in proportion to change rates, {PERCENT} ∝)?",
        time_fresh,
    ),
    (rf"{PERCENT} more bandwidth (?:raises|lowers) {WORDS} by at most {PERCENT}", dearer),
    (rf"run, {PERCENT} a source", of_a_source),
    (rf"{UNIT} is expected; {PERCENT} interval {UNIT} to {UNIT}", forecast),
    (
        rf"{UNIT} is expected; {PERCENT} interval (?:at (?:least|most) {UNIT}|of any)",
        lambda _, found: [(found[2], 90.0)],
    ),
    (rf"ore data would help by about {PERCENT} on average", regret),
    (rf"It is {PERCENT} of the plan's cost", hidden),
    (rf"saves {PERCENT} of the cost at", lambda facts, found: [(found[1], 100.0 * facts["phases"]["saved"])]),
    (rf"(?i){POLICY} save {SHARE} of the plan's cost", of_the_plan),
    (rf"plan saves {SHARE} of the cost of {POLICY}", by_the_plan),
    (rf"the plan and {POLICY} this log does not decide \(the plan saves {SHARE}\)", undecided),
    (rf"the plan and {POLICY} this log does not decide \(the plan costs {SHARE} more\)", undecided_loss),
    (rf"(?m)^(\S.*?)  +\d[^%]* {PERCENT}$", replayed),
    (rf"own crawls keep copies fresh {PERCENT} of the time", as_today_alone),
    (rf"{PERCENT} fresh is out of reach", as_today_alone),
    (
        rf"per day and fresh {PERCENT} of the time{AS_CRAWLED}, exceed maximum rates or host limits; "
        rf"cut to them they are {UNIT} per day and {PERCENT} fresh, for which {PERCENT} fewer",
        beyond_limits,
    ),
    (
        rf"own crawls \({PERCENT} of the time{AS_CRAWLED}\) needs (?:{PERCENT} (fewer|more)|as many) crawls",
        as_today,
    ),
    (rf"if at equal intervals, {PERCENT} as they came", as_crawled),
    (rf"{PERCENT} more bandwidth: {NUMBER} per", more),
    (rf"{NUMBER} per \w+, (?:this plan|{WORDS}|[\d.]+ times), up to date {PERCENT}", point),
    (rf"bandwidth{NUMBER} per [^%]*?time up to date{PERCENT}", point),
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
    ("Sources", "refreshes, against today"): lambda facts: facts["_tables"]["change"],
    ("The 25 that", "refreshes, against today"): lambda facts: facts["_tables"]["change"][:25],
    ("The 25 that", "time up to date"): lambda facts: facts["_tables"]["fresh"][:25],
    ("Load by host", "of all refreshes"): lambda facts: facts["_hosts"]["len"] / facts["counts"]["refreshes"],
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
        done = CliRunner().invoke(main, ["plan", "--details", *own, "--out", str(folder / "plan")])
    assert done.exit_code == 0, done.output
    facts = json.loads((folder / "plan" / "summary.json").read_text(encoding="utf-8"))
    known, costs, times, rates = (
        pl.read_parquet(folder / "plan" / f"{name}.parquet")
        for name in ("change_rates", "per_source", "schedule", "rates")
    )
    change = pl.col("rate") / pl.col("crawl_rate") - 1.0
    costs = costs.join(rates, on="source").with_columns(change=change)
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
    drawn = [text for text in found.page.drawn if not text.startswith("% of the time up to date")]
    assert unexplained("\n".join(drawn).replace(" fewer", " fewer than today"), found.facts) == []
    ticks = [text for text in drawn if "%" in text and "fewer" not in text]
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
        "more data would help by about 11 %",
        "more data would help by about 11 % on average",
        "25 % less staleness than all alike",
        "20 % less staleness than rates as they are",
        "stale 0.5 % of the time; this plan 0.5 %: 16 % less",
    ],
)
def test_wrong_and_nameless_percentages_are_found(text: str) -> None:
    facts = {
        "uncertainty": {"relative_regret": 0.101},
        "baselines": {"uniform": 25.0},
        "value": 20.0,
    }
    assert len(unexplained(text, facts)) > 0
    assert unexplained("more data would help by about 10.1 % on average", facts) == []
    assert unexplained("20 % less staleness than all alike", facts) == []
