"""`Tangents`: rows replaced by their tangents at given rates.

Convex rows lie above their tangents, so that for multipliers y ≥ 0 and any rates ρ

    D(y)  ≥  Σ_j y_j (G_j(ρ) − b_j)  +  Σ_k min over [lo_k, hi_k] of (Σ_j y_j g_jk'(ρ_k))·(r − ρ_k),

whose minimum is at a bound. At the rates of an interior point method, whose slopes its bounds balance, this
loses no more than the complementarity left; no best response is asked for, and further multipliers at the
same rates cost one product with a matrix.
"""

from __future__ import annotations

import numpy as np

from freshopt.certificates.row_slopes import RowSlopes
from freshopt.numerics.arrays import Array, exact_sum
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE

# Slopes are off by this share of their parts at most, and sums of up to thousands of rows.
_ROUNDING = 1e-14


class Tangents:
    """Rows of a program without objective, linear at given rates.

    Parameters
    ----------
    rates : ndarray, shape (n,)
        Within the bounds.
    """

    def __init__(self, program: Program, rates: Array) -> None:
        rows = program.rows
        slope = np.ones((1 + len(rows.curves), len(rates)))
        for t, curve in enumerate(rows.curves, start=RATE + 1):
            slope[t] = -curve.marginal(rates)
        entries = np.where(rows.coefficient == 0.0, 0.0, rows.coefficient * slope[rows.kind, rows.source])
        self._slopes, self._sizes = RowSlopes(rows, entries), RowSlopes(rows, np.abs(entries))
        self._excess = rows.used(rates) - rows.limits
        self._down, self._up = rates - program.lower, program.upper - rates

    def bound(self, multipliers: Array) -> float:
        """Return a lower bound of D(y), −inf where it has none."""
        paid = multipliers > 0.0
        # An infinite slope of a row that is not priced is no number, and no bound.
        with np.errstate(all="ignore"):
            slope = self._slopes.by_source(multipliers)
            off = _ROUNDING * self._sizes.by_source(multipliers)
            saved = np.maximum((slope + off) * self._down, (off - slope) * self._up)
        saved = np.where(off == 0.0, 0.0, saved)
        least = exact_sum([*(multipliers[paid] * self._excess[paid]), -float(np.sum(saved))])
        return least if np.isfinite(least) else -np.inf
