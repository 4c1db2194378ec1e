"""`Rows`: declared constraints as the rows of one sparse matrix.

Row j says Σ_k g_jk(ρ_k) ≤ b_j with convex g_jk, and every g_jk is a sum of coefficients times a few *kinds*
of function of the source's rate: kind 0 is the rate itself, kind t > 0 the t-th curve (the cost of a declared
objective, say). A source therefore sees its rows through one number per kind, θ_t = Σ_j y_j a_jk, where y_j
is the row's dual variable. Entries are kept source by source, as the passes read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.compiled.rows.row_products import Entries, products_enabled, row_products, source_prices
from freshopt.numerics.arrays import Array, BoolArray, Index, IntArray, Scalar
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.segments import group_sums, segment_rows
from freshopt.separable.derived_kernel import same_numerics
from freshopt.separable.kernel import Numerics, weighted

# The kind of the rate itself; the t-th curve is kind t + 1 in `Rows.curves`.
RATE = 0


@frozen_value()
class RowBlock:
    """Rows of one declared constraint, entry by entry, in any order.

    - `name`: The constraint's label.
    - `keys` tuple, one per row: What tells its rows apart, a group or a position; (None,) of a single row.
    - `source`, `row` (entries,)
    - `kind` (entries,): 0 for the rate, t for ``curves[t-1]``.
    - `coefficient` (entries,): Of the rate, of any sign; of a curve's `Numerics.cost`, ≥ 0.
    - `curves`: Each of full length n.
    - `limits` (rows,): b, of Σ ≤ b.
    - `direction`, `offset` (rows,): What was declared is offset + direction·Σ: direction −1 of a row declared
      with ≥.
    """

    name: str
    keys: tuple[Any, ...]
    source: IntArray
    row: IntArray
    kind: IntArray
    coefficient: Array
    curves: tuple[Numerics, ...]
    limits: Array
    direction: Array
    offset: Array

    @classmethod
    def linear(
        cls,
        name: str,
        keys: Sequence[Any],
        source: IntArray,
        row: IntArray,
        coefficient: Array,
        limits: Array,
        *,
        at_least: bool = False,
    ) -> RowBlock:
        """Return rows Σ a·ρ ≤ b, or ≥ b with `at_least`."""
        sign, ones = -1.0 if at_least else 1.0, np.ones(len(keys))
        kind = np.zeros(len(source), dtype=np.int64)
        own = sign * coefficient
        return cls(name, tuple(keys), source, row, kind, own, (), sign * limits, sign * ones, 0.0 * ones)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.keys)

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each row: the name, or name[key]."""
        return tuple(self.name if key is None else f"{self.name}[{key}]" for key in self.keys)

    def take(self, rows: IntArray) -> RowBlock:
        """Return some of the rows."""
        place = np.full(len(self), -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        kept = place[self.row] >= 0
        return replace(
            self,
            keys=tuple(self.keys[k] for k in rows.tolist()),
            source=self.source[kept],
            row=place[self.row[kept]],
            kind=self.kind[kept],
            coefficient=self.coefficient[kept],
            limits=self.limits[rows],
            direction=self.direction[rows],
            offset=self.offset[rows],
        )


@frozen_value()
class Rows:
    """Rows Σ_k g_jk(ρ_k) ≤ b_j of n sources, entries source by source.

    - `first` (n+1,): The entries of source k are first[k]:first[k+1].
    - `row` ndarray of int32 (entries,)
    - `kind` ndarray of int32 (entries,): 0 for the rate, t for ``curves[t-1]``.
    - `coefficient` (entries,)
    - `limits` (m,)
    - `direction`, `offset` (m,): What was declared is offset + direction·Σ.
    - `curves`: Each of full length n.
    """

    first: IntArray
    row: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int32]
    coefficient: Array
    limits: Array
    direction: Array
    offset: Array
    labels: tuple[str, ...]
    curves: tuple[Numerics, ...]

    @classmethod
    def gather(cls, blocks: Sequence[RowBlock], n: int) -> Rows:
        """Return the rows of several blocks, in their order."""
        if len(blocks) and all(_of_every_source(block, n) for block in blocks):
            return cls._of_every_source(blocks, n)
        curves: list[Numerics] = []
        kinds = []
        for block in blocks:
            own = [RATE]
            for curve in block.curves:
                known = [t for t, other in enumerate(curves, start=1) if same_numerics(curve, other)]
                if not known:
                    curves.append(curve)
                own.append(known[0] if known else len(curves))
            kinds.append(np.array(own)[block.kind])
        starts = np.concatenate(([0], np.cumsum([len(block) for block in blocks])))
        source = _joined([block.source for block in blocks], np.int64)
        row = _joined([block.row + starts[k] for k, block in enumerate(blocks)], np.int32)
        kind = _joined(kinds, np.int32)
        coefficient = _joined([block.coefficient for block in blocks], np.float64)
        sort, first = _by_source(source, n)
        return cls(
            first,
            sort(row),
            sort(kind) if curves else kind,
            sort(coefficient),
            _joined([block.limits for block in blocks], np.float64),
            _joined([block.direction for block in blocks], np.float64),
            _joined([block.offset for block in blocks], np.float64),
            tuple(label for block in blocks for label in block.labels),
            tuple(curves),
        )

    @classmethod
    def _of_every_source(cls, blocks: Sequence[RowBlock], n: int) -> Rows:
        """Return blocks of one row of all rates each."""
        m = len(blocks)
        coefficient = np.empty((n, m))
        for j, block in enumerate(blocks):
            coefficient[:, j] = block.coefficient
        return cls(
            m * np.arange(n + 1),
            np.tile(np.arange(m, dtype=np.int32), n),
            np.zeros(n * m, dtype=np.int32),
            coefficient.reshape(-1),
            _joined([block.limits for block in blocks], np.float64),
            _joined([block.direction for block in blocks], np.float64),
            _joined([block.offset for block in blocks], np.float64),
            tuple(label for block in blocks for label in block.labels),
            (),
        )

    def __len__(self) -> int:
        """Return the number m of rows."""
        return len(self.labels)

    @property
    def dense(self) -> bool:
        """Whether every row is of the rate and has all sources."""
        m = len(self)
        if self.curves or not m or len(self.row) != m * self.n:
            return False
        return np.array_equal(self.row.reshape(self.n, m), np.broadcast_to(np.arange(m), (self.n, m)))

    @property
    def n(self) -> int:
        """Number of sources."""
        return len(self.first) - 1

    @property
    def source(self) -> IntArray:
        """Source of each entry, shape (entries,)."""
        return np.repeat(np.arange(self.n), np.diff(self.first))

    def take(self, index: Index) -> Rows:
        """Return the rows' entries of some of the sources; limits stay."""
        if isinstance(index, slice) and index.step in (None, 1):
            return self._slice(*index.indices(self.n)[:2])
        chosen = np.arange(self.n)[index]
        entries = segment_rows(self.first, chosen)
        return replace(
            self,
            first=np.concatenate(([0], np.cumsum(np.diff(self.first)[chosen]))),
            row=self.row[entries],
            kind=self.kind[entries],
            coefficient=self.coefficient[entries],
            curves=tuple(curve.take(index) for curve in self.curves),
        )

    def only(self, chosen: BoolArray) -> Rows:
        """Return some of the rows, with their entries."""
        kept = chosen[self.row]
        number = (np.cumsum(chosen) - 1).astype(np.int32)
        return replace(
            self,
            first=np.concatenate(([0], np.cumsum(kept)))[self.first],
            row=number[self.row[kept]],
            kind=self.kind[kept],
            coefficient=self.coefficient[kept],
            limits=self.limits[chosen],
            direction=self.direction[chosen],
            offset=self.offset[chosen],
            labels=tuple(label for label, own in zip(self.labels, chosen, strict=True) if own),
        )

    def _slice(self, start: int, stop: int) -> Rows:
        """Return the entries of neighbouring sources, without a look at the others."""
        own = self.first[start : max(start, stop) + 1]
        entries = slice(int(own[0]), int(own[-1]))
        return replace(
            self,
            first=own - own[0],
            row=self.row[entries],
            kind=self.kind[entries],
            coefficient=self.coefficient[entries],
            curves=tuple(curve.take(slice(start, stop)) for curve in self.curves),
        )

    def prices(self, multipliers: Array) -> Array:
        """Return what sources pay per kind, Σ_j y_j a_jk, shape (kinds, n)."""
        kinds, n = 1 + len(self.curves), self.n
        if products_enabled(n):
            return source_prices(self._entries, multipliers, kinds)
        weights = multipliers[self.row] * self.coefficient
        if kinds == 1:
            return np.bincount(self.source, weights=weights, minlength=n)[None].astype(np.float64)
        place = self.kind * np.int64(n) + self.source
        paid = np.bincount(place, weights=weights, minlength=kinds * n).astype(np.float64)
        return paid.reshape(kinds, n)

    def values(self, rates: Array) -> Array:
        """Return every kind's function at the rates, shape (kinds, n)."""
        return np.stack([rates, *(curve.cost(rates) for curve in self.curves)])

    def slopes(self, rates: Array) -> Array:
        """Return the slope g_jk' of every entry at the rates, shape (entries,)."""
        if not self.curves:
            return self.coefficient
        each = np.stack([np.ones(self.n), *(-curve.marginal(rates) for curve in self.curves)])
        return weighted(self.coefficient, each[self.kind, self.source])

    def bends(self, rates: Array) -> Array:
        """Return the curvature g_jk'' of every entry at the rates, shape (entries,)."""
        if not self.curves:
            return np.zeros(len(self.coefficient))
        each = np.stack([np.zeros(self.n), *(curve.curvature(rates) for curve in self.curves)])
        return weighted(self.coefficient, each[self.kind, self.source])

    def used(self, rates: Array) -> Array:
        """Return Σ_k g_jk(ρ_k) of every row, to ulps, shape (m,)."""
        return self.sums(rates)[0]

    def sums(self, rates: Array) -> tuple[Array, Array]:
        """Return `used`, and Σ_k |g_jk(ρ_k)|, as terms come, shapes (m,)."""
        if products_enabled(self.n):
            values = self.values(rates) if self.curves else rates[None]
            return row_products(self._entries, values, len(self))
        # Where every rate counts, it is repeated for its entries; other kinds are looked up.
        if self.curves:
            values = self.values(rates)[self.kind, self.source]
        else:
            values = np.repeat(rates, np.diff(self.first))
        # An entry of no weight adds nothing, even where its curve is infinite.
        amounts, rows = weighted(self.coefficient, values), self.row.astype(np.int64)
        if len(amounts) == 0 or float(np.min(amounts)) >= 0.0:
            used = group_sums(amounts, rows, len(self))
            return used, used
        gained = group_sums(np.maximum(amounts, 0.0), rows, len(self))
        lost = group_sums(np.maximum(-amounts, 0.0), rows, len(self))
        return gained - lost, gained + lost

    @property
    def _entries(self) -> Entries:
        return Entries(self.first, self.row, self.kind, self.coefficient)

    def declared(self, used: Array) -> Array:
        """Return internal row values, or limits, as they were declared."""
        return self.offset + self.direction * used


def _of_every_source(block: RowBlock, n: int) -> bool:
    """Return whether a block is one row of all rates."""
    one = len(block) == 1 and len(block.source) == n and not block.curves
    return one and bool(np.array_equal(block.source, np.arange(n)))


def _by_source(
    source: IntArray, n: int
) -> tuple[Callable[[npt.NDArray[Scalar]], npt.NDArray[Scalar]], IntArray]:
    """Return the order of entries by source, and each source's first."""
    times = len(source) // n if n else 0
    if times and len(source) == times * n and np.array_equal(source.reshape(times, n), _every(times, n)):
        # Rows over all sources, as budgets are: their order is a transposition.
        return lambda entries: entries.reshape(times, n).T.reshape(-1), times * np.arange(n + 1)
    first = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=n))))
    order = np.argsort(source, kind="stable")
    return lambda entries: entries[order], first


def _every(times: int, n: int) -> IntArray:
    """Return every source in each of several rows, without memory."""
    return np.broadcast_to(np.arange(n), (times, n))


def _joined(arrays: Sequence[npt.NDArray[Any]], kind: type[Scalar]) -> npt.NDArray[Scalar]:
    """Return arrays one after the other, of one type."""
    return np.concatenate([np.zeros(0, dtype=kind), *arrays]).astype(kind, copy=False)
