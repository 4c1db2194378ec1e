"""Exponential back-off, as in many scripts.

No program's: doubled where nothing changed, from an hour to thirty days, and an hour again after a change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.simulation.rules.rule import Fetched
from freshopt.units import SECONDS


@dataclass(frozen=True, slots=True)
class BackOff:
    """Longer without a change, the first interval again after one."""

    factor: float = 2.0
    first: float = SECONDS["hour"]
    longest: float = 30.0 * SECONDS["day"]
    retry: float = 0.0

    def after(self, own: Array, seen: Fetched) -> Array:
        """See `Rule.after`."""
        own[0] = gap = np.where(seen.changed, self.first, np.minimum(self.factor * own[0], self.longest))
        return gap
