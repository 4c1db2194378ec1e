"""`HullNumerics`: lower convex hull of a cost curve and points.

Where some rates can be had at a lower cost than the curve J(ρ) says, the relaxed problem minimises the lower
convex hull H of the curve and these points. H follows J, but for segments: from a point to where a line
through it touches the curve, on either side, or to the next point. On a segment the marginal is constant, at
a point it jumps, so that at almost every price the best response is a point or lies on the curve, where H is
attained; between them are, for each limit, the sources whose segment has the price as its slope.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from freshopt.compiled.columns import Columns, column, enabled
from freshopt.numerics.arrays import Array, BoolArray, Index, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.kernel import Kernel, Numerics

# Rates off a point by less are at the point, but for the rounding of mixtures and sums.
ROUNDING = 1e-12


@frozen_value()
class HullNumerics:
    """Numerics of the lower convex hull of a curve and K points.

    - `curve`: Cost J and marginal −J' of n sources.
    - `rate` (K,): Rates of the points, increasing.
    - `point_cost` (K, n): Their weighted costs.
    - `least_price`, `most_price` (K, n): Prices between which a point is the best response: the slopes of the
      segments that leave it to the right and to the left. inf and −inf of a point that is no corner of the
      hull.
    - `left`, `right` (K, n): Where these two segments end; inf and −inf of no corner.
    - `point_gain` (K, n): The points' gains, of numerics that know gains.
    - `compiled`: Whether best responses come from a compiled demand function: of many sources whose curve has
      one.
    """

    curve: Numerics
    rate: Array
    point_cost: Array
    least_price: Array
    most_price: Array
    left: Array
    right: Array
    point_gain: Array | None = None
    compiled: bool = False

    def cost(self, rate: Array) -> Array:
        """Return the hull's weighted cost H(ρ)."""
        return self._on_segments(self.curve.cost(rate), self.point_cost, rate, 1.0)

    def gain(self, rate: Array) -> Array | None:
        """Return the weighted gain, or None where the cost says it all."""
        gain = self.curve.gain(rate)
        if gain is None or self.point_gain is None:
            return None
        return self._on_segments(gain, self.point_gain, rate, -1.0)

    def marginal(self, rate: Array) -> Array:
        """Return the marginal value −H'(ρ).

        At a point it is that of a little more rate.
        """
        found = np.array(self.curve.marginal(rate))
        for k, own in enumerate(self.rate):
            np.copyto(found, self.most_price[k], where=(self.left[k] <= rate) & (rate < own))
            np.copyto(found, self.least_price[k], where=(own <= rate) & (rate <= self.right[k]))
        return found

    def curvature(self, rate: Array) -> Array:
        """Return the curvature of the cost, 0 on a segment."""
        found = np.array(self.curve.curvature(rate))
        for k in range(len(self.rate)):
            found[(self.left[k] <= rate) & (rate < self.right[k])] = 0.0
        return found

    def inverse_marginal(self, price: Array) -> Array:
        """Return the best response, a point or the curve's own."""
        price = np.broadcast_to(price, self.left.shape[1:])
        found = self._response_of_curve(price)
        for k, own in enumerate(self.rate):
            found[(self.least_price[k] <= price) & (price <= self.most_price[k])] = own
        return found

    def _response_of_curve(self, price: Array) -> Array:
        """Return the curve's own best response, a writable array."""
        curve = self.curve
        if not (self.compiled and isinstance(curve, Kernel) and curve.unit_demand is not None):
            return np.array(curve.inverse_marginal(price))
        with np.errstate(all="ignore"):
            worth = np.where(curve.importance > 0.0, curve.importance / price, 0.0)
        parameters = tuple(column(parameter) for parameter in curve.parameters)
        columns = Columns(len(price), curve.unit_demand, None, False, worth, parameters, 1.0, 0.0, np.inf)
        found = np.empty(len(price))
        columns.fill(1.0, found)
        return found

    def take(self, index: Index) -> HullNumerics:
        """Return the numerics of some of the sources."""
        return replace(
            self,
            curve=self.curve.take(index),
            point_cost=self.point_cost[:, index],
            least_price=self.least_price[:, index],
            most_price=self.most_price[:, index],
            left=self.left[:, index],
            right=self.right[:, index],
            point_gain=None if self.point_gain is None else self.point_gain[:, index],
        )

    def segment(self, rate: Array) -> tuple[Array, Array]:
        """Return the ends of each rate's segment, or the rate itself."""
        low, high = np.array(rate, dtype=np.float64), np.array(rate, dtype=np.float64)
        for k, own in enumerate(self.rate):
            before, after = (self.left[k] < rate) & (rate < own), (own < rate) & (rate < self.right[k])
            np.copyto(low, self.left[k], where=before)
            high[before], low[after] = own, own
            np.copyto(high, self.right[k], where=after)
        return low, high

    def corner(self, rate: Array) -> BoolArray:
        """Return which rates are points of the hull, as booleans."""
        found: BoolArray = np.zeros(len(rate), dtype=np.bool_)
        for k, own in enumerate(self.rate):
            found |= (rate == own) & (self.left[k] <= own)
        return found

    def _on_segments(self, value: Array, points: Array, rate: Array, sign: float) -> Array:
        """Return the values, replaced on segments by those of their lines."""
        found = np.array(value)
        for k, own in enumerate(self.rate):
            before = (self.left[k] < rate) & (rate < own)
            after = (own < rate) & (rate < self.right[k])
            for which, slope in ((before, self.most_price[k]), (after, self.least_price[k])):
                chosen = np.flatnonzero(which)
                if len(chosen):
                    found[chosen] = points[k, chosen] + sign * slope[chosen] * (own - rate[chosen])
            np.copyto(found, points[k], where=(rate == own) & (self.left[k] <= own))
        return found


def compilable(curve: Numerics, n: int) -> bool:
    """Return whether best responses of n sources are to be compiled."""
    if not isinstance(curve, Kernel) or curve.unit_demand is None or curve.demand_parameters is not None:
        return False
    return enabled(n, curve.unit_demand)


def filled_in_turn(cost: Array, low: Array, high: Array, rate: Array, limit: IntArray) -> Array:
    """Fill segments to their upper ends in turn, by limit."""
    order = np.argsort(limit, kind="stable")
    room, used = (cost * (high - low))[order], (cost * (rate - low))[order]
    group = limit[order]
    first = np.searchsorted(group, group)
    before = np.concatenate(([0.0], np.cumsum(room)))
    total = np.bincount(group, weights=used, minlength=1)[group]
    share = (total - (before[:-1] - before[first])) / room
    filled = low[order] + np.clip(share, 0.0, 1.0) * (high - low)[order]
    filled = np.where(share >= 1.0 - ROUNDING, high[order], np.where(share <= ROUNDING, low[order], filled))
    found = np.empty(len(rate))
    found[order] = filled
    return found
