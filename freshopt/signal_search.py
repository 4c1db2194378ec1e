"""Thresholds of one source with noisy signals from what they are to bring, in scalar arithmetic for loops.

A threshold i is kept as (n, x): n signals and a time x < b more, i = nb + x, so that time keeps its digits
where a signal is worth a million years of it, and without bound (b = inf) where all changes are announced or
all announcements are true. u = ai = nh + ax is what both together have cost the logarithm of being fresh; it
goes on rising where x no longer matters.

The search for a worth is Newton's on the logarithms of u and of −ln(1−V), which is u²/2 near 0 and u far out;
it takes four or five cycles. The search for a length walks to the number of signals first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from freshopt.arrays import Array
from freshopt.signal_terms import HUGE, NOTHING, ROOTS, STEPS, Quality, far, is_far, near, quality

ENDLESS = 60.0  # u at which e^{−u}, times what a cycle costs, is nothing beside 1
FREE = 1e-250  # the least worth: its square root, a threshold, has a square
ALWAYS = 1e120  # a rate at which the copy is fresh, so that squares of its cycle are floats
CLOSE = 3e-8  # whose square is below an ulp


def moment(u: float, q: Quality) -> tuple[float, float]:
    """Return (n, x) at u; where all changes are announced x = inf between two numbers of signals."""
    n = np.floor(u / q.loss)
    left = max(u - n * q.loss, 0.0) if n > 0.0 else u
    if q.unannounced > 0.0:
        return n, min(left / q.unannounced, q.bonus)
    return n, math.inf if left > 0.0 else 0.0


def full(n: float, q: Quality) -> float:
    """Return the time after which the signal after n has come as good as surely."""
    return (n + 46.0 + 10.0 * math.sqrt(n + 1.0)) / q.signals if q.signals > 0.0 else math.inf


def at(n: float, x: float, u: float, q: Quality, roots: Any) -> tuple[float, float, float]:  # noqa: ANN401
    """Return ψ, the stale time and ψ' at a threshold."""
    m = n + x / q.bonus if q.bonus < math.inf else n
    if q.loss < math.inf and is_far(m, q):
        return far(m, u, q, roots)
    return near(n, min(x, full(n, q)), q)


def length_of_worth(worth: float, q: Quality, roots: Any) -> float:  # noqa: ANN401
    """Return ψ where V = worth, 0 < worth < 1."""
    y = -math.log1p(-worth)
    # Both ψ ≤ i and ψ ≤ Aai + β, about; V is the integral.
    start = y + math.log1p(y) if y > 1.0 else y
    first = math.sqrt(2.0 * q.unannounced * start)
    second = start * q.recall  # true signals: ψ = 1/g soon
    if q.share > 0.0:
        second = 2.0 * start / (q.offset + math.sqrt(q.offset * q.offset + 2.0 * q.share * start))
    u = min(max(first, second), ENDLESS)
    low, high = 0.0, math.inf
    length = 0.0
    for _ in range(STEPS):
        n, x = moment(u, q)
        length, stale, survival = at(n, x, u, q, roots)
        worth_here = -math.expm1(-u) * length - stale
        left = 1.0 - worth_here
        if left <= 0.0:
            high = min(high, u)
            u = 0.5 * (low + high)
            continue
        here = -math.log1p(-worth_here)
        if not here > 0.0:
            low, u = u, 2.0 * u
            continue
        off = math.log(here / y)
        if off > 0.0:
            high = min(high, u)
        else:
            low = max(low, u)
        slope = u * math.exp(-u) * length / (left * here)
        step = -off / slope if slope > 0.0 else math.copysign(1.0, -off)
        signals = u * q.kappa / q.loss if q.loss < math.inf else q.signals * min(x, 1e300)
        if survival < NOTHING:  # a plateau: it ends with the next signal
            signals = 0.0 if moment(u * math.exp(min(2.0, step)), q)[0] == n else math.inf
        if abs(step) * max(1.0, signals) < CLOSE:
            return length + survival * step * u / q.unannounced if q.unannounced > 0.0 else length
        target = u * math.exp(min(2.0, max(-2.0, step)))
        if not low < target < high:
            target = 0.5 * (low + high) if high < math.inf else 2.0 * low
        if target == u or (high < math.inf and high - low <= 4e-16 * high):
            return length
        u = target
    return length


def threshold_of_length(length: float, q: Quality, roots: Any) -> tuple[float, float]:  # noqa: ANN401
    """Return the (n, x) at which ψ = length; (0, inf) where no cycle is as long."""
    if q.signals == 0.0:
        return 0.0, length
    share = q.signals * length
    if q.loss == math.inf:
        return 0.0, -math.log1p(-share) / q.signals if share < 1.0 else math.inf
    each = q.loss * q.share  # of ψ, which a number of signals takes far out, and about as much near
    m = (length - q.offset) / each
    if m > 1.0 and is_far(m - 1.0, q):
        for _ in range(STEPS):
            here, _, survival = far(m, ENDLESS, q, roots)
            step = (length - here) / (survival / q.unannounced * q.loss if m < HUGE else each)
            m += step
            if abs(step) <= 4e-16 * m:
                break
        n = np.floor(m)
        return n, (m - n) * q.bonus if q.bonus < math.inf else 0.0
    low, high = 0.0, math.inf
    n = np.floor(length / each)
    before = 0.0
    while high - low > 1.0:
        n = min(max(n, low + 1.0), high - 1.0) if high < math.inf else max(n, low + 1.0)
        here = at(n, 0.0, n * q.loss, q, roots)[0]
        if here <= length:
            low, before = n, here
        else:
            high = n
        n += np.floor((length - here) / each)
        if n == low:
            n += 1.0
        if low + 1.0 == low:
            break
    n = low
    least, most = 0.0, min(q.bonus, full(n, q))
    rest = (length - before) * q.signals
    x = -math.log1p(-rest) / q.signals if n == 0.0 and rest < 1.0 else (n + 1.0) / q.signals
    x = min(x, most)
    for _ in range(STEPS):
        here, _, survival = at(n, x, n * q.loss + q.unannounced * x, q, roots)
        off = length - here
        if off > 0.0:
            least = x
        elif off < 0.0:
            most = x
        else:
            break
        target = x + off / survival if survival > 0.0 else math.inf
        if not least < target < most:
            target = 0.5 * (least + most)
        if abs(target - x) <= 4e-16 * x or most - least <= 4e-16 * most:
            x = target
            break
        x = target
    return n, x


def stale_and_worth(rate: float, q: Quality, roots: Any) -> tuple[float, float]:  # noqa: ANN401
    """Return the share of time a source is stale at a rate per change, and the worth of one more crawl."""
    if rate <= 0.0:
        return 1.0, 1.0
    if q.loss == math.inf and q.signals > 0.0 and rate <= q.recall:
        return 1.0 - rate, 1.0  # true signals: a share of them is followed by a crawl
    if rate > ALWAYS:
        return 0.0, 0.0
    length = 1.0 / rate
    n, x = threshold_of_length(length, q, roots)
    u = (n * q.loss if n > 0.0 else 0.0) + q.unannounced * x
    if u >= ENDLESS:
        return max(0.0, 1.0 - rate), 1.0
    length, stale, _ = at(n, x, u, q, roots)
    return min(1.0, stale / length), min(1.0, -math.expm1(-u) * length - stale)


def inverse(begin: int, end: int, worth: Array, recall: Array, precision: Array, rate: Array) -> None:
    """Write the rates per change at which one more crawl has its worth; 0 from a worth of 1 on."""
    roots = np.zeros(ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        if not worth[k] < 1.0:
            rate[k] = 0.0
            continue
        roots[:] = 0.0
        length = length_of_worth(max(worth[k], FREE), quality(recall[k], precision[k]), roots)
        rate[k] = 1.0 / length


def evaluate(
    begin: int, end: int, rate: Array, recall: Array, precision: Array, stale: Array, worth: Array
) -> None:
    """Write the stale shares of time and the worths at rates per change."""
    roots = np.zeros(ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        roots[:] = 0.0
        stale[k], worth[k] = stale_and_worth(rate[k], quality(recall[k], precision[k]), roots)


def thresholds(
    begin: int, end: int, length: Array, recall: Array, precision: Array, number: Array, wait: Array
) -> None:
    """Write the (n, x) of cycles of given lengths."""
    roots = np.zeros(ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        roots[:] = 0.0
        number[k], wait[k] = threshold_of_length(length[k], quality(recall[k], precision[k]), roots)


def cycles(
    begin: int,
    end: int,
    number: Array,
    wait: Array,
    recall: Array,
    precision: Array,
    length: Array,
    stale: Array,
    worth: Array,
    survival: Array,
) -> None:
    """Write ψ, the stale time, V and ψ' at thresholds (n, x)."""
    roots = np.zeros(ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        roots[:] = 0.0
        q = quality(recall[k], precision[k])
        u = (number[k] * q.loss if number[k] > 0.0 else 0.0) + q.unannounced * wait[k]
        length[k], stale[k], survival[k] = at(number[k], wait[k], u, q, roots)
        worth[k] = -math.expm1(-u) * length[k] - stale[k]


def indices(
    begin: int, end: int, number: Array, wait: Array, recall: Array, precision: Array, worth: Array
) -> None:
    """Write V at effective times: so many signals and so much time since the last crawl."""
    roots = np.zeros(ROOTS, dtype=np.complex128)
    for k in range(begin, end):
        n, s = number[k], wait[k]
        q = quality(recall[k], precision[k])
        if q.signals == 0.0:
            n = 0.0
        if n > 0.0 and q.loss == math.inf:  # the source has changed
            worth[k] = 1.0
            continue
        u = (n * q.loss if n > 0.0 else 0.0) + q.unannounced * s
        if u >= ENDLESS:
            worth[k] = 1.0
            continue
        worth[k] = 0.0
        if u > 0.0:
            roots[:] = 0.0
            if q.unannounced > 0.0:  # time may have done what signals do
                more = np.floor(s / q.bonus)
                n, s = n + more, max(s - more * q.bonus, 0.0) if more > 0.0 else s
            length, stale, _ = at(n, s, u, q, roots)
            worth[k] = -math.expm1(-u) * length - stale
