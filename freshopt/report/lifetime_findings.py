"""Lifetimes: key numbers, and comparison with those given by hand."""

from __future__ import annotations

from typing import Any

from freshopt.formatting import count, number, percent
from freshopt.report import overview
from freshopt.report.context import Context, tidy
from freshopt.report.finding import Finding
from freshopt.report.value_words import meaning
from freshopt.units import duration

# Of the rules' names in a summary.
PLAN, TIME = "plan", "over time"


def lead(told: Context) -> str:
    """Return what the plan is expected to achieve, in one sentence."""
    used, fresh = count(tidy(told.facts.number("bandwidth_used")), "fetch"), _fresh(told)
    begin = f"With {used} per {told.unit} for {count(told.sources, 'source')}"
    if PLAN not in fresh:
        return f"{begin}, this plan has an expected {told.goal.noun} of {number(told.value)}."
    other = [f"{percent(share)} with {name}" for name, share in fresh.items() if name not in (PLAN, TIME)]
    against = f", against {' and '.join(other)}" if other else ""
    return f"{begin}, {percent(fresh[PLAN])} of requests are expected to find a fresh copy{against}."


def key_numbers(told: Context) -> dict[str, Any]:
    """Return the key numbers."""
    fresh, often = _fresh(told), {"never_fetched": "never fetched again"}
    often |= {"fetched_at_each_request": "fetched at each request"}
    told.facts.positive("bandwidth")
    return overview.key_numbers(told) | {
        "fresh": fresh.get(PLAN),
        "over_time": fresh.get(TIME),
        "priced": told.goal.noun,
        "often": [(told.counts.whole(key), words) for key, words in often.items()],
    }


def comparison(told: Context) -> Finding:
    """Return the comparison with the lifetimes that people give by hand."""
    rules, fresh = told.facts.within("baselines"), _fresh(told)
    values = [("this plan", told.value)]
    values += [] if rules is None else [(key, rules.number(key)) for key in rules.values]
    shares = [fresh.get(PLAN if k == 0 else key) for k, (key, _) in enumerate(values)]
    caption, share_head = (
        f"Within the same bandwidth, for the {told.supposed}",
        "requests that find a fresh copy",
    )
    table = overview.compared(caption, "lifetimes", told.value_head, values, share_head, shares)
    what, windows = meaning(told.facts.text("objective")), told.facts.within("stale_while_revalidate")
    # What a request finds whose copy has expired.
    expired = "A request that fetches finds a fresh copy."
    if windows is not None:
        most = duration(windows.number("longest"), told.unit)
        expired = (
            f"An expired copy is served as it is for up to {most} while it is fetched; then requests wait."
        )
    words = (
        f"{f'What counts: {what}. ' if what else ''}The value is the mean over a source's requests, summed "
        f"over all sources by their importance. {expired}"
    )
    return Finding("comparison", "Comparison with simple rules", words, table=table)


def _fresh(told: Context) -> dict[str, float]:
    """Return the shares of plan, time, and simple rules."""
    found = told.facts.within("requests_see_fresh")
    return {} if found is None else {key: found.number(key) for key in found.values}
