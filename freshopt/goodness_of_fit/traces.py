"""Testable sources of histories and logs, and their score sums, for `poisson_check`.

Which sources can be tested, on what clock, and how finely timed. Times that were rounded, to days say, repeat
and stand at equal distances, which no Poisson process does. A Poisson process that was rounded is one again
once each time is moved to a random place in its day: given the day, a change is uniform over it. So rounding
is detected first, and undone by randomisation (seeded). Where a source never has two changes in one day
although many were to be expected, the history is interval-censored by day: it is tested as a log of daily
crawls.

`TracedChanges` has the time of every change. `TracedCrawls` has whether a crawl interval held a change, with
probability p = 1 − e^{−aΔ} for an interval a, Δ being the maximum-likelihood rate; a term h added to the
logarithm of the rate then has the score Σ ĥ g (changed − p), where g = aΔ/p and ĥ is the mean of h over the
interval, and, as Δ is estimated, the information Σ W (ĥ − mean ĥ)², W = g² p(1−p), the mean weighted by W.
For short intervals all of it becomes what `TracedChanges` computes, W being one per change.

Times are in days. Cost: some passes over changes or crawls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.crawl_rows import Intervals
from freshopt.estimators.sufficient_statistics import ObservedIntervals
from freshopt.estimators.weekly_learning import CycleSpans, wave_integrals, wave_values
from freshopt.goodness_of_fit.poisson_tests import (
    FEWEST,
    bins_of,
    covariance,
    dispersion_test,
    drift_test,
)
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import segment_sums
from freshopt.units import SECONDS, convert_time

Result = tuple[Array, Array]  # effect and p-value of each source


@dataclass(frozen=True, slots=True, eq=False)
class TracedChanges:
    """Times of changes, strictly inside the time watched.

    - `offsets` (n+1,): Changes ``offsets[k]`` up to, not including, ``offsets[k+1]`` are those of source k.
    - `time` (m,): Non-decreasing within a source.
    - `start`, `end` (n,)
    """

    offsets: IntArray
    time: Array
    start: Array
    end: Array

    @property
    def count(self) -> Array:
        """The number of changes of each source."""
        return np.diff(self.offsets).astype(np.float64)

    @property
    def watched(self) -> Array:
        """Length of time that each source was watched."""
        return self.end - self.start

    def dispersion(self) -> Result:
        """Test counts in bins of equal length."""
        n, bins = self.count, bins_of(self.count)
        at = _bin_of(self._phase(), bins, self.offsets)
        counts = np.bincount(at, minlength=int(bins.sum())).astype(np.float64)
        squares = segment_sums(counts**2, np.concatenate([[0], np.cumsum(bins)]))
        return dispersion_test(squares * bins / n - n, bins, n)

    def spacings(self) -> tuple[Array, IntArray]:
        """Return the inter-change times and their offsets, those to both ends included."""
        before = np.insert(self.time, self.offsets[:-1], self.start)
        after = np.insert(self.time, self.offsets[1:], self.end)
        return np.maximum(after - before, 0.0), self.offsets + np.arange(len(self.offsets))

    def cycle(self, period: float) -> tuple[Array, Array]:
        """Return score and information of a sine wave."""
        length, n = self.watched / period, self.count
        c, twice_c, s, twice_s = (wave_integrals(self.start / period, length) / length[:, None]).T
        cosine, _, sine, _ = wave_values(self.time / period).T
        sums = segment_sums(cosine, self.offsets) - n * c, segment_sums(sine, self.offsets) - n * s
        # cos² = (1 + cos 2x)/2, and sin·cos = sin 2x/2.
        cc, cs = 0.5 + 0.5 * twice_c, 0.5 * twice_s
        parts = [cc - c * c, cs - c * s, cs - c * s, 1.0 - cc - s * s]
        return np.stack(sums, axis=1), (n * np.stack(parts)).T.reshape(-1, 2, 2)

    def drift(self) -> Result:
        """Return the rate ratio of the halves, and p-values.

        The rate of the second half over that of the first, and the p-value of a trend.
        """
        phase = self._phase() - 0.5
        late = segment_sums((phase > 0).astype(np.float64), self.offsets)
        ratio = (late + 0.5) / (self.count - late + 0.5)
        return ratio, drift_test(segment_sums(phase, self.offsets), self.count / 12.0)

    def profile(self, period: float, parts: int) -> tuple[Array, Array]:
        """Return observed and expected changes by phase of a cycle."""
        cells = (self.time % period * (parts / period)).astype(np.int64) % parts
        spans = CycleSpans.of(self.start / period, self.watched / period, parts)
        expected = spans.spread(self.count / spans.length)
        return np.bincount(cells, minlength=parts).astype(np.float64), expected

    def _repeat(self, values: Array | IntArray) -> Array:
        return np.repeat(values, np.diff(self.offsets))

    def _phase(self) -> Array:
        """Return each change time as a share of its watch."""
        return (self.time - self._repeat(self.start)) / self._repeat(self.end - self.start)


@dataclass(frozen=True, slots=True, eq=False)
class TracedCrawls:
    """Crawl intervals with and without a change.

    - `offsets` (n+1,)
    - `time` (m,): The end of each crawl interval.
    - `interval` (m,)
    - `changed` (m,)
    - `rate` (n,): Changes per day; positive and finite.
    - `random`: For the test of inter-change times only: position of the first change in its interval.
    - `chance`, `excess`, `weight` (m,): p, g·(changed − p) and W of each crawl interval.
    """

    offsets: IntArray
    time: Array
    interval: Array
    changed: BoolArray
    rate: Array
    random: np.random.Generator
    chance: Array
    excess: Array
    weight: Array

    @classmethod
    def of(
        cls,
        offsets: IntArray,
        time: Array,
        interval: Array,
        changed: BoolArray,
        tested: BoolArray,
        random: np.random.Generator,
    ) -> TracedCrawls:
        """Return the trace of the tested sources, at their maximum-likelihood rates."""
        sizes = np.diff(offsets)
        kept = np.repeat(tested, sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes[tested])]).astype(np.int64)
        time, interval, changed = time[kept], interval[kept], changed[kept]
        found = Intervals(
            interval[changed], np.searchsorted(np.flatnonzero(changed), offsets).astype(np.int64)
        )
        exposure = segment_sums(np.where(changed, 0.0, interval), offsets)
        rate = CrawlLikelihood(found, np.zeros(len(exposure)), exposure).maximum()
        x = interval * np.repeat(rate, np.diff(offsets))
        chance = -np.expm1(-x)
        g = x / chance
        excess, weight = g * (changed - chance), g * x * np.exp(-x)
        return cls(offsets, time, interval, changed, rate, random, chance, excess, weight)

    @property
    def count(self) -> Array:
        """Equivalent number of exactly timed changes, per source.

        As many would hold as much information about the rate.
        """
        return segment_sums(self.weight, self.offsets)

    @property
    def watched(self) -> Array:
        """Length of time that each source was watched."""
        first, last = self.offsets[:-1], self.offsets[1:] - 1
        watched: Array = self.time[last] - self.time[first] + self.interval[first]
        return watched

    def dispersion(self) -> Result:
        """Test the dispersion of counts in bins of equal information."""
        excess, weight = self.excess, self.weight
        count = segment_sums(weight, self.offsets)
        found = segment_sums(self.changed.astype(np.float64), self.offsets)
        # A bin needs some of both outcomes: with next to none of one its sum is far from normal.
        bins = bins_of(np.minimum(count, np.minimum(found, np.diff(self.offsets) - found)))
        before = np.cumsum(weight) - 0.5 * weight
        before -= self._repeat(np.concatenate([[0.0], np.cumsum(count)[:-1]]))
        at = _bin_of(np.clip(before / self._repeat(count), 0.0, 1.0), bins, self.offsets)
        size = int(bins.sum())
        sums, weights = (np.bincount(at, values, minlength=size) for values in (excess, weight))
        ratio = np.divide(sums**2, weights, out=np.zeros(size), where=weights > 0)
        edges = np.concatenate([[0], np.cumsum(bins)])
        filled = segment_sums((weights > 0).astype(np.float64), edges).astype(np.int64)
        return dispersion_test(segment_sums(ratio, edges), np.maximum(filled, 2), count)

    def spacings(self) -> tuple[Array, IntArray]:
        """Return the times at risk, rate 1, and their offsets.

        One per change that was found. It ends with the first change in a crawl interval, whose place in it is
        drawn: given that there was a change, it is an exponential time cut off at the interval's end.
        """
        x = self.interval * self._repeat(self.rate)
        drawn = self.random.random(len(x))
        at_risk = np.where(self.changed, -np.log1p(drawn * np.expm1(-x)), x)
        found = np.flatnonzero(self.changed)
        total = np.cumsum(at_risk, dtype=np.longdouble)
        offsets = np.searchsorted(found, self.offsets).astype(np.int64)
        earlier = np.concatenate([[0.0], total])[self.offsets[:-1]]
        ends = total[found]
        before = np.concatenate([[0.0], ends[:-1]])
        heads = offsets[:-1][np.diff(offsets) > 0]
        before[heads] = earlier[np.diff(offsets) > 0]
        return np.maximum(ends - before, 0.0).astype(np.float64), offsets

    def cycle(self, period: float) -> tuple[Array, Array]:
        """Return score and information of a sine wave."""
        begin, length = (self.time - self.interval) / period, self.interval / period
        cosine, _, sine, _ = (wave_integrals(begin, length) / length[:, None]).T
        sums = [segment_sums(self.excess * wave, self.offsets) for wave in (cosine, sine)]
        return np.stack(sums, axis=1), covariance(self.offsets, self.weight, cosine, sine)

    def drift(self) -> Result:
        """Return the rate ratio of the halves, and p-values.

        The rate of the second half over that of the first, and the p-value of a trend.
        """
        excess, weight = self.excess, self.weight
        middle = self.time - 0.5 * self.interval
        total = segment_sums(weight, self.offsets)
        centre = segment_sums(weight * middle, self.offsets) / total
        away = middle - self._repeat(centre)
        late = (away > 0).astype(np.float64)
        halves = [
            (segment_sums(self.changed * half, self.offsets) + 0.5)
            / (segment_sums(self.chance * half, self.offsets) + 0.5)
            for half in (late, 1.0 - late)
        ]
        score = segment_sums(excess * away, self.offsets)
        return halves[0] / halves[1], drift_test(score, segment_sums(weight * away**2, self.offsets))

    def profile(self, period: float, parts: int) -> tuple[Array, Array]:
        """Return found and expected changes by phase of a cycle."""
        spans = CycleSpans.of((self.time - self.interval) / period, self.interval / period, parts)
        return spans.spread(self.changed / spans.length), spans.spread(self.chance / spans.length)

    def _repeat(self, values: Array | IntArray) -> Array:
        return np.repeat(values, np.diff(self.offsets))


def _bin_of(share: Array, bins: IntArray, offsets: IntArray) -> IntArray:
    """Return each row's bin, by its share of its source's bins."""
    sizes = np.diff(offsets)
    of_row = np.repeat(bins, sizes)
    own: IntArray = np.minimum((of_row * share).astype(np.int64), of_row - 1)
    return own + np.repeat(np.cumsum(bins) - bins, sizes)


# Units to which times are commonly rounded.
COARSE = ("week", "day", "hour", "minute")
# Share of a unit: float64 days and six printed decimals are finer by far.
NEAR = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Testable sources with their traces.

    - `trace`: Of the sources that can be tested, on a clock in days whose time 0 is a midnight.
    - `tested` (n,)
    - `changes` (n,): Changes inside the time watched, or crawls that found one.
    - `resolution`: The unit to which the times are rounded.
    - `one_each`: Whether the history has at most one change in each such unit.
    """

    trace: TracedChanges | TracedCrawls
    tested: BoolArray
    changes: IntArray
    resolution: str | None = None
    one_each: bool = False


def read_crawls(log: CrawlLog, random: np.random.Generator) -> Reading:
    """Read the crawl intervals of a log, changes counted once."""
    rows = ObservedIntervals.of(log)
    day = convert_time(1.0, log.time_unit, "day")
    return _crawls(rows.offsets, log.time[rows.row] * day, rows.interval * day, rows.changed, random)


def read_changes(history: ChangeHistory, random: np.random.Generator) -> Reading:
    """Read the changes strictly inside each source's watch.

    What ends that time may be a change itself, as where a history ends with its last one; given that, the
    changes before it are those of a Poisson process.
    """
    day = convert_time(1.0, history.time_unit, "day")
    time, start, end = history.time * day, history.start * day, history.end * day
    source = history.source_index
    resolution = _resolution(time)
    if resolution is not None:
        width = SECONDS[resolution] / SECONDS["day"]
        shift = float(time[0] % width) if len(time) else 0.0
        shift = 0.0 if min(shift, width - shift) < NEAR * width else shift - 0.5 * width
        cell = np.floor((time - shift) / width + 0.5 * NEAR)
        if _one_each(source, cell, history.changes, (end - start) / width):
            return _cells(source, cell, (start, end), (shift, width), resolution, random)
        time = (cell + random.random(len(cell))) * width + shift
        start = np.minimum(start, np.floor((start - shift) / width) * width + shift)
        end = np.where(end > start, np.ceil((end - shift) / width) * width + shift, end)
    inside = (time > start[source]) & (time < end[source])
    counts = np.bincount(source[inside], minlength=len(start))
    tested = counts >= FEWEST
    kept = inside & tested[source]
    order = np.lexsort((time[kept], source[kept]))
    trace = TracedChanges(
        offsets=np.concatenate([[0], np.cumsum(counts[tested])]).astype(np.int64),
        time=time[kept][order],
        start=start[tested],
        end=end[tested],
    )
    return Reading(trace, tested, counts, resolution)


def _resolution(time: Array) -> str | None:
    """Return the time resolution of the data.

    The longest unit in which all times are at one phase, if there are enough of them.
    """
    if len(time) < FEWEST:
        return None
    for unit in COARSE:
        units = (time - time[0]) * (SECONDS["day"] / SECONDS[unit])
        if np.all(np.abs(units - np.rint(units)) < NEAR):
            return unit
    return None


def _one_each(source: IntArray, cell: Array, changes: IntArray, cells: Array) -> bool:
    """Return whether changes come at most once per cell, by expected pairs."""
    pairs = 0.5 * changes * (changes - 1.0)
    expected = np.sum(np.divide(pairs, cells, out=np.zeros(len(pairs)), where=cells > 0))
    order = np.lexsort((cell, source))
    together = (np.diff(source[order]) == 0) & (np.diff(cell[order]) == 0)
    return bool(expected >= FEWEST and not together.any())


def _cells(
    source: IntArray,
    cell: Array,
    edges: tuple[Array, Array],
    grid: tuple[float, float],
    resolution: str,
    random: np.random.Generator,
) -> Reading:
    """Read days of change as daily crawls at the ends of days."""
    (start, end), (shift, width) = edges, grid
    first = np.floor((start - shift) / width + 0.5 * NEAR).astype(np.int64)
    last = np.maximum(np.floor((end - shift) / width + 0.5 * NEAR).astype(np.int64), first)
    sizes = last - first + 1
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    at = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - first, sizes)
    changed = np.zeros(len(at), dtype=np.bool_)
    changed[offsets[source] + cell.astype(np.int64) - first[source]] = True
    time = (at + 1.0) * width + shift
    found = _crawls(offsets, time, np.full(len(at), width), changed, random)
    return replace(found, resolution=resolution, one_each=True)


def _crawls(
    offsets: IntArray, time: Array, interval: Array, changed: BoolArray, random: np.random.Generator
) -> Reading:
    """Select sources with enough crawls of both outcomes."""
    found = segment_sums(changed.astype(np.float64), offsets).astype(np.int64)
    tested = np.minimum(found, np.diff(offsets) - found) >= FEWEST
    crawls = offsets, time, interval, changed
    trace = TracedCrawls.of(*crawls, tested, random)
    known = trace.count >= FEWEST
    if not known.all():  # nearly every crawl found a change: such a log tells less than its length
        tested[np.flatnonzero(tested)[~known]] = False
        trace = TracedCrawls.of(*crawls, tested, random)
    return Reading(trace, tested, found)
