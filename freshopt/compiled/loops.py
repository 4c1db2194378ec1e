"""Compiled passes over sources.

This module imports numba and is imported when first needed.

The machine code is cached on disk beside this module (or in the user's cache folder), apart for each edition
of the formulas. The functions of `freshopt.compiled.demand_functions`, `column_passes` and `host_search` are
inlined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from freshopt.compiled import (
    age_tables,
    column_passes,
    demand_functions,
    demand_steps,
    host_search,
    penalty_tables,
    proof_tables,
)
from freshopt.compiled.cells import (
    attempt_functions,
    attempt_kinks,
    attempt_roots,
    capped_poisson,
    capped_tables,
    conditional_functions,
    counted_signals,
    curve_table,
    request_age,
    request_functions,
    request_power,
    request_tables,
    window_age,
    window_functions,
    window_harmonic,
    window_power,
    window_sums,
    window_tables,
)
from freshopt.compiled.column_access import at, gathered, one_by_one, part, room, unknown, wide
from freshopt.compiled.column_passes import (
    Respond,
    added,
    best_response,
    bounded,
    fill_apart,
    fill_rates,
)
from freshopt.compiled.demand_functions import STEPS, Demand
from freshopt.compiled.host_search import AT_ONCE, settle_host
from freshopt.compiled.kept_code import compile_loop, functions_of
from freshopt.compiled.source_columns import Data, HostGroups, SearchStart, SourceColumns
from freshopt.numerics import inverse_tables, vector_math, wide_tables
from freshopt.numerics.arrays import CACHED, Array, IntArray

# Nothing that assumes away infinities or NaN.
FAST = {"reassoc", "contract", "arcp", "nsz"}
# Sums may be taken in any order, and so in lanes. Formulas keep the one in which they are written: in another
# a product that none of them contains may overflow.
FAITHFUL = {"contract", "arcp"}
FORMULAS = (
    age_tables,
    demand_steps,
    demand_functions,
    penalty_tables,
    proof_tables,
    request_tables,
    request_functions,
    request_age,
    request_power,
    window_functions,
    window_age,
    window_harmonic,
    conditional_functions,
    attempt_functions,
    attempt_roots,
    counted_signals,
    curve_table,
    capped_tables,
    window_sums,
    window_tables,
    attempt_kinks,
)
# What calls itself much is too long to be written out at each call.
LONG = (capped_poisson, window_power)
ORDERED = (vector_math, *FORMULAS, *LONG)
INLINED = (inverse_tables, wide_tables, vector_math, *FORMULAS, *LONG, column_passes, host_search)
# Calls that are left to LLVM cost a host of ten sources a fifth of its search: records are passed in memory.
FORCED = (*FORMULAS, column_passes, host_search)
# Sums of rules, of terms of one sign, may be taken in lanes.
SUMMED = (window_power.bent_little,)
# What is long and vectorised is compiled once for all places at which hosts' loops call it.
ONCE = (window_harmonic.window_harmonic,)
# What few hosts call need not be inlined, nor what is long itself: it is compiled once.
RARE = (
    host_search.fill_rarely,
    curve_table.pieces_before,
    curve_table.pieces_above,
    attempt_kinks.attempt_kinks,
)

# Of those that look up a table again and again.
ROUNDS = {window_tables.tabled_window: window_tables.WINDOW_ROUNDS}
# Of those that halve a bracket: its ends and what each step needs, the next bracket, and the best response.
BRACKETS: dict[Demand, tuple[Callable[..., Any], ...]] = {
    attempt_kinks.attempt_kinks: (
        attempt_kinks.bracket,
        attempt_kinks.halved,
        attempt_kinks.paid_attempts,
    )
}
# More times than any bracket of floats is halved, and how many sources are together.
HALVINGS, TOGETHER = 4000, 16
# Floats in a vector of 512 bits.
LANES = 8
_ONE_BY_ONE = functions_of(*LONG)
_FORCED, _ORDERED = functions_of(*FORCED), (*functions_of(*ORDERED), best_response, bounded, added)
for _function in functions_of(*INLINED):
    if _function not in (inverse_tables.ratio_table, inverse_tables.octave_table):
        register_jitable(
            forceinline=_function in _FORCED and _function not in RARE,
            fastmath=FAITHFUL if _function in _ORDERED and _function not in SUMMED else FAST,
        )(_function)


def build(formula: Demand, announced: Demand | None) -> tuple[Callable[..., None], ...]:
    """Return the loops (fill, hosts) of a demand function.

    With `announced` they are loops of two demand functions: the second is that of signalled sources.
    """
    respond = respond_of(formula, announced)
    chosen: Any = (
        (respond, fill_rates)
        if formula in STEPS or (formula in (*ROUNDS, *BRACKETS) and announced is None)
        else (either(formula, announced), fill_apart)
    )
    by, written = chosen

    @compile_loop(fastmath=FAST)
    def fill(
        begin: int,
        end: int,
        n: int,
        price: float,
        columns: SourceColumns,
        sums: Array,
        kept: bool,
        out: Array,
    ) -> None:
        # Rates that are not kept are written over those of the chunk before.
        for chunk in range(begin, end):
            a, b = chunk * CACHED, min(n, (chunk + 1) * CACHED)
            rates = out[a:b] if kept else out[: b - a]
            sums[chunk] = written(by, part(columns, a, b), 1.0 / price, rates)

    @compile_loop(fastmath=FAST)
    def hosts(
        begin: int,
        end: int,
        which: IntArray,
        largest: int,
        market: HostGroups,
        start: SearchStart,
        columns: SourceColumns,
        used: Array,
        out: Array,
        prices: Array,
    ) -> None:
        # Fields that are arrays are read once: for each host, counting their references would be felt.
        order, first, limits = market.order, market.first, market.limits
        scratch, memory, spare = np.empty((2, largest)), room(columns, largest), room(columns, AT_ONCE)
        for host in which[begin:end]:
            members = order[first[host] : first[host + 1]]
            own = gathered(columns, members, memory)
            prices[host] = settle_host(
                respond, own, limits[host], used[host], start, scratch, spare, members, out
            )

    return fill, hosts


def either(silent: Callable[..., Any], announced: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a function of sources that are signalled or not.

    It is called as ``either(signalled, arguments, parameters)``, both in tuples.
    """
    if announced is None:

        def chosen(signalled: Data, given: Data, p: Data) -> Any:  # noqa: ANN401 - what they return
            return silent(*given, *p)
    else:

        def chosen(signalled: Data, given: Data, p: Data) -> Any:  # noqa: ANN401
            return announced(*given, *p) if signalled else silent(*given, *p)

    made: Callable[..., Any] = register_jitable(forceinline=True, fastmath=FAITHFUL)(chosen)
    return made


def respond_of(formula: Demand, announced: Demand | None) -> Respond:
    """Return the function that writes best responses of sources.

    It is called as ``respond(columns, 1/price, rates)``. Loops begin at 0: compilers vectorise no others.
    Each takes a vector, the last one some sources again: what is left over would be done one by one.
    """
    if formula in STEPS:
        return _respond_in_steps(formula, announced)
    if formula in ROUNDS and announced is None:
        return _respond_in_rounds(formula)
    if formula in BRACKETS and announced is None:
        return _respond_by_halving(formula)
    rate, lanes = either(formula, announced), 1 if formula in _ONE_BY_ONE else LANES

    @register_jitable(forceinline=formula not in ONCE, fastmath=FAITHFUL)
    def respond(columns: SourceColumns, inverse_price: float, rates: Array) -> None:
        wide()
        n = len(rates)
        many = max(1, min(n, unknown(lanes)))
        for first in range(0, n, many):
            begin = min(first, n - many)
            own, some = part(columns, begin, begin + many), rates[begin : begin + many]
            for k in range(len(some)):
                some[k] = best_response(rate, own, k, inverse_price)

    return respond


def _respond_in_steps(formula: Demand, announced: Demand | None) -> Respond:
    """Return `respond_of` a formula of tables, step by step."""
    place, value, rate = STEPS[formula]
    if announced is None:

        @register_jitable(forceinline=True, fastmath=FAITHFUL)
        def chosen(signalled: Data, found: float, worth: float, parameters: Data) -> float:
            return rate(found, worth, *parameters)
    else:

        @register_jitable(forceinline=True, fastmath=FAITHFUL)
        def chosen(signalled: Data, found: float, worth: float, parameters: Data) -> float:
            return announced(worth, *parameters) if signalled else rate(found, worth, *parameters)

    @register_jitable(forceinline=True, fastmath=FAITHFUL)
    def respond(columns: SourceColumns, inverse_price: float, rates: Array) -> None:
        wide()
        # Fields are read once: read in the loops, they would have to be read anew after each rate is written.
        signalled, importance, parameters, cost, lower, upper = columns
        for k in range(len(rates)):
            worth = at(importance, k) * inverse_price / at(cost, k)
            rates[k] = place(worth, *at(parameters, k))
        for each in range(len(rates)):
            k = one_by_one(each)
            rates[k] = value(rates[k])
        for k in range(len(rates)):
            worth = at(importance, k) * inverse_price / at(cost, k)
            free = chosen(at(signalled, k), rates[k], worth, at(parameters, k))
            rates[k] = bounded(free, at(lower, k), at(upper, k))

    return respond


def _respond_in_rounds(formula: Demand) -> Respond:
    """Return `respond_of` a formula that looks up again and again."""
    look, begin, step, rate, steps = ROUNDS[formula]

    @register_jitable(forceinline=True, fastmath=FAITHFUL)
    def respond(columns: SourceColumns, inverse_price: float, rates: Array) -> None:
        wide()
        _, importance, parameters, cost, lower, upper = columns
        first, second = np.empty(len(rates)), np.empty(len(rates))
        for each in range(len(rates)):
            k = one_by_one(each)
            first[k], second[k] = look(0.0, *at(parameters, k))
        for k in range(len(rates)):
            worth = at(importance, k) * inverse_price / at(cost, k)
            rates[k] = begin(first[k], second[k], worth, *at(parameters, k))
        for _ in range(steps):
            for each in range(len(rates)):
                k = one_by_one(each)
                first[k], second[k] = look(rates[k], *at(parameters, k))
            for k in range(len(rates)):
                worth = at(importance, k) * inverse_price / at(cost, k)
                rates[k] = step(rates[k], first[k], second[k], worth, *at(parameters, k))
        for k in range(len(rates)):
            worth = at(importance, k) * inverse_price / at(cost, k)
            rates[k] = bounded(rate(rates[k], worth, *at(parameters, k)), at(lower, k), at(upper, k))

    return respond


def _respond_by_halving(formula: Demand) -> Respond:
    """Return `respond_of` a formula that halves brackets.

    Sources are halved together until none is left, of which more does no harm.
    """
    bracket, halved, rate = BRACKETS[formula]

    @register_jitable(forceinline=True, fastmath=FAITHFUL)
    def respond(columns: SourceColumns, inverse_price: float, rates: Array) -> None:
        wide()
        n = len(rates)
        many = max(1, min(n, unknown(TOGETHER)))
        # In one array: of how many may overlap compilers check a few.
        ends = np.empty(2 * many)
        for first in range(0, n, many):
            begin = min(first, n - many)
            own, some = part(columns, begin, begin + many), rates[begin : begin + many]
            _, importance, parameters, cost, lower, upper = own
            for k in range(len(some)):
                worth = at(importance, k) * inverse_price / at(cost, k)
                ends[2 * k], ends[2 * k + 1], some[k] = bracket(worth, *at(parameters, k))
            for _ in range(HALVINGS):
                left = 0
                for k in range(len(some)):
                    worth = at(importance, k) * inverse_price / at(cost, k)
                    low, high = halved(ends[2 * k], ends[2 * k + 1], some[k], worth, *at(parameters, k))
                    ends[2 * k], ends[2 * k + 1] = low, high
                    left += low < high
                if left == 0:
                    break
            for k in range(len(some)):
                worth = at(importance, k) * inverse_price / at(cost, k)
                free = rate(ends[2 * k + 1], worth, *at(parameters, k))
                some[k] = bounded(free, at(lower, k), at(upper, k))

    return respond
