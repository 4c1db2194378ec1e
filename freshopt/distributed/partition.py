"""`PartitionedProblem`: what partitions share. `Partition`: one of them, with its columns checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.distributed.column_rows import ColumnRows
from freshopt.distributed.dask_passes import unpack
from freshopt.distributed.partitioned_sources import NUMBERS, FilePart, Frame, Table, carried
from freshopt.errors import FreshoptError, SourceDataError
from freshopt.heavy import pa, pc
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, Array, IntArray


class Partition(NamedTuple):
    """One partition, as workers are told of it.

    - `data`: What it is read from.
    - `label`, `first`: What it is called in messages, and the row of its file where it begins.
    - `share`: Its own share of an objective that holds arrays, packed.
    - `rows`, `start`: The number of its sources, and of those before it, once all were scanned.
    """

    data: FilePart | Frame
    label: str
    first: int
    share: bytes | None
    rows: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedProblem:
    """Data of a partitioned problem that all partitions share.

    - `constraints`: The bandwidth, limits of hosts and declared constraints.
    - `columns`: Those that the partitions have.
    """

    objective: Objective
    constraints: tuple[ColumnRows, ...]
    columns: tuple[str, ...]
    time_unit: str

    def priced(self) -> list[str]:
        """Return the columns that prices and rates depend on."""
        groups = [one.by for one in self.constraints if one.by is not None]
        return list(dict.fromkeys([*carried(self.columns), *groups]))

    def problem(self, objective: Objective, columns: Mapping[str, npt.NDArray[Any]]) -> Problem:
        """Return the problem of some sources; its limits are rows, apart."""
        present = {name: columns[name] for name in carried(self.columns)}
        own = {name: present.pop(name) for name in [*present] if name not in NUMBERS}
        return Problem(objective, Sources(**present, time_unit=self.time_unit, columns=own), LARGEST)


class HostSums:
    """Compensated sums of arrays.

    They depend on the order of the terms in the last bit at most.

    Examples
    --------
    >>> sums = HostSums((1,))
    >>> for term in (1e16, 1.0, -1e16):
    ...     sums.add(np.array([term]))
    >>> sums.total()
    array([1.])
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._head, self._tail = np.zeros(shape), np.zeros(shape)

    def add(self, term: Array) -> None:
        """Add a term, row by row, keeping its rounding error."""
        for total, tail, row in zip(*map(np.atleast_2d, (self._head, self._tail, term)), strict=True):
            head = total + row
            with np.errstate(invalid="ignore"):
                kept = head - total
                lost = (total - (head - kept)) + (row - kept)
            tail += np.where(np.isfinite(lost), lost, 0.0)
            total[...] = head

    def total(self) -> Array:
        """Return the sum so far."""
        return self._head + self._tail


def problem_of(table: Table, part: Partition, terms: PartitionedProblem) -> Problem:
    """Return the problem of a partition's sources, without limits.

    Errors name the file and the row.

    - raises FreshoptError if a value is missing or out of range, or the objective is refused.
    """
    columns = {name: numbers_of(table, name, part) for name in carried(terms.columns)}
    objective = terms.objective if part.share is None else unpack(part.share)
    try:
        return terms.problem(objective, columns)
    except FreshoptError as error:
        text = re.sub(r"source (\d+)", lambda found: f"row {part.first + int(found.group(1))}", str(error))
        raise type(error)(f"{part.label} (its first row is 0): {text}") from None


def group_codes(constraint: ColumnRows, table: Table, part: Partition) -> IntArray:
    """Return the position of each source's group, G for none."""
    if constraint.by is None:
        return np.zeros(table.num_rows, dtype=np.int64)
    groups = constraint.groups
    column = plain_column(table, constraint.by, part, optional=not constraint.of_hosts)
    try:
        known = pa.array(list(groups)).cast(column.type)
    except pa.ArrowException:
        what = "hosts" if constraint.of_hosts else f"groups of {constraint.name!r}"
        raise SourceDataError(
            f"{part.label}: {what} are {column.type}, and those with a limit are not (first: {groups[0]!r}). "
            "Name them as the column does."
        ) from None
    found = pc.fill_null(pc.index_in(column, value_set=known), len(groups))
    codes: IntArray = found.to_numpy().astype(np.int64)
    return codes


def numbers_of(table: Table, name: str, part: Partition) -> Array:
    """Return a column of numbers in float64."""
    column = plain_column(table, name, part)
    kind = column.type
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise SourceDataError(f"{part.label}: column '{name}' holds {kind}. Make it numbers.")
    values: Array = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def plain_column(table: Table, name: str, part: Partition, *, optional: bool = False) -> Any:  # noqa: ANN401
    """Return a column without a dictionary, and without empty cells unless `optional`."""
    column = table.column(name)
    if column.null_count and not optional:
        row = part.first + pc.index(pc.is_null(column), True).as_py()
        more = f" and {column.null_count - 1} more" if column.null_count > 1 else ""
        raise SourceDataError(
            f"{part.label} (its first row is 0): column '{name}' is empty or no number in row {row}{more}. "
            "Fill the cells or drop the rows."
        )
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
