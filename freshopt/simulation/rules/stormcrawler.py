"""Apache StormCrawler's ``AdaptiveScheduler``.

Read in apache/stormcrawler at 384e98c5 (3.4.1-SNAPSHOT, July 2025): ``AdaptiveScheduler`` and
``DefaultScheduler`` of core/src/main/java/org/apache/stormcrawler/persistence. As there, intervals are whole
minutes, computed in floats of 32 bits, and an error makes it forget the interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.simulation.rules.rule import Fetched
from freshopt.units import SECONDS

MINUTE, HOUR, DAY = SECONDS["minute"], SECONDS["hour"], SECONDS["day"]


@dataclass(frozen=True, slots=True)
class StormCrawler:
    """Longer without a change, after one nearer to the shortest interval."""

    increase: float = 0.5
    decrease: float = 0.5
    shortest: float = HOUR
    longest: float = 14.0 * DAY
    first: float = DAY
    retry: float = 2.0 * HOUR

    def after(self, own: Array, seen: Fetched) -> Array:
        """See `Rule.after`."""
        one, share, minutes = np.float32(1.0), np.float32(self.decrease), np.float32(own[0] / MINUTE)
        shorter = np.trunc((one - share) * minutes + share * np.float32(self.shortest / MINUTE))
        longer = np.trunc(minutes * (one + np.float32(self.increase)))
        interval = np.where(seen.changed, shorter, np.minimum(longer, self.longest / MINUTE))
        own[0] = gap = np.where(seen.failed, self.first, MINUTE * np.maximum(interval, 1.0))
        return gap
