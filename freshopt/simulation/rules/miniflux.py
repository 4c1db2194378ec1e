"""Miniflux's scheduler by entry frequency (``POLLING_SCHEDULER=entry_frequency``).

Read in miniflux/v2 at 106cdd09 (2.3.3, August 2026): ``Feed.ScheduleNextCheck`` of internal/model/feed.go,
``WeeklyFeedEntryCount`` of internal/storage/feed.go, settings of internal/config/options.go. Each change of
a source is taken for a dated entry. Entries that a check finds count from the next check on, as there; those
before the first check are unknown here. Left out: a feed's ttl and headers, which only lengthen intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.simulation.rules.rule import Fetched
from freshopt.units import SECONDS

DAY, WEEK = SECONDS["day"], SECONDS["week"]


@dataclass(frozen=True, slots=True)
class Miniflux:
    """The mean gap between the entries of seven days."""

    factor: float = 1.0
    shortest: float = 300.0
    longest: float = DAY
    first: float = DAY
    retry: float = 0.0

    def after(self, own: Array, seen: Fetched) -> Array:
        """See `Rule.after`; a single entry has no gap."""
        many, span = seen.dates.within(WEEK)
        with np.errstate(divide="ignore", invalid="ignore"):
            weekly = np.ceil(WEEK / (span / (many - 1)))
            interval = np.clip(WEEK / (weekly * self.factor), self.shortest, self.longest)
        own[0] = gap = np.where(span > 0.0, interval, self.longest)
        return gap
