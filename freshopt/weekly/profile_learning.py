"""Learning a weekly profile from a crawl log.

The rates of the sources are taken as they were estimated with a constant rate; the shape of the week comes
from `ShapeLikelihood.maximising`, that of the day from `daily_shape`. Where the hours of the day have
evidence of their own, the shape of the week gets them if they then predict other weeks better.

The evidence of either is the log-likelihood that it gains over a constant rate on the log it was learnt from.
Logs of sources without a cycle reach 0.5 to 4 nats with 60 crawls a week apart, but 20 where few changes were
found by crawls hours apart: so many bins then fit noise. A shape that was learnt in every other week must
therefore gain in the weeks between, too; what was done to many sources once, on one day, does not.

Cost: learning on all rows, and on each half of them.
"""

from __future__ import annotations

from typing import NamedTuple

from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, IntArray
from freshopt.weekly.daily_shape import DAY, daily_shape, with_hours
from freshopt.weekly.observed_spans import ObservedSpans
from freshopt.weekly.shape_likelihood import ShapeLikelihood
from freshopt.weekly.week_clock import WEEK

# Evidence in nats of hours of the day below which they are not used. Placebos reached 7.8 (of 500); with 126
# changed crawls, hours below it came out wrong.
ENOUGH_OF_DAY = 10.0
# Share of a constant rate in a shape that is tried on held-out weeks, where half of a log learnt too much of
# what was chance, and nats that it must gain there. Logs of 60 to 600 crawls a day without a cycle, on which
# the in-sample evidence alone would pass in 13 to 86 % of cases, then pass in 1 to 8 %.
CONSTANT, HELD_OUT = 0.3, 3.0


class LearntShape(NamedTuple):
    """The shape of a week, its evidence and that of the day."""

    g: Array
    evidence: float
    daily_evidence: float


def learnt_shape(
    log: CrawlLog, change_rate: Array, bins: int, zone: str | None, chosen: IntArray | None = None
) -> LearntShape:
    """Return the shape of the week, with its evidence.

    Parameters
    ----------
    log : CrawlLog
    change_rate : ndarray of float, shape (n,)
        Changes per time unit of each source.
    bins : int
        Of the week. Hours of the day are learnt where they are a multiple of 7, above 7.
    zone : str or None
        The clock; None for UTC.
    chosen : ndarray of int, optional
        Positions of the sources to learn from; all by default.

    Raises
    ------
    SourceDataError
        If the log does not have the times of its crawls.
    """
    rows = ObservedSpans.of(log, change_rate, zone, chosen)
    parts = (rows, *rows.every_other(WEEK))
    weeks = [ShapeLikelihood.of(part, WEEK, bins) for part in parts]
    shapes = [week.maximising() for week in weeks]
    found = _evidence(weeks, shapes)
    per_day = bins // 7 if bins % 7 == 0 else 1
    if per_day == 1:
        return LearntShape(shapes[0], found.nats, 0.0)
    hours = [daily_shape(part, per_day) for part in parts]
    of_day = _evidence([ShapeLikelihood.of(part, DAY, per_day) for part in parts], hours).nats
    if of_day >= ENOUGH_OF_DAY:
        both = [with_hours(g, day) for g, day in zip(shapes, hours, strict=True)]
        other = _evidence(weeks, both)
        if other.held_out > found.held_out:
            return LearntShape(both[0], other.nats, of_day)
    return LearntShape(shapes[0], found.nats, of_day)


class _Evidence(NamedTuple):
    gain: float
    held_out: float

    @property
    def nats(self) -> float:
        """The gain in-sample; that on held-out weeks where it is too small."""
        return self.gain if self.held_out >= HELD_OUT else min(self)


def _evidence(likelihoods: list[ShapeLikelihood], shapes: list[Array]) -> _Evidence:
    """Return gains of shapes, in-sample and on held-out weeks.

    The first of three is that of the whole log.
    """
    whole, even, odd = likelihoods
    held_out = sum(
        test.gain(CONSTANT + (1.0 - CONSTANT) * g) for test, g in ((even, shapes[2]), (odd, shapes[1]))
    )
    return _Evidence(whole.gain(shapes[0]), held_out)
