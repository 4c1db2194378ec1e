"""`Program`: a problem with declared constraints in one general form.

    minimise Σ f_k(x_k)   subject to   Σ_k g_jk(x_k) ≤ b_j,   lo_k ≤ x_k ≤ hi_k

Bandwidth and host limits are rows like every other. A variable is a source's rate, or that of a bundle of
tied sources. This is what solvers and certificates of declared constraints see; they know no `Problem`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freshopt.compiled.backend import fast
from freshopt.compiled.rows import ratio_loops
from freshopt.numerics.arrays import Array, Index
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.separable.kernel import Numerics
from freshopt.separable.rows import RATE, Rows

_FEW_ULP = 8 * float(np.finfo(np.float64).eps)
# Implied bounds are so many times what rows leave. A bound that is reached just where its row binds is a kink
# at the optimum: of 46 planted instances the one with the most passes takes 96 instead of 207.
_ROOMY = 2.0


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Separable convex program in n rates under m rows.

    Attributes
    ----------
    numerics : Numerics or None
        f in its cost form; None where f = 0.
    lower, upper : ndarray, shape (n,)
        Bounds; `upper` may be inf, and includes what rows imply.
    typical : ndarray, shape (n,)
        A typical rate > 0 of each source, where searches start.
    rows : Rows
    level : ndarray, shape (m,), or None
        Of a minimax program: minimise t subject to Σ_k g_jk ≤ b_j + level_j·t, with f = 0.
    """

    numerics: Numerics | None
    lower: Array
    upper: Array
    typical: Array
    rows: Rows
    level: Array | None = None

    def __len__(self) -> int:
        """Return the number of variables."""
        return len(self.lower)

    def take(self, index: Index) -> Program:
        """Return the program of some of the sources; its limits stay."""
        return replace(
            self,
            numerics=None if self.numerics is None else self.numerics.take(index),
            lower=self.lower[index],
            upper=self.upper[index],
            typical=self.typical[index],
            rows=self.rows.take(index),
        )

    def cost(self, rates: Array) -> Array:
        """Return f_k at the rates, shape (n,)."""
        return np.zeros(len(rates)) if self.numerics is None else self.numerics.cost(rates)


def implied_upper(rows: Rows, lower: Array, upper: Array, needed: Array | None = None) -> Array:
    """Return upper bounds, with those that rows imply.

    Σ a·lo is `needed`, shape (m,), where these are some of the sources only.

    A row Σ a·ρ ≤ b with a ≥ 0 leaves source k no more than (b − Σ a·lo)/a_k above its lower bound. Twice that
    is the bound, so that no rate is at it where the row is met. Rates that nothing else bounds are bounded by
    rows that compare them with others.
    """
    bounds = _implied_by_limits(rows, lower, upper, needed)
    return bounds if bool(np.all(np.isfinite(bounds))) else _implied_by_others(rows, bounds)


def _implied_by_others(rows: Rows, upper: Array) -> Array:
    """Return upper bounds, with those that comparisons imply.

    A row a·ρ_k − Σ c·ρ ≤ b leaves source k at most (b + Σ c·hi)/a once every other source has a bound.
    """
    rising = np.bincount(rows.row, weights=rows.coefficient > 0.0, minlength=len(rows))
    curved = np.bincount(rows.row, weights=rows.kind != RATE, minlength=len(rows))
    comparing = (rising == 1.0) & (curved == 0.0)
    own = np.flatnonzero((rows.coefficient > 0.0) & comparing[rows.row])
    others = np.flatnonzero((rows.coefficient < 0.0) & comparing[rows.row])
    if not len(others):
        return upper
    holder, gain = np.full(len(rows), -1, dtype=np.int64), np.ones(len(rows))
    holder[rows.row[own]], gain[rows.row[own]] = rows.source[own], rows.coefficient[own]
    # Entries are kept source by source.
    first = np.searchsorted(rows.source[others], np.arange(rows.n + 1))
    row, loss, bounds = rows.row[others].astype(np.int64), -rows.coefficient[others], np.array(upper)
    fast(ratio_loops.bound_by_others)(holder, gain / (1.0 + _FEW_ULP), rows.limits, first, row, loss, bounds)
    return bounds


def _implied_by_limits(rows: Rows, lower: Array, upper: Array, needed: Array | None) -> Array:
    """Return upper bounds, with those of rows that limit sums."""
    first, row, a = rows.first, rows.row, rows.coefficient
    if rows.curves or not bool(np.all(a > 0.0)):
        linear, bounding = rows.kind == RATE, np.ones(len(rows), dtype=np.bool_)
        bounding[row[~linear | (a < 0.0)]] = False
        kept = linear & (a > 0.0) & bounding[row]
        first = np.concatenate(([0], np.cumsum(kept)))[first]
        row, a = row[kept], a[kept]
    if not len(a):
        return upper
    counts = np.diff(first)
    if needed is None:
        needed = np.zeros(len(rows))
        if bool(np.any(lower)):
            weights = a * np.repeat(lower, counts)
            needed = np.bincount(row, weights=weights, minlength=len(rows)).astype(np.float64)
    room, some = np.full(len(lower), np.inf), counts > 0
    # Entries are kept source by source.
    room[some] = np.minimum.reduceat(np.maximum(0.0, rows.limits - needed)[row] / a, first[:-1][some])
    bounds: Array = np.minimum(upper, (lower + _ROOMY * room) * (1.0 + _FEW_ULP))
    return bounds
