"""Piecewise polynomial tables of inverse functions, for compiled loops.

Loops go over hundreds of millions of sources. The periodic disciplines need the inverses of u − 1 + e^{−u}, u
− log(1+u) and u²/2 − P(2, u). Newton's method finds them to the last bit, but costs four exponentials a
source. With y ≈ u²/2 (or u³/3) for small u, the ratio h(s) = u/s at s = √(2y) (or ∛(3y)) is analytic and
flat, so that a polynomial of degree 7 on segments of 1/32 gives it to 1e-15: a table of 20 KiB that stays in
the first-level cache, built from the exact inverse.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.numerics.arrays import Array, IntArray

# Segments per unit of s; with degree 7 the largest relative error against the exact inverse is 1.1e-15.
SEGMENTS = 32
DEGREE = 7
# Segments per octave of an octave table: four bits of the mantissa.
OCTAVE = 16
# Exponent and those four bits, the other ones, and the bits of 1.0. Unsigned, for which processors without
# AVX-512 have vector shifts.
_FIRST_BITS, _LAST_BITS, _ONE = np.uint64(48), np.uint64(0xFFFFFFFFFFFF), np.uint64(0x3FF0000000000000)
_IN_FRONT = 2.0**52


def ratio_table(inverse: Callable[[Array], Array], top: float) -> Array:
    """Interpolate h(s) = inverse(s)/s at Chebyshev points.

    There is a polynomial per segment of [0, top].

    - `inverse`: u as a function of s, with u ≈ s near 0; vectorised.
    - `top`: Where the table ends.
    - returns (segments, 8): Coefficients, constant first, of polynomials in z ∈ [−1, 1] across each segment.

    Examples
    --------
    >>> table = ratio_table(np.sinh, 2.0)
    >>> bool(abs(1.3 * ratio_from_table(table, 1.3) - float(np.sinh(1.3))) < 2e-15)
    True
    """
    middle = (np.arange(round(top * SEGMENTS)) + 0.5) / SEGMENTS
    s = middle[:, None] + _chebyshev_points() * (0.5 / SEGMENTS)
    return octave_rows(inverse(s) / s)


def octave_table(function: Callable[[Array], Array], lowest: int, highest: int) -> Array:
    """Interpolate a function of q on segments of octaves.

    There are 16 segments in each octave from 2^lowest to 2^highest.
    `octave_place` finds the row of a q in it, and where in the row.
    """
    return octave_rows(function(octave_points(lowest, highest)))


def octave_points(lowest: int, highest: int, z: Array | None = None) -> Array:
    """Return the q at z of each segment of octaves.

    Their shape is (segments, len(z)). z in [−1, 1] is Chebyshev's points unless given.
    """
    z = _chebyshev_points() if z is None else z
    octave, sixteenth = np.divmod(np.arange(OCTAVE * (highest - lowest)), OCTAVE)
    q: Array = 2.0 ** (octave + lowest)[:, None] * (1.0 + (sixteenth[:, None] + 0.5 + 0.5 * z) / OCTAVE)
    return q


def octave_rows(values: Array) -> Array:
    """Return the polynomials through values at Chebyshev's points, shape (segments, 8)."""
    vandermonde = np.vander(_chebyshev_points(), increasing=True)
    return np.ascontiguousarray(np.linalg.solve(vandermonde, values.T).T)


def _chebyshev_points() -> Array:
    points: Array = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
    return points


def octave_place(q: float, lowest: int) -> tuple[int | np.int64, float]:
    """Return the row of q in an octave table, and z."""
    bits = np.float64(q).view(np.uint64)
    row = np.int64(bits >> _FIRST_BITS) - OCTAVE * (1023 + lowest)
    return row, sixteenth_place(bits)


def sixteenth_place(bits: np.uint64) -> float:
    """Return z in a sixteenth of an octave from a number's bits."""
    z: float = np.uint64((bits & _LAST_BITS) | _ONE).view(np.float64) * (2.0 * OCTAVE) - (2.0 * OCTAVE + 1.0)
    return z


def octave_values(table: Array, lowest: int, q: Array) -> Array:
    """Evaluate an octave table at many q within it, without compilation."""
    bits = np.asarray(q, dtype=np.float64).view(np.int64)
    return row_values(table, (bits >> 48) - OCTAVE * (1023 + lowest), bits)


def row_values(table: Array, row: IntArray, bits: IntArray) -> Array:
    """Evaluate rows of an octave table at numbers given by their bits."""
    z: Array = np.multiply(bits & 0xFFFFFFFFFFFF, 2.0**-47, dtype=np.float64) - 1.0
    return row_polynomials(table, row, z)


def row_polynomials(table: Array, row: IntArray, z: Array) -> Array:
    """Evaluate rows' polynomials at z, without compilation."""
    coefficients = np.take(table, row, axis=0)
    value: Array = coefficients[..., DEGREE] * z
    for k in range(DEGREE - 1, 0, -1):
        value += coefficients[..., k]
        value *= z
    value += coefficients[..., 0]
    return value


def polynomial(table: Array, row: int | np.int64, z: float) -> float:
    """Evaluate a row's polynomial at z, for compiled loops."""
    place = np.uint32(row)  # unsigned: no test for negative indices
    value: float = table[place, 7]
    value = value * z + table[place, 6]
    value = value * z + table[place, 5]
    value = value * z + table[place, 4]
    value = value * z + table[place, 3]
    value = value * z + table[place, 2]
    value = value * z + table[place, 1]
    value = value * z + table[place, 0]
    return value


def ratio_from_table(table: Array, s: float) -> float:
    """Evaluate h(s) for 0 ≤ s < top, for compiled loops."""
    row, z = segment_place(s)
    return polynomial(table, row, z)


def segment_place(s: float) -> tuple[int | np.int64, float]:
    """Return the row of s in a table of segments, and z.

    It is for s ≥ 0. A whole number is the last bits of its sum with 2^52: processors without AVX-512 have no
    vector instruction between floats and integers.
    """
    place = s * SEGMENTS
    whole = np.rint(place - 0.5)
    bits = np.float64(whole + _IN_FRONT).view(np.uint64)
    return np.int64(bits & _LAST_BITS), 2.0 * (place - whole) - 1.0
