"""Search for the bandwidth's dual price on a device.

Many sources are first sampled: the price of 65 536 of them, evenly spaced, is found on the device in a
millisecond. The logarithm of the demand of all over that of the sample hardly changes with the price, so each
pass over all sources that measures it brings the error down by three to six digits: three or four passes
where demand is smooth. Where it is not, or sources are few, the search goes on by
`freshopt.numerics.bracketed_roots`, to a bracket of neighbouring prices. Demand that jumps between these
is met by the mixture of both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from freshopt.cuda.device_columns import DeviceColumns
from freshopt.numerics.arrays import ROUNDED, Array, BoolArray
from freshopt.numerics.bracketed_roots import bracketed_roots

# Sources of the sample.
SAMPLE = 65_536
# A relative error of the bandwidth up to this is left to a few sources.
EXACT = 1e-13
# Where the sources between their bounds use less of the bandwidth than this, they are not what meets it.
FEW = 1e-6
# Passes guided by the sample.
PASSES = 6
# Stands for a price of 0, for formulas that divide by it: what costs less than 1e-190 of a unit rate is free.
TINY_PRICE = 1e-290
# Logarithms of prices beyond which neither they nor their inverses are floats, and of demand's ratios.
FAR = 690.0
# The first step from a price that is not the one, in nats, and its growth.
STEP, GROWTH = 0.5, 4.0


class Prices(NamedTuple):
    """Price whose demand is the bandwidth, or two around a jump.

    - `low`, `high`: The same where demand meets the bandwidth; 0 where it never exceeds it.
    - `passes`: Over all sources.
    """

    low: float
    high: float
    passes: int


def find_prices(columns: DeviceColumns, bandwidth: float, start: float | None = None) -> Prices:
    """Return the dual price of the bandwidth.

    - `bandwidth`: More than Σ cost·min_rate.
    - `start`: A price to start from.
    """
    stride = columns.n // SAMPLE
    if stride < 2:
        return _bracketed(columns, bandwidth, start or 1.0, 0)
    sample = columns.sample(stride)
    price = start or _bracketed(sample, bandwidth * sample.n / columns.n, 1.0, 0).low
    if price == 0.0:
        return _bracketed(columns, bandwidth, 1.0, 0)
    seen: list[tuple[float, float]] = []
    passes = 0
    for passes in range(1, PASSES + 1):
        used, inside = columns.demand(price)
        if abs(used / bandwidth - 1.0) <= EXACT and inside > FEW * bandwidth:
            return Prices(price, price, passes)
        own = sample.demand(price)[0]
        if not (0.0 < used < math.inf and 0.0 < own < math.inf):
            break
        seen.append((math.log(price), math.log(used / own)))
        following = _corrected(sample, bandwidth, price, seen[-2:])
        if following == price:
            break
        price = following
    return _bracketed(columns, bandwidth, price, passes)


def _corrected(
    sample: DeviceColumns, bandwidth: float, price: float, seen: list[tuple[float, float]]
) -> float:
    """Return the price at which the sample's demand, corrected, is the bandwidth.

    It is corrected by a factor.

    The logarithm of the ratio is a straight line through what was seen of it.
    """
    (x, ratio), (x0, ratio0) = seen[-1], seen[0]
    slope = (ratio - ratio0) / (x - x0) if x != x0 else 0.0

    def demand(at: float) -> float:
        line = ratio + slope * (math.log(at) - x)
        return sample.demand(at)[0] * math.exp(min(max(line, -50.0), 50.0))

    found = _Bracket(demand, bandwidth).search(price)
    return math.sqrt(found.low) * math.sqrt(found.high)


def _bracketed(columns: DeviceColumns, bandwidth: float, start: float, passes: int) -> Prices:
    """Return the price by bracketing, on all of the columns.

    The answer is the least of several. It is the one at which demand exceeds the bandwidth and rounding, but
    where sources between their bounds meet the bandwidth and decide it.
    """
    target = bandwidth * (1.0 + ROUNDED)
    if columns.demand(TINY_PRICE)[0] <= target:
        return Prices(0.0, 0.0, passes + 1)

    def demand(price: float) -> float:
        used, inside = columns.demand(price)
        met = abs(used / bandwidth - 1.0) <= EXACT and inside > FEW * bandwidth
        return target if met else used

    found = _Bracket(demand, target).search(start)
    return Prices(found.low, found.high, passes + 1 + found.passes)


class _Bracket:
    """Demand on logarithms, with the closest prices around a target."""

    def __init__(self, demand: Callable[[float], float], target: float) -> None:
        self.demand, self.target = demand, target
        self.low, self.high, self.passes = -math.inf, math.inf, 0
        self.above, self.below = FAR, -FAR  # log(demand/target) at these

    def search(self, price: float) -> Prices:
        """Return the prices on both sides of the target."""
        x, step = math.log(price), STEP
        self.at(x)
        while not (math.isfinite(self.low) and math.isfinite(self.high)) and abs(x) < FAR:
            x = min(FAR, x + step) if self.high == math.inf else max(-FAR, x - step)
            self.at(x)
            step *= GROWTH
        low, high = max(self.low, -FAR), min(self.high, FAR)
        if low < high:
            ends = (np.array([end]) for end in (low, high, self.above, self.below))
            bracketed_roots(self, *ends)
        return Prices(math.exp(max(self.low, -FAR)), math.exp(min(self.high, FAR)), self.passes)

    def at(self, x: float) -> float:
        """Return log(demand/target) at a logarithm of the price."""
        self.passes += 1
        used = self.demand(math.exp(x))
        value = math.log(used / self.target) if used > 0.0 else -FAR
        value = min(FAR, max(-FAR, value))
        if value >= 0.0 and x >= self.low:
            self.low, self.above = x, value
        if value <= 0.0 and x <= self.high:
            self.high, self.below = x, value
        return value

    def excess(self, x: Array) -> Array:
        """Return `at` for one function of many."""
        return np.array([self.at(float(x[0]))])

    def take(self, chosen: BoolArray) -> Self:  # noqa: ARG002 - there is one function
        """Return the function itself."""
        return self
