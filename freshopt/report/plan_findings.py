"""Findings about a whole plan: origin, load, limits and settings."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshopt.formatting import count, number, percent
from freshopt.report import load_charts, source_charts
from freshopt.report.context import Context, Facts
from freshopt.report.finding import Column, Finding, Table, listed
from freshopt.report.load_charts import Clock, HostLoad
from freshopt.report.markup import Html, amount, escaped, name
from freshopt.report.plan_tables import PlanFolder
from freshopt.report.value_words import ends_in_words, expected_text, meaning, proved_text, span_text
from freshopt.units import duration, rate_text

# Hosts that a row names.
_HOSTS = 3
# Relative difference of the value over the horizon from that of the long run that needs a word.
_FAR = 0.05


def log(told: Context, read: str = "") -> Finding:
    """Return what was read, and which time it covers."""
    kinds = {"crawls": "crawl", "fetches": "fetch"}
    sizes = [count(told.counts.whole(key), kinds[key]) for key in kinds if key in told.counts.values]
    size = " of ".join([*sizes, count(told.sources, "source")])
    return Finding("log", "log", f"{read or size}{_span(told)}")


def _span(told: Context) -> str:
    """Return the time that the log covers, as dates or numbers."""
    found = told.facts.within("log")
    if not found:
        return ""
    if not found.values.get("timed", True):
        return ", without times"
    first, last = told.date("begin"), told.date("end")
    dated = first is not None and last is not None
    begin, end = (0.0, 0.0) if dated else (found.number("begin"), found.number("end"))
    return f", {span_text(begin, end, first, last, told.unit)}"


def warnings(told: Context) -> Finding | None:
    """Return what was warned of; the page has it on top."""
    texts = told.facts.texts("warnings")
    return Finding("warnings", "warning", "\n".join(texts)) if texts else None


def change_rates(told: Context) -> Finding | None:
    """Return the change rates in all, and what is odd about some."""
    found = told.facts.within("change_rate")
    if not found:
        return None
    median = found.maybe("median")
    often = f"; median source one in {duration(1.0 / median, told.unit)}" if median else ""
    odd = "".join(f"; {many:,} {kind}" for kind, many in told.flags.items())
    words = f"{rate_text(found.number('sum'), told.unit, 'change')} in all{often}{odd}"
    return Finding("change_rate", "change rates", words)


def objective(told: Context, known_as: str = "") -> Finding:
    """Return the objective: name, sense, meaning, discipline."""
    kind, refreshes = told.facts.text("objective"), f"{told.facts.text('discipline')} {told.words.rates}"
    refreshes = "refreshed on request" if told.shares == "requests" else refreshes
    if kind == "Spend":
        words = "Spend, the least bandwidth that meets the constraints"
    else:
        goal = f"{kind}, {known_as}" if known_as and kind == "SynchronizationCost" else kind
        words = f"{goal} ({told.better_is} is better){f': {meaning(kind)}' if meaning(kind) else ''}"
    return Finding("objective", "objective", f"{words}; {refreshes}")


def phases(told: Context) -> Finding | None:
    """Return what the weekly cycle brings, if there is any."""
    found, few = told.facts.within("phases"), told.facts.within("few_changes")
    if "sentence" in found.values:
        words = f"{found.text('sentence')}; --load-limit 1 keeps the load flat"
    elif few.values.get("no_cycle"):
        words = "left out, as most intervals are kept: old and new rates are valued at equal intervals"
    else:
        return None
    return Finding("phases", "weekly cycle", words)


def signals(told: Context) -> Finding | None:
    """Return what signals tell, what they bring, and which tell nothing."""
    found = told.facts.within("signals")
    if not found:
        return None
    rows = [
        [
            name(row.text("kind")),
            f"{row.whole('signals'):,}",
            amount(row.number("precision"), percent(row.number("precision"))),
            amount(row.number("gain")),
            "followed" if row.values.get("kept") else "left out",
        ]
        for row in found.rows("kinds")
    ]
    heads = ("signals before crawls", "true", "evidence in nats")
    columns = [Column("kind"), *(Column(head, "number") for head in heads), Column("")]
    table = Table("Kinds of signals, all sources taken alike", columns, rows)
    return Finding("signals", "signals", found.text("sentence")).section("Signals", table=table)


def features(told: Context) -> Finding | None:
    """Return what features tell of the change rates, and of which."""
    found = told.facts.within("features")
    if not found:
        return None
    rows = [[name(row.text("feature")), amount(row.number("factor"))] for row in found.rows("columns")]
    caption = "How far each feature moves change rates"
    table = Table.of(caption, "feature", ["typical factor"], rows) if rows else None
    return Finding("features", "features", found.text("sentence")).section("Features", table=table)


def promises(told: Context) -> Finding | None:
    """Return what promises need and cost."""
    rows = told.facts.rows("promises")
    if not rows:
        return None
    unit = told.unit
    cells = [
        [
            name(row.text("text")),
            f"{row.whole('sources'):,}",
            amount(row.number("needs")),
            None if row.maybe("extra") is None else amount(row.number("extra")),
        ]
        for row in rows
    ]
    heads = ("sources", f"least bandwidth per {unit}", f"more per {unit} to be as good as without")
    texts = "\n".join(row.text("sentence") for row in rows)
    table = Table.of("Promises", "promise", heads, cells)
    return Finding("promises", "promises", texts).section("Promises", table=table)


def constraints(told: Context) -> Finding | None:
    """Return declared constraints: what they use, their limits, their shadow prices."""
    found = told.facts.within("constraints")
    if not found:
        return None
    finding = Finding("constraints", "constraints", "\n".join(found.texts("sentences")))
    rows, many, binding = found.rows("listed"), found.whole("rows"), found.whole("binding")
    caption = listed("Constraints, the most costly limits first", len(rows), many)
    heads = ("used", "limit", "shadow price")
    table = Table.of(caption, "constraint", heads, [_constraint(row) for row in rows]) if rows else None
    depend = bool(found.values.get("depend_on_change_rates"))
    facts = {"depend": depend, "binding": _binding(binding, count(many, "constraint"))}
    return finding.section("Constraints", facts, table)


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


def load(told: Context, folder: PlanFolder | None = None) -> Finding | None:
    """Return the schedule: refreshes, value over its time, load."""
    horizon = told.facts.maybe("horizon")
    if horizon is None:
        return None
    planned, method = told.counts.whole("refreshes"), told.facts.text("method")
    value = told.facts.maybe("schedule_value")
    text = f"{count(planned, told.words.rate)} in {duration(horizon, told.unit)} {_method(method)}"
    if value is not None:
        text += f"; {told.goal.noun} over that time {told.shown(value)}{_ages(told, value)}"
    elif told.goal.noun == "objective":
        text += f"; no value over that time, as {told.facts.text('objective')} tells no cost of age"
    finding = Finding("load", "schedule", text)
    if folder is None:
        return finding
    clock, many = folder.clock, folder.load
    mean, most = planned / horizon, float(np.max(many / np.diff(clock.edges)))
    compared = told.words.alike and told.facts.maybe("bandwidth") is not None
    facts = {"mean": mean, "step": clock.step, "busiest": most / mean if planned else None}
    bandwidth = told.facts.positive("bandwidth") if compared else None
    chart = load_charts.over_time(clock, many, bandwidth, told.words)
    return finding.section("Schedule", facts, charts=(chart,))


def _method(method: str) -> str:
    """Return how a schedule spreads refreshes, in words."""
    if method.startswith("Periodic"):
        alone, _, hours = method.partition(" within ")
        spread = "at equal intervals" if alone.startswith("Periodic()") else "at good hours of the week"
        return f"{spread} within {hours}" if hours else spread
    return "at random times" if method.startswith("PoissonArrivals") else f"by {method}"


def _ages(told: Context, value: float) -> str:
    """Return why the horizon's value differs from the long run's."""
    found = told.facts.within("oldest_copies")
    if not found:
        return ""
    old, oldest = found.whole("beyond_horizon"), duration(found.number("age"), told.unit)
    if old == 0:
        far = abs(value - told.value) > _FAR * abs(told.value)
        return ": copies have the ages that the log leaves" if far else ""
    if old == 1:
        return f": 1 source was last crawled {oldest} before it begins"
    over = duration(told.facts.positive("horizon"), told.unit)
    return f": {old:,} sources were last crawled over {over} before it begins, the oldest {oldest}"


def hosts(told: Context, folder: PlanFolder | None = None) -> Finding | None:
    """Return hosts: their load over time, and binding limits."""
    found, load = told.findings.within("hosts"), None if folder is None else folder.hosts
    if load is None and not found:
        return None
    finding = Finding("hosts", "host limits", _limits(told, found) if found else "")
    if folder is None:
        return finding
    charts = () if load is None else (load_charts.by_host(load, folder.clock, told.words),)
    facts: dict[str, Any] = {
        "load": None if load is None else _by_host(told, load, folder.clock),
        "limits": bool(found),
    }
    table = None
    if found and found.whole("binding"):
        rows, binding = found.rows("hosts"), found.whole("binding")
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
        caption = listed("Binding limits, highest shadow price first", len(rows), binding)
        table = Table.of(caption, "host", heads, cells)
    return finding.section("Hosts", facts, table, charts)


def _limits(told: Context, found: Facts) -> str:
    """Return the hosts' limits that bind, the dearest first."""
    limits, rows, binding = (
        count(found.whole("limited"), "limit"),
        found.rows("hosts"),
        found.whole("binding"),
    )
    if not rows:
        return f"none of {limits} binds"
    verb = "raises" if told.maximised else "lowers"
    each = [f"{told.shown(row.number('price'))} for {row.name('host')!r}" for row in rows[:_HOSTS]]
    more = binding - len(each)
    rest = f"; {more:,} more bind" if more > 0 else ""
    higher = f"a limit higher by 1 {told.words.bandwidth} per {told.unit}"
    words = f"{higher} {verb} {told.goal.noun} by at most {', '.join(each)}{rest}"
    return f"{binding:,} of {limits} {'binds' if binding == 1 else 'bind'}: {words}"


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
    caption = listed("Load by host, the highest first", len(load.hosts), load.of)
    return Table.of(caption, "host", heads, cells)


def made(told: Context, folder: PlanFolder | None = None) -> Finding | None:
    """Return the settings that reproduce the plan."""
    if folder is None:
        return None
    facts, counts, requests = told.facts, told.counts, told.shares == "requests"
    settings, log, change = (facts.within(key) for key in ("settings", "log", "change_rate"))
    rows: list[tuple[str, str]] = []
    if "command" in facts.values:
        rows.append(("command", _code(facts.text("command"))))
    crawl, noun = ("fetches", "fetch") if requests else ("crawls", "crawl")
    span = f", {told.moment('begin')} to {told.moment('end')}" if log and not requests else ""
    size = f"{count(counts.whole(crawl), noun)} of {count(told.sources, 'source')}{span}"
    rows.append(("log", f"{size}; {counts.whole(f'{crawl}_that_found_a_change'):,} found a change"))
    if requests:
        rows.append(("requests", Html(f"{amount(facts.number('request_rate'))} per {told.unit} in total")))
    if change:
        rows.append(("estimator", _code(change.text("estimator"))))
        rows.append(("change rates", Html(f"{amount(change.number('sum'))} per {told.unit} in total")))
    if settings or not requests:
        objective = (settings or facts).text("objective")
        how = "" if requests else escaped(f", {facts.text('discipline')} {told.words.rates}")
        rows.append(("objective", Html(f"{_code(objective)}{how}")))
    if not requests:
        rows.append(("solver", _code(facts.text("solver"))))
    if settings:
        low, high = settings.maybe("min_rate"), settings.maybe("max_rate")
        bounds = [] if not low else [f"at least {number(low)}"]
        bounds += [] if high is None else [f"at most {number(high)}"]
        what = "fetch rates" if requests else "rates"
        rows += [(what, f"{', '.join(bounds)} per {told.unit}")] if bounds else []
    if settings and not requests:
        draws = count(settings.whole("draws"), "posterior sample")
        rows.append(("seed", f"{settings.whole('seed')}, {draws}"))
    versions = facts.within("versions")
    if versions:
        rows.append(("versions", ", ".join(f"{key} {versions.text(key)}" for key in versions.values)))
    rows.append(("files beside this page", ", ".join([*folder.names, "summary.json"])))
    return Finding("made", "settings").section("Settings", {"rows": rows})


def _code(text: str) -> Html:
    return Html(f"<code>{escaped(text)}</code>")


# Interval of the value that is told.
_LEVEL = "90 %"


def proof(told: Context, folder: PlanFolder | None = None) -> Finding:
    """Return what is proved of the rates."""
    finding = Finding("proof", "certificate", _proved(told))
    if folder is None:
        return finding
    bound, gap = told.facts.maybe("bound"), told.facts.maybe("gap")
    declared = told.facts.within("constraints")
    limits = "the bounds and the constraints" if declared else "the bandwidth, the bounds and the host limits"
    facts = {"bound": bound, "gap": gap, "gap_text": "" if gap is None else f"{gap:.2g}", "limits": limits}
    return finding.section("Proof", facts)


def _proved(told: Context) -> str:
    """Return what is proved, in words."""
    facts, gap = told.facts, told.facts.maybe("gap")
    if facts.maybe("bound") is None or gap is None:
        return "none"
    if facts.within("few_changes") and facts.text("status") != "optimal":
        return f"old intervals are kept: no rates at all are better by more than {told.shown(gap)}"
    reason = facts.text("reason") if "reason" in facts.values else ""
    own = facts.text("objective") == "Expected"
    relative = facts.maybe("relative_gap")
    status = facts.text("status")
    shown = "not proved optimal" if status == "optimal" and not told.proved else status
    return proved_text(shown, gap, relative, reason, given=own)


def certainty(told: Context, folder: PlanFolder | None = None) -> Finding | None:
    """Return estimates: their intervals, the posterior value, what more data would bring."""
    spread, forecast = told.facts.within("uncertainty"), told.facts.within("forecast")
    lines = [_expected(told, forecast)] if forecast else []
    lines += [_regret(told, spread, alone=not forecast)] if spread else []
    finding = Finding("certainty", "expected", "\n".join(line for line in lines if line))
    if folder is None:
        return finding
    level = told.facts.within("settings").maybe("confidence")
    intervals = "intervals" if level is None else f"{percent(level)} intervals"
    facts = {"known": bool(lines), "flags": [f"{many:,} {kind}" for kind, many in told.flags.items()]}
    chart = source_charts.reach(folder.seen, told.unit, intervals)
    return finding.section("How sure the change rates are", facts, charts=(chart,))


def _expected(told: Context, forecast: Facts) -> str:
    """Return the value to be expected, and what back-tests say of it."""
    ratios = forecast.numbers("realised_over_predicted")
    low, high = forecast.ends("value_90_percent")
    if not ratios and low == high:
        return ""
    expected = forecast.number("expected")
    return f"{told.goal.noun} {expected_text(expected, low, high, [*filter(None, ratios)], told.shown)}"


def _regret(told: Context, spread: Facts, *, alone: bool) -> str:
    """Return what more data would bring, and the value's interval."""
    relative, loss = spread.maybe("relative_regret"), told.shown(spread.number("mean_regret"))
    most = loss if relative is None else percent(relative, space=" ")
    samples = count(spread.whole("draws"), "sample")
    text = f"more data would help by about {most} on average ({samples} of the change rates)"
    if not alone:
        return text
    low, high = spread.ends("value_90_percent")
    return f"{told.goal.noun} in a {_LEVEL} interval {ends_in_words(low, high, told.shown)}; {text}"
