"""Lifetimes: key numbers, and comparison with those given by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshopt.formatting import count, number, percent
from freshopt.heavy import polars
from freshopt.report import source_charts
from freshopt.report.context import Context, tidy
from freshopt.report.finding import Finding
from freshopt.report.plan_tables import PlanFolder
from freshopt.report.saving import compared
from freshopt.report.source_sample import POINTS
from freshopt.report.value_words import meaning, spread_text
from freshopt.units import duration, rate_text

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
    """Return the key numbers of lifetimes."""
    fresh, used = _fresh(told), told.facts.number("bandwidth_used")
    often = {"never_fetched": "never fetched again", "fetched_at_each_request": "fetched at each request"}
    bandwidth = told.facts.positive("bandwidth")
    return {
        "used": used,
        "bandwidth": bandwidth,
        "whole": abs(used - bandwidth) <= 1e-9 * bandwidth,
        "price": told.facts.maybe("price"),
        "fresh": fresh.get(PLAN),
        "over_time": fresh.get(TIME),
        "often": [(told.counts.whole(key), words) for key, words in often.items()],
    }


def requests(told: Context) -> Finding:
    """Return how many requests there are."""
    words = f"{rate_text(told.facts.number('request_rate'), told.unit, 'request')} in all"
    return Finding("requests", "requests", words)


def lifetimes(told: Context, folder: PlanFolder | None = None) -> Finding:
    """Return how long copies are kept, against change rates and request rates."""
    found, counts = told.facts.within("lifetimes"), told.counts
    ends = [found.positive(key) for key in ("shortest", "median", "longest")] if found else []
    spread = spread_text(ends[0], ends[1], ends[2], told.unit) if ends else "none"
    never, always = counts.whole("never_fetched"), counts.whole("fetched_at_each_request")
    words = f"{spread}; {count(never, 'source')} never fetched again, {always:,} fetched at each request"
    finding = Finding("lifetimes", "lifetimes", words)
    if folder is None:
        return finding
    frame = polars.concat(folder.sources())
    columns = {key: frame[key].to_numpy() for key in ("change_rate", "request_rate", "lifetime")}
    columns["lifetime"] = np.where(np.isnan(columns["lifetime"]), np.inf, columns["lifetime"])
    charts = source_charts.lifetimes(frame["source"].to_list(), columns, told.unit, POINTS)
    return finding.section("Lifetimes", charts=tuple(charts))


def expired(told: Context) -> Finding | None:
    """Return what is served of copies that have expired."""
    windows = told.facts.within("stale_while_revalidate")
    if not windows:
        return None
    most = duration(windows.positive("longest"), told.unit)
    return Finding("expired", "expired", f"copies are served for up to {most} while they are fetched")


def seen(told: Context) -> Finding | None:
    """Return the shares of requests and of time with fresh copies."""
    fresh = _fresh(told)
    if PLAN not in fresh:
        return None
    told_of = {key: percent(share, space=" ") for key, share in fresh.items()}
    rules = ", ".join(f"{told_of[key]} with {key}" for key in told_of if key not in (PLAN, TIME))
    over = f"; copies are fresh {told_of[TIME]} of the time, as they age until somebody asks"
    words = f"{told_of[PLAN]} of requests find a fresh copy{f' ({rules})' if rules else ''}"
    return Finding("seen", "requests see", f"{words}{over if TIME in told_of else ''}")


def comparison(told: Context) -> Finding:
    """Return the comparison with the lifetimes that people give by hand."""
    rules, fresh = told.facts.within("baselines"), _fresh(told)
    values = [("this plan", told.value)]
    values += [(key, rules.number(key)) for key in rules.values]
    shares = [fresh.get(PLAN if k == 0 else key) for k, (key, _) in enumerate(values)]
    caption, share_head = (
        f"Within the same bandwidth, for the {told.supposed}",
        "requests that find a fresh copy",
    )
    table = compared(caption, "lifetimes", told.value_head, values, share_head, shares)
    what, windows = meaning(told.facts.text("objective")), told.facts.within("stale_while_revalidate")
    # What a request finds whose copy has expired.
    expired = "A request that fetches finds a fresh copy."
    if windows:
        most = duration(windows.number("longest"), told.unit)
        expired = (
            f"An expired copy is served as it is for up to {most} while it is fetched; then requests wait."
        )
    words = (
        f"{f'What counts: {what}. ' if what else ''}The value is the mean over a source's requests, summed "
        f"over all sources by their importance. {expired}"
    )
    return Finding("comparison", "value", words).section(
        "Compared with simple rules", {"meaning": words, "saving": None}, table
    )


def _fresh(told: Context) -> dict[str, float]:
    """Return the shares of plan, time, and simple rules."""
    found = told.facts.within("requests_see_fresh")
    return {key: found.number(key) for key in found.values}
