"""`ChangeHistory`: time of every change of every source.

The time of every change of every source, where all of them are known.

Version control, package archives and change feeds tell what a crawler has to guess. What somebody found who
looked now and then is no such history: two changes between two looks are one, and the rates of fast sources
come out at that of the looks. With the looks it is a `CrawlLog`. What a history says
about rates is one number per source, how often it changed while it was watched: of the log that `to_log`
makes of it, estimators that read counts learn exactly that, however many crawls there are.

Cost: one sort of the changes by source and time.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import Heard, SourceDataError, by_weight, hearing, list_offenders
from freshopt.formatting import count
from freshopt.logs.clock import Clock, check_clock
from freshopt.logs.crawl_log import CrawlLog, derived_log
from freshopt.logs.file_kinds import Frame
from freshopt.logs.log_columns import position_name
from freshopt.logs.log_files import log_frame
from freshopt.logs.schema import HISTORY, require_columns
from freshopt.logs.source_index import code_sources
from freshopt.logs.timestamps import Times, read_moments
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, IntArray, as_vector, labels_of, read_only
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.renamed import Renamed, keywords
from freshopt.units import check_time_unit

# Share of a crawl interval: a remainder at the beginning below it is rounding and gets no crawl of its own.
SHORTEST = 1e-6


@keywords(sources="names")
@frozen_value(init=False, repr=False)
class ChangeHistory:
    """Complete change history of n sources, within watched times.

    Parameters
    ----------
    source : array_like of str or int, shape (m,)
        Which source changed: names or integers, in any order.
    time : array_like, shape (m,)
        When it changed: numbers in `time_unit`, or dates and times as `CrawlLog` reads them. Changes of one
        source at one time count apart.
    start, end : scalar or array_like of shape (n,), optional
        Since when and until when a source was watched, one moment for all or one per source in the order of
        `names`, written as `time` is. By default the first and the last change of all sources.
    names : array_like of str or int, optional
        All sources, where some of them never changed.
    time_unit : str
        The clock: "second", "minute", "hour", "day" or "week".

    Attributes
    ----------
    names : ndarray, shape (n,)
        Sorted unique names or integers.
    offsets : ndarray of int, shape (n+1,)
        Changes ``offsets[k]`` up to, not including, ``offsets[k+1]`` are those of source k.
    time : ndarray of float, shape (m,)
        In `time_unit`; for a history with dates counted from `origin`. Non-decreasing within a source.
    start, end : ndarray of float, shape (n,)
        The time in which each source was watched.
    time_unit : str
    origin : datetime or None
        The moment of time 0, midnight UTC of the day of the first change, if the history has dates.
    warnings : tuple of str
        What was warned of while it was read.

    Raises
    ------
    SourceDataError
        If a value cannot be used, or a change lies outside the time in which its source was watched; names
        the row, counted from 0, and the source.

    Warns
    -----
    SourceDataWarning
        As in `CrawlLog`.

    Examples
    --------
    >>> history = ChangeHistory(["b", "a", "b"], [3.0, 1.0, 2.0], start=0, end=10, names=["a", "b", "c"])
    >>> history
    ChangeHistory(3 changes of 3 sources over 10 days)
    >>> history.changes.tolist(), history.time.tolist()
    ([1, 2, 0], [1.0, 2.0, 3.0])
    """

    names: npt.NDArray[Any]
    offsets: IntArray
    time: Array
    start: Array
    end: Array
    time_unit: str
    origin: datetime | None
    warnings: tuple[Heard, ...]
    sources_ = Renamed("names")

    def __init__(
        self,
        source: npt.ArrayLike,
        time: Times,
        start: Times | None = None,
        end: Times | None = None,
        *,
        names: npt.ArrayLike | None = None,
        time_unit: str = "day",
    ) -> None:
        check_time_unit(time_unit)
        changed, codes = code_sources(source)
        moments = read_moments(time, "time", position_name, time_unit)
        if moments.shape != codes.shape:
            raise SourceDataError(
                f"source has {len(codes)} entries but time has shape {moments.shape}. Give one of each per "
                "change."
            )
        every, codes = (changed, codes) if names is None else _among(changed, codes, names)
        if len(every) == 0 or (len(codes) == 0 and (start is None or end is None)):
            raise SourceDataError(
                "the history has no changes. Pass at least one, or names with start and end."
            )
        known = moments
        if len(moments) == 0 and start is not None:
            known = read_moments(start, "start", position_name, time_unit)
        moments = moments.astype(known.dtype)  # of no changes at all, the kind is that of start
        clock = Clock.of(known, time_unit)
        at = clock.offsets(moments, "time")
        wrong = np.flatnonzero(~(np.abs(at) <= LARGEST))
        if len(wrong):
            rows = (f"row {k} (source {every.item(codes[k])!r})" for k in wrong.tolist())
            raise SourceDataError(
                f"time is not a finite number in {list_offenders(rows)}. Correct or drop these rows."
            )
        n = len(every)
        edges = [
            np.full(n, fallback(at)) if edge is None else _edge(edge, n, clock, what)
            for edge, what, fallback in ((start, "start", np.min), (end, "end", np.max))
        ]
        _require_watched(every, codes, at, *edges)
        order = np.lexsort((at, codes))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=n))]).astype(np.int64)
        fields = {
            "names": read_only(every),
            "offsets": read_only(offsets),
            "time": read_only(at[order]),
            "start": read_only(edges[0]),
            "end": read_only(edges[1]),
            "time_unit": time_unit,
            "origin": clock.origin,
            "warnings": (),
        }
        for key, value in fields.items():
            object.__setattr__(self, key, value)
        if len(order):
            since = np.diff(self.time, prepend=np.nan)
            since[offsets[:-1][offsets[:-1] < len(order)]] = np.nan
            label = partial(_row, order, every, codes)
            with hearing() as heard:
                check_clock(self.time, since, label, clock)
                object.__setattr__(self, "warnings", by_weight(heard))

    @classmethod
    @keywords(sources="names")
    def from_frame(
        cls,
        frame: Any,  # noqa: ANN401 - any dataframe library's frame
        start: Times | None = None,
        end: Times | None = None,
        *,
        names: npt.ArrayLike | None = None,
        time_unit: str = "day",
    ) -> ChangeHistory:
        """Build from a dataframe with one row per change.

        Any of polars, pandas, pyarrow and others.

        Parameters
        ----------
        frame : dataframe
            Columns ``source`` and ``time``; others are ignored. Zoned times are converted to UTC.
        start, end, names, time_unit
            As in the constructor.

        Raises
        ------
        SourceDataError
            As in the constructor, or if `frame` is no dataframe or lacks a column.

        Examples
        --------
        >>> from freshopt.datasets.change_histories import example_events
        >>> ChangeHistory.from_frame(example_events("debian-uploads"))
        ChangeHistory(4328 changes of 330 sources over 1305 days)
        """
        table, cells = log_frame(Frame.of(frame, "the history"), HISTORY.needed, access=False)
        require_columns(cells.present, HISTORY, cells.path)
        (known, codes), times = cells.sources(table["source"]), cells.times(table["time"], time_unit)
        return cls(labels_of(known, codes), times, start, end, names=names, time_unit=time_unit)

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self.time)

    def __repr__(self) -> str:
        span = float(np.max(self.end) - np.min(self.start))
        n = len(self.names)
        return (
            f"ChangeHistory({count(len(self), 'change', 'd')} of {count(n, 'source', 'd')} over "
            f"{count(span, self.time_unit, '.6g')})"
        )

    @property
    def clock(self) -> Clock:
        """The scale of the times: `time_unit` and `origin`."""
        return Clock(self.time_unit, self.origin)

    @property
    def changes(self) -> IntArray:
        """The number of changes of each source, shape (n,)."""
        return np.diff(self.offsets)

    @property
    def source_index(self) -> IntArray:
        """The position in `names` of each change's source, shape (m,)."""
        return np.repeat(np.arange(len(self.names)), self.changes)

    def to_log(self, every: float | None = None) -> CrawlLog:
        """Return the log of regular crawls that count changes.

        Each counts all changes since the one before; the last one is at the end.

        Parameters
        ----------
        every : float, optional
            Length of the crawl intervals, in time units; the first of a source is what is left. None for a
            single crawl of each source, which is all that `FullObservation` and `MaximumLikelihood` need,
            which read counts. Estimators from binary outcomes, and half-lives, need more.

        Returns
        -------
        CrawlLog
            With ``changes``; the baseline of each source is at its `start`, and all that there is of one that
            was watched for no time.

        Raises
        ------
        SourceDataError
            If `every` is not a positive number.

        Examples
        --------
        >>> from freshopt.estimators import FullObservation
        >>> history = ChangeHistory(["a"] * 4, [0.5, 1.0, 1.1, 7.0], start=0.0, end=8.0)
        >>> for every in (None, 3.0):
        ...     log = history.to_log(every)
        ...     print(log.time, log.changes, FullObservation(smoothing=0).fit(log).change_rate_)
        [0. 8.] [nan  4.] [0.5]
        [0. 2. 5. 8.] [nan  3.  0.  1.] [0.5]
        """
        if every is not None and not SMALLEST <= every <= LARGEST:
            raise SourceDataError(
                f"every is {every}. Pass the length of a gap > 0, or None for a single crawl."
            )
        span = self.end - self.start
        intervals = (span >= SMALLEST).astype(np.int64)
        if every is not None:
            intervals *= np.maximum(1, np.ceil(span / every - SHORTEST)).astype(np.int64)
        rows = intervals + 1
        first = np.cumsum(rows) - rows
        source = np.repeat(np.arange(len(rows)), rows)
        rank = np.arange(len(source)) - first[source]
        time = self.end[source] - (intervals[source] - rank) * (every or 0.0)
        time[first] = self.start
        of, ends = self.source_index, self.end[self.source_index]
        back = np.zeros(len(of)) if every is None else np.floor((ends - self.time) / every)
        at = np.maximum(intervals[of] - back.astype(np.int64), np.minimum(intervals[of], 1))
        count = np.bincount(first[of] + at, minlength=len(source)).astype(np.float64)
        columns: dict[str, Any] = {"source": source, "time": time, "changed": count > 0, "changes": count}
        # As moments, so that the log has the dates; microseconds are finer than any clock of changes.
        columns["time"] = self.clock.moments(time)
        log = derived_log(columns, self.names, Clock(self.time_unit))
        object.__setattr__(log, "warnings", self.warnings)
        return log


def _row(order: IntArray, names: npt.NDArray[Any], codes: IntArray, k: int) -> str:
    """Return the original position and source of a sorted row."""
    return f"row {order[k]} (source {names.item(codes[order[k]])!r})"


def _among(
    changed: npt.NDArray[Any], codes: IntArray, names: npt.ArrayLike
) -> tuple[npt.NDArray[Any], IntArray]:
    """Return all sources and the source codes of the changes."""
    every, _ = code_sources(names)
    if len(changed) == 0:
        return every, codes
    unknown = changed[~np.isin(changed, every)]
    if len(unknown):
        raise SourceDataError(
            f"source {list_offenders(map(repr, unknown.tolist()))} changed but is not among names. Add it, "
            "or drop its rows."
        )
    return every, np.searchsorted(every, changed).astype(np.int64)[codes]


def _edge(edge: Times, n: int, clock: Clock, what: str) -> Array:
    """Return one end of the watched times as numbers."""
    moments = read_moments(edge, what, lambda k: f"its entry {k}", dated=clock.dated)
    offsets = as_vector(clock.offsets(moments, what), n, what)
    wrong = np.flatnonzero(~(np.abs(offsets) <= LARGEST))
    if len(wrong):
        raise SourceDataError(f"{what} is not a finite time in its entry {wrong[0]}. Correct it.")
    return np.array(offsets)


def _require_watched(names: npt.NDArray[Any], codes: IntArray, at: Array, start: Array, end: Array) -> None:
    """Raise if watched times, or changes in them, are inconsistent."""
    reversed_ = np.flatnonzero(end < start)
    if len(reversed_):
        k = int(reversed_[0])
        raise SourceDataError(
            f"source {names.item(k)!r} has start {start[k]:.15g} after its end {end[k]:.15g}. Exchange them."
        )
    outside = np.flatnonzero((at < start[codes]) | (at > end[codes]))
    if len(outside):
        rows = (f"row {k} (source {names.item(codes[k])!r}): {at[k]:.15g}" for k in outside.tolist())
        raise SourceDataError(
            f"time is outside the time watched in {list_offenders(rows)}. Drop these changes, or move start "
            "and end."
        )
