"""Columns of a program with declared constraints, for compiled passes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshopt.compiled.columns import Column, column
from freshopt.compiled.cost_functions import Value
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.rows.mixed_costs import CODES
from freshopt.compiled.rows.row_columns import RowColumns, rows_enabled
from freshopt.compiled.rows.row_records import FamilyColumns, RowEntries
from freshopt.compiled.source_columns import SourceColumns
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_float64
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics
from freshopt.separable.kernel_columns import parameters_of, share_parameters
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE, Rows

# Rows that concern so large a share of the sources are kept as columns.
DENSE = 0.5


def row_columns(program: Program, disjoint: BoolArray | None = None) -> RowColumns | None:
    """Return the columns of a program for compiled passes, or None.

    Its objective, and the curves of its rows if there are any, must be kernels: of one family with a demand
    function, the curves with a cost function besides, or all with cost functions that have a code.

    - `disjoint` (m,): Which rows are host rows: a source is in one of them or in none. The Gram matrix is
      then an `ArrowGram`.
    """
    parts = _parts(program)
    if parts is None:
        return _mixed(program, disjoint)
    silent, announced, signalled, price = parts
    value = silent.unit_value if program.rows.curves else None
    other = None if announced is None else announced.unit_demand
    if silent.unit_demand is None or (program.rows.curves and value is None):
        return _mixed(program, disjoint)
    if not rows_enabled(len(program), silent.unit_demand, other, value):
        return None
    formulas = (silent.unit_demand, other, value)
    kinds = np.minimum(np.arange(1 + len(program.rows.curves)), 1)
    return _columns(program, formulas, _sources(program, silent, signalled, price), kinds, disjoint)


def _mixed(program: Program, disjoint: BoolArray | None) -> RowColumns | None:
    """Return the columns of costs of several families, or None."""
    rows, numerics = program.rows, program.numerics
    linear = isinstance(numerics, LinearCost)
    parts: list[Numerics] = [*rows.curves] if linear or numerics is None else [numerics, *rows.curves]
    kernels = [part for part in parts if isinstance(part, Kernel) and part.unit_value in CODES]
    if not rows.curves or len(kernels) < len(parts) or not rows_enabled(len(program), None, None, None):
        return None
    families: list[Kernel] = []
    kind = [RATE]
    for kernel in kernels:
        own = next((f for f, other in enumerate(families) if _same_unit(kernel, other)), len(families))
        if own == len(families):
            families.append(kernel)
        kind.append(1 + own)
    columns: list[Array] = []
    which = []
    for family in families:
        own = next(
            (p for p, other in enumerate(columns) if _equal(family.parameters[0], other)), len(columns)
        )
        if own == len(columns):
            columns.append(family.parameters[0])
        which.append(own)
    objective = kind.pop(1) if len(parts) > len(rows.curves) else 0
    valued = np.zeros(len(families), dtype=np.bool_)
    valued[np.array(kind[1:]) - 1] = True
    n, start = len(program), np.clip(program.typical, program.lower, program.upper)
    importance = as_float64(kernels[0].importance) if objective else np.zeros(n)
    sources = FamilyColumns(
        np.array([CODES[family.unit_value] for family in families if family.unit_value]),
        np.array(which),
        valued,
        objective,
        _own(importance),
        np.stack([np.broadcast_to(as_float64(each), (n,)) for each in columns]),
        _own(numerics.unit if isinstance(numerics, LinearCost) else np.zeros(n)),
        _own(program.lower),
        _own(program.upper),
        np.where(start > 0.0, start, program.typical),
    )
    return _columns(program, (None, None, None), sources, np.array(kind), disjoint)


def _same_unit(a: Kernel, b: Kernel) -> bool:
    """Return whether two kernels have equal costs but for importance."""
    return a.unit_value is b.unit_value and _equal(a.parameters[0], b.parameters[0])


def _equal(a: Array, b: Array) -> bool:
    return a is b or np.array_equal(a, b)


def _own(column: Array) -> Array:
    """Return a column as an array in memory, of one kind."""
    return np.require(np.broadcast_to(column, column.shape), np.float64, "C")


def _parts(program: Program) -> tuple[Kernel, Kernel | None, BoolArray | bool, Array] | None:
    """Return the kernels of silent and of signalled sources.

    Beside them: which sources are signalled, and what a source pays whatever the multipliers. None where
    there are no such kernels.
    """
    at_zero, numerics = Lagrangian.at(program, np.zeros(len(program.rows))), program.numerics
    if isinstance(at_zero.family, Kernel):
        return at_zero.family, None, False, at_zero.price
    if not isinstance(numerics, MixedNumerics) or program.rows.curves:
        return None
    silent, announced = numerics.silent_sources, numerics.signalled_sources
    if not isinstance(silent, Kernel) or not isinstance(announced, Kernel):
        return None
    if announced.unit_demand is None or not share_parameters(silent, announced):
        return None
    return silent, announced, numerics.signalled, at_zero.price


def _sources(program: Program, kernel: Kernel, signalled: BoolArray | bool, price: Array) -> SourceColumns:
    """Return the columns of sources that a pass reads."""
    importance: Column = 1.0 if kernel.demand_parameters is not None else column(kernel.importance)
    return SourceColumns(
        signalled,
        importance,
        tuple(column(parameter) for parameter in parameters_of(kernel)),
        column(price) if np.any(price) else 0.0,
        column(program.lower),
        column(program.upper),
    )


def _columns(
    program: Program,
    formulas: tuple[Demand | None, Demand | None, Value | None],
    sources: SourceColumns | FamilyColumns,
    kinds: IntArray,
    disjoint: BoolArray | None,
) -> RowColumns | None:
    """Return columns of a program with known formulas, kinds rate's and curves'."""
    n, rows = len(program), program.rows
    if disjoint is None and rows.dense and bool(np.all(rows.coefficient)):
        columns = np.ascontiguousarray(rows.coefficient.reshape(n, len(rows)).T)
        every, none = np.zeros(len(rows), dtype=np.int64), np.zeros(0, dtype=np.int64)
        narrow, empty = none.astype(np.int32), np.zeros(0)
        first = np.zeros(n + 1, dtype=np.int64)
        entries = RowEntries(columns, every, first, narrow, empty, none, narrow, empty, none)
        return RowColumns(n, *formulas, sources, entries, np.arange(len(rows)), none, none)
    kind = np.zeros(len(rows), dtype=np.int64)
    kind[rows.row] = kinds[rows.kind]
    if rows.curves and np.any(kind[rows.row] != kinds[rows.kind]):
        return None  # a row of two kinds
    source, row, coefficient = _entries(rows)
    hosts = np.zeros(len(rows), dtype=np.bool_) if disjoint is None else disjoint
    dense = ~hosts & (np.bincount(row, minlength=len(rows)) >= max(1.0, DENSE * n))
    parts = (dense, ~hosts & ~dense, hosts)
    place = np.zeros(len(rows), dtype=np.int32)
    for part in parts:
        place[part] = np.arange(np.count_nonzero(part))
    of_dense, of_sparse, of_host = (np.flatnonzero(part[row]) for part in parts)
    columns = np.zeros((np.count_nonzero(dense), n))
    columns[place[row[of_dense]], source[of_dense]] = coefficient[of_dense]
    host, share = np.zeros(0, dtype=np.int32), np.zeros(0)
    if len(of_host):
        host, share = np.full(n, -1, dtype=np.int32), np.zeros(n)
        host[source[of_host]] = place[row[of_host]]
        share[source[of_host]] = coefficient[of_host]
        if np.count_nonzero(host >= 0) < len(of_host):
            raise ValueError("a source is in two host rows. They are not disjoint. Pass them as other rows.")
    first = np.concatenate(([0], np.cumsum(np.bincount(source[of_sparse], minlength=n))))
    entries = RowEntries(
        columns,
        kind[dense],
        first,
        place[row[of_sparse]],
        coefficient[of_sparse],
        kind[parts[1]],
        host,
        share,
        kind[hosts],
    )
    indices = (np.flatnonzero(part) for part in parts)
    return RowColumns(n, *formulas, sources, entries, *indices)


def _entries(rows: Rows) -> tuple[IntArray, npt.NDArray[np.int32], Array]:
    """Return source, row and coefficient of entries.

    There is one of each pair, by rows within a source.

    The coefficients of curves hold the importance of the source.
    """
    source, row, coefficient = rows.source, rows.row, rows.coefficient
    for t, curve in enumerate(rows.curves, start=1):
        assert isinstance(curve, Kernel)
        own = rows.kind == t
        coefficient = np.where(own, coefficient * as_float64(curve.importance)[source], coefficient)
    if not np.all(coefficient):  # an infinite cost of no importance is none
        some = np.flatnonzero(coefficient)
        source, row, coefficient = source[some], row[some], coefficient[some]
    pair = source * np.int64(max(1, len(rows))) + row
    if np.all(pair[1:] > pair[:-1]):
        return source, row, coefficient
    order = np.argsort(pair, kind="stable")
    pair = pair[order]
    starts = np.flatnonzero(np.concatenate(([True], pair[1:] > pair[:-1])))
    return source[order][starts], row[order][starts], np.add.reduceat(coefficient[order], starts)
