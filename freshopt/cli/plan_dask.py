"""`freshopt plan --engine dask`: plans over partitioned logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy.typing as npt

from freshopt.cli.constraint_columns import column_constraints
from freshopt.cli.solve_dask import connected
from freshopt.distributed import plan as plan_partitions
from freshopt.distributed.column_rows import column_rows
from freshopt.distributed.estimation import table_of
from freshopt.distributed.partitioned_sources import footer, parquet_files
from freshopt.errors import SourceDataError
from freshopt.estimators.features.source_features import FROM_URL
from freshopt.heavy import polars
from freshopt.logs.schema import HOSTS, IMPORTANCES, SOURCE_ROWS, Table, column_of
from freshopt.modelling.constraints.nested import Nested
from freshopt.planning.plan_files import TABLES
from freshopt.planning.request import Clock
from freshopt.planning.wishes import PlanWishes, Wishes
from freshopt.report.context import Context
from freshopt.report.headline import headline
from freshopt.report.page import findings
from freshopt.report.summary_facts import SUMMARY, Facts
from freshopt.terminal.console import columns as console_columns
from freshopt.terminal.console import count, progress, show
from freshopt.terminal.constraint_options import ConstraintOptions
from freshopt.terminal.estimator_options import Estimation
from freshopt.terminal.log_inputs import Origin
from freshopt.terminal.settings_file import write_settings

PASSES = 7  # of most plans, for the progress bar
_WHOLE_LOG = ("prior", "half_life", "reset")  # settings of estimators that depend on all of the log


def plan_in_partitions(
    origin: Origin,
    asked: dict[str, Any],
    out: Path,
    importance: Path | None,
    hosts: Path | None,
    columns: Path | None,
    constraints: ConstraintOptions,
    estimation: Estimation,
    time_unit: str,
    scheduler: str | None,
    *,
    csv: bool,
    overwrite: bool,
) -> None:
    """Plan over partitions, write and print."""
    others: dict[str, object] = {
        "--columns": origin.columns,
        "--example": origin.example,
        "--sources": origin.sources,
    }
    others |= {f"--{name}": path for name, path in origin.tools.items()} | {"--csv": csv or None}
    for name, given in others.items():
        if given is not None:
            raise click.UsageError(
                f"--engine dask reads and writes folders of Parquet files. Leave {name} out."
            )
    if not origin.log:
        raise click.UsageError("--engine dask needs LOG, a folder of Parquet files. Name it.")
    for name in _WHOLE_LOG:
        if name in estimation.settings:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} depends on the whole log, and --engine dask reads a file at a time. Leave it out."
            )
    features = None if "features" not in asked else Path(asked.pop("features"))
    from_url = features is not None and features.name == FROM_URL and not features.exists()
    for table in (importance, hosts, columns, None if from_url else features):
        if table is not None and not table.exists():
            raise SourceDataError(f"there is no file or folder {table}. Check the path.")
    if estimation.is_default:
        asked.pop("estimator", None)  # under one prior of all files
    own, wanted = partial(with_tables, _absolute(importance), _absolute(hosts)), asked["objective"].columns
    if wanted and columns is None:
        raise click.UsageError(f"--objective reads the column {wanted[0]}. Give its table, --source-columns.")
    if constraints.given():
        asked["constraints"], more = _declared(columns, hosts, constraints, time_unit)
        wanted = tuple(dict.fromkeys((*wanted, *more)))
    further = partial(columns_for, _absolute(columns), wanted) if wanted else None
    # Nothing is drawn over partitions.
    request = Wishes.of(Clock(time_unit), {**asked, "draws": 0}, PlanWishes)
    with connected(scheduler), progress(PASSES) as report:
        made = plan_partitions(
            origin.log,
            request,
            out,
            adapt=own,
            columns=further,
            features=FROM_URL if from_url else _absolute(features),
            answers_are_changes=origin.answers_are_changes,
            overwrite=overwrite,
            time_unit=time_unit,
            on_progress=report,
        )
    settings = write_settings(click.get_current_context(), out, out)
    told = Context.of(Facts(out / SUMMARY, made.facts))
    # What other machines warn of stands there alone.
    click.echo(f"{headline(told, width=console_columns(), warned=scheduler is None)}\n")
    show([*_rows(told, ", ".join(map(str, origin.log))), *_statuses(origin.log)])
    folders = "".join(f"{table}/, " for table in TABLES)
    folders += "" if made.rows is None else "constraints.parquet, "
    folders += f"summary.json, {settings}"
    click.echo(f"\nwrote {folders} to {out}; each part of the schedule is sorted by time")


def _rows(told: Context, log: str) -> list[tuple[str, str]]:
    """Return all that was found, from its summary."""
    counts, seconds = told.counts, told.facts.values["seconds"]
    read = f"{count(counts.whole('crawls'), 'crawl')} of {count(told.sources, 'source')}"
    found = findings(told, read=f"{log}: {read} in {count(counts.whole('partitions'), 'file')}")
    steps = ", ".join(f"{step} {each:.2f} s" for step, each in seconds.items())
    return [*(row for each in found for row in each.rows()), ("time", steps)]


def _statuses(log: Sequence[Path]) -> list[tuple[str, str]]:
    """Return that statuses are not read, where a log has any."""
    columns = polars.read_parquet_schema(parquet_files(log)[0])
    if "status" not in columns:
        return []
    told = "chances of success are learnt with --engine memory; rates are planned as if all succeeded"
    return [("statuses", told)]


def with_tables(importance: Path | None, hosts: Path | None, request: Wishes, file: Path) -> Wishes:
    """Return a file's request, with its importances and hosts."""
    return replace(
        request,
        importance=column_of(table_of(importance, file), IMPORTANCES),
        hosts=column_of(table_of(hosts, file), HOSTS),
    )


def columns_for(
    table: Path | None, wanted: tuple[str, ...], file: Path, names: npt.NDArray[Any]
) -> dict[str, Any]:
    """Return the wanted columns of a file's sources."""
    path = table_of(table, file)
    assert path is not None
    found = Table.read(path, SOURCE_ROWS).of(names.tolist()).frame
    return {name: found[name].to_list() for name in wanted}


def _declared(
    columns: Path | None,
    hosts: Path | None,
    constraints: ConstraintOptions,
    time_unit: str,
) -> tuple[list[Nested], tuple[str, ...]]:
    """Return the constraints, and the columns they name."""
    table = () if columns is None else tuple(parquet_files(columns))
    for file in table:
        footer(file)
    where, host = str(columns or "--source-columns FILE"), hosts is not None
    made = column_constraints(constraints, table, where, time_unit, host=host)
    own = dict.fromkeys(one.by for one in column_rows(made, None, {}) if one.by is not None)
    return made, tuple(name for name in own if not (host and name == "host"))


def _absolute(path: Path | None) -> Path | None:
    """Return an absolute path, the same on every worker."""
    return None if path is None else path.resolve()
