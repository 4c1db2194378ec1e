"""Compiled search for the prices of nested groups.

This module imports numba and is imported when first needed. A group's price is searched for as a host's is
(`freshopt.compiled.host_search`), between the bounds that the groups inside it have left of its sources'
rates; the rates found are the new bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba.extending import register_jitable

from freshopt.compiled.column_access import at, part
from freshopt.compiled.column_passes import Respond, bandwidth_used, fill_rates
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.host_search import (
    JUMPS,
    LINEAR,
    MET,
    HostSearch,
    search_price,
    write_between,
    write_met,
)
from freshopt.compiled.kept_code import compile_loop
from freshopt.compiled.loops import FAST, respond_of
from freshopt.compiled.rows.nested_records import BLOCK, FEW_ULP, LOWEST_PRICE, NestedGroups
from freshopt.compiled.source_columns import LARGEST_RATE, SearchStart, SourceColumns
from freshopt.numerics.arrays import ROUNDED, Array, IntArray

# Halving a bracket of relative width 1e-13, where a search ends at a jump, down to neighbouring floats.
HALVINGS = 16


@register_jitable(fastmath=FAST)
def group_price(
    respond: Respond,
    own: SourceColumns,
    target: float,
    pushed: bool,
    guess: float,
    memory: Array,
    members: IntArray,
    out: Array,
) -> tuple[float, int]:
    """Return the price at which a group uses `target`, and evaluations.

    It is the least at which no more is used; inf where lower bounds use up the target and −inf where it is
    never exceeded. Rates at the price go to `out`. `pushed` groups may have to use more than they do at the
    price 0.
    """
    one, other = memory[0, : len(members)], memory[1, : len(members)]
    if bandwidth_used(own, own.lower) >= target * (1.0 - FEW_ULP):
        out[:] = own.lower
        return np.inf, 1
    used = fill_rates(respond, own, 1.0 / LOWEST_PRICE, one)
    if used <= target * (1.0 + ROUNDED):
        if pushed:
            return free_rates(own, target, one, other, out), 2
        out[:] = own.upper
        return -np.inf, 1
    start = SearchStart(math.log(LOWEST_PRICE), guess, 1.0, False)
    found = search_price(respond, own, target, math.log(used / target), start, one, other, part(own, 0, 0))
    rates, earlier = (one, other) if found.turn % 2 == 0 else (other, one)
    if found.state == LINEAR:
        return write_between(found, own, target, rates, earlier, members, out), found.turn + 3
    if found.state == MET:
        return write_met(found, own, target, rates, members, out), found.turn + 3
    if found.state == JUMPS:
        return write_jump(respond, found, own, target, rates, earlier, out), found.turn + 3 + HALVINGS
    return np.nan, found.turn + 2


@register_jitable(fastmath=FAST)
def free_rates(own: SourceColumns, target: float, satisfied: Array, most: Array, out: Array) -> float:
    """Write rates at the price 0 that use the target; return 0.

    −inf where upper bounds use less.

    `satisfied` are the least rates beyond which nothing is gained.
    """
    for j in range(len(out)):
        bounded = own.upper[j] < LARGEST_RATE
        most[j] = own.upper[j] if bounded else max(satisfied[j], 2.0 * target / at(own.cost, j))
    limit = bandwidth_used(own, most)
    if limit <= target * (1.0 + FEW_ULP):
        out[:] = own.upper
        return -np.inf
    used = bandwidth_used(own, satisfied)
    share = min(1.0, max(0.0, (target - used) / (limit - used)))
    for j in range(len(out)):
        out[j] = satisfied[j] + share * (most[j] - satisfied[j])
    return 0.0


@register_jitable(fastmath=FAST)
def write_jump(
    respond: Respond,
    found: HostSearch,
    own: SourceColumns,
    target: float,
    rich: Array,
    poor: Array,
    out: Array,
) -> float:
    """Write mixed rates at a jump of demand; return the price.

    The prices on both sides are neighbouring floats.
    """
    # A price and its inverse are rounded apart: beside a jump both ends may be on one side of it.
    low, high = math.exp(found.low) * (1.0 - ROUNDED), math.exp(found.high) * (1.0 + ROUNDED)
    # The last two turns are for the rates on both sides; one call of the pass keeps the machine code small.
    last, into = HALVINGS, rich
    for turn in range(HALVINGS + 2):
        price = 0.5 * (low + high)
        if turn < last and not low < price < high:
            last = turn
        if turn >= last:
            price, into = (high, poor) if turn > last else (low, rich)
        used = fill_rates(respond, own, 1.0 / price, into)
        if turn > last:
            break
        if turn < last:
            low, high = (price, high) if used > target * (1.0 + ROUNDED) else (low, price)
    most, least = bandwidth_used(own, rich), bandwidth_used(own, poor)
    share = min(1.0, max(0.0, (target - least) / (most - least))) if most > least else 0.0
    for j in range(len(out)):
        out[j] = poor[j] + share * (rich[j] - poor[j])
    return high


def build(formula: Demand, announced: Demand | None) -> Callable[..., None]:
    """Return the loop over groups of one height, for a demand function.

    It writes the prices at which groups keep to their limits and reserves, and narrows the bounds of rates.
    """
    respond = respond_of(formula, announced)

    # A variable of the closure below, hence part of what its cache is looked up by.
    @compile_loop(fastmath=FAST)
    def settle(
        begin: int,
        end: int,
        which: IntArray,
        largest: int,
        groups: NestedGroups,
        columns: SourceColumns,
        typical: float,
        prices: Array,
        evaluated: Array,
    ) -> None:
        memory, found, positions = np.empty((2, largest)), np.empty((2, largest)), np.arange(largest)
        bounds, firsts, lasts, pushed = groups.bounds, groups.begin, groups.end, groups.pushed
        lower, upper = columns.lower, columns.upper
        for block in range(begin, end):
            guess = typical
            for group in which[block * BLOCK : (block + 1) * BLOCK]:
                a, b = firsts[group], lasts[group]
                size = b - a
                own = part(columns, a, b)
                for side in range(2):
                    target = bounds[side, group]
                    if not 0.0 < target < np.inf:
                        continue
                    price, evaluations = group_price(
                        respond,
                        own,
                        target,
                        side == 1 or pushed[group],
                        guess,
                        memory,
                        positions[:size],
                        found[side, :size],
                    )
                    evaluated[group] += evaluations * size
                    prices[side, group] = price
                    if 0.0 < price < np.inf:
                        guess = math.log(price)
                if 0.0 < bounds[0, group] < np.inf:
                    upper[a:b] = found[0, :size]
                if 0.0 < bounds[1, group] < np.inf:
                    for j in range(size):
                        lower[a + j] = min(found[1, j], upper[a + j])

    return settle
