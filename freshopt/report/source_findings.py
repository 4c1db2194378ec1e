"""Findings about the sources: their intervals, those never refreshed, lifetimes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from freshopt.formatting import count, percent
from freshopt.report import source_charts
from freshopt.report.context import Context
from freshopt.report.finding import Finding, Table, listed
from freshopt.report.markup import amount, linked
from freshopt.report.plan_tables import PlanFolder
from freshopt.report.summary_facts import Facts
from freshopt.report.value_words import spread_text
from freshopt.units import duration

# Relative difference from the price up to which marginal values count as equal to it.
EQUAL = 1e-6


def rates(told: Context, folder: PlanFolder | None = None) -> Finding:
    """Return how far apart refreshes are, and which are held back."""
    never = f"{count(told.counts.whole('never_refreshed'), 'source')} never refreshed"
    finding = Finding("rates", "intervals", f"{_spread(told)}{never}")
    if folder is None:
        return finding
    inside = told.findings.within("interior")
    deviation = None if inside is None else inside.maybe("deviation")
    # The optimality condition between the bounds, where it holds.
    equal = (
        inside is not None and inside.whole("sources") >= 2 and deviation is not None and deviation <= EQUAL
    )
    facts = {
        "bounds": [
            (told.counts.whole(key), option)
            for key, option in (("at_min_rate", "--min-rate"), ("at_max_rate", "--max-rate"))
            if told.counts.values.get(key)
        ],
        "interior": inside.whole("sources") if inside is not None and equal else None,
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
    if found is None:
        return ""
    first, last = found.within("shortest"), found.within("longest")
    if first is None or last is None:
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
    if found is None:
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
