"""`RowGap`: the duality-gap bound of a program at any multipliers.

For feasible rates ρ and any multipliers y ≥ 0, with φ_k = f_k + Σ_j y_j g_jk and its best response ρ̂_k,

    F(ρ) − F*  ≤  Σ_k (φ_k(ρ_k) − φ_k(ρ̂_k))  +  Σ_j y_j (b_j − G_j(ρ)),

every term ≥ 0: the right-hand side is F(ρ) − d(y). The sources' terms are bounded twice, by tangents and by
costs (`freshopt.certificates.best_response`). Any subgradient will do at a kink, and any ρ̂ beyond the
minimiser, so neither a kink nor rounding of a best response can spoil the proof.

What rows use is rounded, and what is left of a limit with it: for every row, y_j(b_j − G_j) counts a few
half-ulps of what G_j adds up, so that the bound holds for the rates as they are stored. The sources' parts
are squares of errors, and need none.

Of a minimax program, min t subject to G_j ≤ b_j + level_j·t, the multipliers are divided by Σ level_j y_j, as
the dual asks, and b_j + level_j·t stands for b_j.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.certificates.best_response import limit_terms, source_terms
from freshopt.numerics.arrays import LARGEST, Array, IntArray, chunks, exact_sum, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.program import Program
from freshopt.separable.tangents import Contradiction, contradiction
from freshopt.separable.usage_costs import UsageCosts


@frozen_value()
class RowGap:
    """Duality-gap bound for one feasible vector of rates.

    - `rates` (n,)
    - `cost`: F(ρ), or the least t of a minimax program at these rates.
    - `used` (m,): G_j(ρ).
    - `limits` (m,): b_j, at the least t of a minimax program.
    - `added` (m,): Σ_k |g_jk(ρ_k)|, what G_j is rounded relative to.
    - `ends`: Rows of sums that have a cost and no end, their coefficients there, and the costs' last slopes.
    """

    program: Program
    rates: Array
    cost: float
    used: Array
    limits: Array
    added: Array
    ends: tuple[IntArray, Array, Array]

    @classmethod
    def of(cls, program: Program, rates: Array) -> RowGap:
        """Evaluate cost and rows at feasible rates."""
        with np.errstate(all="ignore"):
            used, added = program.rows.sums(rates)
            cost, limits = total(program.cost(rates)), program.rows.limits
            if program.level is not None:
                cost = least_level(program, used)
                limits = limits + program.level * cost
            return cls(program, rates, cost, used, limits, added, _ends(program))

    @property
    def slack(self) -> Array:
        """Primal slacks b_j − G_j(ρ), shape (m,); 0 where rounding leaves less."""
        return np.maximum(0.0, self.limits - self.used)

    def admissible(self, multipliers: Array) -> Array:
        """Return multipliers at which the dual is finite.

        Those of a minimax program have Σ level·y = 1. No sum's price is above the last slope of its
        cost: what exceeds that, by rounding or else, would prove nothing.
        """
        if self.program.level is not None:
            return multipliers / float(np.dot(self.program.level, multipliers))
        if not len(self.ends[0]):
            return multipliers
        (row, coefficient, last), found = self.ends, multipliers.copy()
        end = -last / coefficient
        own = found[row]
        found[row] = np.where(coefficient < 0.0, np.minimum(own, end), np.maximum(own, end))
        return found

    def at(self, multipliers: Array) -> float:
        """Return the duality-gap bound at multipliers y ≥ 0, shape (m,)."""
        with np.errstate(all="ignore"):
            y = self.admissible(multipliers)
            gap_bound = exact_sum([total(self.row_terms(y)), total(self.source_terms(y))])
        return math.inf if math.isnan(gap_bound) else gap_bound

    def contradiction(self) -> Contradiction | None:
        """Return a variable whose cost, or curve, lies below its tangent."""
        program, rows = self.program, self.program.rows
        every = np.arange(len(self.rates))
        functions = [] if program.numerics is None else [(program.numerics, every)]
        for kind, curve in enumerate(rows.curves, start=1):
            functions.append((curve, np.unique(rows.source[(rows.kind == kind) & (rows.coefficient != 0.0)])))
        for numerics, chosen in functions:
            for block in chunks(len(chosen)):
                own = chosen[block]
                piece, rates = numerics.take(own), self.rates[own]
                with np.errstate(all="ignore"):
                    at = rates, piece.cost(rates), piece.marginal(rates)
                    found = contradiction(
                        piece, *at, program.lower[own], program.upper[own], program.typical[own]
                    )
                if found is not None:
                    return found._replace(source=int(own[found.source]))
        return None

    def row_terms(self, multipliers: Array) -> Array:
        """Return the rows' parts y_j (b_j − G_j), rounding included, shape (m,)."""
        return limit_terms(multipliers, self.slack, np.maximum(np.abs(self.limits), self.added))

    def source_terms(self, multipliers: Array) -> Array:
        """Return the sources' parts φ(ρ) − φ(ρ̂), shape (n,)."""
        terms, whole = np.empty(len(self.rates)), Lagrangian.at(self.program, multipliers)
        for part in chunks(len(terms)):
            own, rates = whole.take(part), self.rates[part]
            paid, bounds = own.price, (own.program.lower, own.program.upper)
            with np.errstate(all="ignore"):
                slope, size = own.marginal(rates), np.abs(paid) + own.marginal_size(rates)
                terms[part] = source_terms(own, rates, slope, paid, size, *bounds, own.program.typical)
        return terms


def _ends(program: Program) -> tuple[IntArray, Array, Array]:
    """Return rows of sums without end, coefficients and last slopes."""
    rows, numerics = program.rows, program.numerics
    if not isinstance(numerics, UsageCosts):
        return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)
    alone = np.bincount(rows.source, minlength=len(program)) == 1
    endless = numerics.usage & alone & np.isinf(program.upper)
    at = np.flatnonzero(endless[rows.source])
    slopes = numerics.usages.marginal(np.full(int(np.count_nonzero(numerics.usage)), LARGEST))
    return rows.row[at].astype(np.int64), rows.coefficient[at], -slopes[numerics.place_[rows.source[at]]]


def least_level(program: Program, used: Array) -> float:
    """Return the least t at which every row that t relaxes holds."""
    level = np.zeros(len(used)) if program.level is None else program.level
    fair = level > 0.0
    excess = (used - program.rows.limits)[fair] / level[fair]
    return float(np.max(excess)) if len(excess) else 0.0
