"""Renewal cycle of one source with noisy signals, in scalars.

Compiled loops inline this arithmetic.

`freshopt.noisy_signals.renewal_cycle` says what is computed and why it is exact; here is how, for one
source at a time. All functions are plain Python and can be called.

Poisson tails and integrals of their densities, in scalar arithmetic. R_k(x) = P(Poisson(x) > k) is the share
of cycles that have not ended with k signals; its integrals against e^{−at} are what staleness adds. Small
values are sums of positive terms, so that they keep all digits.
"""

from __future__ import annotations

import cmath
import math
from typing import NamedTuple

import numpy as np

from freshopt.noisy_signals.signal_rates import MOST_ROOTS, SignalRates

# e^{−42} is 6e-19: what an integral may leave out.
TAIL = 42.0
# Signals from which on an integral is faster than the series of an incomplete gamma function.
MANY = 100.0
# Relative: a term below is none.
NOTHING = 1e-18
# Of power series in numbers ≤ 1.
TERMS = 40
GAUSS_NODES, GAUSS_WEIGHTS = (values for values in np.polynomial.legendre.leggauss(24))


def growth(u: float) -> float:
    """Return u − 1 + e^{−u} without cancellation.

    Examples
    --------
    >>> growth(1e-8)
    4.99999998...e-17
    """
    if u > 0.5:
        return u + math.expm1(-u)
    value, term = 0.0, u
    for k in range(2, TERMS):
        term *= -u / k
        value -= term
        if abs(term) < NOTHING * value:
            break
    return value


def log_excess_of(z: float) -> float:
    """Return z − log(1+z) without cancellation, z ≥ 0."""
    if z > 0.1:
        return z - math.log1p(z)
    value, power = 0.0, -z
    for k in range(2, TERMS):
        power *= -z
        value += power / k
        if abs(power) < NOTHING * value:
            break
    return value


def mean_decay(z: float) -> float:
    """Return (1 − e^{−z})/z."""
    return -math.expm1(-z) / z if z > 0.0 else 1.0


def poisson_density(k: float, x: float) -> float:
    """Return e^{−x}x^k/k!."""
    if x <= 0.0:
        return 1.0 if k == 0.0 else 0.0
    return math.exp(k * math.log(x) - x - math.lgamma(k + 1.0))


def surely_over(k: float) -> float:
    """Return a mean that makes a Poisson number exceed k.

    From this mean on it does but for rounding.
    """
    return k + 46.0 + 10.0 * math.sqrt(k + 1.0)


def tail_series(k: float, x: float, density: float) -> float:
    """Return R_k(x) by its series, given the density e^{−x}x^k/k!.

    Examples
    --------
    >>> round(tail_series(2.0, 1.0, math.exp(-1.0) / 2.0), 15)  # 1 − e^{−1}(1 + 1 + ½)
    0.080301397071394
    """
    if k == 0.0:
        return -math.expm1(-x)
    value, term, j = 0.0, density, k
    if x <= k + 1.0:
        while term > NOTHING * value:
            j += 1.0
            term *= x / j
            value += term
        return value
    while term > NOTHING * value and j >= 0.0:
        value += term
        term *= j / x
        j -= 1.0
    return 1.0 - value


def tail(k: float, y: float, rate: float, density: float) -> float:
    """Return the Poisson tail R_k(rate·y).

    It is summed by its series, or integrated where that would be long.
    """
    if k < MANY:
        return tail_series(k, rate * y, density)
    below, width = reach(k, y, rate)
    value = 0.0
    for j in range(len(GAUSS_NODES)):
        distance = 0.5 * width * (1.0 + GAUSS_NODES[j])
        move = -distance if below else distance
        value += GAUSS_WEIGHTS[j] * math.exp(k * math.log1p(move / y) - rate * move)
    value *= 0.5 * width * rate * density
    return value if below else 1.0 - value


def reach(k: float, y: float, rate: float) -> tuple[bool, float]:
    """Return direction and width of a tail integral from y.

    That is: whether y lies below the mode of t^k e^{−rate·t}, and how far from it that is e^{−42} of y's.
    """
    below = rate * y <= k + 1.0
    slope = max(0.0, (k - rate * y) / y if below else rate - k / y)
    bend = 2.0 * TAIL * k / (y * y)
    if below:
        if bend + slope == 0.0:
            return below, y
        return below, min(y, 2.0 * TAIL / (slope + math.sqrt(slope * slope + bend)))
    width = 2.0 * TAIL / (slope + math.sqrt(slope * slope + bend))
    for _ in range(3):  # upwards the density falls more slowly than the parabola at y
        width = 2.0 * TAIL / (slope + math.sqrt(slope * slope + bend / (1.0 + 2.0 / 3.0 * width / y)))
    return below, width


# Signals below a threshold up to which sums are shorter than series of roots: NEAR + BEND·(1+κ)².
NEAR, BEND = 12.0, 0.3
# In standard errors below its mean, where a Poisson number never is: e^{−9.2²/2} is 4e-19.
SURE = 9.2
# Terms that are added up one by one.
FEW = 16.0
# a·i below which the stale time is an integral, as a difference would cost more than 4 bits.
SMALL = 0.05
# Signals, one of which is below rounding.
HUGE = 1e15


class CycleMoments(NamedTuple):
    """Length, stale time and survival of a cycle.

    Length ψ, stale time ψ − w, and ψ', the probability to survive the threshold; or what the time with k
    signals adds to each.
    """

    length: float
    stale: float
    survival: float


def cycle_moments(n: float, x: float, u: float, q: SignalRates) -> CycleMoments:
    """Return the moments of a cycle at a threshold.

    The threshold is (n, x), and u = nh + ax.
    """
    m = n + x / q.bonus if q.bonus < math.inf else n
    if q.loss < math.inf and is_far(m, q):
        return far_moments(m, u, q)
    return near_moments(n, min(x, sure_time(n, q)), q)


def marginal_value(cycle: CycleMoments, u: float) -> float:
    """Return V, the marginal value of a crawl at the threshold."""
    return -math.expm1(-u) * cycle.length - cycle.stale


def sure_time(n: float, q: SignalRates) -> float:
    """Return the time after which the next signal is certain.

    After it the signal after n has come but for rounding.
    """
    return surely_over(n) / q.signals if q.signals > 0.0 else math.inf


def is_far(m: float, q: SignalRates) -> bool:
    """Return whether few roots give the transient at m signals.

    Far out they are the whole of it.
    """
    return m >= HUGE or m >= NEAR + BEND * (1.0 + q.per_bonus) * (1.0 + q.per_bonus)


def later_root(j: int, kappa: float) -> complex:
    """Return the j-th complex root of the transient, j ≥ 1.

    It is the j-th root of y + κ(1 − e^{−y}) = 0 above the real axis.
    """
    turn = 2.0j * math.pi * j
    y = turn * (kappa / (1.0 + kappa)) if kappa > 1.0 else turn - cmath.log(1.0 + turn / kappa)
    for _ in range(30):
        step = (y + cmath.log(1.0 + y / kappa) - turn) / (1.0 + 1.0 / (kappa + y))
        y -= step
        if abs(step) < 1e-15 * abs(y):
            break
    return y


def far_moments(m: float, u: float, q: SignalRates) -> CycleMoments:
    """Return the asymptotic moments of a cycle.

    Far out they are linear in u, plus a transient of exponentials.
    """
    length, stale, survival = 0.0, 0.0, 0.0
    gone = -math.expm1(-u)
    for j in range(MOST_ROOTS if m < HUGE else 0):
        if q.roots[j] == 0.0:
            q.roots[j] = later_root(j + 1, q.per_bonus)
        y = q.roots[j]
        if y.real * m < -TAIL:
            break
        part = cmath.exp(y * m) / (1.0 + q.per_bonus + y)
        length += 2.0 * q.bonus * (part / y).real
        stale += 2.0 * q.bonus * (part * (y * gone - q.loss) / (y * (y - q.loss))).real
        survival += 2.0 * part.real
    return CycleMoments(
        length + q.loss * q.slope * m + q.offset,
        stale + q.slope * growth(u) - q.stale_offset,
        survival + q.slope * q.unannounced,
    )


def near_moments(n: float, x: float, q: SignalRates) -> CycleMoments:
    """Return the moments of a cycle as sums over signals.

    The threshold is n·b + x; sums run over the numbers of signals.
    """
    length, stale, survival = 0.0, 0.0, 0.0
    first = sure_signals(n, x, q) if n > 0.0 else 0.0
    if first > 0.0:
        length, stale = first / q.signals, sure_stale(first, q)
    for step in range(int(n - first) + 1):
        k = first + step
        y = x + (n - k) * q.bonus if n > k else x
        if y <= 0.0:
            break
        term = first_term(y, q) if k == 0.0 else later_term(k, y, q)
        length += term.length
        stale += term.stale
        survival += term.survival
        if term.length < NOTHING * length:
            break
    return CycleMoments(length, stale, survival)


def sure_signals(n: float, x: float, q: SignalRates) -> float:
    """Return the number of signals that a cycle surely has.

    A cycle of the threshold (n, x) has so many but for rounding.
    """
    slack = 1.0 / q.per_bonus
    m = n + x / q.bonus
    s = 0.5 * (SURE + math.sqrt(SURE * SURE + 4.0 * m * (1.0 + slack))) / (1.0 + slack)
    sure: float = max(0.0, min(n, np.floor(m - s * s * slack)))
    return sure


def sure_stale(many: float, q: SignalRates) -> float:
    """Return the stale time of the first intervals between signals.

    It is Σ_{k<many} (1 − (1−p)^k (g/c)^{k+1})/g.
    """
    if many <= FEW:
        value, decay = 0.0, math.log1p(q.unannounced / q.signals)
        for k in range(int(many)):
            value -= math.expm1(-(k * q.loss if k > 0 else 0.0) - (k + 1.0) * decay)
        return value / q.signals
    z = 1.0 / q.false
    decay = math.log1p(z)
    if z > 0.5:
        return many / q.signals + math.expm1(-many * decay)
    # The same without its cancellation: decay and 1/g differ in their squares.
    return growth(many * decay) - many * (q.recall / (q.false * q.signals) - log_excess_of(z))


def is_small(k: float, y: float, q: SignalRates) -> bool:
    """Return whether staleness is so small that it is integrated.

    It is the staleness after k signals and a time y.
    """
    loss = k * q.loss if k > 0.0 else 0.0
    return loss + q.unannounced * min(y, sure_time(k, q)) < SMALL


def first_term(y: float, q: SignalRates) -> CycleMoments:
    """Return the term of no signal.

    It is the time until the first one, or y.
    """
    g, c = q.signals, q.total
    density, lasting = math.exp(-g * y), y * mean_decay(g * y)
    if c * y < 1.0:
        return CycleMoments(lasting, early_stale(y, q), density)
    if is_small(0.0, y, q):
        return CycleMoments(lasting, integrated(0.0, y, density, q).stale, density)
    return CycleMoments(lasting, lasting - y * mean_decay(c * y), density)


def later_term(k: float, y: float, q: SignalRates) -> CycleMoments:
    """Return the term of k ≥ 1 signals.

    They have come before the time y.
    """
    g, c = q.signals, q.total
    density = poisson_density(k, g * y)
    if is_small(k, y, q):
        return integrated(k, y, density, q)
    lasting = tail(k, y, g, density) / g
    fresh = math.exp(-k * math.log1p(1.0 / q.false)) * tail(k, y, c, poisson_density(k, c * y)) / c
    return CycleMoments(lasting, lasting - fresh, density)


def early_stale(y: float, q: SignalRates) -> float:
    """Return (1−e^{−gy})/g − (1−e^{−cy})/c for cy < 1, as a series."""
    g, c, a = q.signals, q.total, q.unannounced
    value, term, difference, power = 0.0, y, 0.0, 1.0
    for k in range(1, TERMS):
        difference = c * y * difference + a * y * power  # (cy)^k − (gy)^k
        power *= g * y
        term /= -(k + 1.0)
        value -= term * difference
        if abs(term * difference) <= NOTHING * value:
            break
    return value


def integrated(k: float, y: float, density: float, q: SignalRates) -> CycleMoments:
    """Return the term of k signals by quadrature.

    It is R_k(gy)/g and its stale part ∫₀^y e^{−gt}(gt)^k/k! (1 − e^{−kh−at}) dt.
    """
    g, a = q.signals, q.unannounced
    before = k * q.loss if k > 0.0 else 0.0
    below, width = reach(k, y, g)
    lasting, stale = 0.0, 0.0
    for j in range(len(GAUSS_NODES)):
        distance = 0.5 * width * (1.0 + GAUSS_NODES[j])
        move = -distance if below else distance
        height = GAUSS_WEIGHTS[j] * math.exp(k * math.log1p(move / y) - g * move)
        lasting += height
        stale -= height * math.expm1(-before - a * (y + move))
    scale = 0.5 * width * density
    lasting, stale = lasting * scale, stale * scale
    if below:
        return CycleMoments(lasting, stale, density)
    everything = -math.expm1(-before - (k + 1.0) * math.log1p(a / g)) / g
    return CycleMoments(1.0 / g - lasting, everything - stale, density)
