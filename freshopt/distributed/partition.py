"""`PartitionedProblem`: what partitions share, and their columns, checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from freshopt.distributed.column_rows import ColumnRows
from freshopt.distributed.dask_passes import unpack
from freshopt.distributed.partitioned_sources import NUMBERS, Table, carried
from freshopt.errors import FreshoptError, SourceDataError
from freshopt.heavy import pa, pc
from freshopt.modelling.objective import Objective
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray

Made = TypeVar("Made")


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

    def own(self, share: bytes | None) -> Objective:
        """Return a partition's objective: the common one, or its packed share."""
        return self.objective if share is None else unpack(share)

    def priced(self) -> list[str]:
        """Return the columns that prices and rates depend on."""
        groups = [one.by for one in self.constraints if one.by is not None]
        return list(dict.fromkeys([*carried(self.columns), *groups]))


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
        if term.ndim > 1:
            for head, tail, row in zip(self._head, self._tail, term, strict=True):
                self._add(head, tail, row)
        else:
            self._add(self._head, self._tail, term)

    @staticmethod
    def _add(total: Array, tail: Array, term: Array) -> None:
        head = total + term
        with np.errstate(invalid="ignore"):
            kept = head - total
            lost = (total - (head - kept)) + (term - kept)
        tail += np.where(np.isfinite(lost), lost, 0.0)
        total[...] = head

    def total(self) -> Array:
        """Return the sum so far."""
        return self._head + self._tail


def sources_of(table: Table, label: str, first: int, carrying: Sequence[str], time_unit: str) -> Sources:
    """Return a table's sources, without names and hosts."""
    columns = {name: numbers_of(table, name, label, first) for name in carried(carrying)}
    return naming_rows(label, first, lambda: sources_from(columns, carrying, time_unit))


def sources_from(columns: Mapping[str, npt.NDArray[Any]], carrying: Sequence[str], time_unit: str) -> Sources:
    """Return sources of columns by name, one's own among them."""
    present = {name: columns[name] for name in carried(carrying)}
    own = {name: present.pop(name) for name in [*present] if name not in NUMBERS}
    return Sources(**present, time_unit=time_unit, columns=own)


def naming_rows(label: str, first: int, make: Callable[[], Made]) -> Made:
    """Call `make`; its errors name rows instead of sources."""
    try:
        return make()
    except FreshoptError as error:
        text = re.sub(r"source (\d+)", lambda found: f"row {first + int(found.group(1))}", str(error))
        raise type(error)(f"{label} (its first row is 0): {text}") from None


def codes_of(
    table: Table,
    label: str,
    first: int,
    hosts: Sequence[Any],
    name: str = "host",
    what: str = "hosts",
    *,
    optional: bool = False,
) -> IntArray:
    """Return each source's position among the limited hosts.

    H where its host has no limit. A column of other groups may be named, and be empty where `optional`.
    """
    column = plain_column(table, name, label, first, optional=optional)
    try:
        known = pa.array(list(hosts)).cast(column.type)
    except pa.ArrowException:
        raise SourceDataError(
            f"{label}: {what} are {column.type}, and those with a limit are not (first: {hosts[0]!r}). "
            "Name them as the column does."
        ) from None
    found = pc.fill_null(pc.index_in(column, value_set=known), len(hosts))
    codes: IntArray = found.to_numpy().astype(np.int64)
    return codes


def numbers_of(table: Table, name: str, label: str, first: int) -> Array:
    """Return a column of numbers in float64."""
    column = plain_column(table, name, label, first)
    kind = column.type
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise SourceDataError(f"{label}: column '{name}' holds {kind}. Make it numbers.")
    values: Array = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def plain_column(table: Table, name: str, label: str, first: int, *, optional: bool = False) -> Any:  # noqa: ANN401
    """Return a column without a dictionary, and without empty cells unless `optional`."""
    column = table.column(name)
    if column.null_count and not optional:
        row = first + pc.index(pc.is_null(column), True).as_py()
        more = f" and {column.null_count - 1} more" if column.null_count > 1 else ""
        raise SourceDataError(
            f"{label} (its first row is 0): column '{name}' is empty or no number in row {row}{more}. "
            "Fill the cells or drop the rows."
        )
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
