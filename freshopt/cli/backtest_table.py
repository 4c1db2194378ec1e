"""Backtest table of `freshopt plan --replay`.

One line per policy: its measured cost on the held-out part of the log.
"""

from __future__ import annotations

import numpy as np

from freshopt.cli.console import count, number
from freshopt.modelling.objective import Objective
from freshopt.planning.backtest import HeldOut
from freshopt.planning.plan import Plan

WORDS = {
    "plan": "this plan",
    "uniform": "equal rates",
    "proportional": "rates ∝ change rates",
    "current": "the log's own crawls",
    "plan at current": "this plan, no more refreshes",
}


def replay_table(held: HeldOut, plan: Plan) -> str:
    """Return the backtest table, one line per policy.

    A line above it says which part of the log was held out.
    """
    unit, objective = plan.log.time_unit, plan.solution.problem.objective
    better = "higher" if objective.sense == "maximise" else "lower"
    left = (
        f"; {count(held.left_out, 'source')} not crawled before and in it left out" if held.left_out else ""
    )
    lines = [
        f"On the last {count(held.end - held.begin, unit)}, held out from the plan "
        f"({count(held.sources, 'source')}{left}):"
    ]
    table = [("", f"refreshes per {unit}", f"value ({better} is better)", "± error", "copies fresh")]
    for row in held.rows:
        error = "" if np.isnan(row.cost.error) else number(row.cost.error)
        cells = (number(row.refreshes), number(row.cost.value), error, f"{100 * row.fresh:.1f} %")
        table.append((WORDS[row.policy], *cells))
    widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
    for first, *rest in table:
        right = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *right]))
    lines += ["", *_verdicts(held, objective)]
    if any(row.policy == "current" for row in held.rows):
        lines.append(
            "A change counts from the middle of the crawl interval in which the log's crawls found it."
        )
    return "\n".join(lines)


def _verdicts(held: HeldOut, objective: Objective) -> list[str]:
    """Compare the plan with the log's crawls and equal rates."""
    rows = {row.policy: row for row in held.rows}
    pairs = [("plan", "uniform", "At the bandwidth asked for, equal rates", "")]
    if "plan at current" in rows:
        pairs.insert(0, ("plan at current", "current", "The log's own crawls", ", with no more refreshes,"))
    found = []
    for mine, other, who, how in pairs:
        ours, theirs = rows[mine], rows[other]
        stale, beside = 1.0 - ours.fresh, 1.0 - theirs.fresh
        text = f"{who} left copies stale {100 * beside:.1f} % of the time; this plan{how} {100 * stale:.1f} %"
        if beside > 0.0:
            text += f": {_compared(stale / beside)}"
        if objective.sense == "minimise" and theirs.cost.value > 0.0:
            text += f". What it minimises is {_compared(ours.cost.value / theirs.cost.value)}"
        found.append(f"{text}.")
    return found


def _compared(ratio: float) -> str:
    """Return a ratio in words.

    Examples
    --------
    >>> _compared(0.25), _compared(1.5), _compared(0.999)
    ('75 % less', '50 % more', 'the same')
    """
    change = 100.0 * (ratio - 1.0)
    if abs(change) < 0.5:
        return "the same"
    return f"{abs(change):.0f} % {'less' if change < 0 else 'more'}"
