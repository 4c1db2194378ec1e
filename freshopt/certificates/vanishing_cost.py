"""Costs that all but vanish, beside the cost without refreshes.

What is below 1e-15 of that is nothing. Relative gaps mean nothing where the optimal cost is 0, and little
where it is e^{−300} of what it would be without refreshes: announced changes with bandwidth for all of them,
deadlines of days and hourly attempts. Rates of a cost that small are as good as the optimum, and where the
gap is as small, too, it is told as 0. Both are asked for: a gap alone may be small beside a cost that stays
large, of which few refreshes can save little, and hide all that they save.

Where a source without refreshes costs infinitely much, its cost at half the rates stands for it.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled.columns import spread
from freshopt.numerics.arrays import Array, chunks, exact_sum
from freshopt.separable.kernel import Kernel, Numerics

# Share of the cost without refreshes that is nothing: a few roundings of that cost. A gap has the rounding of
# slopes besides, which at a kink of sixty sources was 1.8e-15 beside a cost of 2e-18.
NOTHING_LEFT, NOTHING_PROVED = 1e-15, 1e-14
# Sources of a sample, and a share of its cost that is far more than nothing.
SAMPLE, FAR = 256, 1e-9
# A sample's cost may be so many times less than that of all.
LESS = 1e6


def vanishes(cost: float, gap_bound: float, whole: float) -> bool:
    """Return whether cost and gap are nothing beside those without refreshes."""
    return cost <= NOTHING_LEFT * whole and gap_bound <= NOTHING_PROVED * whole


def may_vanish(numerics: Numerics, rates: Array, cost: float, gap_bound: float) -> bool:
    """Return whether cost and gap vanish beside a sample's without refreshes."""
    if not 0.0 <= cost + gap_bound < math.inf:
        return False
    few = spread(len(rates), min(SAMPLE, len(rates)))
    whole = len(rates) / len(few) * cost_without_refreshes(numerics.take(few), rates[few])
    return vanishes(cost, gap_bound, LESS * whole)


def cost_without_refreshes(numerics: Numerics, rates: Array, cost: float = 0.0) -> float:
    """Return the cost without refreshes.

    Of sources where that is infinite it is the cost at half the rates. Where best responses are dear, a
    sample has to do if it tells that a cost is far from vanishing.
    """
    if isinstance(numerics, Kernel) and numerics.quick is not None and len(rates) > SAMPLE:
        few = spread(len(rates), SAMPLE)
        sampled = len(rates) / len(few) * cost_without_refreshes(numerics.take(few), rates[few])
        if cost > FAR * sampled:
            return sampled
    costs = []
    with np.errstate(all="ignore"):
        for part in chunks(len(rates)):
            piece = numerics.take(part)
            each = piece.cost(np.zeros(part.stop - part.start))
            endless = ~np.isfinite(each)
            if bool(np.any(endless)):
                each = np.where(endless, piece.cost(0.5 * rates[part]), each)
            costs.append(float(np.sum(each[np.isfinite(each)])))
    return exact_sum(costs)
