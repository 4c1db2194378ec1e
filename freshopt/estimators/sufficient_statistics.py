"""Observed crawl intervals and sufficient statistics of estimators.

What they read from a crawl log, and what they carry from one batch to the next.

`ObservedIntervals` is a batch without its baseline rows; `SufficientStatistics` summarises all batches so
far: per source the number of crawls, how many found a change, and a few numbers of the estimator's own. A
batch may bring new sources. Nothing is changed in place, so that an invalid batch leaves an estimator
unchanged.

Cost: one pass over a batch; memory for the sources, not for the crawls seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog, require_log
from freshopt.numerics.arrays import (
    LARGEST,
    SMALLEST,
    Array,
    BoolArray,
    IntArray,
    are_text,
    as_positive,
    as_vector,
)
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.segments import segment_sums
from freshopt.units import convert_time

# Median of Gamma(½): changes that a source which never changed has in the time it was observed, by its
# posterior median under Jeffreys' prior. One estimated at 0 would never be crawled again.
LEAST = 0.227468211559786


@dataclass(frozen=True, slots=True, eq=False)
class ObservedIntervals:
    """Rows of a log with a known crawl interval.

    Source after source.

    - `offsets` (n+1,): Rows ``offsets[k]`` up to, not including, ``offsets[k+1]`` are those of source k.
    - `changed` (m,)
    - `interval` (m,)
    - `changes` (m,): NaN where unknown.
    - `row` (m,): Position of each in the log.

    Examples
    --------
    >>> log = CrawlLog(source=["a", "a", "b"], time=[0.0, 2.0, 1.0], changed=[0, 1, 0])
    >>> rows = ObservedIntervals.of(log)
    >>> rows.interval.tolist(), rows.crawls.tolist(), rows.found.tolist()
    ([2.0], [1, 0], [1, 0])
    """

    log: CrawlLog
    offsets: IntArray
    changed: BoolArray
    interval: Array
    changes: Array | None
    row: IntArray

    @classmethod
    def of(cls, log: CrawlLog) -> ObservedIntervals:
        """Return the rows of a log that are not baselines."""
        require_log(log)
        row = np.flatnonzero(~np.isnan(log.interval))
        return cls(
            log=log,
            offsets=np.searchsorted(row, log.offsets).astype(np.int64),
            changed=log.changed[row],
            interval=log.interval[row],
            changes=None if log.changes is None else log.changes[row],
            row=row,
        )

    @property
    def crawls(self) -> IntArray:
        """The number of rows of each source, shape (n,)."""
        return np.diff(self.offsets)

    @property
    def found(self) -> IntArray:
        """Number of each source's rows with a change, shape (n,)."""
        return self.sums(self.changed.astype(np.float64)).astype(np.int64)

    @property
    def rank(self) -> IntArray:
        """Position of each row within its source, from 0, shape (m,)."""
        return np.arange(len(self.row)) - np.repeat(self.offsets[:-1], self.crawls)

    def sums(self, values: Array) -> Array:
        """Sum one value per row over each source, shape (n,)."""
        return segment_sums(values, self.offsets)

    def crawl_rates(self, crawl_rate: npt.ArrayLike | None) -> Array:
        """Return each row's rate of the crawling process, shape (m,)."""
        log, given = self.log, cast(npt.ArrayLike, crawl_rate)
        per_row = np.asarray(crawl_rate, dtype=object).shape == (len(log),)
        if per_row:
            rate = as_vector(given, len(log), "crawl_rate")[self.row]
        else:
            rate = np.repeat(as_vector(given, len(log.names), "crawl_rate"), self.crawls)
        wrong = np.flatnonzero(~((rate >= SMALLEST) & (rate <= LARGEST)))
        if len(wrong):
            row = int(self.row[wrong[0]])
            raise SourceDataError(
                f"crawl_rate of source {log.names[log.source_index[row]]} at time {log.time[row]:g} is "
                f"{rate[wrong[0]]:g}. The rate of a crawling process is a positive number. Pass the rate at "
                "which the source was crawled."
            )
        return rate


@frozen_value()
class SufficientStatistics:
    """Sufficient statistics of n sources after some batches.

    - `sources` (n,): Sorted names or integers.
    - `crawls` (n,): Crawls after a known crawl interval.
    - `found` (n,): Those of them that found a change.
    - `state` (n, width): The estimator's own numbers; 0 before a source's first crawl.
    - `newest`: The moment of the newest crawl of all, as `forgetting.moment_of` returns it.
    """

    sources: npt.NDArray[Any]
    time_unit: str
    crawls: IntArray
    found: IntArray
    state: Array
    newest: float

    @classmethod
    def before(
        cls, log: CrawlLog, earlier: SufficientStatistics | None, width: int
    ) -> tuple[SufficientStatistics, IntArray]:
        """Return the statistics before a batch, with places for its sources."""
        if earlier is None:
            n = len(log.names)
            none = np.zeros(n, dtype=np.int64)
            return cls(log.names, log.time_unit, none, none, np.zeros((n, width)), -np.inf), np.arange(n)
        if log.time_unit != earlier.time_unit:
            raise SourceDataError(
                f"time_unit of this batch is {log.time_unit!r} but that of the batches before is "
                f"{earlier.time_unit!r}. Build its CrawlLog in the same unit."
            )
        if are_text(log.names) is not are_text(earlier.sources):
            raise SourceDataError(
                f"source {log.names[0]!r} of this batch and {earlier.sources[0]!r} of those before are "
                "not of one kind. Call all sources by names or all by integers."
            )
        sources = np.union1d(earlier.sources, log.names)
        old = np.searchsorted(sources, earlier.sources)
        crawls, found = np.zeros((2, len(sources)), dtype=np.int64)
        state = np.zeros((len(sources), width))
        crawls[old], found[old], state[old] = earlier.crawls, earlier.found, earlier.state
        evidence = cls(sources, log.time_unit, crawls, found, state, earlier.newest)
        return evidence, np.searchsorted(sources, log.names)

    def after(
        self, rows: ObservedIntervals, at: IntArray, state: Array, newest: float
    ) -> SufficientStatistics:
        """Return the statistics updated with a batch and the sources' new state."""
        crawls, found = self.crawls.copy(), self.found.copy()
        crawls[at] += rows.crawls
        found[at] += rows.found
        return replace(self, crawls=crawls, found=found, state=state, newest=newest)


def flags_of(changed: BoolArray, unchanged: BoolArray) -> npt.NDArray[np.str_]:
    """Return each source's flag, by what its crawls found."""
    kinds = ["baseline only", "never changed", "always changed"]
    return np.select([~changed & ~unchanged, ~changed, ~unchanged], kinds, default="ok")


def check_floor(floor: float | None) -> float | None:
    """Return the floor if None or ≥ 0, else raise SourceDataError."""
    if floor is None:
        return None
    as_positive(floor, "floor", "Pass changes per day > 0, or 0 for none.", zero=True)
    return floor


def at_least(floor: float | None, rate: Array, time: Array, time_unit: str) -> Array:
    """Return rates raised to a floor.

    NaN is raised to it as well, and 0 is none. With None it is `LEAST` changes in the time that the source
    was observed, and one that was not observed is estimated as `as_the_others`.

    Examples
    --------
    >>> at_least(0.24, np.array([0.5, 0.0, np.nan]), np.array([8.0, 4.0, 0.0]), "hour")
    array([0.5 , 0.01, 0.01])
    >>> at_least(None, np.array([0.5, 0.0, np.nan]), np.array([8.0, 4.0, 0.0]), "hour").round(3)
    array([0.5  , 0.057, 0.278])
    """
    if floor is None:
        return as_the_others(np.maximum(rate, LEAST / np.where(time > 0, time, np.nan)))
    return np.fmax(rate, floor / convert_time(1.0, "day", time_unit)) if floor else rate


def as_the_others(rate: Array) -> Array:
    """Return rates with the median of all for NaN.

    Nothing but the other sources tells the scale of a source's rate that was crawled once.
    """
    unseen = np.isnan(rate)
    if unseen.any() and not unseen.all():
        rate = np.where(unseen, np.median(rate[~unseen]), rate)
    return rate
