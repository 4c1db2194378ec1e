"""The cycle of one source with noisy signals, in scalar arithmetic that compiled loops inline.

`freshopt.signal_cycle` says what is computed and why it is exact; here is how, for one source at a time. All
functions are plain Python and can be called.
"""

from __future__ import annotations

import cmath
import math
from typing import Any, NamedTuple

import numpy as np

ROOTS = 24  # most roots of the transient that are kept; 5 matter from NEAR on
NEAR, BEND = 12.0, 0.3  # signals below a threshold up to which sums are shorter than series of roots
SURE = 9.2  # e^{−9.2²/2} is 4e-19: standard errors below its mean where a Poisson number never is
TAIL = 42.0  # e^{−42} is 6e-19
FEW = 16.0  # terms that are added up one by one
SMALL = 0.05  # a·i below which the stale time is an integral, as a difference would cost more than 4 bits
MANY = 100.0  # signals from which on an integral is faster than the series of an incomplete gamma function
NOTHING = 1e-18
TERMS = 40  # of power series in numbers ≤ 1
GAUSS_NODES, GAUSS_WEIGHTS = (values for values in np.polynomial.legendre.leggauss(24))
STEPS = 100
LEAST = 1e-30  # a recall below is none, a precision below is that much: neither moves anything by as much
HUGE = 1e15  # signals, one of which is below rounding


class Quality(NamedTuple):
    """A source's rates in units of its change rate, and what follows from them.

    Attributes
    ----------
    recall, unannounced : float
        l and a = 1−l.
    signals, false, total : float
        g = l/p, v = g−l and c = g+a = 1+v.
    loss : float
        h = −ln(1−p) = ab: by how much a signal lowers the logarithm of being fresh.
    bonus : float
        b = h/a.
    kappa : float
        κ = gb: how many signals come, on average, while time adds what one of them does.
    share : float
        A = 1/(a(1+κ)).
    offset : float
        β, what ψ exceeds its slope by, far out.
    rest : float
        T = 1 − A − β, without cancellation.
    """

    recall: float
    unannounced: float
    signals: float
    false: float
    total: float
    loss: float
    bonus: float
    kappa: float
    share: float
    offset: float
    rest: float


def quality(recall: float, precision: float) -> Quality:
    """Return what a recall and a precision make of a source.

    Examples
    --------
    >>> one = quality(0.5, 0.5)
    >>> one.signals, one.false, round(one.bonus, 6), round(one.kappa, 6)
    (1.0, 0.5, 1.386294, 1.386294)
    """
    a, p = 1.0 - recall, max(precision, LEAST)
    if recall < LEAST:
        return Quality(0.0, 1.0, 0.0, 0.0, 1.0, math.inf, math.inf, 0.0, 1.0, 0.0, 0.0)
    g, v = recall / p, recall * (1.0 - p) / p
    # ε = h/p − 1 and ε − p/2, as series where the logarithm would lose digits.
    if p < 0.1:
        first, second, power = 0.0, 0.0, p
        for k in range(2, 20):
            first += power / k
            if k > 2:
                second += power / k
            power *= p
        h = p * (1.0 + first)
    elif p < 1.0:
        h = -math.log1p(-p)
        first = h / p - 1.0
        second = first - 0.5 * p
    else:
        return Quality(recall, a, g, 0.0, 1.0, math.inf, math.inf, math.inf, 0.0, math.inf, 0.0)
    whole = 1.0 + recall * first  # a(1 + κ)
    offset = 0.5 * recall * p * (1.0 + first) * (1.0 + first) / (whole * whole)
    rest = recall * (second + recall * first * first - p * first * (1.0 + 0.5 * first)) / (whole * whole)
    bonus = h / a if a > 0.0 else math.inf
    kappa = recall * (1.0 + first) / a if a > 0.0 else math.inf
    return Quality(recall, a, g, v, 1.0 + v, h, bonus, kappa, 1.0 / whole, offset, rest)


def is_far(m: float, q: Quality) -> bool:
    """Tell whether a threshold of m signals is so far that few roots tell all about its transient."""
    return m >= HUGE or m >= NEAR + BEND * (1.0 + q.kappa) * (1.0 + q.kappa)


def later_root(j: int, kappa: float) -> complex:
    """Return the j-th root of y + κ(1 − e^{−y}) = 0 above the real axis, j ≥ 1."""
    turn = 2.0j * math.pi * j
    y = turn * (kappa / (1.0 + kappa)) if kappa > 1.0 else turn - cmath.log(1.0 + turn / kappa)
    for _ in range(30):
        step = (y + cmath.log(1.0 + y / kappa) - turn) / (1.0 + 1.0 / (kappa + y))
        y -= step
        if abs(step) < 1e-15 * abs(y):
            break
    return y


def far(m: float, u: float, q: Quality, roots: Any) -> tuple[float, float, float]:  # noqa: ANN401 - complex array
    """Return ψ, the stale time and ψ' far out; `roots` keeps those found so far, 0 where not yet."""
    length, stale, survival = 0.0, 0.0, 0.0
    gone = -math.expm1(-u)
    for j in range(ROOTS if m < HUGE else 0):
        if roots[j] == 0.0:
            roots[j] = later_root(j + 1, q.kappa)
        y = roots[j]
        if y.real * m < -TAIL:
            break
        part = cmath.exp(y * m) / (1.0 + q.kappa + y)
        length += 2.0 * q.bonus * (part / y).real
        stale += 2.0 * q.bonus * (part * (y * gone - q.loss) / (y * (y - q.loss))).real
        survival += 2.0 * part.real
    return (
        length + q.loss * q.share * m + q.offset,
        stale + q.share * growth(u) - q.rest,
        survival + q.share * q.unannounced,
    )


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


def reached(k: float, x: float, density: float) -> float:
    """Return R_k(x) = P(Poisson(x) > k), given the density e^{−x}x^k/k!.

    Examples
    --------
    >>> round(reached(2.0, 1.0, math.exp(-1.0) / 2.0), 15)  # 1 − e^{−1}(1 + 1 + ½)
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


def near(n: float, x: float, q: Quality) -> tuple[float, float, float]:
    """Return ψ, the stale time and ψ' of the threshold n·b + x, by its sum over the numbers of signals."""
    g, c, a = q.signals, q.total, q.unannounced
    length, stale, survival = 0.0, 0.0, 0.0
    first = 0.0
    if n > 0.0:
        slack = 1.0 / q.kappa
        m = n + x / q.bonus
        s = 0.5 * (SURE + math.sqrt(SURE * SURE + 4.0 * m * (1.0 + slack))) / (1.0 + slack)
        first = max(0.0, min(n, np.floor(m - s * s * slack)))
        if first > 0.0:  # so many terms are sure
            length, stale = first / g, sure_stale(first, q)
    for step in range(int(n - first) + 1):
        k = first + step
        y = x + (n - k) * q.bonus if n > k else x
        if y <= 0.0:
            break
        z = g * y
        loss = k * q.loss if k > 0.0 else 0.0
        small = loss + a * min(y, (k + 46.0 + 10.0 * math.sqrt(k + 1.0)) / g if g > 0.0 else y) < SMALL
        if k == 0.0:
            density, passed = math.exp(-z), y * mean_decay(z)
            if c * y < 1.0:
                late = early_stale(y, g, c, a)
            elif small:
                late = around(k, y, density, q)[1]
            else:
                late = passed - y * mean_decay(c * y)
        else:
            density = math.exp(k * math.log(z) - z - math.lgamma(k + 1.0))
            if small:
                passed, late = around(k, y, density, q)
            else:
                passed = chance(k, y, g, density) / g
                other = c * y
                own = math.exp(k * math.log(other) - other - math.lgamma(k + 1.0))
                late = passed - math.exp(-k * math.log1p(1.0 / q.false)) * chance(k, y, c, own) / c
        length += passed
        stale += late
        survival += density
        if passed < NOTHING * length:
            break
    return length, stale, survival


def sure_stale(many: float, q: Quality) -> float:
    """Return the stale time of the first gaps between signals: Σ_{k<many} (1 − (1−p)^k (g/c)^{k+1})/g."""
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


def early_stale(y: float, g: float, c: float, a: float) -> float:
    """Return (1−e^{−gy})/g − (1−e^{−cy})/c for cy < 1, where c = g + a, as a series."""
    value, term, difference, power = 0.0, y, 0.0, 1.0
    for k in range(1, TERMS):
        difference = c * y * difference + a * y * power  # (cy)^k − (gy)^k
        power *= g * y
        term /= -(k + 1.0)
        value -= term * difference
        if abs(term * difference) <= NOTHING * value:
            break
    return value


def chance(k: float, y: float, rate: float, density: float) -> float:
    """Return R_k(rate·y): by its series, or by an integral where that would be long."""
    if k < MANY:
        return reached(k, rate * y, density)
    low, width = reach(k, y, rate)
    value = 0.0
    for j in range(len(GAUSS_NODES)):
        s = 0.5 * width * (1.0 + GAUSS_NODES[j])
        move = -s if low else s
        value += GAUSS_WEIGHTS[j] * math.exp(k * math.log1p(move / y) - rate * move)
    value *= 0.5 * width * rate * density
    return value if low else 1.0 - value


def reach(k: float, y: float, rate: float) -> tuple[bool, float]:
    """Return whether y lies below the mode of t^k e^{−rate·t}, and how far from it that is e^{−42} of y's."""
    low = rate * y <= k + 1.0
    slope = max(0.0, (k - rate * y) / y if low else rate - k / y)
    bend = 2.0 * TAIL * k / (y * y)
    if low:
        if bend + slope == 0.0:
            return low, y
        return low, min(y, 2.0 * TAIL / (slope + math.sqrt(slope * slope + bend)))
    width = 2.0 * TAIL / (slope + math.sqrt(slope * slope + bend))
    for _ in range(3):  # upwards the density falls more slowly than the parabola at y
        width = 2.0 * TAIL / (slope + math.sqrt(slope * slope + bend / (1.0 + 2.0 / 3.0 * width / y)))
    return low, width


def around(k: float, y: float, density: float, q: Quality) -> tuple[float, float]:
    """Return R_k(gy)/g and its stale part ∫₀^y e^{−gt}(gt)^k/k! (1 − e^{−kh−at}) dt, by quadrature."""
    g, a = q.signals, q.unannounced
    before = k * q.loss if k > 0.0 else 0.0
    low, width = reach(k, y, g)
    passed, stale = 0.0, 0.0
    for j in range(len(GAUSS_NODES)):
        s = 0.5 * width * (1.0 + GAUSS_NODES[j])
        move = -s if low else s
        height = GAUSS_WEIGHTS[j] * math.exp(k * math.log1p(move / y) - g * move)
        passed += height
        stale -= height * math.expm1(-before - a * (y + move))
    scale = 0.5 * width * density
    passed, stale = passed * scale, stale * scale
    if low:
        return passed, stale
    everything = -math.expm1(-before - (k + 1.0) * math.log1p(a / g)) / g
    return 1.0 / g - passed, everything - stale
