"""`CrawlLog`: times and outcomes of the crawls of sources.

It holds which source was crawled when, and whether it had changed since its previous crawl.

Rows are kept source after source, each source's rows by time: an estimator then needs one pass and segment
sums. The row of a source's first crawl is a baseline, without information about changes, unless the log has
the time since when the source was watched.

Cost: a sorted log of 10⁷ rows takes some passes (0.2-0.5 s); rows in another order are sorted first (0.5 s).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import Heard, SourceDataError, by_weight, hearing, warn
from freshopt.formatting import count
from freshopt.frames import POLARS, framed
from freshopt.heavy import polars
from freshopt.logs.clock import Clock, check_clock
from freshopt.logs.file_kinds import is_frame
from freshopt.logs.last_modified import dated_rows
from freshopt.logs.log_columns import LogRows, position_name, rows_table
from freshopt.logs.row_outcomes import OtherFetches
from freshopt.logs.timestamps import Times, ToldTimes
from freshopt.logs.written_dates import RowName
from freshopt.numerics.arrays import Array, BoolArray, IntArray, read_only
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.renamed import Renamed, keywords
from freshopt.units import check_time_unit

# A log, or what one is read from: a file, or a dataframe of any library.
Log: TypeAlias = "CrawlLog | str | os.PathLike[str] | Any"
# Columns that a log may have.
OPTIONAL = ("changes", "last_modified")
_DAYS = Clock("day")


@keywords()
@frozen_value(init=False, repr=False)
class CrawlLog:
    """Crawl log sorted by source and time, validated and frozen.

    Parameters
    ----------
    source : array_like of str or int, shape (rows,)
        Names or integers, in any order.
    time : array_like, shape (rows,)
        When the crawl took place: numbers in `time_unit`, or datetime64, dates, datetimes, ISO 8601 text.
        Datetimes with an offset are converted to UTC, those without are taken as UTC. Dates without
        separators are dates as numbers too, such as 20230307 and 20230307092216; numbers that can be a date
        and a count of time as well are refused.
    changed : array_like of bool, shape (rows,)
        Whether the source had changed since its previous crawl; NaN or None where that is not known.
    changes : array_like of float, shape (rows,), optional
        How often it had changed, where that is known; NaN where it is not.
    start : scalar or array_like of shape (n,), optional
        Since when the sources were watched, one moment for all or one per source in the order of `names`,
        written as `time` is. With it, the crawl interval before a source's first crawl counts like any other.
        NaN (NaT) or the moment of the first crawl itself leave that crawl a baseline.
    last_modified : array_like, shape (rows,), optional
        When the source had last changed, as the crawl was told (Last-Modified, a sitemap, a feed), written as
        `time` is; NaN (NaT, None) where it was not told. `freshopt.logs.last_modified` has the rules by which
        dates are believed.
    time_unit : str
        The clock: "second", "minute", "hour", "day" or "week".

    Attributes
    ----------
    names : ndarray, shape (n,)
        Sorted unique names or integers.
    offsets : ndarray of int, shape (n+1,)
        Rows ``offsets[k]`` up to, not including, ``offsets[k+1]`` are those of source k.
    time : ndarray of float, shape (rows,)
        In `time_unit`; for a log with dates counted from `origin`. Increasing within a source.
    interval : ndarray of float, shape (rows,)
        Time since the previous crawl or since `start`, > 0; NaN in a baseline row, and where it is not known
        whether a crawl found a change.
    changed : ndarray of bool, shape (rows,)
        False in a baseline row.
    changes : ndarray of float, shape (rows,), or None
        NaN where unknown and in a baseline row.
    last_modified : ndarray of float, shape (rows,), or None
        The dates that can be used. In a row that found a change the moment of the last one, within its crawl
        interval; in a baseline that of the source's last change or of its birth; NaN elsewhere.
    time_unit : str
    origin : datetime or None
        The moment of time 0, midnight UTC of the first day, if the log has dates.
    timed : bool
        Whether the log has the times of its crawls. If not, `time` adds up a source's crawl intervals,
        and times of different sources cannot be compared: all sources then count as crawled just before the
        log's end.
    warnings : tuple of str
        What was warned of while it was read.
    library : str
        Of the dataframe that it was made of, "polars", "pandas" or "pyarrow", and so of tables made from it.
    other_fetches : OtherFetches or None
        Fetches that failed or tell nothing of a change: they cost bandwidth, but are no crawls. None where
        all rows of the log's file are crawls.

    Raises
    ------
    SourceDataError
        If a value cannot be used or contradicts another, some times alone are after the year 2100, or a
        (source, time) has two rows that are not alike; names the row, counted from 0, and the source.

    Warns
    -----
    SourceDataWarning
        If times can be used but look wrong: years before 1971 or after 2100, a gap of more than ten years
        that dwarfs all others, datetimes of which only some have an offset. If rows are repeated, `changed`
        is empty in some, or dates of last change cannot be used: after their crawl, later than a crawl of the
        same state, always "now", or no dates at all.

    Examples
    --------
    >>> log = CrawlLog(source=["b", "a", "a"], time=[0.0, 2.5, 1.0], changed=[0, 1, 0])
    >>> log
    CrawlLog(3 crawls of 2 sources over 2.5 days, 1 found a change)
    >>> log.names.tolist(), log.offsets.tolist(), log.interval.tolist()
    (['a', 'b'], [0, 2, 3], [nan, 1.5, nan])
    """

    names: npt.NDArray[Any]
    offsets: IntArray
    time: Array
    interval: Array
    changed: BoolArray
    changes: Array | None
    time_unit: str
    origin: datetime | None
    timed: bool
    last_modified: Array | None
    warnings: tuple[Heard, ...]
    library: str = field(init=False)
    other_fetches: OtherFetches | None = field(init=False)
    sources_ = Renamed("names")

    def __init__(
        self,
        source: npt.ArrayLike,
        time: Times,
        changed: npt.ArrayLike,
        changes: npt.ArrayLike | None = None,
        start: Times | None = None,
        time_unit: str = "day",
        last_modified: ToldTimes | None = None,
    ) -> None:
        columns: dict[str, Any] = {"source": source, "time": time, "changed": changed}
        if changes is not None:
            columns["changes"] = changes
        if last_modified is not None:
            columns["last_modified"] = last_modified
        _read(self, columns, None, start, time_unit, position_name)

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, Any],
        *,
        names: npt.NDArray[Any] | None = None,
        start: Times | None = None,
        time_unit: str = "day",
        row_name: RowName = position_name,
    ) -> CrawlLog:
        """Build from named columns, as a file has them.

        Parameters
        ----------
        columns : mapping of str to array_like
            ``source`` and ``changed``, with ``time`` or ``elapsed`` or both; ``changes`` and
            ``last_modified`` are optional, others ignored. ``elapsed`` is each row's crawl interval in time
            units, also the first, and takes the place of the differences of ``time``; NaN in the first row of
            a source makes it a baseline.
            Without ``time`` the rows of a source follow each other as they stand, the first crawl interval
            beginning at 0.
        names : ndarray, shape (n,), optional
            Sorted unique names, of which ``source`` then holds the positions; each must occur.
        start, time_unit
            As in the constructor. `start` and ``elapsed`` exclude each other.
        row_name : callable
            How the row at a position is called in messages, such as "row 17, line 18 of log.csv".

        Raises
        ------
        SourceDataError
            As in the constructor.

        Examples
        --------
        >>> columns = {"source": ["a", "a"], "elapsed": [2.0, 0.5], "changed": [1, 0]}
        >>> log = CrawlLog.from_columns(columns, time_unit="hour")
        >>> log.time.tolist(), log.interval.tolist()
        ([2.0, 2.5], [2.0, 0.5])
        """
        log = object.__new__(cls)
        _read(log, columns, names, start, time_unit, row_name)
        return log

    @classmethod
    def from_frame(
        cls,
        frame: Any,  # noqa: ANN401 - any dataframe library's frame
        *,
        start: Times | None = None,
        time_unit: str = "day",
        columns: Mapping[str, str] | None = None,
    ) -> CrawlLog:
        """Build from a dataframe with one row per crawl.

        Of polars (lazy or not), pandas or PyArrow.

        Parameters
        ----------
        frame : dataframe
            Columns as in `freshopt.read_log`, which reads files and dataframes alike.
        start, time_unit
            As in the constructor.
        columns : mapping of str to str, optional
            Names of the frame's columns to those of a log, such as ``{"url": "source"}``.

        Raises
        ------
        SourceDataError
            As in `freshopt.read_log`, or if `frame` is no dataframe.

        Examples
        --------
        >>> import polars as pl
        >>> frame = pl.DataFrame({"source": ["a", "a"], "time": [0.0, 2.0], "changed": [False, True]})
        >>> CrawlLog.from_frame(frame)
        CrawlLog(2 crawls of 1 source over 2 days, 1 found a change)
        """
        return _read_table(frame, time_unit, columns, start)

    @framed
    def to_frame(self) -> polars.DataFrame:
        """Return a dataframe with one row per crawl, which `from_frame` reads again.

        It has the columns source, time (dates where the log has them), changed (empty where that is not
        known), elapsed where intervals are not the differences of times, and changes and last_modified where
        they are known. It is of polars, or of the library of the dataframe that the log was made of.

        Examples
        --------
        >>> CrawlLog(source=["b", "b"], time=[0.0, 2.5], changed=[0, 1]).to_frame().rows()
        [('b', 0.0, False), ('b', 2.5, True)]
        """
        return rows_table(self)

    def __len__(self) -> int:
        """Return the number of rows, baselines included."""
        return len(self.time)

    @property
    def clock(self) -> Clock:
        """The scale of the times: `time_unit` and `origin`."""
        return Clock(self.time_unit, self.origin)

    def __repr__(self) -> str:
        span = self.end - float(np.min(self.time))
        n, found = len(self.names), np.count_nonzero(self.changed)
        told = 0 if self.last_modified is None else np.count_nonzero(~np.isnan(self.last_modified))
        dated = f", {told} dated" if told else ""
        return (
            f"CrawlLog({count(len(self), 'crawl', 'd')} of {count(n, 'source', 'd')} over "
            f"{count(span, self.time_unit, '.6g')}, {found} found a change{dated})"
        )

    @property
    def last_crawl(self) -> Array:
        """The time of each source's last crawl, shape (n,)."""
        return self.time[self.offsets[1:] - 1]

    @property
    def crawl_rate(self) -> Array:
        """Observed crawl rate of each source, shape (n,).

        The number of its known crawl intervals over their sum; NaN for a baseline only.

        For estimators that need the rate of the crawling process, if it is not known otherwise.
        """
        known = self.known_intervals
        sums = np.add.reduceat(np.nan_to_num(self.interval), self.offsets[:-1])
        rate: Array = np.divide(known, sums, out=np.full(len(sums), np.nan), where=known > 0)
        return rate

    @property
    def attempt_rate(self) -> Array | None:
        """How often each source is fetched, whatever came of it, shape (n,).

        The number of its fetches after the first, over the time from the first to the last; NaN of a source
        that was fetched once. None where all rows of the log's file are crawls.
        """
        if self.other_fetches is None:
            return None
        source, time, _ = self.other_fetches
        many = np.diff(self.offsets) + np.bincount(source, minlength=len(self.names))
        first, last = self.time[self.offsets[:-1]], self.last_crawl
        np.minimum.at(first, source, time)
        np.maximum.at(last, source, time)
        rate: Array = np.divide(many - 1.0, last - first, out=np.full(len(many), np.nan), where=last > first)
        return rate

    @property
    def known_intervals(self) -> IntArray:
        """Crawl intervals of each source with a known outcome, shape (n,)."""
        return np.add.reduceat(~np.isnan(self.interval), self.offsets[:-1], dtype=np.int64)

    @property
    def end(self) -> float:
        """The last time in the log."""
        return float(np.max(self.last_crawl))

    @property
    def age(self) -> Array:
        """Time since each source's last crawl, shape (n,).

        It is counted to the end of the log.
        """
        return self.end - self.last_crawl if self.timed else np.zeros(len(self.names))

    @property
    def source_index(self) -> IntArray:
        """The position in `names` of each row's source, shape (rows,)."""
        return np.repeat(np.arange(len(self.names)), np.diff(self.offsets))


def derived_log(
    columns: Mapping[str, Any],
    names: npt.NDArray[Any] | None = None,
    clock: Clock = _DAYS,
) -> CrawlLog:
    """Return a log of times that were read before.

    As `CrawlLog.from_columns`, but nobody is warned a second time. Numbers may be of a clock with dates. NaN
    in ``changed``, or in ``elapsed``, says that nothing is known of a row but when it was.
    """
    log = object.__new__(CrawlLog)
    rows = LogRows.read(columns, clock.unit, position_name, names, read_before=True)
    _fill(log, rows, None, derived=True)
    if clock.origin is not None:
        object.__setattr__(log, "origin", clock.origin)
    return log


def _read(
    log: CrawlLog,
    columns: Mapping[str, Any],
    names: npt.NDArray[Any] | None,
    start: Times | None,
    time_unit: str,
    row_name: RowName,
) -> None:
    """Set the fields of a log, and warn of what looks wrong."""
    with hearing() as heard:
        rows = _fill(log, LogRows.read(columns, check_time_unit(time_unit), row_name, names), start)
        if rows.unknown is not None:
            _warn_of_unknown(rows, rows.unknown, log.offsets[:-1], counted=start is not None)
        # Intervals without times are of any length that their owner measured.
        if log.timed:
            check_clock(log.time, log.interval, rows.label, log.clock)
        object.__setattr__(log, "warnings", by_weight(heard))


def _warn_of_unknown(rows: LogRows, unknown: BoolArray, first: IntArray, *, counted: bool) -> None:
    """Warn of crawls whose outcome is not known.

    Of a baseline nobody asks that; first crawls are `counted` where sources are watched since a known moment.
    """
    if unknown.all():
        raise SourceDataError("changed is empty in all rows. Write 1 where a source had changed, else 0.")
    asked = unknown.copy()
    asked[first] &= counted | (False if rows.elapsed is None else ~np.isnan(rows.elapsed[first]))
    row = np.flatnonzero(asked)
    if len(row):
        warn(
            f"it is not known whether the crawl found a change in {count(len(row), 'row')}, such as "
            f"{rows.label(int(row[0]))}. Nothing is learnt of the time before it."
        )


def _fill(log: CrawlLog, rows: LogRows, start: Times | None, *, derived: bool = False) -> LogRows:
    """Sort and return the rows; set the fields of the log."""
    if start is not None and rows.elapsed is not None:
        raise SourceDataError("both start and elapsed say when a first gap began. Pass one of them.")
    rows = rows.in_order()
    n = len(rows.names)
    offsets = np.searchsorted(rows.codes, np.arange(n + 1, dtype=rows.codes.dtype)).astype(np.int64)
    first = offsets[:-1]
    if rows.elapsed is None:
        interval = np.empty(len(rows.codes))
        np.subtract(rows.time[1:], rows.time[:-1], out=interval[1:])
        interval[first] = np.nan if start is None else rows.first_intervals(start, first)
    else:
        interval = rows.elapsed
        if not derived:
            rows.require_known(interval, first)
    if rows.unknown is not None:
        interval = np.where(rows.unknown, np.nan, interval)
    unknown = np.isnan(interval)
    changed = rows.changed.copy()  # the caller's, perhaps
    changed[unknown] = False
    changes = None if rows.changes is None else rows.changes.copy()
    if changes is not None:
        changes[unknown] = np.nan
        rows.require_agreement(changed, changes)
    dates = None
    if rows.last_modified is not None:
        interval, changed, dates = dated_rows(rows, rows.last_modified, first, interval, changed)
        dates = None if np.isnan(dates).all() else dates
    fields = {
        "names": read_only(rows.names),
        "offsets": read_only(offsets),
        "time": read_only(rows.time),
        "interval": read_only(interval),
        "changed": read_only(changed),
        "changes": None if changes is None else read_only(changes),
        "time_unit": rows.clock.unit,
        "origin": rows.clock.origin,
        "timed": rows.timed,
        "last_modified": None if dates is None else read_only(dates),
        "warnings": (),
        "library": POLARS,
        "other_fetches": None,
    }
    for key, value in fields.items():
        object.__setattr__(log, key, value)
    return rows


def as_log(log: Log) -> CrawlLog:
    """Return a log, read if it is a file or a dataframe."""
    if isinstance(log, str | os.PathLike) or is_frame(log):
        return _read_table(log)
    require_log(log)
    found: CrawlLog = log
    return found


def _read_table(
    given: Log,
    time_unit: str = "day",
    columns: Mapping[str, str] | None = None,
    start: Times | None = None,
) -> CrawlLog:
    """Return what `freshopt.read_log` reads, which knows logs."""
    read = import_module(f"{__package__}.read_crawls").read_log
    log: CrawlLog = read(given, time_unit, columns=columns, start=start)
    return log


def require_log(log: object) -> None:
    """Raise if `log` is not a `CrawlLog`."""
    if not isinstance(log, CrawlLog):
        raise SourceDataError(
            f"log is of type {type(log).__name__}. Pass a freshopt.CrawlLog; of a dataframe or a file "
            "freshopt.read_log makes one."
        )
