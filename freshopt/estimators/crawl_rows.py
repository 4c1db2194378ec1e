"""What the rows of a log count, and what their dates tell.

A crawl that found a change and tells when the last one was, τ before it, contributes Δe^{−Δτ} to the
likelihood: as much as one counted change in the time τ. The date of a source's first crawl is its last change
or its birth; see `crawl_likelihood`.

For rates that drift a crawl weighs 2^{−age/half-life} (`Forgetting`), its age counted back from the newest
crawl of all. The weighted sums of a batch can be carried over to a later one by one factor per batch, which
keeps learning in batches as cheap as it was. With weights w, estimates have the spread of those from
(Σw)²/Σw² crawls that weigh alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.estimators.crawl_formulas import odds_of, told_by_row
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_positive
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.numerics.segments import segment_sums
from freshopt.units import SECONDS, convert_time

ALL = slice(None)


class GammaParameters(NamedTuple):
    """Gamma priors of n sources in the time unit of a log.

    - `shape`, `exposure` (n,): a and b.
    - `birth_rate` (n,): η ≥ 0: at that rate sources come into being, which first dates may tell instead of a
      change.
    """

    shape: Array
    exposure: Array
    birth_rate: Array

    def of(self, part: slice | BoolArray) -> GammaParameters:
        """Return those of some of the sources."""
        return GammaParameters(self.shape[part], self.exposure[part], self.birth_rate[part])


def widened(shape: float | Array, mean: float | Array, variance: float | Array) -> tuple[Array, Array]:
    """Return shapes and means of Gammas whose mean is uncertain.

    Its logarithm has the variance v: the squared relative spread is then (1+1/a)e^v − 1.
    """
    return 1.0 / ((1.0 + 1.0 / shape) * np.exp(variance) - 1.0), mean * np.exp(0.5 * variance)


def evenly(n: int, most: int) -> IntArray:
    """Return positions of n sources, evenly spaced where they are too many."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


@frozen_arrays
class FirstDates(NamedTuple):
    """Dates that first crawls tell, of a last change or a birth.

    - `possible` (n,): P, 1 or the crawl's weight, of sources with a first date; 0 of others.
    - `age` (n,): Weighted, at the crawl.
    """

    possible: Array
    age: Array

    def of(self, part: slice | BoolArray) -> FirstDates:
        """Return those of some of the sources."""
        return FirstDates(self.possible[part], self.age[part])


@frozen_arrays
class Intervals(NamedTuple):
    """Crawl intervals, source after source, with weights if they have them.

    - `length` (m,)
    - `offsets` (n+1,): Crawl intervals ``offsets[k]`` up to, not including, ``offsets[k+1]`` are those of
      source k.
    - `weight` (m,): None if they count alike.
    """

    length: Array
    offsets: IntArray
    weight: Array | None = None

    @classmethod
    def of(cls, log: CrawlLog, chosen: BoolArray, weight: Array | None) -> Intervals:
        """Return the crawl intervals of some rows."""
        where = np.flatnonzero(chosen)
        offsets = np.searchsorted(where, log.offsets).astype(np.int64)
        return cls(log.interval[where], offsets, None if weight is None else weight[where])

    @property
    def number(self) -> IntArray:
        """Number of each source's crawl intervals, shape (n,)."""
        return np.diff(self.offsets)

    @property
    def size(self) -> Array:
        """Weighted number of each source's crawl intervals, shape (n,)."""
        return self.sums(np.ones(len(self.length)))

    @property
    def span(self) -> Array:
        """Weighted sum of each source's crawl intervals, shape (n,)."""
        return self.sums(self.length)

    def with_one_more(self, length: float) -> Intervals:
        """Return them with one more of each source, which weighs 1."""
        ends = self.offsets[1:]
        weight = None if self.weight is None else np.insert(self.weight, ends, 1.0)
        return Intervals(
            np.insert(self.length, ends, length), self.offsets + np.arange(len(ends) + 1), weight
        )

    def select(self, mask: BoolArray) -> Intervals:
        """Return those of some of the sources."""
        if mask.all():
            return self
        rows = np.repeat(mask, self.number)
        offsets = np.concatenate([[0], np.cumsum(self.number[mask])]).astype(np.int64)
        return Intervals(self.length[rows], offsets, None if self.weight is None else self.weight[rows])

    def part(self, sources: slice) -> Intervals:
        """Return those of sources one after the other."""
        offsets = self.offsets[sources.start : sources.stop + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        weight = None if self.weight is None else self.weight[rows]
        return Intervals(self.length[rows], offsets - offsets[0], weight)

    def sums(self, values: Array) -> Array:
        """Return the weighted sum over each source, shape (n,)."""
        return segment_sums(values if self.weight is None else self.weight * values, self.offsets)

    def shares(self, rate: Array) -> tuple[Array, Array, Array]:
        """Return x, odds of no change, and q of crawl intervals."""
        x = self.length * np.repeat(rate, self.number)
        odds = odds_of(x)
        return x, odds, x * odds


# Crawl intervals after which an unknown number of changes was found, and none (None unless asked for); the
# counted changes of each source, the time in which they were, and with it that of quiet crawl intervals.
SplitRows: TypeAlias = tuple[Intervals, Intervals | None, Array, Array, Array]


def split_rows(log: CrawlLog, weight: Array | None, *, quiet: bool) -> SplitRows:
    """Return the rows of a log, with optional weights, told apart."""
    changes, period = counted_changes(log)
    known, seen = ~np.isnan(changes), ~np.isnan(log.interval)
    each = 1.0 if weight is None else weight
    found, none = log.changed & ~known, seen & ~log.changed & ~known
    counted, time = np.zeros((2, len(log.names)))
    if known.any():
        told = known & seen
        counted, time = (
            segment_sums(np.where(told, each * of, 0.0), log.offsets) for of in (changes, period)
        )
    others = Intervals.of(log, none, weight) if quiet else None
    exposure = time + segment_sums(np.where(none, each * log.interval, 0.0), log.offsets)
    return Intervals.of(log, found, weight), others, counted, time, exposure


def counted_changes(log: CrawlLog) -> tuple[Array, Array]:
    """Return how many changes each row tells, and in what time.

    The number is NaN where it is unknown. The time is the crawl interval, or that since the last change if a
    row is dated, and NaN in a baseline.

    Examples
    --------
    >>> log = CrawlLog(["a"] * 3, [0.0, 4.0, 5.0], [0, 1, 0], last_modified=[None, 3.0, 3.0])
    >>> counted_changes(log)
    (array([nan,  1., nan]), array([nan,  1.,  1.]))
    """
    number = np.full(len(log), np.nan) if log.changes is None else log.changes
    if log.last_modified is None:
        return number, log.interval
    return told_by_row(log.interval, number, log.time - log.last_modified)


def first_dates(log: CrawlLog, weight: Array | None = None) -> FirstDates | None:
    """Return the first dates of a log's sources, None without any.

    `weight` is that of the sources' first crawls.

    Examples
    --------
    >>> first_dates(CrawlLog(["a", "b"], [9.0, 9.0], [0, 0], last_modified=[2.0, None]))
    FirstDates(possible=array([1., 0.]), age=array([7., 0.]))
    """
    if log.last_modified is None:
        return None
    first = log.offsets[:-1]
    age = np.where(np.isnan(log.interval[first]), log.time[first] - log.last_modified[first], np.nan)
    if np.all(np.isnan(age)):
        return None
    each = np.where(np.isnan(age), 0.0, 1.0 if weight is None else weight)
    return FirstDates(each, each * np.nan_to_num(age))


# log₂ of the smallest weight: products of two such weights stay above 0.
FAINTEST = -1000.0


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Weights of crawls by their age.

    Examples
    --------
    >>> Forgetting(2.0).factor(4.0, "day")
    0.25
    """

    half_life: float | None

    def __post_init__(self) -> None:
        remedy = "Pass a length in days > 0, or None to forget nothing."
        if self.half_life is not None:
            as_positive(self.half_life, "half_life", remedy)

    @property
    def setting(self) -> str:
        """Text of the setting in an estimator's repr."""
        return "" if self.half_life is None else f", half_life={self.half_life}"

    def factor(self, age: float, time_unit: str) -> float:
        """Return the weight of an observation by its age, 1 before 0."""
        if self.half_life is None or not age > 0:
            return 1.0
        return float(np.exp2(max(-age / convert_time(self.half_life, "day", time_unit), 0.5 * FAINTEST)))

    def weights(
        self, log: CrawlLog, row: IntArray | slice = ALL, newest: float | None = None
    ) -> Array | None:
        """Return the weights of rows of a log, None for all alike.

        Ages are counted from the newest moment, by default the log's end.
        """
        if self.half_life is None:
            return None
        if not log.timed:
            raise SourceDataError(
                "half_life needs to know how old crawls are, and the log has the gaps between them only "
                "(elapsed). Add the column time, or leave half_life out."
            )
        unit = convert_time(self.half_life, "day", log.time_unit)
        end = log.end if newest is None else newest - moment_of(log, 0.0)
        weights: Array = np.exp2(np.maximum((log.time[row] - end) / unit, 0.5 * FAINTEST))
        return weights


def moment_of(log: CrawlLog, time: float) -> float:
    """Return a log's time in time units, since 1970 with dates."""
    return time + log.clock.epoch() / SECONDS[log.time_unit]
