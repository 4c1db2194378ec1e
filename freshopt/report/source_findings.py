"""Findings about the sources: rates, changes against today, starved sources, costs, lifetimes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.formatting import count, percent
from freshopt.report import source_charts
from freshopt.report.context import Context
from freshopt.report.finding import Column, Finding, Table
from freshopt.report.markup import amount, name
from freshopt.report.source_sample import MOVED, POINTS, Survey
from freshopt.report.summary_facts import Facts
from freshopt.units import duration

if TYPE_CHECKING:
    import polars

# Relative difference from the price up to which marginal values count as equal to it.
EQUAL = 1e-6


def rates(told: Context, seen: Survey) -> Finding:
    """Return refresh rates: how many, by what, and which are held back."""
    inside = told.findings.within("interior")
    deviation = None if inside is None else inside.maybe("deviation")
    # The optimality condition between the bounds, where it holds.
    equal = (
        inside is not None and inside.whole("sources") >= 2 and deviation is not None and deviation <= EQUAL
    )
    facts = {
        "refreshed": told.sources - told.counts.whole("never_refreshed"),
        "bounds": [
            (told.counts.whole(key), option)
            for key, option in (("at_min_rate", "--min-rate"), ("at_max_rate", "--max-rate"))
            if told.counts.values.get(key)
        ],
        "interior": inside.whole("sources") if inside is not None and equal else None,
        "hosts": bool(told.findings.within("hosts")),
        "phases": told.facts.within("phases"),
    }
    rows, table = told.findings.rows("held_back"), None
    if rows:
        heads = ["marginal value", "price"]
        cells = [[_maybe(row, "worth"), amount(row.number("price"))] for row in rows]
        table = _table(told, "Sources at --max-rate with the largest marginal value", rows, heads, cells)
    charts = tuple(source_charts.rates(seen, told.unit, told.words))
    return Finding("rates", f"{told.words.rate.capitalize()} rates", facts=facts, table=table, charts=charts)


def changes(told: Context, seen: Survey) -> Finding | None:
    """Return changes against today, or None where nobody crawled."""
    more, less, about, never = seen.moved.tolist()
    known = more + less + about + never
    if seen.by_crawl_rate is None or not known:
        return None
    used = told.facts.number("bandwidth_used")
    if not told.words.alike:
        used = told.counts.whole("refreshes") / told.facts.positive("horizon")
    facts = {
        "crawled": seen.crawled,
        "used": used,
        "share": used / seen.crawled if seen.crawled > 0.0 else 1.0,
        "more": more,
        "less": less,
        "about": about,
        "never": never,
        "within": MOVED - 1.0,
        "left": seen.n - known,
    }
    charts = tuple(source_charts.changes(seen, told.unit, told.words))
    return Finding("changes", "Changes against today", facts=facts, charts=charts)


def never(told: Context) -> Finding | None:
    """Return the sources never refreshed, and why, or None where all are."""
    found, many = told.findings.within("never_refreshed"), told.counts.whole("never_refreshed")
    if many == 0:
        return None
    head = f"{count(many, 'source')} of {told.sources:,} get no refresh at all."
    if found is None:
        return Finding("never", "Sources never refreshed", head, dict.fromkeys(("dear", "idle", "barred")))
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
            told, _listed("Nearest to being refreshed", len(rows), facts["dear"]), rows, heads, cells
        )
    return Finding("never", "Sources never refreshed", head, facts, table)


def costly(told: Context) -> Finding | None:
    """Return the most costly sources."""
    rows = told.findings.rows("most_costly")
    if not rows:
        return None
    what = "stale part" if told.maximised else told.goal.noun
    together, cost = sum(row.maybe("share") or 0.0 for row in rows), told.findings.maybe("cost")
    facts = {
        "many": len(rows),
        "together": together if cost is not None and together > 0.0 else None,
        "what": what,
        "cost": cost,
    }
    heads = [f"{told.words.done} every", "cost", f"share of the {what}"]
    cells = [[_every(told, row), amount(row.number("cost")), _share(row, "share")] for row in rows]
    caption = _listed("Most costly sources under this plan", len(rows), told.sources)
    table = _table(told, caption, rows, heads, cells)
    return Finding("costly", "Most costly sources", facts=facts, table=table)


def gains(told: Context, rows: list[Facts]) -> Table:
    """Return the sources that gain most from more bandwidth."""
    heads = [f"{told.words.done} every", "then every", "gain"]
    cells = [[_every(told, row), _every(told, row, "rate_then"), amount(row.number("gain"))] for row in rows]
    return _table(told, _listed("Sources that would gain most", len(rows), told.sources), rows, heads, cells)


def lifetimes(told: Context, parts: Iterable[polars.DataFrame]) -> Finding:
    """Return lifetimes against change rates and request rates."""
    import polars

    frame = polars.concat(parts)
    columns = {key: frame[key].to_numpy() for key in ("change_rate", "request_rate", "lifetime")}
    columns["lifetime"] = np.where(np.isnan(columns["lifetime"]), np.inf, columns["lifetime"])
    charts = source_charts.lifetimes(frame["source"].to_list(), columns, told.unit, POINTS)
    return Finding("lifetimes", "Lifetimes", charts=tuple(charts))


def _table(
    told: Context, caption: str, rows: list[Facts], heads: list[str], cells: Sequence[Sequence[str | None]]
) -> Table:
    """Return a table of sources with further cells."""
    # Importances need a column where they differ from 1.
    whole = told.findings.maybe("importance")
    weighed = whole != float(told.sources) or any(row.number("importance") != 1.0 for row in rows)
    keys = ["change_rate", *(["importance"] if weighed else [])]
    known = [f"changes per {told.unit}", *(["importance"] if weighed else [])]
    columns = [Column("source"), *(Column(head, "number") for head in (*known, *heads))]
    return Table(
        caption,
        columns,
        [
            [name(row.name("source")), *(amount(row.number(key)) for key in keys), *more]
            for row, more in zip(rows, cells, strict=True)
        ],
    )


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


def _share(row: Facts, key: str) -> str | None:
    value = row.maybe(key)
    return None if value is None else amount(value, percent(value, even=True))


def _listed(what: str, shown: int, of: int) -> str:
    return f"{what}: the first {shown:,} of {of:,}" if shown < of else what
