"""`freshopt solve --engine dask`: rates for partitioned sources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from freshopt.distributed import PartitionedSources
from freshopt.distributed import solve as solve_partitions
from freshopt.distributed.partitioned_sources import UNIT, read
from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs.atomic_output import complete_file
from freshopt.logs.tables import column_names, write_table
from freshopt.modelling.spend import Spend
from freshopt.naming import OBJECTIVES
from freshopt.planning.declared import DeclaredRows, price_sentences
from freshopt.terminal import inputs, tables
from freshopt.terminal.console import plain, progress
from freshopt.terminal.constraint_options import ConstraintOptions
from freshopt.terminal.own_objectives import is_own
from freshopt.terminal.source_columns import PartitionColumns
from freshopt.units import rate_of

# Solvers for partitioned sources.
SOLVERS = ("auto", "water-filling")
# Passes of most solves, for the progress bar.
PASSES = 5


def solve_in_partitions(
    sources: Path,
    goal: inputs.Goal,
    refresh: str | None,
    bandwidth: str | None,
    host_limits: Path | None,
    constraints: ConstraintOptions,
    solver: str,
    out: Path,
    time_unit: str | None,
    scheduler: str | None,
    *,
    overwrite: bool,
) -> None:
    """Solve, write and print; the arguments are the command's."""
    if solver not in SOLVERS:
        raise click.UsageError(f"--engine dask solves by {SOLVERS[1]}, not by {solver}. Leave --solver out.")
    known = PartitionedSources.from_parquet(sources, time_unit)
    unit = _unit(known, time_unit)
    uses = () if is_own(str(goal.objective)) else OBJECTIVES[str(goal.objective)].uses
    own = sorted(set(uses) & set(column_names(known.parts[0].path)))
    if own and not constraints.cheapest:
        raise SourceDataError(
            f"{sources} has the columns {list_offenders(own)} for --objective {goal.objective}, which "
            "--engine dask does not read. Give one number for all sources as an option, and drop the columns."
        )
    objective = Spend() if constraints.cheapest else goal.made(refresh, unit)
    declared = constraints.given()
    files = tuple(dict.fromkeys(Path(part.path) for part in known.parts))
    rows = constraints.made(PartitionColumns(files, str(sources)), refresh, unit)
    beside = out.with_name(f"{out.name}.constraints.parquet")
    table = complete_file(beside, overwrite) if declared else nullcontext()
    with table as staging, connected(scheduler), progress(PASSES) as report:
        solution = solve_partitions(
            objective,
            known,
            None if bandwidth is None else rate_of("--bandwidth", bandwidth, unit),
            tables.host_limits_of(host_limits, unit),
            constraints=rows,
            out=out,
            overwrite=overwrite,
            on_progress=report,
        )
        if staging is not None and solution.rows is not None:
            write_table(solution.rows.to_frame(), staging)
    click.echo(repr(solution))
    click.echo(f"   wrote: {out}{f', {beside}' if declared else ''}")
    if solution.rows is not None:
        named = DeclaredRows.of_table(solution.rows, rows, objective, unit)
        for k, text in enumerate(price_sentences(named)):
            click.echo(plain(text) if k else f"\n{plain(text)}")


def _unit(known: PartitionedSources, asked: str | None) -> str:
    """Return the time unit of the first row, or day."""
    if UNIT not in known.columns:
        return asked or "day"
    first = read(known.parts[0], [UNIT], known.labels[0]).column(UNIT)[0].as_py()
    if asked not in (None, first):
        raise SourceDataError(f"the sources are per {first}, and not per {asked}. Leave --time-unit out.")
    return str(first)


@contextmanager
def connected(scheduler: str | None) -> Iterator[Any]:
    """Connect to a scheduler if one is named, else to threads."""
    if scheduler is None:
        yield None
        return
    from distributed import Client

    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise SourceDataError(
            f"--scheduler {scheduler} cannot be reached: {reason}. Check the address, such as tcp://host:8786."
        ) from None
    with client:
        yield client
