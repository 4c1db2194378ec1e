"""`QualityTables`: many sources' best responses and proofs.

Sources of a quality that many share are answered and proved by its table
(`freshopt.noisy_signals.quality_lookup`), all others by the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from freshopt.compiled.backend import compiled, plain_or_compiled
from freshopt.noisy_signals import (
    cycle_terms,
    expected_age,
    expected_costs,
    quality_lookup,
    quality_rows,
    signal_rates,
)
from freshopt.noisy_signals.expected_costs import Cost
from freshopt.noisy_signals.quality_lookup import BLOCK, SHIFT, Tabled
from freshopt.noisy_signals.quality_rows import COLUMNS, VALUE
from freshopt.noisy_signals.renewal_cycle import ready, run_pass
from freshopt.numerics.arrays import Array, Index, IntArray, as_float64, exact_sum, total
from freshopt.separable.kernel import Kernel

# A table takes as long as the kernel for so many sources; and qualities are no more than one in so many.
SHARED = 256
# Fewer sources are solved by all their best responses.
MANY = 512
# Rows of a table, and V's relative error there. A gap is as small.
ROOM, TOLERANCE = 800, 4e-10
# How far beside those of the sources prices are held in tables.
BESIDE = 2.0
# Sources of a share of a pass, and tables of one.
PIECE, FEW = 4096, 64
loops = plain_or_compiled(
    (quality_rows.tables,), (signal_rates, cycle_terms, expected_age, expected_costs, quality_rows)
)
passes = plain_or_compiled(
    (
        quality_lookup.respond,
        quality_lookup.fill,
        quality_lookup.prove,
        quality_lookup.coded,
        quality_lookup.spans,
    ),
    (quality_lookup,),
)


def with_tables(kernel: Kernel, cost: Cost | None, most: float = np.inf) -> Kernel:
    """Return a kernel of many noisy signals with their tables."""
    if len(kernel.importance) < MANY or not compiled():
        return kernel
    return replace(kernel, quick=QualityTables(kernel, cost, most))


@dataclass(slots=True, eq=False)
class QualityTables:
    """Tables of the qualities of a kernel's sources.

    - `kernel`: Of change rates, recalls and precisions; the exact numerics.
    - `cost`: The row of the objective; None where there are no tables.
    - `most`: V from which on a source is not crawled.
    """

    kernel: Kernel
    cost: Cost | None
    most: float
    codes: IntArray | None = None
    seen: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    tabled: Tabled | None = None
    covered: tuple[Array, Array] | None = None

    def cover(self, paid: Array, beyond: float = BESIDE) -> None:
        """Have tables for these prices; new ones reach `beyond` times as far."""
        w, d, recall, precision = (
            ready(as_float64(column)) for column in (self.kernel.importance, *self.kernel.parameters)
        )
        n = len(d)
        if self.cost is None or n < SHARED:
            return
        if self.codes is None:
            self.codes, seen = np.empty(n, dtype=np.int64), np.zeros(n // SHARED + 1, dtype=np.int64)
            slots = np.full(8 * len(seen), -1)
            passes()["coded"](0, n, recall, precision, slots, self.codes, seen)
            self.seen = seen[: seen[-1]]
        many = len(self.seen)
        low, high = np.full(many, np.inf), np.zeros(many)
        counts = np.zeros(many, dtype=np.int64)
        passes()["spans"](0, n, ready(paid), w, d, self.codes, low, high, counts)
        high = np.minimum(high, self.most * (1.0 - 1e-6))
        if self.covered is not None and bool(np.all((self.covered[0] <= low) & (high <= self.covered[1]))):
            return
        high *= beyond if self.most == np.inf else 1.0
        self.covered = low / BESIDE, high
        shared = np.flatnonzero((counts >= SHARED) & (low / BESIDE < high))
        made = _made(self.cost, (recall[self.seen], precision[self.seen], low / BESIDE, high), shared)
        self.tabled = Tabled(w, d, self.codes, self.most, *made)

    def respond(self, paid: Array, index: Index) -> Array:
        """Return best responses of some sources, to 1e-9."""
        rates, every = np.full(len(paid), np.nan), self.tabled
        if every is not None:
            some = every._replace(w=ready(every.w[index]), d=ready(every.d[index]), codes=every.codes[index])
            run_pass(passes()["respond"], (ready(paid), some), (rates,), PIECE)
        rest = np.flatnonzero(np.isnan(rates))
        if len(rest):
            places = np.arange(len(self.kernel.importance))[index][rest]
            rates[rest] = self.kernel.take(places).inverse_marginal(paid[rest])
        return rates

    def fill(self, price: float, cost: Array, lower: Array, upper: Array, rates: Array) -> float:
        """Write all best responses within bounds; return the bandwidth they use."""
        if self.tabled is None:
            rates[:] = np.clip(self.respond(price * cost, slice(None)), lower, upper)
            return total(cost * rates)
        used = np.empty(-(-len(rates) // BLOCK))
        given = price, *map(ready, (cost, lower, upper)), self.tabled, rates
        run_pass(passes()["fill"], given, (used,), 1)
        if not bool(np.all(np.isfinite(used))):
            rest = np.flatnonzero(np.isnan(rates))
            free = self.kernel.take(rest).inverse_marginal(price * cost[rest])
            rates[rest] = np.clip(free, lower[rest], upper[rest])
            return total(cost * rates)
        return exact_sum(used.tolist())

    def prove(self, rates: Array, paid: Array, lower: Array, upper: Array) -> Array:
        """Return each source's bounds on cost and gap; NaN without a table."""
        if self.tabled is None:
            self.cover(paid)
        found = np.full((3, len(rates)), np.nan)
        if self.tabled is not None:
            given = *map(ready, (rates, paid, lower, upper)), self.tabled
            run_pass(passes()["prove"], given, tuple(found), PIECE)
        return found


def _made(
    cost: Cost, qualities: tuple[Array, Array, Array, Array], shared: IntArray
) -> tuple[IntArray, IntArray, Array]:
    """Return heads, cells and rows of tables of shared qualities.

    Qualities are recalls and precisions, and the least and largest V of their tables.
    """
    heads, cells, rows = np.zeros((len(qualities[0]), 4), dtype=np.int64), [np.zeros(0, np.int64)], []
    begin = filled = 0
    for start in range(0, len(shared), FEW):
        some = shared[start : start + FEW]
        out, counts = np.empty((len(some), ROOM, COLUMNS)), np.zeros(len(some), dtype=np.int64)
        given = *(column[some] for column in qualities), TOLERANCE, cost, out
        run_pass(loops()["tables"], given, (counts,), 1)
        for k, own, count in zip(some, out, counts.tolist(), strict=True):
            values = own[: count + 1, VALUE]
            least, last = (values[[0, -1]].view(np.int64) >> SHIFT).tolist()
            edges = (np.arange(least, last + 1) << SHIFT).view(np.float64)
            place = np.clip(np.searchsorted(values, edges, "right") - 1, 0, max(0, count - 1))
            heads[k] = begin, begin + count, filled, least
            cells.append(place + begin)
            rows.append(own[: count + 1].copy())
            begin, filled = begin + count + 1, filled + len(place)
    # A quality without a table has no row: 0 ≤ V < 0.
    rows.append(np.zeros((1, COLUMNS)))
    heads[np.setdiff1d(np.arange(len(heads)), shared)] = begin, begin, 0, 0
    return heads, np.concatenate(cells), np.concatenate(rows)
