"""Compiled passes of declared constraints over sources with costs of several families.

This module imports numba and is imported when first needed. Its functions stand in
`freshopt.compiled.rows.mixed_costs` and `row_sums`. There is one edition for all families; codes tell them
apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba.extending import register_jitable

from freshopt.compiled.kept_code import compile_loop, functions_of
from freshopt.compiled.loops import FAITHFUL
from freshopt.compiled.rows import mixed_costs, row_loops
from freshopt.compiled.rows.mixed_costs import (
    add_all_slopes,
    add_terms,
    fill_responses,
    fill_terms,
    of_family,
)
from freshopt.compiled.rows.row_loops import CHUNK
from freshopt.compiled.rows.row_records import FamilyColumns, RowEntries, RowPrices, RowSums
from freshopt.compiled.rows.row_sums import (
    add_dense_gram,
    add_host_gram,
    add_prices,
    add_sparse_gram,
    add_used,
    fill_slopes,
    fold_lanes,
    of_block,
)
from freshopt.compiled.source_columns import LARGEST_RATE
from freshopt.numerics.arrays import Array

for _function in functions_of(mixed_costs):
    register_jitable(fastmath=FAITHFUL)(_function)


@register_jitable
def fill_outcome(
    columns: FamilyColumns,
    theta: Array,
    begin: int,
    rates: Array,
    values: Array,
    tilt: Array,
    bend: Array,
    inverse: Array,
    one: Array,
    gram: bool,
) -> None:
    """Write values, slopes and 1/φ'' of consecutive sources at their rates."""
    n = len(rates)
    lower, upper = columns.lower[begin : begin + n], columns.upper[begin : begin + n]
    near = columns.near[begin : begin + n]
    values[0, :n] = rates
    for k in range(n):
        near[k] = rates[k] if 0.0 < rates[k] < LARGEST_RATE else near[k]
    for f in range(len(columns.code)):
        if columns.valued[f]:
            d = columns.parameter[columns.which[f], begin : begin + n]
            of_family(columns.code[f], fill_terms, d, rates, values[1 + f, :n])
    if not gram:
        return
    add_all_slopes(columns, theta, begin, rates, inverse, bend)
    for k in range(n):
        inside = lower[k] < rates[k] < upper[k] and theta[0, k] > 0.0
        own = 1.0 / bend[k]
        inverse[k] = own if inside and 0.0 < own < LARGEST_RATE else 0.0
    for f in range(len(columns.code)):
        if columns.valued[f]:
            own_tilt = tilt[1 + f, :n]
            d = columns.parameter[columns.which[f], begin : begin + n]
            own_tilt[:] = 0.0
            one[:] = 1.0
            of_family(columns.code[f], add_terms, one, d, rates, own_tilt, bend)
            for k in range(n):
                own_tilt[k] = -own_tilt[k] if own_tilt[k] < LARGEST_RATE else 0.0


def build() -> tuple[Callable[..., None], ...]:
    """Return the loop `scan`, as `freshopt.compiled.rows.row_loops` has it."""

    @compile_loop(fastmath=FAITHFUL)
    def scan(
        begin: int,
        end: int,
        n: int,
        size: int,
        columns: FamilyColumns,
        rows: RowEntries,
        y: RowPrices,
        gram: bool,
        sums: RowSums,
        out: Array,
    ) -> None:
        kinds = 1 + len(columns.code)
        memory, slopes = np.zeros((5, CHUNK)), np.empty(0)
        theta, values, tilt = np.zeros((kinds, CHUNK)), np.zeros((kinds, CHUNK)), np.ones((kinds, CHUNK))
        for block in range(begin, end):
            own = of_block(sums, block)
            last = min(n, (block + 1) * size)
            for a in range(block * size, last, CHUNK):
                b = min(last, a + CHUNK)
                fall, bend, inverse = memory[0, : b - a], memory[1, : b - a], memory[2, : b - a]
                one, other, rates = memory[3, : b - a], memory[4, : b - a], out[a:b]
                theta[1:, : b - a] = 0.0
                theta[0, : b - a] = columns.cost[a:b]
                if columns.objective > 0:
                    theta[columns.objective, : b - a] = columns.importance[a:b]
                add_prices(rows, y, a, b - a, theta)
                fill_responses(columns, theta, a, rates, fall, bend, one, other)
                fill_outcome(columns, theta, a, rates, values, tilt, bend, inverse, one, gram)
                add_used(rows, values, a, b - a, own)
                if not gram:
                    continue
                add_dense_gram(rows, inverse, tilt, a, one, other, own.dense_gram)
                x, z = rows.first[a], rows.first[b]
                if len(slopes) < z - x:
                    slopes = np.empty(2 * (z - x))
                fill_slopes(rows, tilt, a, b - a, slopes)
                add_sparse_gram(rows, slopes, inverse, tilt, a, own)
                if len(rows.host) > 0:
                    add_host_gram(rows, slopes, inverse, tilt, a, own)
            for j in range(len(own.dense)):
                fold_lanes(own.dense[j, 0], own.dense[j, 1])

    return scan, row_loops.unpack
