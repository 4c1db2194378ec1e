"""What the rows of a crawl log tell about moments of change.

A row tells about its crawl interval: an unknown number of changes, or a known one. A dated row tells its last
change and that none came after; what was before it in the crawl interval counts neither as exposure nor as
change. First dates, which may be births, are left out.

Cost: some passes over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import segment_rows
from freshopt.units import SECONDS
from freshopt.weekly.week_clock import FIRST_MONDAY, to_local


@dataclass(frozen=True, slots=True, eq=False)
class ObservedSpans:
    """Spans of time that crawls tell about.

    In seconds since a Monday 00:00.

    Attributes
    ----------
    begin, length : ndarray of float, shape (rows,)
        Of a crawl interval, or of the time since a date.
    rate : ndarray of float, shape (rows,)
        Changes of the source per second.
    changes : ndarray of float, shape (rows,)
        How many there were, NaN for an unknown number > 0.
    dated : ndarray of bool, shape (rows,)
        Whether a change happened as the span began, and none in it.
    """

    begin: Array
    length: Array
    rate: Array
    changes: Array
    dated: BoolArray

    @classmethod
    def of(
        cls, log: CrawlLog, change_rate: Array, zone: str | None, chosen: IntArray | None = None
    ) -> ObservedSpans:
        """Return what the rows of a log tell.

        Sources without a finite positive rate are left out.

        Parameters
        ----------
        log : CrawlLog
        change_rate : ndarray of float, shape (n,)
            Changes per time unit of each source.
        zone : str or None
            The clock; None for UTC.
        chosen : ndarray of int, optional
            Positions of the sources whose rows are looked at; all by default.

        Raises
        ------
        SourceDataError
            If the log does not have the times of its crawls.
        """
        if not log.timed:
            raise SourceDataError(
                "the log has no times, only crawl intervals. A weekly profile needs to know when crawls took "
                "place: give the log a column time."
            )
        unit = SECONDS[log.time_unit]
        counts = np.diff(log.offsets)
        if chosen is None:
            rows, rate = np.arange(len(log)), np.repeat(change_rate, counts) / unit
        else:
            rows = segment_rows(log.offsets, chosen)
            rate = np.repeat(change_rate[chosen], counts[chosen]) / unit
        known = ~np.isnan(log.interval[rows]) & (rate > 0.0) & (rate < np.inf)
        use, rate = rows[known], rate[known]
        origin = log.clock.epoch(FIRST_MONDAY)
        end, length = log.time[use] * unit, log.interval[use] * unit
        changes = np.where(log.changed[use], np.nan, 0.0)
        if log.changes is not None:
            told = log.changes[use]
            changes = np.where(np.isnan(told), changes, told)
        dated = np.zeros(len(use), dtype=np.bool_)
        if log.last_modified is not None:
            date = log.last_modified[use] * unit
            dated = ~np.isnan(date)
            length = np.where(dated, end - date, length)
            changes = np.where(dated, 0.0, changes)
        begin = to_local(origin + end - length, zone)
        if zone is not None:
            # A span in which the clock is set back may seem to end before it begins: it keeps its length.
            shown = to_local(origin + end, zone) - begin
            length = np.where(shown > 0.0, shown, length)
        return cls(begin - FIRST_MONDAY, length, rate, changes, dated)

    def every_other(self, period: float) -> tuple[ObservedSpans, ObservedSpans]:
        """Return the spans that end in even and in odd periods.

        The period is in seconds.
        """
        even = np.floor((self.begin + self.length) / period) % 2.0 == 0.0
        return self._select(even), self._select(~even)

    def _select(self, keep: BoolArray) -> ObservedSpans:
        """Return some of the spans."""
        return ObservedSpans(
            self.begin[keep], self.length[keep], self.rate[keep], self.changes[keep], self.dated[keep]
        )
