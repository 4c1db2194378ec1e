"""Compiled passes over local models of demand functions.

This module imports numba and is imported when first needed. Each loop does in one pass over a chunk what
`freshopt.dual_search.local_models` writes in a dozen, for one price that all sources pay. All sources are
first taken for being in the segment of their latest evaluation, which a processor does in its lanes; the few
that are not at this price follow one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from freshopt.compiled.column_access import at
from freshopt.compiled.kept_code import compile_loop
from freshopt.compiled.loops import FAST
from freshopt.compiled.model_passes import Line
from freshopt.compiled.source_columns import Data
from freshopt.numerics.arrays import Array
from freshopt.numerics.vector_math import fast_exp, fast_log

# Exponents of e below which a rate is none.
LEAST = -700.0
# Paces beyond are those of marginals that do not fall; parts of an inverse marginal below are rounding.
STEEP, ROUNDING = 1e18, 1e-17
# The least number whose logarithm is taken, and marginal that has a line.
NORMAL = 1e-300

INLINED: Any = {"forceinline": True, "fastmath": {"contract"}}


@register_jitable(fastmath={"contract"})
def in_segment(price: float, cap: Data, falls: Array, table: Array, k: int) -> tuple[float, float]:
    """Return the rate at a price, and its fall, by segments alone.

    That is by the line which is right near the ends of the segment that holds the rate.
    """
    place = 0
    while price < falls[place + 1, k]:
        place += 1
    begin, share, most = table[0, place, k], table[2, place, k], at(cap, k)
    over, end = price - table[3, place, k], table[1, place, k]
    end = end if end < most else most
    if over <= 0.0:
        return end, 0.0
    inverse = 1.0 / over
    beyond = inverse - table[4, place, k]
    if beyond <= 0.0:
        return begin, 0.0
    way = 1.0 / (1.0 / (table[5, place, k] * beyond) + share)
    if not begin + way < end:
        return end, 0.0
    return begin + way, way * (1.0 - share * way) * (price * inverse) * (inverse / beyond)


@register_jitable(fastmath={"contract"})
def newton_rate(
    line: Line, k: int, rate: float, marginal: float, bend: float, price: float, most: float
) -> float:
    """Return the rate of Newton's step on the marginal.

    It stands for a line where there is none.
    """
    begin, end, share = line.begin[k], line.ceiling[k], line.share[k]
    way = rate - begin
    gain = 1.0 / (1.0 / way - share)
    down = begin + way / most
    top = begin + 1.0 / (1.0 / (gain * most) + share)
    top = top if (way > 0.0) & (top < end) else end
    plain = rate + (marginal - price) / bend
    plain = plain if abs(plain) < np.inf else (0.5 * (rate + end) if marginal > price else down)
    plain = plain if plain > down else down
    plain = plain if plain < top else top
    return rate if marginal == price else plain


@register_jitable(**INLINED)
def put_in_segments(
    paid: float,
    most: float,
    rate: Array,
    slope: Array,
    curvature: Array,
    falls: Array,
    table: Array,
    cost: Data,
    marginal: Array,
    line: Line,
) -> None:
    """Put a line through each evaluation, in its segment.

    At the ends of segments, and in linear ones, lines stay as they are.
    """
    begin, share, least, edge, gain, level, pace, floor, ceiling, below, above = line
    for k in range(len(rate)):
        own, place = slope[k] / at(cost, k), 0
        while (rate[k] > table[1, place, k] and falls[place + 1, k] > -np.inf) or (
            rate[k] == table[1, place, k] and paid < falls[place + 1, k]
        ):
            place += 1
        if rate[k] == table[1, place, k] and falls[place + 1, k] > -np.inf:
            own = table[3, place, k]
        elif place > 0 and rate[k] == table[0, place, k]:
            own = falls[place, k]
        marginal[k] = own
        begin[k], ceiling[k], share[k] = table[0, place, k], table[1, place, k], table[2, place, k]
        least[k], edge[k], gain[k] = table[3, place, k], table[4, place, k], table[5, place, k]
        above[k], below[k] = falls[place, k], falls[place + 1, k]
    lineless = 0.0
    # Many short loops that write one array each: others are not vectorised.
    for k in range(len(rate)):
        inside = (rate[k] > begin[k]) & (rate[k] < ceiling[k]) & (edge[k] < np.inf)
        found = 1.0 / (1.0 / (rate[k] - begin[k]) - share[k])
        usable = (found > 0.0) & (found < np.inf) & (marginal[k] - least[k] > NORMAL)
        floor[k] = (1.0 if usable else -1.0) if inside else 0.0
        lineless += 1.0 if floor[k] < 0.0 else 0.0
    for k in range(len(rate)):
        found = 1.0 / (1.0 / (rate[k] - begin[k]) - share[k])
        gain[k] = found if floor[k] > 0.0 else gain[k]
    for k in range(len(rate)):
        inverse = 1.0 / (marginal[k] - least[k])
        gained = inverse - edge[k]
        gained = gained if gained > ROUNDING * inverse else ROUNDING * inverse
        level[k] = gained if floor[k] > 0.0 else 1.0
    for k in range(len(rate)):
        over, way = marginal[k] - least[k], rate[k] - begin[k]
        step = over / (way * (curvature[k] / at(cost, k))) * (level[k] * over) * (gain[k] / way)
        step = step if step < STEEP else STEEP
        step = step if step > 0.0 else STEEP
        pace[k] = step if floor[k] > 0.0 else 1.0
    for k in range(len(rate)):
        level[k] = -fast_log(level[k])
    if lineless > 0.0:
        for k in range(len(rate)):
            if floor[k] < 0.0:
                bend = curvature[k] / at(cost, k)
                ceiling[k] = newton_rate(line, k, rate[k], marginal[k], bend, paid, most)
                floor[k] = -ceiling[k]
    for k in range(len(rate)):
        up = begin[k] + (rate[k] - begin[k]) * most
        bound = (share[k] > 0.0) | (ceiling[k] < up) | (floor[k] <= 0.0)
        ceiling[k] = ceiling[k] if bound else up
    for k in range(len(rate)):
        down = begin[k] + (rate[k] - begin[k]) / most
        lined = down if (floor[k] > 0.0) & (edge[k] <= 0.0) else begin[k]
        floor[k] = -floor[k] if floor[k] < 0.0 else lined


def build(limited: bool, bent: bool) -> tuple[Callable[..., Any], ...]:
    """Return the loops (respond, fill, take).

    Of sources that are limited, the marginal where the first segment begins may be finite; costs that are
    bent have kinks, and their sources are limited.
    """

    @register_jitable(**INLINED)
    def grown(price: float, least: float, edge: float, gain: float, level: float, pace: float) -> float:
        """Return the variable of the rate."""
        over = price - least if bent else price
        beyond = 1.0 / over - edge if limited else 1.0 / over
        power = pace * (level + fast_log(beyond if beyond > NORMAL else NORMAL))
        factor = fast_exp(power)
        return gain * (factor if power > LEAST else 0.0)

    @register_jitable(**INLINED)
    def rate_of(
        price: float,
        found: float,
        begin: float,
        share: float,
        least: float,
        edge: float,
        floor: float,
        ceiling: float,
    ) -> float:
        """Return the rate of a variable, between its bounds."""
        over = price - least if bent else price
        rate = begin + 1.0 / (1.0 / found + share) if bent else found
        rate = rate if rate > floor else floor
        rate = rate if rate < ceiling else ceiling
        if limited:
            rate = rate if 1.0 / over > edge else begin
        if bent:
            rate = rate if over > 0.0 else ceiling
        return rate

    @register_jitable(**INLINED)
    def responded(
        price: float,
        begin: float,
        share: float,
        least: float,
        edge: float,
        gain: float,
        level: float,
        pace: float,
        floor: float,
        ceiling: float,
    ) -> tuple[float, float]:
        """Return the rate at a price, and its fall per nat."""
        found = grown(price, least, edge, gain, level, pace)
        rate = rate_of(price, found, begin, share, least, edge, floor, ceiling)
        fall = rate * pace
        if bent:
            way, inverse = rate - begin, 1.0 / (price - least)
            fall = way * (1.0 - share * way) * pace * (price * inverse)
            difference = inverse - edge
            fall = fall * (inverse / (difference if difference > NORMAL else NORMAL))
            fall = fall if fall < np.inf else 0.0
        elif limited:
            inverse = 1.0 / price
            difference = inverse - edge
            fall = fall * (inverse / (difference if difference > NORMAL else NORMAL))
        return rate, fall if (rate > floor) & (rate < ceiling) else 0.0

    @register_jitable(**INLINED)
    def line_of(line: Line, k: int) -> tuple[float, ...]:
        inner = at(line.begin, k), at(line.share, k), at(line.least, k), line.edge[k], line.gain[k]
        return *inner, line.level[k], line.pace[k], line.floor[k], line.ceiling[k]

    @register_jitable(**INLINED)
    def elsewhere(price: float, line: Line, k: int) -> Data:
        return (price < at(line.below, k)) | (price >= at(line.above, k))

    @register_jitable(**INLINED)
    def write(price: float, line: Line, cap: Data, falls: Array, table: Array, out: Array) -> None:
        # Two short loops: one with so many arrays is not vectorised.
        for k in range(len(out)):
            inner = at(line.least, k), line.edge[k], line.gain[k], line.level[k], line.pace[k]
            out[k] = grown(price, *inner)
        for k in range(len(out)):
            begin, share, least = at(line.begin, k), at(line.share, k), at(line.least, k)
            bounds = line.floor[k], line.ceiling[k]
            out[k] = rate_of(price, out[k], begin, share, least, line.edge[k], *bounds)
        if bent:
            for k in range(len(out)):
                if elsewhere(price, line, k):
                    out[k], _ = in_segment(price, cap, falls, table, k)

    @compile_loop(fastmath=FAST)
    def respond(
        price: float, line: Line, cap: Data, falls: Array, table: Array, cost: Data
    ) -> tuple[float, float]:
        used = fallen = 0.0
        for k in range(len(line.gain)):
            rate, fall = responded(price, *line_of(line, k))
            if bent:
                here = not elsewhere(price, line, k)
                rate, fall = rate if here else 0.0, fall if here else 0.0
            used += rate * at(cost, k)
            fallen += fall * at(cost, k)
        if bent:
            for k in range(len(line.gain)):
                if elsewhere(price, line, k):
                    rate, fall = in_segment(price, cap, falls, table, k)
                    used += rate * at(cost, k)
                    fallen += fall * at(cost, k)
        return used, fallen

    @compile_loop(fastmath=FAST)
    def fill(price: float, line: Line, cap: Data, falls: Array, table: Array, out: Array) -> None:
        write(price, line, cap, falls, table, out)

    @register_jitable(**INLINED)
    def put_through(
        most: float,
        rate: Array,
        slope: Array,
        curvature: Array,
        lower: Data,
        upper: Data,
        cost: Data,
        marginal: Array,
        line: Line,
    ) -> float:
        negative = 0.0
        # Several short loops: one with so many arrays is not vectorised.
        level, pace, floor, ceiling, edge = line.level, line.pace, line.floor, line.ceiling, line.edge
        for k in range(len(rate)):
            own = slope[k] / at(cost, k)
            marginal[k] = own
            negative += 0.0 if own > NORMAL else 1.0
            pace[k] = own * at(cost, k) / (rate[k] * curvature[k])
        for k in range(len(rate)):
            if limited:
                inner = 1.0 / marginal[k]
                gained = inner - edge[k]
                gained = gained if gained > ROUNDING * inner else ROUNDING * inner
                level[k] = -fast_log(gained)
                pace[k] *= gained * marginal[k]
            else:
                level[k] = fast_log(marginal[k])
        for k in range(len(rate)):
            step = pace[k] if pace[k] < STEEP else STEEP
            pace[k] = step if step > 0.0 else STEEP
            least = rate[k] * (1.0 / most)
            least = least if least > at(lower, k) else at(lower, k)
            floor[k] = at(lower, k) if limited & (edge[k] > 0.0) else least
            top = rate[k] * most
            ceiling[k] = top if top < at(upper, k) else at(upper, k)
        return negative

    @compile_loop(fastmath=FAST)
    def take(
        paid: float,
        least: float,
        most: float,
        still: float,
        rates: Array,
        rate: Array,
        slope: Array,
        curvature: Array,
        falls: Array,
        table: Array,
        at_begin: Array,
        lower: Data,
        upper: Data,
        cost: Data,
        marginal: Array,
        line: Line,
    ) -> tuple[float, float, float]:
        lost = negative = 0.0
        if bent:
            put_in_segments(paid, most, rate, slope, curvature, falls, table, cost, marginal, line)
        else:
            negative = put_through(most, rate, slope, curvature, lower, upper, cost, marginal, line)
        target = np.empty(len(rate))
        write(least, line, upper, falls, table, target)
        # As numbers that are not negative are ordered as their bits are, whose maximum is vectorised.
        largest = np.int64(0)
        for k in range(len(rate)):
            there = marginal[k] if rates[k] > 0.0 else at_begin[k]
            move, off = abs(target[k] - rates[k]), abs(there - paid)
            # A line that leaves a source at rate 0 that would pay more is wrong.
            move = rate[k] if (rates[k] <= 0.0) & (target[k] <= 0.0) & (there > paid) else move
            loss = move * off if move > 0.0 else 0.0
            lost += loss * at(cost, k)
            off = off if (loss > 0.0) & (move > still * rate[k]) else 0.0
            bits = np.float64(off).view(np.int64)
            largest = bits if bits > largest else largest
        return lost, np.int64(largest).view(np.float64), negative

    return respond, fill, take
