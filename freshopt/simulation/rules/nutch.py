"""Apache Nutch's ``AdaptiveFetchSchedule``.

Read in apache/nutch at 79069414 (1.23-SNAPSHOT, July 2026): ``AdaptiveFetchSchedule.setFetchSchedule``,
``AbstractFetchSchedule`` and ``CrawlDbReducer`` of src/java/org/apache/nutch/crawl, and the settings of
conf/nutch-default.xml. The code has others where that file is missing: 0.2 each, and no `most`. A page due
later than `most` is due in the next cycle there, and after `most` here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.simulation.rules.rule import Fetched
from freshopt.units import SECONDS

DAY = SECONDS["day"]


@dataclass(frozen=True, slots=True)
class Nutch:
    """Longer by a share without a change, shorter by one after one.

    The next fetch comes earlier by the share `shift` of the time since the last change (``sync_delta_rate``;
    0 is ``sync_delta`` off). An interval beyond `most` becomes 0.9 of it, and the next fetch then has nothing
    to compare with (``forceRefetch``).
    """

    increase: float = 0.4
    decrease: float = 0.2
    shift: float = 0.3
    shortest: float = 60.0
    longest: float = 365.0 * DAY
    most: float = 90.0 * DAY
    first: float = 30.0 * DAY
    retry: float = DAY

    def after(self, own: Array, seen: Fetched) -> Array:
        """See `Rule.after`; kept are time since a change, and blindness."""
        blind = own[2] > 0.0
        factor = np.where(seen.changed, 1.0 - self.decrease, 1.0 + self.increase)
        since = np.where(blind | seen.changed, 0.0, own[1] + seen.gap)
        interval = np.where(blind, own[0], factor * own[0])
        if self.shift > 0.0:
            interval = np.maximum(interval, since)
        interval = np.clip(interval, self.shortest, self.longest)
        beyond = interval > self.most
        own[:] = np.where(beyond, 0.9 * self.most, interval), since, beyond
        gap: Array = np.minimum(interval - self.shift * since, self.most)
        return gap
