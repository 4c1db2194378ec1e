"""Problems with optimal value zero: the absolute gap is tested instead.

Relative gaps mean nothing there. The optimum is 0 where every source has a rate, within its bounds, beyond
which nothing is lost, and these rates together are feasible: announced changes with bandwidth for all of
them, deadlines that can all be kept. A cost that only becomes small, as e^{−ρ/Δ} does, is no such case: its
optimum is positive, and rates that are a million times worse are wrong however little they cost.

One inverse marginal per source, and only for rates whose cost is negligible.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.certificates.duality_gap import Gap
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import Array, chunks, total
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import Numerics

# Where the optimal cost is 0, an absolute gap up to this share of Σ importance counts as none.
VANISHING = 1e-12


def has_zero_optimum(gap: Gap, short: float) -> bool:
    """Return whether the optimal cost is 0 and the gap negligible.

    Parameters
    ----------
    gap : Gap
        Of the rates in question.
    short : float
        Its value at some prices, finite.
    """
    if not gap.cost >= 0.0 >= gap.cost - short or short > VANISHING * typical_cost(gap):
        return False
    if short == 0.0:
        return True
    rates = free_rates(gap.problem, gap.numerics)
    if rates is None:
        return False
    problem, used = gap.problem, gap.problem.sources.refresh_cost * rates
    within = bool(np.all(problem.hosts.totals(used) <= problem.hosts.limits * (1.0 + FEW_ULP)))
    return within and bool(total(used) <= problem.bandwidth * (1.0 + FEW_ULP))


def typical_cost(gap: Gap) -> float:
    """Return the scale of costs: Σ importance.

    For a user's objective it is the cost at half the rates.
    """
    if not isinstance(gap.numerics, DerivedNumerics):
        return total(gap.problem.sources.column("importance"))
    cost = total(np.abs(gap.numerics.cost(0.5 * gap.rates)))
    return cost if math.isfinite(cost) else 0.0


def free_rates(problem: Problem, numerics: Numerics) -> Array | None:
    """Return the least rates of zero cost, or None.

    None means that some source costs something at every rate. A cost counts as 0 where the last few bits of
    the rate explain it.
    """
    rates = np.empty(len(problem.sources))
    with np.errstate(all="ignore"):
        for part in chunks(len(rates)):
            piece = numerics.take(part)
            response = piece.inverse_marginal(np.zeros(part.stop - part.start))
            rates[part] = np.clip(response, problem.lower[part], problem.upper[part])
            left, marginal = piece.cost(rates[part]), np.abs(piece.marginal(rates[part]))
            if not bool(np.all(np.isfinite(rates[part]) & (left <= FEW_ULP * marginal * rates[part]))):
                return None
    return rates
