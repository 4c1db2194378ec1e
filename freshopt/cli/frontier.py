"""`freshopt frontier`: value and shadow price over the bandwidth."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path

import click
import numpy as np

from freshopt.errors import SourceDataError
from freshopt.formatting import percent
from freshopt.logs.atomic_output import complete_file
from freshopt.logs.tables import table_ending, with_unit, write_table
from freshopt.modelling.problem import Problem
from freshopt.naming import OBJECTIVES
from freshopt.parametric import Frontier
from freshopt.parametric import frontier as trace
from freshopt.report.value_words import amount, goal_of
from freshopt.terminal import inputs, options, tables
from freshopt.terminal.commands import command
from freshopt.terminal.console import fitted, number, working
from freshopt.terminal.constraint_options import ConstraintOptions, constraint_options
from freshopt.terminal.own_objectives import is_own
from freshopt.terminal.tables import SourceColumns
from freshopt.terminal.wish_options import RateLimits, given_options, rate_limits, refuse, wish_option
from freshopt.units import rate_of

# Range of the default bandwidths, in units of the sum of the change rates.
SPAN = (0.1, 10.0)
# With nine points each bandwidth is 10^¼ times the one before.
POINTS = 9


@command()
@click.argument("sources", type=click.Path(path_type=Path))
@inputs.goal_options(OBJECTIVES, own=True)
@options.refresh_option
@click.option(
    "--bandwidths",
    metavar="RATES",
    help="Bandwidths, comma-separated, such as 100/day,200/day,500/day (default: from 0.1 to 10 times the "
    "total "
    "change rate).",
)
@wish_option("host_limits")
@rate_limits
@constraint_options(cheapest=False)
@options.file_option("Table to write, .csv or .parquet.")
@options.table_unit_option
@options.overwrite_option
@working("solving")
def frontier(
    sources: Path,
    goal: inputs.Goal,
    refresh: str | None,
    bandwidths: str | None,
    host_limits: Path | None,
    bounds: RateLimits,
    constraints: ConstraintOptions,
    out: Path | None,
    time_unit: str | None,
    overwrite: bool,
) -> None:
    """Solve for SOURCES at several bandwidths: value and shadow price.

    The price is the dual variable of the bandwidth (shadow price): the marginal value of one more refresh per
    time unit. Beside the value stand the share of time that copies are fresh and what the refreshes cost,
    less than the bandwidth where other limits bind. A bandwidth that does not suffice for lower bounds and
    targets is listed as infeasible. The exit code is 1 if one of the solutions is not proved optimal.
    """
    refuse(given_options(click.get_current_context()))
    if out is not None:
        table_ending(out)
        inputs.require_other(out, sources)
    with complete_file(out, overwrite) if out else nullcontext() as staging:
        known, columns, table = tables.sources_of(
            sources, time_unit, bounds.on, own=is_own(str(goal.objective))
        )
        unit = known.time_unit
        if bandwidths is None:
            wanted = (float(np.sum(known.change_rate)) * np.geomspace(*SPAN, POINTS)).tolist()
        else:
            wanted = [rate_of("--bandwidths", text, unit) for text in bandwidths.split(",")]
        if min(wanted) <= 0.0:
            raise SourceDataError("--bandwidths: a bandwidth is 0. Pass rates > 0, such as 100/day,200/day.")
        problem = Problem(
            goal.made(refresh, unit, columns),
            known,
            max(wanted),
            tables.host_limits_of(host_limits, unit),
            constraints.made(SourceColumns(known, table, "SOURCES"), refresh),
        )
        found = trace(problem, wanted)
        if staging is not None:
            write_table(with_unit(found.to_frame(), unit), staging)
    _print(found, unit, problem)
    if out is not None:
        click.echo(f"\nwrote {out}")
    bad = any(
        solution is not None and solution.status.value not in ("optimal", "infeasible")
        for solution in found.solutions
    )
    click.get_current_context().exit(1 if bad else 0)


def _print(found: Frontier, unit: str, problem: Problem) -> None:
    """Print the table, as wide as its longest cells."""
    kind = type(problem.objective).__name__
    better = "higher is better" if problem.objective.sense == "maximise" else "lower is better"
    head = (f"refreshes per {unit}", "time fresh", f"{goal_of(kind).noun} ({better})")
    lines = [(*head, f"price per refresh/{unit}", f"cost per {unit}", "status")]
    for row in found.to_frame().iter_rows(named=True):
        bandwidth, value, price, cost = (
            None if row[key] is None or math.isnan(row[key]) else row[key]
            for key in ("bandwidth", "value", "price", "cost")
        )
        lines.append(
            (
                "" if bandwidth is None else number(bandwidth),
                "" if row["fresh"] is None else percent(row["fresh"], space=" ", even=True),
                "" if value is None else amount(kind, value, unit),
                "" if price is None else amount(kind, price, unit),
                "" if cost is None else number(cost),
                row["status"],
            )
        )
    click.echo(fitted(lines, text=5))
