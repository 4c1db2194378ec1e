"""`Partition`: one partition on a worker, its rates at prices.

A partition is a `Problem` of its own sources, so that bounds, signals, costs and every objective mean what
they mean in memory. Its rates come from compiled loops where the objective has them and the partition is
large, else from its numerics in chunks. Hosts are numbered by the position of their limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from freshopt.compiled import backend
from freshopt.compiled.columns import Columns
from freshopt.distributed.dask_passes import unpack
from freshopt.distributed.partitioned_sources import NUMBERS, Table, carried
from freshopt.distributed.rows.column_rows import ColumnRows
from freshopt.dual_search.problem_columns import numerics_columns
from freshopt.errors import FreshoptError, ObjectiveError, SourceDataError
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import CHUNK, Array, IntArray, chunks, exact_sum, read_only
from freshopt.numerics.segments import group_sums
from freshopt.separable.kernel import Numerics

Made = TypeVar("Made")

# Partitions are compiled by size alone, not by what a worker happens to have loaded or done: a step that runs
# again returns the same bits.
COMPILED_FROM = 65_536


def compiled_by_size(n: int) -> bool:
    """Return whether passes over n sources of a partition are compiled."""
    return n >= COMPILED_FROM and backend.compiled()


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedProblem:
    """Data of a partitioned problem that all partitions share.

    Attributes
    ----------
    hosts : tuple
        The limited hosts.
    columns : tuple of str
        Those that the partitions have.
    constraints : tuple of ColumnRows
        Declared constraints, with the bandwidth and limits of hosts; none where nothing is declared.
    """

    objective: Objective
    bandwidth: float
    hosts: tuple[Any, ...]
    columns: tuple[str, ...]
    time_unit: str
    constraints: tuple[ColumnRows, ...] = ()

    def own(self, share: bytes | None) -> Objective:
        """Return a partition's objective: the common one, or its packed share."""
        return self.objective if share is None else unpack(share)

    def priced(self) -> list[str]:
        """Return the columns that prices and rates depend on."""
        own = carried(self.columns)
        own += ["host"] if self.hosts else []
        return list(dict.fromkeys([*own, *(one.by for one in self.constraints if one.by is not None)]))


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Sources of one partition, ready to be evaluated at prices.

    Attributes
    ----------
    problem : Problem
        Without hosts.
    columns : Columns or None
        Of compiled loops.
    codes : ndarray of int, shape (n,), or None
        Position of each source's host among the limited ones, H for none; None without limits.
    hosts : int
        H, the number of limited hosts.
    """

    problem: Problem
    numerics: Numerics
    columns: Columns | None
    codes: IntArray | None
    hosts: int

    @classmethod
    def of(
        cls, objective: Objective, sources: Sources, bandwidth: float, codes: IntArray | None, hosts: int
    ) -> Partition:
        """Return the partition of given sources.

        Raises
        ------
        ObjectiveError
            If the objective is refused, or has an atom without derivatives.
        """
        problem = Problem(objective, sources, bandwidth)
        if problem.numerics is None:
            raise ObjectiveError(f"{problem.unknown_atom} Partitions can do without a cone solver only.")
        columns = None
        if compiled_by_size(len(sources)):
            columns = numerics_columns(problem.numerics, sources.refresh_cost, problem.lower, problem.upper)
        return cls(problem, problem.numerics, columns, codes, hosts)

    def rates(self, price: float | Array) -> Array:
        """Return each source's best response to a price.

        The price is per unit of bandwidth: one number, or one per source; inf stands for the lower bounds.
        """
        sources, columns = self.problem.sources, self.columns
        if np.ndim(price) == 0 and price == np.inf:
            return np.array(self.problem.lower)
        rates = np.empty(len(sources))
        if columns is not None:
            if isinstance(price, np.ndarray):
                columns, price = replace(columns, importance=read_only(columns.importance / price)), 1.0
            columns.fill(float(price), rates)
            return rates
        cost, lower, upper = sources.refresh_cost, self.problem.lower, self.problem.upper
        paid = np.broadcast_to(price, rates.shape)
        for part in chunks(len(rates)):
            unconstrained = self.numerics.take(part).inverse_marginal(cost[part] * paid[part])
            # Finite stand-in where the unconstrained rate is infinite.
            most = 2.0 * self.problem.bandwidth / cost[part]
            rates[part] = np.clip(
                np.where(np.isinf(unconstrained), most, unconstrained), lower[part], upper[part]
            )
        return rates

    def use(self, price: float | Array) -> Array:
        """Return the bandwidth used at a price, shape (1+H,).

        Σ cost·ρ of the sources without a limit, then of each limited host.
        """
        if self.codes is None and self.columns is not None and isinstance(price, float) and price < np.inf:
            return np.array([self.columns.demand(price)])
        return self.totals(self.rates(price))

    def totals(self, rates: Array) -> Array:
        """Return the bandwidth that rates use, shape (1+H,).

        Σ cost·ρ of the sources without a limit, then of each limited host.
        """
        return self.sums(self.problem.sources.refresh_cost, rates)

    def sums(self, factor: Array, amounts: Array) -> Array:
        """Return Σ factor·amount likewise, shape (1+H,).

        It is summed chunk by chunk, as one long sum loses digits.
        """
        codes = self.codes
        if codes is None:
            return np.array([exact_sum(float(np.dot(factor[p], amounts[p])) for p in chunks(len(amounts)))])
        found, size = HostSums((self.hosts + 1,)), max(CHUNK, self.hosts)
        for part in chunks(len(amounts), size):
            found.add(group_sums(factor[part] * amounts[part], codes[part], self.hosts + 1))
        return np.roll(found.total(), 1)

    def broadcast_to_sources(self, per_host: Array, otherwise: float) -> Array:
        """Return each source's host's value, shape (n,)."""
        codes = np.zeros(0, dtype=np.int64) if self.codes is None else self.codes
        values: Array = np.append(per_host, otherwise)[codes]
        return values


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


def piece_of(
    table: Table, label: str, first: int, objective: Objective, terms: PartitionedProblem
) -> Partition:
    """Return the partition of a table.

    Errors name the file and the row.

    Raises
    ------
    FreshoptError
        If a value is missing or out of range, or the objective is refused.
    """
    codes = codes_of(table, label, first, terms.hosts) if terms.hosts else None
    sources = sources_of(table, label, first, terms.columns, terms.time_unit)
    return naming_rows(
        label, first, lambda: Partition.of(objective, sources, terms.bandwidth, codes, len(terms.hosts))
    )


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
    import pyarrow as pa
    import pyarrow.compute as pc

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
    import pyarrow as pa
    import pyarrow.compute as pc

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
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name)
    if column.null_count and not optional:
        row = first + pc.index(pc.is_null(column), True).as_py()
        more = f" and {column.null_count - 1} more" if column.null_count > 1 else ""
        raise SourceDataError(
            f"{label} (its first row is 0): column '{name}' is empty or no number in row {row}{more}. "
            "Fill the cells or drop the rows."
        )
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
