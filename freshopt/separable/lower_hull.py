"""`lower_hull`: corners and tangents of the hull of a curve and points.

A point of rate r and cost y is the best response to the price ν where its Lagrangian y + νr is below those of
the curve, min J(ρ) + νρ, and of the other points. The former is concave in ν and the latter are lines, so
that each point has one interval of prices, between the roots of two convex functions and the crossings with
other lines: no ordering and no cases. Newton's method for such a root is geometric: the slope of the chord
from the point to the curve, then the rate at which the curve has this slope. It is monotone from the second
step on and converges quadratically.

Where an end is known to 1e-7, such as from a table over many sources, the chord to it is the tangent to
1e-14, and no equation is solved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, chunks
from freshopt.separable.hull_numerics import HullNumerics, compilable
from freshopt.separable.kernel import Numerics

# A point that lies below the curve by no more than this share of the cost is left out: slopes are known to
# rounding over the root of the share. So is one that is optimal over so small a share of prices.
WORTHWHILE = 1e-9
# Tangents take 4 to 7 steps from the parabola's; then steps are rounding.
_STEPS, _CLOSE = 60, 1e-13
# Known ends are moved outwards by this share, so that the hull stays convex whatever their error: a chord
# that ends there is steeper than the curve before it by no more than the second number.
OUTWARDS, _STEEPER = 1e-7, 1e-6
# The slope to the left of a point at the lower bound: no price is above it.
_MOST = float(np.finfo(np.float64).max)


class Ends(NamedTuple):
    """Rates where tangents from points touch the curve, (K, n), or NaN."""

    left: Array
    right: Array

    def take(self, index: slice) -> Ends:
        """Return the ends of some of the sources."""
        return Ends(self.left[:, index], self.right[:, index])


class _Corners(NamedTuple):
    """Prices and segments of K points, each of shape (K, n)."""

    least_price: Array
    most_price: Array
    left: Array
    right: Array


class _Points(NamedTuple):
    """Points of some sources, with rates (K,), costs (K, n), bounds (n,)."""

    rate: Array
    cost: Array
    saving: Array
    lower: Array
    upper: Array


def lower_hull(
    curve: Numerics, rate: Array, saving: Array, lower: Array, upper: Array, ends: Ends | None = None
) -> Numerics:
    """Return the lower convex hull of a curve and points.

    - `curve`: A convex, non-increasing cost J of n sources.
    - `rate` (K,): Rates > 0 of the points, increasing.
    - `saving` (K, n): By how much the points' costs are below J at their rates, in the same weighted unit.
    - `lower`, `upper` (n,): Bounds, between which the hull is taken; points outside do not count.
    - `ends`: Where tangents touch the curve, if that is nearly known.
    - returns: The curve itself if no point lies below it.

    Examples
    --------
    >>> import freshopt as fo
    >>> delay = fo.problems.AccumulatedDelay(refresh=fo.Refresh.PERIODIC)
    >>> curve = delay.kernel(fo.Sources([2.0]))
    >>> hull = lower_hull(curve, np.array([1.0]), np.array([[0.25]]), np.zeros(1), np.full(1, np.inf))
    >>> hull.cost(np.array([1.0])), hull.left.round(6), hull.right.round(6)
    (array([0.75]), array([[0.666667]]), array([[2.]]))
    """
    n = saving.shape[1]
    costs, knows_gain = np.empty((len(rate), n)), curve.take(slice(0, 1)).gain(rate[:1]) is not None
    gains = np.empty((len(rate), n)) if knows_gain else None
    found = _Corners(*(np.empty((len(rate), n)) for _ in range(4)))
    for part in chunks(n):
        piece = curve.take(part)
        points, worthwhile = _points(piece, rate, saving[:, part], lower[part], upper[part])
        costs[:, part] = points.cost
        for k, own in enumerate(rate):
            gain = piece.gain(np.full(points.cost.shape[1], own))
            if gains is not None and gain is not None:
                gains[k, part] = gain + points.saving[k]
        corners = _corners(piece, points, worthwhile, None if ends is None else ends.take(part))
        for whole, some in zip(found, corners, strict=True):
            whole[:, part] = some
    if not bool(np.any(np.isfinite(found.left))):
        return curve
    return HullNumerics(curve, rate, costs, *found, gains, compilable(curve, n))


def tangent_ends(curve: Numerics, rate: Array, saving: Array) -> Ends:
    """Return where tangents from points below touch the curve, else NaN."""
    n = saving.shape[1]
    points, worthwhile = _points(curve, rate, saving, np.zeros(n), np.full(n, np.inf))
    return Ends(*_tangents(curve, points, worthwhile)[2:])


def _points(
    curve: Numerics, rate: Array, saving: Array, lower: Array, upper: Array
) -> tuple[_Points, BoolArray]:
    """Return points, and which lie below the curve within bounds."""
    cost = np.array([curve.cost(np.full(saving.shape[1], own)) for own in rate])
    below = saving > WORTHWHILE * cost
    below &= (lower <= rate[:, None]) & (rate[:, None] <= upper)
    less = np.where(below, saving, 0.0)
    return _Points(rate, cost - less, less, lower, upper), below


def _corners(curve: Numerics, points: _Points, kept: BoolArray, ends: Ends | None) -> _Corners:
    """Return prices and segments of the hull's corners."""
    kept = kept & _ordered(_between(points, kept))
    touch = _tangents(curve, points, kept) if ends is None else _chords(curve, points, kept, ends)
    kept &= _ordered(_tightened(_between(points, kept), touch))
    between = _between(points, kept)
    prices = _tightened(between, touch)
    out = ~kept
    prices.least_price[out], prices.most_price[out] = np.inf, -np.inf
    left = np.where(prices.most_price < touch.most_price, between.left, touch.left)
    right = np.where(prices.least_price > touch.least_price, between.right, touch.right)
    left[out], right[out] = np.inf, -np.inf
    return _Corners(prices.least_price, prices.most_price, left, right)


def _ordered(found: _Corners) -> BoolArray:
    """Return which points have an interval of prices."""
    wide: BoolArray = found.least_price < found.most_price * (1.0 - WORTHWHILE)
    return wide


def _tightened(one: _Corners, other: _Corners) -> _Corners:
    """Return the prices that both allow, NaN allowing all."""
    return _Corners(
        np.fmax(one.least_price, other.least_price),
        np.fmin(one.most_price, other.most_price),
        one.left,
        one.right,
    )


def _between(points: _Points, kept: BoolArray) -> _Corners:
    """Return prices at which each point is better than its neighbours."""
    rate, cost = points.rate, points.cost
    none = (np.full(cost.shape, np.nan) for _ in range(2))
    found = _Corners(np.zeros(cost.shape), np.full(cost.shape, _MOST), *none)
    for low in range(len(rate)):
        for high in range(low + 1, len(rate)):
            slope = (cost[low] - cost[high]) / (rate[high] - rate[low])
            slope[~(kept[low] & kept[high])] = np.nan
            above, below = slope > found.least_price[low], slope < found.most_price[high]
            np.copyto(found.least_price[low], slope, where=above)
            np.copyto(found.most_price[high], slope, where=below)
            np.copyto(found.right[low], rate[high], where=above)
            np.copyto(found.left[high], rate[low], where=below)
    return found


def _chords(curve: Numerics, points: _Points, kept: BoolArray, ends: Ends) -> _Corners:
    """Return chords to nearly known ends, else tangents."""
    found = _Corners(*(np.full(points.cost.shape, np.nan) for _ in range(4)))
    unsure = np.zeros(kept.shape, dtype=np.bool_)
    for k, own in enumerate(points.rate):
        sides = (
            (found.most_price, found.left, ends.left[k] * (1.0 - OUTWARDS), points.lower, 1.0),
            (found.least_price, found.right, ends.right[k] * (1.0 + OUTWARDS), points.upper, -1.0),
        )
        for slopes, at, end, bound, side in sides:
            reached = np.maximum(end, bound) if side > 0.0 else np.minimum(end, bound)
            with np.errstate(all="ignore"):
                chord = (curve.cost(reached) - points.cost[k]) / (own - reached)
                steeper = side * (curve.marginal(reached) / chord - 1.0)
                sure = (chord > 0.0) & (steeper >= 0.0) & ((steeper <= _STEEPER) | (reached == bound))
            unsure[k] |= ~sure
            slopes[k], at[k] = chord, reached
    unsure &= kept
    some = np.flatnonzero(np.any(unsure, axis=0))
    if len(some):
        few = _Points(
            points.rate, points.cost[:, some], points.saving[:, some], points.lower[some], points.upper[some]
        )
        for whole, solved in zip(found, _tangents(curve.take(some), few, unsure[:, some]), strict=True):
            whole[:, some] = np.where(unsure[:, some], solved, whole[:, some])
    return found


def _tangents(curve: Numerics, points: _Points, kept: BoolArray) -> _Corners:
    """Return tangents from points to the curve, NaN elsewhere."""
    found = _Corners(*(np.full(points.cost.shape, np.nan) for _ in range(4)))
    point, source = np.nonzero(kept)
    if not len(point):
        return found
    own, cost, saving = points.rate[point], points.cost[point, source], points.saving[point, source]
    lower, upper = points.lower[source], points.upper[source]
    with np.errstate(all="ignore"):
        # Half the width of what a parabola has below a chord, as a share of the rate.
        share = np.sqrt(2.0 * saving / curve.take(source).curvature(own)) / own
    share = np.where(np.isfinite(share), share, 1.0)
    # Both sides at once: those to the left, then those to the right.
    slope, end = _tangent(
        curve.take(np.tile(source, 2)),
        np.tile(own, 2),
        np.tile(cost, 2),
        np.concatenate((np.maximum(own / (1.0 + share), lower), np.minimum(own * (1.0 + share), upper))),
        np.concatenate((lower, own)),
        np.concatenate((own, upper)),
    )
    many = len(own)
    found.most_price[point, source] = np.where(lower < own, slope[:many], _MOST)
    found.least_price[point, source] = np.where(upper > own, slope[many:], 0.0)
    found.left[point, source], found.right[point, source] = end[:many], end[many:]
    return found


def _tangent(
    curve: Numerics, own: Array, cost: Array, start: Array, lower: Array, upper: Array
) -> tuple[Array, Array]:
    """Return slopes and ends, between bounds, of tangent segments from points."""
    slope, end = np.zeros(start.shape), np.array(start)
    short = np.flatnonzero(start != own)
    for _ in range(_STEPS):
        if not len(short):
            break
        piece, rate = curve.take(short), end[short]
        with np.errstate(all="ignore"):
            chord = (piece.cost(rate) - cost[short]) / (own[short] - rate)
            # A start too near to the point on its right may cost more than it: then farther away.
            step = np.where(chord > 0.0, piece.inverse_marginal(np.maximum(chord, 0.0)), 2.0 * rate)
        further = np.clip(step, lower[short], upper[short])
        slope[short], end[short] = np.maximum(chord, 0.0), further
        short = short[np.abs(further - rate) > _CLOSE * rate]
    return slope, end
