"""Logs and sources in partitions: `--engine dask` of two commands.

Constraints over them are nested limits, by the names of columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy.typing as npt

from freshopt.distributed import PartitionedSources
from freshopt.distributed import plan as plan_partitions
from freshopt.distributed import solve as solve_partitions
from freshopt.distributed.column_rows import column_rows
from freshopt.distributed.estimation import table_of
from freshopt.distributed.partitioned_sources import UNIT, footer, parquet_files, read
from freshopt.errors import SourceDataError, list_offenders
from freshopt.estimators.features.source_features import FROM_URL
from freshopt.heavy import polars
from freshopt.logs.atomic_output import complete_file
from freshopt.logs.schema import HOSTS, IMPORTANCES, SOURCE_ROWS, Table, column_of
from freshopt.logs.tables import column_names, write_table
from freshopt.modelling.constraints.nested import Nested
from freshopt.naming import OBJECTIVES
from freshopt.planning.declared import DeclaredRows, price_sentences
from freshopt.planning.plan_files import TABLES
from freshopt.planning.request import Clock
from freshopt.planning.wishes import PlanWishes, Wishes
from freshopt.report.context import SUMMARY, Context, Facts
from freshopt.report.headline import headline
from freshopt.report.page import findings
from freshopt.terminal import inputs, tables
from freshopt.terminal.console import columns as console_columns
from freshopt.terminal.console import count, note, plain, progress, show
from freshopt.terminal.constraint_options import ConstraintOptions, levels_of, nested_of
from freshopt.terminal.estimator_options import Estimation
from freshopt.terminal.log_inputs import Origin
from freshopt.terminal.own_objectives import is_own
from freshopt.terminal.settings_file import write_settings
from freshopt.terminal.tables import limits_of
from freshopt.units import rate_of

# Solvers for partitioned sources.
SOLVERS = ("auto", "water-filling")
# Passes of most solves, for the progress bar.
SOLVE_PASSES = 5


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
    if own:
        raise SourceDataError(
            f"{sources} has the columns {list_offenders(own)} for --objective {goal.objective}, which "
            "--engine dask does not read. Give one number for all sources as an option, and drop the columns."
        )
    declared = constraints.given()
    files = tuple(dict.fromkeys(Path(part.path) for part in known.parts))
    rows = column_constraints(constraints, files, str(sources), unit)
    objective = goal.made(refresh, unit)
    beside = out.with_name(f"{out.name}.constraints.parquet")
    table = complete_file(beside, overwrite) if declared else nullcontext()
    with table as staging, connected(scheduler), progress(SOLVE_PASSES) as report:
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


_KNOWN = ("--nested", "--nested-limits")


def column_constraints(
    options: ConstraintOptions, files: Sequence[Path], where: str, time_unit: str, *, host: bool = False
) -> list[Nested]:
    """Return the constraints that options declare over Parquet files.

    - `where`: What names the files, for messages.
    - `host`: Whether hosts come from elsewhere.
    - raises SourceDataError if an option is none of nested limits, or a column is missing or holds no groups.
    """
    others = [name for name in options.given() if name not in _KNOWN]
    if others:
        raise SourceDataError(
            f"--engine dask does not solve for {list_offenders(others)}, but for nested limits. "
            "Leave it out, or use --engine memory."
        )
    if options.nested is None or options.nested_limits is None:
        return []
    names = levels_of(options.nested)
    inside = [name for name in names if name != "host" or not host]
    whole = bool(inside) and _whole(inside, files, where)
    limits, reserves = (_keys(side, whole) for side in limits_of(options.nested_limits, time_unit))
    return [nested_of(names, limits, reserves)]


def _whole(columns: Sequence[str], files: Sequence[Path], where: str) -> bool:
    """Return whether the groups of any column are integers."""
    if not files:
        raise SourceDataError(
            f"--nested names the column '{columns[0]}', but there is no table. Pass {where}."
        )
    known = polars.scan_parquet([str(file) for file in files]).collect_schema()
    for column in columns:
        if column not in known:
            raise SourceDataError(
                f"--nested: {where} has no column '{column}', it has {list_offenders(list(known))}. "
                "Correct the name, or add the column."
            )
        kind = known[column]
        if kind.is_float() or kind.is_nested():
            raise SourceDataError(
                f"--nested: column '{column}' of {where} holds {kind}. Write groups as text or integers."
            )
    return any(known[column].is_integer() for column in columns)


def _keys(limits: dict[str, float], whole: bool) -> dict[Any, float]:
    """Return limits by groups, integers where a column has integers."""
    if not whole:
        return dict(limits)
    return {_as_written(key): value for key, value in limits.items()}


def _as_written(key: str) -> int | str:
    return int(key) if key.removeprefix("-").isdigit() and str(int(key)) == key else key


PLAN_PASSES = 7  # of most plans, for the progress bar
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
    if asked.get("draws"):
        note(f"--draws {asked['draws']}: nothing is drawn over partitions.")
    request = Wishes.of(Clock(time_unit), {**asked, "draws": 0}, PlanWishes)
    with connected(scheduler), progress(PLAN_PASSES) as report:
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
