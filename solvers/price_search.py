"""Find the prices at which demands meet their limits, for many independent groups at once.

Demand falls as the price rises. On logarithms of price and demand it is nearly straight for every objective
here (exactly, for power laws), so a bracketing method with inverse quadratic interpolation (Chandrupatla,
Advances in Engineering Software 28, 1997) needs about eight evaluations; bisection steps keep it safe at
jumps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.arrays import Array

Demand: TypeAlias = Callable[[Array], Array]

WIDTH = 1e-13  # relative width of the final price bracket; the gap it can leave is at most this, relatively
_LIMIT = 300  # evaluations; bisection of 690 nats to 1e-13 takes 63
_LOG_RANGE = 690.0  # log of 1e300: prices beyond are not representable


class Brackets(NamedTuple):
    """Prices around each group's root: demand(low) ≥ target ≥ demand(high)."""

    low: Array
    high: Array
    evaluations: int


def search_prices(demand: Demand, targets: Array, guesses: Array, width: float = WIDTH) -> Brackets:
    """Bracket the price of each group to a relative width.

    Parameters
    ----------
    demand : callable
        Demands, shape (G,), at prices, shape (G,); non-increasing in each price.
    targets : ndarray, shape (G,)
        What each demand shall be, > 0, and attained between the smallest and largest float.
    guesses : ndarray, shape (G,)
        Prices > 0 to start from.
    width : float
        Relative width of the final brackets.
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
        t = _next_fraction(a, b, c, fa, fb, fc, tolerance)
    rising = fa > 0.0
    low = np.where(np.isnan(hit), np.where(rising, a, b), hit)
    high = np.where(np.isnan(hit), np.where(rising, b, a), hit)
    return Brackets(np.exp(low), np.exp(high), evaluations)


def _straddle(excess: Callable[[Array], Array], x: Array) -> tuple[Array, Array, Array, Array]:
    """Move outwards from x by growing steps until each group's root is between two points."""
    low, high = x, x
    above = below = excess(x)
    step = 0.5
    while True:
        need_high, need_low = below > 0.0, above < 0.0
        if not bool(np.any(need_high | need_low)) or step > 2.0 * _LOG_RANGE:
            return low, above, high, below
        trial = np.where(need_high, np.minimum(high + step, _LOG_RANGE), np.maximum(low - step, -_LOG_RANGE))
        value = excess(trial)
        # What was the outer end on the other side becomes the inner one.
        low, above = (
            np.where(need_low, trial, np.where(need_high, high, low)),
            np.where(need_low, value, np.where(need_high, below, above)),
        )
        high, below = np.where(need_high, trial, high), np.where(need_high, value, below)
        step *= 4.0


def _next_fraction(a: Array, b: Array, c: Array, fa: Array, fb: Array, fc: Array, tolerance: Array) -> Array:
    """Return where to evaluate next, as a fraction of a to b: inverse quadratic if safe, else half."""
    with np.errstate(all="ignore"):
        xi = (a - b) / (c - b)
        phi = (fa - fb) / (fc - fb)
        safe = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
        quadratic = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        t = np.where(safe & np.isfinite(quadratic), quadratic, 0.5)
        least = np.minimum(0.5, tolerance / np.abs(b - a))
    return np.clip(t, least, 1.0 - least)
