"""Costs that can vanish: where the optimum is 0, relative gaps mean nothing and the absolute gap counts.

That is so where every source has a rate, within its bounds, beyond which nothing is lost, and these rates
together meet the limits: announced changes with bandwidth for all of them, deadlines that can all be kept. A
cost that only becomes small, as e^{−ρ/Δ} does, is no such case: its optimum is positive, and rates that are a
million times worse are wrong however little they cost.

One inverse marginal per source, and only for rates whose cost is next to nothing.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.arrays import Array, chunks, total
from freshopt.derived import DerivedNumerics
from freshopt.gap import Gap
from freshopt.kernel import Numerics
from freshopt.model import FEW_ULP, Problem

VANISHING = 1e-12  # absolute gap, in units of Σ importance, that counts as none where the optimal cost is 0


def vanishes(gap: Gap, short: float) -> bool:
    """Tell whether the optimal cost is 0, and a gap next to nothing.

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
    problem, used = gap.problem, gap.problem.sources.cost * rates
    within = bool(np.all(problem.hosts.totals(used) <= problem.hosts.limits * (1.0 + FEW_ULP)))
    return within and bool(total(used) <= problem.bandwidth * (1.0 + FEW_ULP))


def typical_cost(gap: Gap) -> float:
    """Return what counts as large: Σ importance, or for a user's objective its cost at half the rates."""
    if not isinstance(gap.numerics, DerivedNumerics):
        return total(gap.problem.sources.column("importance"))
    cost = total(np.abs(gap.numerics.cost(0.5 * gap.rates)))
    return cost if math.isfinite(cost) else 0.0


def free_rates(problem: Problem, numerics: Numerics) -> Array | None:
    """Return the least rates at which no source costs anything, or None if there are no such rates.

    A cost counts as 0 where the last few bits of the rate explain it.
    """
    rates = np.empty(len(problem.sources))
    with np.errstate(all="ignore"):
        for part in chunks(len(rates)):
            piece = numerics.take(part)
            wish = piece.inverse_marginal(np.zeros(part.stop - part.start))
            rates[part] = np.clip(wish, problem.lower[part], problem.upper[part])
            left, worth = piece.cost(rates[part]), np.abs(piece.marginal(rates[part]))
            if not bool(np.all(np.isfinite(rates[part]) & (left <= FEW_ULP * worth * rates[part]))):
                return None
    return rates
