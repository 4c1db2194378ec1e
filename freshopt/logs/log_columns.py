"""`LogRows`: columns of a crawl log, read, checked and sorted.

Every refusal names the row as its owner knows it (a position in an array, a line of a file) and the source,
so that the cell to correct is found at once. A `CrawlLog` has passed all checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shown, warn
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.logs.clock import Clock, on_own_clock
from freshopt.logs.source_index import Codes, alike_rows, code_sources, sorted_rows
from freshopt.logs.timestamps import Times, read_moments
from freshopt.logs.told_dates import read_dates
from freshopt.logs.written_dates import RowName
from freshopt.numerics.arrays import (
    LARGEST,
    SMALLEST,
    Array,
    BoolArray,
    IntArray,
    as_vector,
    chunks,
    labels_of,
    shape_of,
)

if TYPE_CHECKING:
    from freshopt.logs.crawl_log import CrawlLog

# Largest count: float64 does not represent all integers above.
MOST = 2.0**53


def position_name(k: int) -> str:
    """Return a row's name in messages: its position from 0."""
    return f"row {k}"


@dataclass(frozen=True, slots=True, eq=False)
class LogRows:
    """Checked rows of a log, as columns of equal length.

    - `names` (n,): Sorted labels of the sources.
    - `codes` ndarray of int32 (rows,): Position of each row's source in `names`.
    - `time` (rows,)
    - `changed` (rows,)
    - `unknown` (rows,): Rows of which it is not known whether they found a change; None where all are.
    - `changes`, `elapsed`, `last_modified` (rows,)
    - `row_name`: How the row at a position of the original columns is called.
    - `timed`: Whether the log tells the times; if not they are added up from `elapsed`.
    - `order` (rows,): Original position of each row; None while the rows are in their original order.
    """

    names: npt.NDArray[Any]
    codes: Codes
    time: Array
    changed: BoolArray
    changes: Array | None
    elapsed: Array | None
    clock: Clock
    row_name: RowName
    timed: bool = True
    order: IntArray | None = None
    last_modified: Array | None = None
    unknown: BoolArray | None = None

    @classmethod
    def read(
        cls,
        columns: Mapping[str, Any],
        time_unit: str,
        row_name: RowName,
        names: npt.NDArray[Any] | None = None,
        *,
        read_before: bool = False,
    ) -> LogRows:
        """Read and check the columns of a log.

        If `names` are given, ``source`` holds positions in them, sorted. Times that were `read_before` are
        moments, or numbers that count time.
        """
        missing = [key for key in ("source", "changed") if key not in columns]
        if "time" not in columns and "elapsed" not in columns:
            missing.append("time")
        if missing:
            raise SourceDataError(f"the log has no column {list_offenders(missing)}. Add it.")
        _require_same_length(columns)
        codes: Codes
        if names is None:
            names, positions = code_sources(columns["source"])
            codes = positions.astype(np.int32)
        else:
            codes = np.asarray(columns["source"], dtype=np.int32)
        n = len(codes)
        if n == 0:
            raise SourceDataError("the log has no rows. Pass at least one crawl.")
        elapsed = as_vector(columns["elapsed"], n, "elapsed") if "elapsed" in columns else None
        clock = Clock(time_unit)
        if "time" in columns:
            time, clock = on_own_clock(
                columns["time"], "time", row_name, time_unit, numbers_count=read_before
            )
        else:
            time = _add_up(codes, columns["elapsed"])
        rows = cls(
            names=names,
            codes=codes,
            time=time,
            changed=np.empty(0, dtype=np.bool_),
            changes=as_vector(columns["changes"], n, "changes") if "changes" in columns else None,
            elapsed=elapsed,
            clock=clock,
            row_name=row_name,
            timed="time" in columns,
            last_modified=_dates(columns, clock, row_name),
        )
        rows._require_numbers()
        changed, unknown = rows._flags(columns["changed"])
        return replace(rows, changed=changed, unknown=unknown)

    def label(self, k: int) -> str:
        """Return the name of row k and its source for messages."""
        return f"{self.row_name(self._was(k))} (source {self.names.item(self.codes[k])!r})"

    def in_order(self) -> LogRows:
        """Return rows sorted, each once; raise where two contradict."""
        if all(np.all(own[1:] >= own[:-1]) for own, _ in self._stretches()) and not any(self._repeated()):
            return self
        rows = self._of(sorted_rows(self.codes, self.time, len(self.names))[0])
        if not self.timed or not sum(rows._repeated()):
            return rows
        late = np.zeros(len(rows.codes), dtype=np.bool_)
        late[1:] = ~(np.diff(rows.time) >= SMALLEST) & (rows.codes[1:] == rows.codes[:-1])
        told = (rows.time, rows.changed, rows.unknown, rows.changes, rows.elapsed, rows.last_modified)
        again = alike_rows(np.flatnonzero(late), (column for column in told if column is not None))
        late[again] = False
        if late.any():
            pairs = ((k, rows.row_name(rows._was(k - 1))) for k in np.flatnonzero(late).tolist())
            texts = (f"{rows.label(k)} repeats the time of {earlier}" for k, earlier in pairs)
            where = list_offenders(texts, int(np.count_nonzero(late)))
            raise SourceDataError(f"{where}. A source has one row per crawl. Drop the repeated rows.")
        warn(f"{count(len(again), 'row')} repeated and left out, such as {rows.label(int(again[0]))}.")
        return rows._of(np.delete(np.arange(len(rows.codes)), again))

    def _of(self, order: IntArray) -> LogRows:
        """Return some rows, in an order."""
        columns: dict[str, Any] = {
            key: None if getattr(self, key) is None else getattr(self, key)[order]
            for key in ("codes", "time", "changed", "unknown", "changes", "elapsed", "last_modified")
        }
        return replace(self, order=order if self.order is None else self.order[order], **columns)

    def _stretches(self) -> Iterator[tuple[Codes, Array]]:
        """Yield sources and times of stretches of rows.

        Each begins with the row before it. What is looked for in them takes no memory of the size of the log.
        """
        for part in chunks(len(self.codes)):
            rows = slice(max(part.start - 1, 0), part.stop)
            yield self.codes[rows], self.time[rows]

    def _repeated(self) -> Iterator[int]:
        """Yield how many rows of each stretch repeat a time.

        They are not later than their source's row before.
        """
        for own, time in self._stretches():
            yield int(np.count_nonzero(~(time[1:] - time[:-1] >= SMALLEST) & (own[1:] == own[:-1])))

    def first_intervals(self, start: Times, first: IntArray) -> Array:
        """Return crawl intervals from `start` to first crawls, NaN for baselines."""
        moments = read_moments(start, "start", lambda k: f"its entry {k}", dated=self.clock.dated)
        begin = as_vector(self.clock.offsets(moments, "start"), len(first), "start")
        intervals: Array = self.time[first] - begin
        wrong = np.flatnonzero((intervals < 0) | np.isinf(begin) | (np.abs(begin) > LARGEST))
        if len(wrong):
            texts = (
                f"source {self.names.item(k)!r}: {begin[k]:.15g} > {self.time[first[k]]:.15g}" for k in wrong
            )
            raise SourceDataError(
                f"start is not a finite time before the first crawl of {list_offenders(texts, len(wrong))}. "
                "Pass an earlier start, or NaN for a source whose first crawl is its baseline."
            )
        return np.where(intervals >= SMALLEST, intervals, np.nan)

    def require_known(self, elapsed: Array, first: IntArray) -> None:
        """Raise if `elapsed` misses behind a source's first row."""
        unknown = np.isnan(elapsed)
        unknown[first] = False
        if unknown.any():
            self._refuse("elapsed is missing in", unknown, None, "Fill it in, or leave the column out.")

    def require_agreement(self, changed: BoolArray, changes: Array) -> None:
        """Raise if a known count of changes contradicts `changed`."""
        wrong = np.where(changed, changes == 0, changes > 0)
        if wrong.any():
            remedy = "Where changes > 0 write changed = 1, where changes = 0 write 0."
            self._refuse("changes contradicts changed in", wrong, changes, remedy)

    def without_contradictions(self, dates: Array, later: BoolArray) -> Array:
        """Return the dates without those that contradict a crawl, and warn.

        `later` says which rows found no change and are dated after the one that they show.
        """
        for what, wrong in (
            ("after the crawl", dates > self.time),
            ("later than a crawl of the source that found the same state", later & ~(dates > self.time)),
        ):
            row = np.flatnonzero(wrong)
            if len(row):
                k = int(row[0] if self.order is None else row[np.argmin(self.order[row])])
                warn(
                    f"last_modified is {what} in {count(len(row), 'row')}, such as {self.label(k)}: "
                    f"{self._moment(float(dates[k]))}. It is not used there."
                )
        return np.where(later | (dates > self.time), np.nan, dates)

    def _require_numbers(self) -> None:
        """Raise if times, counts or crawl intervals are invalid numbers."""
        if self.changes is not None:
            finite = np.where(np.isinf(self.changes), -1.0, self.changes)
            wrong = (finite < 0) | (finite > MOST) | (np.isfinite(finite) & (finite != np.floor(finite)))
            if wrong.any():
                remedy = "It counts changes: 0, 1, 2, ..., 9e15, or empty where unknown. Correct these rows."
                self._refuse("changes is not a count in", wrong, self.changes, remedy)
        if self.elapsed is not None:
            wrong = ~((self.elapsed >= SMALLEST) & (self.elapsed <= LARGEST)) & ~np.isnan(self.elapsed)
            if wrong.any():
                remedy = (
                    "It is the time since the previous crawl, > 0 and finite. Correct or drop these rows."
                )
                self._refuse("elapsed is out of range in", wrong, self.elapsed, remedy)
        # The extremes are NaN where an entry is.
        if not (np.min(self.time) >= -LARGEST and np.max(self.time) <= LARGEST):
            wrong = ~(np.abs(self.time) <= LARGEST)
            self._refuse("time is not a finite number in", wrong, self.time, "Correct or drop these rows.")

    def _flags(self, changed: npt.ArrayLike) -> tuple[BoolArray, BoolArray | None]:
        """Return `changed` as booleans, and where it is not known."""
        flags = np.asarray(changed)
        if flags.dtype.kind == "b":
            return flags, None
        if flags.dtype.kind in "US" and flags.size:
            raise SourceDataError(
                f"changed must be booleans or numbers, got text such as {shown(str(flags.flat[0]))}. "
                "Pass True and False, or 1 and 0."
            )
        numbers = as_vector(flags, len(self.codes), "changed")
        unknown = np.isnan(numbers)
        wrong = ~((numbers == 0) | (numbers == 1) | unknown)
        if wrong.any():
            remedy = "Write 1 where the source had changed since its previous crawl, else 0."
            self._refuse("changed is neither 0 nor 1 in", wrong, numbers, remedy)
        return np.equal(numbers, 1.0), unknown if unknown.any() else None

    def _was(self, k: int) -> int:
        return int(k if self.order is None else self.order[k])

    def _moment(self, time: float) -> str:
        """Return a time, as a date where the log has dates."""
        date = self.clock.date(time)
        return (
            f"{time:.15g}" if date is None else f"{date.replace(tzinfo=None).isoformat(timespec='seconds')}Z"
        )

    def _refuse(self, what: str, wrong: BoolArray, values: Array | None, remedy: str) -> NoReturn:
        """Raise with the first wrong rows of the original order."""
        rows = np.flatnonzero(wrong)
        rows = rows if self.order is None else rows[np.argsort(self.order[rows])]
        texts = (
            self.label(k) + ("" if values is None else f": {float(values[k]):.15g}") for k in rows.tolist()
        )
        raise SourceDataError(f"{what} {list_offenders(texts, len(rows))}. {remedy}")


def _require_same_length(columns: Mapping[str, Any]) -> None:
    """Raise if columns have different lengths."""
    named = ("source", "time", "elapsed", "changed", "changes", "last_modified")
    used = [key for key in named if key in columns]
    shapes = {key: shape_of(columns[key], key) for key in used}
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        found = ", ".join(f"{key} {shape}" for key, shape in shapes.items())
        raise SourceDataError(f"the columns of the log have shapes {found}. Give each one entry per row.")


def _dates(columns: Mapping[str, Any], clock: Clock, row_name: RowName) -> Array | None:
    """Return the column last_modified on the log's clock, or None."""
    if "last_modified" not in columns:
        return None
    if "time" not in columns:
        raise SourceDataError("last_modified needs the times of the crawls. Add the column time.")
    moments = read_dates(columns["last_modified"], clock.dated, row_name)
    if moments is None:
        return None
    return clock.offsets(moments, "last_modified")


def _add_up(codes: Codes, elapsed: npt.ArrayLike) -> Array:
    """Return each source's cumulative time from 0, in row order."""
    intervals = np.nan_to_num(np.asarray(elapsed, dtype=np.float64), posinf=np.inf)
    order = np.argsort(codes, kind="stable")
    first = np.flatnonzero(np.diff(codes[order], prepend=-1))
    # Extended precision: the sum runs over all sources, and what came before a source is taken off again.
    total = np.cumsum(intervals[order], dtype=np.longdouble)
    before = np.concatenate([[0.0], total[:-1]])[first]
    time = np.empty(len(order))
    time[order] = total - np.repeat(before, np.diff(np.append(first, len(order))))
    return time


def rows_table(log: CrawlLog) -> polars.DataFrame:
    """Return a log's rows as a table that reads back alike."""
    since = np.diff(log.time, prepend=np.nan)
    since[log.offsets[:-1]] = np.nan
    told = np.isnan(since) | ~np.isnan(log.interval)
    same = log.timed and np.array_equal(np.where(told, since, np.nan), log.interval, equal_nan=True)
    moments = log.clock.moments
    dates = None if log.last_modified is None else polars.Series(moments(log.last_modified))
    found = {
        "source": polars.Series(labels_of(log.names, log.source_index).tolist()),
        "time": moments(log.time) if log.timed else None,
        "changed": polars.select(polars.when(polars.lit(told)).then(polars.lit(log.changed))).to_series(),
        "elapsed": None if same else polars.Series(log.interval).fill_nan(None),
        "changes": None if log.changes is None else polars.Series(log.changes).fill_nan(None),
        "last_modified": dates,
    }
    table = polars.DataFrame({name: column for name, column in found.items() if column is not None})
    # Nothing but its time is known of a row without an interval, which a column of intervals cannot say.
    return table if same else table.filter(polars.lit(told))
