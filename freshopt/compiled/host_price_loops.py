"""Compiled search for host prices with the smallest bound.

This module imports numba and is imported when first needed. Machine code is cached as in
`freshopt.compiled.loops`.

What the sources of a host add to a duality gap at a price ν, and the price of what they leave of its limit,
does not depend on other hosts. Exact rates have marginal values that agree, and the median of them is the
price. Otherwise all of them are tried, or quantiles, and some prices below; golden section narrows the two
deepest valleys.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba.extending import register_jitable

from freshopt.compiled.column_access import at, gathered, room
from freshopt.compiled.kept_code import compile_loop
from freshopt.compiled.loops import FAITHFUL, FAST, either
from freshopt.compiled.proof_functions import ProofCell
from freshopt.compiled.proof_loops import source_of, spent
from freshopt.compiled.source_columns import Data, HostGroups, SourceColumns
from freshopt.numerics.arrays import Array

# Prices tried at most, of the sources' marginal values; nats below the smallest, for limits that are slack.
CANDIDATES = 33
BELOW = np.array([27.0, 9.0, 6.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5])
# At this share of what the sources pay a bound is rounding, and no better price is sought.
ENOUGH = 1e-15
# Two valleys are searched, the second if its bound on the grid is at most so many times the first's.
VALLEYS, SHALLOW = 2, 1.25
# A bracket whose ends are no more than this above the middle holds no price that is much better.
FLAT = 1.5
# Golden section narrows a bracket by 0.618⁸⁰, which is 2e-17.
STEPS, GOLDEN = 80, (math.sqrt(5.0) - 1.0) / 2.0


def build(silent: ProofCell, announced: ProofCell | None) -> Callable[..., None]:
    """Return the loop over hosts that writes their prices, of a cell."""
    source, marginal = source_of(silent, announced), _marginal(silent, announced)
    # A variable of the closures below, hence part of what their cache is looked up by.

    @register_jitable(fastmath=FAST)
    def bound(own: SourceColumns, given: Array, slack: float, price: float) -> float:
        gap = 0.0
        for k in range(len(given)):
            gap += source(own, k, given[k], at(own.cost, k) * price)[2]
        found = gap + (price * slack if slack > 0.0 else 0.0)
        return found if found < np.inf else np.inf

    @register_jitable(fastmath=FAST)
    def usable_slopes(own: SourceColumns, given: Array, into: Array) -> int:
        # Strictly between bounds stationarity makes the slope the price; of all sources if there are none.
        for everyone in range(2):
            many = 0
            for k in range(len(given)):
                inside = at(own.lower, k) < given[k] < at(own.upper, k)
                slope = marginal(own, k, given[k]) / at(own.cost, k)
                if (inside or everyone == 1) and 0.0 < slope < np.inf:
                    into[many] = math.log(slope)
                    many += 1
            if many:
                return many
        return 0

    @register_jitable(fastmath=FAST)
    def valley(
        own: SourceColumns, given: Array, slack: float, low: float, x: float, high: float, least: float
    ) -> tuple[float, float]:
        at_low, at_high = bound(own, given, slack, math.exp(low)), bound(own, given, slack, math.exp(high))
        for _ in range(STEPS):
            if high - low <= 1e-15 * max(1.0, abs(x)) or max(at_low, at_high) <= FLAT * least:
                break
            # The longer side is cut; with the smaller of the two inner points the bracket goes on.
            left = x - low > high - x
            y = x - (1.0 - GOLDEN) * (x - low) if left else x + (1.0 - GOLDEN) * (high - x)
            value = bound(own, given, slack, math.exp(y))
            if value < least:
                if left:
                    high, at_high = x, least
                else:
                    low, at_low = x, least
                x, least = y, value
            elif left:
                low, at_low = y, value
            else:
                high, at_high = y, value
        return x, least

    @register_jitable(fastmath=FAST)
    def best_price(
        own: SourceColumns, given: Array, slack: float, logs: Array, grid: Array, values: Array
    ) -> float:
        many = usable_slopes(own, given, logs)
        if many == 0:
            return 0.0
        logs[:many].sort()
        used, idle = spent(own, given), bound(own, given, slack, 0.0)
        x = logs[(many - 1) // 2]
        least = bound(own, given, slack, math.exp(x))
        if least > ENOUGH * math.exp(x) * used:
            size = len(BELOW) + min(many, CANDIDATES)
            for j in range(size):
                k = j - len(BELOW)
                place = k if many <= CANDIDATES else (k * (many - 1)) // (CANDIDATES - 1)
                grid[j] = logs[0] - BELOW[j] if k < 0 else logs[place]
                values[j] = bound(own, given, slack, math.exp(grid[j]))
            best = np.min(values[:size])
            for _ in range(VALLEYS):
                j = int(np.argmin(values[:size]))
                if not values[j] <= SHALLOW * best:
                    break
                # One nat beyond an end of the grid.
                low = grid[j - 1] if j > 0 else grid[j] - 1.0
                high = grid[j + 1] if j + 1 < size else grid[j] + 1.0
                y, value = valley(own, given, slack, low, grid[j], high, values[j])
                if value < least:
                    x, least = y, value
                # The next valley lies beyond the slopes of this one.
                a = b = j
                while a > 0 and values[a - 1] >= values[a]:
                    a -= 1
                while b + 1 < size and values[b + 1] >= values[b]:
                    b += 1
                values[a : b + 1] = np.inf
        return 0.0 if idle <= least else math.exp(x)

    @compile_loop(fastmath=FAST)
    def settle(
        begin: int,
        end: int,
        largest: int,
        market: HostGroups,
        columns: SourceColumns,
        rates: Array,
        slack: Array,
        prices: Array,
    ) -> None:
        order, first, memory = market.order, market.first, room(columns, largest)
        mine, logs = np.empty(largest), np.empty(largest)
        grid, values = np.empty(len(BELOW) + CANDIDATES), np.empty(len(BELOW) + CANDIDATES)
        for host in range(begin, end):
            members = order[first[host] : first[host + 1]]
            own, given = gathered(columns, members, memory), gathered(rates, members, mine)
            prices[host] = best_price(own, given, slack[host], logs, grid, values)

    return settle


def _marginal(silent: ProofCell, announced: ProofCell | None) -> Callable[..., float]:
    """Return the function of a source's marginal value at a rate."""
    values_of = either(silent.values, None if announced is None else announced.values)

    @register_jitable(forceinline=True, fastmath=FAITHFUL)
    def marginal(own: SourceColumns, k: int, rate: float) -> Data:
        w = at(own.importance, k)
        slope = values_of(at(own.signalled, k), (rate, w), at(own.parameters, k))[2]
        return slope if w > 0.0 else 0.0

    return marginal
