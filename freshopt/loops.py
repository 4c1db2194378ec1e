"""The loops themselves, as numba compiles them: this module imports numba and is imported when first needed.

The machine code is cached on disk beside this module (or in the user's cache folder), apart for each edition
of the formulas. The functions of `freshopt.demands` are inlined.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.extending import register_jitable

from freshopt import demands, loop_columns, powers, tables
from freshopt.arrays import CACHED, Array, IntArray
from freshopt.demands import Demand
from freshopt.loop_columns import Data, all_gathered, at, entries, gathered, part, parts, room, rooms

FAST = {"reassoc", "contract", "arcp", "nsz"}  # nothing that assumes away infinities or NaN
ROUNDS = 200  # of a host's search; bisection of 1400 nats to an ulp takes 60
NEAR = 20.0  # nats: what a host spends tells where its price is, if it is not farther
WIDTH, CLOSE = 1e-13, 1e-13  # relative: a price's bracket, error of a limit that is left to be spread
ULP = 4e-16

for _module in (tables, powers, demands):
    for _, _function in inspect.getmembers(_module, inspect.isfunction):
        if _function.__module__ == _module.__name__ and _function not in (
            tables.ratio_table,
            tables.octave_table,
        ):
            register_jitable(_function)


EDITION = hashlib.sha256(
    "".join(inspect.getsource(module) for module in (tables, powers, demands, loop_columns)).encode()
).hexdigest()


def build(formula: Demand, announced: Demand | None, *, cache: bool) -> tuple[Callable[..., None], ...]:
    """Return the loops (demand, fill, by_host, hosts) of a formula, of two where some sources are signalled.

    ``columns`` is (signalled, importance, parameters, cost, lower, upper) in each of them.
    """
    if announced is None:

        @register_jitable
        def rate(signalled: Data, worth: float, parameters: Data) -> float:
            return formula(worth, *parameters)
    else:

        @register_jitable
        def rate(signalled: Data, worth: float, parameters: Data) -> float:
            return announced(worth, *parameters) if signalled else formula(worth, *parameters)

    @register_jitable
    def bought(columns: Data, k: int, inverse: float) -> float:
        """Return the rate of source k within its bounds; `inverse` is 1/λ."""
        signalled, importance, parameters, cost, lower, upper = columns
        worth = at(importance, k) * inverse / at(cost, k)
        wish = rate(at(signalled, k), worth, entries(parameters, k))
        inside: float = min(max(wish, at(lower, k)), at(upper, k))
        return inside

    @register_jitable
    def chunk_of(columns: Data, a: int, b: int) -> Data:
        signalled, importance, parameters, cost, lower, upper = columns
        return (
            part(signalled, a, b),
            part(importance, a, b),
            parts(parameters, a, b),
            part(cost, a, b),
            part(lower, a, b),
            part(upper, a, b),
        )

    edition = EDITION  # a variable of the closures below, hence part of what their cache is looked up by
    options: dict[str, Any] = {"nogil": True, "fastmath": FAST, "error_model": "numpy", "cache": cache}

    @njit(**options)  # type: ignore[untyped-decorator]
    def demand(begin: int, end: int, n: int, price: float, columns: Data, sums: Array) -> None:
        _ = edition
        inverse = 1.0 / price
        for chunk in range(begin, end):
            a, b = chunk * CACHED, min(n, (chunk + 1) * CACHED)
            here = chunk_of(columns, a, b)
            cost = here[3]
            total = 0.0
            for k in range(b - a):
                total += at(cost, k) * bought(here, k, inverse)
            sums[chunk] = total

    @njit(**options)  # type: ignore[untyped-decorator]
    def fill(begin: int, end: int, n: int, price: float, columns: Data, sums: Array, out: Array) -> None:
        _ = edition
        inverse = 1.0 / price
        for chunk in range(begin, end):
            a, b = chunk * CACHED, min(n, (chunk + 1) * CACHED)
            here, rates = chunk_of(columns, a, b), out[a:b]
            cost = here[3]
            total = 0.0
            for k in range(b - a):
                rates[k] = bought(here, k, inverse)
                total += at(cost, k) * rates[k]
            sums[chunk] = total

    @register_jitable
    def memory(columns: Data, size: int) -> Data:
        """Return places for the columns of a host."""
        signalled, importance, parameters, cost, lower, upper = columns
        return (
            room(signalled, size),
            room(importance, size),
            rooms(parameters, size),
            room(cost, size),
            room(lower, size),
            room(upper, size),
        )

    @register_jitable
    def host_of(columns: Data, members: IntArray, into: Data) -> Data:
        """Return copies of a host's columns, which stay in the first-level cache."""
        signalled, importance, parameters, cost, lower, upper = columns
        return (
            gathered(signalled, members, into[0]),
            gathered(importance, members, into[1]),
            all_gathered(parameters, members, into[2]),
            gathered(cost, members, into[3]),
            gathered(lower, members, into[4]),
            gathered(upper, members, into[5]),
        )

    @register_jitable
    def spend(x: float, here: Data, rates: Array) -> float:
        """Write the rates of a host's sources at log price x; return what they cost."""
        cost, inverse, used = here[3], math.exp(-x), 0.0
        for j in range(len(rates)):
            rates[j] = bought(here, j, inverse)
            used += at(cost, j) * rates[j]
        return used

    @njit(**options)  # type: ignore[untyped-decorator]
    def by_host(
        begin: int, end: int, n: int, size: int, price: float, columns: Data, codes: IntArray, sums: Array
    ) -> None:
        _ = edition
        inverse = 1.0 / price
        for block in range(begin, end):
            mine = sums[block]
            for a in range(block * size, min(n, (block + 1) * size), CACHED):
                b = min(n, (block + 1) * size, a + CACHED)
                here, host = chunk_of(columns, a, b), codes[a:b]
                cost = here[3]
                for k in range(b - a):
                    mine[host[k]] += at(cost, k) * bought(here, k, inverse)

    @register_jitable
    def moved(here: Data, one: Array, other: Array) -> bool:
        """Tell whether a source is at a bound in one of two vectors of rates and not in the other."""
        for j in range(len(one)):
            lower, upper = at(here[4], j), at(here[5], j)
            if (lower < one[j] < upper) != (lower < other[j] < upper):
                return True
        return False

    @njit(**options)  # type: ignore[untyped-decorator]
    def hosts(
        begin: int,
        end: int,
        which: IntArray,
        order: IntArray,
        first: IntArray,
        limits: Array,
        spent: Array,
        floor: float,
        guess: float,
        steepness: float,
        size: int,
        columns: Data,
        out: Array,
        prices: Array,
    ) -> None:
        _ = edition
        buffers, places = np.empty((2, size)), memory(columns, size)
        for host in which[begin:end]:
            members = order[first[host] : first[host + 1]]
            here, limit, many = host_of(columns, members, places), limits[host], len(members)
            trial, other = buffers[0, :many], buffers[1, :many]
            low, high, steep, settled = floor, np.inf, steepness, False
            before, value = floor, math.log(spent[host] / limit)  # > 0: at the floor it spends too much
            x, f, reach, leap = before + value / steep, np.nan, np.inf, 1.0
            if not abs(x - before) <= NEAR:
                x, before, value = guess, np.nan, np.nan
            for turn in range(ROUNDS):
                used = spend(x, here, trial)
                f = math.log(used / limit)
                if math.isnan(f):
                    high = np.inf
                    break
                low, high = (x, high) if f > 0.0 else (low, x)
                if abs(f) <= CLOSE or high - low <= WIDTH + ULP * abs(x):
                    break
                if turn > 0 and abs(f) * abs(value) <= CLOSE and not moved(here, trial, other):
                    settled = True
                    break
                secant = (value - f) / (x - before)
                if 0.0 < secant < np.inf:
                    steep = secant
                elif turn > 0:  # a plateau: further
                    steep *= 0.25
                if abs(f) < np.inf:
                    step = min(reach, max(-reach, f / steep))
                else:  # nothing is bought, or without end: no slope to follow
                    step, leap = math.copysign(leap, f), 4.0 * leap
                reach = 4.0 * abs(step)
                before, value = x, f
                trial, other = other, trial
                x += step
                if not low < x < high:
                    x = 0.5 * (low + high) if high < np.inf else before + 1.0
            prices[host] = np.nan
            if settled:  # between the last two, or just beyond them: linear to rounding
                last = 0.0
                for j in range(many):
                    last += at(here[3], j) * other[j]
                share = (limit - used) / (last - used)
                prices[host] = math.exp(x + share * (before - x))
                for j in range(many):
                    wish = trial[j] + share * (other[j] - trial[j])
                    out[members[j]] = min(max(wish, at(here[4], j)), at(here[5], j))
            elif abs(f) <= CLOSE:  # what rounding leaves goes to those between their bounds
                prices[host] = math.exp(x)
                room = 0.0
                for j in range(many):
                    if at(here[4], j) < trial[j] < at(here[5], j):
                        room += at(here[3], j) * trial[j]
                more = 1.0 + (limit - used) / room if room > 0.0 else 1.0
                for j in range(many):
                    inside = at(here[4], j) < trial[j] < at(here[5], j)
                    wish = trial[j] * more if inside else trial[j]
                    out[members[j]] = min(max(wish, at(here[4], j)), at(here[5], j))
            elif high - low <= WIDTH + ULP * abs(x):  # the demand jumps
                rich, poor = spend(low, here, trial), spend(high, here, other)
                share = min(1.0, max(0.0, (limit - poor) / (rich - poor))) if rich > poor else 0.0
                for j in range(many):
                    out[members[j]] = other[j] + share * (trial[j] - other[j])
                prices[host] = math.exp(high + share * (low - high))

    return demand, fill, by_host, hosts
