"""Bundled real change histories.

As events and as the log of a crawl.

A history is stored as it is known, one row per source and day or minute in which the source changed. The
crawl log is made from it at run time. Where days are known, each source is crawled at 00:00 UTC of each
day, and is found changed if it changed since the previous look. Where minutes are known, each source is
crawled at random times, once a week on average, and each crawl is also told when the source last changed.

The table `EXAMPLES` is the list; the origin of a history is documented in the Markdown file beside its
data.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib import resources
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.datasets.crawl_rhythms import TimeArray, daily_crawls, weekly_crawls
from freshopt.errors import SourceDataError, suggestion
from freshopt.heavy import polars
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import IntArray


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
