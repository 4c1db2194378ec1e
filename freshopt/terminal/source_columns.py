"""Columns of source tables: costs and groups for constraints.

`SourceColumns` are those of sources in memory, by value, `PartitionColumns` those of files, by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs import schema
from freshopt.logs.schema import NAMED, Table, naming, require_columns
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, slots=True, eq=False)
class SourceColumns:
    """Columns in the order of sources.

    Attributes
    ----------
    table : Table or None
        A row per source, in their order; None where no table was given.
    where : str
        The option or argument that names the table, for messages.
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

    def cost(self, what: str, option: str, *, is_file: bool) -> Array:
        """Return what refreshes cost, by a column or a file."""
        if is_file:
            with naming(option):
                path = Path(what)
                return Table.read(path, schema.COSTS).of(_names(self.sources, option), "cost").numbers("cost")
        if self.table is None and what == "refresh_cost":
            return self.sources.refresh_cost
        table = self._with(what, option)
        with naming(option):
            return table.numbers(what)

    def levels(self, names: Sequence[str]) -> tuple[list[npt.NDArray[Any]], bool]:
        """Return nested groups, and whether integers name some."""
        return [self.labels(name, "--nested") for name in names], False

    def groups(self, column: str, *, wanted: bool) -> tuple[npt.NDArray[Any], list[str]]:  # noqa: ARG002
        """Return the group of each source, and all groups."""
        by = self.labels(column, "--target")
        return by, sorted({label for label in by.tolist() if label is not None})

    def labels(self, column: str, what: str) -> npt.NDArray[Any]:
        """Return a column as texts, None where a cell is empty."""
        import polars

        known = self.table is not None and column in self.table.frame.columns
        if column == "host" and not known and self.sources.host is not None:
            return np.array([str(host) for host in self.sources.host.tolist()], dtype=object)
        table = self._with(column, what)
        cells = table.frame[column]
        _require_groups(cells.dtype, column, what, table.cells.path)
        found = cells.cast(polars.String).to_list()
        return np.array([cell if cell else None for cell in found], dtype=object)

    def _with(self, column: str, what: str) -> Table:
        if self.table is None:
            raise _no_table(column, what, self.where)
        with naming(what):
            require_columns(self.table.frame.columns, NAMED._replace(needed=(column,)), self.table.cells.path)
        return self.table


@dataclass(frozen=True, slots=True, eq=False)
class PartitionColumns:
    """Columns of a folder of Parquet files, of which none is held.

    Attributes
    ----------
    where : str
        What names the files, for messages.
    host : bool
        Whether hosts come from elsewhere.
    """

    files: tuple[Path, ...]
    where: str
    host: bool = False

    def elsewhere(self, column: str) -> bool:
        """Return whether a column is known from elsewhere."""
        return column == "host" and self.host

    def cost(self, what: str, option: str, *, is_file: bool) -> str:
        """Return the column of what a refresh costs."""
        if is_file:
            raise SourceDataError(
                f"{option}: --engine dask reads costs from columns. Make {what} a column of {self.where}."
            )
        self._kind(what, option, groups=False)
        return what

    def levels(self, names: Sequence[str]) -> tuple[list[str], bool]:
        """Return columns of nested groups, and whether integers name some."""
        whole = [self._kind(name, "--nested").is_integer() for name in names]
        return list(names), any(whole)

    def groups(self, column: str, *, wanted: bool) -> tuple[str, list[str]]:
        """Return the column of groups, and them if wanted."""
        import polars

        self._kind(column, "--target")
        if not wanted:
            return column, []
        if self.elsewhere(column):
            raise SourceDataError(
                f"--target by {column}: --hosts lists no groups. Make it a column of {self.where}."
            )
        cells = self._frame().select(polars.col(column).cast(polars.String).unique()).collect()[column]
        return column, sorted(cell for cell in cells.to_list() if cell)

    def _frame(self) -> polars.LazyFrame:
        import polars

        return polars.scan_parquet([str(file) for file in self.files])

    def _kind(self, column: str, what: str, *, groups: bool = True) -> polars.DataType:
        """Return a column's type."""
        import polars

        if self.elsewhere(column):
            return polars.String()
        if not self.files:
            raise _no_table(column, what, self.where)
        known = self._frame().collect_schema()
        if column not in known:
            raise SourceDataError(
                f"{what}: {self.where} has no column '{column}', it has {list_offenders(list(known))}. "
                "Correct the name, or add the column."
            )
        if groups:
            _require_groups(known[column], column, what, self.where)
        return known[column]


def _no_table(column: str, what: str, where: str) -> SourceDataError:
    """Return the error of a column without a table."""
    return SourceDataError(f"{what} names the column '{column}', but there is no table. Pass {where}.")


def _require_groups(kind: polars.DataType, column: str, what: str, where: object) -> None:
    """Raise for a column whose cells name no groups."""
    if kind.is_float() or kind.is_nested():
        raise SourceDataError(
            f"{what}: column '{column}' of {where} holds {kind}. Write groups as text or integers."
        )


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
