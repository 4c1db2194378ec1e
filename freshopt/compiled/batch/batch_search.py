"""Dual price of one small problem, by interpolation in a bracket.

Plain steps that compiled loops inline. Log demand falls with the log price x, and nearly on a straight line:
the inverse parabola through the last three points ends a search in five evaluations from a neighbour's price.
What it proposes is taken where it lies inside the bracket and the bracket shrinks, else the bracket is
halved. Where demand jumps over the bandwidth the rates are the mixture of both sides. The last steps are
those of `freshopt.compiled.batch.batch_extrapolation`, which evaluate few sources. Imported by
`freshopt.compiled.batch.batch_loops` alone.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled.batch.batch_extrapolation import extrapolated, is_near, parabola_root, used_by
from freshopt.compiled.batch.batch_records import FOUND, FREE, UNSOLVED, Bracket, Root
from freshopt.compiled.column_access import at
from freshopt.compiled.column_passes import Respond, fill_rates
from freshopt.compiled.source_columns import SourceColumns
from freshopt.numerics.arrays import ROUNDED, Array

# Bisection of 1400 nats, all that floats have, to an ulp takes 60; every other step is one at worst.
ROUNDS = 160
# Log of 1e-290, at which only refreshes of no marginal value are left undone, and of 1e300.
LOWEST, HIGHEST = -667.749674000917, 690.0
# Relative: an error of the bandwidth that is left to be divided among sources.
CLOSE = 1e-13
# Largest relative change of a rate for that, as in `freshopt.dual_search.sampled_search`.
MOST = 5e-13
# Relative: width of a price's bracket at which demand jumps inside it, beside the rounding of the log price.
WIDTH, ULP = 1e-15, 4.5e-16
# By how much a price is moved up off a jump: more than the rounding that proofs allow for, 7e-15, within
# which a linear source might take anything, however little the bandwidth is beside it.
ABOVE = 1.5e-14
# Rounds among few, of which the first are along the slope, and all others halve the bracket.
FEW_ROUNDS, STRAIGHT = 60, 4
# Nats of a first step at most, and how much longer than the last one a step may be.
REACH, LONGER = 8.0, 4.0


def settle(
    respond: Respond,
    own: SourceColumns,
    bandwidth: float,
    guess: float,
    steepness: float,
    rates: Array,
    memory: Array,
) -> Root:
    """Write a problem's rates and return its price.

    - `respond`: Writes best responses.
    - `guess`, `steepness`: A log price to start from, and −d log(demand)/d log(price) there, > 0.
    - `rates` (n,): The answer.
    - `memory` (3, n): Of the last three evaluations.
    """
    b = Bracket(-np.inf, np.inf, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan)
    x, reach, turn = min(max(guess, LOWEST), HIGHEST), REACH, 0
    while turn < ROUNDS:
        turn += 1
        now = memory[turn % 3]
        used = fill_rates(respond, own, math.exp(-x), now)
        f = math.log(used / bandwidth) if used > 0.0 else -np.inf
        if math.isnan(f):
            break
        if x == LOWEST and f <= ROUNDED:
            rates[:] = now
            return Root(FREE, 0.0, steepness, turn)
        if abs(f) <= CLOSE:
            rates[:] = now
            if divided(own, bandwidth, rates):
                return Root(FOUND, math.exp(x), slope_of(b, x, f, steepness), turn)
        # Where demand is flat the least price is lower, whatever the sign of what rounding leaves.
        more = f > ROUNDED
        b = Bracket(x if more else b.low, b.high if more else x, x, f, b.x, b.f, b.x1, b.f1)
        if b.high - b.low <= WIDTH + ULP * abs(x):
            return mixed(respond, own, bandwidth, b, steepness, rates, now, turn)
        if (more and x == HIGHEST) or (not more and x == LOWEST):
            break
        steepness = slope_of(b, b.x1, b.f1, steepness)
        x = next_price(b, steepness, reach, turn)
        beside, slope = parabola_root(b)
        if is_near(b, beside):
            last = (now, memory[(turn + 2) % 3], memory[(turn + 1) % 3])
            beside, close, done = among_few(respond, own, bandwidth, b, beside, slope, last, rates)
            if done and divided(own, bandwidth, rates):
                return Root(FOUND, math.exp(beside), steepness, turn)
            if close.high - close.low <= WIDTH + ULP * abs(beside):
                return mixed(respond, own, bandwidth, close, steepness, rates, now, turn)
        reach = LONGER * abs(x - b.x)
    return Root(UNSOLVED, np.nan, steepness, turn)


def among_few(
    respond: Respond,
    own: SourceColumns,
    bandwidth: float,
    b: Bracket,
    x: float,
    steepness: float,
    last: tuple[Array, Array, Array],
    rates: Array,
) -> tuple[float, Bracket, bool]:
    """Write rates near the last three points that use the bandwidth up.

    Returned are their log price, a bracket of it, and whether they do.
    """
    close, turn = b, 0
    while turn < FEW_ROUNDS and is_near(b, x):
        turn += 1
        used, well = extrapolated(respond, own, b, x, last, rates)
        if not well or not used > 0.0:
            break
        f = math.log(used / bandwidth)
        if abs(f) <= CLOSE:
            return x, close, True
        more = f > ROUNDED
        close = Bracket(
            x if more else close.low, close.high if more else x, x, f, close.x, close.f, close.x1, close.f1
        )
        if close.high - close.low <= WIDTH + ULP * abs(x):
            break
        # Of sources that are evaluated themselves the parabola tells nothing.
        steepness = slope_of(close, close.x1, close.f1, steepness)
        x += f / steepness
        if turn > STRAIGHT or not close.low < x < close.high:
            x = 0.5 * (close.low + close.high)
    return x, close, False


def next_price(b: Bracket, steepness: float, reach: float, turn: int) -> float:
    """Return the next log price to try, inside the bracket."""
    step = parabola(b)
    if not abs(step) < np.inf:
        step = b.f / steepness if abs(b.f) < np.inf else math.copysign(reach, b.f)
    x = b.x + min(reach, max(-reach, step))
    if b.high - b.low < np.inf:
        # Of eight turns at least one halves the bracket, and all once it ought to have ended.
        if turn % 8 == 0 or turn > 32 or not b.low < x < b.high:
            x = 0.5 * (b.low + b.high)
    elif not b.low < x < b.high:
        # Towards the side that is open.
        x = b.x + math.copysign(min(reach, REACH * LONGER), b.f)
    return min(max(x, LOWEST), HIGHEST)


def parabola(b: Bracket) -> float:
    """Return the step to the root of the inverse parabola, or NaN.

    It goes through the last three points, in Newton's form; through the last two where there are no more.
    """
    first = (b.x1 - b.x) / (b.f1 - b.f)
    step = -b.f * first
    if not first < 0.0:
        return np.nan
    second = ((b.x2 - b.x1) / (b.f2 - b.f1) - first) / (b.f2 - b.f)
    bent = step + b.f * b.f1 * second
    # A parabola that turns round before the root is none.
    return bent if abs(bent - step) < 0.5 * abs(step) else step


def slope_of(b: Bracket, x: float, f: float, steepness: float) -> float:
    """Return the steepness between the newest point and another one."""
    secant = (f - b.f) / (b.x - x)
    return secant if 1e-3 < secant < 1e3 else steepness


def divided(own: SourceColumns, bandwidth: float, rates: Array) -> bool:
    """Divide what is left of the bandwidth among interior sources.

    The result is whether they took it.
    """
    interior = 0.0
    for k in range(len(rates)):
        # Calculated before it is chosen: loops are vectorised only so.
        used = at(own.cost, k) * rates[k]
        interior += used if (rates[k] > at(own.lower, k)) & (rates[k] < at(own.upper, k)) else 0.0
    share = (bandwidth - used_by(own, rates)) / interior if interior > 0.0 else np.inf
    if not abs(share) <= MOST:
        return False
    for k in range(len(rates)):
        r, lower, upper = rates[k], at(own.lower, k), at(own.upper, k)
        changed = min(max(r * (1.0 + share), lower), upper)
        rates[k] = changed if (r > lower) & (r < upper) else r
    return True


def mixed(
    respond: Respond,
    own: SourceColumns,
    bandwidth: float,
    b: Bracket,
    steepness: float,
    rates: Array,
    other: Array,
    turn: int,
) -> Root:
    """Write the mixture of rates on both sides of a jump."""
    fill_rates(respond, own, math.exp(-b.low), other)
    fill_rates(respond, own, math.exp(-b.high), rates)
    most, least = used_by(own, other), used_by(own, rates)
    if not most > least:
        return Root(UNSOLVED, np.nan, steepness, turn + 2)
    share = min(1.0, max(0.0, (bandwidth - least) / (most - least)))
    for k in range(len(rates)):
        rates[k] = rates[k] + share * (other[k] - rates[k])
    return Root(FOUND, math.exp(b.high) * (1.0 + ABOVE), steepness, turn + 2)
