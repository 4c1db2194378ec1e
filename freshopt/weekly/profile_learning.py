"""Learning a weekly profile from a crawl log.

The rates of the sources are taken as they were estimated with a constant rate; the shape of the week comes
from `ShapeLikelihood.maximising`, that of the day from `daily_shape`. The evidence of either is the
log-likelihood that it gains over a constant rate. It is in-sample: logs of sources without a cycle reach 0.5
to 4 nats. Where the hours of the day have evidence of their own, the shape of the week gets them.
"""

from __future__ import annotations

from typing import NamedTuple

from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array
from freshopt.weekly.daily_shape import DAY, daily_shape, with_hours
from freshopt.weekly.observed_spans import ObservedSpans
from freshopt.weekly.shape_likelihood import ShapeLikelihood
from freshopt.weekly.week_clock import WEEK

# Evidence in nats of hours of the day below which they are not used. Four free numbers reach 10 by chance in
# one log of 2000; with 126 changed crawls, hours below it came out wrong.
ENOUGH_OF_DAY = 10.0


class LearntShape(NamedTuple):
    """The relative rates of a week, with the evidence of it and of hours of the day alone."""

    g: Array
    evidence: float
    daily_evidence: float


def learnt_shape(log: CrawlLog, change_rate: Array, bins: int, zone: str | None) -> LearntShape:
    """Return the shape of the week that a log tells, with its evidence.

    Parameters
    ----------
    log : CrawlLog
    change_rate : ndarray of float, shape (n,)
        Changes per time unit of each source.
    bins : int
        Of the week. Hours of the day are learnt where they are a multiple of 7, above 7.
    zone : str or None
        The clock; None for UTC.

    Raises
    ------
    SourceDataError
        If the log does not have the times of its crawls.
    """
    rows = ObservedSpans.of(log, change_rate, zone)
    week = ShapeLikelihood.of(rows, WEEK, bins)
    g, of_day = week.maximising(), 0.0
    if bins % 7 == 0 and bins > 7:
        hours = daily_shape(rows, bins // 7)
        of_day = ShapeLikelihood.of(rows, DAY, bins // 7).gain(hours)
        if of_day >= ENOUGH_OF_DAY:
            g = with_hours(g, hours)
    return LearntShape(g, week.gain(g), of_day)
