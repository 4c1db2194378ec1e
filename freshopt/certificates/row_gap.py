"""`RowGap`: the duality-gap bound of a program at any multipliers.

For feasible rates ρ and any multipliers y ≥ 0, with φ_k = f_k + Σ_j y_j g_jk and its best response ρ̂_k,

    F(ρ) − F*  ≤  Σ_k |φ_k'(ρ_k)|·|ρ_k − ρ̂_k|  +  Σ_j y_j (b_j − G_j(ρ)),

every term ≥ 0: F(ρ) − d(y) is Σ (φ(ρ) − φ(ρ̂)) plus the rows' part, and φ is convex. Any subgradient will do
at a kink, and any ρ̂ beyond the minimiser, so neither a kink nor rounding of a best response can spoil the
proof.

Of a minimax program, min t subject to G_j ≤ b_j + level_j·t, the multipliers are divided by Σ level_j y_j, as
the dual asks, and b_j + level_j·t stands for b_j.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from freshopt.certificates.best_response import crossing_steps, gap_terms, nearby_steps
from freshopt.numerics.arrays import Array, chunks, exact_sum, total
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.program import Program


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False)
class RowGap:
    """Duality-gap bound for one feasible vector of rates.

    Attributes
    ----------
    program : Program
    rates : ndarray, shape (n,)
    cost : float
        F(ρ), or the least t of a minimax program at these rates.
    used : ndarray, shape (m,)
        G_j(ρ).
    limits : ndarray, shape (m,)
        b_j, at the least t of a minimax program.
    """

    program: Program
    rates: Array
    cost: float
    used: Array
    limits: Array

    @classmethod
    def of(cls, program: Program, rates: Array) -> RowGap:
        """Evaluate cost and rows at feasible rates."""
        with np.errstate(all="ignore"):
            used = program.rows.used(rates)
            cost, limits = total(program.cost(rates)), program.rows.limits
            if program.level is not None:
                cost = least_level(program, used)
                limits = limits + program.level * cost
        return cls(program, rates, cost, used, limits)

    @property
    def slack(self) -> Array:
        """Primal slacks b_j − G_j(ρ), shape (m,); 0 where rounding leaves less."""
        return np.maximum(0.0, self.limits - self.used)

    def admissible(self, multipliers: Array) -> Array:
        """Return multipliers of the dual's scale.

        Those of a minimax program have Σ level·y = 1.
        """
        if self.program.level is None:
            return multipliers
        return multipliers / float(np.dot(self.program.level, multipliers))

    def at(self, multipliers: Array) -> float:
        """Return the duality-gap bound at multipliers y ≥ 0, shape (m,)."""
        with np.errstate(all="ignore"):
            y = self.admissible(multipliers)
            short = exact_sum([total(self.row_terms(y)), total(self.source_terms(y))])
        return math.inf if math.isnan(short) else short

    def row_terms(self, multipliers: Array) -> Array:
        """Return the rows' parts y_j (b_j − G_j), shape (m,)."""
        return np.where(multipliers > 0.0, multipliers * self.slack, 0.0)

    def source_terms(self, multipliers: Array) -> Array:
        """Return the sources' parts |φ'(ρ)|·|ρ − ρ̂|, shape (n,)."""
        terms, whole = np.empty(len(self.rates)), Lagrangian.at(self.program, multipliers)
        for part in chunks(len(terms)):
            terms[part] = _source_terms(whole.take(part), self.rates[part])
        return terms


def least_level(program: Program, used: Array) -> float:
    """Return the least t at which every row that t relaxes holds."""
    level = np.zeros(len(used)) if program.level is None else program.level
    fair = level > 0.0
    excess = (used - program.rows.limits)[fair] / level[fair]
    return float(np.max(excess)) if len(excess) else 0.0


def _source_terms(own: Lagrangian, rates: Array) -> Array:
    """Return the gaps of a chunk, best responses moved past rounding."""
    program, paid = own.program, own.price
    lower, upper = program.lower, program.upper
    with np.errstate(all="ignore"):
        excess = own.marginal(rates) - paid
        size = np.abs(paid) + own.marginal_size(rates)
        step, short = nearby_steps(own, rates, paid, size, excess, lower, upper)
        if len(short):
            rising = excess[short] > 0.0
            room = np.abs(np.where(rising, upper[short], lower[short]) - rates[short])
            far = (rates[short], paid[short], rising, room, program.typical[short])
            step[short] = crossing_steps(own.take(short), *far)
        return gap_terms(step, np.abs(excess))
