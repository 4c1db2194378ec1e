"""`RowPiece`: one partition's sources with their part of the declared rows.

The rows are the same in every partition, in number and in limits; each partition has the entries of its own
sources. Whatever a solve asks of the rows is then a sum over partitions. A bound that a budget implies needs
what all sources use at their lower bounds, which one pass adds up first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.distributed.dask_passes import unpack
from freshopt.distributed.partition import (
    codes_of,
    compiled_by_size,
    naming_rows,
    numbers_of,
    sources_from,
    sources_of,
)
from freshopt.distributed.partitioned_sources import FilePart, Frame, Table, carried, read
from freshopt.distributed.rows.column_rows import ColumnRows
from freshopt.errors import ObjectiveError, SourceDataError, list_offenders
from freshopt.interior_point.compiled_row_passes import passes_in_parts
from freshopt.interior_point.row_layout import FEW, MOST, Arrow
from freshopt.interior_point.row_passes import NumpyRowPasses, RowPasses
from freshopt.interior_point.row_presolve import without_rows
from freshopt.modelling.objective import Objective
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, IntArray, read_only
from freshopt.separable.kernel import Numerics
from freshopt.separable.program import Program, implied_upper
from freshopt.separable.rows import Rows

# The partition, its label, its first row, and its shares of the objectives if these hold arrays.
Call = tuple[FilePart | Frame, str, int, tuple[bytes | None, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedRows:
    """Data of a problem with declared rows that all partitions share.

    Attributes
    ----------
    columns : tuple of str
        Those of sources that the partitions have.
    needed : ndarray, shape (m,)
        What the rows add up to at the lower bounds, of budgets; 0 of targets.
    idle, tight : ndarray of bool, shape (m,)
        Rows that decide nothing, and rows that fix their sources (`freshopt.interior_point.row_presolve`).
    """

    objective: Objective
    constraints: tuple[ColumnRows, ...]
    columns: tuple[str, ...]
    time_unit: str
    needed: Array
    idle: BoolArray
    tight: BoolArray

    @property
    def kept(self) -> BoolArray:
        """Rows that are searched, shape (m,)."""
        kept: BoolArray = ~(self.idle | self.tight)
        return kept

    @property
    def arrow(self) -> Arrow | None:
        """Kept rows of the largest constraint, if the others are few.

        A source is in one group of a constraint at most, so that its rows are disjoint.
        """
        owner = np.repeat(np.arange(len(self.constraints)), [len(one) for one in self.constraints])
        owner = owner[self.kept]
        if len(owner) <= FEW:
            return None
        largest = int(np.argmax(np.bincount(owner)))
        hosts, others = np.flatnonzero(owner == largest), np.flatnonzero(owner != largest)
        if len(others) > MOST * len(hosts):
            return None
        place = np.empty(len(owner), dtype=np.int64)
        place[np.concatenate((hosts, others))] = np.arange(len(owner))
        return Arrow(hosts, others, place)

    def wanted(self, *, names: bool = False) -> list[str]:
        """Return the columns that rates depend on, perhaps with names."""
        own = carried(self.columns)
        own += ["source"] if names and "source" in self.columns else []
        further = [name for one in self.constraints for name in one.columns]
        return list(dict.fromkeys([*own, *further]))

    def passes(self, program: Program) -> RowPasses:
        """Return passes over a partition's sources, compiled by size alone."""
        if compiled_by_size(len(program)):
            return passes_in_parts(program, self.arrow)
        return NumpyRowPasses(program, self.arrow)


@dataclass(frozen=True, slots=True, eq=False)
class RowColumns:
    """Columns of some sources: numbers, groups and costs.

    Attributes
    ----------
    codes : tuple of ndarray of int, each of shape (n,)
        Position of each source's group, constraint by constraint; G for none.
    costs : tuple of ndarray of shape (n,), or None
        Cost of each source, constraint by constraint; None for ``refresh_cost``.
    """

    sources: Sources
    codes: tuple[IntArray, ...]
    costs: tuple[Array | None, ...]

    @classmethod
    def of(cls, table: Table, label: str, first: int, terms: PartitionedRows) -> RowColumns:
        """Return the columns of a partition's table.

        Raises
        ------
        SourceDataError
            If a value is missing or out of range, naming file and row.
        """
        sources = sources_of(table, label, first, terms.columns, terms.time_unit)
        constraints = terms.constraints
        return cls(
            sources,
            tuple(_codes(one, table, label, first) for one in constraints),
            tuple(_cost(one, table, label, first) for one in constraints),
        )

    def drawn(self, place: IntArray, present: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of some sources, to be joined with others'."""
        found: dict[str, npt.NDArray[Any]] = {"place": place}
        for key in carried(present):
            found[key] = np.ascontiguousarray(self.sources[key][place])
        for k, (codes, cost) in enumerate(zip(self.codes, self.costs, strict=True)):
            found[f"group {k}"] = codes[place]
            if cost is not None:
                found[f"cost {k}"] = cost[place]
        return found

    @classmethod
    def joined(cls, drawn: Sequence[dict[str, npt.NDArray[Any]]], terms: PartitionedRows) -> RowColumns:
        """Return the columns of samples, one after the other."""
        columns = {key: np.concatenate([one[key] for one in drawn]) for key in drawn[0]}
        count = range(len(terms.constraints))
        return cls(
            sources_from(columns, terms.columns, terms.time_unit),
            tuple(columns[f"group {k}"] for k in count),
            tuple(columns.get(f"cost {k}") for k in count),
        )


@dataclass(frozen=True, slots=True, eq=False)
class RowPiece:
    """Some sources with their part of the rows.

    Attributes
    ----------
    objective : Objective
        Its share of these sources.
    upper : ndarray, shape (n,)
        Declared upper bounds.
    program : Program
        Under all rows, with the bounds that they imply.
    """

    sources: Sources
    objective: Objective
    numerics: Numerics
    upper: Array
    program: Program

    @classmethod
    def of(
        cls, columns: RowColumns, objectives: Sequence[Objective | None], terms: PartitionedRows
    ) -> RowPiece:
        """Return the program of some sources.

        Parameters
        ----------
        objectives : sequence of Objective or None
            The objective, then each constraint's, for these sources.
        """
        sources, objective = columns.sources, objectives[0]
        assert objective is not None
        numerics, unknown = numerics_of(objective, sources)
        if numerics is None:
            raise ObjectiveError(f"{unknown} Partitions can do without a cone solver only.")
        parts = zip(terms.constraints, columns.codes, columns.costs, objectives[1:], strict=True)
        rows = Rows.gather(
            [one.block(sources, codes, cost, own) for one, codes, cost, own in parts], len(sources)
        )
        upper = sources.max_rate
        if bool(np.any(sources.signalled)):
            upper = read_only(np.where(sources.signalled, np.minimum(upper, sources.change_rate), upper))
        implied = implied_upper(rows, sources.min_rate, upper, terms.needed)
        program = Program(numerics, sources.min_rate, implied, sources.change_rate, rows)
        return cls(sources, objective, numerics, upper, program)

    def inner(self, terms: PartitionedRows) -> Program:
        """Return the program without idle and tight rows."""
        if not bool(np.any(terms.idle | terms.tight)):
            return self.program
        return without_rows(self.program, terms.idle, terms.tight)

    def rates(self, terms: PartitionedRows, multipliers: Array) -> Array:
        """Return the best responses to multipliers of all rows, shape (m,)."""
        passes = terms.passes(self.inner(terms))
        return passes.evaluate(multipliers[terms.kept], gram=False).rates


def columns_of_part(
    part: FilePart | Frame, label: str, first: int, terms: PartitionedRows, *, names: bool = False
) -> tuple[Table, RowColumns | None]:
    """Return a partition's table and its columns; None without rows."""
    table = read(part, terms.wanted(names=names), label)
    return table, RowColumns.of(table, label, first, terms) if table.num_rows else None


def own_objectives(shares: Sequence[bytes | None], terms: PartitionedRows) -> list[Objective | None]:
    """Return the objective and each constraint's, as a partition has them."""
    whole = [terms.objective, *(one.objective for one in terms.constraints)]
    return [one if share is None else unpack(share) for one, share in zip(whole, shares, strict=True)]


def piece_of_part(
    label: str, first: int, shares: Sequence[bytes | None], columns: RowColumns, terms: PartitionedRows
) -> RowPiece:
    """Return a partition's piece; its errors name file and row."""
    return naming_rows(label, first, lambda: RowPiece.of(columns, own_objectives(shares, terms), terms))


def _codes(constraint: ColumnRows, table: Table, label: str, first: int) -> IntArray:
    if constraint.by is None:
        return np.zeros(table.num_rows, dtype=np.int64)
    keys = constraint.keys
    if keys is None:
        return np.zeros(table.num_rows, dtype=np.int64)
    what = f"groups of {constraint.name!r}"
    return codes_of(table, label, first, keys, constraint.by, what, optional=True)


def _cost(constraint: ColumnRows, table: Table, label: str, first: int) -> Array | None:
    if constraint.cost is None:
        return None
    if not isinstance(constraint.cost, str):
        return np.full(table.num_rows, constraint.cost)
    cost = numbers_of(table, constraint.cost, label, first)
    bad = np.flatnonzero(~((cost >= 0.0) & np.isfinite(cost)))
    if len(bad):
        where = list_offenders(f"row {first + k}: {cost[k]:g}" for k in bad)
        raise SourceDataError(
            f"{label} (its first row is 0): column {constraint.cost!r} of Budget {constraint.name!r} is "
            f"negative or no number for {where}. Correct it."
        )
    return cost
