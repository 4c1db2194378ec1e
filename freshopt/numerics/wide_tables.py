"""Tables over all positive floats, as arguments of compiled loops.

The first 16 bits of a float, which are sign, exponent and four of the mantissa, are the number of its row. So
there is no branch and no range, and rows that nobody looks up take no memory. Beyond the octaves in which a
function is known its rows are those of a power, or a constant.
"""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.numerics.inverse_tables import DEGREE, OCTAVE, polynomial, sixteenth_place

# Rows of a table, that of 1.0, and the first one of infinity and NaN.
ROWS, UNIT, FINITE = OCTAVE * 2048, OCTAVE * 1023, OCTAVE * 2047
# A sign would be a row outside: NaN may have one.
_SIGNLESS, _FIRST_BITS = np.uint64(0x7FFFFFFFFFFFFFFF), np.uint64(48)


def value_at(table: Array, x: float, first: int) -> float:
    """Evaluate a table, whose rows begin at `first`, at x ≥ 0."""
    bits = np.uint64(np.float64(x).view(np.uint64) & _SIGNLESS)
    return polynomial(table, np.int64(bits >> _FIRST_BITS) + first, sixteenth_place(bits))


def wide_table(rows: Array, low: int) -> Array:
    """Return a table, (`ROWS`, 8), of the octaves from 2^low on."""
    table = np.zeros((ROWS, DEGREE + 1))
    begin = UNIT + OCTAVE * low
    table[begin : begin + len(rows)] = rows
    return table


def continue_upwards(table: Array, octave: int, period: int, factor: float) -> None:
    """Write rows from 2^octave on: those a period below, times a factor."""
    rows = OCTAVE * period
    for begin in range(UNIT + OCTAVE * octave, FINITE, rows):
        end = min(FINITE, begin + rows)
        table[begin:end] = factor * table[begin - rows : end - rows]


def continue_downwards(table: Array, octave: int, period: int, factor: float) -> None:
    """Write rows below 2^octave: those a period above, times a factor."""
    rows = OCTAVE * period
    for end in range(UNIT + OCTAVE * octave, 0, -rows):
        begin = max(0, end - rows)
        table[begin:end] = factor * table[begin + rows : end + rows]
