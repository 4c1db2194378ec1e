"""Tables of a penalty's cost, marginal value and best response.

With x = ρ/Δ the cost J and the marginal M = −Δ·dJ/dρ of a source of importance 1 are functions of x alone,
Σ d_m (1 + x)^{−m} and Σ m·d_m (1 + x)^{−m−1}; the best response is the x with M(x) = q, q = νΔ/w. One row and
one polynomial give each. Tables are arguments of the loops, which are thus compiled once for all penalties.
For large x both are powers; below the octaves of the tables x has no cost, and is no best response.

**Announced changes.** With x = ρ/(Δ − ρ) a share 1/(1 + x) of them is not followed: the cost is J as well,
and the marginal (d₁ + L)/Δ, L = Σ_{m≥2} m·d_m (1 + x)^{−(m−1)}. Where q is above d₁ the best response is
Δx/(1 + x) with L(x) = q − d₁, else Δ. So a third row gives L, and a second polynomial this x.

**Reach.** The elasticity of M in 1 + x is at least 2, as all m are at least 1. So (ρ + Δ)·M falls, and
|ρ̂ − ρ| ≤ (ρ + Δ)·|m − ν|/ν, as for binary freshness (`freshopt.compiled.proof_functions`). That of L is at
least 1: L over Δ − ρ does not rise with ρ, and |ρ̂ − ρ| ≤ (Δ − ρ)·|m − ν|Δ/wL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.proof_functions import Excess, ProofCell, Values, reach_from_change
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

# Cost and marginal at x, shape (n,), or one sum: NaN where they are not known.
Sums: TypeAlias = Callable[[Array], tuple[Array, ...]]
Sum: TypeAlias = Callable[[Array], Array]

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
# At x so large a source is refreshed on every change.
FOLLOWED = 2.0**100
# Where d₁ is, in the table of responses to announced changes: a row that is no number's.
_FIRST = 2 * ROWS - 1


class PenaltyTables(NamedTuple):
    """Tables of a penalty, of silent changes or of both kinds.

    - `response` (`ROWS`, 8): x, by prices q; of both (2·`ROWS`, 8), x by q − d₁ after it.
    - `values` (2·`ROWS`, 8): M·x², then J·x, by x; of both (3·`ROWS`, 8), L·x after them.
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


def announced_response(worth: float, d: float, table: Array) -> float:
    """Return ρ with L = Δ/a − d₁, at most Δ."""
    above = d / worth - table[_FIRST, 0]
    x = min(value_at(table, above, ROWS), FOLLOWED)
    return d * (x / (1.0 + x)) if above > 0.0 else d


def announced_values(rate: float, w: float, d: float, table: Array) -> Values:
    """Return J and w·(d₁ + L)/Δ, which is w·M(1 + x)²/Δ."""
    left = d - rate
    x = min(rate / left, FOLLOWED)
    cost, marginal = value_at(table, x, ROWS) / x, (w / rate) * (value_at(table, x, 0) * (d / rate))
    cost = cost if left > 0.0 else 0.0
    return cost if rate > 0.0 else np.inf, 0.0, marginal if rate > 0.0 else np.inf, ROUNDING


def reach_of_announced(rate: float, w: float, excess: Excess, d: float, table: Array) -> float:
    """Return (Δ − ρ)·off·Δ/wL, with Lx and (Δ − ρ)x = ρ."""
    off, _, _, _ = excess
    x = min(rate / (d - rate), FOLLOWED)
    return rate * (off * (d / w) / value_at(table, x, 2 * ROWS))


class TableCell(NamedTuple):
    """Formulas that look into tables, and how many parameters they take.

    Of announced changes `silent` is the cell whose tables are in theirs.
    """

    demand: Demand
    proof: ProofCell
    takes: int
    silent: TableCell | None = None


PENALTY = ProofCell(penalty_values, reach_from_change)
PENALTIES = TableCell(penalty_response, PENALTY, 1)
ANNOUNCED = ProofCell(announced_values, reach_of_announced)
ANNOUNCED_PENALTIES = TableCell(announced_response, ANNOUNCED, 1, PENALTIES)


def penalty_tables(sums: Sums, order: int) -> PenaltyTables | None:
    """Return the tables of a penalty without bound, or None.

    None means that its sums are not known, or not smooth, where they should be.

    - `sums`: J and M.
    - `order`: The least number of changes that costs anything: J falls as x^−order in the end.
    """
    with np.errstate(all="ignore"):
        found = _rows(lambda x: _scaled(sums, x), order - 1)
        if found is None:
            return None
        rows, least = found
        response = _responses(rows[0], least, 2, order + 1)
        if response is None:
            return None
        values = np.concatenate([_table(own, least, order - 1) for own in rows])
    return PenaltyTables(read_only(response), read_only(values))


def with_announced(silent: PenaltyTables, later: Sum, first: float, order: int) -> PenaltyTables | None:
    """Return the tables of both kinds of changes, or None.

    - `later`: L.
    - `first`: d₁.
    - `order`: The least m ≥ 2 for which d_m > 0: L falls as x^−(order−1) in the end.
    """
    with np.errstate(all="ignore"):
        found = _rows(lambda x: (later(x.ravel()).reshape(x.shape) * x,), order - 2)
        if found is None:
            return None
        (rows,), least = found
        response = _responses(rows, least, 1, order - 1)
        if response is None:
            return None
        response[_FIRST - ROWS, 0] = first
        both = silent.response, response
        values = silent.values, _table(rows, least, order - 2)
    return PenaltyTables(read_only(np.concatenate(both)), read_only(np.concatenate(values)))


def _rows(scaled: Sums, fall: int) -> tuple[list[Array], int] | None:
    """Return functions' rows, and the octave from which they are right.

    None where that is too late, or where any does not fall as x^−fall in the end.
    """
    x, between = octave_points(LOW, HIGH), octave_points(LOW, HIGH, BETWEEN)
    rows = [octave_rows(values) for values in scaled(x)]
    right = np.logical_and.reduce([*map(are_right, rows, scaled(between))])
    first = len(right) - int(np.argmin(np.append(right[::-1], False)))
    least = LOW - (-first // OCTAVE)
    known = [own[OCTAVE * (least - LOW) :] for own in rows]
    return (known, least) if least <= NEEDED and all(_is_power(own, fall) for own in known) else None


def _table(rows: Array, least: int, fall: int) -> Array:
    """Return a function's table; it falls as x^−fall in the end."""
    table = wide_table(rows, least)
    continue_upwards(table, HIGH, 1, 2.0**-fall)
    table[: UNIT + OCTAVE * least] = np.nan
    return table


def _scaled(sums: Sums, x: Array) -> tuple[Array, Array]:
    """Return M·x² and J·x."""
    cost, marginal = sums(x.ravel())
    return marginal.reshape(x.shape) * x * x, cost.reshape(x.shape) * x


def are_right(rows: Array, exact: Array) -> Array:
    """Return which rows are right between their points, to `ERROR`."""
    found = np.polynomial.polynomial.polyval(BETWEEN[:, None], rows.T[:, None, :], tensor=False)
    right: Array = np.all(np.abs(found.T - exact) <= ERROR * np.abs(exact), axis=1)
    return right


def _is_power(rows: Array, fall: int) -> bool:
    """Return whether the last octave is that of x^−fall."""
    ends = rows[-OCTAVE - 1 :: OCTAVE, 0]
    return bool(abs(ends[1] * 2.0**fall - ends[0]) <= ERROR * ends[0])


def _responses(marginal: Array, least: int, power: int, fall: int) -> Array | None:
    """Return the table of x; None where M has too many octaves.

    - `marginal`: Rows of M·x^power.
    - `fall`: M falls as x^−fall in the end.
    """
    middle = octave_points(least, HIGH, np.zeros(1))[:, 0]
    log_x, log_m = np.log(middle), np.log(marginal[:, 0]) - power * np.log(middle)
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
            log = log + slope * (log_q - np.log(row_values(marginal, row, bits)) + power * log)
        return np.exp(log)

    rows = octave_rows(inverse(octave_points(low, high).ravel()).reshape(-1, 8))
    between = octave_points(low, high, BETWEEN)
    if not bool(np.all(are_right(rows, inverse(between.ravel()).reshape(between.shape)))):
        return None
    table = wide_table(rows, low)
    continue_downwards(table, low, fall, 2.0)
    table[:OCTAVE] = 0.0
    table[:OCTAVE, 0] = table[OCTAVE, 0]
    # Prices above what is known ask for less than the least x.
    above = slice(UNIT + OCTAVE * high, FINITE)
    table[above] = 0.0
    table[above, 0] = np.sum(rows[-1])
    return table
