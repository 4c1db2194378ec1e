"""Head of the page: summary sentence, proof, answers, key numbers, baselines."""

from __future__ import annotations

from typing import Any

from freshopt.formatting import count, number, percent
from freshopt.report.context import Context, tidy
from freshopt.report.finding import Column, Finding, Table
from freshopt.report.held_out import POLICIES, SAME, best_rival
from freshopt.report.held_out_section import policy_rows
from freshopt.report.markup import amount
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
        alike = other is None or abs(fresh - other) < SAME
        middle += "" if alike else f", against {percent(other or 0.0)} at equal rates"
    else:
        middle = _against_baselines(told)
    return f"{begin} {middle}.{_less_fresh(told)}"


def standing(told: Context) -> str:
    """Return what is proved, and what held-out data say against it."""
    relative = told.facts.maybe("relative_gap")
    gap = f" (relative duality gap {gap_text(relative)})" if relative is not None else ""
    outcome = (
        f"It is optimal for the {told.supposed}{gap}." if told.proved else f"It is not proved optimal{gap}."
    )
    held = told.facts.within("held_out")
    best = None if held is None else best_rival(policy_rows(held))
    return outcome if best is None else f"{outcome} On held-out data {POLICIES[best.policy]} did better."


def answers(told: Context) -> list[str]:
    """Return what the freshness asked for, and today's, needs."""
    asked, today = told.facts.within("needed"), told.facts.within("today")
    found = [part.text("sentence") for part in (asked, today) if part and "sentence" in part.values]
    same = today is None or "cut" not in today.values
    if len(found) > 1 and same and found[0].startswith("as fresh as today"):
        found = found[1:]
    return [f"{text[0].upper()}{text[1:]}.".replace(" %", "\xa0%") for text in found if text]


def key_numbers(told: Context) -> dict[str, Any]:
    """Return the key numbers that every plan has."""
    facts, used, bandwidth = told.facts, told.facts.number("bandwidth_used"), told.facts.maybe("bandwidth")
    asking = facts.within("changed_cost")
    share = asking.number("asking") / used if asking is not None and used > 0.0 else None
    return {
        "used": used,
        "bandwidth": bandwidth,
        "whole": bandwidth is not None and abs(used - bandwidth) <= 1e-9 * bandwidth,
        "asking": share,
        "downloads": None if share is None else 1.0 - share,
        "price": facts.maybe("price"),
    }


def plan_numbers(told: Context) -> dict[str, Any]:
    """Return the key numbers of a plan with a schedule."""
    return key_numbers(told) | {
        "fresh": told.fresh("plan"),
        "equal": told.fresh("uniform"),
        "priced": told.measure,
        "often": [(told.counts.whole("never_refreshed"), "never refreshed")],
        "planned": told.counts.whole("refreshes"),
        "horizon": tidy(told.facts.positive("horizon")),
    }


def comparison(told: Context) -> Finding | None:
    """Return the comparison with baselines."""
    own = {"plan": told.value, "flat": told.flat_value}
    rows = [(rule, own[rule] if rule in own else told.baseline(rule)) for rule in RULES]
    known = [(rule, value) for rule, value in rows if value is not None]
    if all(rule in own for rule, _ in known):
        return None
    caption = f"In the long run and within the same bandwidth, for the {told.supposed}"
    flat = "; of all these, this plan alone knows good hours of the week"
    caption += "" if told.flat_value is None else flat
    shares = [told.flat_fresh if rule == "flat" else told.fresh(rule) for rule, _ in known]
    values = [(RULES[rule], value) for rule, value in known]
    table = compared(caption, "rates", told.value_head, values, "share of time up to date", shares)
    return Finding("comparison", "Comparison with baselines", told.goal.meaning, table=table)


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


def gap_text(relative: float) -> str:
    """Return a relative duality gap, floored at float64 resolution.

    Examples
    --------
    >>> gap_text(0.0), gap_text(3e-10)
    ('below 1e-15', '3.0e-10')
    """
    return "below 1e-15" if relative < RESOLVED else f"{relative:.1e}"


def _less_fresh(told: Context) -> str:
    """Return that copies are less fresh than at equal rates."""
    fresh, other = told.fresh("plan"), told.fresh("uniform")
    less = less_fresh(told.facts.text("objective"), {"plan": fresh, "uniform": other})
    if not less or fresh is None or other is None:
        return ""
    return f" Copies are up to date {percent(fresh)} of the time, not {percent(other)}: {less}."


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
    first, rest = shares[0], "".join(f" and {much} {than}" for much, than in shares[1:])
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
