"""Logarithm and exponential in plain arithmetic, for vectorised loops.

A library's functions are called one source at a time; these are a dozen multiplications that a compiler can
spread over the lanes of a processor. Their polynomials are evaluated in parts by Estrin's scheme: a chain of
multiplications, each waiting for the one before, would leave lanes idle. Both are within 2 ulp of the exact
values for finite arguments > 0 and results inside the floats.
"""

from __future__ import annotations

import numpy as np

# ln 2 to 33 bits, so that multiples of it are exact, and the rest; both as in fdlibm.
LOG2_HIGH = 6.93147180369123816490e-01
LOG2_LOW = 1.90821492927058770002e-10
INVERSE_LOG2 = 1.4426950408889634
MANTISSA, ONE, HALF_ROOT = np.uint64(0x000FFFFFFFFFFFFF), np.uint64(0x3FF0000000000000), 1.4142135623730951
# A whole number is the last bits of its sum with these floats, and those of 2^52 in front of bits make them a
# float: processors without AVX-512 have no vector instruction between integers and floats.
ROUNDER, WHOLE = 6755399441055744.0, 4503599627370496.0
EXPONENT, IN_FRONT, BIAS = np.uint64(52), np.uint64(0x4330000000000000), np.uint64(1023)
# The first 52 bits of a float > 0, in units of 2^40, are its exponent and the rest of its mantissa: log₂ but
# for 0.086, of which `BIASED` takes half.
LAST_BITS, UNITS, BIASED, LOG2 = np.uint64(12), 2.0**40, 1023.0 - 0.043, 0.6931471805599453
# Half the bits of 1.0, but for what centres the error of halved bits.
HALF, HALF_ONE = np.uint64(1), np.uint64(0x1FF7A3BEA91D9B1B)
# Exponents at which e^x is still a normal float.
LARGEST, SMALLEST = 709.0, -708.0


def fast_log(x: float) -> float:
    """Return log x for a normal number x > 0.

    Examples
    --------
    >>> bool(abs(fast_log(10.0) - float(np.log(10.0))) < 1e-15)
    True
    """
    bits = np.float64(x).view(np.uint64)
    mantissa = np.uint64((bits & MANTISSA) | ONE).view(np.float64)
    above = mantissa > HALF_ROOT
    m = 0.5 * mantissa if above else mantissa
    biased = np.uint64((bits >> EXPONENT) | IN_FRONT).view(np.float64) - WHOLE
    exponent = biased - (1022.0 if above else 1023.0)
    z = (m - 1.0) / (m + 1.0)  # log m = 2 artanh z, |z| <= 0.1716
    q = z * z
    q2 = q * q
    q4 = q2 * q2
    low = (1.0 / 3.0 + q * (1.0 / 5.0)) + q2 * (1.0 / 7.0 + q * (1.0 / 9.0))
    high = (1.0 / 11.0 + q * (1.0 / 13.0)) + q2 * (1.0 / 15.0 + q * (1.0 / 17.0))
    series = low + q4 * (high + q4 * (1.0 / 19.0 + q * (1.0 / 21.0)))
    return exponent * LOG2_HIGH + (2.0 * z + (2.0 * z * q * series + exponent * LOG2_LOW))


def fast_exp(x: float) -> float:
    """Return exp x for −708 <= x <= 709.

    Beyond, it is that of the ends.

    Examples
    --------
    >>> bool(abs(fast_exp(-3.5) / float(np.exp(-3.5)) - 1.0) < 1e-15)
    True
    """
    inside = min(max(x, SMALLEST), LARGEST)
    k = np.rint(inside * INVERSE_LOG2)
    r = (inside - k * LOG2_HIGH) - k * LOG2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0))
    high = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + r2 * (1.0 / 3628800.0 + r * (1.0 / 39916800.0))
    high = high + r4 * (1.0 / 479001600.0 + r * (1.0 / 6227020800.0))
    series = 1.0 + (r + r2 * ((0.5 + r * (1.0 / 6.0)) + r2 * (low + r4 * high)))
    bits = np.float64(k + ROUNDER).view(np.uint64)
    return float(series * np.uint64((bits + BIAS) << EXPONENT).view(np.float64))


def rough_log(x: float) -> float:
    """Return log x, off by at most 0.03.

    Examples
    --------
    >>> bool(abs(rough_log(10.0) - float(np.log(10.0))) < 0.03)
    True
    """
    bits = np.uint64((np.float64(x).view(np.uint64) >> LAST_BITS) | IN_FRONT)
    return float(((bits.view(np.float64) - WHOLE) / UNITS - BIASED) * LOG2)


def rough_exp(x: float) -> float:
    """Return e^x to 3 % for −708 <= x <= 709.

    Examples
    --------
    >>> bool(abs(rough_exp(-3.5) / float(np.exp(-3.5)) - 1.0) < 0.031)
    True
    """
    inside = min(max(x, SMALLEST), LARGEST)
    bits = np.float64((inside * INVERSE_LOG2 + BIASED) * UNITS + WHOLE).view(np.uint64)
    return float(np.uint64(bits << LAST_BITS).view(np.float64))


def rough_root(x: float) -> float:
    """Return √x to 0.1 % for a normal number x > 0.

    Compilers take library roots one at a time where they decide what is looked up.

    Examples
    --------
    >>> bool(abs(rough_root(10.0) / float(np.sqrt(10.0)) - 1.0) < 1e-3)
    True
    """
    near = np.uint64((np.float64(x).view(np.uint64) >> HALF) + HALF_ONE).view(np.float64)
    return float(0.5 * (near + x / near))
