"""Table of the largest changes of `freshopt plan --compare`."""

from __future__ import annotations

import numpy as np

from freshopt.planning.plan import Plan
from freshopt.questions.rate_changes import RateChanges
from freshopt.report.objective_names import goal_of
from freshopt.report.value_words import amount
from freshopt.terminal.console import count, fitted, plain
from freshopt.units import duration


def changes_table(found: RateChanges, plan: Plan) -> str:
    """Return the changes that bring most, one line each.

    What a change brings is net of the bandwidth's price: less bandwidth for the same is a gain too.
    """
    objective, unit = type(plan.request.objective).__name__, plan.log.time_unit
    largest, sources = found.largest, plan.sources
    if not len(largest):
        return "No interval changes."
    lines = [("", "old interval", "new interval", f"gain in {goal_of(objective).noun}")]
    for k in largest.tolist():
        old, new = (_interval(rate, unit) for rate in (found.old[k], plan.solution.rates[k]))
        gain = amount(objective, float(found.gain[k]), unit) if np.isfinite(found.gain[k]) else "all"
        lines.append((plain(sources.label(k)), old, new, gain))
    net = ", net of the bandwidth's price" if found.priced else ""
    return f"The {count(len(largest), 'change')} that bring most{net}:\n{fitted(lines)}"


def _interval(rate: float, unit: str) -> str:
    """Return an interval in words."""
    return duration(1.0 / rate, unit) if rate > 0.0 else "never"
