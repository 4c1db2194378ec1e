"""Newton searches for a noisy source's threshold, in scalar arithmetic.

There is one source at a time; compiled loops inline the searches.

A threshold i is kept as (n, x): n signals and a time x < b more, i = nb + x, so that time keeps its digits
where a signal adds a million years to it, and without bound (b = inf) where all changes are announced or
all announcements are true. u = ai = nh + ax is what both together have cost the logarithm of being fresh; it
goes on rising where x no longer matters.

The search for a marginal value V is Newton's on the logarithms of u and of −ln(1−V), which is u²/2 near 0 and
u far out; it takes four or five cycles. The search for a length walks to the number of signals first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from freshopt.noisy_signals.cycle_terms import (
    HUGE,
    NOTHING,
    CycleMoments,
    cycle_moments,
    far_moments,
    is_far,
    marginal_value,
    sure_time,
)
from freshopt.noisy_signals.signal_rates import MOST_ROOTS, SignalRates, signal_rates
from freshopt.numerics.arrays import Array

# u at which e^{−u}, times what a cycle costs, is nothing beside 1.
INFINITE = 60.0
# A rate at which the copy is fresh, so that squares of its cycle are floats.
ALWAYS = 1e120
# Of the last step, whose square is below an ulp.
CLOSE = 3e-8
# Nats that one step moves u at most.
LONGEST = 2.0
# Newton's steps take five, bisection where they fail 60.
STEPS = 100
ULP = 4e-16


class Threshold(NamedTuple):
    """A threshold (n, x): a number of signals and a time more."""

    signals: float
    wait: float


def log_loss_at(n: float, x: float, q: SignalRates) -> float:
    """Return u = nh + ax.

    It holds also where h is infinite and n is 0.
    """
    return (n * q.loss if n > 0.0 else 0.0) + q.unannounced * x


def threshold_at(u: float, q: SignalRates) -> Threshold:
    """Return the threshold at u.

    x = inf between two numbers of signals where all changes are announced.
    """
    n = np.floor(u / q.loss)
    left = max(u - n * q.loss, 0.0) if n > 0.0 else u
    if q.unannounced > 0.0:
        return Threshold(n, min(left / q.unannounced, q.bonus))
    return Threshold(n, math.inf if left > 0.0 else 0.0)


def length_of_value(value: float, q: SignalRates) -> float:
    """Return the cycle length ψ of a marginal value V.

    It is ψ at the threshold whose marginal value is V, 0 < V < 1.
    """
    target = -math.log1p(-value)
    u, low, high = first_guess(target, q), 0.0, math.inf
    length = 0.0
    for _ in range(STEPS):
        threshold = threshold_at(u, q)
        cycle = cycle_moments(threshold.signals, threshold.wait, u, q)
        length = cycle.length
        here = marginal_value(cycle, u)
        left = 1.0 - here
        if left <= 0.0:
            high = min(high, u)
            u = 0.5 * (low + high)
            continue
        reached = -math.log1p(-here)
        if not reached > 0.0:
            low, u = u, 2.0 * u
            continue
        off = math.log(reached / target)
        low, high = (low, min(high, u)) if off > 0.0 else (max(low, u), high)
        slope = u * math.exp(-u) * length / (left * reached)
        step = -off / slope if slope > 0.0 else math.copysign(1.0, -off)
        if abs(step) * max(1.0, signals_on_the_way(threshold, u, step, cycle, q)) < CLOSE:
            move = cycle.survival * step * u
            return length + move / q.unannounced if q.unannounced > 0.0 else length
        onward = u * math.exp(min(LONGEST, max(-LONGEST, step)))
        if not low < onward < high:
            onward = 0.5 * (low + high) if high < math.inf else 2.0 * low
        if onward == u or (high < math.inf and high - low <= ULP * high):
            return length
        u = onward
    return length


def first_guess(target: float, q: SignalRates) -> float:
    """Return about the u at which −ln(1−V) is the target.

    Both ψ ≤ i and ψ ≤ Aai + β, about, and V is the integral.
    """
    start = target + math.log1p(target) if target > 1.0 else target
    near_zero = math.sqrt(2.0 * q.unannounced * start)
    far_out = start * q.recall  # true signals: ψ = 1/g soon
    if q.slope > 0.0:
        far_out = 2.0 * start / (q.offset + math.sqrt(q.offset * q.offset + 2.0 * q.slope * start))
    return min(max(near_zero, far_out), INFINITE)


def signals_on_the_way(
    threshold: Threshold, u: float, step: float, cycle: CycleMoments, q: SignalRates
) -> float:
    """Return the approximate number of signals while u doubles.

    Over so much of it ψ is no line.
    """
    # A plateau of ψ, which ends with the next signal.
    if cycle.survival < NOTHING:
        onward = threshold_at(u * math.exp(min(LONGEST, step)), q)
        return 0.0 if onward.signals == threshold.signals else math.inf
    if q.loss < math.inf:
        return u * q.per_bonus / q.loss
    return q.signals * min(threshold.wait, 1e300)


def threshold_of_length(length: float, q: SignalRates) -> Threshold:
    """Return the threshold at which ψ = length.

    It is (0, inf) where no cycle is as long.
    """
    if q.signals == 0.0:
        return Threshold(0.0, length)
    if q.loss == math.inf:
        share = q.signals * length
        return Threshold(0.0, -math.log1p(-share) / q.signals if share < 1.0 else math.inf)
    m = (length - q.offset) / (q.loss * q.slope)
    if m > 1.0 and is_far(m - 1.0, q):
        return far_threshold(length, m, q)
    n, before = signals_below(length, q)
    return Threshold(n, wait_beyond(n, before, length, q))


def far_threshold(length: float, m: float, q: SignalRates) -> Threshold:
    """Return the asymptotic threshold at which ψ = length.

    Newton's steps run on its number m of signals, a fraction included.
    """
    for _ in range(STEPS):
        cycle = far_moments(m, INFINITE, q)
        slope = cycle.survival / q.unannounced * q.loss if m < HUGE else q.loss * q.slope
        step = (length - cycle.length) / slope
        m += step
        if abs(step) <= ULP * m:
            break
    n = np.floor(m)
    return Threshold(n, (m - n) * q.bonus if q.bonus < math.inf else 0.0)


def signals_below(length: float, q: SignalRates) -> tuple[float, float]:
    """Return the largest n with ψ(n, 0) ≤ length.

    Besides n, that ψ; steps assume the slope far out.
    """
    low, high, before = 0.0, math.inf, 0.0
    each = q.loss * q.slope
    n = np.floor(length / each)
    while high - low > 1.0:
        n = min(max(n, low + 1.0), high - 1.0) if high < math.inf else max(n, low + 1.0)
        here = cycle_moments(n, 0.0, n * q.loss, q).length
        if here <= length:
            low, before = n, here
        else:
            high = n
        n += np.floor((length - here) / each)
        if n == low:
            n += 1.0
        if low + 1.0 == low:
            break
    return low, before


def wait_beyond(n: float, before: float, length: float, q: SignalRates) -> float:
    """Return the x at which ψ(n, x) = length.

    Newton's steps find it; `before` is ψ(n, 0).
    """
    low, high = 0.0, min(q.bonus, sure_time(n, q))
    share = (length - before) * q.signals
    x = -math.log1p(-share) / q.signals if n == 0.0 and share < 1.0 else (n + 1.0) / q.signals
    x = min(x, high)
    for _ in range(STEPS):
        cycle = cycle_moments(n, x, n * q.loss + q.unannounced * x, q)
        missing = length - cycle.length
        if missing == 0.0:
            return x
        low, high = (x, high) if missing > 0.0 else (low, x)
        onward = x + missing / cycle.survival if cycle.survival > 0.0 else math.inf
        if not low < onward < high:
            onward = 0.5 * (low + high)
        if abs(onward - x) <= ULP * x or high - low <= ULP * high:
            return onward
        x = onward
    return x


def stale_and_value(rate: float, q: SignalRates) -> tuple[float, float]:
    """Return the stale fraction and the marginal value of a crawl.

    The fraction is the share of time that the source is stale at a rate per change.
    """
    if rate <= 0.0:
        return 1.0, 1.0
    if q.loss == math.inf and q.signals > 0.0 and rate <= q.recall:
        return 1.0 - rate, 1.0  # true signals: a share of them is followed by a crawl
    if rate > ALWAYS:
        return 0.0, 0.0
    n, x = threshold_of_length(1.0 / rate, q)
    u = log_loss_at(n, x, q)
    if u >= INFINITE:
        return max(0.0, 1.0 - rate), 1.0
    cycle = cycle_moments(n, x, u, q)
    return min(1.0, cycle.stale / cycle.length), min(1.0, marginal_value(cycle, u))


def value_at(n: float, x: float, q: SignalRates) -> float:
    """Return the marginal value V at a threshold (n, x).

    That is after n signals and a time x since the last crawl.
    """
    if q.signals == 0.0:
        n = 0.0
    if n > 0.0 and q.loss == math.inf:  # the source has changed
        return 1.0
    u = log_loss_at(n, x, q)
    if u >= INFINITE:
        return 1.0
    if not u > 0.0:
        return 0.0
    if q.unannounced > 0.0:  # time may have done what signals do
        more = np.floor(x / q.bonus)
        n, x = n + more, max(x - more * q.bonus, 0.0) if more > 0.0 else x
    return marginal_value(cycle_moments(n, x, u, q), u)


# The least marginal value: its square root, a threshold, has a square.
TINY_VALUE = 1e-250


def inverse(begin: int, end: int, value: Array, recall: Array, precision: Array, rate: Array) -> None:
    """Write the rates per change of given marginal values V.

    They are 0 from V = 1 on.
    """
    roots = np.zeros(MOST_ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        if not value[k] < 1.0:
            rate[k] = 0.0
            continue
        q = signal_rates(recall[k], precision[k], roots)
        rate[k] = 1.0 / length_of_value(max(value[k], TINY_VALUE), q)


def evaluate(
    begin: int, end: int, rate: Array, recall: Array, precision: Array, stale: Array, value: Array
) -> None:
    """Write stale fractions and marginal values at given rates.

    Rates are per change; the stale fraction is a share of time.
    """
    roots = np.zeros(MOST_ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        stale[k], value[k] = stale_and_value(rate[k], signal_rates(recall[k], precision[k], roots))


def thresholds(
    begin: int, end: int, length: Array, recall: Array, precision: Array, number: Array, wait: Array
) -> None:
    """Write the (n, x) of cycles of given lengths."""
    roots = np.zeros(MOST_ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        found = threshold_of_length(length[k], signal_rates(recall[k], precision[k], roots))
        number[k], wait[k] = found.signals, found.wait


def indices(
    begin: int, end: int, number: Array, wait: Array, recall: Array, precision: Array, value: Array
) -> None:
    """Write the marginal values V at effective times.

    An effective time is so many signals and so much time since the last crawl.
    """
    roots = np.zeros(MOST_ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        value[k] = value_at(number[k], wait[k], signal_rates(recall[k], precision[k], roots))
