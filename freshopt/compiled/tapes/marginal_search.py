"""Safeguarded Newton steps towards best responses, source by source.

As in `freshopt.numerics.root_finding`, the search is in x = log ρ, where marginals are nearly straight.
Unlike there, Newton steps are taken from the start: a start near the root, as the last best response of a
dual search, costs two or three evaluations. Loops take `LANES` sources a step forward at once, which a
processor does in its lanes; so there are conditional expressions here and no branches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from freshopt.compiled.tapes.atom_functions import log_of

# (rate, side, constants and weights of one source) -> marginal value, curvature
Marginal: TypeAlias = Callable[[float, float, Any], tuple[float, float]]

# Sources that are searched for at once: the block takes as long as its slowest, and a pass has its overhead.
LANES = 64
# Nats from the start: rates beyond are taken for infinity, or for zero. e^512 is 1e222.
REACH = 512.0
# Steps at most.
STEPS = 200
# After so many steps two of three halve the bracket, which 58 such steps close: where marginals underflow,
# or are not convex, Newton's steps alone may crawl. Others have ended by then.
PATIENT = 24
# Distance in x: two units in the last place of a rate.
ULP = 4e-16
# Times an ulp: a Newton step that short ends the search, if the marginal is this near the price.
SHORT, CLOSE = 8.0, 1e-6
# A root in log ρ may be off by so many ulp of the rate, at |log ρ| = 60 and more.
JUMPED = 64
# A marginal above this multiple of the price, at the root, jumps there.
BESIDE = 1.000001
# By so much grows, at each step that does not end a one-sided approach, what a step is prolonged by.
HASTE = 8.0
SMALLEST_RATE = 2.2250738585072014e-308


def limits(start: float, lower: float, upper: float) -> tuple[float, float, float]:
    """Return the start and the bounds of a search in log ρ."""
    bottom, top = log_of(lower), log_of(upper)
    first = log_of(start)
    first = bottom if first < bottom else (top if first > top else first)
    floor, ceiling = first - REACH, first + REACH
    return first, bottom if bottom > floor else floor, top if top < ceiling else ceiling


def advanced(
    x: float,
    low: float,
    high: float,
    value: float,
    bend: float,
    price: float,
    floor: float,
    ceiling: float,
    width: float,
    push: float,
    halve: float,
) -> tuple[float, float, float, float]:
    """Return the next x, the bracket, and 1 unless the search ends.

    It follows one evaluation.

    - `x`: log ρ, at which the marginal has the `value`, and its fall times ρ is the `bend`.
    - `low`, `high`: The root is between; infinite where no end has been found.
    - `floor`, `ceiling`: Between what the search stays. x is −inf or inf in the end if the root is beyond.
    - `width`, `push`: At most, and at least, how far a step goes as long as no end has been found on its
      side.
    - `halve`: 1 to halve the bracket whatever Newton's step is.
    """
    above = value > price
    low, high = x if above else low, high if above else x
    step = newton_step(value, price, bend)
    target, size = x + step, abs(x) if abs(x) > 1.0 else 1.0
    margin = 0.5 * ULP * size
    close = (abs(step) <= SHORT * margin) & (abs(value - price) <= CLOSE * price)
    # One-sided steps, which only ever come nearer, are prolonged until they bracket the root.
    up = target + push if (target >= x) & (target <= x + width) else x + width
    down = target - push if (target <= x) & (target >= x - width) else x - width
    outwards = (up if up < ceiling else ceiling) if above else (down if down > floor else floor)
    middle = 0.5 * (low + high)
    inside = (target > low - margin) & (target < high + margin) & (halve == 0.0)
    cut = low + margin if target < low + margin else target
    cut = high - margin if cut > high - margin else cut
    bracketed = (low > -np.inf) & (high < np.inf)
    following = (cut if inside else middle) if bracketed else outwards
    narrow = high - low <= ULP * (abs(middle) if abs(middle) > 1.0 else 1.0)
    ended = bracketed & (narrow | (abs(following - x) <= 1e-16 * abs(x)))
    beyond, below = above & (x >= ceiling), (not above) & (x <= floor)
    reached = np.inf if beyond else (-np.inf if below else (target if close else (x if ended else following)))
    return reached, low, high, 0.0 if beyond | below | close | ended else 1.0


def newton_step(value: float, price: float, bend: float) -> float:
    """Return the step in log ρ: on logarithms, else plain, else inf."""
    step = log_of(value / price) * value / bend
    plain = (value - price) / bend
    step = step if abs(step) < np.inf else plain
    return step if abs(step) < np.inf else np.inf


def bounded(rate: float, lower: float, upper: float) -> float:
    """Return the rate, or the bound that it is beyond."""
    return lower if not rate > lower else (upper if rate > upper else rate)


def off_zero_onto_jumps(marginal: Marginal, data: Any, price: float, rate: float) -> float:  # noqa: ANN401
    """Return a best response, moved off zero and onto a jump.

    The jump is that of the marginal. As in `freshopt.separable.derived_kernel`: a root below all floats is
    none at 0 where the marginal there exceeds the price, and a root a few ulp below a jump is moved onto it.
    """
    found, moved = rate, rate
    for _ in range(JUMPED):
        if not (moved >= 0.0 and moved < np.inf):
            return moved
        value, _ = marginal(moved, 1.0, data)
        if moved == 0.0:
            if not value > price:
                return 0.0
            found = moved = SMALLEST_RATE
            continue
        if not value > BESIDE * price:
            return moved
        moved = np.nextafter(moved, np.inf)
    return found
