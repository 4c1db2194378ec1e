"""Summary of a plan in labelled rows.

``freshopt plan`` and a notebook print it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.certificates.certificate import Certificate
from freshopt.formatting import count, number, percent
from freshopt.numerics.arrays import Array
from freshopt.planning.declared import price_sentences
from freshopt.planning.plan_files import summary
from freshopt.units import SECONDS

if TYPE_CHECKING:
    from freshopt.planning.plan import Plan

# Relative differences of values below this are lost in a sum of float64.
_RESOLVED = 1e-15
# Shares of the bandwidth below this are rounding.
_ROUNDING = 1e-9


def plan_rows(made: Plan, read: str | None = None, objective: str = "") -> list[tuple[str, str]]:
    """Return the labelled rows of a plan's summary.

    Parameters
    ----------
    made : Plan
    read : str, optional
        What was read, for the first row; by default the size of the log.
    objective : str
        The name that tells apart the objectives of one class.
    """
    facts, proof = summary(made), made.solution.certificate
    rows, unit = facts_rows(facts, objective), facts["time_unit"]
    size = f"{count(len(made.log), 'crawl')} of {count(len(made.sources), 'source')}"
    never = count(facts["counts"]["never_refreshed"], "source")
    return [
        ("log", f"{read or size}, {_span(made)}"),
        *((label, rows[label]) for label in ("change rates", "objective", "bandwidth")),
        ("intervals", f"{_spread(made.solution.rates, unit)}; {never} never refreshed"),
        ("value", rows["value"]),
        *_forecast(made),
        *_weekly(made, read),
        *_constraints(made),
        ("schedule", rows["schedule"] + _ages(made)),
        *_uncertainty(facts),
        (
            "certificate",
            f"{proved_words(facts['status'], facts['objective'])}: {_gap(proof)}" if proof else "none",
        ),
    ]


def facts_rows(facts: dict[str, Any], objective: str = "") -> dict[str, str]:
    """Return the rows that follow from ``summary.json`` alone, by label."""
    counts, unit, learnt = facts["counts"], facts["time_unit"], facts["change_rate"]
    median = f", median {number(learnt['median'])}" if "median" in learnt else ""
    flags = "".join(f", {times:,} {flag}" for flag, times in counts["flags"].items() if flag != "ok")
    kind = facts["objective"]
    goal = f"{kind}, {objective}" if objective and kind == "SynchronizationCost" else kind
    sense = "higher is better" if facts["sense"] == "maximise" else "lower is better"
    goal = "Spend, the least bandwidth that meets the constraints" if kind == "Spend" else f"{goal} ({sense})"
    others = "".join(f"; {rule} rates {number(value)}" for rule, value in facts["baselines"].items())
    limit = "" if facts["bandwidth"] is None else f" of {number(facts['bandwidth'])}"
    used = f"{number(facts['bandwidth_used'])}{limit} per {unit} used"
    planned = f"{count(counts['refreshes'], 'refresh')} in {count(facts['horizon'], unit)}, {facts['method']}"
    return {
        "change rates": f"total {number(learnt['sum'])} per {unit}{median}{flags}",
        "objective": f"{goal}, {facts['discipline']} refreshes",
        "bandwidth": f"{used}{_shadow_price(facts)}",
        "value": f"{number(facts['value'])} in the long run {_given(kind)}{others}",
        "schedule": f"{planned}, value over that time {number(facts['schedule_value'])}",
    }


def proved_words(status: str, objective: str = "") -> str:
    """Return what a certificate of that status proves.

    Examples
    --------
    >>> proved_words("optimal"), proved_words("inaccurate")
    ('optimal for the estimated change rates', 'inaccurate')
    """
    which = "change rates of the objective" if objective == "Expected" else "estimated change rates"
    return f"optimal for the {which}" if status == "optimal" else status


def _given(objective: str) -> str:
    """Return what the value supposes."""
    return (
        "for the change rates of the objective" if objective == "Expected" else "if the estimates are right"
    )


def _shadow_price(facts: dict[str, Any]) -> str:
    """Return the bandwidth's shadow price in words.

    Where it is 0, with the reason.
    """
    if facts["price"] is None:
        return ""
    if facts["price"] > 0.0:
        return f"; shadow price {number(facts['price'])} per refresh/{facts['time_unit']}"
    if facts["bandwidth_used"] >= (1.0 - _ROUNDING) * facts["bandwidth"]:
        return "; shadow price 0: more bandwidth gains nothing"
    limits = (
        "other constraints or maximum rates" if facts.get("constraints") else "maximum rates or host limits"
    )
    return f"; shadow price 0: {limits} are reached, or nothing is left to gain"


def _constraints(made: Plan) -> list[tuple[str, str]]:
    """Return the prices of declared constraints, a row each."""
    sentences = price_sentences(made.solution)
    return [("constraints" if k == 0 else "", text) for k, text in enumerate(sentences)]


def _forecast(made: Plan) -> list[tuple[str, str]]:
    """Return the expected value, where change rates matter to it."""
    found = made.forecast
    return (
        []
        if found is None or not (found.spread > 0.0 or len(found.ratios))
        else [("expected", found.sentence)]
    )


def _uncertainty(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the expected regret of estimation error."""
    found = facts["uncertainty"]
    if found is None:
        return []
    relative = found["relative_regret"]
    loss = number(found["mean_regret"])
    if relative is not None:
        base = f"the mean optimal value {number(found['mean_optimal_value'])}"
        loss += f", {percent(relative, space=' ')} of {base}"
    return [("uncertainty", f"expected regret of estimation error: {loss} ({found['draws']} samples)")]


def _weekly(made: Plan, read: str | None) -> list[tuple[str, str]]:
    """Return the row of the weekly cycle, if there is any."""
    if made.phases is None:
        return []
    flat = "load_limit=1" if read is None else "--load-limit 1"
    return [("weekly cycle", f"{made.phases.sentence}; {flat} keeps the load flat")]


def _spread(rates: Array, unit: str) -> str:
    """Return how far apart the refreshes of a source are."""
    refreshed = rates[rates > 0.0]
    if len(refreshed) == 0:
        return "none"
    least, median, most = np.quantile(1.0 / refreshed, [0.0, 0.5, 1.0])
    return f"from {number(least)} to {number(most)}, median {count(float(median), unit)}"


def _ages(made: Plan) -> str:
    """Return the copies' initial ages in words.

    Empty unless some source was last crawled longer ago than the horizon.

    Without it nobody could tell why a value over the horizon is far from that of the long run.
    """
    ages = made.log.age
    old = int(np.count_nonzero(ages > made.schedule.horizon))
    if old == 0:
        return ""
    horizon, unit, oldest = made.schedule.horizon, made.log.time_unit, float(np.max(ages))
    if old == 1:
        return f" (1 source was last crawled {count(oldest, unit)} before it begins)"
    over = f"{old:,} sources were last crawled over {count(horizon, unit)} before it begins"
    return f" ({over}, the oldest {number(oldest)})"


def _gap(proof: Certificate) -> str:
    """Return the relative duality gap, floored at float64 resolution.

    A smaller gap than float64 resolves in the value itself is given as a bound.
    """
    relative = proof.relative_gap
    if proof.vanishing and relative > _RESOLVED:
        return f"the optimal value is zero, duality gap {proof.gap:.1e}"
    text = f"relative duality gap {f'{relative:.1e}' if relative > _RESOLVED else f'< {_RESOLVED:.0e}'}"
    return f"{text}; {proof.reason}" if proof.reason else text


def _span(made: Plan) -> str:
    """Return the time that the log covers."""
    log = made.log
    begin, end = float(np.min(log.time)), log.end
    if log.origin is None:
        return f"time {number(begin)} to {count(end, log.time_unit)}"
    seconds = SECONDS[log.time_unit]
    first, last = (log.origin + timedelta(seconds=t * seconds) for t in (begin, end))
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
