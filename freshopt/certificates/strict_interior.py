"""Strictly feasible rates, or multipliers that prove there are none.

    minimise t   subject to   G_j(ρ) ≤ b_j + level_j·t,   lo ≤ ρ ≤ hi

by a primal-dual interior-point method with the bounds inside: rates stay strictly between them, so that
sources whose rows are linear, which have no best response of their own, need no case of their own. With
slacks s > 0 that meet c = b + level·t − G(ρ) in the limit alone, a step solves one linear system of the size
of the rows,

    (S/Y + J E⁻¹ Jᵀ) Δy + level·Δt = μ/y − c − J E⁻¹ r,   levelᵀΔy = 1 − levelᵀy,

with J the rows' slopes, E the curvature and what bounds add to it, r the stationarity residual. Slacks kept
equal to c would stop at once where curves bend: Newton steps to their tangents' feasible sets leave theirs.
Negative t are rates inside every row; a positive optimum is a conflict, whose proof are the multipliers
(`freshopt.certificates.row_gap`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshopt.heavy import sparse
from freshopt.numerics.arrays import Array, BoolArray
from freshopt.separable.program import Program
from freshopt.separable.rows import Rows

# Fraction of the way to the boundary, the usual one.
_FRACTION = 0.995
# So many iterations at most: 240 planted programs of up to 20 rows, half of them ill-scaled, took 25 at most.
_ITERATIONS = 100
# Complementarity products at least this small a share of their mean are not pulled up.
_CENTRAL = 1e-4
# Products are aimed at no less than this share of the stationarity residual, and at no more than twofold.
_OUTRUN, _PATIENCE = 0.1, 2.0
# Added to the scaled diagonal, for rows that are one another's copies.
_RIDGE = 1e-14
# From this share of entries on, and up to so many cells (8 MB), a dense matrix is faster: for 20 rows of 100
# sources by a factor of 10, of which SciPy's checks of a sparse one take the most.
_SHARE, _CELLS = 0.05, 1_000_000
# From so many rows on their Gram matrix is sparse: 10⁵ rows of a tree would take 80 GB, most of them 0.
_MANY = 2000


class RowSlopes:
    """Matrix J of m rows by n sources.

    - `entries` (entries,): Slope of each entry of the rows; entries of one row and source add up.
    """

    def __init__(self, rows: Rows, entries: Array) -> None:
        n, m = rows.n, len(rows)
        self._sparse: sparse.csr_array | None = None
        if n * m <= _CELLS and len(entries) >= _SHARE * n * m:
            cells = rows.source * np.int64(m) + rows.row
            self._dense: Any = np.bincount(cells, weights=entries, minlength=n * m).reshape(n, m)
        else:
            self._sparse = sparse.csr_array((entries, rows.row, rows.first), shape=(n, m))
            self._dense = None

    def by_source(self, multipliers: Array) -> Array:
        """Return Jᵀy, shape (n,)."""
        own = self._dense if self._sparse is None else self._sparse
        return np.asarray(own @ multipliers)

    def by_row(self, change: Array) -> Array:
        """Return Jx, shape (m,)."""
        own = self._dense if self._sparse is None else self._sparse
        return np.asarray(change @ own)

    def gram(self, weights: Array, diagonal: Array) -> Array | sparse.csc_array:
        """Return J·diag(w)·Jᵀ + diag(d), (m, m), sparse if m is large."""
        root = np.sqrt(weights)
        if self._sparse is None:
            scaled = self._dense * root[:, None]
            return np.asarray(scaled.T @ scaled) + np.diag(diagonal)
        own = self._sparse
        entries = own.data * np.repeat(root, np.diff(own.indptr))
        scaled = sparse.csr_array((entries, own.indices, own.indptr), shape=own.shape)
        matrix = scaled.T @ scaled
        if len(diagonal) >= _MANY:
            return (matrix + sparse.diags_array(diagonal)).tocsc()
        return np.asarray(matrix.toarray()) + np.diag(diagonal)


@dataclass(frozen=True, slots=True)
class InteriorPoint:
    """Iterate of the search.

    - `rates` (n,): Strictly inside bounds that leave room.
    - `used` (m,): G_j at the rates.
    - `t`: Level near which all rows hold.
    - `multipliers` (m,): > 0, with Σ level·y = 1 but for the residual.
    - `gap`: Sum of the complementarity products: about how far t is from its optimum.
    """

    rates: Array
    used: Array
    t: float
    multipliers: Array
    gap: float


def row_sizes(program: Program, rates: Array) -> Array:
    """Return the scale of each row, shape (m,).

    It is |b_j|, or what the row's parts add up to where b_j = 0.
    """
    rows = program.rows
    if bool(np.all(rows.limits != 0.0)):
        return np.abs(rows.limits)
    with np.errstate(all="ignore"):
        parts = np.abs(rows.coefficient * rows.values(rates)[rows.kind, rows.source])
    size = np.bincount(rows.row, weights=np.where(np.isfinite(parts), parts, 0.0), minlength=len(rows))
    scale = np.where(rows.limits != 0.0, np.abs(rows.limits), size)
    return np.where(scale > 0.0, scale, 1.0)


def inside_bounds(program: Program, near: Array) -> Array:
    """Return rates strictly inside bounds that leave room, near given ones."""
    lower, upper = program.lower, program.upper
    width = upper - lower
    least = lower + np.minimum(0.1 * width, 0.1 * np.maximum(program.typical, lower))
    most = upper - np.where(np.isfinite(upper), 0.1 * width, 0.0)
    return np.minimum(np.maximum(near, least), np.maximum(most, lower))


def interior_path(program: Program, level: Array, start: Array | None = None) -> Iterator[InteriorPoint]:
    """Yield iterates of the search; the caller decides when one will do.

    - `program`: Its objective plays no part.
    - `level` (m,): ≥ 0, of one row at least positive.
    - `start` (n,): Rates strictly inside the bounds; else near the typical ones.
    """
    search = _Search(program, level, inside_bounds(program, program.typical) if start is None else start)
    with np.errstate(all="ignore"):
        for _ in range(_ITERATIONS):
            yield search.point()
            if not search.step():
                return


class _Search:
    """State of the interior-point method."""

    def __init__(self, program: Program, level: Array, start: Array) -> None:
        self.program, self.level, self.rates = program, level, start
        rows = program.rows
        self._linear: RowSlopes | None = None
        self.free: BoolArray = program.upper > program.lower
        self.bounded = self.free & np.isfinite(program.upper)
        self.used = rows.used(start)
        excess = self.used - rows.limits
        relaxed = level > 0.0
        self.t = float(np.max(excess[relaxed] / level[relaxed]))
        self.t += 0.5 * max(abs(self.t), 1e-3 * float(np.max(np.abs(rows.limits[relaxed]) / level[relaxed])))
        self.c = level * self.t - excess
        # Rows that t does not relax may be violated at the start; their slacks are not.
        self.s = np.maximum(self.c, 1e-3 * row_sizes(program, start))
        # One μ for every product, and Σ level·y = 1.
        mean = 1.0 / float(np.sum(level[relaxed] / self.s[relaxed]))
        self.y = mean / self.s
        self.low = np.where(self.free, mean / np.where(self.free, start - program.lower, 1.0), 0.0)
        self.high = np.where(self.bounded, mean / np.where(self.bounded, program.upper - start, 1.0), 0.0)

    def point(self) -> InteriorPoint:
        return InteriorPoint(self.rates, self.used, self.t, self.y, self._mean() * self._count())

    def _mean(self) -> float:
        below, above = self._room()
        products = np.dot(self.y, self.s) + np.dot(self.low, below) + np.dot(self.high, above)
        return float(products) / self._count()

    def _count(self) -> int:
        return len(self.y) + int(np.sum(self.free)) + int(np.sum(self.bounded))

    def _room(self) -> tuple[Array, Array]:
        """Return the distances to the bounds; 1 without bound or room."""
        below = np.where(self.free, self.rates - self.program.lower, 1.0)
        return below, np.where(self.bounded, self.program.upper - self.rates, 1.0)

    def step(self) -> bool:
        """Take one predictor-corrector step; return whether there was one."""
        n, m = len(self.rates), len(self.y)
        slopes, curvature = self._derivatives()
        below, above = self._room()
        stiff = curvature + self.low / below + self.high / above
        inverse = np.where(self.free & (stiff > 0.0), 1.0 / np.where(stiff > 0.0, stiff, 1.0), 0.0)
        pull = slopes.by_source(self.y)
        solve = _bordered(slopes.gram(inverse, self.s / self.y), self.level)

        def direction(
            mu_rows: Array, mu_low: Array, mu_high: Array
        ) -> tuple[Array, float, Array, Array, Array]:
            rest = np.where(
                self.free, pull - mu_low / below + np.where(self.bounded, mu_high / above, 0.0), 0.0
            )
            right = mu_rows / self.y - self.c - slopes.by_row(inverse * rest)
            dy, dt = solve(right, 1.0 - float(np.dot(self.level, self.y)))
            move = -inverse * (rest + slopes.by_source(dy))
            low = np.where(self.free, (mu_low - self.low * move) / below - self.low, 0.0)
            high = np.where(self.bounded, (mu_high + self.high * move) / above - self.high, 0.0)
            return move, dt, dy, low, high

        mean = self._mean()
        zero = np.zeros(n)
        move, dt, dy, low, high = direction(np.zeros(m), zero, zero)
        slack = self.c - self.s + self.level * dt - slopes.by_row(move)
        reach = min(1.0, self._primal_reach(move), _reach(self.s, slack))
        dual = min(1.0, _reach(self.y, dy), _reach(self.low, low), _reach(self.high, high))
        left = np.dot(self.y + dual * dy, self.s + reach * slack)
        left += np.dot(self.low + dual * low, np.where(self.free, below + reach * move, 0.0))
        left += np.dot(self.high + dual * high, np.where(self.bounded, above - reach * move, 0.0))
        sigma = min(1.0, max(1e-3, float(left) / self._count() / mean)) ** 3
        # Complementarity must not outrun stationarity, or the iterates end at the wrong bounds.
        residual = float(np.dot(np.abs(pull - self.low + self.high), np.where(self.free, self.rates, 0.0)))
        residual += float(np.dot(self.y, np.abs(self.c - self.s)))
        target = min(mean * _PATIENCE, max(max(sigma, 1e-4) * mean, _OUTRUN * residual / self._count()))
        second = np.clip(dy * slack, -mean, mean)
        move, dt, dy, low, high = direction(target - second, zero + target, zero + target)
        slack = self.c - self.s + self.level * dt - slopes.by_row(move)
        return self._advance(move, dt, slack, dy, low, high)

    def _advance(self, move: Array, dt: float, slack: Array, dy: Array, low: Array, high: Array) -> bool:
        rows = self.program.rows
        if not (np.all(np.isfinite(move)) and np.isfinite(dt) and bool(np.all(np.isfinite(dy)))):
            return False
        size = min(1.0, _FRACTION * min(self._primal_reach(move), _reach(self.s, slack)))
        self.rates, self.t, self.s = self.rates + size * move, self.t + size * dt, self.s + size * slack
        self.used = rows.used(self.rates)
        self.c = rows.limits + self.level * self.t - self.used
        dual = min(1.0, _FRACTION * min(_reach(self.y, dy), _reach(self.low, low), _reach(self.high, high)))
        self.y, self.low, self.high = self.y + dual * dy, self.low + dual * low, self.high + dual * high
        mean = self._mean()
        self.y = np.maximum(self.y, _CENTRAL * mean / self.s)
        below, above = self._room()
        self.low = np.where(self.free, np.maximum(self.low, _CENTRAL * mean / below), 0.0)
        self.high = np.where(self.bounded, np.maximum(self.high, _CENTRAL * mean / above), 0.0)
        return True

    def _primal_reach(self, move: Array) -> float:
        below, above = self._room()
        return min(
            _reach(below, np.where(self.free, move, 0.0)), _reach(above, np.where(self.bounded, -move, 0.0))
        )

    def _derivatives(self) -> tuple[RowSlopes, Array]:
        """Return the rows' slopes, and the sources' curvature Σ y g''."""
        rows, n = self.program.rows, len(self.rates)
        if not rows.curves:
            # Rates alone have the same slopes at every step.
            if self._linear is None:
                self._linear = RowSlopes(rows, rows.coefficient)
            return self._linear, np.zeros(n)
        bent = np.bincount(rows.source, weights=self.y[rows.row] * rows.bends(self.rates), minlength=n)
        return RowSlopes(rows, rows.slopes(self.rates)), bent.astype(np.float64)


def _reach(value: Array, change: Array) -> float:
    """Return how far positive values can move before one is 0."""
    # The largest −change/value is the inverse of the least reach, and 0/0 of no room and no change is none.
    steepest = float(np.fmax.reduce(-change / value, initial=0.0))
    return 1.0 / steepest if steepest > 0.0 else np.inf


def _bordered(
    matrix: Array | sparse.csc_array, level: Array
) -> Callable[[Array, float], tuple[Array, float]]:
    """Return a solver of M·Δy + level·Δt = right, levelᵀΔy = rest."""
    scale = 1.0 / np.sqrt(matrix.diagonal())
    inverse = (
        _dense_inverse(matrix, scale) if isinstance(matrix, np.ndarray) else _sparse_inverse(matrix, scale)
    )
    border = scale * inverse(scale * level)

    def solve(right: Array, rest: float) -> tuple[Array, float]:
        own = scale * inverse(scale * right)
        dt = (float(np.dot(level, own)) - rest) / float(np.dot(level, border))
        return own - dt * border, dt

    return solve


def _dense_inverse(matrix: Array, scale: Array) -> Callable[[Array], Array]:
    """Return the product with the inverse of a scaled matrix."""
    from scipy.linalg import cho_factor, cho_solve

    scaled = matrix * scale[:, None] * scale[None, :]
    scaled[np.diag_indices_from(scaled)] += _RIDGE
    factor = cho_factor(scaled, lower=True, check_finite=False)
    return lambda right: np.asarray(cho_solve(factor, right, check_finite=False))


def _sparse_inverse(matrix: sparse.csc_array, scale: Array) -> Callable[[Array], Array]:
    """Return the product with the inverse of a scaled sparse matrix."""
    from scipy.sparse.linalg import splu

    sides = sparse.diags_array(scale)
    scaled = (sides @ matrix @ sides + sparse.diags_array(np.full(len(scale), _RIDGE))).tocsc()
    factor = splu(scaled, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    return lambda right: np.asarray(factor.solve(right))


def interior_points(program: Program, most: int = 4) -> list[Array]:
    """Return rates strictly inside all rows, ever deeper, if any.

    The last is about where the smallest relative slack is largest, or reaches half of the row.
    """
    sizes = row_sizes(program, np.maximum(program.typical, program.lower))
    found: list[Array] = []
    for point in interior_path(program, sizes):
        share = float(np.min((program.rows.limits - point.used) / sizes))
        if share > 0.0:
            found.append(point.rates)
        # Known to a tenth, or as deep as anyone needs.
        if share > 0.5 or point.gap < 0.1 * abs(point.t) or (point.t > 0.0 and point.gap < 1e-12):
            break
    return found[-most:]
