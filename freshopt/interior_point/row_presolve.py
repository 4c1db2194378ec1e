"""`presolve`: rows that decide nothing, or everything, leave the search.

A row that holds at all rates within the bounds gets the multiplier 0. A row that only one choice of rates
meets, each of its sources at the bound that suits it (a host's limit of 0), fixes those sources; its
multiplier is afterwards the least that keeps them there. Neither has an interior for an interior point method
to go through.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, IntArray, chunks
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE, Rows

# Sums of a million terms are off by less than this share: less room is none.
ROUNDING = 1e-13


@dataclass(frozen=True, slots=True, eq=False)
class Presolved:
    """A program without its idle and its tight rows.

    - `kept`: Rows of the program among those of the original.
    - `tight`: Rows that fix all of their sources.
    - `least` (kept,): What each row adds up to at the best of all bounds.
    """

    program: Program
    kept: IntArray
    tight: IntArray
    least: Array

    def multipliers(self, original: Program, kept: Array) -> Array:
        """Return multipliers of all rows, from those of the kept ones."""
        y = np.zeros(len(original.rows))
        y[self.kept] = kept
        rates = self.program.lower
        for j in self.tight:
            y[j] = least_multiplier(original, y, int(j), rates)
        return y


def presolve(program: Program) -> Presolved:
    """Return the program with sources fixed and rows dropped."""
    rows = program.rows
    least, most, size = range_of(program)
    with np.errstate(invalid="ignore"):
        idle = (most <= rows.limits) | ~_with_room(program)
        tight = ~idle & np.isfinite(size) & (np.abs(rows.limits - least) <= ROUNDING * size)
    if bool(np.any(tight)):
        rising, turning = entry_directions(program)
        # The least of a curve that falls and then rises is within the bounds: the engine finds it.
        tight &= _sums(rows, turning.astype(np.float64)) == 0.0
    # A minimax row moves with the level.
    if program.level is not None:
        idle &= program.level == 0.0
        tight &= program.level == 0.0
    kept, lower, upper = ~(idle | tight), program.lower, program.upper
    if bool(np.all(kept)):
        return Presolved(program, np.arange(len(rows)), np.zeros(0, dtype=np.int64), least)
    if bool(np.any(tight)):
        lower, upper = lower.copy(), upper.copy()
        entries = np.flatnonzero(tight[rows.row] & (rows.coefficient != 0.0))
        source, up = rows.source[entries], rising[entries]
        upper[source[up]] = program.lower[source[up]]
        lower[source[~up]] = program.upper[source[~up]]
    level = None if program.level is None else program.level[kept]
    smaller = replace(program, lower=lower, upper=upper, rows=rows.only(kept), level=level)
    # Sources that are fixed may leave less room to the other rows.
    least = range_of(smaller)[0] if bool(np.any(tight)) else least[kept]
    return Presolved(smaller, np.flatnonzero(kept), np.flatnonzero(tight), least)


def _with_room(program: Program) -> BoolArray:
    """Return the rows of which some source has room between its bounds."""
    rows, free = program.rows, program.upper > program.lower
    whole = bool(np.all(free))
    if whole and rows.dense:
        return np.full(len(rows), rows.n > 0)
    counts = np.bincount(rows.row, weights=None if whole else free[rows.source], minlength=len(rows))
    return np.asarray(counts > 0.0)


def range_of(program: Program) -> tuple[Array, Array, Array]:
    """Return the range of every row, and of its terms' sizes.

    Of a source with several kinds of function in one row, each has its own best bound. A convex term is
    largest at a bound; the least of one that falls and rises is at its best response.
    """
    least, most, size = (np.zeros(len(program.rows)) for _ in range(3))
    with np.errstate(all="ignore"):
        # In chunks, whose temporaries stay in the cache.
        for part in chunks(len(program)):
            each = _range(program.take(part))
            least, most, size = least + each[0], most + each[1], size + each[2]
    return least, most, size


def _range(program: Program) -> tuple[Array, Array, Array]:
    """Return what some of the sources add to every range."""
    rows, lower, upper = program.rows, program.lower, program.upper
    if rows.curves:
        rising, turning = entry_directions(program)
        low, high = rows.values(lower), rows.values(upper)
        at_low, at_high = low[rows.kind, rows.source], high[rows.kind, rows.source]
        if bool(np.any(turning)):
            lowest = _least_values(program, turning)
            at_low[turning] = np.maximum(at_low[turning], at_high[turning])
            at_high[turning] = lowest
    else:
        rising, counts = rows.coefficient > 0.0, np.diff(rows.first)
        at_low, at_high = np.repeat(lower, counts), np.repeat(upper, counts)
    if not rows.curves and bool(np.all(rising)):
        least, most = rows.coefficient * at_low, rows.coefficient * at_high
    else:
        # An entry of no weight adds nothing, even where its curve is infinite.
        nothing = rows.coefficient == 0.0
        least = np.where(nothing, 0.0, rows.coefficient * np.where(rising, at_low, at_high))
        most = np.where(nothing, 0.0, rows.coefficient * np.where(rising, at_high, at_low))
    added = _sums(rows, least)
    size = added if bool(np.all(least >= 0.0)) else _sums(rows, np.abs(least))
    return added, _sums(rows, most), size


def entry_directions(program: Program) -> tuple[BoolArray, BoolArray]:
    """Return which entries rise, and which fall and then rise."""
    rows = program.rows
    rising = (rows.kind == RATE) & (rows.coefficient > 0.0)
    turning = np.zeros(len(rising), dtype=np.bool_)
    with np.errstate(all="ignore"):
        for t, curve in enumerate(rows.curves, start=RATE + 1):
            own = np.flatnonzero(rows.kind == t)
            falls = curve.marginal(program.lower) > 0.0
            rises = curve.marginal(program.upper) < 0.0
            rising[own] = (rises & ~falls)[rows.source[own]]
            turning[own] = (rises & falls)[rows.source[own]]
    return rising, turning


def _least_values(program: Program, entries: BoolArray) -> Array:
    """Return the least values over the bounds of some entries' curves."""
    kind, source = program.rows.kind[entries], program.rows.source[entries]
    least = np.empty(len(kind))
    for t, curve in enumerate(program.rows.curves, start=RATE + 1):
        alone = Lagrangian(program, np.zeros(len(program)), ((None, curve),), None)
        own = kind == t
        least[own] = curve.cost(alone.best_response())[source[own]]
    return least


def _sums(rows: Rows, values: Array) -> Array:
    return np.bincount(rows.row, weights=values, minlength=len(rows)).astype(np.float64)


def least_multiplier(program: Program, y: Array, row: int, rates: Array) -> float:
    """Return the least multiplier that keeps a row's sources fixed."""
    rows = program.rows
    own = np.flatnonzero((rows.row == row) & (rows.coefficient != 0.0))
    at = np.zeros(len(program), dtype=np.bool_)
    at[rows.source[own]] = True
    chosen = np.flatnonzero(at & (program.upper > program.lower))
    part = program.take(chosen)
    with np.errstate(all="ignore"):
        slope = Lagrangian.at(part, y).slope(rates[chosen])
        only = np.zeros(len(rows))
        only[row] = 1.0
        alone = replace(part, numerics=None)
        change = Lagrangian.at(alone, only).slope(rates[chosen])
        needed = -slope / change
    pulled: BoolArray = np.isfinite(needed) & (slope * change < 0.0)
    return float(np.max(needed[pulled], initial=0.0))
