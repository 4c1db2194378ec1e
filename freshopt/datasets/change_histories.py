"""Bundled real change histories.

As events and as the log of a daily crawl.

A history is stored as it is known, one row per source and day on which the source changed. The crawl log is
made from it at run time: a crawler that crawls each source at 00:00 UTC of each day finds it changed if it
changed since the previous look. A few NumPy passes make half a million rows in some milliseconds.

The table `EXAMPLES` is the list; the origin of a history is documented in the Markdown file beside its data.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import BoolArray, IntArray

if TYPE_CHECKING:
    import polars

TimeArray: TypeAlias = npt.NDArray[np.datetime64]


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One bundled history.

    Attributes
    ----------
    description : str
        One line.
    file : str
        The data, a CSV file in this package with the columns ``source`` and ``day``. A day before `start`
        says only that the source existed then; a source without one begins with its first day.
    start, end : date
        The window: days from `start` up to, not including, `end`.
    """

    description: str
    file: str
    start: date
    end: date

    def events(self) -> polars.DataFrame:
        """Return the changes in the window as a table.

        Returns
        -------
        polars.DataFrame
            ``source`` and ``time`` (UTC). Only the day of a change is known; the time is its noon, which is
            at most half a day off and not biased either way.
        """
        import polars

        names, source, day = self._read()
        inside = day >= np.datetime64(self.start)
        noon = day[inside].astype("datetime64[us]") + np.timedelta64(12, "h")
        table = polars.DataFrame({"source": names[source[inside]].tolist(), "time": noon})
        return table.with_columns(polars.col("time").dt.replace_time_zone("UTC"))

    def load(self) -> CrawlLog:
        """Return the log of daily crawls of every source.

        They are at 00:00 UTC.
        """
        names, source, day = self._read()
        of, time, changed = daily_crawls(source, day, self.start, self.end)
        columns = {"source": of, "time": time, "changed": changed}
        return CrawlLog.from_columns(columns, names=names, time_unit="day")

    def _read(self) -> tuple[npt.NDArray[Any], IntArray, TimeArray]:
        """Return the sorted names, and rows of name and day.

        Names are given by their position.
        """
        text = (resources.files("freshopt.datasets") / self.file).read_text(encoding="utf-8")
        rows = list(csv.reader(text.splitlines()))[1:]
        names, source = np.unique([name for name, _ in rows], return_inverse=True)
        return names, source.astype(np.int64), np.array([day for _, day in rows], dtype="datetime64[D]")


EXAMPLES: Mapping[str, Example] = MappingProxyType(
    {
        "debian-uploads": Example(
            description="upload days of 344 Debian source packages, July 2019 to January 2023",
            file="debian-uploads.csv",
            start=date(2019, 7, 6),
            end=date(2023, 2, 1),
        ),
    }
)


def load_example(name: str) -> CrawlLog:
    """Return the daily crawl log of a bundled example.

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
        Columns ``source`` and ``time``, the noon (UTC) of the day of the change.

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

    Returns
    -------
    source : ndarray of int, shape (rows,)
        Sorted; each source's crawls run from `start`, or the day after its first change if that is later,
        to `end`. The first crawl is the baseline.
    time : ndarray of datetime64[s], shape (rows,)
        Increasing within a source.
    changed : ndarray of bool, shape (rows,)
        Whether the source changed since its previous crawl, that is on the day before; False in the baseline.

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


def _example(name: str) -> Example:
    """Return an example by name."""
    if name not in EXAMPLES:
        raise SourceDataError(f"there is no example {name!r}. Use one of: {', '.join(EXAMPLES)}.")
    return EXAMPLES[name]
