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

from freshopt import demands, tables
from freshopt.arrays import CACHED, Array, IntArray
from freshopt.demands import Demand

FAST = {"reassoc", "contract", "arcp", "nsz"}  # nothing that assumes away infinities or NaN
ROUNDS = 200  # of a host's search; bisection of 1400 nats to an ulp takes 60
FREE = -667.0  # logarithm of a price so low that only what is worth nothing is left undone
WIDTH, ULP = 1e-13, 4e-16  # relative width of a price's bracket; error that counts as rounding

Data: TypeAlias = Any  # a column, a number, or a tuple of them: numba tells by type

for _module in (tables, demands):
    for _, _function in inspect.getmembers(_module, inspect.isfunction):
        if _function.__module__ == _module.__name__ and _function not in (
            tables.ratio_table,
            tables.octave_table,
        ):
            register_jitable(_function)


EDITION = hashlib.sha256(
    "".join(inspect.getsource(module) for module in (tables, demands)).encode()
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
    def spend(x: float, members: IntArray, columns: Data, rates: Array) -> float:
        """Write the rates of a host's sources at log price x; return what they cost."""
        cost, inverse, used = columns[3], math.exp(-x), 0.0
        for j in range(len(members)):
            rates[j] = bought(columns, members[j], inverse)
            used += at(cost, members[j]) * rates[j]
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
        cost = columns[3]
        trial, generous, frugal = np.empty(size), np.empty(size), np.empty(size)
        for host in range(begin, end):
            here = order[first[host] : first[host + 1]]
            m, limit = len(here), limits[host]
            prices[host] = 0.0
            if spend(FREE, here, columns, trial) <= limit * (1.0 + ULP):
                continue
            x, stride, low, high, above, below, side = guess, 0.5, -np.inf, np.inf, 0.0, 0.0, 0
            for _turn in range(ROUNDS):
                f = math.log(spend(x, here, columns, trial) / limit)
                if abs(f) <= ULP:
                    low, high = x, x
                    generous[:m], frugal[:m] = trial[:m], trial[:m]
                    break
                if f > 0.0:
                    below *= 0.5 if side == 1 else 1.0  # Illinois: an end that stays counts for less
                    low, above, side = x, f, 1
                    generous[:m] = trial[:m]
                else:
                    above *= 0.5 if side == -1 else 1.0
                    high, below, side = x, f, -1
                    frugal[:m] = trial[:m]
                if high == np.inf:
                    x, stride = x + max(stride, f), 4.0 * stride
                elif low == -np.inf:
                    x, stride = x - max(stride, min(-f, 4.0 * stride)), 4.0 * stride
                elif high - low <= WIDTH + ULP * abs(low):
                    break
                else:
                    x = low + (high - low) * above / (above - below)
                    if not low < x < high:
                        x = 0.5 * (low + high)
            rich, poor = 0.0, 0.0
            for j in range(m):
                rich += at(cost, here[j]) * generous[j]
                poor += at(cost, here[j]) * frugal[j]
            share = min(1.0, max(0.0, (limit - poor) / (rich - poor))) if rich > poor else 0.0
            for j in range(m):
                out[here[j]] = frugal[j] + share * (generous[j] - frugal[j])
            prices[host] = math.exp(high + share * (low - high))

    return demand, fill, hosts
