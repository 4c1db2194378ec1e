"""`Program`: a problem with declared constraints in one general form.

    minimise Σ f_k(x_k)   subject to   Σ_k g_jk(x_k) ≤ b_j,   lo_k ≤ x_k ≤ hi_k

Bandwidth and host limits are rows like every other. A variable is a source's rate, or that of a bundle of
tied sources. This is what solvers and certificates of declared constraints see; they know no `Problem`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from freshopt.compiled.backend import fast
from freshopt.compiled.rows import ratio_loops
from freshopt.numerics.arrays import LARGEST, Array, Index
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.kernel import Kernel, Numerics
from freshopt.separable.rows import RATE, Rows

_FEW_ULP = 8 * float(np.finfo(np.float64).eps)
# Share of what a row adds up that bounds may be too large by, for rounding.
_SLACK = 1e-12
# Implied bounds are so many times what rows leave. A bound that is reached just where its row binds is a kink
# at the optimum: of 46 planted instances the one with the most passes takes 96 instead of 207.
_ROOMY = 2.0


@frozen_value(weakref_slot=True)
class Program:
    """Separable convex program in n rates under m rows.

    - `numerics`: f in its cost form; None where f = 0.
    - `lower`, `upper` (n,): Bounds; `upper` may be inf, and includes what rows imply.
    - `typical` (n,): A typical rate > 0 of each source, where searches start.
    - `level` (m,): Of a minimax program: minimise t subject to Σ_k g_jk ≤ b_j + level_j·t, with f = 0.
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
    rows that compare them with others, and by rows of curves: e^ρ ≤ b bounds ρ.
    """
    bounds = _implied_by_limits(rows, lower, upper, needed)
    if not bool(np.all(np.isfinite(bounds))):
        bounds = _implied_by_others(rows, bounds)
    if needed is None and not bool(np.all(np.isfinite(bounds))):
        bounds = _implied_by_rest(rows, lower, bounds)
    return bounds


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


def _implied_by_rest(rows: Rows, lower: Array, upper: Array) -> Array:
    """Return upper bounds, with those that rows of any kind imply.

    An entry of a row is at most what the least values of all others leave of the limit. Bounds that one pass
    finds may let the next find more.
    """
    a, source, row, rate = rows.coefficient, rows.source, rows.row, rows.kind == RATE
    rising = [not isinstance(curve, Kernel) for curve in rows.curves]  # costs of kernels never rise
    usable = (a > 0.0) & np.array([True, *rising])[rows.kind]
    bounds, least, tried = np.array(upper), np.zeros(len(a)), np.zeros(len(a), dtype=np.bool_)
    with np.errstate(all="ignore"):
        while bool(np.any(wanted := usable & np.isinf(bounds[source]) & ~tried)):
            if not bool(np.any(tried)):
                for kind, curve in enumerate(rows.curves, start=1):
                    own = np.flatnonzero(rows.kind == kind)
                    least[own] = a[own] * _least(
                        curve.take(source[own]), lower[source[own]], bounds[source[own]]
                    )
            least[rate] = a[rate] * np.where(a[rate] > 0.0, lower[source[rate]], bounds[source[rate]])
            sums = np.bincount(row, weights=least, minlength=len(rows))
            size = np.abs(rows.limits) + np.bincount(row, weights=np.abs(least), minlength=len(rows))
            known = np.flatnonzero(wanted & np.isfinite(sums[row]))
            if not len(known):
                break
            tried[known] = True
            j = row[known]
            most = (rows.limits[j] - sums[j] + least[known] + _SLACK * size[j]) / a[known]
            found = np.where(rate[known], most, np.inf)
            for kind, curve in enumerate(rows.curves, start=1):
                own = np.flatnonzero(rows.kind[known] == kind)
                if len(own):
                    found[own] = _beyond(curve.take(source[known[own]]), most[own])
            np.minimum.at(bounds, source[known], np.maximum(lower[source[known]], _ROOMY * found))
    return bounds


def _least(curve: Numerics, lower: Array, upper: Array) -> Array:
    """Return a convex curve's least values between bounds, −inf where unknown."""
    at = np.clip(curve.inverse_marginal(np.zeros(len(lower))), lower, np.minimum(upper, LARGEST))
    values = curve.cost(at)
    return np.where(np.isnan(values), -np.inf, values)


def _beyond(curve: Numerics, most: Array) -> Array:
    """Return rates beyond which a convex curve exceeds values.

    They are inf where it never does, and else too large by a factor of up to 4.
    """
    rates, open_ = np.full(len(most), np.inf), np.arange(len(most))
    open_ = open_[curve.cost(np.full(len(most), LARGEST)) > most]
    trial = np.full(len(open_), LARGEST)
    for size in (1e32, 1e16, 1e8, 1e4, 1e2, 10.0, 2.0):
        # As long as a rate that many times less is beyond, too, on the rising side.
        while len(open_):
            some, fewer = curve.take(open_), trial / size
            less = (some.cost(fewer) > most[open_]) & (some.marginal(fewer) < 0.0)
            if not bool(np.any(less)):
                break
            trial = np.where(less, fewer, trial)
    rates[open_] = trial
    return rates


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
