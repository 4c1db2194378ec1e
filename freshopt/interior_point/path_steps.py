"""`following`: one safeguarded step along the central path of the multipliers.

With slack variables z > 0 beside the slacks s, and complementarity σμ aimed at,

    (H + Z/Y) Δy + level·Δt = σμ/y − s,   level·Δy = 0,   Δz = s − z + H Δy + level·Δt,

a predictor and a corrector (Mehrotra); a program without a level has no t. The plain step descends on the
convex ψ(y) = −d(y) − σμ Σ log y. The slacks have kinks, where sources meet their bounds, and Newton's model
may be wrong beyond one by orders of magnitude. Hence:

* A step is taken where ψ's slope behind it is small beside that in front, or still falls at its full length.
  Otherwise a root of the slope is bracketed, by secants.
* A corrector that spoils the descent is dropped.
* The complementarity aimed at never grows, so that ψ only ever changes one way, and stays above a share of
  what the slacks are off, so that it does not outrun them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.interior_point.newton_systems import NewtonSystem, product, reach_of
from freshopt.interior_point.row_scaling import ScaledRows, Slacks
from freshopt.numerics.arrays import Array

Aim = float
# Of the way to the boundary y = 0 or z = 0 a step takes this share at most (Mehrotra 1992).
_FRACTION = 0.995
# The complementarity aimed at is at least this share of Σ y|s−z|/m. On 330 planted instances 0.03 needs 25
# steps at most, 0.1 needs 26; without it some stall.
_OUTRUN = 0.03
# A step is accepted where the slope of ψ behind it is at most this share of its first size: without it, steps
# alternate between the two sides of a kink.
_TURNED = 0.7
# A corrector that leaves less than this share of the plain step's descent is dropped.
_DESCENT = 0.1
# Slopes are off by this share of their terms, from sums of many sources.
_ROUNDING = 1e-15
# Trial lengths of a step; 2 suffice but at kinks, where 8 bracket the root to a hundredth.
_TRIALS = 8
# Where the dual function is infinite, a step is shortened by this factor, so many times at most: to 1e-18 of
# it.
_RETREAT, _RETREATS = 0.25, 30
# A secant's trial stays this share of the bracket away from its ends.
_INSIDE = 0.1


class Iterate(NamedTuple):
    """Scaled multipliers y, slack variables z, level t, and slacks."""

    y: Array
    z: Array
    level: float
    at: Slacks


class _Direction(NamedTuple):
    """Steps of multipliers, slack variables and level."""

    y: Array
    z: Array
    level: float


def following(rows: ScaledRows, point: Iterate, least: float, last: Aim | None) -> tuple[Iterate, Aim] | None:
    """Return the next iterate and its aim, None if steps stall.

    - `least`: Complementarity that is small enough.
    - `last`: The complementarity that the last step aimed at.
    """
    y, z, _, at = point
    system = _Bordered(rows, point)
    mu = float(np.mean(y * z))
    affine = system.direction(-at.slack)
    reach = min(reach_of(y, affine.y), reach_of(z, affine.z), 1.0)
    after = float(np.mean((y + reach * affine.y) * (z + reach * affine.z)))
    outrun = _OUTRUN * float(np.mean(y * np.abs(at.slack - z)))
    aim = max(mu * min(1.0, max(0.0, after / mu)) ** 3, outrun)
    aim = max(aim if last is None else min(aim, last), least)
    plain = aim / y - at.slack
    first = system.direction(plain)
    step = system.direction(plain - affine.y * affine.z / y)
    # ∇ψ = −plain.
    if float(plain @ step.y) < _DESCENT * float(plain @ first.y):
        step = first
    reach = min(1.0, _FRACTION * min(reach_of(y, step.y), reach_of(z, step.z)))
    found = _along(rows, point, step, reach, aim)
    return None if found is None else (found, aim)


class _Bordered:
    """Newton's system with the row and column of the level."""

    def __init__(self, rows: ScaledRows, point: Iterate) -> None:
        y, z, _, at = point
        assert at.gram is not None
        self._gram, self._level = at.gram, rows.level
        self._system = NewtonSystem(at.gram, z / y)
        self._residual = at.slack - z
        self._border = None if rows.level is None else self._system.solve(rows.level)

    def direction(self, right: Array) -> _Direction:
        """Return the steps to a right-hand side."""
        step = self._system.solve(right)
        change = self._residual
        t = 0.0
        if self._level is not None and self._border is not None:
            t = float(self._level @ step) / float(self._level @ self._border)
            step = step - t * self._border
            change = change + t * self._level
        return _Direction(step, change + product(self._gram, step), t)


def _along(rows: ScaledRows, point: Iterate, step: _Direction, reach: float, aim: Aim) -> Iterate | None:
    """Return the iterate at an accepted length of a step."""

    def at(length: float) -> tuple[Iterate, float]:
        y, level = point.y + length * step.y, point.level + length * step.level
        there = rows.evaluate(y)
        there = there._replace(slack=rows.lifted(there.slack, level))
        slope = float((there.slack - aim / y) @ step.y)
        return Iterate(y, point.z + length * step.z, level, there), slope

    before = float((aim / point.y - point.at.slack) @ step.y)
    if not before > 0.0:
        return None
    accepted = _TURNED * before + _ROUNDING * float(np.abs(step.y) @ (np.abs(rows.limits) / rows.scale))
    length, refused = reach, 0
    trial, behind = at(length)
    while not np.isfinite(behind):
        # A rate is free here that a row rewards: the boundary of where the dual function is finite.
        length, refused = length * _RETREAT, refused + 1
        if refused > _RETREATS:
            return None
        trial, behind = at(length)
    reach = length
    low, falling, high, rising = 0.0, before, reach, before
    for _ in range(_TRIALS):
        if abs(behind) <= accepted or (behind < 0.0 and length == reach):
            break
        if behind > 0.0:
            high, rising = length, behind
        else:
            low, falling = length, -behind
        share = falling / (falling + rising)
        length = low + (high - low) * min(max(share, _INSIDE), 1.0 - _INSIDE)
        trial, behind = at(length)
    return trial
