"""Tables of capped powers of the age, Poisson, of one exponent.

With x = ρt₀ marginal value and cost are plateau·G(x) and plateau·κ(1 + e)/e·j(x), and the best response is
the x with G(x) = q, q = λ/(w·plateau) (`freshopt.compiled.cells.capped_poisson`). For one exponent these are
functions of one number: a row and a polynomial each, of (1 + x)G and (1 + x)j, which bend less. Beyond the
octaves of the tables these are powers of x, and x is one of q; as q nears 1 the response is told by 1 − q.

The reach is that of the cell without tables.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from freshopt.compiled.cells.capped_poisson import reach_of_capped_poisson, settled
from freshopt.compiled.penalty_tables import BETWEEN, LEAST_SOURCES, PenaltyTables, TableCell, are_right
from freshopt.compiled.proof_functions import Excess, ProofCell, Values
from freshopt.numerics.arrays import Array, read_only
from freshopt.numerics.inverse_tables import OCTAVE, octave_points, octave_rows
from freshopt.numerics.wide_tables import ROWS, UNIT, continue_downwards, value_at, wide_table

# Below these octaves G and j are 1 to rounding, and 1 − G is x to a factor; above, 1 + x is x.
LOW, HIGH = -56, 54
# Relative error of marginals.
ROUNDING = 2.0**-42
# Least share 1 − q of a number q < 1, and the largest number below 1/2.
LEAST, HALF = 2.0**-53, 0.5 - 2.0**-54
# Largest power of 2 of x, and the rates of caps and plateaus with which it is beyond all rates.
MOST, LEAST_KINK, MOST_PLATEAU = 900, 1e-100, 1e100
# Steeper powers have no tables. From a little above 2 on their rows are not right between their points, which
# takes the longer to find out the steeper they are.
STEEPEST = 2.5
_NEWTON = 8


def tabled_response(
    worth: float, _level: float, _e: float, kink: float, plateau: float, table: Array
) -> float:
    """Return κx with G(x) = 1/(a·plateau), 0 where that is above 1."""
    gained = worth * plateau
    q = 1.0 / gained
    left = max(1.0 - q, LEAST)
    near = left < 0.5
    rate = kink * value_at(table, left if near else min(q, HALF), ROWS if near else 0)
    return rate if gained > 1.0 else 0.0


def tabled_values(
    rate: float, w: float, _level: float, e: float, kink: float, plateau: float, table: Array
) -> Values:
    """Return plateau·κ(1 + e)/e·j(x) and w·plateau·G(x)."""
    x = rate / kink
    unit = plateau / (1.0 + x)
    cost = unit * (kink * ((1.0 + e) / e)) * value_at(table, x, ROWS)
    return cost, 0.0, w * (unit * value_at(table, x, 0)), ROUNDING


def reach_of_tabled(
    rate: float, w: float, excess: Excess, level: float, e: float, kink: float, plateau: float, _table: Array
) -> float:
    """Return the reach, for which no table is needed."""
    return reach_of_capped_poisson(rate, w, excess, level, e, kink, plateau)


CAPPED_TABLES = TableCell(tabled_response, ProofCell(tabled_values, reach_of_tabled), 4)


def are_within(kink: Array, plateau: Array) -> bool:
    """Return whether tables reach as far as rates do.

    They do not where there is no cap, or one that no rate feels.
    """
    return bool(np.min(kink) >= LEAST_KINK and np.max(plateau) <= MOST_PLATEAU)


def tables_for(e: float, n: int) -> PenaltyTables | None:
    """Return the tables of an exponent, or None for few sources."""
    return capped_tables(e) if n >= LEAST_SOURCES and e <= STEEPEST else None


@functools.lru_cache(maxsize=4)
def capped_tables(e: float) -> PenaltyTables | None:
    """Return the tables of an exponent, or None.

    None means that polynomials are not right to rounding, as for steep powers.
    """
    high = math.ceil(math.log2(settled(e))) + 1
    with np.errstate(all="ignore"):
        slopes = right_rows(lambda x: (1.0 + x) * _falls(x, e)[0], LOW, HIGH)
        costs = right_rows(lambda x: (1.0 + x) * _falls(x, e)[1], LOW, HIGH)
        last = math.floor(math.log2(_falls(np.array([2.0**high]), e)[0][0])) + 1
        often = right_rows(lambda q: _response(q, e), last, -1)
        seldom = right_rows(lambda left: _first_response(left, e), LOW, -1)
    if slopes is None or costs is None or often is None or seldom is None:
        return None
    values = wide_table(slopes, LOW), wide_table(costs, LOW)
    for table, fall in zip(values, (e, e - 1.0), strict=True):
        continue_downwards(table, LOW, 1, 1.0)
        continue_as_power(table, HIGH, -fall)
    response = wide_table(often, last), wide_table(seldom, LOW)
    continue_as_power(response[0], last, -1.0 / (1.0 + e), upwards=False)
    continue_downwards(response[1], LOW, 1, 0.5)
    return PenaltyTables(read_only(np.concatenate(response)), read_only(np.concatenate(values)))


def right_rows(function: Callable[[Array], Array], low: int, high: int) -> Array | None:
    """Return a function's rows, or None if they are not right."""

    def at(points: Array) -> Array:
        return function(points.ravel()).reshape(points.shape)

    rows, exact = octave_rows(at(octave_points(low, high))), at(octave_points(low, high, BETWEEN))
    return rows if bool(np.all(are_right(rows, exact))) else None


def continue_as_power(table: Array, octave: int, power: float, *, upwards: bool = True) -> None:
    """Write a function's rows beyond an octave, where it is a power."""
    first = UNIT + OCTAVE * octave
    known = table[first - OCTAVE : first] if upwards else table[first : first + OCTAVE]
    exponent = Fraction(power)
    octaves = range(1, (len(table) - first) // OCTAVE + 1) if upwards else range(1, first // OCTAVE + 1)
    for k in octaves:
        # The whole part of an exponent is exact, and the rest is below 1.
        grown = min(exponent * (k if upwards else -k), Fraction(MOST))
        whole = math.floor(grown)
        factor = math.ldexp(2.0 ** float(grown - whole), max(whole, -2 * MOST))
        begin = first + OCTAVE * (k - 1) if upwards else first - OCTAVE * k
        table[begin : begin + OCTAVE] = factor * known


def series_of(x: Array, e: float) -> Array:
    """Return S − 1."""
    term, total = np.ones_like(x), np.zeros_like(x)
    for k in range(int(8.0 + 10.0 * math.sqrt(np.max(x)) + max(np.max(x) - e, 0.0))):
        term = term * (x / (e + 2.0 + k))
        total = total + term
    return total


def _falls(x: Array, e: float) -> tuple[Array, Array]:
    """Return G and j."""
    felt = x < settled(e)
    within = np.where(felt, x, 0.0)
    whole, faded = 1.0 + series_of(within, e), np.exp(-within)
    g = np.where(felt, faded * whole, np.exp(math.lgamma(2.0 + e) - (1.0 + e) * np.log(x)))
    j = np.where(
        felt, faded * (1.0 + within * whole / (1.0 + e)), np.exp(math.lgamma(1.0 + e) - e * np.log(x))
    )
    return g, j


def _response(q: Array, e: float) -> Array:
    """Return x with G(x) = q ≤ 1/2."""
    power = np.exp((math.lgamma(2.0 + e) - np.log(q)) / (1.0 + e))
    x = np.minimum(power, (2.0 + e) * np.expm1(-np.log(q) / (1.0 + e)))
    for _ in range(_NEWTON):
        more = series_of(np.minimum(x, settled(e)), e)
        slope = (1.0 + e) * (more / (1.0 + more))
        x = np.where(x < settled(e), x * np.exp(np.log(_falls(x, e)[0] / q) / slope), power)
    return x


def _first_response(left: Array, e: float) -> Array:
    """Return x with 1 − G(x) = left ≤ 1/2."""
    x = left * ((2.0 + e) / (1.0 + e))
    for _ in range(_NEWTON):
        more, faded = series_of(x, e), np.exp(-x)
        fallen = -np.expm1(-x) - faded * more
        x = x * np.exp(np.log(left / fallen) * fallen / (faded * (1.0 + e) * more))
    return x
