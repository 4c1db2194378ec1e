"""`row_multipliers`: multipliers with a small duality gap, from rates alone.

At an optimum φ_k' = 0 for sources between their bounds, and y_j > 0 only where row j is tight. The duality
gap of rates near it is about

    Σ_k φ_k'(ρ_k)²/max(φ_k'', |φ_k'|/room_k)  +  Σ_j y_j (b_j − G_j),

    φ_k' = f_k' + Σ_j y_j g_jk'   linear in y,

a least-squares problem in y ≥ 0 with m unknowns (NNLS on its normal equations). φ'' depends on y a little, so
it is solved a few times; the room is that to the bound which φ' pulls to. Whatever comes out is valid, since
any y ≥ 0 proves a bound; the best is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from freshopt.certificates.row_gap import RowGap
from freshopt.numerics.arrays import Array
from freshopt.separable.rows import RATE

# Weights and active sets settle within 20 rounds on planted programs of up to 20 rows.
_ROUNDS = 40
# Rounds without a smaller gap, after which it is done.
_IDLE = 6
# In the first rounds sources near a bound count in full while they are pulled inwards: an active-set method.
_PLAIN = 6
# A gap of this share of what the rows are paid is rounding.
_ENOUGH = 1e-15
# Normal equations are solved densely up to so many rows (32 MB of float64), by projected quasi-Newton beyond.
_DENSE = 2000
# Added to the unit diagonal, for rows that are one another's copies.
_RIDGE = 1e-13
# Rows further from a price than this multiple of the most that any row is pulled by count as this far.
_SLACK = 1e6
# A bound nearer than this share of the rate is where the rate is, at first.
_AT = 1e-6


def row_multipliers(gap: RowGap, start: Array | None = None) -> Array:
    """Return multipliers y ≥ 0 with a small duality gap, shape (m,).

    Parameters
    ----------
    gap : RowGap
        Of feasible rates.
    start : ndarray, shape (m,), optional
        Multipliers to begin with.
    """
    with np.errstate(all="ignore"):
        return _Fit(gap).best(start)


class _Fit:
    """Weighted least squares for the multipliers of one vector of rates."""

    def __init__(self, gap: RowGap) -> None:
        from scipy.sparse import csr_array

        program, rates = gap.program, gap.rates
        rows, n = program.rows, len(rates)
        kinds = len(rows.curves) + 1
        slope, bend = np.ones((kinds, n)), np.zeros((kinds, n))
        for t, curve in enumerate(rows.curves, start=RATE + 1):
            slope[t], bend[t] = -curve.marginal(rates), curve.curvature(rates)
        own = np.zeros(n) if program.numerics is None else -program.numerics.marginal(rates)
        own_bend = np.zeros(n) if program.numerics is None else program.numerics.curvature(rates)
        shape, source = (len(rows), n), rows.source
        entries = rows.coefficient * slope[rows.kind, source]
        bends = rows.coefficient * bend[rows.kind, source]
        # A source at rate 0 of infinite slope says nothing about prices.
        usable = np.isfinite(own) & np.isfinite(own_bend) & (program.upper > program.lower)
        usable[source[~np.isfinite(entries) | ~np.isfinite(bends)]] = False
        self.own, self.own_bend = np.where(usable, own, 0.0), np.where(usable, own_bend, 0.0)
        kept = usable[source]
        self.jacobian = csr_array((np.where(kept, entries, 0.0), (rows.row, source)), shape=shape)
        self.bends = csr_array((np.where(kept, bends, 0.0), (rows.row, source)), shape=shape)
        near = _AT * np.maximum(rates, program.typical)
        self.low, self.high = rates <= program.lower + near, rates >= program.upper - near
        self.below, self.above = rates - program.lower, program.upper - rates
        self.usable, self.gap = usable, gap
        self.size = np.maximum(rates, _AT * program.typical)

    def best(self, start: Array | None) -> Array:
        """Return the multipliers of the smallest gap over a few rounds."""
        found = np.zeros(len(self.gap.used)) if start is None else start
        least = self.gap.at(found)
        y, idle = found, 0
        for k in range(_ROUNDS):
            y = self._fitted(y, first=k == 0 and start is None, limited=k >= _PLAIN)
            if not bool(np.all(np.isfinite(y))):
                break
            short = self.gap.at(y)
            idle = 0 if short < 0.9 * least or k < _PLAIN else idle + 1
            if short < least or not np.isfinite(least):
                found, least = y, short
            if idle == _IDLE or least <= _ENOUGH * float(np.dot(found, np.abs(self.gap.limits))):
                break
        return found

    def _fitted(self, y: Array, *, first: bool, limited: bool) -> Array:
        """Return the multipliers of one weighted least-squares problem."""
        slope = self.own + self.jacobian.T @ y
        bend = self.own_bend + self.bends.T @ y
        # Before anything is known, a slope that falls as 1/ρ has this curvature.
        guess = np.abs(self.own) / self.size
        size = np.maximum(bend, 1e-3 * guess) if not first else np.maximum(bend, guess)
        size = np.where(size > 0.0, size, 1.0 / self.size)
        if first:
            active = self.usable & ~(self.low | self.high)
            active = active if bool(np.any(active)) else self.usable
        elif not limited:
            active = self.usable & ~(self.low & (slope > 0.0)) & ~(self.high & (slope < 0.0))
        else:
            # A source moves no farther than its bound: there its gap is |φ'| times the room left.
            room = np.where(slope > 0.0, self.below, self.above)
            active = self.usable & (room > 0.0)
            size = np.maximum(size, np.abs(slope) / np.where(room > 0.0, room, 1.0))
        root = np.where(active, 1.0 / np.sqrt(size), 0.0)
        rows = self.jacobian * root[None, :]
        right = -(rows @ (root * self.own)) - 0.5 * self.gap.slack
        level = self.gap.program.level
        if level is not None:
            # Σ level·y = 1, as one more equation that weighs what a row does. The others are homogeneous but
            # for slacks: their solution keeps its direction, and a weight that outdid them would take their
            # digits.
            size = float(np.sqrt((rows * rows).sum() / len(level)))
            weight = (size if size > 0.0 else 1.0) / float(np.max(level))
            return _nonnegative(rows, right + weight**2 * level, weight * level)
        return _nonnegative(rows, right, None)


def _nonnegative(rows: Any, right: Array, extra: Array | None) -> Array:  # noqa: ANN401 - a sparse array
    """Return the y ≥ 0 that minimises ½|rowsᵀy|² − rightᵀy."""
    from scipy.linalg import cholesky, solve_triangular
    from scipy.optimize import minimize, nnls

    length = np.sqrt(np.asarray((rows * rows).sum(axis=1)).ravel() + (0.0 if extra is None else extra**2))
    scale = 1.0 / np.where(length > 0.0, length, 1.0)
    target = np.where(length > 0.0, scale * right, np.minimum(0.0, right))
    # Rows of immense slack have no price; as they are they would take all digits.
    target = np.maximum(target, -_SLACK * np.max(target, initial=0.0))
    if len(right) <= _DENSE:
        matrix = (rows @ rows.T).toarray() + (0.0 if extra is None else np.outer(extra, extra))
        matrix = scale[:, None] * matrix * scale[None, :]
        matrix[np.diag_indices_from(matrix)] += np.where(length > 0.0, _RIDGE * len(right), 1.0)
        factor = cholesky(matrix, lower=True, check_finite=False)
        y, _ = nnls(
            factor.T,
            solve_triangular(factor, target, lower=True, check_finite=False),
            maxiter=30 * len(right),
        )
        return scale * y

    def value(y: Array) -> tuple[float, Array]:
        pulled = rows.T @ (scale * y)
        gradient = scale * (rows @ pulled) - target
        if extra is not None:
            gradient = gradient + scale * extra * float(np.dot(extra, scale * y))
        return 0.5 * float(np.dot(y, gradient - target)), gradient

    begun = np.maximum(0.0, target)
    found = minimize(value, begun, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(right))
    return scale * np.maximum(0.0, found.x)
