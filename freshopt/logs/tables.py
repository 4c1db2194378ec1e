"""Tables in and out.

An error is one clear line when a file cannot be used.

A spreadsheet takes a CSV cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end for a formula
[1]_, and names come from logs, which strangers write. Such a text is written with an apostrophe before it,
and read without; so is one that has apostrophes before those, so that every text comes back as it was. (A
text of another program's that begins with an apostrophe and a sign loses the apostrophe.) Numbers stay
numbers. Parquet files hold all texts as they are: they are for programs.

A file that is read may be of any kind that `file_kinds` knows; one that is written is CSV or Parquet, as its
name ends.

References
----------
.. [1] https://owasp.org/www-community/attacks/CSV_Injection
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, warn
from freshopt.heavy import polars
from freshopt.logs.atomic_output import NO_ROOM
from freshopt.logs.file_kinds import (
    CSV,
    PARQUET,
    WINDOWS,
    Frame,
    as_path,
    content,
    kind_of,
    parsing,
    reason_of,
)
from freshopt.logs.json_tables import json_names, read_json

# Column with the time unit of the rates of a table.
UNIT = "time_unit"
ENDINGS = (".csv", ".csv.gz", ".parquet")
# What makes a formula of a text at its beginning, in the wide forms of East Asian spreadsheets too.
_SIGNS = "=+@\t\r\n＝＋－＠-"
_FORMULA = f"('*[{_SIGNS}])"
# What parts cells in spreadsheets of other settings, unless the cell is quoted.
_PARTING = ";\t"


def read_table(
    path: str | os.PathLike[str], *, columns: Sequence[str] | None = None, as_text: bool = False
) -> polars.DataFrame:
    """Read a table, whose kind is told by what stands in it.

    Parameters
    ----------
    path : path
        Of CSV, whatever parts its cells, Parquet or JSON, packed or not.
    columns : sequence of str, optional
        Columns to read, where present. Default: all.
    as_text : bool
        Leave the cells of a CSV file as text, rather than infer numbers and dates. Those of JSON are text.
    """
    path = as_path(path)
    kind = kind_of(path)
    wanted = [name for name in column_names(path) if columns is None or name in columns]
    if isinstance(path, Frame):
        return path.read(wanted)
    if kind.form not in (CSV, PARQUET):
        return read_json(path, kind, wanted)
    with parsing(path, kind.form):
        if kind.form == PARQUET:
            return polars.read_parquet(content(path, kind), columns=wanted, glob=False)
        if not wanted:  # Polars takes no columns for all of them
            return polars.DataFrame()
        if kind.encoding == WINDOWS:
            warn(f"{path} is not in UTF-8. It is read as Windows-1252, as spreadsheets write it.")
        frame = polars.read_csv(
            content(path, kind),
            columns=wanted,
            separator=kind.separator,
            skip_lines=kind.before,
            infer_schema_length=0 if as_text else None,  # 0: all is text; None: infer from every row
            try_parse_dates=not as_text,
            glob=False,
        )
    return frame.with_columns(polars.col(_beginning(frame, "'")).str.replace(f"^'{_FORMULA}", "${1}"))


def column_names(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of a table's columns."""
    path = as_path(path)
    if isinstance(path, Frame):
        return path.names
    kind = kind_of(path)
    if kind.form not in (CSV, PARQUET):
        return json_names(path, kind)
    with parsing(path, kind.form):
        if kind.form == PARQUET:
            return list(polars.read_parquet_schema(content(path, kind)))
        # Older Polars looks at rows too; what is wrong with them is said where they are read.
        names = polars.read_csv(
            content(path, kind),
            n_rows=0,
            separator=kind.separator,
            skip_lines=kind.before,
            infer_schema_length=0,
            glob=False,
            encoding="utf8-lossy",
            truncate_ragged_lines=True,
        ).columns
    twice = [name.partition("_duplicated_")[0] for name in names if "_duplicated_" in name]
    if any(name in names for name in twice):
        first = twice[0]
        if first.lstrip("+-").replace(".", "", 1).isdigit():
            raise SourceDataError(
                f"{path}: the first line has numbers, such as {first}, where the columns' names should be. "
                "Write a line of names before it."
            )
        raise SourceDataError(f"{path}: the column '{first}' occurs more than once. Keep one of them.")
    return names


def write_table(frame: polars.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a table as CSV or Parquet.

    CSV may be gzipped; a file that is there is replaced. In CSV an apostrophe stands before texts that a
    spreadsheet would take for formulas; `read_table` takes it away.

    Use `complete_file` or `complete_folder` around it where a reader must never see half a file.

    Examples
    --------
    >>> import polars as pl
    >>> write_table(pl.DataFrame({"source": ["a"]}), "r.xlsx")
    Traceback (most recent call last):
    ...
    freshopt.errors.SourceDataError: r.xlsx ends in '.xlsx'. Tables are .csv, .csv.gz or .parquet. Rename it.
    """
    path = Path(path)
    ending = table_ending(path)
    write: Callable[[IO[bytes]], None] = (
        frame.write_parquet if ending == ".parquet" else partial(_write_csv, frame)
    )
    try:
        if ending == ".csv.gz":
            # Without a file name and time in it, equal tables make equal files.
            with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
                write(cast("IO[bytes]", file))
        else:
            with path.open("wb") as file:
                write(file)
    except OSError as error:
        if error.errno in NO_ROOM:  # the caller knows for which file room was needed
            raise
        raise SourceDataError(
            f"{path} cannot be written: {reason_of(error)}. Choose another place, or mend its permissions."
        ) from error
    except (
        polars.exceptions.ComputeError
    ) as error:  # of Parquet, what the system said is found in the text only
        for code in NO_ROOM:
            if f"(os error {code})" in str(error):
                raise OSError(code, os.strerror(code), str(path)) from error
        reason = str(error).strip().split("\n", 1)[0].rstrip(".")
        raise SourceDataError(f"{path} cannot be written: {reason}. Choose another format.") from error


def _write_csv(frame: polars.DataFrame, file: IO[bytes]) -> None:
    """Write a table as CSV that is harmless in a spreadsheet."""
    texts = frame.select(polars.col(polars.String))
    parted = any(text.str.contains(sign, literal=True).any() for text in texts for sign in _PARTING)
    signed = polars.col(_beginning(frame, f"'{_SIGNS}"))
    frame = frame.with_columns(signed.str.replace(f"^{_FORMULA}", "'${1}"))
    frame.write_csv(file, quote_style="non_numeric" if parted else "necessary")


def _beginning(frame: polars.DataFrame, signs: str) -> list[str]:
    """Return columns with a text that begins with one of `signs`."""
    texts = frame.select(polars.col(polars.String))
    return [text.name for text in texts if any(text.str.starts_with(sign).any() for sign in signs)]


def with_unit(frame: polars.DataFrame, time_unit: str) -> polars.DataFrame:
    """Add the column `UNIT` to a table of rates.

    Unless they are per day, as rates are by default.

    Examples
    --------
    >>> import polars as pl
    >>> with_unit(pl.DataFrame({"source": ["a"], "rate": [0.5]}), "hour").row(0)
    ('a', 0.5, 'hour')
    """
    return frame if time_unit == "day" else frame.with_columns(polars.lit(time_unit).alias(UNIT))


def table_ending(path: Path) -> str:
    """Return a table name's ending, or raise SourceDataError.

    It is one of `ENDINGS`.

    Examples
    --------
    >>> table_ending(Path("log.2026.CSV.gz"))
    '.csv.gz'
    """
    for ending in ENDINGS:
        if path.name.lower().endswith(ending):
            return ending
    found = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
    raise SourceDataError(
        f"{path} {found}. Tables are {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}. Rename it."
    )


def without_blank_end(frame: polars.DataFrame) -> polars.DataFrame:
    """Drop blank lines at the end of a CSV file."""
    filled = frame.select(polars.any_horizontal(polars.all().is_not_null())).to_series().arg_true()
    return frame.head(int(filled[-1]) + 1 if len(filled) else 0)


def frame_columns(
    frame: Any,  # noqa: ANN401 - any dataframe library's frame
    what: str,
    required: Sequence[str],
    optional: Sequence[str] = (),
) -> dict[str, npt.NDArray[Any]]:
    """Return named columns of a dataframe as arrays, if they are there.

    Examples
    --------
    >>> import polars as pl
    >>> frame_columns(pl.DataFrame({"time": [0.5], "colour": ["red"]}), "the log", ["time"])
    {'time': array([0.5])}
    """
    given = Frame.of(frame, what)
    missing = [name for name in required if name not in given.names]
    if missing:
        raise SourceDataError(
            f"{what} has no column {list_offenders(map(repr, missing))}; "
            f"it has {list_offenders(map(repr, given.names))}. Rename or add the columns."
        )
    table = given.read([*required, *(name for name in optional if name in given.names)])
    zoned = [each.name for each in table if isinstance(each.dtype, polars.Datetime) and each.dtype.time_zone]
    table = table.with_columns(polars.col(zoned).dt.convert_time_zone("UTC").dt.replace_time_zone(None))
    return {each.name: each.to_numpy() for each in table}
