"""Tables of a penalty's cost, marginal value and best response.

With x = ρ/Δ the cost J and the marginal M = −Δ·dJ/dρ of a source of importance 1 are functions of x alone,
Σ d_m (1 + x)^{−m} and Σ m·d_m (1 + x)^{−m−1}; the best response is the x with M(x) = q, q = νΔ/w. One row and
one polynomial give each. Tables are arguments of the loops, which are thus compiled once for all penalties.
For large x both are powers; below the octaves of the tables x has no cost, and is no best response.

**Reach.** The elasticity of M in 1 + x is at least 2, as all m are at least 1. So (ρ + Δ)·M falls, and
|ρ̂ − ρ| ≤ (ρ + Δ)·|m − ν|/ν, as for binary freshness (`freshopt.compiled.proof_functions`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.proof_functions import ProofCell, Values, reach_from_change
from freshopt.numerics.arrays import Array, read_only
from freshopt.numerics.inverse_tables import OCTAVE, octave_points, octave_rows, row_values
from freshopt.numerics.wide_tables import (
    FINITE,
    ROWS,
    UNIT,
    continue_downwards,
    continue_upwards,
    value_at,
    wide_table,
)

# Cost and marginal at x, shape (n,): NaN where they are not known.
Sums: TypeAlias = Callable[[Array], tuple[Array, Array]]

# Tables pay once loops have asked for so many sources, in one solve or several: making them takes .1 s, and
# .3 s to sum a penalty for the first time.
LEAST_SOURCES = 20_000
# Octaves of x. Above 2^54, 1 + x is x; below 2^−57 sums of 2^62 terms are not complete.
LOW, HIGH = -57, 54
# Octaves from this one on must be known: where more is unknown it is asked for, and NumPy knows some of it.
NEEDED = -24
# Octaves of the prices, 1 KiB each, at most. A penalty that forgives five changes has 400.
MOST = 400
# Largest error of a row, where it is compared between its points: one of a few ulp at 2^±57.
ERROR = 1e-13
BETWEEN = np.array([-1.0, -0.93, -0.35, 0.0, 0.6, 0.99999])
# Relative error of marginals: that of sums is 1e-12.
ROUNDING = 2.0**-38
# Chords of a sixteenth of an octave by which prices are inverted. Each leaves a hundredth of the error.
_CHORDS = 9


class PenaltyTables(NamedTuple):
    """Tables of a penalty.

    - `response` (`ROWS`, 8): x, by prices q.
    - `values` (2·`ROWS`, 8): M·x², then J·x, by x.
    """

    response: Array
    values: Array


# Returns the tables of a penalty to loops over so many more sources, or None: if it has none, or so few have
# asked for them that they are not made yet.
TablesOf: TypeAlias = Callable[[int], PenaltyTables | None]


def penalty_response(worth: float, d: float, table: Array) -> float:
    """Return Δx with M(x) = Δ/a."""
    return d * value_at(table, d / worth, 0)


def penalty_values(rate: float, w: float, d: float, table: Array) -> Values:
    """Return J and w·M/Δ."""
    x = rate / d
    cost, marginal = value_at(table, x, ROWS) / x, (w / rate) * (value_at(table, x, 0) / x)
    return cost if rate > 0.0 else np.inf, 0.0, marginal if rate > 0.0 else np.inf, ROUNDING


class TableCell(NamedTuple):
    """Formulas that look into tables, and how many parameters they take."""

    demand: Demand
    proof: ProofCell
    takes: int


PENALTY = ProofCell(penalty_values, reach_from_change)
PENALTIES = TableCell(penalty_response, PENALTY, 1)


def penalty_tables(sums: Sums, order: int) -> PenaltyTables | None:
    """Return the tables of a penalty without bound, or None.

    None means that its sums are not known, or not smooth, where they should be.

    - `sums`: J and M.
    - `order`: The least number of changes that costs anything: J falls as x^−order in the end.
    """
    with np.errstate(all="ignore"):
        x, between = octave_points(LOW, HIGH), octave_points(LOW, HIGH, BETWEEN)
        rows = [octave_rows(values) for values in _scaled(sums, x)]
        right = np.logical_and(*map(_right, rows, _scaled(sums, between)))
        first = len(right) - int(np.argmin(np.append(right[::-1], False)))
        least = LOW - (-first // OCTAVE)
        marginal, cost = (own[OCTAVE * (least - LOW) :] for own in rows)
        if least > NEEDED or not _is_power(marginal, order - 1) or not _is_power(cost, order - 1):
            return None
        response = _responses(marginal, least, order)
        if response is None:
            return None
        tables = []
        for own in (marginal, cost):
            table = wide_table(own, least)
            continue_upwards(table, HIGH, 1, 2.0 ** (1 - order))
            table[: UNIT + OCTAVE * least] = np.nan
            tables.append(table)
    return PenaltyTables(read_only(response), read_only(np.concatenate(tables)))


def _scaled(sums: Sums, x: Array) -> tuple[Array, Array]:
    """Return M·x² and J·x."""
    cost, marginal = sums(x.ravel())
    return marginal.reshape(x.shape) * x * x, cost.reshape(x.shape) * x


def _right(rows: Array, exact: Array) -> Array:
    """Return which rows are right between their points, to `ERROR`."""
    found = np.polynomial.polynomial.polyval(BETWEEN[:, None], rows.T[:, None, :], tensor=False)
    right: Array = np.all(np.abs(found.T - exact) <= ERROR * np.abs(exact), axis=1)
    return right


def _is_power(rows: Array, fall: int) -> bool:
    """Return whether the last octave is that of x^−fall."""
    ends = rows[-OCTAVE - 1 :: OCTAVE, 0]
    return bool(abs(ends[1] * 2.0**fall - ends[0]) <= ERROR * ends[0])


def _responses(marginal: Array, least: int, order: int) -> Array | None:
    """Return the table of x; None where M has too many octaves."""
    # M·x² in the middle of each row.
    middle = octave_points(least, HIGH, np.zeros(1))[:, 0]
    log_x, log_m = np.log(middle), np.log(marginal[:, 0]) - 2.0 * np.log(middle)
    low, high = math.floor(log_m[-1] / math.log(2.0)) + 2, math.ceil(log_m[0] / math.log(2.0)) - 2
    if high - low > MOST:
        return None

    def inverse(q: Array) -> Array:
        log_q = np.log(q)
        log = np.interp(-log_q, -log_m, log_x)
        place = np.clip(np.searchsorted(-log_m, -log_q) - 1, 0, len(log_m) - 2)
        slope = (log_x[place + 1] - log_x[place]) / (log_m[place + 1] - log_m[place])
        for _ in range(_CHORDS):
            x = np.exp(log)
            bits = x.view(np.int64)
            row = np.clip((bits >> 48) - OCTAVE * (1023 + least), 0, len(marginal) - 1)
            log = log + slope * (log_q - np.log(row_values(marginal, row, bits)) + 2.0 * log)
        return np.exp(log)

    rows = octave_rows(inverse(octave_points(low, high).ravel()).reshape(-1, 8))
    between = octave_points(low, high, BETWEEN)
    if not bool(np.all(_right(rows, inverse(between.ravel()).reshape(between.shape)))):
        return None
    table = wide_table(rows, low)
    continue_downwards(table, low, order + 1, 2.0)
    table[:OCTAVE] = 0.0
    table[:OCTAVE, 0] = table[OCTAVE, 0]
    # Prices above what is known ask for less than the least x.
    above = slice(UNIT + OCTAVE * high, FINITE)
    table[above] = 0.0
    table[above, 0] = np.sum(rows[-1])
    return table
