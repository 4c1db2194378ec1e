"""Testable sources of histories and logs, for `poisson_check`.

Which sources can be tested, on what clock, and how finely timed.

Times that were rounded, to days say, repeat and stand at equal distances, which no Poisson process does. A
Poisson process that was rounded is one again once each time is moved to a random place in its day: given the
day, a change is uniform over it. So rounding is detected first, and undone by randomisation (seeded). Where a
source never has two changes in one day although many were to be expected, the history is interval-censored by
day: it is tested as a log of daily crawls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.estimators.sufficient_statistics import ObservedIntervals
from freshopt.goodness_of_fit.score_sums import TracedChanges, TracedCrawls
from freshopt.goodness_of_fit.statistical_tests import FEWEST
from freshopt.inference.crawl_likelihood import CrawlLikelihood
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import segment_sums
from freshopt.units import SECONDS, convert_time

# Units to which times are commonly rounded.
COARSE = ("week", "day", "hour", "minute")
# Share of a unit: float64 days and six printed decimals are finer by far.
NEAR = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Testable sources with their traces.

    Attributes
    ----------
    trace : TracedChanges or TracedCrawls
        Of the sources that can be tested, on a clock in days whose time 0 is a midnight.
    tested : ndarray of bool, shape (n,)
    changes : ndarray of int, shape (n,)
        Changes inside the time watched, or crawls that found one.
    resolution : str or None
        The unit to which the times are rounded.
    one_each : bool
        Whether the history has at most one change in each such unit.
    """

    trace: TracedChanges | TracedCrawls
    tested: BoolArray
    changes: IntArray
    resolution: str | None = None
    one_each: bool = False


def read_crawls(log: CrawlLog, random: np.random.Generator) -> Reading:
    """Read the crawl intervals of a log.

    Counts beyond one change are not used.
    """
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
    """Return whether changes come at most once per cell.

    True if no source has two changes in a cell although ten such pairs were to be expected.
    """
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
    """Read days of change as daily crawls.

    Each crawl is at the end of its day.
    """
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
    return Reading(found.trace, found.tested, found.changes, resolution, one_each=True)


def _crawls(
    offsets: IntArray, time: Array, interval: Array, changed: BoolArray, random: np.random.Generator
) -> Reading:
    """Select sources with enough crawls of both outcomes.

    Their rates are estimated.
    """
    sizes = np.diff(offsets)
    found = segment_sums(changed.astype(np.float64), offsets).astype(np.int64)
    tested = np.minimum(found, sizes - found) >= FEWEST
    trace = _select(offsets, time, interval, changed, tested, random)
    known = trace.count >= FEWEST
    if not known.all():  # nearly every crawl found a change: such a log tells less than its length
        tested[np.flatnonzero(tested)[~known]] = False
        trace = _select(offsets, time, interval, changed, tested, random)
    return Reading(trace, tested, found)


def _select(
    offsets: IntArray,
    time: Array,
    interval: Array,
    changed: BoolArray,
    tested: BoolArray,
    random: np.random.Generator,
) -> TracedCrawls:
    sizes = np.diff(offsets)
    rows = np.repeat(tested, sizes)
    kept = np.concatenate([[0], np.cumsum(sizes[tested])]).astype(np.int64)
    intervals, found = interval[rows], changed[rows]
    likelihood = CrawlLikelihood(
        intervals=intervals[found],
        offsets=np.searchsorted(np.flatnonzero(found), kept).astype(np.int64),
        counted=np.zeros(len(kept) - 1),
        exposure=segment_sums(np.where(found, 0.0, intervals), kept),
    )
    return TracedCrawls.of(kept, time[rows], intervals, found, likelihood.maximum(), random)
