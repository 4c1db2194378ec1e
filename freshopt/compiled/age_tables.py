"""Octave tables of the best responses of age.

At the price λ of a source of importance w, x = ρ/Δ depends on q = Δ²·λ/w alone. Under Poisson refreshes
(2x + 1)/(x(x + 1))² = q; with z² = 2x + 1 that is z⁴ − 4gz − 1 = 0, g = 1/√q, which the root u > 0 of
u³ + 4u = 16g² splits into two quadratic equations. Under periodic refreshes u²/2 − P(2, u) = q, u = 1/x. On
logarithms both are smooth: one row and one polynomial give x to 1e-15 between the limits of rare and frequent
refreshes, and beyond them x is its limit to half an ulp.

=========  =====================  ===============================
table      q above 2^HIGH: ρ is   q below 2^LOW: ρ is
=========  =====================  ===============================
Poisson    √(w/λ)                 ∛(2Δw/λ) − Δ/2
periodic   √(w/2λ)                ∛(Δw/3λ) − Δ/8
=========  =====================  ===============================

The next terms of the limits are smaller than ρ by x²/2, and by 1/(8x²) at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.numerics.inverse_tables import (
    octave_place,
    octave_table,
    octave_values,
    polynomial,
)
from freshopt.numerics.special_functions import inverse_age_index

# Octaves of q: there x is 2^28 and 2^−28, so that the limits are right to 2^−54.
LOW, HIGH = -81, 56
LEAST, LARGEST = 2.0**LOW, 2.0**HIGH * (1.0 - 2.0**-53)
_EXPONENT, _SIXTEEN = np.uint64(52), np.uint64(16)
# Three octaves in a number's bits, and the first bits of 2^HIGH.
_EIGHT, _TOP = np.uint64(3 << 52), np.uint64((1023 + HIGH) << 52)
# Times 21846/2^16 an exponent of floats is divided by 3. That of 8^−341, the least of products, is 0.
_THIRD, _LEAST_CUBE = np.uint64(21846), np.uint64(1023 - 341)
# Products Δ·w/λ of Δ > 1 are taken times 2^−333, so that they are floats, and their cube roots times 2^111.
# What is cut here is beyond every limit.
_DOWN, _UP, MOST = 2.0**-333, 2.0**111, 1e300


class AgeTable(NamedTuple):
    """Table of a discipline and its limits.

    - `rows`: Polynomials of x on the octaves of q, then of ∛(cube·v) for 1 ≤ v < 8.
    - `cube`, `shift`, `square`: x is ∛(cube/q) − shift for small q, √(square/q) for large q.
    """

    rows: Array
    cube: float
    shift: float
    square: float


def _poisson_ratio(q: Array) -> Array:
    """Return the Poisson x of each q, without cancellation."""
    g = 1.0 / np.sqrt(q)
    a = np.cbrt(8.0 * g * g + np.sqrt(64.0 * g**4 + 64.0 / 27.0))
    b = 4.0 / (3.0 * a)
    u = 16.0 * g * g / (a * a + 4.0 / 3.0 + b * b)
    z = 0.5 * (np.sqrt(u) + np.sqrt(8.0 * g / np.sqrt(u) - u))
    x: Array = 2.0 * g * z / (z * z + 1.0)
    return x


def _periodic_ratio(q: Array) -> Array:
    x: Array = 1.0 / inverse_age_index(q)
    return x


def _table(ratio: Callable[[Array], Array], cube: float, shift: float, square: float) -> AgeTable:
    cubes = octave_table(lambda v: np.cbrt(cube * v), 0, 3)
    return AgeTable(np.concatenate([octave_table(ratio, LOW, HIGH), cubes]), cube, shift, square)


POISSON = _table(_poisson_ratio, 2.0, 0.5, 1.0)
PERIODIC = _table(_periodic_ratio, 1.0 / 3.0, 0.125, 0.5)


def age_place(worth: float, d: float) -> float:
    """Return the q to look up, or v·2^HIGH.

    The latter is for refreshes more frequent than the table's: the product Δ·w/λ is v·8^k with 1 ≤ v < 8, and
    the cube roots of v follow the table's octaves.
    """
    q = d * (d / worth)
    within = q if q > LEAST else LEAST
    within = within if within < LARGEST else LARGEST
    bits = np.float64(_product(worth, d)).view(np.uint64)
    above = np.uint64(bits - _third(bits) * _EIGHT + _TOP).view(np.float64)
    return above if q < LEAST else within


def age_value(rows: Array, place: float) -> float:
    """Return ρ/Δ or a cube root, from a table."""
    row, z = octave_place(place, LOW)
    return polynomial(rows, row, z)


def age_rate(value: float, shift: float, square: float, worth: float, d: float) -> float:
    """Return the best response to w/λ, of what was found.

    There is no branch, so that loops are vectorised.
    """
    q = d * (d / worth)
    often = q < LEAST
    # The product is v·8^k with 1 <= v < 8.
    third = _third(np.float64(_product(worth, d)).view(np.uint64))
    unit = np.uint64((third + _LEAST_CUBE) << _EXPONENT).view(np.float64)
    unit = unit * _UP if d > 1.0 else unit
    rate = (unit if often else d) * value - (shift * d if often else 0.0)
    return rate if q < LARGEST else math.sqrt(square * worth)


def _product(worth: float, d: float) -> float:
    """Return Δ·w/λ, times 2^−333 where Δ > 1."""
    product = worth * (d * _DOWN if d > 1.0 else d)
    return product if product < MOST else MOST


def _third(bits: np.uint64) -> np.uint64:
    """Return a third of the exponent in a number's bits."""
    third: np.uint64 = ((bits >> _EXPONENT) * _THIRD) >> _SIXTEEN
    return third


def rates_without_loops(table: AgeTable, price: Array, d: Array) -> Array:
    """Return best responses of sources of importance 1 to their prices."""
    q = price * d * d
    rate = d * octave_values(table.rows, LOW, np.fmin(np.fmax(q, LEAST), LARGEST))
    if bool(np.any(q > LARGEST)):
        rate = np.where(q > LARGEST, np.sqrt(table.square) / np.sqrt(price), rate)
    if bool(np.any(q < LEAST)):
        often = np.cbrt(table.cube * d) / np.cbrt(price) - table.shift * d
        rate = np.where(q < LEAST, often, rate)
    return rate
