"""Head of the page: summary sentence, key numbers, baselines."""

from __future__ import annotations

from freshopt.formatting import count, number, percent
from freshopt.report.components import Column, Section, amount, paragraph, table
from freshopt.report.context import Context, tidy
from freshopt.report.held_out import POLICIES, SAME, best_rival
from freshopt.report.held_out_section import policy_rows
from freshopt.report.markup import Child, Markup, element
from freshopt.report.value_words import less_fresh

RULES = {
    "plan": "this plan",
    "flat": "this plan at equal intervals",
    "uniform": "equal rates",
    "proportional": "rates ∝ change rates",
    "square-root": "rates ∝ √(importance × change rate)",
}
# Relative gaps below this are lost in the rounding of a sum of float64.
RESOLVED = 1e-15
# Baselines as the first sentence calls them.
RIVALS = {"uniform": "equal rates", "proportional": "rates in proportion to change rates"}


def lead(told: Context) -> str:
    """Return what the plan is expected to achieve, in one sentence."""
    bandwidth, noun = told.facts.number("bandwidth_used"), told.goal.noun
    refreshes = f"{count(tidy(bandwidth), told.words.bandwidth)} per {told.unit}"
    begin = f"With {refreshes} for {count(told.sources, 'source')}, this plan"
    fresh = told.fresh("plan")
    if told.facts.text("objective") == "Spend":
        middle = "meets its constraints with the least bandwidth"
        middle += "" if fresh is None else f"; copies are expected up to date {percent(fresh)} of the time"
    elif told.maximised and fresh is not None and noun == "freshness":
        middle = f"is expected to keep copies up to date {percent(fresh)} of the time"
        other, flat = told.fresh("uniform"), told.flat_fresh
        middle += "" if flat is None else f", {percent(flat)} at equal intervals"
        middle += "" if other is None or _same(fresh, other) else f", against {percent(other)} at equal rates"
    else:
        middle = _against_baselines(told)
    return f"{begin} {middle}.{_less_fresh(told)}"


def _less_fresh(told: Context) -> str:
    """Return that copies are fresh for less time.

    Than at equal rates, where they are.
    """
    fresh, other = told.fresh("plan"), told.fresh("uniform")
    less = less_fresh(told.facts.text("objective"), {"plan": fresh, "uniform": other})
    if not less or fresh is None or other is None:
        return ""
    return f" Copies are up to date {percent(fresh)} of the time, not {percent(other)}: {less}."


def standing(told: Context) -> str:
    """Return what is proved, and what held-out data say against it."""
    return f"{_certified(told)}{_out_of_sample(told)}"


def answers(told: Context) -> list[str]:
    """Return what the freshness asked for, and today's, needs."""
    asked, today = told.facts.within("needed"), told.facts.within("today")
    found = [part.text("sentence") for part in (asked, today) if part and "sentence" in part.values]
    same = today is None or "cut" not in today.values
    if len(found) > 1 and same and found[0].startswith("as fresh as today"):
        found = found[1:]
    return [f"{text[0].upper()}{text[1:]}.".replace(" %", "\xa0%") for text in found if text]


def _against_baselines(told: Context) -> str:
    """Return how the value compares with each baseline."""
    noun = told.goal.noun
    better = {words: told.better(rule) for rule, words in RIVALS.items()}
    known = {words: share for words, share in better.items() if share is not None}
    value = f"has an expected {noun} of {number(told.value)}"
    if not known:
        return value
    if all(abs(share) < SAME for share in known.values()):
        return f"{value}, the same as {' and '.join(known)}"
    shares = [_difference(told, words, share) for words, share in known.items()]
    first, rest = shares[0], "".join(f" and {amount} {than}" for amount, than in shares[1:])
    return f"has {first[0]} expected {noun} {first[1]}{rest}{_good_hours(told)}"


def _good_hours(told: Context) -> str:
    """Return what the weekly cycle brings, which baselines do not have."""
    cycle = told.facts.within("phases")
    if cycle is None or told.flat_value is None:
        return ""
    return f", all at equal intervals; good hours of the week save {percent(cycle.number('saved'))} more"


def _difference(told: Context, words: str, share: float) -> tuple[str, str]:
    if abs(share) < SAME:
        return "as much", f"as {words}"
    more = "more" if (share > 0.0) == told.maximised else "less"
    return f"{percent(abs(share))} {more}", f"than {words}"


def _certified(told: Context) -> str:
    """Return what is proved of the rates, and for which change rates."""
    relative = told.facts.maybe("relative_gap")
    gap = f" (relative duality gap {gap_text(relative)})" if relative is not None else ""
    if told.proved:
        return f"It is optimal for the {told.supposed}{gap}."
    return f"It is not proved optimal{gap}."


def _out_of_sample(told: Context) -> str:
    """Return the policy that did better on held-out data, if any."""
    held = told.facts.within("held_out")
    best = None if held is None else best_rival(policy_rows(held))
    return "" if best is None else f" On held-out data {POLICIES[best.policy]} did better."


def tiles(told: Context) -> Markup:
    """Return the key numbers with their descriptions."""
    facts, unit = told.facts, told.unit
    used, bandwidth, price = facts.number("bandwidth_used"), facts.maybe("bandwidth"), facts.maybe("price")
    fresh, equal = told.fresh("plan"), told.fresh("uniform")
    cells: list[tuple[Child, Child]] = []
    if fresh is not None:
        flat = told.flat_fresh
        beside = [] if flat is None else [f"; {percent(flat)} at equal intervals"]
        beside += [] if equal is None else [f"; {percent(equal)} at equal rates"]
        cells.append((amount(fresh, percent(fresh)), ["of the time copies are expected up to date", beside]))
    if told.facts.text("objective") != "Spend":
        cells.append((amount(told.value), told.value_head))
    of: list[Child] = []
    if bandwidth is not None:
        whole = abs(used - bandwidth) <= 1e-9 * bandwidth
        of = [", all of the bandwidth"] if whole else [", of ", amount(bandwidth)]
    words, asking = told.words, facts.within("changed_cost")
    cells.append((amount(used), [f"{words.uses} per {unit}", of]))
    if asking is not None and used > 0.0:
        share = asking.number("asking") / used
        rest = f"of the bandwidth to ask, {percent(1.0 - share)} to download what changed"
        cells.append((amount(share, percent(share)), rest))
    if price is not None:
        cells.append(
            (amount(price), f"shadow price: {told.measure} per one more {words.bandwidth} per {unit}")
        )
    never = told.counts.whole("never_refreshed")
    cells.append((amount(never, f"{never:,}"), f"of {count(told.sources, 'source')} never refreshed"))
    planned = told.counts.whole("refreshes")
    horizon = count(tidy(facts.positive("horizon")), unit)
    cells.append((amount(planned, f"{planned:,}"), f"{words.rates} scheduled in {horizon}"))
    return element(
        "ul",
        [element("li", element("b", head), element("span", below)) for head, below in cells],
        class_="tiles",
    )


def comparison(told: Context) -> Section | None:
    """Return the comparison with baselines."""
    own = {"plan": told.value, "flat": told.flat_value}
    rows = [(rule, own[rule] if rule in own else told.baseline(rule)) for rule in RULES]
    known = [(rule, value) for rule, value in rows if value is not None]
    if all(rule in own for rule, _ in known):
        return None
    longest = max(abs(value) for _, value in known) or 1.0
    body: list[Child] = [paragraph(told.goal.meaning)]
    fresh = [told.flat_fresh if rule == "flat" else told.fresh(rule) for rule, _ in known]
    columns = [Column("rates"), Column(told.value_head, "number"), Column("", "bar")]
    cells: list[list[Child]] = [
        [RULES[rule], amount(value), f"{abs(value) / longest:.4f}"] for rule, value in known
    ]
    if None not in fresh:
        columns.append(Column("share of time up to date", "number"))
        for row, share in zip(cells, fresh, strict=True):
            row.append(amount(share or 0.0, percent(share or 0.0, even=True)))
    caption = f"In the long run and within the same bandwidth, for the {told.supposed}"
    caption += (
        "" if told.flat_value is None else "; of all these, this plan alone knows good hours of the week"
    )
    body.append(table(caption, columns, cells, own=0))
    return Section.of("comparison", "Comparison with baselines", body)


def gap_text(relative: float) -> str:
    """Return a relative duality gap, floored at float64 resolution.

    Examples
    --------
    >>> gap_text(0.0), gap_text(3e-10)
    ('below 1e-15', '3.0e-10')
    """
    return "below 1e-15" if relative < RESOLVED else f"{relative:.1e}"


def _same(one: float, other: float) -> bool:
    return abs(one - other) < SAME
