"""Sections about the plan: certificate, load, bandwidth, hosts, settings."""

from __future__ import annotations

import numpy as np

from freshopt.formatting import count, number, percent
from freshopt.report import plan_charts
from freshopt.report.components import Column, Section, amount, facts_list, name, paragraph, table
from freshopt.report.context import Context
from freshopt.report.markup import Child, element
from freshopt.report.overview import _tidy, gap_text
from freshopt.report.plan_charts import Load, Points
from freshopt.report.source_sections import gains
from freshopt.report.summary_facts import Facts

# Relative differences below this may be those of two solves of one problem.
SAME = 1e-6


def proof(told: Context) -> Section:
    """Return the section of the optimality certificate."""
    facts, noun = told.facts, told.goal.noun
    bound, gap, relative = (facts.maybe(key) for key in ("bound", "gap", "relative_gap"))
    optimal = told.proved
    if bound is None or gap is None:
        return Section.of("proof", "Optimality certificate", paragraph("Nothing is proved about this plan."))
    side = "above" if told.maximised else "below"
    near = f" (relative: {gap_text(relative)})" if relative is not None else ""
    outcome: list[Child] = [
        element("b", f"Proved optimal for the {told.supposed}." if optimal else "Not proved optimal."),
        f" At these change rates, no refresh rates within {_limits(told)} have a {noun} {side} ",
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


def load(told: Context, seen: Load, since: str) -> Section:
    """Return the section of the schedule's load over time."""
    facts, unit = told.facts, told.unit
    horizon, planned = facts.positive("horizon"), told.counts.whole("refreshes")
    mean, most = planned / horizon, float(seen.rates.max())
    text: list[Child] = [
        f"{count(planned, 'refresh')} in {count(_tidy(horizon), unit)}, by ",
        element("code", facts.text("method")),
        f": on average {number(mean)} per {unit}",
        f"; the busiest step of {plan_charts.step(seen, unit)} has {number(most / mean)} times the mean."
        if planned
        else ".",
    ]
    value: list[Child] = []
    if facts.maybe("schedule_value") is not None:
        value = [
            f"The {told.goal.noun} expected over this time is ",
            amount(facts.number("schedule_value")),
            ", in the long run ",
            amount(told.value),
            ". Here copies begin with the age that they have at the end of the log, and refreshes are whole.",
        ]
    return Section.of(
        "load",
        "Load over time",
        paragraph(*text),
        plan_charts.load_chart(
            seen, None if facts.maybe("bandwidth") is None else facts.positive("bandwidth"), unit, since
        ),
        paragraph(*value, kind="small faint") if value else None,
    )


def bandwidth(told: Context) -> Section | None:
    """Return the section of value and price over bandwidth."""
    facts, unit = told.facts, told.unit
    rows = [
        (row.positive("bandwidth"), row.maybe("value"), row.maybe("price"))
        for row in told.findings.rows("frontier")
    ]
    known = [(b, value, price) for b, value, price in rows if value is not None and price is not None]
    if len(known) < 2:
        return None
    points = Points.of(known, facts.positive("bandwidth"), facts.text("sense"))
    words: list[Child] = _price(told, points)
    if np.ptp(points.value) <= SAME * abs(told.value) and not np.any(points.price > 0.0):
        least = f"{number(float(points.bandwidth[0]))} per {unit}"
        words.append(f" The {told.goal.noun} is the same at every bandwidth from {least} on that was solved.")
        return Section.of("bandwidth", "Value of bandwidth", paragraph(*words))
    columns = [Column("bandwidth"), Column(f"per {unit}", "number"), Column(told.goal.noun, "number")]
    columns += [Column("difference from this plan's", "number"), Column("shadow price", "number")]
    own = facts.positive("bandwidth")
    shown = [(_times(b / own), b, value, each) for b, value, each in known if _is_round(b / own)]
    cells: list[list[Child]] = [
        [times, amount(b), amount(value), _difference(value, told.value), amount(each)]
        for times, b, value, each in shown
    ]
    here = next((k for k, (times, *_) in enumerate(shown) if times == "this plan"), None)
    body: list[Child] = [
        paragraph(*words),
        element(
            "div",
            [
                plan_charts.value_chart(points, unit, told.goal.noun),
                plan_charts.price_chart(points, unit),
            ],
            class_="figures",
        ),
        table(f"More and less bandwidth, each solved anew{_all_proved(told)}", columns, cells, own=here),
    ]
    small = [b for b, value, _ in rows if value is None]
    if small:
        what = "bounds" if told.facts.within("constraints") is None else "bounds and constraints"
        body.append(paragraph(f"{number(max(small))} per {unit} or less does not suffice for the {what}."))
    more = told.findings.within("more_bandwidth")
    if more is not None and more.rows("sources"):
        body += _gain(told, more)
    return Section.of("bandwidth", "Value of bandwidth", body)


def _price(told: Context, points: Points) -> list[Child]:
    """Return the shadow price with what certificate and values prove."""
    price, unit = told.facts.number("price"), told.unit
    if price > 0.0:
        words: list[Child] = [
            "The shadow price of the bandwidth is ",
            amount(price),
            f" of {told.goal.noun} per refresh/{unit}",
        ]
        marginal = f": the marginal value, an upper bound on what one more refresh per {unit} gains"
        return [*words, f"{marginal if told.proved else ''}."]
    more = points.better * (points.value[points.here :] - points.value[points.here])
    if told.proved and np.all(more <= SAME * abs(told.value)):
        return ["The bandwidth does not bind: its shadow price is 0, and more of it brings nothing."]
    return ["The shadow price of the bandwidth is 0."]


def _all_proved(told: Context) -> str:
    """Return the words for a frontier whose points are all certified."""
    solved = [row for row in told.findings.rows("frontier") if row.maybe("value") is not None]
    return " and proved optimal" if all(row.values.get("status") == "optimal" for row in solved) else ""


def _gain(told: Context, more: Facts) -> list[Child]:
    """Return what more bandwidth changes, and for which sources."""
    value, raised = more.number("value"), more.number("bandwidth") / told.facts.positive("bandwidth") - 1.0
    direction = "more" if value > told.value else "less"
    return [
        element(
            "h3", f"{percent(raised)} more bandwidth: {number(more.number('bandwidth'))} per {told.unit}"
        ),
        paragraph(
            f"{told.goal.noun.capitalize()} ",
            amount(value),
            f" in place of {number(told.value)}, {number(abs(value - told.value))} {direction}.",
        ),
        gains(told, more.rows("sources")),
    ]


def hosts(told: Context) -> Section | None:
    """Return the section of binding host limits, or None."""
    found = told.findings.within("hosts")
    if found is None:
        return None
    limited, binding = found.whole("limited"), found.whole("binding")
    binds = "binds" if binding == 1 else "bind"
    head = f"{f'{binding:,}' if binding else 'None'} of {count(limited, 'limit')} {binds}."
    if not binding:
        text = " No host would be refreshed more often without its limit." if told.proved else ""
        return Section.of("hosts", "Host limits", paragraph(f"{head}{text}"))
    unit = told.unit
    columns = [Column("host"), Column("sources", "number"), Column(f"limit per {unit}", "number")]
    columns += [Column("used, of the limit", "number"), Column("shadow price", "number")]
    rows = found.rows("hosts")
    cells: list[list[Child]] = [
        [
            name(row.name("host")),
            f"{row.whole('sources'):,}",
            amount(row.positive("limit")),
            amount(row.number("used"), percent(min(row.number("used") / row.positive("limit"), 1.0))),
            amount(row.number("price")),
        ]
        for row in rows
    ]
    text = (
        f"{head} The shadow price of a limit is the marginal value of one more refresh per {unit} of that "
        f"host, on "
        f"top of the shadow price of bandwidth, {number(told.facts.number('price'))}."
    )
    caption = "Binding limits, highest shadow price first"
    caption += f": the first {len(rows):,} of {binding:,}" if len(rows) < binding else ""
    return Section.of("hosts", "Host limits", paragraph(text), table(caption, columns, cells))


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
    rows.append(("objective", [element("code", objective), f", {facts.text('discipline')} refreshes"]))
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


def _times(ratio: float) -> str:
    return "this plan" if abs(ratio - 1.0) < 1e-9 else f"{ratio:g} times"


def _is_round(ratio: float) -> bool:
    """Return whether a bandwidth gets a row of the table.

    It does at a quarter, a half, one and a half, two and three times the plan's, and at the plan's.
    """
    return any(abs(ratio - each) < 1e-9 for each in (0.25, 0.5, 1.0, 1.5, 2.0, 3.0))


def _difference(value: float, own: float) -> Child:
    share = (value - own) / abs(own) if own != 0.0 else 0.0
    if abs(share) < SAME:
        return None
    return f"{'+' if share > 0 else '−'}{percent(abs(share), even=True)}"
