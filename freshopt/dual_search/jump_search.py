"""Jump search: the dual price where demand jumps, or is nearly flat.

Where a sample does not tell the price, it is enclosed by passes at two prices at once
(`freshopt.compiled.price_pairs`). Demand within a bracket is that of a few sources whose rates jump, which
are settled alone and exactly, and that of all others, which is a chord: off by the square of the width.
So brackets narrow from 1e-4 to 1e-8 to nothing in a pass each. Before there is a bracket, and where too many
sources jump, as where all are alike, the sample tells the price, corrected by what is known of all.

The ends of the last bracket differ by rounding, or by 1e-7 where no rate jumps: the mixture of their best
responses that uses up the bandwidth is off the optimum by the square of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from freshopt.compiled.columns import Columns
from freshopt.compiled.price_pairs import PairDemand, PairMemory, at_two_prices, memory
from freshopt.dual_search.sampled_search import EXACT, SAMPLE, SPARSE, Found, first_price, top_up
from freshopt.numerics.arrays import ROUNDED

Prices: TypeAlias = tuple[float, float]
# Log price, log(demand of all / demand of the sample).
Ratio: TypeAlias = tuple[float, float]

# A sample of fewer tells nothing, and costs nothing.
FEW = 1000
# Half the relative width of the narrowest bracket, and by how much a price is moved up off the jumps: more
# than the rounding that proofs allow for, 7e-15, within which a linear source might take anything.
FINE = 1.5e-14
# Brackets so wide are not narrowed further; the second are those in which no rate jumps.
NARROW, SMOOTH = 1e-13, 1e-7
# Sources whose rate changes by more than so many times the width of the bracket are settled alone.
STEEP, STEEPEST = 64.0, 0.5
# They are if they are at most one in so many: the search among them costs less than a pass.
ALONE = 32
# A corrected price is off by a fraction of its correction, mostly a smaller one.
DOUBT = 4.0
# After so many brackets beside the price the next ones divide what is known.
MISSES = 3
# Nats from the known end of a bracket that has one, times four for each miss.
FIRST_REACH = 0.05
# Passes at two prices at most: thirds of 1336 nats are 1e-15 after 38.
PASSES = 64
# Demands of few sources at most, of which each third halves the bracket.
STEPS = 240
# The first factor by which a search leaves its start; the next are squares.
LEAVE = 1.05
# Prices nearer to each other than this tell no slope of the ratio, and none is steeper than 1.
APART = 1e-9
# Nats beyond which a sample's price says that the sample has none.
FAR = 650.0
# Prices are sought between.
LOWEST, HIGHEST = 1e-290, 1e290


def jump_search(columns: Columns, bandwidth: float, start: float | None = None) -> Found | None:
    """Return rates that use up the bandwidth, or None.

    Their price is the least. None means that no price between `LOWEST` and `HIGHEST` does, or that a demand
    is infinite.

    Parameters
    ----------
    columns : Columns
        The sources; their lower bounds must ask for less than the bandwidth.
    bandwidth : float
    start : float, optional
        A price to start from.
    """
    target, into = bandwidth * (1.0 + ROUNDED), memory(columns.n)
    sample = columns.sample(max(min(columns.n, FEW), min(SAMPLE, columns.n // SPARSE)))
    ratios: list[Ratio] = []

    def like_all(price: float) -> float:
        return sample.demand(price) * (columns.n / sample.n) * math.exp(_line(ratios, math.log(price)))

    low, high = LOWEST, HIGHEST
    if like_all(low) <= 2.0 * target and columns.fill(low, into.rates) <= target:
        return Found(into.rates, 0.0, 1)
    start = start if start is not None and low < start < high else first_price(columns, bandwidth)
    price, width, misses = crossing(like_all, target, start, low, high), FINE, 0
    price = price if abs(math.log(price)) < FAR else start
    for turn in range(1, PASSES + 1):
        a, b = _around(price, width, low, high)
        if misses and _few_change(sample, low, high):
            a, b = low, high
        elif misses >= MISSES or not low <= a < b <= high:
            a, b = _divided(low, high, FIRST_REACH * 4.0**misses)
        apart = math.log(b) - math.log(a) if b > 2.0 * a else math.log1p((b - a) / a)
        # Across a wide bracket few rates may change at all.
        used = at_two_prices(columns, a, b, into, steep=STEEP * apart if STEEP * apart < STEEPEST else 0.0)
        if not math.isfinite(used.above):
            return None
        enclosed = used.below <= target < used.above
        if enclosed:
            jumps = np.flatnonzero(into.jumps)
            if apart <= (NARROW if len(jumps) else SMOOTH):
                return _mixed(columns, bandwidth, (a, b), used, into, 2 * turn + 2, jumps=len(jumps) > 0)
            low, high, misses = a, b, 0
            if len(jumps) * ALONE <= columns.n:
                alone = columns.take(jumps, len(jumps))
                middle = price if a < price < b else math.sqrt(a) * math.sqrt(b)
                price = crossing(_with_chord(alone, (a, b), used), target, middle, a, b)
                smooth = (used.smooth_above - used.smooth_below) / (used.above - used.below)
                width = max(FINE, 0.5 * apart * apart * smooth)
                continue
        else:
            low, high = (b, high) if used.above > target else (low, a)
            misses += 1
        ends = _ratios(sample, columns.n / sample.n, (a, b), used)
        ratios = _apart([*ratios, *ends])
        following = crossing(like_all, target, min(max(price, low), high), low, high)
        off = _doubt(ends, used) * apart if enclosed else abs(math.log(following) - math.log(price)) / DOUBT
        price, width = following, max(FINE, off)
    return None


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


def _few_change(sample: Columns, low: float, high: float) -> bool:
    """Return whether the rates that change can be settled alone."""
    generous, frugal = np.empty(sample.n), np.empty(sample.n)
    sample.fill(low, generous)
    sample.fill(high, frugal)
    return 2 * ALONE * int(np.count_nonzero(generous > frugal)) <= sample.n


def _with_chord(alone: Columns, ends: Prices, used: PairDemand) -> Callable[[float], float]:
    """Return the demand of some sources plus the others' chord.

    The chord is on logarithms, on which power laws are straight.
    """
    above, below, span = used.smooth_above, used.smooth_below, math.log1p((ends[1] - ends[0]) / ends[0])

    def demand(price: float) -> float:
        part = math.log1p((price - ends[0]) / ends[0]) / span
        others = above * (below / above) ** part if below > 0.0 else above + part * (below - above)
        return others + (alone.demand(price) if alone.n else 0.0)

    return demand


def _ratios(sample: Columns, weight: float, ends: Prices, used: PairDemand) -> list[Ratio]:
    """Return the ratios of demands at two prices, where there are any."""
    some = [(price, sample.demand(price) * weight) for price in ends]
    both = zip(some, (used.above, used.below), strict=True)
    return [(math.log(price), math.log(all_ / few)) for (price, few), all_ in both if few > 0.0 < all_]


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
    *,
    jumps: bool,
) -> Found | None:
    """Return the mixture of both ends' best responses."""
    share = min(1.0, max(0.0, (bandwidth - used.below) / (used.above - used.below)))
    low, high = ends
    price = high * (1.0 + FINE) if jumps else high + share * (low - high)
    spent = at_two_prices(columns, *ends, into, share=share).mixed
    missing = bandwidth - spent
    met = abs(missing) <= EXACT * bandwidth and (top_up(into.rates, columns, missing) or missing >= 0.0)
    return Found(into.rates, price, passes) if met else None
