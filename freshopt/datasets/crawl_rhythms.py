"""Crawl logs made from known changes: daily crawls, weekly crawls.

A few NumPy passes make half a million rows in some milliseconds. The moments of irregular crawls are keyed
random numbers, the same on every machine.
"""

from __future__ import annotations

from datetime import date
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import BoolArray, IntArray
from freshopt.numerics.random_streams import exponentials

TimeArray: TypeAlias = npt.NDArray[np.datetime64]

WEEK = 7 * 86_400.0  # seconds


def daily_crawls(
    source: npt.ArrayLike, day: npt.ArrayLike, start: date, end: date
) -> tuple[IntArray, TimeArray, BoolArray]:
    """Return days of change as the log of daily crawls.

    They are at 00:00 UTC of every day.

    Parameters
    ----------
    source : array_like of int, shape (m,)
        Which source changed, 0..n-1; every source occurs at least once.
    day : array_like of datetime64[D], shape (m,)
        On which UTC day it changed. A day before `start` only says that the source existed then.
    start, end : date
        First and last day of crawling.

    Examples
    --------
    >>> days = ["2020-01-01", "2020-01-03"]
    >>> source, time, changed = daily_crawls([0, 0], days, date(2020, 1, 1), date(2020, 1, 5))
    >>> time.astype("datetime64[D]").tolist()[0], changed
    (datetime.date(2020, 1, 2), array([False, False,  True, False]))
    """
    which = np.asarray(source, dtype=np.int64)
    # Days counted from `start`; a change on day d is seen by the crawl of day d + 1.
    seen = (np.asarray(day, dtype="datetime64[D]") - np.datetime64(start)).astype(np.int64) + 1
    last = (end - start).days
    first = np.full(int(which.max(initial=-1)) + 1, last)
    np.minimum.at(first, which, seen)
    first = np.clip(first, 0, last)
    rows = last - first + 1
    offset = np.cumsum(rows) - rows - first  # the row of source k's crawl on day d is offset[k] + d
    of = np.repeat(np.arange(len(first)), rows)
    at = np.arange(len(of)) - offset[of]
    changed = np.zeros(len(of), dtype=np.bool_)
    after_baseline = (seen > first[which]) & (seen <= last)
    changed[(offset[which] + seen)[after_baseline]] = True
    return of, np.datetime64(start, "s") + at.astype("timedelta64[D]"), changed


def weekly_crawls(
    source: npt.ArrayLike, time: npt.ArrayLike, start: date, end: date, seed: int = 0
) -> tuple[IntArray, TimeArray, BoolArray, TimeArray]:
    """Return moments of change as the log of irregular weekly crawls.

    Each source is crawled at its own random times, with independent exponential gaps of a week on average, so
    that every hour of the week is looked at alike. Each crawl is told when the source last changed.

    Parameters
    ----------
    source : array_like of int, shape (m,)
        Which source changed, 0..n-1; every source occurs at least once.
    time : array_like of datetime64, shape (m,)
        When it changed, UTC. A source begins with its first row, which may be before `start`.
    start, end : date
        The crawls are between 00:00 UTC of these days.
    seed : int
        Of the gaps.

    Examples
    --------
    >>> changes = ["2019-12-20T08:30", "2020-01-10T17:45"]
    >>> window = date(2020, 1, 1), date(2020, 1, 22)
    >>> source, time, changed, told = weekly_crawls([0, 0], changes, *window, seed=1)
    >>> for row in zip(time.tolist(), changed.tolist(), told.tolist()):
    ...     print(f"{row[0]:%d %b %H:%M} {row[1]:d} {row[2]:%d %b %H:%M}")
    03 Jan 02:48 0 20 Dec 08:30
    07 Jan 01:11 0 20 Dec 08:30
    16 Jan 16:30 1 10 Jan 17:45
    16 Jan 23:26 0 10 Jan 17:45
    """
    which = np.asarray(source, dtype=np.int64)
    origin = np.datetime64(start, "s")
    moment = (np.asarray(time, dtype="datetime64[s]") - origin).astype(np.int64)
    order = np.lexsort((moment, which))
    which, moment = which[order], moment[order]
    first = moment[np.flatnonzero(np.diff(which, prepend=-1))]
    n, length = len(first), int((np.datetime64(end, "s") - origin).astype(np.int64))
    expected = length / WEEK
    # So many gaps of a week are shorter than the window with a probability below 1e-20 per source.
    draws = int(expected + 12.0 * np.sqrt(expected) + 40.0)
    of = np.repeat(np.arange(n), draws)
    gaps = WEEK * exponentials(seed, of, np.tile(np.arange(draws), n)).reshape(n, draws)
    at = np.cumsum(1 + np.floor(gaps).astype(np.int64), axis=1)
    inside = (at < length) & (at >= first[:, None])
    of, crawl = of.reshape(n, draws)[inside], at[inside]
    # Changes and crawls on one line, source after source.
    span = max(length, int(moment.max(initial=0))) + 1 - min(0, int(moment.min(initial=0)))
    last = np.searchsorted(which * span + moment, of * span + crawl, side="right") - 1
    changed = np.diff(last, prepend=-1) > 0
    changed[np.diff(of, prepend=-1) > 0] = False
    return of, origin + crawl, changed, origin + moment[last]
