"""`freshopt solve --engine dask`: rates for partitioned sources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from freshopt.distributed import PartitionedSources
from freshopt.distributed import solve as solve_partitions
from freshopt.distributed.partitioned_sources import UNIT, read
from freshopt.errors import SourceDataError, list_offenders
from freshopt.io.tables import column_names
from freshopt.terminal import inputs, tables
from freshopt.terminal.console import progress
from freshopt.terminal.objective_options import OBJECTIVES, Parameters, objective_of

# Solvers for partitioned sources.
SOLVERS = ("auto", "water-filling")
# Passes of most solves, for the progress bar.
PASSES = 5


def solve_in_partitions(
    sources: Path,
    objective: str,
    parameters: tuple[float | None, str | None, str | None],
    bandwidth: str,
    host_limits: Path | None,
    solver: str,
    out: Path,
    time_unit: str | None,
    scheduler: str | None,
    *,
    overwrite: bool,
) -> None:
    """Solve, write and print; the arguments are the command's.

    Parameters
    ----------
    parameters : tuple
        Of the objective: --exponent, --deadline, --refresh.
    scheduler : str or None
        Address of a Dask scheduler; None for threads of this process.
    """
    if solver not in SOLVERS:
        raise click.UsageError(f"--engine dask solves by {SOLVERS[1]}, not by {solver}. Leave --solver out.")
    exponent, deadline, refresh = parameters
    known = PartitionedSources.from_parquet(sources, time_unit)
    unit = _unit(known, time_unit)
    own = sorted(set(OBJECTIVES[objective].uses) & set(column_names(known.parts[0].path)))
    if own:
        raise SourceDataError(
            f"{sources} has the columns {list_offenders(own)} for --objective {objective}, which --engine "
            "dask does not read. Give one number for all sources as an option, and drop the columns."
        )
    given = inputs.parameters_of(Parameters(), objective, exponent, deadline, unit)
    with connected(scheduler), progress(PASSES) as report:
        solution = solve_partitions(
            objective_of(objective, refresh, given),
            known,
            inputs.rate_of("--bandwidth", bandwidth, unit),
            tables.host_limits_of(host_limits, unit),
            out=out,
            overwrite=overwrite,
            on_progress=report,
        )
    click.echo(repr(solution))
    click.echo(f"   wrote: {out}")


def _unit(known: PartitionedSources, asked: str | None) -> str:
    """Return the time unit of the first row, or day.

    The solve compares it with that of all other rows.
    """
    if UNIT not in known.columns:
        return asked or "day"
    first = read(known.parts[0], [UNIT], known.labels[0]).column(UNIT)[0].as_py()
    if asked not in (None, first):
        raise SourceDataError(f"the sources are per {first}, and not per {asked}. Leave --time-unit out.")
    return str(first)


@contextmanager
def connected(scheduler: str | None) -> Iterator[Any]:
    """Connect to a scheduler, if one is named.

    Otherwise threads of this process do the work.
    """
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
