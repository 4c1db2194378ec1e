"""Poisson tails and integrals of their densities, in scalar arithmetic.

Compiled loops inline it.

R_k(x) = P(Poisson(x) > k) is the share of cycles that have not ended with k signals; its integrals against
e^{−at} are what staleness adds. Small values are sums of positive terms, so that they keep all digits.
"""

from __future__ import annotations

import math

import numpy as np

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
