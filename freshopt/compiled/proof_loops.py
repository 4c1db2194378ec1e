"""Compiled proof of rates: cost, bandwidth and gap in one read.

This module imports numba and is imported when first needed. Machine code is cached as in
`freshopt.compiled.loops`.
"""

from __future__ import annotations

from collections.abc import Callable

from numba.extending import register_jitable

from freshopt.compiled import cost_functions, poll_proofs, proof_functions
from freshopt.compiled.cells import (
    attempt_costs,
    attempt_proofs,
    kink_proofs,
    request_proofs,
    window_proofs,
)
from freshopt.compiled.column_access import at, part, wide
from freshopt.compiled.column_passes import added, piece_used
from freshopt.compiled.kept_code import compile_loop, functions_of
from freshopt.compiled.loops import FAITHFUL, FAST, either
from freshopt.compiled.proof_functions import ProofCell, proved
from freshopt.compiled.source_columns import SourceColumns
from freshopt.numerics.arrays import CACHED, Array, IntArray

# So many terms of Σ refresh cost·ρ are added in lanes, and the pieces with their errors, so that the sum is
# right to a few half-ulps.
PIECE = 32

INLINED = (
    cost_functions,
    proof_functions,
    poll_proofs,
    kink_proofs,
    request_proofs,
    window_proofs,
    attempt_costs,
    attempt_proofs,
)

# Their sums over nodes may be taken in lanes.
SUMS = (attempt_costs.mean_harmonic_attempts,)

for _function in functions_of(*INLINED):
    if not _function.__name__.startswith("_"):
        _freely = FAST if _function in SUMS else FAITHFUL
        register_jitable(forceinline=True, fastmath=_freely)(_function)


def build(silent: ProofCell, announced: ProofCell | None) -> tuple[Callable[..., None], ...]:
    """Return the loops (prove, prove_hosts) of a cell.

    With `announced` they are loops of two cells: the second is that of signalled sources. `prove` writes the
    sums of chunks at one price; `prove_hosts` also adds up what hosts use, at prices of their own, and what
    rounding lost of it.
    """
    source, sums_at = source_of(silent, announced), sums_of(silent, announced)

    @compile_loop(fastmath=FAST)
    def prove(
        begin: int, end: int, n: int, price: float, columns: SourceColumns, rates: Array, sums: Array
    ) -> None:
        for chunk in range(begin, end):
            a, b = chunk * CACHED, min(n, (chunk + 1) * CACHED)
            cost, gain, used, gap, outside = sums_at(part(columns, a, b), rates[a:b], price)
            row = sums[chunk]
            row[0], row[1], row[2], row[3], row[4] = cost, gain, used, gap, outside

    @compile_loop(fastmath=FAST)
    def prove_hosts(
        begin: int,
        end: int,
        n: int,
        prices: Array,
        codes: IntArray,
        columns: SourceColumns,
        rates: Array,
        sums: Array,
        total: Array,
        off: Array,
    ) -> None:
        for chunk in range(begin, end):
            a, b = chunk * CACHED, min(n, (chunk + 1) * CACHED)
            own, given, host = part(columns, a, b), rates[a:b], codes[a:b]
            cost = gain = gap = outside = 0.0
            for k in range(b - a):
                h = host[k]
                total[h], off[h] = added(total[h], off[h], at(own.cost, k) * given[k])
            for k in range(b - a):
                each = source(own, k, given[k], at(own.cost, k) * prices[host[k]])
                cost += each[0]
                gain += each[1]
                gap += each[2]
                outside += each[3]
            used = spent(own, given)
            row = sums[chunk]
            row[0], row[1], row[2], row[3], row[4] = cost, gain, used, gap, outside

    return prove, prove_hosts


def sums_of(silent: ProofCell, announced: ProofCell | None) -> Callable[..., tuple[float, ...]]:
    """Return the function of a chunk of sources, rates and a price.

    It returns cost, gain, bandwidth used, gap, and how many rates are outside their bounds.
    """
    source = source_of(silent, announced)

    @register_jitable(forceinline=True, fastmath=FAST)
    def sums_at(own: SourceColumns, rates: Array, price: float) -> tuple[float, ...]:
        wide()
        cost = gain = gap = outside = 0.0
        for k in range(len(rates)):
            each = source(own, k, rates[k], at(own.cost, k) * price)
            cost += each[0]
            gain += each[1]
            gap += each[2]
            outside += each[3]
        return cost, gain, spent(own, rates), gap, outside

    return sums_at


@register_jitable(fastmath=FAST)
def spent(columns: SourceColumns, rates: Array) -> float:
    """Return Σ refresh cost·ρ of a chunk.

    It is read a second time, from the cache.
    """
    total = lost = 0.0
    for begin in range(0, len(rates), PIECE):
        some = piece_used(columns, rates, begin, min(len(rates), begin + PIECE))
        total, lost = added(total, lost, some)
    return total + lost


def source_of(silent: ProofCell, announced: ProofCell | None) -> Callable[..., tuple[float, ...]]:
    """Return the function of one source.

    It returns cost, gain, gap term, and 1 unless the rate is within its bounds.
    """
    values_of = either(silent.values, None if announced is None else announced.values)
    reach_of = either(silent.reach, None if announced is None else announced.reach)

    @register_jitable(forceinline=True, fastmath=FAITHFUL)
    def of_source(own: SourceColumns, k: int, rate: float, paid: float) -> tuple[float, float, float, float]:
        w, p, signalled = at(own.importance, k), at(own.parameters, k), at(own.signalled, k)
        return proved(values_of, reach_of, signalled, rate, w, paid, at(own.lower, k), at(own.upper, k), p)

    return of_source
