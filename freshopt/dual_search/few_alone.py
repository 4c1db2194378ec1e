"""Few alone: demand within a bracket, of some sources and all others.

Sources whose rates jump within the bracket, or leave with an infinite slope, are few. Without them demand is
smooth, and told by its values at a few prices: at both ends, and at each price where all sources' demand is
known. The errors of three such prices, from a bracket of width 1e-5, are 1e-9, 1e-15 and nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from freshopt.compiled.columns import Columns
from freshopt.compiled.price_pairs import PairDemand
from freshopt.dual_search.sampled_search import EXACT, interpolated, top_up
from freshopt.numerics.arrays import Array

# Half the relative width of the narrowest bracket, and by how much a price is moved up off the jumps: more
# than the rounding that proofs allow for, 7e-15, within which a linear source might take anything.
FINE = 1.5e-14
# Passes at one price, each of which must be nearer by such a factor.
SINGLE, QUICK = 3, 1e-2
# Demand that changes by more than this share of the bandwidth, over 2·FINE, jumps.
LEVEL = 1e-12
# Demands of few sources at most, of which each third halves the bracket.
STEPS = 240
# The first factor by which a search leaves its start; the next are squares.
LEAVE = 1.05


class FewAlone:
    """Demand of all sources at prices within a bracket.

    That of the others is a polynomial on logarithms, on which power laws are straight.

    Parameters
    ----------
    alone : Columns
        The sources that jump.
    ends : (float, float)
        Lower and upper price.
    used : PairDemand
        Demands at both.
    """

    def __init__(self, alone: Columns, ends: tuple[float, float], used: PairDemand) -> None:
        self.alone, self.ends = alone, ends
        self.logarithmic = used.smooth_below > 0.0
        value = math.log if self.logarithmic else float
        known = zip(ends, (used.smooth_above, used.smooth_below), strict=True)
        self.others = [(self._place(price), value(demand)) for price, demand in known]

    def __call__(self, price: float) -> float:
        """Return the demand at a price."""
        others = interpolated(self.others, self._place(price))
        return (math.exp(others) if self.logarithmic else others) + self._of_these(price)

    def settle(
        self, columns: Columns, bandwidth: float, price: float, rates: Array
    ) -> tuple[float | None, int]:
        """Write rates that use up the bandwidth; return their price and passes.

        There is no price where rates jump, or demand is flat.

        Parameters
        ----------
        columns : Columns
            All sources.
        price : float
            Where this demand meets the bandwidth.
        rates : ndarray, shape (n,)
        """
        low, high = self.ends
        error = self._place(high)
        for passes in range(1, SINGLE + 1):
            change = self(price * (1.0 - FINE)) - self(price * (1.0 + FINE))
            if not 0.0 < change <= LEVEL * bandwidth:
                return None, passes - 1
            used = columns.fill(price, rates)
            off = abs(used / bandwidth - 1.0)
            if off <= EXACT:
                return (price if top_up(rates, columns, bandwidth - used) else None), passes
            others = used - self._of_these(price)
            if not (off <= QUICK * error and self.logarithmic and others > 0.0):
                return None, passes
            self.others.append((self._place(price), math.log(others)))
            price, error = crossing(self, bandwidth, price, low, high), off
        return None, SINGLE

    def _of_these(self, price: float) -> float:
        return self.alone.demand(price) if self.alone.n else 0.0

    def _place(self, price: float) -> float:
        low = self.ends[0]
        return math.log(price) - math.log(low) if price > 2.0 * low else math.log1p((price - low) / low)


def crossing(demand: Callable[[float], float], target: float, start: float, low: float, high: float) -> float:
    """Return the least price at which demand meets a target.

    There it is no more than the target. The price is right to an ulp or two, and beside `low` or `high` if
    there is none between these.

    Parameters
    ----------
    demand : callable
        Falls as the price rises, perhaps in jumps.
    target, start, low, high : float
        The start is between low and high, which are no solutions.
    """
    above = below = math.nan
    x, leave, rising = start, LEAVE, False
    for step in range(STEPS):
        value = demand(x)
        off = math.log(value / target) if 0.0 < value < math.inf else math.copysign(math.inf, value - target)
        # An end that stays twice counts half.
        if value > target:
            low, above, below = x, off, 0.5 * below if rising else below
        else:
            high, below, above = x, off, above if rising else 0.5 * above
        rising = value > target
        if high <= math.nextafter(math.nextafter(low, math.inf), math.inf):
            return high
        outwards = x * leave if math.isnan(below) else x / leave if math.isnan(above) else low
        if low < outwards < high:
            x, leave = outwards, min(leave * leave, 1e100)
            continue
        # Regula falsi, in its Illinois variant, on logarithms.
        part = above / (above - below) if step % 3 else math.nan
        part = part if 0.0 < part < 1.0 else 0.5
        span = math.log(high) - math.log(low)
        x = math.exp(math.log(low) + part * span) if span > 1.0 else low + part * (high - low)
        x = min(max(x, math.nextafter(low, math.inf)), math.nextafter(high, 0.0))
    return high
