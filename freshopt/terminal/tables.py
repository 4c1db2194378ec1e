"""Tables that options name, as what commands need of them.

A plan's folder stands for the table in it. What each kind of table has, and what is refused, says
`freshopt.logs.schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.heavy import polars
from freshopt.logs import schema
from freshopt.logs.log_files import is_access_log
from freshopt.logs.schema import NAMED, Table, naming, require_columns
from freshopt.logs.tables import UNIT
from freshopt.modelling.sources import COLUMNS, Sources
from freshopt.naming import NAMES, Parameters
from freshopt.numerics.arrays import Array
from freshopt.planning.request import SourceLimits, limits_in
from freshopt.scheduling.rate_table import RateTable, read_lifetimes, read_rates
from freshopt.terminal.console import note
from freshopt.tools.live_planner import is_planner, planned_rates

# Columns that a log of crawls has, and sources have not.
_OF_LOGS = {"source", "time"}


class SourceTable(NamedTuple):
    """Sources, the columns that are parameters of objectives, and all columns."""

    sources: Sources
    parameters: Parameters
    table: Table


def sources_of(
    path: Path,
    time_unit: str | None,
    within: Callable[[polars.DataFrame, str], polars.DataFrame] = lambda frame, _: frame,
    *,
    own: bool = False,
) -> SourceTable:
    """Return sources, `within` bounds, of a table or plan's change rates.

    With `own` further columns ride along, those that are filled.
    """
    path = _table_in(path, "change_rates")
    if path.is_file() and is_access_log(path):
        raise _no_sources(path)
    table = Table.read(path)
    if "change_rate" not in table.frame.columns and set(table.frame.columns) >= _OF_LOGS:
        raise _no_sources(path)
    unit = table.unit(time_unit)
    more = own_columns_of(table) if own else []
    with naming(path):
        sources = Sources.from_frame(within(_with_numbers(table.frame, more), unit), unit, more)
    return SourceTable(sources, Parameters(**{name: _parameter(table, name) for name in NAMES}), table)


def own_columns_of(table: Table, *, filled: bool = True) -> list[str]:
    """Return the columns, `filled` ones, that nothing else reads."""
    known = {"source", "name", "time_unit", *COLUMNS, *NAMES}
    frame = table.frame
    return [name for name in frame.columns if name not in known and not (filled and frame[name].null_count())]


def own_columns_in(path: Path, *, filled: bool = False, also: Sequence[str] = ()) -> polars.DataFrame:
    """Return the columns of one's own that a table has, by source.

    Written numbers are numbers: files of text have no types. `also` are names of others to be taken.
    """
    table = Table.read(path, schema.SOURCE_ROWS)
    others = [name for name in also if name in table.frame.columns]
    found = table.frame.select("source", *own_columns_of(table, filled=filled), *others)
    if found.width == 1 and not filled:
        raise SourceDataError(f"{path} has no column of your own. Add what the objective reads.")
    return _with_numbers(found, found.columns[1:])


def _with_numbers(frame: polars.DataFrame, columns: Sequence[str]) -> polars.DataFrame:
    """Return a table in whose columns written numbers are numbers."""
    text = [frame[name] for name in columns if frame[name].dtype == polars.String]
    numbers = [each.cast(polars.Float64, strict=False) for each in text]
    alike = [one for one, each in zip(numbers, text, strict=True) if one.null_count() == each.null_count()]
    return frame.with_columns(alike)


def rates_of(
    path: Path, time_unit: str | None, *, retry_at_once: bool = False
) -> tuple[polars.DataFrame, str]:
    """Return a table of rates (source, rate) and its unit.

    With `retry_at_once` rates of attempts become those of successes. Of a plan's folder it is the table
    rates.
    """
    table = Table.read(_table_in(path, "rates"))
    frame, unit = table.frame, table.unit(time_unit)
    with naming(table.cells.path):
        rates = read_rates(frame, unit)
        if retry_at_once:
            frame = frame.drop("success", strict=False).with_columns(rate=rates.of_successes().rates)
    return frame, unit


def lifetimes_of(path: Path, time_unit: str | None) -> tuple[polars.DataFrame, str]:
    """Return a table of lifetimes (source, lifetime) and its unit.

    Of a folder it is the table lifetimes.
    """
    table = Table.read(_table_in(path, "lifetimes", "freshopt lifetimes"))
    unit = table.unit(time_unit)
    with naming(table.cells.path):
        read_lifetimes(table.frame, unit)
    return table.frame, unit


def rates_in_force_of(path: Path, time_unit: str) -> RateTable:
    """Return the rates of an earlier plan, a planner or a table.

    A table has the columns source and rate, or interval in place of the rate: empty where never.
    """
    if not path.exists():
        raise SourceDataError(f"there is no folder or file {path}. Name the folder of a plan, or a table.")
    if is_planner(path):
        return read_rates(*planned_rates(path))
    path = _table_in(path, "rates")
    table = Table.read(path, schema.RATES_IN_FORCE)
    unit = table.unit(None) if UNIT in table.frame.columns else time_unit
    column = "rate" if "rate" in table.frame.columns else "interval"
    rates = polars.Series("rate", table.rates(column, unit), dtype=polars.Float64)
    frame = table.frame.with_columns(rates.fill_null(0.0) if column == "interval" else rates)
    with naming(path):
        return read_rates(frame, unit)


def _table_in(path: Path, name: str, made_by: str = "a plan") -> Path:
    """Return a plan folder's table; what is no folder as it is."""
    if not path.is_dir():
        return path
    there = [table for table in (path / f"{name}.parquet", path / f"{name}.csv") if table.exists()]
    if not there:
        # A plan over partitions has folders in the place of tables.
        parts = sorted([*path.glob(f"{name}/part-*"), *path.glob("part-*")])
        remedy = f"one of its parts, such as {parts[0]}" if parts else f"the folder of {made_by}, or a table"
        raise SourceDataError(f"{path} holds no table {name}. Name {remedy}.")
    return there[0]


def _no_sources(path: Path) -> SourceDataError:
    """Return the error of a log where sources belong."""
    return SourceDataError(
        f"{path} is a log of crawls, not a table of sources. Estimate their change rates first: freshopt "
        f"estimate {path} --out change_rates.csv."
    )


def starts_of(path: Path, names: npt.NDArray[Any]) -> list[Any]:
    """Return since when each source exists, None where unknown."""
    table = Table.read(path, schema.STARTS)
    if table.frame["start"].null_count() == len(table.frame):
        table.cells.require_filled(table.frame["start"])
    known = table.by_key("start")
    return [known.get(str(name)) for name in names.tolist()]


def host_limits_with_units(path: Path, time_unit: str) -> dict[str, str]:
    """Return the host limits of a table as text with its unit."""
    limits = host_limits_of(path, time_unit) or {}
    return {host: f"{limit!r}/{time_unit}" for host, limit in limits.items()}


def host_limits_of(path: Path | None, time_unit: str) -> dict[str, float] | None:
    """Return the host limits of a table, per `time_unit`."""
    if path is None:
        return None
    table = Table.read(path, schema.HOST_LIMITS)
    _tell_unit(table, ("limit", "min_interval"), time_unit)
    return {str(host): limit for host, limit in limits_in(table, time_unit).items()}


def _tell_unit(table: Table, columns: Sequence[str], time_unit: str) -> None:
    """Say how bare numbers are read where a table has no unit."""
    cells = (table.frame[name] for name in columns if name in table.frame.columns)
    bare = [
        text for each in cells for text in each.filter(each.cast(polars.Float64, strict=False).is_not_null())
    ]
    if bare and UNIT not in table.frame.columns:
        note(
            f"{table.cells.path} has limits without a unit, such as {bare[0]}: they are read per "
            f"{time_unit}. Write {bare[0]}/{time_unit} to say so, or {bare[0]}/h."
        )


def source_limits_of(path: Path, time_unit: str) -> SourceLimits:
    """Return the limits of single sources in a table."""
    return SourceLimits.of_table(Table.read(path, schema.SOURCE_LIMITS), time_unit)


def _parameter(table: Table, name: str) -> Array | None:
    """Return a parameter of each source, or None.

    An empty cell of the column cap means no cap.
    """
    if name not in table.frame.columns:
        return None
    if name == "cap":
        return table.frame[name].fill_null(np.inf).to_numpy()
    return table.numbers(name)


@dataclass(frozen=True, slots=True, eq=False)
class SourceColumns:
    """Columns in the order of sources.

    - `table`: A row per source, in their order; None where no table was given.
    - `where`: The option or argument that names the table, for messages.
    """

    sources: Sources
    table: Table | None
    where: str

    @classmethod
    def by_name(cls, sources: Sources, path: Path | None, where: str) -> SourceColumns:
        """Return a table's columns, matched by the column source."""
        if path is None:
            return cls(sources, None, where)
        table = Table.read(path, schema.SOURCE_ROWS).of(_names(sources, where))
        return cls(sources, table, where)

    def numbers(self, column: str, what: str) -> Array:
        """Return a column as numbers >= 0."""
        if self.table is None and column == "refresh_cost":
            return self.sources.refresh_cost
        table = self._with(column, what)
        with naming(what):
            return table.numbers(column)

    def labels(self, column: str, what: str) -> npt.NDArray[Any]:
        """Return a column as texts, None where a cell is empty."""
        known = self.table is not None and column in self.table.frame.columns
        if column == "host" and not known and self.sources.host is not None:
            return np.array([str(host) for host in self.sources.host.tolist()], dtype=object)
        table = self._with(column, what)
        cells = table.frame[column]
        if cells.dtype.is_float() or cells.dtype.is_nested():
            raise SourceDataError(
                f"{what}: column '{column}' of {table.cells.path} holds {cells.dtype}. Write groups as text "
                "or integers."
            )
        found = cells.cast(polars.String).to_list()
        return np.array([cell if cell else None for cell in found], dtype=object)

    def _with(self, column: str, what: str) -> Table:
        if self.table is None:
            raise SourceDataError(
                f"{what} names the column '{column}', but there is no table. Pass {self.where}."
            )
        with naming(what):
            require_columns(self.table.frame.columns, NAMED._replace(needed=(column,)), self.table.cells.path)
        return self.table


def costs_by_name(sources: Sources, path: Path, what: str) -> Array:
    """Return the cost of each source from a table."""
    with naming(what):
        return Table.read(path, schema.COSTS).of(_names(sources, what), "cost").numbers("cost")


def limits_of(path: Path, time_unit: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return limits and reserves of groups, per `time_unit`, by a table."""
    table = Table.read(path, schema.GROUP_LIMITS)
    groups = [*map(str, table.frame["group"].to_list())]
    at_most, at_least = (
        {
            group: limit
            for group, limit in zip(groups, table.rates(column, time_unit), strict=True)
            if limit is not None
        }
        for column in ("at_most", "at_least")
    )
    if not (at_most or at_least):
        raise SourceDataError(f"{path} has no limits. Fill at_most or at_least of a group.")
    return at_most, at_least


def _names(sources: Sources, what: str) -> Sequence[object]:
    if sources.names is None:
        raise SourceDataError(
            f"{what} is matched by name, and the sources have none. Add the column 'source' to them."
        )
    names: list[object] = sources.names.tolist()
    return names
