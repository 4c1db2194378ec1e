"""`at_segment_ends`: optimal rates at the ends of linear segments.

On a segment of a hull the cost of a rate is a mixture of the ends' costs, which no single rate attains.
Sources inside segments whose slope is the price may be moved along them at no cost, as long as they use the
same bandwidth together: all but one for each price are moved to an end.
"""

from __future__ import annotations

import numpy as np

from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.separable.hull_numerics import ROUNDING, HullNumerics, filled_in_turn
from freshopt.separable.kernel import MixedNumerics, Numerics

# Slopes this near to the price are the price, but for the width of its bracket and rounding.
BESIDE = 1e-11


def hull_of(numerics: Numerics | None) -> HullNumerics | None:
    """Return the hull among the numerics of a problem, or None."""
    silent = numerics.silent_sources if isinstance(numerics, MixedNumerics) else numerics
    return silent if isinstance(silent, HullNumerics) else None


def at_segment_ends(
    problem: Problem, numerics: Numerics, rates: Array, price: float, host_prices: Array
) -> tuple[Array, float, Array]:
    """Move rates to the ends of their segments, at the same value.

    They use the same bandwidth. With them come the prices, rounded down to the slopes of segments that are
    used up.

    - `numerics`: Those of the problem.
    - `rates` (n,): Best responses to prices, and mixtures of them.
    - `host_prices` (H,): What hosts' sources pay on top of the price; a limit that binds is used up by its
      own sources.
    """
    hull = hull_of(numerics)
    if hull is None:
        return rates, price, host_prices
    hosts, cost = problem.hosts, problem.sources.refresh_cost
    limit = np.full(len(rates), len(hosts), dtype=np.int64)
    if len(hosts):
        binding = np.append(host_prices > 0.0, False)
        limit = np.where(binding[hosts.codes], hosts.codes, len(hosts))
    silent = ~np.broadcast_to(problem.sources.signalled, rates.shape)
    moved = np.array(rates)
    for own, at in zip(hull.rate, hull.left, strict=True):
        moved[silent & (at <= own) & (np.abs(rates - own) <= ROUNDING * own)] = own
    low, high = hull.segment(moved)
    inside = np.flatnonzero(silent & (low < high))
    # Ends from a table are off by a little: just beyond them are responses to prices that are no slope.
    paid = np.append(price + host_prices, price)
    slope = numerics.take(inside).marginal(moved[inside]) / cost[inside]
    inside = inside[np.abs(slope - paid[limit[inside]]) <= BESIDE * slope]
    moved[inside] = filled_in_turn(cost[inside], low[inside], high[inside], moved[inside], limit[inside])
    movable = (moved > problem.lower) & (moved < problem.upper) & ~(silent & hull.corner(moved))
    between = np.zeros(len(rates), dtype=np.bool_)
    between[inside] = (moved[inside] > low[inside]) & (moved[inside] < high[inside])
    # What moved but for rounding is made up for by the source inside, and where there is none by the others.
    groups = len(hosts) + 1
    alone = np.bincount(limit[between], minlength=groups) > 0
    share = np.where(movable & (between | ~alone[limit]), cost * moved, 0.0)
    missing = np.bincount(limit, weights=cost * (rates - moved), minlength=groups)
    spare = np.bincount(limit, weights=share, minlength=groups)
    factor = np.where(spare > 0.0, missing / np.where(spare > 0.0, spare, 1.0), 0.0)
    grown = moved + np.where(share > 0.0, moved * factor[limit], 0.0)
    moved = np.where(share > 0.0, np.clip(grown, problem.lower, problem.upper), moved)
    for own, steepest in zip(hull.rate, hull.most_price, strict=True):
        # At a point that a mixture reached, the slope before it may be below the price by rounding.
        at = np.flatnonzero(silent & (moved == own))
        slope, group = steepest[at] / cost[at], limit[at]
        near = np.abs(slope - paid[group]) <= BESIDE * slope
        np.minimum.at(paid, group[near], slope[near])
    least = float(np.min(paid))
    return moved, least, np.where(host_prices > 0.0, paid[:-1] - least, 0.0)
