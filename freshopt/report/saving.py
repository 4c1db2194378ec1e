"""Findings of what a plan saves, beside simple rules."""

from __future__ import annotations

import math

from freshopt.formatting import count, number, percent
from freshopt.report import source_charts
from freshopt.report.context import Context
from freshopt.report.finding import Column, Finding, Table
from freshopt.report.markup import amount, linked
from freshopt.report.plan_tables import PlanFolder
from freshopt.report.source_sample import MOVED
from freshopt.report.value_words import less_fresh, mean_amount
from freshopt.units import duration, per_unit, rate_text, rate_unit

# Of the section on the page.
TITLE = "Saving"
RULES = {
    "plan": "this plan",
    "flat": "this plan at equal intervals",
    "uniform": "all equally often",
    "proportional": "in proportion to change rates",
    "square-root": "∝ √(importance × change rate)",
}
# The same as words after a number.
_OTHERS = {
    "flat": "without the weekly timing",
    "uniform": "if all were fetched equally often",
    "proportional": RULES["proportional"],
    "square-root": RULES["square-root"],
}


def saving(told: Context) -> Finding | None:
    """Return how few fetches are as fresh as today, or asked."""
    parts = [part for part in (told.today, told.facts.within("needed")) if part]
    lines = [part.text("sentence") for part in parts]
    if len(lines) > 1 and lines[1].startswith("as fresh as today") and told.facts.within("today"):
        # What is asked for is today's freshness: it stands there already, unless limits cut today's crawls.
        lines = lines if parts[0].within("cut") else lines[:1]
    return Finding("saving", "saving", "\n".join(lines)) if lines else None


def fresh(told: Context) -> Finding | None:
    """Return how long copies are up to date, beside simple rules."""
    own, others = told.fresh("plan"), []
    if own is None:
        return None
    if told.flat_fresh is not None:
        others.append(f"{percent(told.flat_fresh, space=' ')} without the weekly timing")
    known = {rule: share for rule in _OTHERS if (share := told.fresh(rule)) is not None}
    others += [f"{percent(share, space=' ')} {_OTHERS[rule]}" for rule, share in known.items()]
    less = less_fresh(told.facts.text("objective"), {"plan": own, "uniform": known.get("uniform")})
    text = f"copies are up to date {percent(own, space=' ')} of the time{f', {less}' if less else ''}"
    return Finding("fresh", "time fresh", f"{text}{_in_brackets(others)}")


def comparison(told: Context) -> Finding:
    """Return the value in the long run beside that of simple rules."""
    own = {"plan": told.value, "flat": told.flat_value}
    rows = [(rule, own[rule] if rule in own else told.baseline(rule)) for rule in RULES]
    known = [(rule, value) for rule, value in rows if value is not None]
    finding, first = Finding("comparison", "value", _value(told, dict(known))), saving(told)
    facts = {"meaning": told.goal.meaning, "saving": first}
    if all(rule in own for rule, _ in known):
        return finding if first is None else finding.section(TITLE, facts)
    caption = f"In the long run and within the same bandwidth, for the {told.supposed}"
    flat = "; of these, this plan alone knows good hours of the week"
    caption += "" if told.flat_value is None else flat
    shares = [told.flat_fresh if rule == "flat" else told.fresh(rule) for rule, _ in known]
    values = [(RULES[rule], value) for rule, value in known]
    table = compared(caption, "rates", told.value_head, values, "share of time up to date", shares)
    return finding.section(TITLE, facts, table)


def _value(told: Context, known: dict[str, float]) -> str:
    """Return the values in words."""
    kind = told.facts.text("objective")
    mean = mean_amount(kind, told.value, told.findings.maybe("importance"), told.unit)
    # Of a share of time the whole is the sum of importances.
    whole = f" of {number(told.findings.number('importance'))}" if kind == "BinaryFreshness" and mean else ""
    others = [f"{told.shown(known[rule])} {words}" for rule, words in _OTHERS.items() if rule in known]
    text = f"{told.goal.noun} {told.shown(told.value)}{whole} in the long run"
    text += f", {mean} a source" if mean else ""
    return f"{text}{_in_brackets(others)}, if the {told.supposed} are right"


def _in_brackets(parts: list[str]) -> str:
    return f" ({', '.join(parts)})" if parts else ""


def compared(
    caption: str,
    head: str,
    value_head: str,
    values: list[tuple[str, float]],
    share_head: str,
    shares: list[float | None],
) -> Table:
    """Return values with their bars, and shares where all are known."""
    longest = max(abs(value) for _, value in values) or 1.0
    rows = [[rule, amount(value), f"{100.0 * abs(value) / longest:.1f}"] for rule, value in values]
    columns = [Column(head), Column(value_head, "number"), Column("", "bar")]
    known = [share for share in shares if share is not None]
    if len(known) == len(rows):
        columns.append(Column(share_head, "number"))
        rows = [[*row, amount(each, percent(each, even=True))] for row, each in zip(rows, known, strict=True)]
    return Table(caption, columns, rows, 0)


def bandwidth(told: Context) -> Finding:
    """Return how much of the bandwidth is used."""
    used, most = told.facts.number("bandwidth_used"), told.facts.maybe("bandwidth")
    scale = rate_unit(most or used, told.unit)
    limit = "" if most is None else f" of {number(per_unit(most, told.unit, scale))}"
    words = f"{number(per_unit(used, told.unit, scale))}{limit} {told.words.uses} per {scale} used"
    return Finding("bandwidth-used", "bandwidth", words)


def fetches(told: Context) -> Finding | None:
    """Return fetches that fail, or cost what they bring."""
    success, changed, used = told.facts.within("success"), told.facts.within("changed_cost"), []
    if success:
        mean, least = (percent(success.number(key), space=" ") for key in ("mean", "least"))
        of = "retried at once; rates are of successes" if success.values.get("retry_at_once") else ""
        used.append(
            f"{mean} succeed in the mean source, {least} in the worst; {of or 'rates are of attempts'}"
        )
    whole = told.facts.number("bandwidth_used")
    if changed and whole > 0.0:
        often = rate_text(changed.number("fetches"), told.unit, "refresh")
        asking, down = (percent(changed.number(key) / whole, space=" ") for key in ("asking", "downloads"))
        used.append(f"{often}; asking uses {asking} of the bandwidth, downloads of what changed {down}")
    return Finding("success", "fetches", "; ".join(used)) if used else None


# Changes of earlier rates that are listed.
LISTED = 10


def changes(told: Context, folder: PlanFolder | None = None) -> Finding | None:
    """Return changes against the log's own crawls, the largest first."""
    found = told.facts.within("moved")
    if not found or told.shares == "requests":
        return None
    within = percent(MOVED - 1.0, space=" ")
    kinds = {"less": "less often", "more": "more often", "never": "no more"}
    kinds["about"] = f"about as often (within {within})"
    parts = [f"{found.whole(key):,} {words}" for key, words in kinds.items() if found.whole(key)]
    crawled = rate_text(found.number("crawled"), told.unit, "crawl")
    text = f"against the log's {crawled}: {', '.join(parts)}"
    finding = Finding("changes", "today's crawls", text)
    if folder is None:
        return finding
    rows = [
        [
            linked(row.name("source")),
            _every(row.number("crawl_rate"), told.unit),
            _every(row.number("rate"), told.unit),
            _difference(row.number("rate") - row.number("crawl_rate")),
        ]
        for row in found.rows("sources")
    ]
    heads = ("crawled every", f"now {told.words.done} every", f"{told.words.rates} per {told.unit}")
    caption = f"The {count(len(rows), 'source')} whose number of {told.words.rates} changes most"
    table = Table.of(caption, "source", heads, rows)
    known = sum(found.whole(key) for key in kinds)
    facts = {"left": told.sources - known}
    charts = tuple(source_charts.changes(folder.seen, told.unit, told.words))
    return finding.section("What changes", facts, table if rows else None, charts)


def earlier(told: Context, folder: PlanFolder | None = None) -> Finding | None:
    """Return the changes of earlier rates, or None where there were none."""
    found, few = told.facts.within("changes"), told.facts.within("few_changes")
    if not found:
        return None
    changed, new, gone = (found.whole(key) for key in ("changed", "new", "gone"))
    at = " at equal intervals" if few.values.get("no_cycle") else ""
    value, cut, noun = found.maybe("value"), found.within("cut"), told.goal.noun
    used = rate_text(found.number("bandwidth"), told.unit, told.words.bandwidth)
    old = f"the old rates are {used}"
    if value is not None:
        old += f", {noun} {told.shown(value)}{at} under today's estimates"
    if cut.maybe("value") is not None:
        used, value = rate_text(cut.number("bandwidth"), told.unit, told.words.bandwidth), cut.number("value")
        old += "; they exceed maximum rates or host limits, and cut to them are "
        old += f"{used}, {noun} {told.shown(value)}{at}"
    words = f"{changed:,} of {count(told.sources - new, 'interval')} changed"
    words += f"; {count(new, 'new source')}" if new else ""
    words += f"; {count(gone, 'source')} gone" if gone else ""
    words += f"; {noun} {told.shown(told.value)}"
    words += "" if value is None else f", not {told.shown(value)}{at}"
    lines = [words, old, *([few.text("sentence")] if few else [])]
    finding = Finding("earlier", "changes", "\n".join(lines))
    return (
        finding if folder is None else finding.section("Against the old rates", table=_largest(told, folder))
    )


def _largest(told: Context, folder: PlanFolder) -> Table | None:
    """Return the changes that bring most."""
    rows = [
        [
            linked(each.source),
            "new" if math.isnan(each.old) else _every(each.old, told.unit),
            _every(each.rate, told.unit),
            amount(each.gain) if math.isfinite(each.gain) else "all",
        ]
        for each in folder.largest_changes(LISTED)
    ]
    noun = "stale part" if told.maximised else told.measure
    heads = (f"{told.words.done} every", "now every", f"gain: {noun}")
    caption = f"The {count(len(rows), 'change')} that bring most"
    return Table.of(caption, "source", heads, rows) if rows else None


def _every(rate: float, unit: str) -> str:
    """Return how far apart refreshes are."""
    return amount(1.0 / rate, duration(1.0 / rate, unit)) if rate > 0.0 else "never"


def _difference(change: float) -> str:
    sign = "+" if change > 0.0 else "−"
    return amount(change, f"{sign}{number(abs(change))}")
