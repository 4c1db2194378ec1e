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

Tables in JSON are lines of objects, or documents that hold a table. What is nested has the names on its way,
parted by dots, such as metadata.hostname; of a list the first entry counts. A document is an array of
objects, or of arrays with the names first (the Wayback Machine's), an object of columns, or one that holds
such an array somewhere. All cells are text, as those of CSV are.

Cost: JSON lines are read by polars, once for their keys; of a document each row is cut out once.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, cast

import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shown, warn
from freshopt.heavy import msgspec, polars
from freshopt.logs.atomic_output import NO_ROOM
from freshopt.logs.file_kinds import (
    CSV,
    JSON,
    JSON_LINES,
    PARQUET,
    WINDOWS,
    FileKind,
    Frame,
    as_path,
    content,
    kind_of,
    parsing,
    reason_of,
    unpacked,
)

# Rows of JSON lines that tell which columns there are, where a key holds what does not go together.
_HEAD = 1000
_KEYS = ("columns", "data")


def read_json(path: Path, kind: FileKind, names: Sequence[str] | None = None) -> polars.DataFrame:
    """Return columns of a table in JSON as text."""
    data: Path | bytes
    if kind.form == JSON:
        rows = _rows_of_document(path, kind)
        if not isinstance(rows, bytes):
            return rows if names is None else rows.select(names)
        data, schema = rows, _schema_of(rows)
    else:
        data, schema = content(path, kind), _schema(path, kind)
    places = _places(schema)
    wanted = list(places) if names is None else list(names)
    tops = dict.fromkeys(places[name][0] for name in wanted)
    if not tops:
        return polars.DataFrame()
    with _json_lines(path, kind):
        frame = polars.read_ndjson(data, schema={name: _text(schema[name]) for name in tops})
    return frame.select(_cell(places[name]).alias(name) for name in wanted)


def _schema(path: Path, kind: FileKind) -> Mapping[str, Any]:
    with _json_lines(path, kind):
        data = content(path, kind)
        if isinstance(data, bytes):
            return _schema_of(data)
        state = path.stat()
        return _schema_of_file(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _schema_of_file(path: Path, *_state: int) -> Mapping[str, Any]:
    """Return the keys of a file, read once while it stays alike."""
    return _schema_of(path)


def _schema_of(data: Path | bytes) -> Mapping[str, Any]:
    """Return the keys of all rows with their types."""
    try:
        return polars.scan_ndjson(data, infer_schema_length=None).collect_schema()
    except polars.exceptions.SchemaError:
        return polars.scan_ndjson(data, infer_schema_length=_HEAD).collect_schema()


def _places(schema: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the way to each cell, by its name with dots."""
    found: dict[str, tuple[str, ...]] = {}
    for name, dtype in schema.items():
        inner = dtype.inner if isinstance(dtype, polars.List) else dtype
        if isinstance(inner, polars.Struct):
            below = _places({field.name: field.dtype for field in inner.fields})
            found |= {
                f"{name}.{key}": (name, *("",) * (inner is not dtype), *way) for key, way in below.items()
            }
        else:
            found[name] = (name, "") if inner is not dtype else (name,)
    return found


def _text(dtype: Any) -> Any:  # noqa: ANN401 - types of polars
    """Return a type with text in place of each number."""
    if isinstance(dtype, polars.Struct):
        return polars.Struct({field.name: _text(field.dtype) for field in dtype.fields})
    return polars.List(_text(dtype.inner)) if isinstance(dtype, polars.List) else polars.String


def _cell(way: tuple[str, ...]) -> polars.Expr:
    """Return the value at the end of a path of keys."""
    cell = polars.col(way[0])
    for name in way[1:]:
        cell = cell.struct.field(name) if name else cell.list.first()
    return cell


def _rows_of_document(path: Path, kind: FileKind) -> polars.DataFrame | bytes:
    """Return the table of a document, or its rows as JSON lines."""
    with parsing(path, JSON):
        octets = unpacked(path, kind.packed)
    try:
        # Line ends within texts are written as \n: those between are blanks.
        data = octets.decode(kind.encoding).encode().replace(b"\r", b" ").replace(b"\n", b" ")
        if not data.strip():
            raise SourceDataError(f"{path} is empty. A JSON file has an array of objects.")
        while not data.lstrip().startswith(b"["):
            parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            texts = {name: bytes(part).lstrip() for name, part in parts.items()}
            if set(_KEYS) <= set(texts):
                names, rows = (msgspec.json.decode(texts[key]) for key in _KEYS)
                return _of_arrays([names, *rows])
            arrays = {name: text for name, text in texts.items() if text.startswith(b"[")}
            if len(arrays) == len(texts) > 1:
                return _of_columns({name: msgspec.json.decode(text) for name, text in texts.items()})
            objects = {name: text for name, text in texts.items() if text.startswith(b"{")}
            if len(objects) == len(texts) > 1:
                of_rows = (msgspec.json.decode(text, type=dict[str, Any]) for text in objects.values())
                return _of_columns(dict(zip(objects, ([*row.values()] for row in of_rows), strict=True)))
            inside = arrays or objects
            if len(inside) != 1:
                return data
            (data,) = inside.values()
        rows = msgspec.json.decode(data, type=list[msgspec.Raw])
        if rows and bytes(rows[0]).lstrip().startswith(b"["):
            return _of_arrays(msgspec.json.decode(data))
        return b"\n".join(map(bytes, rows))
    except (msgspec.DecodeError, polars.exceptions.ShapeError, ValueError, RecursionError) as error:
        raise SourceDataError(
            f"{path} cannot be read as JSON: {error}. Write an array of objects, or an object a line."
        ) from error


def _of_arrays(rows: Sequence[Sequence[Any]]) -> polars.DataFrame:
    """Return a table of arrays, the first of which has the names."""
    return _of_columns(dict(zip(map(str, rows[0]), zip(*rows[1:], strict=True), strict=True)))


def _of_columns(columns: Mapping[str, Sequence[Any]]) -> polars.DataFrame:
    """Return a table of columns as text."""
    texts = {name: [None if cell is None else str(cell) for cell in cells] for name, cells in columns.items()}
    return polars.DataFrame(texts, schema=dict.fromkeys(texts, polars.String))


@contextmanager
def _json_lines(path: Path, kind: FileKind) -> Iterator[None]:
    """Raise errors of JSON lines with the first line that is none."""
    try:
        with parsing(path, JSON):
            yield
    except SourceDataError as error:
        if error.__cause__ is None or kind.form != JSON_LINES:
            raise
        with parsing(path, JSON):
            data = unpacked(path, kind.packed)
        if not data:
            raise SourceDataError(f"{path} is empty. JSON lines have an object for each crawl.") from None
        where = _first_wrong(data)
        if where is None:
            raise
        raise SourceDataError(
            f"{path}: {where} is no JSON object. Write one object a line, with the same keys."
        ) from error


def _first_wrong(data: bytes) -> str | None:
    """Return the first line that is no JSON object, with its number."""
    for k, line in enumerate(data.splitlines()):
        try:
            if not line.strip() or isinstance(msgspec.json.decode(line), dict):
                continue
        except (msgspec.DecodeError, RecursionError):
            pass
        return f"line {k + 1}: {shown(line.decode('utf-8', 'replace').strip())}"
    return None


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

    - `path`: Of CSV, whatever parts its cells, Parquet or JSON, packed or not.
    - `columns`: Columns to read, where present. Default: all.
    - `as_text`: Leave the cells of a CSV file as text, rather than infer numbers and dates. Those of JSON are
      text.
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
        return read_json(path, kind).columns if kind.form == JSON else list(_places(_schema(path, kind)))
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
