"""Head of the page: summary sentence, key numbers, baselines."""

from __future__ import annotations

from freshopt.formatting import count, number, percent
from freshopt.report.components import Column, Section, amount, paragraph, table
from freshopt.report.context import Context
from freshopt.report.markup import Child, Markup, element
from freshopt.report.summary_facts import Facts

RULES = {"plan": "this plan", "uniform": "equal rates", "proportional": "rates ∝ change rates"}
POLICIES = RULES | {"current": "the log's own crawls", "plan at current": "this plan, no more refreshes"}
# Relative differences below this are printed as equality: with three digits they would not show.
SAME = 5e-4


def lead(told: Context) -> str:
    """Return the summary of the plan in one sentence."""
    bandwidth, noun = told.facts.number("bandwidth_used"), told.goal.noun
    refreshes = f"{count(_tidy(bandwidth), 'refresh')} per {told.unit}"
    begin = f"With {refreshes} for {count(told.sources, 'source')}, this plan"
    fresh = told.fresh("plan")
    if told.maximised and fresh is not None and noun == "freshness":
        middle = f"keeps copies up to date {percent(fresh)} of the time"
        other = told.fresh("uniform")
        rivals = "" if other is None or _same(fresh, other) else f", against {percent(other)} at equal rates"
    else:
        middle, rivals = _rivals(told)
    proved = told.facts.text("status") == "optimal"
    end = "no other rates can do better." if proved else "it is not proved that no other rates do better."
    return f"{begin} {middle}{rivals}; {end}"


def _rivals(told: Context) -> tuple[str, str]:
    """Return how the value compares with the baselines."""
    noun, other = told.goal.noun, told.better("uniform")
    word = "more" if told.maximised else "less"
    if other is None or abs(other) < SAME:
        return f"has a {noun} of {number(told.value)}", "" if other is None else ", the same as equal rates"
    middle = f"has {percent(abs(other))} {word if other > 0 else _opposite(word)} {noun} than equal rates"
    third = told.better("proportional")
    if third is None or third < SAME:
        return middle, ""
    return middle, f" and {percent(third)} {word} than rates in proportion to change rates"


def tiles(told: Context) -> Markup:
    """Return the key numbers with their descriptions."""
    facts, unit = told.facts, told.unit
    used, bandwidth, price = (facts.number(key) for key in ("bandwidth_used", "bandwidth", "price"))
    fresh, equal = told.fresh("plan"), told.fresh("uniform")
    cells: list[tuple[Child, Child]] = []
    if fresh is not None:
        beside = [] if equal is None else [f"; {percent(equal)} at equal rates"]
        cells.append((amount(fresh, percent(fresh)), ["of the time copies are up to date", beside]))
    cells.append(
        (amount(told.value), f"{told.goal.noun} ({'higher' if told.maximised else 'lower'} is better)")
    )
    whole = abs(used - bandwidth) <= 1e-9 * bandwidth
    of = ["all of the bandwidth"] if whole else ["of ", amount(bandwidth)]
    cells.append((amount(used), [f"refreshes per {unit}, ", of]))
    cells.append((amount(price), f"shadow price: {told.goal.noun} per one more refresh per {unit}"))
    never = told.counts.whole("never_refreshed")
    cells.append((amount(never, f"{never:,}"), f"of {count(told.sources, 'source')} never refreshed"))
    planned = told.counts.whole("refreshes")
    horizon = count(_tidy(facts.positive("horizon")), unit)
    cells.append((amount(planned, f"{planned:,}"), f"refreshes scheduled in {horizon}"))
    return element(
        "ul",
        [element("li", element("b", head), element("span", below)) for head, below in cells],
        class_="tiles",
    )


def comparison(told: Context) -> Section | None:
    """Return the comparison with baselines and on held-out data."""
    rows = [("plan", told.value), *((rule, told.baseline(rule)) for rule in ("uniform", "proportional"))]
    known = [(rule, value) for rule, value in rows if value is not None]
    held = told.facts.within("held_out")
    if len(known) == 1 and held is None:
        return None
    longest = max(abs(value) for _, value in known) or 1.0
    body: list[Child] = [paragraph(told.goal.meaning)]
    if len(known) > 1:
        fresh = [told.fresh(rule) for rule, _ in known]
        columns = [Column("rates"), Column(_value(told), "number"), Column("", "bar")]
        cells: list[list[Child]] = [
            [RULES[rule], amount(value), f"{abs(value) / longest:.4f}"] for rule, value in known
        ]
        if None not in fresh:
            columns.append(Column("copies up to date", "number"))
            for row, share in zip(cells, fresh, strict=True):
                row.append(amount(share or 0.0, percent(share or 0.0, even=True)))
        body.append(table("In the long run, at the same bandwidth", columns, cells, own=0))
    if held is not None:
        body.append(_held_out(told, held))
    return Section.of("comparison", "Comparison with baselines", body)


def _held_out(told: Context, held: Facts) -> list[Child]:
    """Return the policies' measured costs on held-out data."""
    span = count(_tidy(held.number("end") - held.number("begin")), told.unit)
    columns = [
        Column("policy"),
        Column(f"refreshes per {told.unit}", "number"),
        Column(_value(told), "number"),
        Column("± error", "number"),
        Column("copies up to date", "number"),
    ]
    rows: list[list[Child]] = []
    for row in held.rows("policies"):
        error, key = row.maybe("error"), row.text("policy")
        value, fresh = row.number("value"), row.number("fresh")
        rows.append(
            [
                POLICIES.get(key, key),
                amount(row.number("refreshes")),
                amount(value),
                None if error is None else amount(error),
                amount(fresh, percent(fresh, even=True)),
            ]
        )
    words = (
        f"Planned from the first part of the log and replayed on its last {span}, "
        f"{count(held.whole('sources'), 'source')}: measured, not predicted."
    )
    return [element("h3", "On held-out data"), table(words, columns, rows, own=0)]


def _value(told: Context) -> str:
    return f"{told.goal.noun} ({'higher' if told.maximised else 'lower'} is better)"


def _tidy(value: float) -> float:
    """Return a number rounded to ten digits.

    A whole number is returned as an int.
    """
    tidy = float(f"{value:.10g}")
    return int(tidy) if tidy.is_integer() and abs(tidy) < 1e15 else tidy


def _same(one: float, other: float) -> bool:
    return abs(one - other) < SAME


def _opposite(word: str) -> str:
    return "less" if word == "more" else "more"
