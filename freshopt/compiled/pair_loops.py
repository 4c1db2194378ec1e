"""Compiled pass at two prices: demands, the sources that jump, and mixtures.

This module imports numba and is imported when first needed. Machine code is cached as in
`freshopt.compiled.loops`.

The same formula inlined into two loops need not have the same bits, and where demand is flat a last bit moves
a rate by a few per cent. So one loop evaluates both prices, adds up both sides and writes their mixture.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.compiled.column_access import at, part
from freshopt.compiled.column_passes import added
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.kept_code import compile_loop
from freshopt.compiled.loops import FAST, respond_of
from freshopt.compiled.source_columns import SourceColumns
from freshopt.numerics.arrays import CACHED, IN_TURN, Array, BoolArray


def build(formula: Demand, announced: Demand | None) -> Callable[..., None]:
    """Return the loop over chunks at two prices.

    Of each chunk it writes the demand at both, at both without the sources that jump, and of the mixture.
    """
    respond = respond_of(formula, announced)

    @compile_loop(fastmath=FAST)
    def pair(
        begin: int,
        end: int,
        n: int,
        inverse_prices: Array,
        steep: float,
        share: float,
        columns: SourceColumns,
        sums: Array,
        rates: Array,
        jumps: BoolArray,
    ) -> None:
        both = np.empty((2, IN_TURN))
        for chunk in range(begin, end):
            a, b = chunk * CACHED, min(n, (chunk + 1) * CACHED)
            some, used = np.empty(5), np.zeros((2, 5))
            for first in range(a, b, IN_TURN):
                size = min(b - first, IN_TURN)
                own = part(columns, first, first + size)
                for side in range(2):
                    respond(own, inverse_prices[side], both[side, :size])
                generous, frugal = both[0], both[1]
                mixed, jumped = rates[first : first + size], jumps[first : first + size]
                above = below = smooth_above = smooth_below = spent = 0.0
                for k in range(size):
                    change = generous[k] - frugal[k]
                    jumped[k] = change > steep * generous[k]
                    mixed[k] = frugal[k] + share * change
                for k in range(size):
                    cost, keep = at(own.cost, k), 0.0 if jumped[k] else 1.0
                    above += cost * generous[k]
                    below += cost * frugal[k]
                    smooth_above += keep * (cost * generous[k])
                    smooth_below += keep * (cost * frugal[k])
                    spent += cost * mixed[k]
                some[0], some[1], some[2], some[3], some[4] = above, below, smooth_above, smooth_below, spent
                for j in range(5):
                    used[0, j], used[1, j] = added(used[0, j], used[1, j], some[j])
            for j in range(5):
                sums[j, chunk] = used[0, j] + used[1, j]

    return pair
