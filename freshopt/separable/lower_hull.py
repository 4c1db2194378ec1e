"""`lower_hull`: corners and tangents of the hull of a curve and points.

A point of rate r and cost y is the best response to the price ν where its Lagrangian y + νr is below those of
the curve, min J(ρ) + νρ, and of the other points. The former is concave in ν and the latter are lines, so
that each point has one interval of prices, between the roots of two convex functions and the crossings with
other lines: no ordering and no cases. Newton's method for such a root is geometric: the slope of the chord
from the point to the curve, then the rate at which the curve has this slope. It is monotone from the second
step on and converges quadratically.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, chunks
from freshopt.separable.hull_numerics import HullNumerics
from freshopt.separable.kernel import Numerics

# A point that lies below the curve by no more than this share of the cost is left out: slopes are known to
# rounding over the root of the share. So is one that is optimal over so small a share of prices.
WORTHWHILE = 1e-9
# Tangents take 4 to 7 steps from the parabola's; then steps are rounding.
_STEPS, _CLOSE = 60, 1e-13
# The slope to the left of a point at the lower bound: no price is above it.
_MOST = float(np.finfo(np.float64).max)


class _Corners(NamedTuple):
    """Prices and segments of K points, each of shape (K, n)."""

    least_price: Array
    most_price: Array
    left: Array
    right: Array


def lower_hull(curve: Numerics, rate: Array, saving: Array, lower: Array, upper: Array) -> Numerics:
    """Return the numerics of the lower convex hull of a curve and points.

    Parameters
    ----------
    curve : Numerics
        A convex, non-increasing cost J of n sources.
    rate : ndarray, shape (K,)
        Rates > 0 of the points, increasing.
    saving : ndarray, shape (K, n)
        By how much the points' costs are below J at their rates, in the same weighted unit.
    lower, upper : ndarray, shape (n,)
        Bounds, between which the hull is taken; points outside do not count.

    Returns
    -------
    Numerics
        The curve itself if no point lies below it.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.modelling.objective_numerics import numerics_of
    >>> delay = fo.problems.AccumulatedDelay(refresh=fo.Refresh.PERIODIC)
    >>> curve, _ = numerics_of(delay, fo.Sources([2.0]))
    >>> hull = lower_hull(curve, np.array([1.0]), np.array([[0.25]]), np.zeros(1), np.full(1, np.inf))
    >>> hull.cost(np.array([1.0])), hull.left.round(6), hull.right.round(6)
    (array([0.75]), array([[0.666667]]), array([[2.]]))
    """
    n = saving.shape[1]
    costs = np.empty((len(rate), n))
    gains: Array | None = np.empty((len(rate), n))
    found = _Corners(*(np.empty((len(rate), n)) for _ in range(4)))
    for part in chunks(n):
        piece = curve.take(part)
        size = part.stop - part.start
        for k, own in enumerate(rate):
            at = np.full(size, own)
            costs[k, part] = piece.cost(at)
            gain = piece.gain(at)
            if gain is None:
                gains = None
            elif gains is not None:
                gains[k, part] = gain + saving[k, part]
        worthwhile = saving[:, part] > WORTHWHILE * costs[:, part]
        worthwhile &= (lower[part] <= rate[:, None]) & (rate[:, None] <= upper[part])
        costs[:, part] -= np.where(worthwhile, saving[:, part], 0.0)
        own = (piece, rate, costs[:, part], saving[:, part], worthwhile, lower[part], upper[part])
        for whole, some in zip(found, _corners(*own), strict=True):
            whole[:, part] = some
    if not bool(np.any(np.isfinite(found.left))):
        return curve
    return HullNumerics(curve, rate, costs, *found, gains)


def _corners(
    curve: Numerics,
    rate: Array,
    costs: Array,
    saving: Array,
    worthwhile: BoolArray,
    lower: Array,
    upper: Array,
) -> _Corners:
    """Return prices and segments of the points that are corners of the hull."""
    kept = worthwhile & _ordered(_between(rate, costs, worthwhile))
    touch = _Corners(*(np.full(costs.shape, np.nan) for _ in range(4)))
    for k, own in enumerate(rate):
        some = np.flatnonzero(kept[k])
        if not len(some):
            continue
        piece, y, low, high = curve.take(some), costs[k, some], lower[some], upper[some]
        at = np.full(len(some), own)
        with np.errstate(all="ignore"):
            # Half the width of what a parabola has below a chord, as a share of the rate.
            share = np.sqrt(2.0 * saving[k, some] / piece.curvature(at)) / own
        share = np.where(np.isfinite(share), share, 1.0)
        before, after = np.maximum(own / (1.0 + share), low), np.minimum(own * (1.0 + share), high)
        most, left = _tangent(piece, own, y, before, low, at)
        least, right = _tangent(piece, own, y, after, at, high)
        touch.most_price[k, some] = np.where(low < own, most, _MOST)
        touch.least_price[k, some] = np.where(high > own, least, 0.0)
        touch.left[k, some], touch.right[k, some] = left, right
    kept &= _ordered(_tightened(_between(rate, costs, kept), touch))
    between = _between(rate, costs, kept)
    prices = _tightened(between, touch)
    left = np.where(prices.most_price < touch.most_price, between.left, touch.left)
    right = np.where(prices.least_price > touch.least_price, between.right, touch.right)
    out = ~kept
    for entries, none in ((prices.least_price, np.inf), (prices.most_price, -np.inf), (left, np.inf)):
        entries[out] = none
    right[out] = -np.inf
    return _Corners(prices.least_price, prices.most_price, left, right)


def _ordered(found: _Corners) -> BoolArray:
    """Return which points have an interval of prices."""
    wide: BoolArray = found.least_price < found.most_price * (1.0 - WORTHWHILE)
    return wide


def _tightened(one: _Corners, other: _Corners) -> _Corners:
    """Return the prices that both allow; where one is not a number, the other's."""
    return _Corners(
        np.fmax(one.least_price, other.least_price),
        np.fmin(one.most_price, other.most_price),
        one.left,
        one.right,
    )


def _between(rate: Array, costs: Array, kept: BoolArray) -> _Corners:
    """Return the prices at which a point is the best of the points.

    The segments are those to the neighbours among them.
    """
    found = _Corners(
        np.zeros(costs.shape), np.full(costs.shape, _MOST), np.full(costs.shape, np.nan), np.full(costs.shape, np.nan)
    )
    for low in range(len(rate)):
        for high in range(low + 1, len(rate)):
            both = kept[low] & kept[high]
            slope = np.where(both, (costs[low] - costs[high]) / (rate[high] - rate[low]), np.nan)
            above, below = slope > found.least_price[low], slope < found.most_price[high]
            np.copyto(found.least_price[low], slope, where=above)
            np.copyto(found.most_price[high], slope, where=below)
            found.right[low, above], found.left[high, below] = rate[high], rate[low]
    return found


def _tangent(
    curve: Numerics, own: float, cost: Array, start: Array, lower: Array, upper: Array
) -> tuple[Array, Array]:
    """Return slope and end of the segment from a point that touches the curve.

    It lies on the side of the start, between the bounds; at a bound it ends there.
    """
    slope, end = np.zeros(start.shape), np.array(start)
    short = np.flatnonzero(start != own)
    for _ in range(_STEPS):
        if not len(short):
            break
        piece, rate = curve.take(short), end[short]
        with np.errstate(all="ignore"):
            chord = (piece.cost(rate) - cost[short]) / (own - rate)
            # A start too near to the point on its right may cost more than it: then farther away.
            step = np.where(chord > 0.0, piece.inverse_marginal(np.maximum(chord, 0.0)), 2.0 * rate)
        further = np.clip(step, lower[short], upper[short])
        slope[short], end[short] = np.maximum(chord, 0.0), further
        short = short[np.abs(further - rate) > _CLOSE * rate]
    return slope, end
