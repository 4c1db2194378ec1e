"""Columns of source tables: costs and groups for constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.heavy import polars
from freshopt.logs import schema
from freshopt.logs.schema import NAMED, Table, naming, require_columns
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array


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
