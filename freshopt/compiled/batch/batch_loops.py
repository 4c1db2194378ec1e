"""Compiled search and proof of many small problems in one call.

This module imports numba and is imported when first needed. Machine code is cached as in
`freshopt.compiled.loops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba.extending import register_jitable

from freshopt.compiled.batch import batch_extrapolation, batch_search
from freshopt.compiled.batch.batch_records import FOUND, UNSOLVED, BatchFound, BatchGroups
from freshopt.compiled.batch.batch_search import settle
from freshopt.compiled.column_access import at, part
from freshopt.compiled.column_passes import added
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.kept_code import compile_loop, functions_of
from freshopt.compiled.loops import FAST, respond_of
from freshopt.compiled.proof_functions import ProofCell
from freshopt.compiled.proof_loops import sums_of
from freshopt.compiled.source_columns import SourceColumns
from freshopt.numerics.arrays import CACHED

# What a problem calls once or twice.
CALLED = ("settle", "mixed", "among_few", "extrapolated")
# A problem of so many sources that starts from no neighbour is searched first on a few of them.
MANY, FEW = 2048, 512
# A problem is searched again from the price that was found where the gap is more of the cost than rounding
# leaves: a source may have left its bound between that price and the three at which all were evaluated.
TRIES, RESOLVED = 2, 8.0 * float(np.finfo(np.float64).eps)

for _function in functions_of(batch_extrapolation, batch_search):
    register_jitable(forceinline=_function.__name__ not in CALLED, fastmath=FAST)(_function)


def build(
    formula: Demand, announced: Demand | None, silent: ProofCell, other: ProofCell | None
) -> Callable[..., None]:
    """Return the loop over problems of a demand function and its proof.

    It is called as ``solve(begin, end, groups, start, largest, columns, proof, found)`` for the problems from
    begin to end,
    each of which starts from the price of the one before.
    """
    respond, chunk_sums = respond_of(formula, announced), sums_of(silent, other)

    @compile_loop(fastmath=FAST)
    def solve(
        begin: int,
        end: int,
        groups: BatchGroups,
        start: float,
        largest: int,
        columns: SourceColumns,
        proof: SourceColumns,
        found: BatchFound,
    ) -> None:
        memory = np.empty(3 * largest)
        first, size, place, bandwidth = groups.first, groups.size, groups.place, groups.bandwidth
        rates, prices, sums, states, evaluations = (
            found.rates,
            found.prices,
            found.sums,
            found.states,
            found.evaluations,
        )
        before, steepness = np.nan, 1.0
        for g in range(begin, end):
            n = size[g]
            own, out = part(columns, first[g], first[g] + n), rates[place[g] : place[g] + n]
            weight = 0.0
            for k in range(n):
                weight += at(own.importance, k)
            # Prices scale with importances; demand with the number of sources, about.
            scale = math.log(weight / n) if 0.0 < weight < np.inf else 0.0
            load = math.log(bandwidth[g] / n)
            guess = scale - load if math.isnan(before) else before + scale - load / steepness
            known = not math.isnan(start if g == begin else before)
            guess = start if g == begin and known else guess
            if not known and n >= MANY:
                few = settle(
                    respond,
                    part(columns, first[g], first[g] + FEW),
                    bandwidth[g] * FEW / n,
                    guess,
                    steepness,
                    out[:FEW],
                    memory[: 3 * FEW].reshape(3, FEW),
                )
                if few.state == FOUND:
                    guess, steepness = math.log(few.price), few.steepness
            evaluations[g] = 0
            for _ in range(TRIES):
                root = settle(
                    respond, own, bandwidth[g], guess, steepness, out, memory[: 3 * n].reshape(3, n)
                )
                states[g], prices[g] = root.state, root.price
                evaluations[g] += root.evaluations
                if root.state == UNSOLVED:
                    break
                if root.price > 0.0:
                    steepness = root.steepness
                    guess = math.log(root.price)
                    before = guess - scale + load / steepness
                cost = gain = used = gap = outside = lost = 0.0
                for a in range(0, n, CACHED):
                    b = min(n, a + CACHED)
                    some = chunk_sums(part(proof, first[g] + a, first[g] + b), out[a:b], root.price)
                    cost += some[0]
                    gain += some[1]
                    used, lost = added(used, lost, some[2])
                    gap += some[3]
                    outside += some[4]
                row = sums[g]
                row[0], row[1], row[2], row[3], row[4] = cost, gain, used + lost, gap, outside
                if gap <= RESOLVED * abs(cost) or root.price == 0.0:
                    break

    return solve
