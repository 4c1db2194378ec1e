"""The table of `freshopt plan --replay`: what policies cost on the part of the log that was held out."""

from __future__ import annotations

import numpy as np

from freshopt.cli.console import count, number
from freshopt.held_out import HeldOut
from freshopt.planning import Plan

WORDS = {
    "plan": "this plan",
    "uniform": "equal rates",
    "proportional": "rates ∝ change rates",
    "current": "the log's own crawls",
    "plan at current": "this plan, as many refreshes",
}


def replay_table(held: HeldOut, plan: Plan) -> str:
    """Return the table, one line a policy, under a line that says what was held out."""
    unit, objective = plan.log.time_unit, plan.solution.problem.objective
    better = "higher" if objective.sense == "maximise" else "lower"
    left = (
        f"; {count(held.left_out, 'source')} not crawled before and in it left out" if held.left_out else ""
    )
    lines = [
        f"On the last {count(held.end - held.begin, unit)}, which this plan has not seen "
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
    if any(row.policy == "current" for row in held.rows):
        lines.append("A change counts from the middle of the gap in which the log's crawls found it.")
    return "\n".join(lines)
