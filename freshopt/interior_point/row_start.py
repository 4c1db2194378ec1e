"""`starting_multipliers`: where the search over the multipliers begins.

Rows opposed to the objective (budgets for a cost that falls with the rates, targets for a cost of the rates)
share one price, the least that meets them all, a search in one unknown; a few multiplicative sweeps then
bring those of slack rows down. Rows of the objective's own kind begin at its value over the number of rows.

In a minimax program the rows with a level share Σ level_j y_j = 1 evenly and stand for the objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.interior_point.row_presolve import entry_directions
from freshopt.interior_point.row_scaling import ScaledRows
from freshopt.numerics.arrays import Array, BoolArray, total
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.program import Program

# Sweeps, and the most that one changes a multiplier by: 6 of them reach 1/4000. With factors of 10 slack rows
# begin so low that binding ones among them are raised by as many Newton steps.
_SWEEPS, _CHANGE = 6, 4.0
# The shared price is found to this factor.
_CLOSE = 4.0
# Factors of 10 up or down that the shared price is searched by.
_DECADES = 60
# Slack variables begin at the slacks, or at this share of the limits.
_LEAST_SLACK = 0.1
# Multipliers that are handed over as 0 begin at this share of the largest.
_NEARLY = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Scaled multipliers to begin at.

    - `multipliers` (m,)
    - `near`: Whether they are near the answer.
    """

    multipliers: Array
    near: bool = False

    def slack_variables(self, slack: Array) -> Array:
        """Return slack variables > 0 to begin at, for the slacks there."""
        if not self.near:
            return np.maximum(slack, _LEAST_SLACK)
        y = self.multipliers
        # As far from 0 as the slacks are on average, each in proportion to what its row is paid.
        complementarity = float(np.mean(y * np.abs(slack)))
        return np.maximum(slack, max(complementarity, np.finfo(float).tiny) / y)


def start_near(rows: ScaledRows, multipliers: Array) -> Start:
    """Return a start at given multipliers, none of them 0."""
    y = rows.scaled(multipliers)
    y = np.maximum(y, _NEARLY * (float(np.max(y)) or 1.0))
    return Start(y if rows.level is None else y / float(rows.level @ y), near=True)


def starting_multipliers(program: Program, rows: ScaledRows) -> Start:
    """Return multipliers in the middle of things."""
    m, rising = len(rows), _mostly_rising(program)
    if rows.level is None:
        value = abs(total(program.cost(np.clip(program.typical, program.lower, program.upper))))
        price = value / m if 0.0 < value < np.inf else 1.0
        opposed = ~rising if isinstance(program.numerics, LinearCost) else rising
        y, fair = np.full(m, price), np.zeros(m, dtype=np.bool_)
    else:
        fair = rows.level > 0.0
        share = 1.0 / (rows.level[fair] * np.count_nonzero(fair))
        price = float(np.mean(share))
        y = np.full(m, price)
        y[fair] = share
        # The others are opposed where they go the other way than most of those with a level.
        falling = np.count_nonzero(fair & ~rising) > np.count_nonzero(fair & rising)
        opposed = (rising if falling else ~rising) & ~fair
    if bool(np.any(opposed)):
        y = _shared(rows, y, opposed, price)
    finite = y
    for _ in range(_SWEEPS):
        slack = rows.evaluate(y, gram=False).slack
        if bool(np.all(np.isfinite(slack))):
            finite = y
        elif finite is not y:
            # The sweep has made a rate free that a row rewards.
            break
        factor = np.clip(np.nan_to_num(1.0 - slack, nan=_CHANGE, posinf=_CHANGE), 1.0 / _CHANGE, _CHANGE)
        y = np.where(fair, y, y * factor)
    return Start(finite)


def _mostly_rising(program: Program) -> BoolArray:
    """Return the rows of which more entries rise than fall."""
    rows = program.rows
    sign = np.where(entry_directions(program)[0], 1.0, np.where(rows.coefficient == 0.0, 0.0, -1.0))
    rising: BoolArray = np.bincount(rows.row, weights=sign, minlength=len(rows)) > 0.0
    return rising


def _shared(rows: ScaledRows, y: Array, opposed: BoolArray, price: float) -> Array:
    """Return multipliers with the least shared price that meets the opposed rows."""

    def met(log_price: float) -> bool:
        slack = rows.evaluate(np.where(opposed, np.exp(log_price), y), gram=False).slack[opposed]
        return bool(np.all(slack >= 0.0))

    x, decade = float(np.log(price)), float(np.log(10.0))
    above = met(x)
    direction = -decade if above else decade
    for _ in range(_DECADES):
        beyond = x + direction
        if met(beyond) != above:
            low, high = min(x, beyond), max(x, beyond)
            break
        x = beyond
    else:
        return np.where(opposed, price, y)
    while high - low > np.log(_CLOSE):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if met(middle) else (middle, high)
    return np.where(opposed, np.exp(high), y)
