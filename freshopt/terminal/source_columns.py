"""Columns of source tables: costs and groups for constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.terminal import tables

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, slots=True, eq=False)
class SourceColumns:
    """Columns in the order of sources.

    Attributes
    ----------
    sources : Sources
    frame : polars.DataFrame or None
        A row per source, in their order; None where no table was given.
    path : Path or None
    where : str
        The option or argument that names the table, for messages.
    """

    sources: Sources
    frame: polars.DataFrame | None
    path: Path | None
    where: str

    @classmethod
    def by_name(cls, sources: Sources, path: Path | None, where: str) -> SourceColumns:
        """Return a table's columns, matched by the column source."""
        if path is None:
            return cls(sources, None, None, where)
        position = tables.column_by_source(path, "source")
        place = {name: k for k, name in enumerate(position)}
        rows = tables.look_up(place, _names(sources, where), "row", path)
        return cls(sources, tables.table_of(path)[rows], path, where)

    def numbers(self, column: str, what: str) -> Array:
        """Return a column as numbers >= 0."""
        if self.frame is None and column == "refresh_cost":
            return self.sources.refresh_cost
        frame, path = self._with(column, what)
        return _costs(frame, column, path, what)

    def labels(self, column: str, what: str) -> npt.NDArray[Any]:
        """Return a column as texts, None where a cell is empty."""
        import polars

        known = self.frame is not None and column in self.frame.columns
        if column == "host" and not known and self.sources.host is not None:
            return np.array([str(host) for host in self.sources.host.tolist()], dtype=object)
        frame, path = self._with(column, what)
        cells = frame[column]
        if cells.dtype.is_float() or cells.dtype.is_nested():
            raise SourceDataError(
                f"{what}: column '{column}' of {path} holds {cells.dtype}. Write groups as text or integers."
            )
        found = cells.cast(polars.String).to_list()
        return np.array([cell if cell else None for cell in found], dtype=object)

    def _with(self, column: str, what: str) -> tuple[polars.DataFrame, Path]:
        if self.frame is None or self.path is None:
            raise SourceDataError(
                f"{what} names the column '{column}', but there is no table. Pass {self.where}."
            )
        if column not in self.frame.columns:
            raise SourceDataError(
                f"{what}: {self.path} has no column '{column}', it has {list_offenders(self.frame.columns)}. "
                "Correct the name, or add the column."
            )
        return self.frame, self.path


def costs_by_name(sources: Sources, path: Path, what: str) -> Array:
    """Return the cost of each source from a table."""
    try:
        given = tables.column_by_source(path, "cost")
        rows = tables.look_up({name: k for k, name in enumerate(given)}, _names(sources, what), "cost", path)
    except SourceDataError as error:
        raise SourceDataError(f"{what}: {error}") from None
    return _costs(tables.table_of(path)[rows], "cost", path, what)


def limits_of(path: Path, time_unit: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return limits and reserves of groups, per `time_unit`.

    The table has the column group, and at_most or at_least or both; an empty cell sets none.
    """
    import polars

    frame = tables.table_of(path)
    tables.unit_of(frame, path, time_unit)
    tables.require_columns(frame, ("group",), path)
    if not {"at_most", "at_least"} & set(frame.columns):
        raise SourceDataError(
            f"{path} has neither a column 'at_most' nor 'at_least', it has {list_offenders(frame.columns)}. "
            "Add one."
        )
    groups = frame["group"].cast(polars.String)
    twice = groups.filter(groups.is_duplicated()).unique(maintain_order=True).to_list()
    if twice:
        named = list_offenders(f"'{name}'" for name in twice)
        raise SourceDataError(f"{path} names group {named} more than once. Keep one row each.")
    found: list[dict[str, float]] = []
    for column in ("at_most", "at_least"):
        cells = (
            tables.numbers_of(frame[column], path).to_list()
            if column in frame.columns
            else [None] * len(frame)
        )
        pairs = zip(groups.to_list(), cells, strict=True)
        found.append({group: value for group, value in pairs if value is not None})
        bad = [f"'{group}': {value:g}" for group, value in found[-1].items() if not 0.0 <= value < np.inf]
        if bad:
            raise SourceDataError(
                f"{column} in {path} is no number >= 0 for {list_offenders(bad)}. Correct it."
            )
    if not any(found):
        raise SourceDataError(f"{path} has no limits. Fill at_most or at_least of a group.")
    return found[0], found[1]


def _costs(frame: polars.DataFrame, column: str, path: Path, what: str) -> Array:
    try:
        tables.require_columns(frame, (column,), path)
        cost = tables.numbers_of(frame[column], path).to_numpy()
    except SourceDataError as error:
        raise SourceDataError(f"{what}: {error}") from None
    return np.asarray(cost, dtype=np.float64)


def _names(sources: Sources, what: str) -> Sequence[object]:
    if sources.name is None:
        raise SourceDataError(
            f"{what} is matched by name, and the sources have none. Add the column 'source' to them."
        )
    names: list[object] = sources.name.tolist()
    return names
