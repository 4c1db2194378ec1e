"""What a command is given, read and checked: quantities, a crawl log, tables of sources and rates.

A CSV file is read as text and converted here, so that a source called 007 keeps its name and a cell that is
no number is named by its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from freshopt.arrays import Array
from freshopt.errors import SourceDataError, list_offenders
from freshopt.examples.histories import load_example
from freshopt.io.read_log import read_log
from freshopt.io.tables import read_table, table_ending
from freshopt.learning.crawl_log import CrawlLog
from freshopt.sources import Sources
from freshopt.units import SECONDS, parse_duration, parse_rate

if TYPE_CHECKING:
    import polars

_NUMBERS = ("change_rate", "importance", "min_rate", "max_rate", "cost", "rate")
_FLAGS = {"true": True, "false": False, "1": True, "0": False}


def rate_of(option: str, text: str, time_unit: str) -> float:
    """Return an option's rate per `time_unit`, with the option's name in the message if it is none."""
    try:
        return parse_rate(text, time_unit)
    except SourceDataError as error:
        raise SourceDataError(f"{option}: {error}") from None


def duration_of(option: str, text: str, time_unit: str) -> float:
    """Return an option's duration in `time_unit`, with the option's name in the message if it is none."""
    try:
        return parse_duration(text, time_unit)
    except SourceDataError as error:
        raise SourceDataError(f"{option}: {error}") from None


def moment_of(option: str, text: str | None) -> datetime | None:
    """Return an option's ISO 8601 moment, with an offset or without."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise SourceDataError(
            f"{option}: {text!r} is no moment. Write it such as 2026-01-31 or 2026-01-31T06:00:00Z (UTC)."
        ) from None


def log_of(path: Path | None, example: str | None, time_unit: str) -> CrawlLog:
    """Return the crawl log that the command was given, one way or the other, on the clock `time_unit`."""
    if (path is None) == (example is None):
        raise click.UsageError("Give either LOG or --example NAME, and not both.")
    if example is None:
        return read_log(path or "", time_unit)
    log = load_example(example)
    if log.time_unit == time_unit:
        return log
    columns = {"source": log.source_index, "time": moments(log), "changed": log.changed}
    return CrawlLog.from_columns(columns, names=log.sources_, time_unit=time_unit)


def moments(log: CrawlLog) -> Any:  # noqa: ANN401 - datetime64, or numbers
    """Return when the crawls took place: moments (UTC) if the log has dates, else its numbers."""
    if log.origin is None:
        return log.time
    origin = np.datetime64(log.origin.replace(tzinfo=None), "us")
    return origin + np.rint(log.time * (SECONDS[log.time_unit] * 1e6)).astype("timedelta64[us]")


def sources_of(path: Path, time_unit: str) -> Sources:
    """Return the sources in a table: source, change_rate, and whatever else it says of them."""
    frame = _table(path)
    try:
        return Sources.from_frame(frame, time_unit)
    except SourceDataError as error:
        raise SourceDataError(f"{path}: {error}") from None


def rates_of(path: Path) -> polars.DataFrame:
    """Return a table of rates: source, rate."""
    return _table(path)


def importance_of(path: Path | None) -> Callable[[Any], Array] | None:
    """Return how a log's sources are weighted: by a table with columns source and importance."""
    if path is None:
        return None
    frame = _table(path)
    for column in ("source", "importance"):
        if column not in frame.columns:
            raise SourceDataError(
                f"{path} has no column '{column}', it has {list_offenders(frame.columns)}. Rename or add it."
            )
        if frame[column].null_count():
            raise SourceDataError(f"column '{column}' of {path} has empty cells. Fill them or drop the rows.")
    keys = [str(name) for name in frame["source"].to_list()]
    weights = frame["importance"].to_list()
    wrong = [f"'{key}': {weight:g}" for key, weight in zip(keys, weights, strict=True) if not weight >= 0.0]
    if wrong:
        raise SourceDataError(
            f"importance in {path} is not a number >= 0 for {list_offenders(wrong)}. Correct these rows."
        )
    given = dict(zip(keys, weights, strict=True))
    if len(given) < len(keys):
        twice = frame["source"].filter(frame["source"].is_duplicated()).unique(maintain_order=True).to_list()
        offenders = list_offenders(f"'{name}'" for name in twice)
        raise SourceDataError(f"{path} names {offenders} more than once. Keep one row each.")
    return lambda names: _weights(given, names.tolist(), path)


def _weights(given: dict[str, float], names: Iterable[object], path: Path) -> Array:
    """Look up each name's importance."""
    keys = [str(name) for name in names]
    missing = [f"'{key}'" for key in keys if key not in given]
    if missing:
        raise SourceDataError(f"{path} has no importance for {list_offenders(missing)}. Add a row for each.")
    return np.array([given[key] for key in keys], dtype=np.float64)


def _table(path: Path) -> polars.DataFrame:
    """Read a table, its known columns as what they should be."""
    import polars

    frame = read_table(path, as_text=table_ending(path) != ".parquet")
    for name in frame.columns:
        column = frame[name]
        if name in _NUMBERS:
            frame = frame.with_columns(_numbers(column, path))
        elif name in ("source", "name") and column.dtype == polars.String:
            numbers = column.cast(polars.Int64, strict=False)
            # Only what prints the same is a number: 007 and +7 are names.
            if (numbers.cast(polars.String) == column).fill_null(False).all():
                frame = frame.with_columns(numbers)
        elif name == "signalled" and column.dtype == polars.String:
            text = column.str.strip_chars().str.to_lowercase()
            words = text.replace_strict(_FLAGS, default=None, return_dtype=polars.Boolean)
            _require(column, words, path, "Write true or false.")
            frame = frame.with_columns(words)
    return frame


def _numbers(column: polars.Series, path: Path) -> polars.Series:
    """Return a column as numbers, its empty cells as they are."""
    import polars

    if column.dtype == polars.String:
        numbers = column.str.strip_chars().cast(polars.Float64, strict=False)
        _require(column, numbers, path, "Write a number.")
        return numbers
    if not column.dtype.is_numeric():
        raise SourceDataError(f"column '{column.name}' of {path} holds {column.dtype}. Make it numbers.")
    return column.cast(polars.Float64)


def _require(column: polars.Series, read: polars.Series, path: Path, remedy: str) -> None:
    """Refuse cells that are there and could not be read."""
    rows = (read.is_null() & column.is_not_null()).arg_true().to_list()
    if rows:
        where = list_offenders(f"{column[row]!r} in row {row + 1}, line {row + 2}" for row in rows)
        raise SourceDataError(f"{column.name} in {path} is {where}. {remedy}")
