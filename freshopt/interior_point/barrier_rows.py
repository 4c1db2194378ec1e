"""`solve_barrier`: interior point method over rates beside multipliers.

A source without curvature has a best response that jumps, and tells a search over the multipliers nothing.
Here the rates are unknowns, kept inside their bounds by multipliers z_lo, z_hi > 0 of those,

    f' + Σ_j y_j g_j' = z_lo − z_hi,     y_j s_j = z_lo (ρ − lo) = z_hi (hi − ρ) = μ → 0,

so that in Newton's matrix Σ_k g_k' g_k'ᵀ D_k over the rows each source responds by

    D = 1/(φ'' + z_lo/(ρ − lo) + z_hi/(hi − ρ)),

with curvature, bounds, or both (`freshopt.interior_point.barrier_steps`). No inverse marginal is asked for.
Piecewise linear sources are split at their kinks (`freshopt.interior_point.linear_pieces`). The gap that is
returned is a certificate's (`freshopt.certificates.row_gap`), of rates that meet all rows.
"""

from __future__ import annotations

import numpy as np

from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_repair import repair_rows
from freshopt.interior_point.barrier_steps import BarrierPoint
from freshopt.interior_point.infeasibility import proves_conflict
from freshopt.interior_point.linear_pieces import LinearPieces, linear_pieces
from freshopt.interior_point.row_presolve import Presolved, presolve
from freshopt.interior_point.solve_rows import CONFLICT, EVERY, RowAnswer, solve_rows
from freshopt.numerics.arrays import Array
from freshopt.separable.program import Program

# Newton steps; 180 linear programs of 300 sources need 14 at most, 20 000 sources of ill scale 33.
_ITERATIONS = 100
# Relative gaps at which feasible rates are kept, for repairs.
_KEPT = (1e-1, 1e-2, 1e-3, 1e-4)
# The gap is certified once complementarity and residuals are this multiple of the tolerance.
_NEAR = 10.0
# A step that does not halve them below this share may be the last that helps.
_SLOW = 1e-6
# So many steps without halving them end the search.
_IDLE = 15


def solve_barrier(program: Program, tolerance: float = 1e-12, *, iterations: int = _ITERATIONS) -> RowAnswer:
    """Minimise a separable objective under rows, rates and multipliers at once.

    - `program`: Of any curvature, 0 included.
    - `tolerance`: Of the duality gap, relative to |F| + Σ y_j|b_j|.
    - `iterations`: Newton steps at most.
    """
    with np.errstate(all="ignore"):
        smaller = presolve(program)
        pieces = linear_pieces(smaller.program)
        return _Search(program, smaller, pieces, tolerance).run(iterations)


class _Search:
    """One solve: when it ends, and with what."""

    def __init__(self, program: Program, smaller: Presolved, pieces: LinearPieces, tolerance: float) -> None:
        self._program, self._smaller, self._pieces, self._tolerance = program, smaller, pieces, tolerance
        self._kept: list[Array] = []
        self._best: tuple[float, Array, Array] | None = None

    def run(self, iterations: int) -> RowAnswer:
        """Iterate to the tolerance, a proof of conflict, or a stall."""
        inner = self._smaller.program
        if not len(inner.rows) or not len(self._pieces.program):
            return self._decided(iterations)
        point = BarrierPoint(self._pieces.program)
        idle, least, k, why = 0, np.inf, 0, f"{iterations} Newton steps were not enough"
        for k in range(iterations + 1):
            share = point.distance()
            if point.feasible and len(self._kept) < len(_KEPT) and share <= _KEPT[len(self._kept)]:
                self._kept.append(self._rates(point))
            slow = share > 0.5 * least
            if share <= _NEAR * self._tolerance or (slow and share < _SLOW):
                self._certify(point)
                if self._gap <= self._tolerance:
                    return self._answer(point, k, None)
            if k % EVERY == EVERY - 1 and not point.feasible:
                y = self._smaller.multipliers(self._program, point.multipliers)
                if proves_conflict(self._program, y):
                    self._best = np.inf, self._rates(point), y
                    return self._answer(point, k, CONFLICT)
            idle, least = (idle + 1, least) if slow else (0, share)
            if idle > _IDLE or (k < iterations and not point.advance()):
                why = "steps became negligible"
                break
        self._certify(point)
        return self._answer(point, k, None if self._gap <= self._tolerance else why)

    @property
    def _gap(self) -> float:
        """Least relative gap certified so far."""
        return np.inf if self._best is None else self._best[0]

    def _rates(self, point: BarrierPoint) -> Array:
        rates = self._pieces.rates(point.rates)
        return np.clip(rates, self._smaller.program.lower, self._smaller.program.upper)

    def _certify(self, point: BarrierPoint) -> None:
        """Certify a point's rates; keep the best answer."""
        y, rates = self._smaller.multipliers(self._program, point.multipliers), self._rates(point)
        repaired, relative = repair_rows(self._program, rates, tuple(self._kept)), np.inf
        if repaired is not None:
            rates = repaired.rates
            relative = relative_gap(RowGap.of(self._program, rates), y)
        if self._best is None or relative < self._best[0]:
            self._best = relative, rates, y

    def _answer(self, point: BarrierPoint, iterations: int, why: str | None) -> RowAnswer:
        assert self._best is not None
        gap, rates, y = self._best
        return RowAnswer(
            rates,
            y,
            gap,
            iterations,
            point.passes,
            None if why is None else f"{why}; the relative gap reached is {gap:.1e}",
            tuple(self._kept),
        )

    def _decided(self, iterations: int) -> RowAnswer:
        """Return the answer where nothing is left to decide."""
        return solve_rows(self._program, self._tolerance, iterations=iterations)


def relative_gap(gap: RowGap, multipliers: Array) -> float:
    """Return the gap relative to |F| + Σ y|b|."""
    short = gap.at(multipliers)
    size = abs(gap.cost) + float(gap.admissible(multipliers) @ np.abs(gap.program.rows.limits))
    return 0.0 if short == 0.0 else short / size
