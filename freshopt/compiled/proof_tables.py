"""Octave tables of periodic costs and marginal values, for compiled proofs.

Printed formulas of periodic cells subtract nearly equal numbers where u = Δ/ρ is small. A rational function
of u with the same limits leaves a ratio between 1/3 and 2 that is smooth on logarithms: one row and one
polynomial give it to 1e-15 from u = 2⁻⁵³ to 2⁵⁴, and beyond it is its limit to half an ulp.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.numerics.inverse_tables import octave_place, octave_table, polynomial
from freshopt.numerics.special_functions import (
    EULER_GAMMA,
    age_index,
    gamma2,
    harmonic_index,
    log_excess,
    log_freshness_index,
)

# Octaves of u that the tables cover.
LOW, HIGH = -53, 54
SMALLEST_GAP, LARGEST_GAP = 2.0**LOW, 2.0**HIGH * (1.0 - 2.0**-53)
# A v whose reciprocal is a float.
FINITE = 1e300
# Terms of the series below `_FEW`, of which 2^30/30!² is 1e-23, and of the continued fraction above.
_FEW, _SERIES, _FRACTION = 2.0, 30, 60


def gap_of(rate: float, d: float) -> float:
    """Return u = Δ/ρ within the tables; NaN counts as the smallest.

    Examples
    --------
    >>> gap_of(2.0, 3.0), gap_of(1e300, 1.0) == 2.0**-53
    (1.5, True)
    """
    u = d / rate
    above = u if u > SMALLEST_GAP else SMALLEST_GAP
    return above if above < LARGEST_GAP else LARGEST_GAP


def ratio_at(table: Array, u: float) -> float:
    """Evaluate a table at a u within it."""
    row, z = octave_place(u, LOW)
    return polynomial(table, row, z)


def mean_harmonic_loss(u: Array) -> Array:
    """Return ∫₀¹ Ein(ut) dt for u > 0.

    SciPy, which takes long to load, is not needed.

    Examples
    --------
    >>> round(float(mean_harmonic_loss(np.float64(1.0))), 9)
    0.428720158
    """

    def series(u: Array) -> Array:
        value = np.zeros_like(u)
        for k in range(_SERIES, 0, -1):
            value = u * ((-1.0) ** (k + 1) / (math.factorial(k) * k * (k + 1)) + value)
        return value

    def closed(u: Array) -> Array:
        return _exponential_integral(u) + np.log(u) + (EULER_GAMMA - 1.0) - np.expm1(-u) / u

    return np.piecewise(u, [u < _FEW], [series, closed])


def _exponential_integral(u: Array) -> Array:
    """Return E₁(u) for u ≥ `_FEW`."""
    fraction = u + (2.0 * _FRACTION + 1.0)
    for k in range(_FRACTION, 0, -1):
        fraction = u + (2.0 * k - 1.0) - k * k / fraction
    return np.exp(-u) / fraction


def _gamma_ratio(u: Array) -> Array:
    return gamma2(u) * ((1.0 + u) / u) ** 2


def _harmonic_ratio(u: Array) -> Array:
    return harmonic_index(u) / u * ((2.0 + u) / u)


def _age_ratio(u: Array) -> Array:
    return age_index(u) / u / u * ((3.0 + 2.0 * u) / u)


def _mean_ratio(u: Array) -> Array:
    return (np.log1p(u) - mean_harmonic_loss(u)) * ((1.0 + u) / u)


def _log_ratio(u: Array) -> Array:
    return log_freshness_index(u) / u * ((2.0 + u) / u)


def _log_mean_ratio(u: Array) -> Array:
    return np.log1p(gamma2(u) / u) * ((1.0 + u) / u)


def _materials_ratio(u: Array) -> Array:
    # (1 − E₂(u))/u = (1 − e^{−u})/u + E₁(u), and log(1 + 1/u) of that, without cancellation on either side.
    def few(u: Array) -> Array:
        return 1.0 - EULER_GAMMA - (np.log1p(u) - mean_harmonic_loss(u))

    def many(u: Array) -> Array:
        return log_excess(1.0 / u) + (_exponential_integral(u) - np.exp(-u) / u)

    return np.piecewise(u, [u < _FEW], [few, many]) * (1.0 + u) ** 2


def _excess_ratio(v: Array) -> Array:
    return log_excess(v) / v * ((2.0 + v) / v)


def exponential_integral_sum(u: Array) -> Array:
    """Return Ein(u) = ∫₀ᵘ (1 − e^{−t})/t dt for u > 0.

    SciPy, which takes long to load, is not needed.
    """

    def series(u: Array) -> Array:
        term, value = np.ones_like(u), np.zeros_like(u)
        for k in range(1, _SERIES + 1):
            term = -term * u / k
            value = value - term / k
        return value

    def closed(u: Array) -> Array:
        return _exponential_integral(u) + np.log(u) + EULER_GAMMA

    return np.piecewise(u, [u < _FEW], [series, closed])


# P(2, u)·((1 + u)/u)², (u − 1 + e^{−u})(2 + u)/u², (u²/2 − P(2, u))(3 + 2u)/u³, and what the mean harmonic
# cost is below log(1 + u), times (1 + u)/u; and what (1 − E₂(u))/u is above log(1 + 1/u), times (1 + u)².
GAMMA, HARMONIC_INDEX, AGE_INDEX, HARMONIC_MEAN, MATERIALS_MEAN = (
    octave_table(ratio, LOW, HIGH)
    for ratio in (_gamma_ratio, _harmonic_ratio, _age_ratio, _mean_ratio, _materials_ratio)
)
# (u − u²/(e^u − 1))(2 + u)/u², and what log(u/(1 − e^{−u})) is below log(1 + u), times (1 + u)/u.
LOG_INDEX, LOG_MEAN = (octave_table(ratio, LOW, HIGH) for ratio in (_log_ratio, _log_mean_ratio))
# For refreshes on request: (v − log(1 + v))(2 + v)/v².
LOG_EXCESS = octave_table(_excess_ratio, LOW, HIGH)


def fallen(v: float) -> tuple[float, float, float, float]:
    """Return what has decayed at v, and its means.

    These are 1 − e^{−v}, P(2, v), 1 − (1 − e^{−v})/v and (1 − e^{−v})/v.

    Nothing cancels.

    Examples
    --------
    >>> [round(float(each), 6) for each in fallen(1.0)]
    [0.632121, 0.264241, 0.367879, 0.632121]
    """
    finite = v if v < FINITE else FINITE
    share, rest = finite / (1.0 + finite), 1.0 / (1.0 + finite)
    scaled = ratio_at(GAMMA, min(max(finite, SMALLEST_GAP), LARGEST_GAP)) * share
    index, part = scaled * share, scaled * rest
    return share + rest * index, index, share - rest * part, rest * (1.0 + part)
