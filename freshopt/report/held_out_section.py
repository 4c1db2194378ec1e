"""Finding of held-out data: measured costs of the plan and of others."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.formatting import count, number, percent
from freshopt.numerics.arrays import Array
from freshopt.report import held_out_charts as charts
from freshopt.report import plan_tables as tables
from freshopt.report.charts import Figure
from freshopt.report.context import Context, tidy
from freshopt.report.finding import Column, Finding, Table
from freshopt.report.held_out import POLICIES, PolicyRow, notes, saved
from freshopt.report.load_charts import Clock
from freshopt.report.markup import amount
from freshopt.report.source_sample import POINTS
from freshopt.report.summary_facts import Facts
from freshopt.units import SECONDS

# What the plan is compared with source by source: the first that was measured.
RIVALS = ("rates in force", "uniform")


def held_out(told: Context, folder: Path) -> Finding | None:
    """Return what held-out data say, or None without a back-test."""
    held = told.facts.within("held_out")
    if held is None:
        return None
    rows = policy_rows(held)
    pictures = [charts.measured(told, rows)] if rows else []
    pictures += _over_time(told, held)
    found = tables.held_out(folder, ("plan",), RIVALS)
    failures = held.text("failures") if "failures" in held.values else ""
    return Finding(
        "held-out",
        "On held-out data",
        held.text("verdict") if held.values.get("verdict") else "",
        {
            "each": None if found is None else charts.by_source(told, *found, POINTS),
            "notes": notes(rows, failures=failures),
        },
        _table(told, held, rows),
        tuple(pictures),
    )


def policy_rows(held: Facts) -> list[PolicyRow]:
    """Return the measured costs of the policies on held-out data."""
    return [
        PolicyRow(
            row.text("policy"),
            row.number("refreshes"),
            row.number("realised"),
            row.maybe("error"),
            row.number("fresh"),
            *(row.maybe(key) for key in ("predicted", "saving", "saving_error", "hidden")),
        )
        for row in held.rows("policies")
    ]


def _over_time(told: Context, held: Facts) -> list[Figure]:
    """Return the picture of costs over time, where they were measured."""
    found = held.within("over_time")
    policies = None if found is None else found.within("policies")
    if found is None or policies is None:
        return []
    edges = _numbers(found, "edges")
    series = {name: _numbers(policies, name, gaps=True) for name in charts.LINES if name in policies.values}
    series = {name: values for name, values in series.items() if not np.all(np.isnan(values))}
    if not series or any(len(values) != len(edges) - 1 for values in series.values()):
        return []
    end = told.date("end")
    begin = None if end is None else end - timedelta(seconds=float(edges[-1] - edges[0]) * SECONDS[told.unit])
    clock = f"time {number(float(edges[0]))} on the log's clock"
    since = clock if begin is None else f"{begin:%Y-%m-%d %H:%M} UTC"
    return [charts.over_time(told, Clock(edges - edges[0], told.unit, since, begin), series)]


def _numbers(found: Facts, key: str, *, gaps: bool = False) -> Array:
    """Return a list of numbers of the summary."""
    if not isinstance(found.values.get(key), list):
        raise SourceDataError(
            f"{found.file}: held_out.over_time has no list {key}. Plan again, with --overwrite."
        )
    values = found.numbers(key, gaps=gaps)
    return np.array(values, dtype=np.float64)


def _table(told: Context, held: Facts, known: list[PolicyRow]) -> Table:
    """Return the policies' measured costs."""
    heads = [f"{told.words.rates} per {told.unit}", "predicted", told.value_head, "± error", "percent saved"]
    rows = [
        [
            POLICIES.get(row.policy, row.policy),
            amount(row.refreshes),
            None if row.predicted is None else amount(row.predicted),
            amount(row.value),
            None if row.error is None else amount(row.error),
            saved(row) or None,
            amount(row.fresh, percent(row.fresh, even=True)),
        ]
        for row in known
    ]
    left = held.values.get("left_out")
    missing = (
        f"; {count(held.whole('left_out'), 'source')} not crawled before and in it left out" if left else ""
    )
    windows = "" if held.values.get("splits", 1) == 1 else f" in {held.whole('splits')} windows"
    span = count(tidy(held.number("end") - held.number("begin")), told.unit)
    caption = (
        f"Rates planned from the first part of the log alone, replayed on its last {span}{windows} "
        f"({count(held.whole('sources'), 'source')}{missing})"
    )
    columns = [Column("policy"), *(Column(head, "number") for head in heads)]
    return Table(caption, [*columns, Column("share of time up to date", "number")], rows, 0)
