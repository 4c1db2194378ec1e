"""Compiled passes of declared constraints over sources.

This module imports numba and is imported when first needed. Its functions stand in
`freshopt.compiled.rows.row_sums`; the machine code is cached as that of `freshopt.compiled.loops`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba.extending import register_jitable

from freshopt.compiled import cost_functions, loops
from freshopt.compiled.column_access import part
from freshopt.compiled.cost_functions import Value
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.kept_code import compile_loop, functions_of
from freshopt.compiled.loops import FAITHFUL, FAST
from freshopt.compiled.rows import row_sums
from freshopt.compiled.rows.row_records import RowEntries, RowPrices, RowSums
from freshopt.compiled.rows.row_sums import (
    STEP,
    add_dense_gram,
    add_host_gram,
    add_prices,
    add_sparse_gram,
    add_used,
    bound_rates,
    fill_base,
    fill_curvature,
    fill_demand,
    fill_slopes,
    fill_values,
    fold_lanes,
    of_block,
)
from freshopt.compiled.source_columns import Data, SourceColumns
from freshopt.numerics.arrays import Array

# Sources of a chunk: eight vectors of scratch and as many dense rows are 128 KiB, in the second-level cache.
CHUNK = 1024
# Gram matrices need no order; what sources use of a row is added with its rounding errors, and formulas are
# evaluated as written.
UNORDERED = ("add_multiple", "product", "add_dense_gram", "add_sparse_gram", "add_host_gram")

for _function in functions_of(cost_functions, row_sums):
    register_jitable(fastmath=FAST if _function.__name__ in UNORDERED else FAITHFUL)(_function)


def build(formula: Demand, announced: Demand | None, cost: Value | None) -> tuple[Callable[..., None], ...]:
    """Return the loop `scan` of a demand function and its cost.

    Without a cost all rows are of the rate.
    """
    rate, value = loops.either(formula, announced), _value_of(cost)
    has_value = cost is not None

    @compile_loop(fastmath=FAITHFUL)
    def scan(
        begin: int,
        end: int,
        n: int,
        size: int,
        columns: SourceColumns,
        rows: RowEntries,
        y: RowPrices,
        gram: bool,
        sums: RowSums,
        out: Array,
    ) -> None:
        memory, slopes = np.zeros((4, CHUNK)), np.empty(0)
        # Of each kind, the rate and the cost, what is paid for it, its value and its slope.
        theta, values, tilt = np.zeros((2, CHUNK)), np.zeros((2, CHUNK)), np.ones((2, CHUNK))
        for block in range(begin, end):
            own = of_block(sums, block)
            last = min(n, (block + 1) * size)
            for a in range(block * size, last, CHUNK):
                b = min(last, a + CHUNK)
                # Views of one line each: those of several would not be known to be contiguous.
                price, weight = theta[0, : b - a], theta[1, : b - a]
                inverse, free = memory[0, : b - a], memory[1, : b - a]
                less, more = memory[2, : b - a], memory[3, : b - a]
                chunk, rates = part(columns, a, b), out[a:b]
                fill_base(chunk, price, weight)
                add_prices(rows, y, a, b - a, theta)
                # One call in a loop: each takes seconds to compile.
                for trial in range(3 if gram else 1):
                    factor = 1.0 if trial == 0 else (1.0 - STEP if trial == 1 else 1.0 + STEP)
                    fill_demand(rate, chunk, price, weight, factor, memory[1 + trial, : b - a])
                bound_rates(chunk, free, rates)
                values[0, : b - a] = rates
                if has_value:
                    fill_values(value, chunk, rates, price, weight, values[1, : b - a], tilt[1, : b - a])
                add_used(rows, values, a, b - a, own)
                if not gram:
                    continue
                fill_curvature(chunk, rates, free, less, more, price, inverse)
                add_dense_gram(rows, inverse, tilt, a, less, more, own.dense_gram)
                x, z = rows.first[a], rows.first[b]
                if has_value:
                    if len(slopes) < z - x:
                        slopes = np.empty(2 * (z - x))
                    fill_slopes(rows, tilt, a, b - a, slopes)
                    add_sparse_gram(rows, slopes, inverse, tilt, a, own)
                    if len(rows.host) > 0:
                        add_host_gram(rows, slopes, inverse, tilt, a, own)
                else:
                    add_sparse_gram(rows, rows.coefficient[x:z], inverse, tilt, a, own)
                    if len(rows.host) > 0:
                        add_host_gram(rows, rows.coefficient[x:z], inverse, tilt, a, own)
            for j in range(len(own.dense)):
                fold_lanes(own.dense[j, 0], own.dense[j, 1])

    return scan, unpack


@compile_loop(fastmath=FAITHFUL)
def unpack(packed: Array, out: Array) -> None:
    """Write the sum of blocks' packed triangles as a symmetric matrix."""
    for i in range(len(out)):
        line = i * (i + 1) // 2
        for j in range(i + 1):
            total = 0.0
            for block in range(len(packed)):
                total += packed[block, line + j]
            out[i, j] = total
            out[j, i] = total


def _value_of(cost: Value | None) -> Value:
    """Return the cost function, with the parameters as one tuple."""
    if cost is None:

        @register_jitable
        def value(rate: float, parameters: Data) -> float:
            return 0.0
    else:

        @register_jitable
        def value(rate: float, parameters: Data) -> float:
            return cost(rate, *parameters)

    return value
