"""The loops themselves, as numba compiles them: this module imports numba and is imported when first needed.

The machine code is cached on disk beside this module (or in the user's cache folder), apart for each edition
of the formulas. Arguments that may be a column or a number pass through `part` and `at`, which numba resolves
by type: for a number they cost nothing. The functions of `freshopt.demands` are inlined.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numba import njit, types
from numba.extending import overload, register_jitable

from freshopt import demands, powers, tables
from freshopt.arrays import CACHED, Array, IntArray
from freshopt.demands import Demand

FAST = {"reassoc", "contract", "arcp", "nsz"}  # nothing that assumes away infinities or NaN
ROUNDS = 200  # of a host's search; bisection of 1400 nats to an ulp takes 60
FREE = -667.0  # logarithm of a price so low that only what is worth nothing is left undone
WIDTH, CLOSE, ULP = (
    1e-13,
    1e-13,
    4e-16,
)  # relative: a price's bracket, error of a limit left to be spread, rounding

Data: TypeAlias = Any  # a column, a number, or a tuple of them: numba tells by type

for _module in (tables, powers, demands):
    for _, _function in inspect.getmembers(_module, inspect.isfunction):
        if _function.__module__ == _module.__name__ and _function not in (
            tables.ratio_table,
            tables.octave_table,
        ):
            register_jitable(_function)


EDITION = hashlib.sha256(
    "".join(inspect.getsource(module) for module in (tables, powers, demands)).encode()
).hexdigest()


def part(column: Data, begin: int, end: int) -> Data:
    """Return a column's entries, or the number."""
    return column[begin:end]


def at(column: Data, k: int) -> Data:
    """Return a column's entry, or the number."""
    return column[k]


def parts(columns: Data, begin: int, end: int) -> Data:
    """Return `part` of each column."""
    return tuple(part(column, begin, end) for column in columns)


def entries(columns: Data, k: int) -> Data:
    """Return `at` of each column."""
    return tuple(at(column, k) for column in columns)


def gathered(column: Data, members: IntArray) -> Data:
    """Return a column's entries of some sources, or the number."""
    return column[members]


def all_gathered(columns: Data, members: IntArray) -> Data:
    """Return `gathered` of each column."""
    return tuple(gathered(column, members) for column in columns)


@overload(gathered, strict=False)
def _gathered(column: Data, members: IntArray) -> Data:
    if isinstance(column, types.Array):
        return lambda column, members: column[members]
    return lambda column, members: column


@overload(all_gathered, strict=False)
def _all_gathered(columns: Data, members: IntArray) -> Data:
    if len(columns) == 1:
        return lambda columns, members: (gathered(columns[0], members),)
    return lambda columns, members: (gathered(columns[0], members), gathered(columns[1], members))


@overload(part, strict=False)
def _part(column: Data, begin: int, end: int) -> Data:
    if isinstance(column, types.Array):
        return lambda column, begin, end: column[begin:end]
    return lambda column, begin, end: column


@overload(at, strict=False)
def _at(column: Data, k: int) -> Data:
    if isinstance(column, types.Array):
        return lambda column, k: column[k]
    return lambda column, k: column


@overload(parts, strict=False)
def _parts(columns: Data, begin: int, end: int) -> Data:
    if len(columns) == 1:
        return lambda columns, begin, end: (part(columns[0], begin, end),)
    return lambda columns, begin, end: (part(columns[0], begin, end), part(columns[1], begin, end))


@overload(entries, strict=False)
def _entries(columns: Data, k: int) -> Data:
    if len(columns) == 1:
        return lambda columns, k: (at(columns[0], k),)
    return lambda columns, k: (at(columns[0], k), at(columns[1], k))


def build(
    formula: Demand, announced: Demand | None, *, cache: bool
) -> tuple[Callable[..., None], Callable[..., None], Callable[..., None]]:
    """Return the loops (demand, fill, hosts) of a formula, of two where some sources are signalled.

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
    def host_of(columns: Data, members: IntArray) -> Data:
        """Return copies of a host's columns, which stay in the first-level cache."""
        signalled, importance, parameters, cost, lower, upper = columns
        return (
            gathered(signalled, members),
            gathered(importance, members),
            all_gathered(parameters, members),
            gathered(cost, members),
            gathered(lower, members),
            gathered(upper, members),
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
    def hosts(
        begin: int,
        end: int,
        order: IntArray,
        first: IntArray,
        limits: Array,
        guess: float,
        size: int,
        columns: Data,
        out: Array,
        prices: Array,
    ) -> None:
        _ = edition
        buffers = np.empty((3, size))
        for host in range(begin, end):
            members = order[first[host] : first[host + 1]]
            here, limit = host_of(columns, members), limits[host]
            trial, generous, frugal = (
                buffers[0, : len(members)],
                buffers[1, : len(members)],
                buffers[2, : len(members)],
            )
            prices[host] = 0.0
            low, high, x, f, reach, steepness = -np.inf, np.inf, guess, np.nan, 1.0, 1.0
            for turn in range(ROUNDS):
                before, value = x, f
                if turn > 0:
                    step = f / steepness if abs(f) < np.inf else math.copysign(reach, f)
                    reach = 4.0 * min(reach, abs(step))
                    x += min(reach, max(-reach, step))
                    if not low < x < high and high - low < np.inf:
                        x = 0.5 * (low + high)
                used = spend(x, here, trial)
                f = math.log(used / limit)
                if turn == 0 and f <= 0.0:
                    if spend(FREE, here, generous) <= limit * (1.0 + ULP):
                        break  # the limit cannot bind
                    low = FREE
                if f > 0.0:
                    low = x
                    generous[:] = trial
                else:
                    high = x
                    frugal[:] = trial
                if abs(f) <= CLOSE or high - low <= WIDTH + ULP * abs(x):
                    break
                secant = (value - f) / (x - before)
                steepness = secant if 0.0 < secant < np.inf else 0.25 * steepness  # a plateau: further
            if low == -np.inf and high == np.inf:  # left at once
                continue
            prices[host] = math.exp(x) if abs(f) <= CLOSE or high - low < np.inf else np.nan
            if abs(f) <= CLOSE:  # what rounding leaves goes to those between their bounds
                room = 0.0
                for j in range(len(members)):
                    if at(here[4], j) < trial[j] < at(here[5], j):
                        room += at(here[3], j) * trial[j]
                more = 1.0 + (limit - used) / room if room > 0.0 else 1.0
                for j in range(len(members)):
                    inside = at(here[4], j) < trial[j] < at(here[5], j)
                    wish = trial[j] * more if inside else trial[j]
                    out[members[j]] = min(max(wish, at(here[4], j)), at(here[5], j))
            elif high - low < np.inf:  # the demand jumps
                rich, poor = 0.0, 0.0
                for j in range(len(members)):
                    rich += at(here[3], j) * generous[j]
                    poor += at(here[3], j) * frugal[j]
                share = min(1.0, max(0.0, (limit - poor) / (rich - poor))) if rich > poor else 0.0
                for j in range(len(members)):
                    out[members[j]] = frugal[j] + share * (generous[j] - frugal[j])
                prices[host] = math.exp(high + share * (low - high))

    return demand, fill, hosts
