"""`QualityTables`: many sources' best responses and proofs.

Sources of a quality that many share are answered and proved by its table
(`freshopt.noisy_signals.quality_lookup`), all others by the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from freshopt.compiled.backend import compiled, plain_or_compiled
from freshopt.compiled.columns import run_chunks_in_threads
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
from freshopt.numerics.arrays import Array, Index, IntArray, as_float64, exact_sum, read_only, total
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


def _tables(given: tuple[Array, ...], cost: Cost) -> tuple[Array, IntArray]:
    """Return rows of some qualities, and how many each has."""
    n = len(given[0])
    out, counts = np.empty((n, ROOM, COLUMNS)), np.zeros(n, dtype=np.int64)
    run_chunks_in_threads(lambda a, b: loops()["tables"](a, b, *given, TOLERANCE, cost, out, counts), n, 1)
    return out, counts


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
    tabled: tuple[IntArray, IntArray, Array] | None = None
    covered: tuple[Array, Array] | None = None

    def cover(self, paid: Array, beyond: float = BESIDE) -> None:
        """Have tables for these prices; new ones reach `beyond` times as far."""
        d, recall, precision = self._columns()
        w, n = as_float64(self.kernel.importance), len(d)
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
        passes()["spans"](0, n, _ready(paid), _ready(w), d, self.codes, low, high, counts)
        high = np.minimum(high, self.most * (1.0 - 1e-6))
        if self.covered is not None and bool(np.all((self.covered[0] <= low) & (high <= self.covered[1]))):
            return
        high *= beyond if self.most == np.inf else 1.0
        self.covered = low / BESIDE, high
        shared = np.flatnonzero((counts >= SHARED) & (low / BESIDE < high))
        self.tabled = self._made(recall[self.seen], precision[self.seen], low / BESIDE, high, shared)

    def _made(
        self, recall: Array, precision: Array, low: Array, high: Array, shared: IntArray
    ) -> tuple[IntArray, IntArray, Array]:
        """Return heads, cells and rows of tables."""
        heads, cells, rows = np.zeros((len(recall), 4), dtype=np.int64), [np.zeros(0, np.int64)], []
        begin = filled = 0
        assert self.cost is not None
        cost = self.cost._replace(nodes=read_only(self.cost.nodes), weights=read_only(self.cost.weights))
        for start in range(0, len(shared), FEW):
            some = shared[start : start + FEW]
            out, counts = _tables((recall[some], precision[some], low[some], high[some]), cost)
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

    def respond(self, paid: Array, index: Index) -> Array:
        """Return best responses of some sources, to 1e-9."""
        rates = np.full(len(paid), np.nan)
        if self.tabled is not None and self.codes is not None:
            w, d = as_float64(self.kernel.importance)[index], self._columns()[0][index]
            own = Tabled(_ready(w), _ready(d), self.codes[index], self.most, *self.tabled)
            _run("respond", (_ready(paid), own), (rates,))
        rest = np.flatnonzero(np.isnan(rates))
        if len(rest):
            places = np.arange(len(self.kernel.importance))[index][rest]
            rates[rest] = self.kernel.take(places).inverse_marginal(paid[rest])
        return rates

    def fill(self, price: float, cost: Array, lower: Array, upper: Array, rates: Array) -> float:
        """Write all best responses within bounds; return the bandwidth they use."""
        if self.tabled is None or self.codes is None:
            rates[:] = np.clip(self.respond(price * cost, slice(None)), lower, upper)
            return total(cost * rates)
        used = np.empty(-(-len(rates) // BLOCK))
        given = price, *map(_ready, (cost, lower, upper)), self._every(self.codes, self.tabled)
        run_chunks_in_threads(lambda a, b: passes()["fill"](a, b, *given, rates, used), len(used), 1)
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
        if self.tabled is not None and self.codes is not None:
            columns = map(_ready, (rates, paid, lower, upper))
            _run("prove", (*columns, self._every(self.codes, self.tabled)), tuple(found))
        return found

    def _every(self, codes: IntArray, tables: tuple[IntArray, IntArray, Array]) -> Tabled:
        return Tabled(
            _ready(as_float64(self.kernel.importance)), self._columns()[0], codes, self.most, *tables
        )

    def _columns(self) -> tuple[Array, Array, Array]:
        d, recall, precision = self.kernel.parameters
        return _ready(as_float64(d)), _ready(recall), _ready(precision)


def _ready(column: Array) -> Array:
    """Return a column as loops take it."""
    return read_only(np.ascontiguousarray(column, dtype=np.float64))


def _run(name: str, given: tuple[object, ...], written: tuple[Array, ...]) -> None:
    """Run a pass over columns."""
    one = passes()[name]
    run_chunks_in_threads(lambda begin, end: one(begin, end, *given, *written), len(written[0]), PIECE)
