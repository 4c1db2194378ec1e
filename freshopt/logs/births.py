"""Crawl logs of sources that exist since known moments.

The date of a source's first crawl is its last change or its birth. Where the birth is known the date tells
which: a later one is a change since, and otherwise there was none.
"""

from __future__ import annotations

import copy

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.timestamps import ToldTimes, read_told_moments, time_since
from freshopt.numerics.arrays import as_vector, read_only


def since_birth(log: CrawlLog, start: ToldTimes) -> CrawlLog:
    """Return a log in which dated first crawls count from known births.

    Parameters
    ----------
    log : CrawlLog
    start : array_like of shape (n,)
        Since when each source exists, in the order of ``log.sources_``, written as its times are; NaN (NaT,
        None) where that is not known. A first crawl without a date stays a baseline.

    Raises
    ------
    SourceDataError
        If a source begins after its first crawl, or the log has no times.

    Examples
    --------
    >>> log = CrawlLog(["a", "b"], [9.0, 9.0], [0, 0], last_modified=[2.0, 1.0])
    >>> born = since_birth(log, [0.0, 1.0])
    >>> born.interval.tolist(), born.changed.tolist()
    ([9.0, 8.0], [True, False])
    """
    moments = read_told_moments(
        start,
        "start",
        lambda k: f"the row of source {log.sources_.item(k)!r}",
        dated=log.origin is not None,
    )
    if moments is None:
        return log
    if not log.timed:
        raise SourceDataError("start needs the times of the crawls. Add the column time, or leave start out.")
    origin = None if log.origin is None else np.datetime64(log.origin.replace(tzinfo=None), "s")
    begin = as_vector(time_since(origin, moments, log.time_unit, "start"), len(log.sources_), "start")
    first = log.offsets[:-1]
    late = np.flatnonzero(~np.isnan(begin) & ~(begin <= log.time[first]))
    if len(late):
        where = list_offenders(repr(name) for name in log.sources_[late].tolist())
        raise SourceDataError(f"start is after the first crawl of {where}. Correct it, or leave it empty.")
    if log.last_modified is None:
        return log
    date = log.last_modified[first]
    known = np.isnan(log.interval[first]) & ~np.isnan(date) & (begin < log.time[first])
    row, begin, date = first[known], begin[known], date[known]
    interval, changed, dates = log.interval.copy(), log.changed.copy(), log.last_modified.copy()
    interval[row] = log.time[row] - begin
    changed[row] = date > begin
    dates[row] = np.where(date > begin, date, np.nan)
    born = copy.copy(log)
    for key, value in (("interval", interval), ("changed", changed), ("last_modified", dates)):
        object.__setattr__(born, key, read_only(value))
    return born
