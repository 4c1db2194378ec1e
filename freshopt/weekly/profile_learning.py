"""Learning the shape of the change rate over a cycle from a crawl log.

The rates Δ of the sources are taken as they were estimated with a constant rate. A crawl interval in which
changes were found, an unknown number of them, had N = Λ/(1 − e^{−Λ}) of them on average, Λ = Δ∫g, spread over
its bins as g is; where they were counted N is known, and a change that is dated falls in one bin. Expectation
maximisation divides, bin by bin, the expected changes by the expected exposure ∑Δ·time of all crawl
intervals. Each round is smoothed with weights ¼, ½, ¼ over neighbouring bins; 25 rounds are enough, and more
would fit noise.

The evidence is the log-likelihood that the shape gains over g = 1 at the same Δ. It is in-sample: logs of
sources without a cycle reach 0.5 to 4 nats.

A dated row tells its last change and that none came after; what was before it in the crawl interval counts
neither as exposure nor as change. First dates, which may be births, are left out.

Cost: some passes over the crawls in which changes were found per round, and one over all crawls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, BoolArray
from freshopt.units import SECONDS
from freshopt.weekly.cycle_spans import CycleSpans
from freshopt.weekly.week_clock import FIRST_MONDAY, WEEK, to_local

ROUNDS = 25
DAY = 86_400.0


class LearntShape(NamedTuple):
    """Relative rates of mean 1, and the nats that they gain over a constant rate."""

    g: Array
    evidence: float


@dataclass(frozen=True, slots=True, eq=False)
class ObservedSpans:
    """Crawl intervals on the clock of a cycle, in seconds.

    Attributes
    ----------
    begin, length : ndarray of float, shape (rows,)
        Of the time that a row tells about: its crawl interval, or from its date on.
    rate : ndarray of float, shape (rows,)
        Changes of its source per second.
    changes : ndarray of float, shape (rows,)
        How many there were, NaN for an unknown number > 0.
    dated : ndarray of bool, shape (rows,)
        Whether a change happened as the time began, and none in it.
    """

    begin: Array
    length: Array
    rate: Array
    changes: Array
    dated: BoolArray

    @classmethod
    def of(cls, log: CrawlLog, change_rate: Array, zone: str | None) -> ObservedSpans:
        """Return what the rows of a log tell, on UTC or a local clock.

        Sources without a finite positive rate are left out.
        """
        unit = SECONDS[log.time_unit]
        rate = np.repeat(change_rate, np.diff(log.offsets)) / unit
        use = np.flatnonzero(~np.isnan(log.interval) & (rate > 0.0) & (rate < np.inf))
        origin = FIRST_MONDAY if log.origin is None else log.origin.timestamp()
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
            # An interval that the clock is set back in may seem to end before it begins: it keeps its length.
            shown = to_local(origin + end, zone) - begin
            length = np.where(shown > 0.0, shown, length)
        return cls(begin - FIRST_MONDAY, length, rate[use], changes, dated)


def learnt_shapes(
    log: CrawlLog, change_rate: Array, bins: int, zone: str | None
) -> tuple[LearntShape, LearntShape]:
    """Return the shapes of the week and of the day, learnt from a log.

    Parameters
    ----------
    log : CrawlLog
    change_rate : ndarray of float, shape (n,)
        Changes per time unit of each source.
    bins : int
        Of the week; the day has a seventh of them.
    zone : str or None
        The clock; None for UTC.

    Raises
    ------
    SourceDataError
        If the log does not have the times of its crawls.
    """
    if not log.timed:
        raise SourceDataError(
            "the log has no times, only gaps. A weekly profile needs to know when crawls took place: "
            "pass a log with a time column."
        )
    rows = ObservedSpans.of(log, change_rate, zone)
    return learnt_shape(rows, WEEK, bins), learnt_shape(rows, DAY, max(1, round(bins / 7)))


def learnt_shape(rows: ObservedSpans, period: float, bins: int) -> LearntShape:
    """Return the shape of the change rate over a cycle, and its evidence.

    Parameters
    ----------
    rows : ObservedSpans
    period : float
        Of the cycle, in seconds.
    bins : int
    """
    g = np.ones(bins)
    spans = CycleSpans.of(rows.begin / period, rows.length / period, bins)
    rate = rows.rate * period
    some = np.isnan(rows.changes)
    counted = rows.changes > 0.0
    many, found = spans.select(counted), spans.select(some)
    number, found_rate = rows.changes[counted], rate[some]
    dated = np.bincount(spans.first[rows.dated], minlength=bins)[:bins].astype(np.float64)
    exposure = spans.spread(rate)
    for _ in range(ROUNDS if bins > 1 else 0):
        weight = found_rate / -np.expm1(-found_rate * found.integral(g))
        expected = dated + g * (found.spread(weight) + many.spread(number / many.integral(g)))
        g = _smoothed(np.divide(expected, exposure, out=np.ones(bins), where=exposure > 0.0))
    gain = float(dated @ np.log(np.where(dated > 0.0, g, 1.0)))
    gain -= float((exposure - found.spread(found_rate)) @ (g - 1.0))
    gain += float(number @ np.log(many.integral(g) / many.length))
    gain += float(np.sum(_log_found(found_rate * found.integral(g)) - _log_found(found_rate * found.length)))
    return LearntShape(g, gain)


def _smoothed(g: Array) -> Array:
    """Return the shape smoothed over neighbouring bins, with mean 1."""
    g = 0.5 * g + 0.25 * (np.roll(g, 1) + np.roll(g, -1))
    mean = float(np.mean(g))
    return g / mean if mean > 0.0 else np.ones(len(g))


def _log_found(x: Array) -> Array:
    """Return ln(1 − e^{−x})."""
    return np.log(-np.expm1(-x))
