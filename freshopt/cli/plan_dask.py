"""`freshopt plan --engine dask`: plans over partitioned logs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from freshopt.cli import tables
from freshopt.cli.console import count, number, progress, show
from freshopt.cli.estimator_options import Estimation
from freshopt.cli.log_inputs import Origin
from freshopt.cli.solve_dask import connected
from freshopt.distributed import plan as plan_partitions
from freshopt.errors import SourceDataError
from freshopt.planning.plan_files import TABLES
from freshopt.planning.plan_rows import facts_rows, proved_words
from freshopt.planning.request import PlanRequest

PASSES = 7  # of most plans, for the progress bar
_WHOLE_LOG = ("prior", "half_life")  # settings of estimators that depend on all of the log


def plan_in_partitions(
    origin: Origin,
    request: PlanRequest,
    out: Path,
    importance: Path | None,
    hosts: Path | None,
    estimation: Estimation,
    time_unit: str,
    scheduler: str | None,
    *,
    csv: bool,
    overwrite: bool,
) -> None:
    """Plan over partitions, write and print.

    The arguments are the command's; the request comes without importances and hosts.

    Parameters
    ----------
    scheduler : str or None
        Address of a Dask scheduler; None for threads of this process.
    """
    others: dict[str, object] = {
        "--example": origin.example,
        "--git": origin.git,
        "--history": origin.history,
        "--sources": origin.sources,
    }
    others |= {"--nutch": origin.nutch, "--changedetection": origin.changedetection}
    others |= {"--dbt": origin.dbt, "--bing": origin.bing, "--csv": csv or None}
    for name, given in others.items():
        if given is not None:
            raise click.UsageError(
                f"--engine dask reads and writes folders of Parquet files. Leave {name} out."
            )
    if origin.log is None:
        raise click.UsageError("--engine dask needs LOG, a folder of Parquet files. Name it.")
    for name in _WHOLE_LOG:
        if name in estimation.settings:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} depends on the whole log, and --engine dask reads a file at a time. Leave it out."
            )
    for table in (importance, hosts):
        if table is not None and not table.exists():
            raise SourceDataError(f"there is no file or folder {table}. Check the path.")
    if estimation.is_default:
        request = replace(request, estimate=None)  # under one prior of all files
    own = partial(with_tables, _absolute(importance), _absolute(hosts))
    with connected(scheduler), progress(PASSES) as report:
        made = plan_partitions(
            origin.log, request, out, adapt=own, overwrite=overwrite, time_unit=time_unit, on_progress=report
        )
    show(_rows(made.facts, str(origin.log)))
    folders = "".join(f"{table}/, " for table in TABLES)
    click.echo(f"\nwrote {folders}summary.json to {out}; each part of the schedule is sorted by time")


def _rows(facts: dict[str, Any], log: str) -> list[tuple[str, str]]:
    """Return what a newcomer should read of a plan, from its summary."""
    counts = facts["counts"]
    read = f"{count(counts['crawls'], 'crawl')} of {count(counts['sources'], 'source')}"
    return [
        ("log", f"{log}: {read} in {count(counts['partitions'], 'file')}"),
        *facts_rows(facts).items(),
        ("certificate", f"{proved_words(facts['status'])}: duality gap {number(facts['gap'])}"),
        ("time", ", ".join(f"{step} {seconds:.2f} s" for step, seconds in facts["seconds"].items())),
    ]


def with_tables(importance: Path | None, hosts: Path | None, request: PlanRequest, file: Path) -> PlanRequest:
    """Return a file's request, with its importances and hosts.

    They come from one table, or from one of the file's own name.
    """
    return replace(
        request,
        importance=tables.importance_of(_for_file(importance, file)),
        hosts=tables.hosts_of(_for_file(hosts, file)),
    )


def _for_file(table: Path | None, file: Path) -> Path | None:
    return table / file.name if table is not None and table.is_dir() else table


def _absolute(path: Path | None) -> Path | None:
    """Return an absolute path, the same on every worker."""
    return None if path is None else path.resolve()
