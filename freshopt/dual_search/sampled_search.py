"""Sampled search: the dual price in a few passes over all sources.

Ten million sources take three or four passes. The demand of an evenly spaced sample, scaled up, is nearly the
demand of all; the logarithm of their ratio hardly changes with the price. So the second price is sought on
the sample, corrected by the ratio at the first, and the third with the line through two such ratios: errors
of the bandwidth of 1e-3, 1e-6 and 1e-12 where demand is smooth, and for power laws nothing after the first.
What is left is found by inverse interpolation on the demands of all. The pass that meets the bandwidth to
rounding has written the rates.

What rounding leaves of the bandwidth goes to a few sources, whose rates change by 1e-11 at most.
Everything here is a proposal: where the demand jumps, the sample sees too little, or the bandwidth does not
bind, there is no answer and the bracketing search of `freshopt.dual_search.price_bracketing` takes over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.compiled.cells.attempt_functions import attempt_binary
from freshopt.compiled.cells.conditional_functions import binary_changed
from freshopt.compiled.cells.request_functions import request_binary
from freshopt.compiled.columns import Columns
from freshopt.compiled.demand_functions import binary_periodic, materials, polls
from freshopt.numerics.arrays import Array, chunks

# A price, and the demand of all sources at it.
Known: TypeAlias = tuple[float, float]

# Sources of the sample, and of the one that finds where to start.
SAMPLE, FIRST = 50_000, 1000
# A sample is at most one in so many sources.
SPARSE = 16

# Passes over all sources at most; 4 suffice where demand is smooth.
PASSES = 8
# A relative error of the bandwidth up to this is left to a few sources.
EXACT = 1e-13
# So is one up to this where demand is smooth and earlier passes tell the price that has none.
CLOSE = 1e-12
# Largest relative change of a rate for that.
MOST = 1e-11
# From the third pass on an error that is more than this of the last one's tells that demand is not smooth:
# that of smooth demand is a hundredth and less.
STALLED = 0.1
# Demand with an infinite slope where a source leaves: from the second pass on errors are those of the few
# that are about to, which another search settles alone.
ABRUPT = (binary_periodic, polls, materials, attempt_binary, binary_changed, request_binary)
# Up to this predicted error a pass writes rates, in the hope of being the last.
LOOSE = 1e-8
# Nats by which the slope of log demand may differ a factor e further on.
POWER = 1e-9
# Steps of the search on the sample, its relative accuracy, and that where a sample is all there is.
_STEPS, _FINE, _ROUGH = 60, 1e-15, 1e-4
# A corrected sample is searched to this share of the last error: it tells a hundredth of that.
_BELOW = 1e-4
# So steep log demand jumps, if it is between two log prices that are so near to each other. After so many
# steps two of three halve the bracket.
_STEEP, _NEAR, _SMOOTH = 100.0, 1e-6, 8
# Nats from a price of 1, beyond which prices near the ends of the floats.
_FAR = 600.0


class Found(NamedTuple):
    """Rates, their dual price, and the passes it took."""

    rates: Array
    price: float
    passes: int


def sampled_search(
    columns: Columns,
    bandwidth: float,
    start: float | None = None,
    used_at_start: float | None = None,
    known: list[Known] | None = None,
) -> Found | None:
    """Return rates that use up the bandwidth, or None.

    None means that the sample does not tell the price.

    - `columns`: The sources; their upper limits must ask for more than the bandwidth.
    - `start`: A price to start from; the closer it is, the fewer passes.
    - `used_at_start`: The bandwidth used at that price, if it is known: it takes the place of the first pass.
    - `known` list of (float, float): Prices and the demands of all sources at them are appended, of every
      pass.
    """
    sample = columns.sample(min(SAMPLE, columns.n // SPARSE))
    weight, target = columns.n / sample.n, math.log(bandwidth)

    def excess(x: float, correction: float) -> float:
        used = sample.demand(math.exp(x)) * weight
        return correction - target + (math.log(used) if 0.0 < used < math.inf else (used > 1.0) * 2e3 - 1e3)

    if start is None:
        few = sample.n > FIRST  # then a smaller sample tells where to begin
        near = math.log(first_price(columns, bandwidth)) if few else 0.0
        x = root(lambda x: excess(x, 0.0), near, _ROUGH)
    else:
        x = math.log(start)
    abrupt = columns.formula in ABRUPT
    eager = _straight(sample.sample(FIRST), x)
    seen: list[tuple[float, float]] = []  # log(demand / bandwidth), log price
    ratios: list[tuple[float, float]] = []  # log price, log(demand / demand of the sample)
    rates: Array | None = None
    low, high, error, given = -_FAR, _FAR, 1.0, 0
    if start is not None and used_at_start is not None and abs(used_at_start / bandwidth - 1.0) > EXACT:
        off, given = math.log(used_at_start / bandwidth), 1
        seen, ratios = [(off, x)], [(x, off - excess(x, 0.0))]
        x = root(lambda x: excess(x, ratios[0][1]), x, _BELOW * abs(off))
        error = min(1.0, abs(off))
    for passes in range(1 + given, PASSES + 1 + given):
        if not low < x < high:  # also NaN, or a price that was tried: the demand jumps
            return None
        price = math.exp(x)
        used = columns.demand(price) if (passes != 2 or not eager) and error > LOOSE else math.nan
        if not abs(used / bandwidth - 1.0) > EXACT:
            rates = np.empty(columns.n) if rates is None else rates
            used = columns.fill(price, rates)
            wrong = abs(used / bandwidth - 1.0)
            if wrong <= (CLOSE if seen and not abrupt else EXACT):
                if _any_inside(rates, columns) and top_up(rates, columns, bandwidth - used):
                    if wrong > EXACT:
                        last = math.log(used / bandwidth), x
                        price = math.exp(interpolated([*seen[-2:], last], 0.0))
                    return Found(rates, price, passes - given)
                if wrong <= EXACT:
                    return None
        if not 0.0 < used < math.inf:
            return None
        if known is not None:
            known.append((price, used))
        off = math.log(used / bandwidth)
        low, high = (x, high) if off > 0.0 else (low, x)
        if (abrupt and passes > 1 and abs(off) > LOOSE) or (
            passes > 2 and abs(off) > STALLED * abs(seen[-1][0])
        ):
            return None
        error *= min(1.0, abs(off))  # the next one's, about
        seen.append((off, x))
        if passes <= 2:
            if any(x == place for place, _ in ratios):
                return None
            ratios.append((x, off - excess(x, 0.0)))
            x = root(lambda x: excess(x, interpolated(ratios, x)), x, _BELOW * abs(off))
        else:
            offs = {value for value, _ in seen[-3:]}
            x = interpolated(seen[-3:], 0.0) if len(offs) == 3 else math.nan  # demand is flat
    return None


def _straight(few: Columns, x: float) -> bool:
    """Return whether demand is a power of the price near e^x.

    The second pass is then the last.
    """
    used = [few.demand(math.exp(x + ahead)) for ahead in (0.0, 1.0, 2.0)]
    here, there, beyond = (math.log(one) if 0.0 < one < math.inf else math.nan for one in used)
    return abs((beyond - there) - (there - here)) <= POWER


def first_price(columns: Columns, bandwidth: float, size: int = FIRST, near: float = 1.0) -> float:
    """Return a dual price of `size` sampled sources, or 1.

    The search begins `near` a price.
    """
    few = columns.sample(size)
    weight, target = columns.n / few.n, math.log(bandwidth)
    tiny = np.finfo(float).tiny
    x = root(
        lambda x: math.log(max(tiny, min(1.0 / tiny, few.demand(math.exp(x)) * weight))) - target,
        math.log(near),
        _ROUGH,
    )
    return math.exp(x) if math.isfinite(x) else 1.0


def top_up(rates: Array, columns: Columns, missing: float, most: float = MOST) -> bool:
    """Spread a rounding error of the bandwidth over interior sources.

    They are the sources between their bounds. The result is whether they took it.

    - `rates` (n,): Changed in place.
    - `missing`: Bandwidth to be added, or taken away.
    - `most`: Largest relative change of a rate.
    """
    for part in chunks(columns.n):
        if missing == 0.0:
            return True
        mine = rates[part]
        lower, upper, cost = (
            value[part] if isinstance(value, np.ndarray) else value
            for value in (columns.lower, columns.upper, columns.cost)
        )
        inside = (mine > lower) & (mine < upper)
        room = float(np.sum(np.where(inside, cost * mine, 0.0)))
        if room == 0.0:
            continue
        share = min(most, max(-most, missing / room))
        mine[...] = np.where(inside, np.clip(mine * (1.0 + share), lower, upper), mine)
        missing = 0.0 if abs(share) < most else missing - share * room
    return missing == 0.0


def _any_inside(rates: Array, columns: Columns) -> bool:
    """Return whether any source is strictly between its bounds."""
    for part in chunks(columns.n):
        lower, upper = (
            value[part] if isinstance(value, np.ndarray) else value
            for value in (columns.lower, columns.upper)
        )
        if bool(np.any((rates[part] > lower) & (rates[part] < upper))):
            return True
    return False


def interpolated(points: list[tuple[float, float]], x: float) -> float:
    """Return Newton's polynomial through a few points at x."""
    value, product, table = 0.0, 1.0, list(points[::-1])
    column = [y for _, y in table]
    for k, (place, _) in enumerate(table):
        value += column[0] * product
        product *= x - place
        column = [
            (column[j + 1] - column[j]) / (table[j + k + 1][0] - table[j][0]) for j in range(len(column) - 1)
        ]
    return value


def root(excess: Callable[[float], float], x: float, fine: float = _FINE) -> float:
    """Return a decreasing function's root by bracketed secants, or NaN.

    Where the value is at most `fine` one more secant ends the search, and its value is not looked at.
    """
    low, high = -math.inf, math.inf
    before, value_before, reach = x, math.nan, 1.0
    for turn in range(_STEPS):
        value = excess(x)
        if abs(value) <= _FINE:
            return x
        low, high = (x, high) if value > 0.0 else (low, x)
        if high - low <= _NEAR and abs(value) > _STEEP * (high - low):
            return x
        slope = (value - value_before) / (x - before) if x != before else math.nan
        if turn > 0 and abs(value) <= fine:
            last = x - value / slope if slope < 0.0 else x
            return last if low < last < high else x
        step = -value / slope if slope < 0.0 else value  # demand falls about as the price rises
        reach = 4.0 * min(abs(step), reach) if math.isfinite(step) else 4.0 * reach
        step = min(reach, max(-reach, step)) if math.isfinite(step) else math.copysign(reach, value)
        if abs(step) <= _FINE * max(1.0, abs(x)):  # what is left is rounding
            return x
        before, value_before, x = x, value, x + step
        late = turn >= _SMOOTH and turn % 3 > 0 and math.isfinite(high - low)
        if late or not low < x < high:
            x = 0.5 * (low + high)
            if x in (low, high):
                return x
        if abs(x) > _FAR:
            return math.nan
    return x
