"""Backtest table of `freshopt plan --replay`.

One line per policy: what was predicted of it and its measured cost on the held-out part of the log.
"""

from __future__ import annotations

import numpy as np

from freshopt.formatting import percent
from freshopt.planning.backtest import BackTest
from freshopt.planning.plan import Plan
from freshopt.planning.plan_files import summary
from freshopt.planning.policies import PHASED
from freshopt.planning.verdict import phases_supported
from freshopt.report.held_out import POLICIES, PolicyRow, notes, saved
from freshopt.report.value_words import FetchWords, measured
from freshopt.terminal.console import count, fitted, number, wrapped


def replay_table(held: BackTest, plan: Plan) -> str:
    """Return the backtest table, one line per policy.

    A line above it says which part of the log was held out, lines below which policies the log supports.
    """
    unit, objective = plan.log.time_unit, plan.request.objective
    better = "higher" if objective.sense == "maximise" else "lower"
    rates = FetchWords.of(summary(plan)).rates
    noun = measured(type(objective).__name__, unit)
    left = (
        f"; {count(held.left_out, 'source')} not crawled before and in it left out" if held.left_out else ""
    )
    windows = "" if held.splits == 1 else f" in {held.splits} windows"
    above = (
        f"On the last {count(held.end - held.begin, unit)}{windows}, held out from their plans "
        f"({count(held.sources, 'source')}{left}):"
    )
    rows = [
        PolicyRow(
            row.policy,
            row.refreshes,
            row.realised,
            None if np.isnan(row.error) else row.error,
            row.fresh,
            row.predicted,
            row.saving,
            row.saving_error,
            row.hidden,
        )
        for row in held.means
    ]
    head = (f"{rates} per {unit}", "predicted", f"{noun} ({better} is better)", "± error")
    table: list[tuple[str, ...]] = [("", *head, "percent saved", "time fresh")]
    for row in rows:
        known = ("" if value is None else number(value) for value in (row.predicted, row.value, row.error))
        fresh = percent(row.fresh, even=True, space=" ")
        table.append((POLICIES[row.policy], number(row.refreshes), *known, saved(row), fresh))
    below = [
        *([held.verdict] if held.verdict else []),
        *_unsupported(held, plan),
        *notes(rows, failures=held.failures),
    ]
    return "\n".join([wrapped(above), fitted(table), "", *map(wrapped, below)])


def _unsupported(held: BackTest, plan: Plan) -> list[str]:
    """Return what to do about phases that the log does not support."""
    judged = any(row.policy == PHASED and row.saving is not None for row in held.means)
    if plan.phases is None or not judged or phases_supported(held.verdict):
        return []
    return ["The plan crawls at good phases of the week all the same; --load-limit 1 plans without them."]
