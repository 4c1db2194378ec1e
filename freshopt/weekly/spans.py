"""Spans of time on a cycle, and what crawls tell of them.

An interval covers whole cycles and a remainder from one bin to another. The time that intervals spend in each
bin is a sum over those that end beyond the bin less those that begin beyond it: two counts by bin and one
cumulative sum, however many bins an interval covers. There is no table of intervals and bins.

A row tells about its crawl interval: an unknown number of changes, or a known one. A dated row tells its last
change and that none came after; what was before it in the crawl interval counts neither as exposure nor as
change. First dates, which may be births, are left out.

Cost: a few passes over the rows or intervals, and one over the bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import segment_rows
from freshopt.units import SECONDS
from freshopt.weekly.week_clock import FIRST_MONDAY, to_local


@dataclass(frozen=True, slots=True, eq=False)
class CycleSpans:
    """Intervals on a cycle of length 1.

    Attributes
    ----------
    bins : int
        Equal bins of the cycle.
    length : ndarray of float, shape (m,)
        > 0, in cycles.
    whole : ndarray of float, shape (m,)
        Whole cycles in each interval.
    first, last : ndarray of int, shape (m,)
        The bins in which the remainder begins and ends; the second cycle's are bins, ..., 2·bins − 1.
    into_first, into_last : ndarray of float, shape (m,)
        How far into these bins, as a share of their width.
    """

    bins: int
    length: Array
    whole: Array
    first: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]
    into_first: Array
    into_last: Array

    @classmethod
    def of(cls, begin: Array, length: Array, bins: int) -> CycleSpans:
        """Return the intervals of given lengths from given moments, both in cycles.

        Examples
        --------
        >>> spans = CycleSpans.of(np.array([3.75]), np.array([1.5]), bins=4)
        >>> spans.integral(np.array([4.0, 0.0, 0.0, 0.0])), spans.spread(np.array([1.0]))
        (array([2.]), array([0.5 , 0.25, 0.25, 0.5 ]))
        """
        whole = np.floor(length)
        start = begin % 1.0 * bins
        end = start + (length - whole) * bins
        first = np.minimum(start.astype(np.int32), bins - 1)
        last = np.minimum(end.astype(np.int32), 2 * bins - 1)
        return cls(bins, length, whole, first, last, start - first, end - last)

    def select(self, keep: BoolArray) -> CycleSpans:
        """Return some of the intervals."""
        names = ("length", "whole", "first", "last", "into_first", "into_last")
        return CycleSpans(self.bins, *(getattr(self, name)[keep] for name in names))

    def integral(self, g: Array) -> Array:
        """Return ∫g over each interval, in cycles, for g of mean 1."""
        twice = np.concatenate((g, g)) / self.bins
        before = np.concatenate(([0.0], np.cumsum(twice)))
        between = before[self.last] - before[self.first]
        rest: Array = between + twice[self.last] * self.into_last - twice[self.first] * self.into_first
        return self.whole + np.maximum(rest, 0.0)

    def spread(self, weight: Array) -> Array:
        """Return the weighted time in each bin, in cycles."""
        both = self._beyond(self.last, self.into_last, weight) - self._beyond(
            self.first, self.into_first, weight
        )
        covered = both[: self.bins] + both[self.bins :]
        return np.maximum(covered + float(weight @ self.whole), 0.0) / self.bins

    def _beyond(self, edge: npt.NDArray[np.int32], into: Array, weight: Array) -> Array:
        """Return the weighted share of each bin before the edges.

        Of two cycles, shape (2·bins,).
        """
        here: Array = np.bincount(edge, weight, 2 * self.bins).astype(np.float64)
        later: Array = np.cumsum(here[::-1])[::-1] - here
        return later + np.bincount(edge, weight * into, 2 * self.bins)


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
