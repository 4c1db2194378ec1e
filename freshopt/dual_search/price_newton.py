"""Safeguarded Newton search for dual prices, for many independent groups at once.

On logarithms of price and demand the demand of local models is nearly straight, and its slope comes with it,
so two or three evaluations are enough from a price that is nearly right. Brackets, halved whenever two steps
did not, keep it safe at jumps, where the root is a step between two neighbouring floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.numerics.arrays import Array

Response: TypeAlias = Callable[[Array], tuple[Array, Array]]

# Logarithms of 1e±300: prices beyond are not representable.
LOWEST, HIGHEST = -690.0, 690.0
# Nats; the error of Newton's step is some 1e-8 then, well below a thousandth of it.
_NEAR = 1e-4
# Share of the last width at which both sides of a jump are tried: together they are within it.
_SIDE = 0.4
# Evaluations of the response; halving 1380 nats down to an ulp takes 63.
_LIMIT = 400


class PriceBracket(NamedTuple):
    """Log prices on both sides of each root.

    They are as near as the tolerance asked for.

    Demand exceeds the target at `low`, and not at `high`. Both are the same where the target is met to the
    tolerance; `low` is LOWEST where no price is low enough.
    """

    low: Array
    high: Array


def newton_prices(
    response: Response,
    targets: Array,
    start: Array,
    tolerance: float,
    width: float,
    jumps: Array | None = None,
) -> PriceBracket:
    """Return the least log prices at which demands meet targets.

    At these no demand exceeds its target.

    Parameters
    ----------
    response : callable
        For log prices, shape (G,): the demands, non-increasing, and their falls per nat, shape (G,) each.
    targets : ndarray, shape (G,)
        > 0.
    start : ndarray, shape (G,)
        Log prices to start from.
    tolerance : float
        Relative excess of demand that is none; with 0 a bracket is returned.
    width : float
        Width of a bracket, relative to the log price, that is narrow enough.
    jumps : ndarray, optional
        Log prices, rising, at which the demand of a single group may jump: a bracket is divided at the middle
        one of those in it.
    """
    x = np.clip(start, LOWEST, HIGHEST)
    low, high = np.full(len(x), LOWEST), np.full(len(x), HIGHEST)
    stride, spans = np.ones(len(x)), np.full((2, len(x)), np.inf)
    met = np.zeros(len(x), dtype=np.bool_)
    for _ in range(_LIMIT):
        used, falls = response(x)
        with np.errstate(all="ignore"):
            excess = np.log(used / targets)
            step = excess * used / falls
            # Almost there: a little farther than Newton's step, so that the root is enclosed.
            beyond = 1e-3 * step + np.copysign(0.3 * width * np.maximum(1.0, np.abs(x)), step)
            newton = x + step + np.where(np.abs(step) < _NEAR, beyond, 0.0)
        met |= (np.abs(excess) <= tolerance) & (tolerance > 0.0)
        above = excess > 0.0
        low, high = np.where(met, x, np.where(above, x, low)), np.where(met, x, np.where(above, high, x))
        done = met | (high - low <= width * np.maximum(1.0, np.abs(x)))
        if bool(np.all(done)):
            break
        inner = (newton > low) & (newton < high)
        bounded = (low > LOWEST) & (high < HIGHEST)
        slow = bounded & (high - low > 0.5 * spans[0])
        spans = np.stack([spans[1], high - low])
        outward = np.clip(np.where(above, x + stride, x - stride), LOWEST, HIGHEST)
        stride = np.where(inner | bounded, stride, 2.0 * stride)
        middle = 0.5 * (low + high)
        if jumps is not None and len(jumps):
            middle = np.array([_beside_jump(jumps, float(low[0]), float(high[0]), width)])
        safe = np.where(bounded, middle, outward)
        x = np.where(done, x, np.where(inner & ~slow, newton, safe))
    return PriceBracket(low, high)


def _beside_jump(jumps: Array, low: float, high: float, width: float) -> float:
    """Return a log price beside a bracket's middle jump, or its middle."""
    inside = jumps[np.searchsorted(jumps, low, "right") : np.searchsorted(jumps, high, "left")]
    if not len(inside):
        return 0.5 * (low + high)
    jump = float(inside[len(inside) // 2])
    near = _SIDE * width * max(1.0, abs(jump))
    beside = jump + near if jump + near < high else jump - near
    return beside if low < beside < high else 0.5 * (low + high)
