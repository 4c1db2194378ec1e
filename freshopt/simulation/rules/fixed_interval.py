"""One interval for all, as changedetection.io has it.

Read in dgtlmoon/changedetection.io at fce24780 (0.55.8, August 2026): ``time_between_check`` of three hours
and ``jitter_seconds`` of 0 in changedetectionio/model/App.py, and the ticker of flask_app.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.simulation.rules.rule import Fetched
from freshopt.units import SECONDS


@dataclass(frozen=True, slots=True)
class FixedInterval:
    """The same interval, whatever a fetch finds."""

    first: float = 3.0 * SECONDS["hour"]
    retry: float = 0.0

    def after(self, own: Array, _: Fetched) -> Array:
        """See `Rule.after`."""
        return np.array(own[0])
