"""Readers of a plan's tables: source columns and load.

Tables are one file each, Parquet or CSV, or folders of Parquet parts, as `freshopt.distributed` writes them.
They are read a part at a time, and only the columns that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.io.tables import column_names, read_table, table_ending
from freshopt.numerics.arrays import Array

if TYPE_CHECKING:
    import polars


class Part(NamedTuple):
    """Columns of one part of the sources.

    Attributes
    ----------
    change_rate, lower, upper, rate : ndarray, shape (m,)
    importance : ndarray, shape (m,), or None
        None where all weigh alike.
    names : list of str, or None
        Where they were asked for.
    """

    change_rate: Array
    lower: Array
    upper: Array
    rate: Array
    importance: Array | None
    names: list[str] | None


def parts(folder: Path, *, names: bool = False) -> Iterator[Part]:
    """Yield the sources' columns, one part at a time.

    Raises
    ------
    SourceDataError
        If a table is missing, is not what `freshopt plan` writes, or does not go with the other.
    """
    ours, theirs = files(folder, "change_rates"), files(folder, "rates")
    if len(ours) != len(theirs):
        many = f"{len(ours)} parts of change_rates and {len(theirs)} of rates"
        raise SourceDataError(f"{folder} has {many}. {_AGAIN}")
    for one, other in zip(ours, theirs, strict=True):
        known = ["change_rate", "lower", "upper", *(["source"] if names else [])]
        weighed = "importance" in column_names(one)
        first = _read(one, [*known, *(["importance"] if weighed else [])])
        second = _read(other, ["rate"])
        if len(first) != len(second):
            raise SourceDataError(f"{one} has {len(first)} rows and {other} has {len(second)}. {_AGAIN}")
        yield Part(
            _numbers(first, "change_rate", one),
            _numbers(first, "lower", one),
            _numbers(first, "upper", one),
            _numbers(second, "rate", other),
            _numbers(first, "importance", one) if weighed else None,
            [str(name) for name in first["source"].to_list()] if names else None,
        )


def load(folder: Path, edges: Array) -> Array:
    """Return refresh counts between edges, shape (len(edges) − 1,).

    Raises
    ------
    SourceDataError
        If the schedule is missing or is not what `freshopt plan` writes.
    """
    many = np.zeros(len(edges) - 1)
    for file in files(folder, "schedule"):
        time = _numbers(_read(file, ["time"]), "time", file)
        many += np.histogram(time, edges)[0]
    return many


def files(folder: Path, table: str) -> list[Path]:
    """Return the files of a table.

    Raises
    ------
    SourceDataError
        If there is none.
    """
    for ending in (".parquet", ".csv"):
        if (folder / f"{table}{ending}").is_file():
            return [folder / f"{table}{ending}"]
    found = sorted((folder / table).glob("part-*.parquet"))
    if not found:
        raise SourceDataError(f"{folder} holds no table {table}. {_AGAIN}")
    return found


_AGAIN = "Plan again, with --overwrite."


def _read(file: Path, columns: Sequence[str]) -> polars.DataFrame:
    frame = read_table(file, columns=columns, as_text=table_ending(file) != ".parquet")
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise SourceDataError(f"{file} has no column '{missing[0]}'. {_AGAIN}")
    return frame


def _numbers(frame: polars.DataFrame, column: str, file: Path) -> Array:
    """Return a column as numbers >= 0; infinity is one."""
    import polars

    given = frame[column]
    if given.dtype == polars.String or given.dtype.is_numeric():
        values = given.cast(polars.Float64, strict=False).to_numpy()
        if bool(np.all(values >= 0.0)):
            return np.asarray(values, dtype=np.float64)
    raise SourceDataError(f"column '{column}' of {file} does not hold numbers >= 0. {_AGAIN}")
