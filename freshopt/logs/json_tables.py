"""Tables in JSON: lines of objects, and documents that hold a table.

What is nested has the names on its way, parted by dots, such as metadata.hostname; of a list the first entry
counts. A document is an array of objects, or of arrays with the names first (the Wayback Machine's), an
object of columns, or one that holds such an array somewhere. All cells are text, as those of CSV are.

Cost: JSON lines are read by polars, once for their keys; of a document each row is cut out once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from freshopt.errors import SourceDataError, shown
from freshopt.heavy import polars
from freshopt.logs.file_kinds import JSON, JSON_LINES, FileKind, content, parsing, unpacked

# Rows of JSON lines that tell which columns there are, where a key holds what does not go together.
_HEAD = 1000
_KEYS = ("columns", "data")


def json_names(path: Path, kind: FileKind) -> list[str]:
    """Return the columns of a JSON table."""
    if kind.form == JSON:
        return read_json(path, kind).columns
    return list(_places(_schema(path, kind)))


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
    import msgspec

    with parsing(path, JSON):
        data = unpacked(path, kind.packed).decode(kind.encoding).encode()
    # Line ends within texts are written as \n: those between are blanks.
    data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    try:
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
    except (msgspec.DecodeError, polars.exceptions.ShapeError, ValueError) as error:
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
    import msgspec

    for k, line in enumerate(data.splitlines()):
        try:
            if not line.strip() or isinstance(msgspec.json.decode(line), dict):
                continue
        except msgspec.DecodeError:
            pass
        return f"line {k + 1}: {shown(line.decode('utf-8', 'replace').strip())}"
    return None
