"""Octave tables of functions of u, for refreshes on request.

Unlike ratios, functions themselves have no limit at either end: below the octaves they are their first terms,
above them the index is u − 1, and Ein(u) that of the last octave and as many times log 2 as u is octaves
above it.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled.proof_tables import exponential_integral_sum
from freshopt.numerics.inverse_tables import OCTAVE, octave_table, polynomial, sixteenth_place
from freshopt.numerics.special_functions import age_index, harmonic_index, inverse_log_excess
from freshopt.numerics.vector_math import EXPONENT, IN_FRONT, WHOLE

# Octaves of u: below, u − 1 + e^{−u} is u²/2 to half an ulp, above, e^{−u} is 1e-56.
LOW, HIGH = -53, 7
LEAST, MANY = 2.0**LOW, 2.0**HIGH
# Octaves of y = A − log(1 + A): below, A is √(2y) to half an ulp, above, y.
LEVEL_LOW, LEVEL_HIGH = -107, 60
LEAST_LEVEL, LARGEST_LEVEL = 2.0**LEVEL_LOW, 2.0**LEVEL_HIGH
_FIRST_BITS, _OCTAVE = np.uint64(48), np.uint64(OCTAVE)
_FIRST, _FIRST_LEVEL = np.uint64(OCTAVE * (1023 + LOW)), np.uint64(OCTAVE * (1023 + LEVEL_LOW))
# Exponent bits of the last octave of u.
_LAST, _NONE = np.uint64(1022 + HIGH), np.uint64(0)
_LOG2 = math.log(2.0)

INDEX = octave_table(harmonic_index, LOW, HIGH)
EIN = octave_table(exponential_integral_sum, LOW, HIGH)
AGE = octave_table(age_index, LOW, HIGH)
WHOLE_GAP = octave_table(inverse_log_excess, LEVEL_LOW, LEVEL_HIGH)


def index_and_ein(u: float) -> tuple[float, float]:
    """Return the harmonic index and the exponential integral Ein at u.

    They are u − 1 + e^{−u} and ∫₀ᵘ (1 − e^{−t})/t dt.

    Examples
    --------
    >>> [round(float(value), 12) for value in index_and_ein(1.0)]
    [0.367879441171, 0.796599599297]
    """
    bits = np.float64(max(LEAST, u)).view(np.uint64)
    exponent = np.uint64(bits >> EXPONENT)
    above = np.uint64(exponent - _LAST) if exponent > _LAST else _NONE
    row, z = np.int64((bits >> _FIRST_BITS) - _FIRST - above * _OCTAVE), sixteenth_place(bits)
    octaves = np.uint64(above | IN_FRONT).view(np.float64) - WHOLE
    ein = polynomial(EIN, row, z) + octaves * _LOG2
    index = polynomial(INDEX, row, z)
    index = index if u < MANY else u - 1.0
    return index if u > LEAST else 0.5 * u * u, ein if u > LEAST else u


def index_and_age(u: float) -> tuple[float, float]:
    """Return the indices of harmonic staleness and of age at u.

    They are u − 1 + e^{−u} and u²/2 − P(2, u).

    Examples
    --------
    >>> [round(float(value), 12) for value in index_and_age(1.0)]
    [0.367879441171, 0.235758882343]
    """
    within = u if u > LEAST else LEAST
    within = within if within < MANY else LEAST
    bits = np.float64(within).view(np.uint64)
    row, z = np.int64((bits >> _FIRST_BITS) - _FIRST), sixteenth_place(bits)
    index, age = polynomial(INDEX, row, z), polynomial(AGE, row, z)
    square = 0.5 * u * u
    # With e^{−u} = 0, and the first terms of both.
    index = index if u < MANY else u - 1.0
    age = age if u < MANY else square - 1.0
    return index if u > LEAST else square, age if u > LEAST else square * u * (2.0 / 3.0)


def whole_gap(level: float) -> float:
    """Return A with A − log(1 + A) = level ≥ 0.

    Examples
    --------
    >>> round(float(whole_gap(3.0 - math.log(4.0))), 12)
    3.0
    """
    inside = level if level > LEAST_LEVEL else LEAST_LEVEL
    inside = inside if inside < LARGEST_LEVEL else LEAST_LEVEL
    bits = np.float64(inside).view(np.uint64)
    gap = polynomial(WHOLE_GAP, np.int64((bits >> _FIRST_BITS) - _FIRST_LEVEL), sixteenth_place(bits))
    gap = gap if level > LEAST_LEVEL else math.sqrt(2.0 * level)
    return gap if level < LARGEST_LEVEL else level
