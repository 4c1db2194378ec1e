"""Times as people write them, read as moments or numbers.

They write numbers, Unix time, the days of spreadsheets, ISO 8601 and the forms of `written_dates`. A `Clock`
counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, shown, warn
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.logs.written_dates import RowName, dates_of_numbers, impossible, parse_dates, undecided
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_vector, shape_of

Times: TypeAlias = npt.ArrayLike | date | Sequence[date]  # datetime is a date
# Times of which some are not told.
ToldTimes: TypeAlias = Times | Sequence[float | None] | Sequence[str | None] | Sequence[date | None]
Moments: TypeAlias = npt.NDArray[Any]  # float64 numbers in the time unit, or datetime64 in UTC

TICKS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # per second
_MODERN = (946_684_800, 4_102_444_800)  # 2000-01-01 and 2100-01-01, in seconds since 1970
YEARS = (1, 9999)  # of dates that Python, polars and ISO 8601 agree upon


class Epoch(NamedTuple):
    """How numbers count dates.

    - `zero`: The moment of 0, in seconds since 1970.
    - `exact`: Finer than that nothing is told.
    - `counted`: Time units in which such numbers can be a log's own times as well.
    """

    words: str
    per_second: float
    zero: float = 0.0
    exact: str = "us"
    counted: tuple[str, ...] = ()


# A number of days that lies between 2000 and 2100 for a spreadsheet, which begins on 1899-12-30, is a century
# or more after the zero of a log's clock: nobody counts so in days or weeks.
EPOCHS = (
    Epoch("in seconds since 1970", 1.0, counted=("second",)),
    Epoch("in milliseconds since 1970", 1e3),
    Epoch("in microseconds since 1970", 1e6),
    Epoch("in nanoseconds since 1970", 1e9),
    Epoch(
        "in days since 1899-12-30, as spreadsheets count",
        1.0 / 86_400.0,
        -25_569.0 * 86_400.0,
        "ms",
        ("second", "minute", "hour"),
    ),
)
_WANTED = "a number in the time unit, a date, or an ISO 8601 time such as 2026-01-31T06:00:00Z"


def read_moments(
    times: Times,
    what: str,
    row_name: Callable[[int], str],
    time_unit: str | None = None,
    *,
    dated: bool | None = None,
) -> Moments:
    """Return times as numbers or as UTC moments.

    Numbers are float64, moments datetime64 in seconds or finer. Numbers that are dates without separators,
    such as 20230307092216, are moments.

    - `times` (rows,) or (): Numbers, datetime64, dates, datetimes, or text. Datetimes with an offset are
      converted to UTC, those without are taken as UTC.
    - `what`: The name used in messages.
    - `row_name`: How the row at a position is called in messages.
    - `time_unit`: Of the clock that the column defines. Without it, numbers of less than twelve digits stay
      numbers.
    - `dated`: Whether the clock has dates, where that is known before: all numbers are dates then, or none.
    - warns if some datetimes have an offset and others have none, or numbers are Unix time.

    Examples
    --------
    >>> read_moments(["2026-01-01T01:00+01:00", "2026-01-02T00:00Z"], "time", str)
    array(['2026-01-01T00:00:00.000000', '2026-01-02T00:00:00.000000'],
          dtype='datetime64[us]')
    """
    shape_of(times, what)
    array = np.asarray(times)
    if array.dtype.kind == "M":
        if np.datetime_data(array.dtype)[0] in ("ps", "fs", "as"):
            array = array.astype("datetime64[ns]")
        return _to_ticks(_in_calendar(array, what, row_name))
    if array.dtype.kind in "iuf":
        if dated is False:
            return array.astype(np.float64, copy=False)
        flat = array.reshape(-1)
        found = dates_of_numbers(flat, what, row_name, time_unit, dated=bool(dated))
        return _dates_of_epochs(found, what, time_unit, dated).reshape(array.shape)
    if array.dtype.kind in "OUT":
        return _read_objects(array, what, row_name, time_unit, dated)
    raise SourceDataError(f"{what} holds {array.dtype}. A time is {_WANTED}.")


def read_told_moments(
    times: ToldTimes, what: str, row_name: Callable[[int], str], *, dated: bool | None = None
) -> Moments | None:
    """Return moments of which some are not told, None where none is.

    As `read_moments`; None, NaN, NaT and empty text become NaN or NaT.

    Examples
    --------
    >>> read_told_moments(["2026-01-02", None], "last_modified", str).astype("M8[D]")
    array(['2026-01-02',        'NaT'], dtype='datetime64[D]')
    """
    shape_of(times, what)
    array: npt.NDArray[Any] = np.asarray(times)
    if array.dtype.kind == "U" and not isinstance(times, np.ndarray):
        array = np.asarray(times, dtype=object)  # a list such as ["2026-01-02", nan] was made into text
    if array.dtype.kind in "fM":
        return None if np.isnan(array).all() else read_moments(array, what, row_name, dated=dated)
    if array.dtype.kind in "OUT":
        told = np.array([each is not None and each == each and each != "" for each in array.tolist()])
        row = np.flatnonzero(told)
        if len(row) == 0:
            return None
        values = array[row].tolist()
        found = read_moments(values, what, lambda k: row_name(int(row[k])), dated=dated)
        return scattered(found, row, len(array))
    return read_moments(array, what, row_name, dated=dated)


def scattered(found: Moments, row: IntArray, rows: int) -> Moments:
    """Return moments of some rows among others, which have none."""
    numbers = found.dtype.kind != "M"
    every = np.full(rows, np.nan if numbers else np.datetime64("NaT"), np.float64 if numbers else found.dtype)
    every[row] = found
    return every


def read_text(
    times: polars.Series,
    what: str,
    row_name: Callable[[int], str],
    time_unit: str | None = None,
    *,
    dated: bool | None = None,
) -> Moments:
    """Return a column of text as numbers or UTC moments.

    As `read_moments`; in a column of both, the first entry says which are wanted.
    """
    text = times.str.strip_chars()
    read = numbers = text.cast(polars.Float64, strict=False)
    if not numbers.has_nulls():
        if dated is False:
            return numbers.to_numpy()
        digits = None if text.str.contains("[eE]").any() else text
        found = dates_of_numbers(
            numbers.to_numpy(), what, row_name, time_unit, digits=digits, dated=bool(dated)
        )
        return _dates_of_epochs(found, what, time_unit, dated)
    moments, zoned = parse_dates(times)
    if moments.is_not_null()[0] or numbers.is_null()[0]:
        _warn_of_mixed_offsets(moments.is_not_null().to_numpy(), zoned.to_numpy(), times, what, row_name)
        read = moments
    failed = (read.is_null() & times.is_not_null()).arg_true()
    if len(failed):
        k = int(failed[0])
        if impossible(times[k]):
            raise SourceDataError(
                f"{what} is {shown(times[k])} in {row_name(k)}, and there is no such day. Correct it."
            )
        if undecided(times[k]):
            raise SourceDataError(
                f"{what} is {shown(times[k])} in {row_name(k)}, and the column does not tell, as a day "
                "beyond the 12th would, whether the day, the month or the year comes first. Write dates as "
                "2026-01-31."
            )
        raise SourceDataError(
            f"{what} is {shown(times[k])} in {row_name(k)}. A time is {_WANTED}, of one kind in all rows. "
            "Correct it."
        )
    array = read.to_numpy()
    return _in_calendar(array, what, row_name) if array.dtype.kind == "M" else array


def _dates_of_epochs(numbers: Moments, what: str, time_unit: str | None, dated: bool | None) -> Moments:
    """Return numbers that count dates as moments, with a warning.

    Such counts are those of `EPOCHS`; other numbers stay. A clock whose every reading lies between 2000 and
    2100 if taken so begins millions of years after its zero if taken for days, and nobody counts so. Seconds
    on a clock of seconds are a count, unless the log is known to be dated.
    """
    unknown = dated is False or (dated is None and time_unit is None)
    if numbers.size == 0 or numbers.dtype.kind == "M" or unknown:
        return numbers
    first, last = float(np.fmin.reduce(numbers, axis=None)), float(np.fmax.reduce(numbers, axis=None))
    for epoch in EPOCHS:
        begin, end = (epoch.zero + each / epoch.per_second for each in (first, last))
        if not (_MODERN[0] <= begin and end <= _MODERN[1]) or (time_unit in epoch.counted and not dated):
            continue
        if not dated:
            days = " to ".join(datetime.fromtimestamp(at, UTC).date().isoformat() for at in (begin, end))
            warn(f"{what} is {epoch.words} ({days}), and read as dates.")
        return moments_of(numbers, epoch)
    return numbers


def moments_of(numbers: Array, epoch: Epoch) -> npt.NDArray[np.datetime64]:
    """Return the moments that numbers count, NaT where they are not finite."""
    known = np.isfinite(numbers)
    moments = np.full(numbers.shape, np.datetime64("NaT", "us"))
    ticks = np.rint(numbers[known] * (TICKS[epoch.exact] / epoch.per_second))
    zero = np.datetime64(int(epoch.zero), "s")
    moments[known] = zero + ticks.astype(f"timedelta64[{epoch.exact}]")
    return moments


def _in_calendar(moments: Moments, what: str, row_name: Callable[[int], str]) -> Moments:
    """Return moments in years that dates can be written in."""
    if moments.size == 0 or moments.dtype == np.dtype("datetime64"):  # without a unit there are only NaT
        return moments
    for extreme, which in (
        (np.fmin.reduce(moments, axis=None), np.argmin),
        (np.fmax.reduce(moments, axis=None), np.argmax),
    ):
        if not (np.isnat(extreme) or YEARS[0] <= year_of(extreme) <= YEARS[1]):
            years = np.where(
                np.isnat(moments), YEARS[0], moments.astype("datetime64[Y]").astype(np.int64) + 1970
            )
            k = int(which(years))
            raise SourceDataError(
                f"{what} is in the year {years.reshape(-1)[k]} in {row_name(k)}. Years are from {YEARS[0]} "
                f"to {YEARS[1]}. Correct it; a number may have been stored in the wrong unit."
            )
    return moments


def year_of(moment: np.datetime64) -> int:
    """Return the year of a moment."""
    return int(moment.astype("datetime64[Y]").astype(np.int64)) + 1970


def _to_ticks(array: npt.NDArray[Any]) -> npt.NDArray[np.datetime64]:
    """Return moments in single seconds or finer units, without loss."""
    unit, step = np.datetime_data(array.dtype)
    if unit not in TICKS:
        return array.astype("datetime64[s]")
    return array if step == 1 else array.astype(f"datetime64[{unit}]")


def _read_objects(
    array: npt.NDArray[Any],
    what: str,
    row_name: Callable[[int], str],
    time_unit: str | None,
    dated: bool | None,
) -> Moments:
    """Read Python dates, datetimes, text, or numbers of no NumPy type."""
    values = array.reshape(-1).tolist()
    kinds = set(map(type, values))
    if kinds == {int} or kinds == {Decimal}:  # of more than 64 bits, or of a table of them
        values, kinds = [str(value) for value in values], {str}
    if kinds <= {int, float}:
        numbers = np.array(as_vector(array.reshape(-1), array.size, what)).reshape(array.shape)
        return read_moments(numbers, what, row_name, time_unit, dated=dated)
    wrong = next((k for k, value in enumerate(values) if not isinstance(value, date | str)), None)
    texts = sum(map(isinstance, values, [str] * len(values)))
    if wrong is None and 0 < texts < len(values):
        wrong = next(k for k, value in enumerate(values) if isinstance(value, str))
    if wrong is not None:
        raise SourceDataError(
            f"{what} is {shown(values[wrong])} in {row_name(wrong)}. A time is {_WANTED}, of one kind in all "
            "rows. Correct it."
        )
    if texts:
        column = polars.Series(values, dtype=polars.String)
        return read_text(column, what, row_name, time_unit, dated=dated).reshape(array.shape)
    # pandas' NaT is a datetime that differs from itself.
    known = np.array([value == value for value in values])
    zoned = np.array([isinstance(value, datetime) and value.tzinfo is not None for value in values])
    _warn_of_mixed_offsets(known, zoned & known, values, what, row_name)
    naive = [None if value != value else _in_utc(value) for value in values]
    return np.array(naive, dtype="datetime64[us]").reshape(array.shape)


def _in_utc(moment: date) -> date:
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return moment.astimezone(UTC).replace(tzinfo=None)
    return moment


def _warn_of_mixed_offsets(
    known: BoolArray, zoned: BoolArray, times: Sequence[object] | polars.Series, what: str, row_name: RowName
) -> None:
    """Warn if some known times have an offset and others not."""
    naive = np.flatnonzero(known & ~zoned)
    if len(naive) == 0 or not zoned.any():
        return
    k = int(naive[0])
    warn(
        f"{what} has an offset (or Z) in {count(int(np.count_nonzero(zoned)), 'row')} and none in "
        f"{len(naive):,}, such as {shown(str(times[k]))} in {row_name(k)}. Times without an offset are taken "
        "as UTC. Write an offset in every row."
    )
