"""Backtest table of `freshopt plan --replay`.

One line per policy: its measured cost on the held-out part of the log.
"""

from __future__ import annotations

import numpy as np

from freshopt.formatting import percent
from freshopt.modelling.phased_objective import plain
from freshopt.planning.backtest import HeldOut
from freshopt.planning.plan import Plan
from freshopt.report.held_out import MIDDLE, POLICIES, PolicyRow, verdicts
from freshopt.report.objective_names import goal_of
from freshopt.terminal.console import count, number


def replay_table(held: HeldOut, plan: Plan) -> str:
    """Return the backtest table, one line per policy.

    A line above it says which part of the log was held out, lines below which policy did best.
    """
    unit, objective = plan.log.time_unit, plain(plan.solution.problem.objective)
    maximised, noun = objective.sense == "maximise", goal_of(type(objective).__name__).noun
    better = "higher" if maximised else "lower"
    left = (
        f"; {count(held.left_out, 'source')} not crawled before and in it left out" if held.left_out else ""
    )
    lines = [
        f"On the last {count(held.end - held.begin, unit)}, held out from the plan "
        f"({count(held.sources, 'source')}{left}):"
    ]
    table = [("", f"refreshes per {unit}", f"{noun} ({better} is better)", "± error", "share of time fresh")]
    rows = [
        PolicyRow(
            row.policy,
            row.refreshes,
            row.cost.value,
            None if np.isnan(row.cost.error) else row.cost.error,
            row.fresh,
        )
        for row in held.rows
    ]
    for row in rows:
        error = "" if row.error is None else number(row.error)
        cells = (number(row.refreshes), number(row.value), error, percent(row.fresh, even=True, space=" "))
        table.append((POLICIES[row.policy], *cells))
    widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
    for first, *rest in table:
        right = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *right]))
    found = verdicts(rows, noun, maximised=maximised)
    lines += ["", *(text.replace("\xa0", " ") for text in found)]
    if any(row.policy == "current" for row in rows):
        lines.append(MIDDLE)
    return "\n".join(lines)
