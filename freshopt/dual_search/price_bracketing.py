"""Bracketed root finding for the dual prices of many groups.

A price is the dual variable of a group's limit, at which its demand meets the limit. The groups are
independent, and searched at once. Demand falls as the price rises. On logarithms of price and demand it is
nearly straight for every objective here (exactly, for power laws), so a bracketing method with inverse
quadratic interpolation (Chandrupatla, Advances in Engineering Software 28, 1997) needs about eight
evaluations; bisection steps keep it safe at jumps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import ROUNDED, Array, Index, total
from freshopt.numerics.bracketed_roots import next_fraction
from freshopt.separable.kernel import Numerics

Demand: TypeAlias = Callable[[Array], Array]

# Where demand at a price is a limit and rounding, it is below the limit at this multiple of the price.
BEYOND = 1.0 + 8.0 * ROUNDED
# Relative width of the final price bracket; the duality gap it can leave is at most this, relatively.
WIDTH = 1e-13
# Evaluations at most; bisection of 690 nats to 1e-13 takes 63.
_LIMIT = 300
# Log of 1e300: prices beyond are not representable.
_LOG_RANGE = 690.0
# The first step from a guess, in nats, and the least share of the largest that a step is.
_FIRST_STEP, _LEAST_SHARE = 0.5, 1.0 / 32.0


class Brackets(NamedTuple):
    """Brackets of each group's dual price, demand(low) ≥ target ≥ demand(high)."""

    low: Array
    high: Array
    evaluations: int


def search_prices(demand: Demand, targets: Array, guesses: Array, width: float = WIDTH) -> Brackets:
    """Bracket the dual price of each group to a relative width.

    - `demand`: Demands, shape (G,), at prices, shape (G,); non-increasing in each price.
    - `targets` (G,): What each demand shall be, > 0, and attained between the smallest and largest float.
    - `guesses` (G,): Prices > 0 to start from.
    - `width`: Relative width of the final brackets.
    """
    evaluations = 0

    def excess(x: Array) -> Array:
        nonlocal evaluations
        evaluations += 1
        with np.errstate(divide="ignore"):
            return np.clip(np.log(demand(np.exp(x)) / targets), -_LOG_RANGE, _LOG_RANGE)

    low, above, high, below = _straddle(excess, np.log(guesses))
    # Chandrupatla's names: b is the newest point, a the opposite end, c the one before.
    b, fb, a, fa = low, above, high, below
    c, fc = a, fa
    t = np.full(len(targets), 0.5)
    hit = np.where(above == 0.0, low, np.where(below == 0.0, high, np.nan))
    while evaluations < _LIMIT:
        tolerance = 0.5 * width + 1e-16 * np.abs(a)
        done = (np.abs(b - a) <= 2.0 * tolerance) | ~np.isnan(hit)
        if bool(np.all(done)):
            break
        x = np.where(done, a, a + t * (b - a))
        fx = np.where(done, fa, excess(x))
        hit = np.where(~done & (fx == 0.0), x, hit)
        same = done | (np.sign(fx) == np.sign(fa))
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        a, fa = x, fx
        t = next_fraction(a, b, c, fa, fb, fc, tolerance)
    rising = fa > 0.0
    low = np.where(np.isnan(hit), np.where(rising, a, b), hit)
    high = np.where(np.isnan(hit), np.where(rising, b, a), hit)
    return Brackets(np.exp(low), np.exp(high), evaluations)


def edge_prices(problem: Problem, numerics: Numerics, members: Index = slice(None)) -> Array:
    """Return the marginal value at min_rate per unit of bandwidth."""
    least = problem.lower[members]
    slope = numerics.take(members).marginal(least) / problem.sources.refresh_cost[members]
    free = (problem.upper[members] > least) & np.isfinite(slope)
    return np.where(free, np.maximum(slope, 0.0), 0.0)


def trimmed(problem: Problem, rates: Array) -> Array:
    """Return feasible rates, given some that exceed limits by rounding.

    They keep to bandwidth and host limits to a few ulp.
    What is too much is taken from sources between their bounds; from all, where there are none.
    """
    cost, lower, upper, hosts = problem.sources.refresh_cost, problem.lower, problem.upper, problem.hosts
    inside = (rates > lower) & (rates < upper)
    if len(hosts):
        used = hosts.totals(cost * rates)
        over = np.where(used > hosts.limits * (1.0 + FEW_ULP), used - hosts.limits, 0.0)
        if bool(np.any(over > 0.0)):
            few = hosts.totals(cost * np.where(inside, rates - lower, 0.0)) <= over
            spare = np.where(
                inside | (hosts.broadcast_to_sources(few.astype(float)) > 0.0), rates - lower, 0.0
            )
            share = over / np.where(over > 0.0, hosts.totals(cost * spare), 1.0)
            rates = rates - hosts.broadcast_to_sources(share) * spare
        # What a host's limit decides is left alone below, if others are between their bounds.
        inside &= hosts.broadcast_to_sources((used < hosts.limits * (1.0 - FEW_ULP)).astype(float), 1.0) > 0.0
    excess = total(cost * rates) - problem.bandwidth
    if excess <= FEW_ULP * problem.bandwidth:
        return rates
    spare = np.where(inside, rates - lower, 0.0)
    if total(cost * spare) <= excess:
        spare = rates - lower
    room = total(cost * spare)
    return rates - spare * (excess / room) if room > 0.0 else rates


def _straddle(excess: Callable[[Array], Array], x: Array) -> tuple[Array, Array, Array, Array]:
    """Return brackets of each group's root around x, in growing steps.

    A step is twice what the last one's slope asks for, between the largest so far and `_LEAST_SHARE` of it:
    far prices may be dear to evaluate.
    """
    low, high = x, x
    above = below = excess(x)
    most, step = _FIRST_STEP, np.full(len(x), _FIRST_STEP)
    while True:
        need_high, need_low = below > 0.0, above < 0.0
        if not bool(np.any((need_high & (high < _LOG_RANGE)) | (need_low & (low > -_LOG_RANGE)))):
            return low, above, high, below
        trial = np.where(need_high, np.minimum(high + step, _LOG_RANGE), np.maximum(low - step, -_LOG_RANGE))
        value = excess(trial)
        most = min(4.0 * most, 2.0 * _LOG_RANGE)
        # What is left of the excess, over what this step took of it.
        rest, taken = np.abs(value), np.abs(np.where(need_high, below, above) - value)
        asked = np.divide(rest, taken, out=np.full(len(x), np.inf), where=taken > 0.0)
        step = np.clip(2.0 * step * asked, _LEAST_SHARE * most, most)
        # What was the outer end on the other side becomes the inner one.
        low, above = (
            np.where(need_low, trial, np.where(need_high, high, low)),
            np.where(need_low, value, np.where(need_high, below, above)),
        )
        high, below = np.where(need_high, trial, high), np.where(need_high, value, below)
