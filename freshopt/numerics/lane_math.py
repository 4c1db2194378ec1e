"""e^x−1, e^x and log x in plain arithmetic without branches.

For sums over crawl intervals. Unlike in `vector_math` nothing is done in another order than it is written,
which keeps e^x−1 accurate near 0.
All are within 2 ulp of the exact values.
"""

from __future__ import annotations

import numpy as np

from freshopt.numerics.vector_math import HALF_ROOT, INVERSE_LOG2, LOG2_HIGH, LOG2_LOW, MANTISSA, ONE

# Beyond, e^x−1 is that of 700, whose inverse is 0 beside anything.
LARGEST = 700.0
# 1.5·2^52: what is added to it is rounded to an integer, which then stands in its last bits. Processors
# without AVX-512 convert to integers one number at a time.
SHIFT = 6755399441055744.0
# Signed, as the bits are that they meet: NumPy has no common type of the two.
FRACTION, EXPONENT_OF_ONE = np.int64(MANTISSA), np.int64(ONE)


def lane_expm1(x: float) -> float:
    """Return e^x − 1 for 0 <= x <= 700.

    Examples
    --------
    >>> bool(abs(lane_expm1(1e-9) / float(np.expm1(1e-9)) - 1.0) < 1e-15)
    True
    """
    inside = min(x, LARGEST)
    shifted = inside * INVERSE_LOG2 + SHIFT
    k = shifted - SHIFT
    rest = (inside - k * LOG2_HIGH) - k * LOG2_LOW
    power = np.int64((np.float64(shifted).view(np.int64) << 52) + (1023 << 52)).view(np.float64)
    return float(power * rest_expm1(rest) + (power - 1.0))


def lane_exp(x: float) -> float:
    """Return e^x for −700 <= x <= 700.

    Beyond, it is that of the ends.

    Examples
    --------
    >>> bool(abs(lane_exp(-3.5) / float(np.exp(-3.5)) - 1.0) < 1e-15)
    True
    """
    inside = min(max(x, -LARGEST), LARGEST)
    shifted = inside * INVERSE_LOG2 + SHIFT
    k = shifted - SHIFT
    rest = (inside - k * LOG2_HIGH) - k * LOG2_LOW
    power = np.int64((np.float64(shifted).view(np.int64) << 52) + (1023 << 52)).view(np.float64)
    return float(power * rest_expm1(rest) + power)


def rest_expm1(r: float) -> float:
    """Return e^r − 1 for |r| <= ln(2)/2, by Taylor's series."""
    series = 1.0 / 6227020800.0
    series = series * r + 1.0 / 479001600.0
    series = series * r + 1.0 / 39916800.0
    series = series * r + 1.0 / 3628800.0
    series = series * r + 1.0 / 362880.0
    series = series * r + 1.0 / 40320.0
    series = series * r + 1.0 / 5040.0
    series = series * r + 1.0 / 720.0
    series = series * r + 1.0 / 120.0
    series = series * r + 1.0 / 24.0
    series = series * r + 1.0 / 6.0
    series = series * r + 0.5
    return series * r * r + r


def lane_log(x: float) -> float:
    """Return log x for a normal number x > 0.

    Examples
    --------
    >>> bool(abs(lane_log(10.0) - float(np.log(10.0))) < 1e-15)
    True
    """
    bits = np.float64(x).view(np.int64)
    mantissa = np.int64((bits & FRACTION) | EXPONENT_OF_ONE).view(np.float64)
    above = mantissa > HALF_ROOT
    m = 0.5 * mantissa if above else mantissa
    exponent = float((bits >> 52) - 1023) + (1.0 if above else 0.0)
    z = (m - 1.0) / (m + 1.0)  # log m = 2 artanh z, |z| <= 0.1716
    q = z * z
    series = 1.0 / 21.0
    series = series * q + 1.0 / 19.0
    series = series * q + 1.0 / 17.0
    series = series * q + 1.0 / 15.0
    series = series * q + 1.0 / 13.0
    series = series * q + 1.0 / 11.0
    series = series * q + 1.0 / 9.0
    series = series * q + 1.0 / 7.0
    series = series * q + 1.0 / 5.0
    series = series * q + 1.0 / 3.0
    return exponent * LOG2_HIGH + (2.0 * z + (2.0 * z * q * series + exponent * LOG2_LOW))
