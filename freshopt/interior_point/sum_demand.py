"""`Demand`, `Seen`: what sums use, as modelled and as passes showed it.

From some price on a sum uses the least, which its sources' marginal values at their lower bounds tell, and up
to another all that there is for it. In between demand is near a power of log(end/p), with end the price from
which on nothing is used, or of p: through the two passes next to where it is asked, exact where a single
source has such a cost, and clipped to what other passes prove.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.interior_point.sum_costs import SumCosts
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, BoolArray, IntArray
from freshopt.numerics.bracketed_roots import bracketed_roots

# Elasticities of demand; before two passes are known it is taken for that of a cost 1/ρ.
FIRST, STEEP, FLAT = -0.5, -1e9, -1e-9
# Uses so near a kink, relatively, are on it; prices so near each other are one.
ON, EVEN = 1e-14, 1e-15
# A price below is 0.
NOTHING = 1e-290
# Logarithms of prices that differ by less, relative to how far off the end is, say nothing of an elasticity;
# nor do those that rounding confuses.
_MOVED, _ROUNDED = 1e-9, 1e-14


@dataclass(frozen=True)
class Demand:
    """Demand of sums near a pass, between its least and most.

    It is a power of log(end/p), or of p where no price ends it, p the price outside and their own: log u = y
    and its elasticity are right at log p = x.
    """

    costs: SumCosts
    x: Array
    y: Array
    elasticity: Array
    end: Array
    outside: Array
    least: Array
    most: Array

    def take(self, index: IntArray | BoolArray) -> Demand:
        """Return some of the sums."""
        columns = (self.x, self.y, self.elasticity, self.end, self.outside, self.least, self.most)
        return Demand(self.costs.take(index), *(column[index] for column in columns))

    def excess(self, z: Array) -> Array:
        """Return log price of uses less log slope."""
        right = self.costs.slopes(np.exp(z))[1]
        asked = np.log(np.maximum(0.0, self.outside + right))
        return np.clip(self._log_price(z) - asked, -LARGEST, LARGEST)

    def meeting(self, near: Array) -> tuple[Array, Array]:
        """Return uses, tried `near` a log, and prices that meet demand."""
        costs = self.costs
        least, most = costs.ends()
        least = np.maximum(np.maximum(least, self.least), SMALLEST)
        most = np.maximum(np.minimum(np.minimum(most, self.most), LARGEST), least)
        z = np.clip(self.y, np.log(least), np.log(most))
        base = costs.slopes(np.exp(z), ON)
        side = self._side(z, base)
        edge = np.log(np.maximum(0.0, self.outside + np.where(side > 0, base[1], base[0])))
        edge = np.clip(self._log_use(edge), np.log(least), np.log(most))
        low, high = np.minimum(z, edge), np.maximum(z, edge)
        for trial in (edge, near):
            some = np.flatnonzero(side)
            if not len(some):
                break
            own, at, begin, end = self.take(some), trial[some], low[some], high[some]
            at = np.where((begin <= at) & (at <= end), at, 0.5 * (begin + end))
            z[some], side[some] = at, own._side(at, own.costs.slopes(np.exp(at), ON))
            low[some] = np.where(side[some] > 0, at, begin)
            high[some] = np.where(side[some] < 0, at, end)
        some = np.flatnonzero(side)
        if len(some):
            own, begin, end = self.take(some), low[some], high[some]
            z[some] = bracketed_roots(own, begin, end, own.excess(begin), own.excess(end))[0]
        used = np.exp(z)
        for end in (least, most):
            used = np.where(np.abs(used - end) <= ON * used, end, used)
        left, right = costs.slopes(used, ON)
        return used, np.clip(np.exp(self._log_price(z)), self.outside + left, self.outside + right)

    def _log_price(self, z: Array) -> Array:
        ahead, along = np.log(self.end) - self.x, (z - self.y) / self.elasticity
        return self.x + np.where(np.isinf(ahead), along, -ahead * np.expm1(-along / ahead))

    def _log_use(self, log_price: Array) -> Array:
        return self.y + self.elasticity * _along(self.x, log_price, self.end)

    def _side(self, z: Array, slopes: tuple[Array, Array]) -> IntArray:
        """Return 1 where use is too little, −1 where too much."""
        left, right = slopes
        price = self._log_price(z)
        least, most = (np.log(np.maximum(0.0, self.outside + side)) for side in (right, left))
        return (price > least + EVEN).astype(np.int64) - (price < most - EVEN)


def _along(x: Array, log_price: Array, end: Array) -> Array:
    """Return what elasticity at x is of, from there to a price."""
    ahead, along = np.log(end) - x, log_price - x
    return np.where(np.isinf(ahead), along, -ahead * np.log1p(-np.minimum(along / ahead, 1.0)))


class Seen:
    """What passes have shown of sums: prices, uses, slopes of costs.

    Its first rows are the prices up to which sums use all that there is, and from which on they use the
    least.
    """

    def __init__(self, costs: SumCosts, price: Array, used: Array) -> None:
        self.price, self.used = price, used
        # From these prices on, as models have it, nothing is used.
        self.end = np.where(used[1] > 0.0, np.inf, price[1])
        self.left, self.right = np.stack([costs.slopes(own) for own in used], axis=1)

    def add(self, *found: Array) -> None:
        """Remember a pass."""
        columns = (self.price, self.used, self.left, self.right)
        rows = (np.vstack((column, new)) for column, new in zip(columns, found, strict=True))
        self.price, self.used, self.left, self.right = rows

    def sides(self, aside: Array, slack: float = EVEN) -> tuple[BoolArray, BoolArray]:
        """Return which prices are too low, and which too high."""
        least, most = (
            np.where(np.isinf(own), own, own + sign * slack * (np.abs(aside) + np.abs(own)))
            for own, sign in ((aside + self.left, -1.0), (aside + self.right, 1.0))
        )
        return self.price < least, self.price > np.maximum(0.0, most) + NOTHING

    def bracket(self, aside: Array) -> tuple[Array, Array]:
        """Return the highest price that was too low, the lowest too high."""
        cheap, dear = self.sides(aside)
        low, high = np.where(cheap, self.price, 0.0), np.where(dear, self.price, np.inf)
        return np.max(low, axis=0, initial=0.0), np.min(high, axis=0)

    def beyond(self, aside: Array) -> tuple[Array, Array]:
        """Return prices between which all meet, as costs' slopes say."""
        (cheap, dear), rounding = self.sides(aside), EVEN * np.abs(aside)
        low, high = np.where(dear, aside + self.right - rounding, 0.0), aside + self.left + rounding
        return np.max(low, axis=0, initial=0.0), np.min(np.where(cheap, high, np.inf), axis=0)

    def between(self, aside: Array) -> tuple[Array, Array]:
        """Return the least and the most that sums use where all meet."""
        cheap, dear = self.sides(aside, -EVEN)
        least = np.max(np.where(cheap, 0.0, self.used), axis=0)
        return least, np.min(np.where(dear, np.inf, self.used), axis=0)

    def model(self, x_near: Array) -> tuple[Array, Array, Array, Array]:
        """Return models by the two passes next to a log price."""
        price, used = self.price[2:], self.used[2:]
        # Up to the first price and from the last one on uses are those there.
        price = np.maximum(np.minimum(price, self.price[1]), np.maximum(self.price[0], NOTHING))
        x, y, every = np.log(price), np.log(used), np.arange(price.shape[1])
        off = np.where(np.isfinite(y) & (price < self.end * (1.0 - _ROUNDED)), np.abs(x - x_near), np.inf)
        best = np.argmin(off, axis=0)
        near, there = x[best, every], y[best, every]
        end = np.where(np.log(self.end) > near, self.end, np.exp(near + _MOVED))
        ahead = np.minimum(1.0, np.log(end) - near)
        moved = np.maximum(_MOVED * ahead, _ROUNDED)
        off = np.where(np.abs(x - near) > moved, off, np.inf)
        other = np.argmin(off, axis=0)
        found = (y[other, every] - there) / _along(near, x[other, every], end)
        # A single source's demand ends so.
        first = np.minimum(FIRST, 1.0 / (near - np.log(end)))
        known = np.isfinite(off[other, every]) & (found <= 0.0)
        return near, there, np.clip(np.where(known, found, first), STEEP / ahead, FLAT), end
