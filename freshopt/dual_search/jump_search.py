"""Jump search: the dual price where demand jumps, or is nearly flat.

Where a sample does not tell the price, it is enclosed by passes at two prices at once
(`freshopt.compiled.price_pairs`). Demand within a bracket is that of a few sources whose rates jump, which
are settled alone and exactly, and that of all others, which is a chord: off by the square of the width.
So brackets narrow from 1e-4 to 1e-8 to nothing in a pass each. Where no rate jumps at the price that they
tell, passes at one price do instead (`FewAlone`). Before there is a bracket, and where
too many sources jump, as where all are alike, the sample tells the price, corrected by what is known of all.

The ends of the last bracket differ by rounding, or by 1e-7 where no rate jumps: the mixture of their best
responses that uses up the bandwidth is off the optimum by the square of that.

`FewAlone`: demand within a bracket, of some sources and all others.

Sources whose rates jump within the bracket, or leave with an infinite slope, are few. Without them demand is
smooth, and told by its values at a few prices: at both ends, and at each price where all sources' demand is
known. The errors of three such prices, from a bracket of width 1e-5, are 1e-9, 1e-15 and nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from freshopt.compiled.columns import Columns
from freshopt.compiled.price_pairs import PairDemand, PairMemory, at_two_prices, memory
from freshopt.dual_search.sampled_search import (
    EXACT,
    SAMPLE,
    SPARSE,
    Found,
    Known,
    first_price,
    interpolated,
    top_up,
)
from freshopt.numerics.arrays import ROUNDED, Array, IntArray

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

    - `alone`: The sources that jump.
    - `ends` (float, float): Lower and upper price.
    - `used`: Demands at both.
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

        - `columns`: All sources.
        - `price`: Where this demand meets the bandwidth.
        - `rates` (n,)
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


def crossing(
    demand: Callable[[float], float],
    target: float,
    start: float,
    low: float,
    high: float,
    fine: float = 0.0,
    near: float = 0.0,
) -> float:
    """Return the least price at which demand meets a target.

    There it is no more than the target. The price is right to an ulp or two, and beside `low` or `high` if
    there is none between these.

    - `demand`: Falls as the price rises, perhaps in jumps.
    - `target`, `start`, `low`, `high`: The start is between low and high, which are no solutions.
    - `fine`: By how much demand may be above the target, relatively, at a price that is lower by as little.
    - `near`: A relative width of a bracket in which demand changes little, that is narrow enough.
    """
    above = below = most = least = math.nan
    x, leave, rising = start, LEAVE, False
    for step in range(STEPS):
        value = demand(x)
        off = math.log(value / target) if 0.0 < value < math.inf else math.copysign(math.inf, value - target)
        if 0.0 < off < fine:
            return x
        # An end that stays twice counts half.
        if value > target:
            low, most, above, below = x, off, off, 0.5 * below if rising else below
        else:
            high, least, below, above = x, off, off, above if rising else 0.5 * above
        rising = value > target
        if high - low <= near * low and most - least <= LITTLE:
            return x
        if high <= math.nextafter(math.nextafter(low, math.inf), math.inf):
            return high
        outwards = x * leave if math.isnan(below) else x / leave if math.isnan(above) else low
        if low < outwards < high:
            x, leave = outwards, min(leave * leave, 1e100)
            continue
        # Both ends are looked at before what is between them.
        last = math.nextafter(high, 0.0) if math.isnan(below) else math.nextafter(low, math.inf)
        if (math.isnan(above) or math.isnan(below)) and low < last < high:
            x = last
            continue
        # Regula falsi, in its Illinois variant, on logarithms.
        part = above / (above - below) if step % 3 else math.nan
        part = part if 0.0 < part < 1.0 else 0.5
        span = math.log(high) - math.log(low)
        x = math.exp(math.log(low) + part * span) if span > 1.0 else low + part * (high - low)
        x = min(max(x, math.nextafter(low, math.inf)), math.nextafter(high, 0.0))
    return high


Prices: TypeAlias = tuple[float, float]
# Log price, log(demand of all / demand of the sample).
Ratio: TypeAlias = tuple[float, float]

# A sample of fewer tells nothing, and costs nothing.
FEW = 1000
# Brackets so wide are not narrowed further; the second are those in which no rate jumps, and demand falls as
# the price rises. A mixture's gap is the product of both changes: where demand falls less they may be wider.
NARROW, SMOOTH = 1e-13, 1e-7
# Sources whose rate changes by more than so many times the width of the bracket are settled alone.
STEEP, STEEPEST = 64.0, 0.5
# They are if they are at most one in so many: the search among them costs less than a pass.
ALONE = 32
# In nats: a bracket that is known to hold the price is looked at as a whole, where it is so narrow that few
# sources jump in it.
WHOLE = 2e-4
# The chord of all others tells a price to so many times the square of its bracket's width.
BENT = 4.0
# A corrected price is off by a fraction of its correction, mostly a smaller one.
DOUBT = 4.0
# After so many brackets beside the price the next ones divide what is known; after so many in all they do
# whatever is predicted: demand so flat that rounding hides its slope tells the same price again and again.
MISSES, LATE = 3, 16
# A bracket is as wide as demand needs to change by so much of the bandwidth: less is rounding.
VISIBLE = 1e-14
# Largest relative change of a rate of a mixture, by which what rounding leaves is divided: a few sources may
# have to take that of all. The gap is the product of this change and what is left, at most 1e-19.
DIVIDED = 1e-6
# Nats from the known end of a bracket that has one, times four for each miss.
FIRST_REACH = 0.05
# Passes at two prices at most: thirds of 1336 nats are 1e-15 after 38.
PASSES = 64
# Prices nearer to each other than this tell no slope of the ratio, and none is steeper than 1.
APART = 1e-9
# What the demand of a sample may be above the target, at its price, and what that may be off by where few of
# the sample jump: it tells the price of all no better. The latter also as a share of the bracket of that.
ALIKE, ALMOST, PART = 1e-12, 1e-7, 1e-6
# Demand of a bracket whose ends differ by less does not jump.
LITTLE = 1.0 / 64.0
# Nats beyond which a sample's price says that the sample has none.
FAR = 650.0
# Prices are sought between.
LOWEST, HIGHEST = 1e-290, 1e290


def jump_search(
    columns: Columns, bandwidth: float, start: float | None = None, known: Sequence[Known] = ()
) -> Found | None:
    """Return rates that use up the bandwidth, or None.

    Their price is the least. None means that no price between `LOWEST` and `HIGHEST` does, or that a demand
    is infinite.

    - `columns`: The sources; their lower bounds must ask for less than the bandwidth.
    - `start`: A price to start from.
    - `known` sequence of (float, float): Prices and the demands of all sources at them, as far as they are
      known.
    """
    target, into = bandwidth * (1.0 + ROUNDED), memory(columns.n)
    sample = columns.sample(max(min(columns.n, FEW), min(SAMPLE, columns.n // SPARSE)))
    weight, low, high = columns.n / sample.n, LOWEST, HIGHEST
    for place, used_there in known:
        # Another loop may find another demand at the same price, in a last bit.
        below, above = max(low, place * (1.0 - APART)), min(high, place * (1.0 + APART))
        low, high = (below, high) if used_there > target else (low, above)
    ratios = _apart([each for place in known for each in _ratios(sample, weight, [place])])

    def like_all(price: float) -> float:
        return sample.demand(price) * weight * math.exp(min(_line(ratios, math.log(price)), FAR))

    def near() -> float:
        # All sources tell their price to the last bit.
        return 0.0 if sample.n == columns.n else min(ALMOST, PART * (math.log(high) - math.log(low)))

    # What is known of prices far above says nothing of how all differ from the sample here.
    if (
        low == LOWEST
        and sample.demand(low) * weight <= 2.0 * target
        and columns.fill(low, into.rates) <= target
    ):
        return Found(into.rates, 0.0, len(known) + 1)
    start = known[-1][0] if known else start
    if start is None or not LOWEST < start < HIGHEST:
        start = first_price(columns, bandwidth)
    fine = 0.0 if sample.n == columns.n else ALIKE
    price = crossing(like_all, target, min(max(start, low), high), low, high, fine, near())
    price = price if abs(math.log(price)) < FAR else start
    off = min((abs(math.log(price / place)) for place, _ in known), default=0.0)
    width, misses, share, looks, singles = _width(sample, price, max(off / DOUBT, near())), 0, 0.0, True, 0
    for turn in range(1, PASSES + 1):
        a, b = _around(price, width, low, high)
        if (
            turn <= LATE
            and looks
            and (math.log(high) - math.log(low) <= WHOLE or (misses and _few_change(sample, low, high)))
        ):
            a, b = low, high
        elif turn > LATE or misses >= MISSES or not low <= a < b <= high:
            a, b = _divided(low, high, FIRST_REACH * 4.0**misses)
        apart = math.log(b) - math.log(a) if b > 2.0 * a else math.log1p((b - a) / a)
        # Across a wide bracket few rates may change at all.
        steep = STEEP * apart if STEEP * apart < STEEPEST else 0.0
        used = at_two_prices(columns, a, b, into, steep=steep, share=share)
        if not math.isfinite(used.above):
            return None
        enclosed, passes = used.below <= target < used.above, len(known) + 2 * turn + singles
        if enclosed:
            jumps = np.flatnonzero(into.jumps)
            flat = not len(jumps) and apart * (used.above - used.below) <= SMOOTH * SMOOTH * bandwidth
            if apart <= (NARROW if len(jumps) else SMOOTH) or flat:
                return _mixed(columns, bandwidth, (a, b), used, into, passes, jumps)
            low, high, misses, looks = a, b, 0, False
            if len(jumps) * ALONE <= columns.n:
                alone = columns.take(jumps, len(jumps))
                middle = price if a < price < b else math.sqrt(a) * math.sqrt(b)
                like_these = FewAlone(alone, (a, b), used)
                price = crossing(like_these, target, middle, a, b)
                share = _share(bandwidth, *map(like_these, _around(price, width, low, high)))
                met, more = like_these.settle(columns, bandwidth, price, into.rates)
                if met is not None:
                    return Found(into.rates, met, passes + more)
                singles += more
                smooth = (used.smooth_above - used.smooth_below) / (used.above - used.below)
                width = _visible(
                    like_these, price, max(FINE, BENT * apart * apart * smooth), (a, b), bandwidth
                )
                share = _share(bandwidth, *map(like_these, _around(price, width, low, high)))
                continue
        else:
            low, high = (b, high) if used.above > target else (low, a)
            misses, looks = misses + 1, True
            if misses == MISSES and low == LOWEST and columns.fill(low, into.rates) <= target:
                return Found(into.rates, 0.0, passes + 1)
        ends = _ratios(sample, weight, [(a, used.above), (b, used.below)])
        ratios, share = _apart([*ratios, *ends]), 0.0
        following = crossing(like_all, target, min(max(price, low), high), low, high, fine, near())
        off = _doubt(ends, used) * apart if enclosed else abs(math.log(following) - math.log(price)) / DOUBT
        price, width = following, _width(sample, following, max(off, near()))
    return None


def _around(price: float, width: float, low: float, high: float) -> Prices:
    """Return the ends of a bracket around a price, within another one."""
    a = min(price * (1.0 - min(width, 0.5)), math.nextafter(price, 0.0))
    b = max(price * (1.0 + width), math.nextafter(price, math.inf))
    return max(a, low), min(b, high)


def _divided(low: float, high: float, reach: float) -> Prices:
    """Return two prices that divide a bracket, or extend it."""
    span = math.log(high) - math.log(low)
    if high == HIGHEST and reach < min(span, FAR):
        return low * math.exp(0.25 * reach), low * math.exp(reach)
    if low == LOWEST and reach < min(span, FAR):
        return high * math.exp(-reach), high * math.exp(-0.25 * reach)
    a, b = low * math.exp(span / 3.0), high * math.exp(-span / 3.0)
    return (a, b) if low < a < b < high else (low, high)


def _width(sample: Columns, price: float, off: float) -> float:
    """Return half the relative width of a bracket around a price.

    The price is off by about so much. Where many of a sample jump at once they are alike, and so are the
    others: the price is theirs.
    """
    above, below = (sample.demand(price * (1.0 + sign * 2.0 * FINE)) for sign in (-1.0, 1.0))
    return FINE if ALONE * (above - below) > above else max(FINE, off)


def _visible(
    demand: Callable[[float], float], price: float, width: float, ends: Prices, bandwidth: float
) -> float:
    """Return a width within which demand changes by more than rounding."""
    while width < 0.5:
        a, b = _around(price, width, *ends)
        if demand(a) - demand(b) > VISIBLE * bandwidth:
            break
        width *= 8.0
    return width


def _few_change(sample: Columns, low: float, high: float) -> bool:
    """Return whether the rates that change can be settled alone."""
    generous, frugal = np.empty(sample.n), np.empty(sample.n)
    sample.fill(low, generous)
    sample.fill(high, frugal)
    return 2 * ALONE * int(np.count_nonzero(generous > frugal)) <= sample.n


def _ratios(sample: Columns, weight: float, known: Sequence[Known]) -> list[Ratio]:
    """Return the ratios of demands at some prices, where there are any."""
    both = [(price, sample.demand(price) * weight, used) for price, used in known]
    return [(math.log(price), math.log(used / few)) for price, few, used in both if few > 0.0 < used]


def _apart(ratios: list[Ratio]) -> list[Ratio]:
    """Return the last two ratios that are apart from each other."""
    last = ratios[-1:]
    return [each for each in ratios if last and abs(each[0] - last[0][0]) > APART][-1:] + last


def _doubt(ends: list[Ratio], used: PairDemand) -> float:
    """Return the error of a corrected price, in bracket widths.

    It is by how much the ratio changes across the bracket, relative to the demand.
    """
    if len(ends) < 2 or not used.below > 0.0:
        return 1.0 / DOUBT
    return min(1.0 / DOUBT, abs(ends[1][1] - ends[0][1]) / math.log(used.above / used.below))


def _line(ratios: list[Ratio], x: float) -> float:
    """Return a ratio's logarithm at a log price."""
    if not ratios:
        return 0.0
    place, value = ratios[-1]
    slope = (value - ratios[0][1]) / (place - ratios[0][0]) if len(ratios) > 1 else 0.0
    return value + min(1.0, max(-1.0, slope)) * (x - place)


def _mixed(
    columns: Columns,
    bandwidth: float,
    ends: Prices,
    used: PairDemand,
    into: PairMemory,
    passes: int,
    jumps: IntArray,
) -> Found | None:
    """Return the mixture of both ends' best responses.

    The rates at hand are one, in shares that were told before the pass; they may do. A rounding error of the
    bandwidth is left to rates that jump, which any share suits: others may be at a kink, where a last bit
    costs as much as another's whole rate.
    """
    low, high = ends
    share = _share(bandwidth, used.above, used.below)
    price = high * (1.0 + FINE) if len(jumps) else high + share * (low - high)
    spent = used.mixed
    if abs(bandwidth - spent) > EXACT * bandwidth:
        spent, passes = at_two_prices(columns, *ends, into, share=share).mixed, passes + 2
    missing = bandwidth - spent
    if 0 < len(jumps) < columns.n:
        mixed = into.rates[jumps]
        missing = 0.0 if top_up(mixed, columns.take(jumps, len(jumps)), missing, DIVIDED) else missing
        into.rates[jumps] = into.rates[jumps] if missing else mixed
    met = abs(missing) <= EXACT * bandwidth and (
        top_up(into.rates, columns, missing, DIVIDED) or missing >= 0.0
    )
    return Found(into.rates, price, passes) if met else None


def _share(target: float, above: float, below: float) -> float:
    """Return the upper demand's share in the mixture that is wanted."""
    return min(1.0, max(0.0, (target - below) / (above - below))) if above > below else 0.0
