"""Dates of last change as strangers write them.

Servers send what they like as Last-Modified: dates of HTTP in three forms, Unix time, ``0`` and ``-1``, the
30th of February, years beyond all calendars. What can be read is read; what cannot is left out, counted and
told, since nobody who keeps a log can mend it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import shown, warn
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.logs.row_outcomes import ABSENT
from freshopt.logs.timestamps import (
    EPOCHS,
    YEARS,
    Moments,
    ToldTimes,
    moments_of,
    read_moments,
    scattered,
)
from freshopt.logs.written_dates import parse_dates
from freshopt.numerics.arrays import LARGEST, Array, BoolArray, shape_of

# Unix time in seconds from 1971 on, and in their thousandths, millionths and 10⁻⁹ from 2001 on, and the days
# of spreadsheets from 2000 on, to 2100: the size of a number tells which.
_BEGIN = (31_536_000.0, 1e12, 1e15, 1e18, 36_526.0)
_END = 4_102_444_800.0


def read_dates(times: ToldTimes, dated: bool, row_name: Callable[[int], str]) -> Moments | None:
    """Return dates of last change as numbers or UTC moments.

    None where nothing is told; NaN or NaT where a cell is empty or cannot be used.

    - `times` (rows,): As the times of crawls, or as servers send dates.
    - `dated`: Whether the log's times are dates; numbers are then Unix time.
    - `row_name`: How the row at a position is called in messages.
    - warns if cells cannot be used, with their number.

    Examples
    --------
    >>> found = read_dates(["Wednesday, 04-Oct-23 13:44:28 GMT", "-", "1696427068"], True, str)
    >>> found.astype("M8[s]").astype(str).tolist()
    ['2023-10-04T13:44:28', 'NaT', '2023-10-04T13:44:28']
    """
    shape_of(times, "last_modified")
    array: npt.NDArray[Any] = np.asarray(times)
    if array.dtype.kind == "U" and not isinstance(times, np.ndarray):
        array = np.asarray(times, dtype=object)  # a list such as ["2026-01-02", nan] was made into text
    if array.dtype.kind in "OUT":
        values = array.reshape(-1).tolist()
        told = [value is not None and value == value for value in values]
        if all(isinstance(value, str) for value, known in zip(values, told, strict=True) if known):
            text = [value if known else None for value, known in zip(values, told, strict=True)]
            return read_text_dates(polars.Series(text, dtype=polars.String), dated, row_name)
        row = np.flatnonzero(told)
        found = read_moments(
            [values[k] for k in row.tolist()], "last_modified", lambda k: row_name(int(row[k])), dated=False
        )
        array = scattered(found, row, len(values))
    elif array.dtype.kind == "M":
        year = array.astype("datetime64[Y]").astype(np.int64) + 1970
        beyond = ~np.isnat(array) & ((year < YEARS[0]) | (year > YEARS[1]))
        _warn_of_lost(beyond, lambda k: shown(array[k].item()), row_name)
        return _or_none(
            read_moments(np.where(beyond, np.datetime64("NaT"), array), "last_modified", row_name)
        )
    if array.dtype.kind == "M":
        return _or_none(array)
    if dated:
        return read_text_dates(_written(array), dated, row_name)
    array = read_moments(array, "last_modified", row_name, dated=False)
    used = np.where(np.abs(array) <= LARGEST, array, np.nan)
    _warn_of_lost(~np.isnan(array) & np.isnan(used), lambda k: f"{array[k]:.15g}", row_name)
    return _or_none(used)


def _written(numbers: npt.NDArray[Any]) -> polars.Series:
    """Return numbers as text, whole ones without a point, NaN as null."""
    column = polars.Series("number", numbers)
    if not column.dtype.is_float():
        return column.cast(polars.String)
    whole = polars.col("number").cast(polars.Int64, strict=False)
    text = polars.col("number").fill_nan(None).cast(polars.String)
    text = polars.when(whole == polars.col("number")).then(whole.cast(polars.String)).otherwise(text)
    return column.to_frame().select(text.alias("number"))["number"]


def read_text_dates(times: polars.Series, dated: bool, row_name: Callable[[int], str]) -> Moments | None:
    """Return what `read_dates` does of a column of text."""
    text = times.str.strip_chars()
    told = ~(text.is_null() | text.str.to_lowercase().is_in(ABSENT).fill_null(True))
    row = told.arg_true().to_numpy().astype(np.int64)
    known = text.filter(told)
    numbers = known.cast(polars.Float64, strict=False).fill_null(np.nan).to_numpy()
    moments = parse_dates(known)[0].to_numpy()
    if dated or (np.isnan(numbers).all() and not np.isnat(moments).all()):
        # Ten digits can be a date of another age; Unix time begins in 1970.
        counted = _from_epochs(numbers)
        early = np.isnat(moments) | (~np.isnat(counted) & (moments < np.datetime64("1970-01-01")))
        found = np.where(early, counted, moments)
    else:
        found = np.where(np.abs(numbers) <= LARGEST, numbers, np.nan)
    _warn_of_lost(_missing(found), lambda k: shown(known[k]), lambda k: row_name(int(row[k])))
    return _or_none(scattered(found, row, len(times)))


def _missing(moments: Moments) -> BoolArray:
    return np.isnat(moments) if moments.dtype.kind == "M" else np.isnan(moments)


def _or_none(moments: Moments) -> Moments | None:
    return None if _missing(moments).all() else moments


def _from_epochs(numbers: Array) -> npt.NDArray[np.datetime64]:
    """Return numbers that count dates as moments, else NaT."""
    found = np.full(len(numbers), np.datetime64("NaT", "us"))
    for begin, epoch in zip(_BEGIN, EPOCHS, strict=True):
        inside = (numbers >= begin) & (numbers < (_END - epoch.zero) * epoch.per_second)
        found[inside] = moments_of(numbers[inside], epoch)
    return found


def _warn_of_lost(lost: BoolArray, value: Callable[[int], str], row_name: Callable[[int], str]) -> None:
    """Warn of dates that cannot be used, if any."""
    rows = np.flatnonzero(lost)
    if len(rows):
        k = int(rows[0])
        warn(
            f"last_modified is no date in {count(len(rows), 'row')}, such as {value(k)} in {row_name(k)}. "
            "It is not used there."
        )
