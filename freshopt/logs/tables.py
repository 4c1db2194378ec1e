"""Tables in and out, as CSV or Parquet.

The name's ending decides; an error is one clear line when a file cannot be used.

A spreadsheet takes a CSV cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end for a formula
[1]_, and names come from logs, which strangers write. Such a text is written with an apostrophe before it,
and read without; so is one that has apostrophes before those, so that every text comes back as it was. (A
text of another program's that begins with an apostrophe and a sign loses the apostrophe.) Numbers stay
numbers. Parquet files hold all texts as they are: they are for programs.

What polars raises is caught by its exact type, here and nowhere else: a file that cannot be parsed is the
user's to mend, and the message says which file and how. Dataframes of any library come in by
`frame_columns`, zoned times in UTC: libraries disagree on what their arrays of zoned times hold.

References
----------
.. [1] https://owasp.org/www-community/attacks/CSV_Injection
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs.atomic_output import NO_ROOM

if TYPE_CHECKING:
    import polars

# Column with the time unit of the rates of a table.
UNIT = "time_unit"
# Hint at the most frequent cause of a parser's error, whose own message is of chunks.
_QUOTES = ", with quotes in pairs"
ENDINGS = (".csv", ".csv.gz", ".parquet")
# What makes a formula of a text at its beginning, in the wide forms of East Asian spreadsheets too.
_SIGNS = "=+@\t\r\n＝＋－＠-"
_FORMULA = f"('*[{_SIGNS}])"
# What parts cells in spreadsheets of other settings, unless the cell is quoted.
_PARTING = ";\t"


def read_table(
    path: str | os.PathLike[str], *, columns: Sequence[str] | None = None, as_text: bool = False
) -> polars.DataFrame:
    """Read a CSV (also gzipped) or Parquet file.

    Parameters
    ----------
    path : path
        Ends in .csv, .csv.gz or .parquet.
    columns : sequence of str, optional
        Columns to read, where present. Default: all.
    as_text : bool
        Leave the cells of a CSV file as text, rather than infer numbers and dates.
    """
    import polars

    path = Path(path)
    require_file(path)
    if table_ending(path) == ".parquet":
        with parsing(path, "Parquet"):
            present = polars.read_parquet_schema(path)
            wanted = [name for name in present if columns is None or name in columns]
            return polars.read_parquet(path, columns=wanted, glob=False)
    with parsing(path, "CSV"):
        wanted = [name for name in column_names(path) if columns is None or name in columns]
        if not wanted:  # Polars takes no columns for all of them
            return polars.DataFrame()
        frame = polars.read_csv(
            path,
            columns=wanted,
            infer_schema_length=0 if as_text else None,  # 0: all is text; None: infer from every row
            try_parse_dates=not as_text,
            glob=False,
        )
    return frame.with_columns(polars.col(_beginning(frame, "'")).str.replace(f"^'{_FORMULA}", "${1}"))


def column_names(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of a table's columns."""
    import polars

    path = Path(path)
    require_file(path)
    if table_ending(path) == ".parquet":
        with parsing(path, "Parquet"):
            return list(polars.read_parquet_schema(path))
    with parsing(path, "CSV"):
        # Older Polars looks at rows too; what is wrong with them is said where they are read.
        names = polars.read_csv(
            path,
            n_rows=0,
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
    from polars import exceptions

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
            f"{path} cannot be written: {_reason(error)}. Choose another place, or mend its permissions."
        ) from error
    except exceptions.ComputeError as error:  # of Parquet, what the system said is found in the text only
        for code in NO_ROOM:
            if f"(os error {code})" in str(error):
                raise OSError(code, os.strerror(code), str(path)) from error
        reason = str(error).strip().split("\n", 1)[0].rstrip(".")
        raise SourceDataError(f"{path} cannot be written: {reason}. Choose another format.") from error


def _write_csv(frame: polars.DataFrame, file: IO[bytes]) -> None:
    """Write a table as CSV that is harmless in a spreadsheet."""
    import polars

    texts = frame.select(polars.col(polars.String))
    parted = any(text.str.contains(sign, literal=True).any() for text in texts for sign in _PARTING)
    signed = polars.col(_beginning(frame, f"'{_SIGNS}"))
    frame = frame.with_columns(signed.str.replace(f"^{_FORMULA}", "'${1}"))
    frame.write_csv(file, quote_style="non_numeric" if parted else "necessary")


def _beginning(frame: polars.DataFrame, signs: str) -> list[str]:
    """Return the columns with a text that begins with one of `signs`.

    Most tables have none, and to look is quicker than to replace.
    """
    import polars

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
    import polars

    return frame if time_unit == "day" else frame.with_columns(polars.lit(time_unit).alias(UNIT))


def require_file(path: Path) -> None:
    """Raise SourceDataError where there is no file to read.

    Asked before the ending of its name: of a folder, or of nothing, that is not what is wrong.
    """
    if path.is_dir():
        raise SourceDataError(f"{path} is a folder, not a file. Name a file in it.")
    if not path.exists():
        raise SourceDataError(f"there is no file {path}. Check the path.")


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
    """Drop blank lines at the end of a CSV file.

    They would be read as rows of empty cells.
    """
    import polars

    filled = frame.select(polars.any_horizontal(polars.all().is_not_null())).to_series().arg_true()
    return frame.head(int(filled[-1]) + 1 if len(filled) else 0)


@contextmanager
def parsing(path: Path, kind: str) -> Iterator[None]:
    """Raise errors of reading a file in one line.

    It names the file.
    """
    from polars import exceptions

    require_file(path)
    if not str(path).isascii() and str(path) != os.fsencode(path).decode("utf-8", "replace"):
        raise SourceDataError(f"the name of {str(path)!a} is not in UTF-8. Rename the file.")
    try:
        yield
    except exceptions.NoDataError:
        raise SourceDataError(f"{path} is empty. A {kind} file has at least its column names.") from None
    except exceptions.PanicException as error:  # no Exception; polars on damaged pages of Parquet
        raise SourceDataError(
            f"{path} is damaged: its {kind} cannot be read. Check that it is complete, or write it anew."
        ) from error
    except exceptions.DuplicateError as error:
        raise SourceDataError(f"{path}: {str(error).strip()}. Keep one of them.") from None
    except (exceptions.ComputeError, exceptions.SchemaError, exceptions.InvalidOperationError) as error:
        quotes = _QUOTES if kind == "CSV" else ""
        reason = str(error).strip().split("\n", 1)[0].rstrip(".")
        raise SourceDataError(
            f"{path} cannot be read as {kind}: {reason}. Check that it is a complete {kind} file in UTF-8"
            f"{quotes}."
        ) from error
    except OSError as error:
        raise SourceDataError(
            f"{path} cannot be read: {_reason(error)}. Check that it is a complete file that you may read."
        ) from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error).rstrip(".")


def frame_columns(
    frame: Any,  # noqa: ANN401 - any dataframe library's frame
    what: str,
    required: Sequence[str],
    optional: Sequence[str] = (),
) -> dict[str, npt.NDArray[Any]]:
    """Return named columns of a dataframe as arrays.

    Optional ones are returned where they are present.

    Examples
    --------
    >>> import polars as pl
    >>> frame_columns(pl.DataFrame({"time": [0.5], "colour": ["red"]}), "the log", ["time"])
    {'time': array([0.5])}
    """
    import narwhals

    try:
        table = narwhals.from_native(frame, eager_only=True)
    except TypeError:
        raise SourceDataError(
            f"{what} is a {type(frame).__name__}, not a dataframe. Pass one of polars, pandas or pyarrow, "
            "collected where it is lazy."
        ) from None
    missing = [name for name in required if name not in table.columns]
    if missing:
        raise SourceDataError(
            f"{what} has no column {list_offenders(map(repr, missing))}; "
            f"it has {list_offenders(map(repr, table.columns))}. Rename or add the columns."
        )
    found = {}
    for name in (*required, *(name for name in optional if name in table.columns)):
        column = table[name]
        if isinstance(column.dtype, narwhals.Datetime) and column.dtype.time_zone is not None:
            column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        elif isinstance(column.dtype, narwhals.Categorical | narwhals.Enum):
            column = column.cast(narwhals.String())
        found[name] = column.to_numpy()
    return found
