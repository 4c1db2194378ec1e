"""Dual variable of one host limit, by a secant search.

The search runs on logarithms, in plain steps that compiled loops inline.

At the price sought the host's sources use its limit. Demand falls with the price, so the root stays between a
price at which they use more and one at which they use no more; the secant of log demand over log price is
followed as long as it stays between them. Where demand has steps, secants crawl: the source with the largest
one between the two prices is searched for its own, alone, and both sides of it are tried.

Where demand is the limit on a whole interval of prices the least one is the answer: the search goes on unless
a source is strictly between its bounds, which makes it unique.

Prices are kept as logarithms x, demand as the excess log(used / limit).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from freshopt.compiled.column_access import at, copied, part, written
from freshopt.compiled.column_passes import Respond, bandwidth_used, fill_rates
from freshopt.compiled.source_columns import SearchStart, SourceColumns
from freshopt.numerics.arrays import ROUNDED, Array, IntArray

# Bisection of 1400 nats, all that floats have, to an ulp takes 60.
ROUNDS = 200
# After so many turns the bracket is halved, whatever else is known.
LATE = 32
# A smooth search has ended after so many turns, and steps of demand are looked for; if there are none, again
# after some more.
SMOOTH, AGAIN = 6, 4
# A rate that changes by more than so many times the bracket's width is a step. Of more steps than a few the
# largest is not likely to be the one where the price is: the bracket is halved first.
STEEP, FEW = 64.0, 2
# A bracket that is too wide to tell them is halved, where the last demand was off by more than this: that of
# no smooth search still is.
FLAT = 1e-2
# Where they are no fewer than this share of the last time's, they are at one price: it is searched for, and
# again as soon as both its sides are known.
FEWER, SIDES = 4, 3
# Prices that a single source's step is sought at, at once.
AT_ONCE = 16
# In nats: demand at a floor that is farther away may be a ceiling, and tell nothing.
NEAR = 20.0
# Brackets beside which a jump may lie, each eight times as far.
WIDER = 12
# Relative: width of a price's bracket at which demand jumps inside it.
WIDTH = 1e-13
# Relative: an error of the limit that is left to be divided among sources.
CLOSE = 1e-13
# The root's distance from the last log price times that of the last two, where a secant ends a search: demand
# may be nearly flat, and its sources' rates are not.
FAINT = 1e-10
ULP, EPS = 4e-16, float(np.finfo(np.float64).eps)

# How a search goes: on, or ended because demand is the limit, is linear between the last two prices to
# rounding, or jumps over the limit. If it ends while it still goes on, there is no price.
GOES_ON, MET, LINEAR, JUMPS = 0, 1, 2, 3


class HostSearch(NamedTuple):
    """How a search ended.

    - `state`: One of `GOES_ON`, `MET`, `LINEAR`, `JUMPS`.
    - `x`, `before`: The last log price, and the one before.
    - `low`, `high`: Log prices on both sides of the root.
    - `turn`: The last turn. The two vectors of rates have changed places as many times.
    """

    state: int
    x: float
    before: float
    low: float
    high: float
    turn: int


class Step(NamedTuple):
    """Largest step of demand in a bracket.

    `x` is the log price where it is at its share, NaN where it is not searched for, and `many` how many
    sources have one.
    """

    x: float
    many: int


class Stride(NamedTuple):
    """Step in the log price, its slope and the next leap.

    `steepness` led to `step`; `leap` is the next step where there is no slope.
    """

    step: float
    steepness: float
    leap: float


def settle_host(
    respond: Respond,
    own: SourceColumns,
    limit: float,
    used: float,
    start: SearchStart,
    scratch: Array,
    spare: SourceColumns,
    members: IntArray,
    out: Array,
) -> float:
    """Write one host's rates and return its price if the limit binds.

    Where the limit does not bind nothing is written and the price is 0.

    `used` is the bandwidth used at the floor; `scratch` has two rows with room for the rates of its sources,
    and `spare` is that of `search_price`.
    """
    many = len(members)
    one, other = scratch[0, :many], scratch[1, :many]
    excess = math.log(used / limit)
    # An excess so small may come from the order in which demand was added.
    if excess <= many * EPS:
        excess = math.log(fill_rarely(respond, own, math.exp(-start.floor), one) / limit)
        if excess <= ROUNDED:
            return 0.0
    found = search_price(respond, own, limit, excess, start, one, other, spare)
    rates, earlier = (one, other) if found.turn % 2 == 0 else (other, one)
    if found.state == LINEAR:
        return write_between(found, own, limit, rates, earlier, members, out)
    if found.state == MET:
        return write_met(found, own, limit, rates, members, out)
    if found.state == JUMPS:
        return write_mixture(respond, found, own, limit, rates, earlier, members, out)
    return np.nan


def search_price(
    respond: Respond,
    own: SourceColumns,
    limit: float,
    floor_excess: float,
    start: SearchStart,
    rates: Array,
    earlier: Array,
    spare: SourceColumns,
) -> HostSearch:
    """Search the log price at which a host's sources use its limit.

    `spare` is memory for `AT_ONCE` sources, or for none.
    """
    state, turn, halves, due, aside, kept, many = GOES_ON, 0, 0, SMOOTH, np.nan, True, 0
    low, high = start.floor, np.inf
    before, excess_before = start.floor, floor_excess
    stride = Stride(excess_before / start.steepness, start.steepness, 1.0)
    x = before + stride.step
    if not (start.tells and start.guess - start.floor <= NEAR and abs(stride.step) <= NEAR):
        x, before, excess_before = start.guess, np.nan, np.nan
        stride = Stride(np.inf, start.steepness, 1.0)
    for turn in range(ROUNDS):
        used = fill_rates(respond, own, math.exp(-x), rates)
        excess = math.log(used / limit)
        if math.isnan(excess):
            break
        low, high = (x, high) if excess > ROUNDED else (low, x)
        narrow = high - low <= WIDTH + ULP * abs(x)
        # Beside a vertical slope the last two may lie on one side, with the same demand to rounding: their
        # secant tells nothing.
        quadratic = (
            turn > 0
            and kept
            and abs(excess) * abs(excess_before) <= CLOSE
            and abs(excess) <= abs(excess - excess_before)
            and abs(excess) * (x - before) * (x - before) <= FAINT * abs(excess - excess_before)
        )
        # Most steps end nowhere near: the rates are not compared there.
        if narrow or quadratic or abs(excess) <= CLOSE:
            state = search_state(own, excess, rates, earlier, narrow, quadratic, abs(x - before))
            if state != GOES_ON:
                break
        last, kept = x, True
        stride = next_stride(
            stride, excess, (excess_before - excess) / (x - before), turn == 0 or math.isnan(before)
        )
        before, excess_before = x, excess
        rates, earlier = earlier, rates
        x += stride.step
        if not math.isnan(aside):
            # The other side of a step. What lies between the two says nothing of the demand beyond.
            x, stride = aside if aside > low else x, Stride(np.inf, stride.steepness, stride.leap)
            before, excess_before, aside = np.nan, np.nan, np.nan
        elif turn >= due and STEEP * (high - low) > 1.0 and abs(excess) > FLAT and high < np.inf:
            halves = math.ceil(math.log2(STEEP * (high - low)))
            due = turn + halves
        elif turn >= due and high < np.inf:
            # Of steps that halving the bracket does not tell apart, many are one.
            step = largest_step(respond, own, limit, low, high, many, rates, earlier, spare)
            kept, due, many = False, turn + (AGAIN if step.many <= FEW else SIDES), step.many
            if math.isnan(step.x) and step.many > FEW:
                halves = math.ceil(math.log2(step.many / FEW))
                due = turn + halves
            elif step.many > 0:
                beside = 0.4 * (WIDTH + ULP * abs(step.x))
                x, aside = step.x + beside, step.x - beside
        middle = halves > 0 or (turn > LATE and math.isnan(aside))
        if not low < x < high or (middle and high < np.inf):
            x = 0.5 * (low + high) if high < np.inf else last + 1.0
            # What was stepped, not what was meant, limits the next step.
            stride, halves = Stride(x - last, stride.steepness, stride.leap), halves - 1
    return HostSearch(state, x, before, low, high, turn)


def fill_rarely(respond: Respond, own: SourceColumns, inverse_price: float, rates: Array) -> float:
    """Call `fill_rates` from where it is called now and then."""
    return fill_rates(respond, own, inverse_price, rates)


def largest_step(
    respond: Respond,
    own: SourceColumns,
    limit: float,
    low: float,
    high: float,
    before: int,
    generous: Array,
    frugal: Array,
    spare: SourceColumns,
) -> Step:
    """Return the largest step of demand between two log prices.

    On a steep slope it is where all use the limit if steps are alike and the other sources stay as they are.
    The vectors are memory for the rates at both prices; `before` is how many had steps the last time, or 0.
    """
    most = least = 0.0
    for side in range(2):
        most, least = (
            least,
            fill_rarely(respond, own, math.exp(-(high if side else low)), frugal if side else generous),
        )
    steep, longest, all_steps, many, j = STEEP * (high - low), 0.0, 0.0, 0, 0
    for k in range(len(generous)):
        change = at(own.cost, k) * (generous[k] - frugal[k])
        if change > steep * (at(own.cost, k) * generous[k]):
            many, all_steps = many + 1, all_steps + change
            if change > longest:
                longest, j = change, k
    if many == 0 or (many > FEW and FEWER * many <= before) or (many > FEW and before == 0):
        return Step(np.nan, many)
    share = 1.0 - min(1.0, max(0.0, (most - limit) / all_steps))
    middle = frugal[j] + (share if 0.0 < share < 1.0 else 0.5) * (generous[j] - frugal[j])
    return Step(step_place(respond, own, j, middle, low, high, spare), many)


def step_place(
    respond: Respond,
    own: SourceColumns,
    j: int,
    middle: float,
    low: float,
    high: float,
    spare: SourceColumns,
) -> float:
    """Return the log price at which a source has a rate.

    Its importance at several prices makes as many sources at one, if there is memory for them.
    """
    rates, weight = np.empty(AT_ONCE), at(own.importance, j)
    copied(own, j, spare)
    many = AT_ONCE if written(spare.importance, 0, weight) else 1
    some = part(spare, 0, many) if many > 1 else part(own, j, j + 1)
    while high - low > 0.1 * WIDTH + ULP * abs(low):
        apart = (high - low) / (many + 1)
        first, below = low + apart, 0
        for k in range(many if many > 1 else 0):
            written(some.importance, k, weight * math.exp(-apart * k))
        fill_rarely(respond, some, math.exp(-first), rates[:many])
        for k in range(many):
            below += rates[k] > middle
        low, high = low + apart * below, low + apart * (below + 1)
    return 0.5 * (low + high)


def search_state(
    own: SourceColumns,
    excess: float,
    rates: Array,
    earlier: Array,
    narrow: bool,
    quadratic: bool,
    apart: float,
) -> int:
    """Return whether a search has ended, and how.

    `quadratic` errors are those a secant leaves none of, and `apart` the distance of the last two log prices.
    """
    close = abs(excess) <= CLOSE
    if close and any_inside(own, rates):
        return MET
    if narrow:
        return JUMPS
    if quadratic and not close and not any_moved(own, rates, earlier, apart) and any_inside(own, rates):
        return LINEAR
    return GOES_ON


def next_stride(last: Stride, excess: float, secant: float, first: bool) -> Stride:
    """Return the step to the next log price.

    It is at most four times as long as the last one.
    """
    steepness = last.steepness
    if 0.0 < secant < np.inf:
        steepness = secant
    elif not first:  # demand is flat here: the root is farther away
        steepness *= 0.25
    if abs(excess) < np.inf:
        reach = 4.0 * abs(last.step)
        return Stride(min(reach, max(-reach, excess / steepness)), steepness, last.leap)
    return Stride(math.copysign(last.leap, excess), steepness, 4.0 * last.leap)


def write_between(
    found: HostSearch,
    own: SourceColumns,
    limit: float,
    rates: Array,
    earlier: Array,
    members: IntArray,
    out: Array,
) -> float:
    """Write interpolated rates and return their price.

    They lie between the last two vectors of rates, or just beyond them.
    """
    used = bandwidth_used(own, rates)
    share = (limit - used) / (bandwidth_used(own, earlier) - used)
    for j in range(len(members)):
        rate = rates[j] + share * (earlier[j] - rates[j])
        out[members[j]] = min(max(rate, at(own.lower, j)), at(own.upper, j))
    return math.exp(found.x + share * (found.before - found.x))


def write_met(
    found: HostSearch, own: SourceColumns, limit: float, rates: Array, members: IntArray, out: Array
) -> float:
    """Write the last rates and return their price.

    What rounding has left of the limit goes to the rates strictly between their bounds.
    """
    interior = 0.0
    for j in range(len(members)):
        if is_inside(rates[j], own, j):
            interior += at(own.cost, j) * rates[j]
    # The search may have added these rates in another order; what is left is measured to the last bit.
    factor = 1.0 + (limit - bandwidth_used(own, rates)) / interior if interior > 0.0 else 1.0
    for j in range(len(members)):
        rate = rates[j] * factor if is_inside(rates[j], own, j) else rates[j]
        out[members[j]] = min(max(rate, at(own.lower, j)), at(own.upper, j))
    return math.exp(found.x)


def write_mixture(
    respond: Respond,
    found: HostSearch,
    own: SourceColumns,
    limit: float,
    rich: Array,
    poor: Array,
    members: IntArray,
    out: Array,
) -> float:
    """Write mixed rates at a jump of demand; return the price.

    The rates are a mixture of those on both sides of the jump.

    `rich` and `poor` are memory for the rates on both sides.
    """
    # Formulas written out twice may round apart, and put a jump beside the bracket in which it was found: it
    # is looked for in wider ones.
    most, least, beside = 0.0, np.inf, ROUNDED
    for _ in range(WIDER):
        fill_rarely(respond, own, math.exp(beside - found.low), rich)
        fill_rarely(respond, own, math.exp(-beside - found.high), poor)
        most, least, beside = bandwidth_used(own, rich), bandwidth_used(own, poor), 8.0 * beside
        if least <= limit * (1.0 + ROUNDED) and most >= limit * (1.0 - ROUNDED):
            break
    share = min(1.0, max(0.0, (limit - least) / (most - least))) if most > least else 0.0
    for j in range(len(members)):
        out[members[j]] = poor[j] + share * (rich[j] - poor[j])
    return math.exp(found.high + share * (found.low - found.high))


def is_inside(rate: float, own: SourceColumns, j: int) -> bool:
    """Return whether a rate is strictly between its bounds."""
    inside: bool = at(own.lower, j) < rate < at(own.upper, j)
    return inside


def any_inside(own: SourceColumns, rates: Array) -> bool:
    """Return whether a source is strictly between its bounds.

    Else demand is flat at this price.
    """
    for j in range(len(rates)):  # noqa: SIM110 - numba compiles no generator here
        if is_inside(rates[j], own, j):
            return True
    return False


def any_moved(own: SourceColumns, rates: Array, earlier: Array, apart: float) -> bool:
    """Return whether rates reached or left bounds, or made a step.

    Small steps are negligible in demand: secants do not tell them from a slope.
    """
    for j in range(len(rates)):
        step = abs(rates[j] - earlier[j]) > STEEP * apart * rates[j]
        if step or is_inside(rates[j], own, j) != is_inside(earlier[j], own, j):
            return True
    return False
