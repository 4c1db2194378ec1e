"""Tables of costly functions, made octave by octave.

A function of one positive number that takes microseconds, and is asked for at millions of them, is
interpolated on sixteenths of the octaves that hold some of them. Each polynomial is compared with the
function between its points; where the two differ the function itself is evaluated, as it is for few numbers.
What is returned depends on the numbers of the call alone, not on what was asked before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray
from freshopt.numerics.inverse_tables import OCTAVE, octave_table, row_values

Function: TypeAlias = Callable[[Array], Array]

# From so many numbers on tables are used. An octave's rows cost 200 evaluations, once; a few numbers outside
# tables cost nearly as much in every call.
MANY = 512
# Over more octaves numbers are too scattered for tables to pay.
SCATTERED = 256
# Largest relative difference between polynomial and function, where they are compared. Logarithms of prices
# of 1e±300, of which functions may be made, are as wrong.
ERROR = 1e-13
# There: between the Chebyshev points, and at the ends.
_BETWEEN = np.array([-1.0, -0.93, -0.35, 0.0, 0.6, 0.99999])
# Exponents of normal numbers, and their octave's distance from them.
_FIRST, _LAST, _BIAS = 1, 2046, 1023


class OctaveCache:
    """A function, and the rows of its table that are there.

    - `function`: Of positive numbers, shape (n,); NaN where it has no value.
    - `fall`: Polynomials are those of the function times q^fall, which is to be nearly constant.
    """

    __slots__ = ("_fall", "_function", "_rows")

    def __init__(self, function: Function, fall: int = 0) -> None:
        self._function, self._fall = function, fall
        self._rows: dict[int, tuple[Array, BoolArray]] = {}

    def __call__(self, q: Array) -> Array:
        """Return the function's values at q, shape (n,)."""
        if len(q) < MANY:
            return self._function(q)
        bits = np.ascontiguousarray(q, dtype=np.float64).view(np.int64)
        exponent = bits >> 52  # negative for numbers that are
        counts = np.bincount(np.clip(exponent, 0, _LAST + 1), minlength=_LAST + 2)
        held = [int(k) for k in np.flatnonzero(counts) if _FIRST <= k <= _LAST]
        if not held or len(held) > SCATTERED:
            return self._function(q)
        rows, right = self._table(held)
        first = np.full(_LAST + 2, -1, dtype=np.int64)
        first[held] = OCTAVE * np.arange(len(held))
        place = first[np.clip(exponent, 0, _LAST + 1)]
        row = np.maximum(place, 0) + ((bits >> 48) & (OCTAVE - 1))
        value = row_values(rows, row, bits)
        for _ in range(self._fall):
            value /= q
        rest = np.flatnonzero((place < 0) | ~right[row])
        if len(rest):
            value[rest] = self._function(q[rest])
        return value

    def _table(self, held: list[int]) -> tuple[Array, BoolArray]:
        """Return the rows of some octaves, and which of them are right."""
        missing = [k for k in held if k not in self._rows]
        for k in missing:
            self._rows[k] = self._made(k - _BIAS)
        rows, right = zip(*(self._rows[k] for k in held), strict=True)
        return np.concatenate(rows), np.concatenate(right)

    def _made(self, octave: int) -> tuple[Array, BoolArray]:
        """Return the rows of an octave, and which are right to `ERROR`."""

        def scaled(q: Array) -> Array:
            value: Array = self._function(q.ravel()).reshape(q.shape) * q**self._fall
            return value

        with np.errstate(all="ignore"):
            rows = octave_table(scaled, octave, octave + 1)
            z = _BETWEEN[:, None]
            exact = scaled(2.0**octave * (1.0 + (np.arange(OCTAVE) + 0.5 + 0.5 * z) / OCTAVE))
            found = np.polynomial.polynomial.polyval(z, rows.T[:, None, :], tensor=False)
            right = np.all(np.abs(found - exact) <= ERROR * np.abs(exact), axis=0)
        return np.where(np.isfinite(rows), rows, 0.0), right
