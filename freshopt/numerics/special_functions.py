"""Special functions of the refresh disciplines, stable over 200 decades.

The arguments run from u = 1e-100 to 1e100.
The printed formulas of the periodic cells subtract nearly equal numbers when u = Δ/ρ is small (a source that
is refreshed much more often than it changes), so each function here has a series for small arguments and the
closed form for large ones. Both branches are evaluated and one is selected: the functions take scalars or
arrays.

Throughout u ≥ 0 is dimensionless, and each inverse is the exact partner of its function: they agree to a few
ulp, which is what lets a solver meet the bandwidth to a few ulp.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.numerics.arrays import Array

EULER_GAMMA = 0.577215664901532860606512090082402431
# Below this u the series is used; there the closed forms have lost less than 4 ulp.
_SMALL = 0.5
# Terms of a series: 0.5^16/16! < 1e-18.
_SERIES = 16
# Inverses are asked for no more: the square of their root is still a float, as inf's is not.
HUGE = 1e300
# Newton steps from the starting values below: relative error 7e-4, 9e-8, 1e-15, 2e-16 after each.
_NEWTON = 4

# Coefficients of u^k in the series of each function, from k = 1 on.
_STALE = [(-1.0) ** (k + 1) / math.factorial(k + 1) for k in range(1, _SERIES)]
_EIN = [(-1.0) ** (k + 1) / (math.factorial(k) * k) for k in range(1, _SERIES)]
# Of u^k, divided by u², from k = 2 on.
_INDEX = [(-1.0) ** k / math.factorial(k) for k in range(2, _SERIES + 1)]
_AGE = [(-1.0) ** k / math.factorial(k + 1) for k in range(2, _SERIES + 1)]
_GAMMA2 = [(-1.0) ** k * (k - 1) / math.factorial(k) for k in range(2, _SERIES + 1)]
# Of u^{k+2}, divided by u³, from k = 1 on.
_AGE_INDEX = [(-1.0) ** (k + 1) / (math.factorial(k) * (k + 2)) for k in range(1, 22)]
# Of z^(2k+3); z ≤ 0.2 for u ≤ 0.5.
_ATANH = [2.0 / (2 * k + 3) for k in range(12)]


def mean_stale_share(u: Array) -> Array:
    """Return 1 − (1−e^{−u})/u, the mean stale share of a period.

    Examples
    --------
    >>> float(mean_stale_share(np.float64(1e-8)))
    4.99999998...e-09
    """
    x, low = np.maximum(u, _SMALL), np.minimum(u, _SMALL)
    return np.where(u < _SMALL, low * _horner(_STALE, low), 1.0 + np.expm1(-x) / x)


def ein(u: Array) -> Array:
    """Return the entire exponential integral Ein(u) = ∫₀ᵘ (1−e^{−t})/t dt.

    It is the expected H(m) of a Poisson number m of mean u.

    Examples
    --------
    >>> round(float(ein(np.float64(1.0))), 12)
    0.796599599297
    """
    from scipy.special import exp1

    x, low = np.maximum(u, _SMALL), np.minimum(u, _SMALL)
    return np.where(u < _SMALL, low * _horner(_EIN, low), exp1(x) + np.log(x) + EULER_GAMMA)


def harmonic_index(u: Array) -> Array:
    """Return the index u − 1 + e^{−u} of harmonic staleness.

    V in units of 1/Δ.

    Examples
    --------
    >>> float(harmonic_index(np.float64(1e-8)))
    4.99999998...e-17
    """
    x = np.minimum(u, _SMALL)
    return np.where(u < _SMALL, x * x * _horner(_INDEX, x), u + np.expm1(-u))


def inverse_harmonic_index(y: Array) -> Array:
    """Return the inverse of `harmonic_index`, for y ≥ 0.

    It is the u ≥ 0 with u − 1 + e^{−u} = y.

    Examples
    --------
    >>> float(harmonic_index(inverse_harmonic_index(np.float64(2.5))))
    2.5
    """
    y = np.minimum(y, HUGE)
    root = np.sqrt(2.0 * y)
    u = np.where(y < 1.0, root * (1.0 + root / 6.0), 1.0 + y)
    for _ in range(_NEWTON):
        u = u + (y - harmonic_index(u)) / np.where(u > 0.0, -np.expm1(-u), 1.0)
    return u


def mean_age(u: Array) -> Array:
    """Return u/2 − 1 + (1−e^{−u})/u, the mean age.

    It is the mean over a period of t − 1 + e^{−t}.

    Examples
    --------
    >>> float(mean_age(np.float64(1e-8)))
    1.66666666...e-17
    """
    x, large = np.minimum(u, _SMALL), np.maximum(u, _SMALL)
    closed = 0.5 * u - 1.0 - np.expm1(-large) / large
    return np.where(u < _SMALL, x * x * _horner(_AGE, x), closed)


def age_index(u: Array) -> Array:
    """Return the index u²/2 − P(2, u) of age.

    V of the age of the oldest missed change, in units of 1/Δ².

    Examples
    --------
    >>> float(age_index(np.float64(1e-4)))
    3.3332083...e-13
    """
    x = np.minimum(u, 2.0 * _SMALL)
    return np.where(u < 2.0 * _SMALL, x * x * x * _horner(_AGE_INDEX, x), 0.5 * u * u - gamma2(u))


def inverse_age_index(y: Array) -> Array:
    """Return the inverse of `age_index`, for y ≥ 0.

    It is the u ≥ 0 with u²/2 − P(2, u) = y.

    Examples
    --------
    >>> round(float(age_index(inverse_age_index(np.float64(2.5)))), 14)
    2.5
    """
    y = np.minimum(y, HUGE)
    root = np.cbrt(3.0 * y)
    # First terms of both ends, within a ninth of the root: errors of 9e-3, 5e-5, 2e-9, 2e-16 after each step.
    u = np.where(y < 1.2, root * (1.0 + root / 8.0), np.sqrt(2.0 * y + 2.0))
    for _ in range(_NEWTON):
        slope = np.where(u > 0.0, -u * np.expm1(-u), 1.0)
        u = u + (y - age_index(u)) / slope
    return u


def gamma2(u: Array) -> Array:
    """Return the incomplete gamma function P(2, u), index of binary freshness.

    P(2, u) = 1 − (1+u)e^{−u}, the V of binary freshness in units of 1/Δ.

    Examples
    --------
    >>> float(gamma2(np.float64(1e-8)))
    4.9999999...e-17
    """
    x, large = np.minimum(u, _SMALL), np.minimum(u, 1e3)  # P(2, 1000) is 1 to the last bit
    return np.where(u < _SMALL, x * x * _horner(_GAMMA2, x), -np.expm1(np.log1p(large) - large))


def inverse_gamma2(y: Array) -> Array:
    """Return the inverse of P(2, u), inf for y ≥ 1.

    It is the u ≥ 0 with P(2, u) = y, for 0 ≤ y < 1.

    Examples
    --------
    >>> round(float(gamma2(inverse_gamma2(np.float64(0.25)))), 15)
    0.25
    """
    inside = np.minimum(y, 1.0 - 2.0**-53)
    return np.where(y >= 1.0, np.inf, inverse_log_excess(-np.log1p(-inside)))


def log_excess(u: Array) -> Array:
    """Return u − log(1+u), stable for small u.

    Examples
    --------
    >>> float(log_excess(np.float64(1e-8)))
    4.9999999...e-17
    """
    x = np.minimum(u, _SMALL)
    z = x / (2.0 + x)  # log1p(x) = 2 atanh(z), hence x − log1p(x) = xz − 2(z³/3 + z⁵/5 + ...)
    return np.where(u < _SMALL, x * z - z * z * z * _horner(_ATANH, z * z), u - np.log1p(u))


def inverse_log_excess(y: Array) -> Array:
    """Return the inverse of `log_excess`, for y ≥ 0.

    It is the u ≥ 0 with u − log(1+u) = y.

    Examples
    --------
    >>> float(log_excess(inverse_log_excess(np.float64(3.0))))
    3.0
    """
    root = np.sqrt(2.0 * y)
    u = np.where(y < 1.0, root * (1.0 + root / 3.0), y + np.log1p(y + np.log1p(y)))
    for _ in range(_NEWTON):
        u = u + (y - log_excess(u)) * np.where(u > 0.0, (1.0 + u) / np.where(u > 0.0, u, 1.0), 1.0)
    return u


def log_freshness_loss(u: Array) -> Array:
    """Return log(u/(1 − e^{−u})), minus the logarithm of a period's fresh share.

    Examples
    --------
    >>> float(log_freshness_loss(np.float64(1e-8)))
    4.99999999...e-09
    """
    # 1 + u over the argument is 1 + P(2, u)/u.
    return np.log1p(u) - np.log1p(gamma2(u) / np.where(u > 0.0, u, 1.0))


def log_freshness_index(u: Array) -> Array:
    """Return the index u − u²/(e^u − 1) of log freshness.

    Examples
    --------
    >>> float(log_freshness_index(np.float64(1e-8)))
    4.9999999...e-17
    """
    return u * _log_fall(u)


def inverse_log_freshness_index(y: Array) -> Array:
    """Return the inverse of `log_freshness_index`, for y ≥ 0.

    Examples
    --------
    >>> round(float(log_freshness_index(inverse_log_freshness_index(np.float64(2.5)))), 14)
    2.5
    """
    y = np.minimum(y, HUGE)
    root = np.sqrt(2.0 * y)
    few = np.minimum(y, HUGE**0.5)
    u = np.where(y < 2.5, root * (1.0 + root / 12.0), y + few * few * np.exp(-few))
    for _ in range(_NEWTON):
        fall = _log_fall(u)
        slope = fall * fall + (1.0 - fall) * u
        u = u + (y - log_freshness_index(u)) / np.where(u > 0.0, slope, 1.0)
    return u


def _log_fall(u: Array) -> Array:
    """Return 1 − u/(e^u − 1) = P(2, u)/(1 − e^{−u})."""
    return gamma2(u) / np.where(u > 0.0, -np.expm1(-u), 1.0)


def _horner(coefficients: list[float], x: Array) -> Array:
    """Evaluate the polynomial Σ c_k x^k."""
    value = np.zeros_like(x)
    for c in reversed(coefficients):
        value = value * x + c
    return value
