"""Findings about a whole plan, from proof to settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from freshopt.formatting import count, number, percent
from freshopt.numerics.arrays import Array
from freshopt.report import load_charts, plan_tables, source_charts
from freshopt.report.context import Context, tidy
from freshopt.report.finding import Column, Finding, Table
from freshopt.report.load_charts import Clock, HostLoad
from freshopt.report.markup import Html, amount, escaped, name
from freshopt.report.overview import gap_text
from freshopt.report.source_sample import Survey
from freshopt.report.summary_facts import Facts
from freshopt.units import duration

# Changes of earlier rates that are listed.
LISTED = 10


def proof(told: Context) -> Finding:
    """Return the optimality certificate."""
    bound, gap, relative = (told.facts.maybe(key) for key in ("bound", "gap", "relative_gap"))
    declared = told.facts.within("constraints") is not None
    facts = {
        "bound": bound,
        "gap": gap,
        "gap_text": "" if gap is None else f"{gap:.2g}",
        "relative": "" if relative is None else gap_text(relative),
        "limits": "the bounds and the constraints"
        if declared
        else "the bandwidth, the bounds and the host limits",
    }
    return Finding("proof", "Optimality certificate", facts=facts)


def constraints(told: Context) -> Finding | None:
    """Return declared constraints: what they use, their limits, their shadow prices."""
    found = told.facts.within("constraints")
    if found is None:
        return None
    rows, many, binding = found.rows("listed"), found.whole("rows"), found.whole("binding")
    caption = "Constraints, the most costly limits first"
    caption += f": the first {len(rows):,} of {many:,}" if len(rows) < many else ""
    heads = ("used", "limit", "shadow price")
    columns = [Column("constraint"), *(Column(head, "number") for head in heads)]
    table = Table(caption, columns, [_constraint(row) for row in rows]) if rows else None
    sentence = _binding(binding, count(many, "constraint"))
    facts = {"depend": bool(found.values.get("depend_on_change_rates"))}
    return Finding("constraints", "Constraints", sentence, facts, table)


def _constraint(row: Facts) -> list[str | None]:
    def used(key: str) -> str:
        value = row.maybe(key)
        share = row.values.get("share")
        return "" if value is None else amount(value, percent(value) if share else number(value))

    price = row.maybe("price")
    side = "at least" if row.values.get("at_least") else "at most"
    shown = "does not bind" if price == 0.0 else "unknown" if price is None else amount(price)
    return [name(row.text("label")), used("used"), Html(f"{side} {used('limit')}"), shown]


def _binding(binding: int, limits: str) -> str:
    return f"{f'{binding:,}' if binding else 'None'} of {limits} {'binds' if binding == 1 else 'bind'}."


def load(told: Context, clock: Clock, many: Array) -> Finding:
    """Return the schedule's load over time, of refreshes between a clock's edges."""
    facts, horizon, planned = told.facts, told.facts.positive("horizon"), told.counts.whole("refreshes")
    mean, most = planned / horizon, float(np.max(many / np.diff(clock.edges)))
    compared = told.words.alike and facts.maybe("bandwidth") is not None
    told_of = {
        "planned": planned,
        "horizon": tidy(horizon),
        "method": facts.text("method"),
        "mean": mean,
        "step": clock.step,
        "busiest": most / mean if planned else None,
        "value": facts.maybe("schedule_value"),
    }
    bandwidth = facts.positive("bandwidth") if compared else None
    chart = load_charts.over_time(clock, many, bandwidth, told.words)
    return Finding("load", "Load over time", facts=told_of, charts=(chart,))


def hosts(told: Context, load: HostLoad | None, clock: Clock) -> Finding | None:
    """Return hosts: their load over time, and binding limits."""
    found = told.findings.within("hosts")
    if load is None and found is None:
        return None
    charts = () if load is None else (load_charts.by_host(load, clock, told.words),)
    facts: dict[str, Any] = {
        "load": None if load is None else _by_host(told, load, clock),
        "limits": found is not None,
    }
    if found is None:
        return Finding("hosts", "Hosts", facts=facts, charts=charts)
    limited, binding, rows = found.whole("limited"), found.whole("binding"), found.rows("hosts")
    sentence, table = _binding(binding, count(limited, "limit")), None
    if binding:
        facts["price"] = told.facts.number("price")
        heads = ("sources", f"limit per {told.unit}", "used, of the limit", "shadow price")
        cells = [
            [
                name(row.name("host")),
                f"{row.whole('sources'):,}",
                amount(row.positive("limit")),
                amount(row.number("used"), percent(min(row.number("used") / row.positive("limit"), 1.0))),
                amount(row.number("price")),
            ]
            for row in rows
        ]
        caption = "Binding limits, highest shadow price first"
        caption += f": the first {len(rows):,} of {binding:,}" if len(rows) < binding else ""
        table = Table(caption, [Column("host"), *(Column(head, "number") for head in heads)], cells)
    return Finding("hosts", "Hosts", sentence, facts, table, charts)


def _by_host(told: Context, load: HostLoad, clock: Clock) -> Table:
    """Return the load of the hosts that are drawn."""
    words, planned = told.words, told.counts.whole("refreshes")
    heads = ("sources", f"{words.rates} per {told.unit}", f"of all {words.rates}", f"busiest {clock.step}")
    cells: list[list[str | None]] = []
    for host, sources, many in zip(load.hosts, load.sources, load.many, strict=True):
        whole = float(np.sum(many))
        most = float(np.max(many / np.diff(clock.edges)))
        row = [name(host), f"{sources:,}", amount(whole / told.facts.positive("horizon"))]
        share = percent(whole / planned, even=True) if planned else None
        cells.append([*row, share, f"{number(most)} per {told.unit}"])
    shown = len(load.hosts)
    caption = "Load by host, the highest first"
    caption += f": the first {shown:,} of {load.of:,}" if shown < load.of else ""
    return Table(caption, [Column("host"), *(Column(head, "number") for head in heads)], cells)


def earlier(told: Context, folder: Path) -> Finding | None:
    """Return the changes of earlier rates, or None where there were none."""
    facts = told.facts.within("changes")
    if facts is None:
        return None
    changed, new, gone = (facts.whole(key) for key in ("changed", "new", "gone"))
    value, cut = facts.maybe("value"), facts.within("cut")
    cut = None if cut is None or value is None or cut.maybe("value") is None else cut
    old = value if cut is None else cut.number("value")
    few = told.facts.within("few_changes")
    told_of = {
        "changed": changed,
        "there": told.sources - new,
        "new": new,
        "gone": gone,
        "used": facts.number("bandwidth"),
        "value": value,
        "cut": cut,
        "less": _change(old, told.value),
        "rises": old is not None and told.value > old,
    }
    sentence = "" if few is None else few.text("sentence").replace(" %", "\xa0%")
    noun = "stale part" if told.maximised else told.measure
    heads = ("refreshed every", "now every", "times as often", f"gain: {noun}")
    rows = [
        [
            name(each.source),
            _every(each.old, told.unit),
            _every(each.rate, told.unit),
            _times(each.old, each.rate),
            amount(each.gain) if math.isfinite(each.gain) else "all",
        ]
        for each in plan_tables.largest_changes(folder, LISTED)
    ]
    caption = f"The {count(len(rows), 'change')} that bring most"
    columns = [Column("source"), *(Column(head, "number") for head in heads)]
    table = Table(caption, columns, rows) if rows else None
    return Finding("earlier", "Changes against the earlier rates", sentence, told_of, table)


def _change(old: float | None, new: float) -> float | None:
    """Return the relative change of a value, None where it is nothing."""
    if old is None or old == 0.0 or abs(new - old) <= 1e-9 * abs(old):
        return None
    return abs(new - old) / abs(old)


def _every(rate: float, unit: str) -> str:
    if math.isnan(rate):
        return "new"
    return amount(1.0 / rate, duration(1.0 / rate, unit)) if rate > 0.0 else "never"


def _times(old: float, new: float) -> str | None:
    if not (old > 0.0 and new > 0.0):
        return None
    ratio = new / old
    return f"× {number(ratio)}" if ratio >= 1.0 else f"÷ {number(1.0 / ratio)}"


def certainty(told: Context, seen: Survey) -> Finding:
    """Return estimates: their intervals, the posterior value, the expected regret."""
    settings = told.facts.within("settings")
    level = None if settings is None else settings.maybe("confidence")
    intervals = "intervals" if level is None else f"{percent(level)} intervals"
    spread, forecast = told.facts.within("uncertainty"), told.facts.within("forecast")
    known = forecast or spread
    ends = [] if known is None else known.numbers("value_90_percent", gaps=True)
    low, high = (ends[k] if k < len(ends) else None for k in (0, 1))
    flags = told.counts.within("flags")
    below, above = low is not None and told.value < low, high is not None and told.value > high
    facts = {
        "forecast": forecast,
        "spread": spread,
        "low": low,
        "high": high,
        "ratios": [] if forecast is None else forecast.numbers("realised_over_predicted"),
        "beyond": "below" if below else "above" if above else "",
        "flags": []
        if flags is None
        else [f"{flags.whole(key):,} {key}" for key in flags.values if key != "ok"],
    }
    chart = source_charts.reach(seen, told.unit, intervals)
    return Finding("certainty", "Uncertainty of the change rates", facts=facts, charts=(chart,))


def made(told: Context, tables: list[str]) -> Finding:
    """Return the settings that reproduce the plan."""
    facts, counts, requests = told.facts, told.counts, told.shares == "requests"
    settings, log, change = (facts.within(key) for key in ("settings", "log", "change_rate"))
    rows: list[tuple[str, str]] = []
    if "command" in facts.values:
        rows.append(("command", _code(facts.text("command"))))
    crawl, noun = ("fetches", "fetch") if requests else ("crawls", "crawl")
    span = f", {told.moment('begin')} to {told.moment('end')}" if log is not None and not requests else ""
    size = f"{count(counts.whole(crawl), noun)} of {count(told.sources, 'source')}{span}"
    rows.append(("log", f"{size}; {counts.whole(f'{crawl}_that_found_a_change'):,} found a change"))
    if requests:
        rows.append(("requests", Html(f"{amount(facts.number('request_rate'))} per {told.unit} in total")))
    if change is not None:
        rows.append(("estimator", _code(change.text("estimator"))))
        rows.append(("change rates", Html(f"{amount(change.number('sum'))} per {told.unit} in total")))
    if settings is not None or not requests:
        objective = facts.text("objective") if settings is None else settings.text("objective")
        how = "" if requests else escaped(f", {facts.text('discipline')} {told.words.rates}")
        rows.append(("objective", Html(f"{_code(objective)}{how}")))
    if not requests:
        rows.append(("solver", _code(facts.text("solver"))))
    if settings is not None:
        low, high = settings.maybe("min_rate"), settings.maybe("max_rate")
        bounds = [] if not low else [f"at least {number(low)}"]
        bounds += [] if high is None else [f"at most {number(high)}"]
        what = "fetch rates" if requests else "rates"
        rows += [(what, f"{', '.join(bounds)} per {told.unit}")] if bounds else []
    if settings is not None and not requests:
        draws = count(settings.whole("draws"), "posterior sample")
        rows.append(("seed", f"{settings.whole('seed')}, {draws}"))
    versions = facts.within("versions")
    if versions is not None:
        rows.append(("versions", ", ".join(f"{key} {versions.text(key)}" for key in versions.values)))
    rows.append(("files beside this page", ", ".join([*tables, "summary.json"])))
    return Finding("made", "Settings and versions", facts={"rows": rows})


def _code(text: str) -> Html:
    return Html(f"<code>{escaped(text)}</code>")
