"""Costs of a copy as a poll or a probe sees them.

A poll compares the copy with the source: it sees whether the copy is stale, how many changes it has missed,
for how long the oldest of them has been missed, or only how old it is. Each is one sample c of a cost of age,
drawn twice in one interval for the difference that `freshopt.automata.settings` derives: at the probe, and at
the poll that ends it. A cost that is a known function of age takes its parameters from a table.
"""

from __future__ import annotations

import enum
import math

from freshopt.automata.random_numbers import exponential, poisson
from freshopt.numerics.arrays import Array, IntArray

STALE, HARMONIC, MISSED, AGE, POWER, PIECES = 0, 1, 2, 3, 4, 5
# Terms of H(b) − H(a) below this b are added one by one; above, the expansion below is off by 1e-12.
FEW = 32.0


class Cost(enum.Enum):
    """What a poll observes of a copy.

    ``STALE``: 1 if it has missed a change. ``HARMONIC``: H(m) of m missed changes. ``MISSED``: m. ``AGE``:
    slots since the oldest missed change. ``POWER``: min(s, t)^e of its age s in slots; parameters e and t.
    ``PIECES``: the slope at s of a convex piecewise linear cost; parameters the slopes, then the intercepts.
    """

    STALE = "stale"
    HARMONIC = "harmonic"
    MISSED = "missed"
    AGE = "age"
    POWER = "power"
    PIECES = "pieces"

    def __repr__(self) -> str:
        """Return the name as it is written in code."""
        return f"Cost.{self.name}"

    @property
    def code(self) -> int:
        """Integer code of the member in the compiled loops."""
        return list(Cost).index(self)


def growth(cost: int, curve: Array, hazard: float, first: float, then: float, noise: IntArray) -> float:
    """Return by how much the cost has grown since the probe.

    It is c(T) − c(t) ≥ 0 of a probe at age t, ``first``, and a poll at age T, ``then`` slots later. Changes
    are drawn anew.
    """
    if cost == POWER:
        return power(curve, first + then) - power(curve, first)
    if cost == PIECES:
        return slope(curve, first + then) - slope(curve, first)
    if hazard <= 0.0:
        return 0.0
    if cost == AGE:
        change = exponential(noise) / hazard
        return max(first + then - change, 0.0) - max(first - change, 0.0)
    before = poisson(noise, hazard * first)
    after = poisson(noise, hazard * then)
    if cost == MISSED:
        return after
    if cost == HARMONIC:
        return harmonic_sum(before, before + after)
    return 1.0 if before == 0.0 and after > 0.0 else 0.0


def power(curve: Array, age: float) -> float:
    """Return min(s, t)^e of age s."""
    reached: float = min(age, curve[1]) ** curve[0]
    return reached


def slope(curve: Array, age: float) -> float:
    """Return the slope of the highest piece at an age."""
    pieces = len(curve) // 2
    top, found = -math.inf, 0.0
    for j in range(pieces):
        height = curve[j] * age + curve[pieces + j]
        if height > top:
            top, found = height, curve[j]
    return found


def harmonic_sum(a: float, b: float) -> float:
    """Return H(b) − H(a) of whole numbers 0 ≤ a ≤ b."""
    total = 0.0
    if a < FEW:
        end = min(b, FEW)
        while a < end:
            a += 1.0
            total += 1.0 / a
    if b > a:
        total += math.log(b / a) + tail(b) - tail(a)
    return total


def tail(m: float) -> float:
    """Return H(m) − log m − γ, by its expansion."""
    square = m * m
    return 0.5 / m - 1.0 / (12.0 * square) + 1.0 / (120.0 * square * square)
