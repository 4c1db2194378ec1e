"""`ScaledRows`: rows divided by the room that they leave.

The room of a row is its limit less what it adds up to at the best of all bounds, the limit itself for a
budget without lower bounds. Slacks are then shares of what can be decided, also where sources at their bounds
take nearly all of a limit. A room that is 0, infinite, or small beside what the row adds up (a difference of
gains and losses), is no scale; the sum of the sizes at typical rates is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.interior_point.newton_systems import Gram, divided
from freshopt.interior_point.row_passes import RowPasses
from freshopt.interior_point.row_presolve import range_of
from freshopt.numerics.arrays import Array, BoolArray, chunks
from freshopt.separable.program import Program
from freshopt.separable.rows import Rows

# Of the sum of sizes a limit is at least this share, or not the scale: a limit's last digits would else be
# lost in rounding beside the sum.
_SMALL = 1e-3
# Sums of a million terms are off by less than this share.
_ROUNDING = 1e-12


class Slacks(NamedTuple):
    """Scaled slacks s and matrix at scaled multipliers.

    - `rates` (n,)
    - `slack` (m,)
    """

    rates: Array
    slack: Array
    gram: Gram | None


class ScaledRows:
    """Passes over the scaled rows of a program."""

    def __init__(self, program: Program, passes: RowPasses, least: Array) -> None:
        self._passes, self.limits = passes, program.rows.limits
        self.scale = scales(program, least)
        # What a unit of the level adds to the scaled slacks, or None.
        self.level = None if program.level is None else program.level / self.scale
        self.passes_made = 0

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.scale)

    def evaluate(self, multipliers: Array, *, gram: bool = True) -> Slacks:
        """Return rates, slacks and matrix at scaled multipliers."""
        self.passes_made += 1
        rates, used, matrix = self._passes.evaluate(multipliers / self.scale, gram=gram)
        with np.errstate(invalid="ignore", over="ignore"):
            slack = (self.limits - used) / self.scale
        return Slacks(rates, slack, None if matrix is None else divided(matrix, self.scale))

    def lifted(self, slack: Array, level: float) -> Array:
        """Return slacks with a level added."""
        return slack if self.level is None else slack + level * self.level

    def feasible_level(self, slack: Array) -> float:
        """Return the level to be added for slacks ≥ 0."""
        if self.level is None:
            return 0.0
        moves = self.level > 0.0
        return float(np.max(-slack[moves] / self.level[moves]))

    def paid(self, multipliers: Array) -> float:
        """Return Σ y_j|b_j|."""
        return float(np.sum(multipliers * np.abs(self.limits) / self.scale))

    def scaled(self, multipliers: Array) -> Array:
        """Return multipliers of the scaled rows."""
        return multipliers * self.scale

    def unscaled(self, multipliers: Array) -> Array:
        """Return multipliers of the rows as they are."""
        return multipliers / self.scale


def scales(program: Program, least: Array | None = None) -> Array:
    """Return the scale > 0 of every row.

    What rows add up to at the best of all bounds, `least`, is found if it is not given.
    """
    rows, limits = program.rows, program.rows.limits
    added, losing = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.bool_)
    with np.errstate(all="ignore"):
        for part in chunks(len(program)):
            typical = np.clip(program.typical[part], program.lower[part], program.upper[part])
            each = _sizes(rows.take(part), typical)
            added, losing = added + each[0], losing | each[1]
    # Where nothing cancels, a limit > 0 is the scale however small.
    one_sided, size = (limits > 0.0) & ~losing, np.abs(limits)
    found = np.where(one_sided, size, np.where(size > _SMALL * added, size, added))
    found = np.where(found > 0.0, found, 1.0)
    room = limits - (range_of(program)[0] if least is None else least)
    # Less than rounding takes from a row is no room.
    usable = np.isfinite(room) & (room > _ROUNDING * found)
    return np.where(usable, np.minimum(room, found), found)


def _sizes(rows: Rows, typical: Array) -> tuple[Array, BoolArray]:
    """Return what rows' sizes add up to, and which have negative entries."""
    if rows.curves:
        values = rows.values(typical)[rows.kind, rows.source]
    else:
        values = np.repeat(typical, np.diff(rows.first))
    sizes = np.abs(rows.coefficient * values)
    finite = np.where(np.isfinite(sizes), sizes, 0.0)
    added = np.bincount(rows.row, weights=finite, minlength=len(rows)).astype(np.float64)
    losing = np.zeros(len(rows), dtype=np.bool_)
    losing[rows.row[rows.coefficient < 0.0]] = True
    return added, losing
