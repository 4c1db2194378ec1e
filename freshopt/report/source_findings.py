"""Findings about the sources, and a table of all of them.

The page carries the rows of the table, to search, sort and filter, as JSON, column by column: all of them up
to `EMBEDDED`, of more those that cost most, so that a page has a few megabytes at most. `sources.js` shows
them a leaf at a time; the first leaf is in the page as it stands, for readers without script. All sources are
in the tables beside the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from freshopt.formatting import count, finite, number, percent
from freshopt.heavy import polars
from freshopt.report import source_charts
from freshopt.report.context import Context, Facts
from freshopt.report.finding import Column, Finding, Table, listed
from freshopt.report.markup import amount, linked, plain_text
from freshopt.report.plan_tables import PlanFolder
from freshopt.report.source_sample import MOVED
from freshopt.report.value_words import spread_text
from freshopt.units import SECONDS, duration

# Sources whose rows a page carries, some 60 bytes and their names each: with them it stays below 1 MB.
EMBEDDED = 9_000
# Rows of a leaf, and characters of a name: of a longer one the middle is left out.
LEAF, LONGEST = 25, 120
# Rows of a leaf on a phone.
FEW = 7
# Below it there is nothing but 0.
SMALLEST = 5e-324
# Hosts that a list to choose from can hold.
HOSTS = 1000


class Field(NamedTuple):
    """A column of the table."""

    key: str
    head: str
    kind: str


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the sources that cost most."""

    fields: tuple[Field, ...]
    columns: tuple[list[Any], ...]
    n: int
    by: str

    def __len__(self) -> int:
        """Return how many sources are shown."""
        return len(self.columns[0])


def source_rows(told: Context, folder: PlanFolder) -> Rows:
    """Read the sources that cost most, in order."""
    frame, n = folder.most(("cost", "rate"), EMBEDDED)
    by = "cost most under this plan" if "cost" in frame.columns else f"are {told.words.done} most often"
    unit = told.unit
    noun = "stale part" if told.maximised else told.measure
    wanted = [
        Field("source", "source", "name"),
        Field("host", "host", "label"),
        Field("change_rate", f"changes per {unit}", "number"),
        Field("request_rate", f"requests per {unit}", "number"),
        Field("importance", "importance", "number"),
        Field("today", "crawled every", "every"),
        Field("lifetime", "expires after", "every"),
        Field("interval", f"{told.words.rate} every", "every"),
        Field("next", "next refresh", "when"),
        Field("times", f"{told.words.rates}, against today", "change"),
        Field("fresh", f"{told.shares} up to date", "share"),
        Field("cost", f"cost: {noun}", "number"),
        Field("flag", "estimate", "label"),
    ]
    known = {key: list(values) for key, values in _columns(frame).items()}
    if folder.planned == "rates":
        names = [str(value) for value in frame["source"].to_list()]
        first = folder.next_refreshes(names)
        known["next"] = [first.get(each) for each in names]
    fields = tuple(field for field in wanted if field.key in known and _tells(field, known[field.key]))
    return Rows(fields, tuple(known[field.key] for field in fields), n, by)


def sources(told: Context, folder: PlanFolder | None = None) -> Finding | None:
    """Return the table of all sources, its first leaf and data."""
    if folder is None:
        return None
    rows = source_rows(told, folder)
    shown, begin = len(rows), told.date("end")
    first = [
        [
            _cell(field, column[k], told.unit, begin)
            for field, column in zip(rows.fields, rows.columns, strict=True)
        ]
        for k in range(min(LEAF, shown))
    ]
    data = {
        "unit": told.unit,
        "seconds": SECONDS[told.unit],
        "begin": None if begin is None else begin.timestamp(),
        "leaf": LEAF,
        "few": FEW,
        "fields": [[field.head, field.kind] for field in rows.fields],
        "columns": [_compact(field, column) for field, column in zip(rows.fields, rows.columns, strict=True)],
        "filters": _filters(rows),
    }
    facts = {
        "shown": shown,
        "of": rows.n,
        "left_out": rows.n - shown,
        "by": rows.by,
        "files": " and ".join(folder.listed),
        "data": data,
    }
    kinds = {"name": "", "label": ""}
    heads = [Column(field.head, kinds.get(field.kind, "number")) for field in rows.fields]
    caption = f"The {len(first):,} that {rows.by}" if len(first) < shown else "Sources"
    title = "All sources" if shown == rows.n else "Sources"
    return Finding("sources", "sources").section(title, facts, Table(caption, heads, first))


def _filters(rows: Rows) -> list[list[Any]]:
    """Return the filters: label, field, kind of test, its value."""
    found: list[list[Any]] = [["all", 0, "all", None]]
    for k, (field, column) in enumerate(zip(rows.fields, rows.columns, strict=True)):
        if field.key == "times":
            found.append(["more often than today", k, "above", MOVED])
            found.append(["less often than today", k, "below", 1.0 / MOVED])
        if field.key == "interval" and all(each.key != "lifetime" for each in rows.fields):
            found.append(["never refreshed", k, "none", None])
        if field.key == "lifetime":
            found.append(["never fetched again", k, "none", None])
            found.append(["fetched at each request", k, "below", SMALLEST])
        if field.key in ("flag", "host"):
            words = sorted({value for value in column if value})
            what = "estimate" if field.key == "flag" else "host"
            found += [[f"{what}: {word}", k, "is", word] for word in words[:HOSTS]]
    return [each for each in found if _finds(rows.columns[each[1]], each[2], each[3])]


def _finds(column: list[Any], kind: str, bound: Any) -> bool:  # noqa: ANN401 - of the filter's kind
    """Return whether a filter finds anything, where it may not."""
    if kind == "none":
        return None in column
    known = (value for value in column if value is not None)
    if kind == "above":
        return any(value > bound for value in known)
    return kind != "below" or any(value < bound for value in known)


def _columns(frame: polars.DataFrame) -> dict[str, list[Any]]:
    """Return the columns of the rows, with intervals made of rates."""
    found: dict[str, list[Any]] = {
        key: [finite(value) for value in frame[key].to_list()]
        for key in ("change_rate", "request_rate", "importance", "lifetime", "fresh", "cost")
        if key in frame.columns
    }
    if found.get("importance") == found.get("request_rate"):
        # Of copies that are refreshed on request the one is the other, unless it is given.
        found.pop("importance", None)
    for key in ("source", "host", "flag"):
        if key in frame.columns:
            found[key] = [_short(str(value)) for value in frame[key].to_list()]
    found["interval"] = [_inverse(rate) for rate in frame["rate"].to_list()]
    if "crawl_rate" in frame.columns:
        found["today"] = [_inverse(rate) for rate in frame["crawl_rate"].to_list()]
        pairs = zip(frame["rate"].to_list(), frame["crawl_rate"].to_list(), strict=True)
        found["times"] = [
            None if not was or not math.isfinite(was) else finite(rate / was) for rate, was in pairs
        ]
    if "flag" in found:
        found["flag"] = ["" if word == "ok" else word for word in found["flag"]]
    return found


def _tells(field: Field, column: list[Any]) -> bool:
    """Return whether a column tells sources apart, or must be there."""
    if field.key in ("host", "flag"):
        return any(column)
    if field.key == "importance":
        return any(value != 1.0 for value in column)
    return field.key in ("source", "change_rate", "interval") or any(value is not None for value in column)


def _cell(
    field: Field,
    value: Any,  # noqa: ANN401 - a number, a text or None
    unit: str,
    begin: datetime | None,
) -> str | None:
    """Return a cell; ``sources.js`` writes the same."""
    if field.kind == "name":
        return linked(value)
    if field.kind == "label":
        return str(value)
    if field.kind == "every":
        return "never" if value is None else duration(_rounded(value), unit)
    if value is None:
        return None
    value = _rounded(value)
    if field.kind == "share":
        return percent(value, even=True)
    if field.kind == "change":
        return f"{'+' if value >= 1.0 else '−'}{percent(abs(value - 1.0), even=True)}"
    if field.kind == "when":
        return _moment(value, unit, begin)
    return number(value)


def _moment(time: float, unit: str, begin: datetime | None) -> str:
    """Return a time of the schedule, as a date if known."""
    if begin is None:
        return f"in {duration(time, unit)}" if time > 0.0 else "at once"
    try:
        at = begin.astimezone(UTC) + timedelta(seconds=time * SECONDS[unit])
    except OverflowError:
        return ""
    return f"{at:%Y-%m-%d %H:%M}"


def _compact(field: Field, column: list[Any]) -> Any:  # noqa: ANN401 - whatever JSON has
    """Return a column for JSON, its labels as places in a list."""
    if field.kind == "name":
        return [plain_text(value) for value in column]
    if field.kind == "label":
        words = sorted(set(column))
        place = {word: k for k, word in enumerate(words)}
        return {"words": [plain_text(word) for word in words], "at": [place[word] for word in column]}
    return [None if value is None else _rounded(value) for value in column]


def _rounded(value: float) -> float:
    """Return a number of six digits, two more than are shown."""
    tidy = float(f"{value:.6g}")
    return int(tidy) if tidy.is_integer() and abs(tidy) < 1e9 else tidy


def _inverse(rate: float | None) -> float | None:
    return None if rate is None or not rate > 0.0 else finite(1.0 / rate)


def _short(text: str) -> str:
    """Return a text of at most `LONGEST` characters, else without its middle."""
    if len(text) <= LONGEST:
        return text
    half = (LONGEST - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


# Relative difference from the price up to which marginal values count as equal to it.
EQUAL = 1e-6


def rates(told: Context, folder: PlanFolder | None = None) -> Finding:
    """Return how far apart refreshes are, and which are held back."""
    never = f"{count(told.counts.whole('never_refreshed'), 'source')} never refreshed"
    finding = Finding("rates", "intervals", f"{_spread(told)}{never}")
    if folder is None:
        return finding
    inside = told.findings.within("interior")
    deviation = inside.maybe("deviation")
    # The optimality condition between the bounds, where it holds.
    equal = inside and inside.whole("sources") >= 2 and deviation is not None and deviation <= EQUAL
    facts = {
        "bounds": [
            (told.counts.whole(key), option)
            for key, option in (("at_min_rate", "--min-rate"), ("at_max_rate", "--max-rate"))
            if told.counts.values.get(key)
        ],
        "interior": inside.whole("sources") if equal else None,
        "hosts": bool(told.findings.within("hosts")),
        "phases": told.facts.within("phases"),
        "refreshed": told.sources - told.counts.whole("never_refreshed"),
    }
    rows, table = told.findings.rows("held_back"), None
    if rows:
        heads = ["marginal value", "price"]
        cells = [[_maybe(row, "worth"), amount(row.number("price"))] for row in rows]
        table = _table(told, "Sources at --max-rate with the largest marginal value", rows, heads, cells)
    charts = tuple(source_charts.rates(folder.seen, told.unit, told.words))
    return finding.section("Intervals", facts, table, charts)


def _spread(told: Context) -> str:
    """Return how far apart refreshes are, where the summary tells."""
    found = told.facts.within("intervals")
    if not found:
        return ""
    first, last = found.within("shortest"), found.within("longest")
    if not (first and last):
        return "none; "
    ends = first.positive("interval"), last.positive("interval")
    return f"{spread_text(ends[0], found.positive('median'), ends[1], told.unit)}; "


def never(told: Context, folder: PlanFolder | None = None) -> Finding | None:
    """Return the sources never refreshed, and why, or None where all are."""
    if folder is None:
        return None
    found, many = told.findings.within("never_refreshed"), told.counts.whole("never_refreshed")
    if many == 0:
        return None
    head = f"{count(many, 'source')} of {told.sources:,} get no refresh at all."
    finding, title = Finding("never", "never refreshed", head), "Never refreshed"
    if not found:
        return finding.section(title, dict.fromkeys(("dear", "idle", "barred")))
    facts: dict[str, Any] = {
        "dear": found.whole("not_worth_it"),
        "idle": found.whole("no_importance"),
        "barred": found.whole("max_rate_zero") if "max_rate_zero" in found.values else 0,
        "price": told.facts.number("price"),
        "hosts": told.findings.within("hosts"),
        "objective": told.facts.text("objective"),
    }
    rows, table = found.rows("sources"), None
    if rows:
        heads = ["marginal value at 0", "price", "marginal value, of the price"]
        cells = [[_maybe(row, "worth"), amount(row.number("price")), _of_price(row)] for row in rows]
        table = _table(
            told, listed("Nearest to being refreshed", len(rows), facts["dear"]), rows, heads, cells
        )
    return finding.section(title, facts, table)


def gains(told: Context, rows: list[Facts]) -> Table:
    """Return the sources that gain most from more bandwidth."""
    heads = [f"{told.words.done} every", "then every", "gain"]
    cells = [[_every(told, row), _every(told, row, "rate_then"), amount(row.number("gain"))] for row in rows]
    return _table(told, listed("Sources that would gain most", len(rows), told.sources), rows, heads, cells)


def _table(
    told: Context, caption: str, rows: list[Facts], heads: list[str], cells: Sequence[Sequence[str | None]]
) -> Table:
    """Return a table of sources with further cells."""
    # Importances need a column where they differ from 1.
    whole = told.findings.maybe("importance")
    weighed = whole != float(told.sources) or any(row.number("importance") != 1.0 for row in rows)
    keys = ["change_rate", *(["importance"] if weighed else [])]
    known = [f"changes per {told.unit}", *(["importance"] if weighed else [])]
    own = [
        [linked(row.name("source")), *(amount(row.number(key)) for key in keys), *more]
        for row, more in zip(rows, cells, strict=True)
    ]
    return Table.of(caption, "source", [*known, *heads], own)


def _every(told: Context, row: Facts, key: str = "rate") -> str:
    rate = row.number(key)
    if not rate > 0.0:
        return "never"
    return amount(rate, duration(1.0 / rate, told.unit))


def _maybe(row: Facts, key: str) -> str:
    value = row.maybe(key)
    return "∞" if value is None else amount(value)


def _of_price(row: Facts) -> str | None:
    marginal, price = row.maybe("worth"), row.number("price")
    return None if marginal is None or not price > 0.0 else percent(marginal / price, even=True)
