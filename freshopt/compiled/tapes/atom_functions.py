"""Value, slope and curvature of each atom at one number.

These are the rules of `freshopt.autodiff`, written for one source instead of an array: same formulas, same
order of operations, infinities and NaN included. Loops compiled from declared expressions inline them; what a
loop does not use of the three numbers is not computed. Selections are conditional expressions, never
statements, so that a compiler can spread a loop over the lanes of a processor.

Logarithms and exponentials are `freshopt.numerics.vector_math`, extended here to all floats. They are within
3 ulp, so that compiled results and NumPy's differ by that and by nothing else.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from freshopt.numerics.vector_math import fast_exp, fast_log

Three: TypeAlias = tuple[float, float, float]

# The smallest normal float; smaller ones are multiplied by 2⁵⁴ first.
NORMAL, UP, LOG_UP = 2.2250738585072014e-308, 18014398509481984.0, 37.42994775023705
# Beyond these, e^x is e^(x ± 100)·e^∓100: the sum is exact, the product over- and underflows gradually.
MOST, LEAST, SHIFT = 709.0, -708.0, 100.0
GROWN, SHRUNK = 2.6881171418161356e43, 3.720075976020836e-44
# Below this |s| relative entropies use the series 2·atanh(s) − 2s = s·Σ 2s^(2k+2)/(2k+3): 12 terms.
NEAR = 1.0 / 7.0


def log_of(x: float) -> float:
    """Return log x for any float.

    Examples
    --------
    >>> [round(float(log_of(x)), 12) for x in (0.0, 1.0, 5e-324, float("inf"))]
    [-inf, 0.0, -744.440071921381, inf]
    """
    small = x < NORMAL
    positive = (x > 0.0) & (x < np.inf)
    found = fast_log((x * UP if small else x) if positive else 1.0) - (LOG_UP if small else 0.0)
    return found if positive else (-np.inf if x == 0.0 else (np.inf if x > 0.0 else np.nan))


def exp_of(x: float) -> float:
    """Return e^x for any float.

    Examples
    --------
    >>> [exp_of(x) for x in (float("-inf"), 0.0, 1000.0)]
    [0.0, 1.0, inf]
    """
    low, high, known = x < LEAST, x > MOST, x == x
    shifted = x + (SHIFT if low else (-SHIFT if high else 0.0))
    found = fast_exp(shifted if known else 0.0) * (SHRUNK if low else (GROWN if high else 1.0))
    return found if known else x


def log1p_of(x: float) -> float:
    """Return log(1 + x) for any float.

    What rounding takes from 1 + x is added again.

    Examples
    --------
    >>> [float(log1p_of(x)) for x in (-1.0, 1e-300, float("inf"))]
    [-inf, 1e-300, inf]
    """
    u = 1.0 + x
    inside = (u > 0.0) & (u < np.inf)
    rounded = (x - (u - 1.0)) / (u if inside else 1.0)
    return log_of(u) + (rounded if inside else 0.0)


def mended(x: float, at: float, found: float, limit: float, outside: float) -> float:
    """Return a domain's limit at its edge, the extended value beyond."""
    return limit if x == at else (outside if x < at else found)


def weighted(coefficient: float, value: float) -> float:
    """Return the product, with 0 times infinity equal to 0."""
    return coefficient * value if coefficient != 0.0 else 0.0


def sign_of(x: float) -> float:
    """Return −1, 0 or 1, and NaN for NaN."""
    return 1.0 if x > 0.0 else (-1.0 if x < 0.0 else x)


def larger(a: float, b: float) -> float:
    """Return the larger number, NaN if one of them is NaN."""
    return a if (a >= b) | (a != a) else b


def smaller(a: float, b: float) -> float:
    """Return the smaller number, NaN if one of them is NaN."""
    return a if (a <= b) | (a != a) else b


def log(x: float) -> Three:
    """Return log x and its derivatives."""
    inverse = 1.0 / x
    return log_of(x), inverse, -(inverse * inverse)


def log1p(x: float) -> Three:
    """Return log(1 + x) and its derivatives."""
    inverse = 1.0 / (1.0 + x)
    return log1p_of(x), inverse, -(inverse * inverse)


def exp(x: float) -> Three:
    """Return e^x and its derivatives."""
    e = exp_of(x)
    return e, e, e


def logistic(x: float) -> Three:
    """Return log(1 + e^x) and its derivatives, without overflow."""
    q = exp_of(-abs(x))
    inverse = 1.0 / (1.0 + q)
    tail = q * inverse
    return larger(x, 0.0) + log1p_of(q), inverse if x >= 0.0 else tail, tail * inverse


def entr(x: float) -> Three:
    """Return −x·log x and its derivatives."""
    logarithm = log_of(x)
    return -x * logarithm, -1.0 - logarithm, -1.0 / x


def xexp(x: float) -> Three:
    """Return x·e^x and its derivatives."""
    e = exp_of(x)
    return x * e, (x + 1.0) * e, (x + 2.0) * e


def huber(x: float, m: float) -> Three:
    """Return Huber's function and its derivatives."""
    cut = smaller(larger(x, -m), m)
    return cut * (2.0 * x - cut), 2.0 * cut, 2.0 if abs(x) <= m else 0.0


def inverse(x: float) -> Three:
    """Return 1/x and its derivatives."""
    value = 1.0 / x
    slope = -(value * value)
    return value, slope, -2.0 * (slope * value)


def root(x: float) -> Three:
    """Return √x and its derivatives."""
    value = np.sqrt(x)
    slope = 0.5 / value
    return value, slope, -0.5 * slope / x


def square(x: float) -> Three:
    """Return x² and its derivatives."""
    return x * x, 2.0 * x, 2.0


def low_power(x: float, p: float) -> Three:
    """Return x^p and its derivatives, p < 2."""
    value = np.power(x, p)
    slope = p * (value / x)
    return value, slope, (p - 1.0) * (slope / x)


def high_power(x: float, p: float) -> Three:
    """Return x^p and its derivatives, p > 2, by way of x^(p−2)."""
    bend = np.power(x, p - 2.0)
    first = bend * x
    return first * x, p * first, p * (p - 1.0) * bend


def powers(x: float, p: float) -> Three:
    """Return x^p and its derivatives, p any; extended below 0."""
    beyond, far = x < 0.0, -np.inf if (p > 0.0) & (p < 1.0) else np.inf
    inside = 1.0 if beyond else x
    value = np.power(inside, p)
    slope = p * np.power(inside, p - 1.0) if p != 0.0 else 0.0
    bend = p * (p - 1.0) * np.power(inside, p - 2.0) if (p != 0.0) & (p != 1.0) else 0.0
    return far if beyond else value, -far if beyond else slope, np.nan if beyond else bend


def logarithms(x: float, y: float, z: float) -> tuple[float, float, float, bool]:
    """Return the logarithms of two affine functions without cancellation.

    These are L = log(y/x), E = L − z/y, z − x·L, and whether x and y are near: E only where they are.
    """
    ratio = y / x
    usual = (ratio >= 1e-300) & (ratio <= 1e300)
    logarithm = log_of(ratio if usual else np.sqrt(y) / np.sqrt(x)) * (1.0 if usual else 2.0)
    share = z / y
    s = z / (x + y)
    near = abs(s) <= NEAR
    s = s if near else 0.0
    q = s * s
    tail = 2.0 / 25.0
    tail = tail * q + 2.0 / 23.0
    tail = tail * q + 2.0 / 21.0
    tail = tail * q + 2.0 / 19.0
    tail = tail * q + 2.0 / 17.0
    tail = tail * q + 2.0 / 15.0
    tail = tail * q + 2.0 / 13.0
    tail = tail * q + 2.0 / 11.0
    tail = tail * q + 2.0 / 9.0
    tail = tail * q + 2.0 / 7.0
    tail = tail * q + 2.0 / 5.0
    tail = tail * q + 2.0 / 3.0
    tail = tail * q * s
    return (
        2.0 * s + tail if near else logarithm,
        s * share + tail,
        s * z - x * tail if near else z - x * logarithm,
        near,
    )


def rel_entr(x: float, y: float, z: float, dx: float, dy: float, dz: float, determinant: float) -> Three:
    """Return x·log(x/y) and its derivatives in the rate."""
    logarithm, excess, _, near = logarithms(x, y, z)
    slope = -weighted(dz if near else dy, x / y) - dx * (excess if near else logarithm - 1.0)
    return entropy_mended(-x * logarithm, slope, x, y, dx, dy, determinant, 0.0)


def kl_div(x: float, y: float, z: float, dx: float, dy: float, dz: float, determinant: float) -> Three:
    """Return x·log(x/y) − x + y and its derivatives in the rate."""
    logarithm, excess, value, near = logarithms(x, y, z)
    slope = weighted(dz if near else dy, z / y) - dx * (excess if near else logarithm)
    return entropy_mended(value, slope, x, y, dx, dy, determinant, 1.0)


def entropy_mended(
    value: float, slope: float, x: float, y: float, dx: float, dy: float, determinant: float, at_zero: float
) -> Three:
    """Return a relative entropy, with limits and extended values."""
    share = determinant / y
    curvature = share * share / x
    x_out, y_out = x <= 0.0, y <= 0.0
    out, inside = x_out | y_out, (x == 0.0) & (y >= 0.0)
    inwards = (sign_of(dx) if x_out else 0.0) + (sign_of(dy) if y_out else 0.0)
    still = at_zero * dy if inside else slope
    towards = -np.inf if inwards > 0.0 else (np.inf if inwards < 0.0 else still)
    return (
        at_zero * y if inside else (np.inf if out else value),
        towards if out else slope,
        curvature,
    )
