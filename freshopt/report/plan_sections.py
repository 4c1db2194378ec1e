"""Sections about the plan: certificate, load, earlier rates, settings."""

from __future__ import annotations

import math
from pathlib import Path

from freshopt.formatting import count, number, percent
from freshopt.report import plan_charts, plan_tables
from freshopt.report.components import Column, Section, amount, facts_list, name, paragraph, table
from freshopt.report.context import Context, tidy
from freshopt.report.markup import Child, element
from freshopt.report.overview import gap_text
from freshopt.report.plan_charts import Load
from freshopt.report.summary_facts import Facts
from freshopt.units import duration

# Changes of earlier rates that are listed.
LISTED = 10


def proof(told: Context) -> Section:
    """Return the section of the optimality certificate."""
    facts, noun = told.facts, told.measure
    bound, gap, relative = (facts.maybe(key) for key in ("bound", "gap", "relative_gap"))
    optimal = told.proved
    if bound is None or gap is None:
        return Section.of("proof", "Optimality certificate", paragraph("Nothing is proved about this plan."))
    side = "above" if told.maximised else "below"
    near = f" (relative: {gap_text(relative)})" if relative is not None else ""
    outcome: list[Child] = [
        element("b", f"Proved optimal for the {told.supposed}." if optimal else "Not proved optimal."),
        f" At these change rates, no rates within {_limits(told)} have a {noun} {side} ",
        amount(bound),
        "; this plan's is ",
        amount(told.value),
        ". The duality gap is ",
        amount(gap, f"{gap:.2g}"),
        f"{near}: the optimum is at most so far away.",
    ]
    return Section.of(
        "proof",
        "Optimality certificate",
        paragraph(*outcome, kind=f"outcome {'good' if optimal else 'bad'}"),
        paragraph(
            "The bound is the dual bound: it is computed from the rates and the shadow prices alone, as the "
            "sum of what each source could gain at these prices. It does not depend on the algorithm that "
            "found the rates."
        ),
        paragraph(
            "What is not proved: that the change rates are right, for they are estimates (",
            element("a", "how sure they are", href="#certainty"),
            "), and that sources change at random.",
        ),
    )


def _limits(told: Context) -> str:
    """Return what rates are compared within."""
    if told.facts.within("constraints") is not None:
        return "the bounds and the constraints"
    return "the bandwidth, the bounds and the host limits"


def load(told: Context, seen: Load) -> Section:
    """Return the section of the schedule's load over time."""
    facts, unit = told.facts, told.unit
    horizon, planned = facts.positive("horizon"), told.counts.whole("refreshes")
    mean, most = planned / horizon, float(seen.rates.max())
    text: list[Child] = [
        f"{count(planned, told.words.rate)} in {count(tidy(horizon), unit)}, by ",
        element("code", facts.text("method")),
        f": on average {number(mean)} per {unit}",
        f"; the busiest step of {seen.clock.step} has {number(most / mean)} times the mean."
        if planned
        else ".",
    ]
    value: list[Child] = []
    if facts.maybe("schedule_value") is not None:
        value = [
            f"The {told.measure} expected over this time is ",
            amount(facts.number("schedule_value")),
            ", in the long run ",
            amount(told.value),
            ". Here copies begin with the age that they have at the end of the log, and "
            f"{told.words.rates} are whole.",
        ]
    return Section.of(
        "load",
        "Load over time",
        paragraph(*text),
        plan_charts.load_chart(
            seen,
            facts.positive("bandwidth")
            if told.words.alike and facts.maybe("bandwidth") is not None
            else None,
            told.words,
        ),
        paragraph(*value, kind="small faint") if value else None,
    )


def earlier(told: Context, folder: Path) -> Section | None:
    """Return the section of changes of earlier rates, or None."""
    facts = told.facts.within("changes")
    if facts is None:
        return None
    body: list[Child] = [paragraph(*_summary(told, facts))]
    few = told.facts.within("few_changes")
    if few is not None:
        kept = few.text("sentence").replace(" %", "\xa0%")
        body.append(paragraph(f"{kept}."))
    rows = plan_tables.largest_changes(folder, LISTED)
    if rows:
        noun = "stale part" if told.maximised else told.measure
        columns = [Column("source"), Column("refreshed every", "number"), Column("now every", "number")]
        columns += [Column("times as often", "number"), Column(f"gain: {noun}", "number")]
        cells: list[list[Child]] = [
            [
                name(each.source),
                _every(each.old, told.unit),
                _every(each.rate, told.unit),
                _times(each.old, each.rate),
                amount(each.gain) if math.isfinite(each.gain) else "all",
            ]
            for each in rows
        ]
        body.append(table(f"The {count(len(rows), 'change')} that bring most", columns, cells))
        body.append(
            paragraph(
                "A gain is what the change of one source brings at the plan's shadow price: a source that "
                "needs fewer refreshes for nearly the same gains, too. The table changes has all.",
                kind="small faint",
            )
        )
    return Section.of("earlier", "Changes against the earlier rates", body)


def _summary(told: Context, facts: Facts) -> list[Child]:
    """Return how many intervals change, and the value before and after."""
    changed, new, gone = (facts.whole(key) for key in ("changed", "new", "gone"))
    there = told.sources - new
    text: list[Child] = [f"{changed:,} of {count(there, 'interval')} changed"]
    text += [f"; {count(new, 'new source')}"] if new else []
    text += [f"; {count(gone, 'source')} gone"] if gone else []
    used, value = facts.number("bandwidth"), facts.maybe("value")
    text += [". The earlier rates are ", amount(used), f" {told.words.uses} per {told.unit}"]
    if value is not None:
        text += [f", with a {told.measure} of ", amount(value), " under today's estimates; "]
        cut = facts.within("cut")
        if cut is not None and cut.maybe("value") is not None:
            value = cut.number("value")
            text += ["they exceed maximum rates or host limits, and cut to them are "]
            text += [amount(cut.number("bandwidth")), f" {told.words.uses} per {told.unit}, with a "]
            text += [f"{told.measure} of ", amount(value), "; "]
        text += ["this plan's is ", amount(told.value), _less(value, told.value)]
    return [*text, "."]


def _less(old: float, new: float) -> str:
    if old == 0.0 or abs(new - old) <= 1e-9 * abs(old):
        return ""
    return f", {percent(abs(new - old) / abs(old))} {'more' if new > old else 'less'}"


def _every(rate: float, unit: str) -> Child:
    if math.isnan(rate):
        return "new"
    return amount(1.0 / rate, duration(1.0 / rate, unit)) if rate > 0.0 else "never"


def _times(old: float, new: float) -> Child:
    if not (old > 0.0 and new > 0.0):
        return None
    ratio = new / old
    return f"× {number(ratio)}" if ratio >= 1.0 else f"÷ {number(1.0 / ratio)}"


def made(told: Context, tables: list[str]) -> Section:
    """Return the section of settings that reproduce the plan."""
    facts = told.facts
    settings, log = facts.within("settings"), facts.within("log")
    rows: list[tuple[Child, Child]] = []
    if "command" in facts.values:
        rows.append(("command", element("code", facts.text("command"))))
    counts = told.counts
    span = f", {told.moment('begin')} to {told.moment('end')}" if log is not None else ""
    crawls = f"{count(counts.whole('crawls'), 'crawl')} of {count(told.sources, 'source')}{span}"
    rows.append(("log", f"{crawls}; {counts.whole('crawls_that_found_a_change'):,} found a change"))
    change = facts.within("change_rate")
    if change is not None:
        rows.append(("estimator", element("code", change.text("estimator"))))
        rows.append(("change rates", [amount(change.number("sum")), f" per {told.unit} in total"]))
    objective = facts.text("objective") if settings is None else settings.text("objective")
    rows.append(
        ("objective", [element("code", objective), f", {facts.text('discipline')} {told.words.rates}"])
    )
    rows.append(("solver", element("code", facts.text("solver"))))
    if settings is not None:
        low, high = settings.maybe("min_rate"), settings.maybe("max_rate")
        bounds = [] if not low else [f"at least {number(low)}"]
        bounds += [] if high is None else [f"at most {number(high)}"]
        if bounds:
            rows.append(("rates", f"{', '.join(bounds)} per {told.unit}"))
        rows.append(
            ("seed", f"{settings.whole('seed')}, {count(settings.whole('draws'), 'posterior sample')}")
        )
    versions = facts.within("versions")
    if versions is not None:
        rows.append(("versions", ", ".join(f"{key} {versions.text(key)}" for key in versions.values)))
    rows.append(("files beside this page", ", ".join([*tables, "summary.json"])))
    return Section.of("made", "Settings and versions", facts_list(rows))
