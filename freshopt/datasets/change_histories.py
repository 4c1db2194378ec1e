"""Bundled real change histories.

As events and as the log of a crawl.

A history is stored as it is known, one row per source and day or minute in which the source changed. The
crawl log is made from it at run time. Where days are known, each source is crawled at 00:00 UTC of each
day, and is found changed if it changed since the previous look. Where minutes are known, each source is
crawled at random times, once a week on average, and each crawl is also told when the source last changed.

The table `EXAMPLES` is the list; the origin of a history is documented in the Markdown file beside its
data.

A few NumPy passes make half a million rows in some milliseconds. The moments of irregular crawls are keyed
random numbers, the same on every machine.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib import resources
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, suggestion
from freshopt.heavy import polars
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import BoolArray, IntArray
from freshopt.numerics.random_streams import exponentials

TimeArray: TypeAlias = npt.NDArray[np.datetime64]

WEEK = 7 * 86_400.0  # seconds


def daily_crawls(
    source: npt.ArrayLike, day: npt.ArrayLike, start: date, end: date
) -> tuple[IntArray, TimeArray, BoolArray]:
    """Return days of change as the log of daily crawls.

    They are at 00:00 UTC of every day.

    - `source` int (m,): Which source changed, 0..n-1; every source occurs at least once.
    - `day` array_like of datetime64[D] (m,): On which UTC day it changed. A day before `start` only says that
      the source existed then.
    - `start`, `end`: First and last day of crawling.

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

    - `source` int (m,): Which source changed, 0..n-1; every source occurs at least once.
    - `time` array_like of datetime64 (m,): When it changed, UTC. A source begins with its first row, which
      may be before `start`.
    - `start`, `end`: The crawls are between 00:00 UTC of these days.
    - `seed`: Of the gaps.

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


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One bundled history.

    Attributes
    ----------
    description : str
        One line.
    file : str
        The data, a CSV file in this package with the columns ``source`` and ``day`` or ``time`` (UTC). A row
        before `start` says that the source existed then; a source without one begins with its first row.
    start, end : date
        The window: from `start` up to, not including, `end`.
    minutes : bool
        Whether the minutes of changes are known, not only their days.
    """

    description: str
    file: str
    start: date
    end: date
    minutes: bool = False

    def events(self) -> polars.DataFrame:
        """Return the changes in the window as a table.

        Returns
        -------
        polars.DataFrame
            ``source`` and ``time`` (UTC). Where only the day of a change is known, the time is its noon,
            which is at most half a day off and not biased either way.
        """
        names, source, time = self._read()
        inside = time >= np.datetime64(self.start)
        moment = time[inside].astype("datetime64[us]")
        if not self.minutes:
            moment += np.timedelta64(12, "h")
        table = polars.DataFrame({"source": names[source[inside]].tolist(), "time": moment})
        return table.with_columns(polars.col("time").dt.replace_time_zone("UTC"))

    def load(self) -> CrawlLog:
        """Return the log of crawls of every source.

        They are daily at 00:00 UTC where days of change are known. Where minutes are known, they are about
        weekly at random times, and the log has `CrawlLog.last_modified`.
        """
        names, source, time = self._read()
        if not self.minutes:
            of, at, changed = daily_crawls(source, time, self.start, self.end)
            columns: dict[str, Any] = {"source": of, "time": at, "changed": changed}
            return CrawlLog.from_columns(columns, names=names, time_unit="day")
        of, at, changed, told = weekly_crawls(source, time, self.start, self.end)
        crawled, of = np.unique(of, return_inverse=True)
        columns = {"source": of, "time": at, "changed": changed, "last_modified": told}
        return CrawlLog.from_columns(columns, names=names[crawled], time_unit="day")

    def _read(self) -> tuple[npt.NDArray[Any], IntArray, TimeArray]:
        """Return the sorted names, and rows of name's position and time."""
        text = (resources.files("freshopt.datasets") / self.file).read_text(encoding="utf-8")
        rows = list(csv.reader(text.splitlines()))[1:]
        names, source = np.unique([name for name, _ in rows], return_inverse=True)
        unit = "datetime64[m]" if self.minutes else "datetime64[D]"
        return names, source.astype(np.int64), np.array([time.rstrip("Z") for _, time in rows], dtype=unit)


EXAMPLES: Mapping[str, Example] = MappingProxyType(
    {
        "debian-uploads": Example(
            description="upload days of 344 Debian source packages, July 2019 to January 2023",
            file="debian-uploads.csv",
            start=date(2019, 7, 6),
            end=date(2023, 2, 1),
        ),
        "gstreamer-plugins": Example(
            description="commits to 368 plugins of GStreamer by the minute, September 2016 to August 2020",
            file="gstreamer-plugins.csv",
            start=date(2016, 9, 5),
            end=date(2020, 8, 31),
            minutes=True,
        ),
    }
)


def load_example(name: str) -> CrawlLog:
    """Return the crawl log of a bundled example.

    Parameters
    ----------
    name : str
        A key of `EXAMPLES`.

    Raises
    ------
    SourceDataError
        If there is no such example.

    Examples
    --------
    >>> load_example("debian-uploads")
    CrawlLog(434205 crawls of 344 sources over 1306 days, 4303 found a change)
    >>> load_example("gstreamer-plugins")
    CrawlLog(71718 crawls of 368 sources over 1455.88 days, 3533 found a change, 3901 dated)
    """
    return _example(name).load()


def example_events(name: str) -> polars.DataFrame:
    """Return the changes of a bundled example.

    Parameters
    ----------
    name : str
        A key of `EXAMPLES`.

    Returns
    -------
    polars.DataFrame
        Columns ``source`` and ``time`` (UTC), the noon of the day of the change where only the day is known.

    Raises
    ------
    SourceDataError
        If there is no such example.

    Examples
    --------
    >>> example_events("debian-uploads").columns
    ['source', 'time']
    """
    return _example(name).events()


def _example(name: str) -> Example:
    """Return an example by name."""
    if name not in EXAMPLES:
        raise SourceDataError(
            f"there is no example {name!r}.{suggestion(name, EXAMPLES)} Use one of: {', '.join(EXAMPLES)}."
        )
    return EXAMPLES[name]
