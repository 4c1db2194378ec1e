"""Kinds of files, by what stands in them.

A name tells little: a .csv may be parted by semicolons, be in UTF-16, packed, or JSON. The first 64 kB tell
what a file is, so that it is read at once: whether and how it is packed, its encoding, whether it is Parquet,
JSON, JSON lines or text in columns, and what parts these. What polars reads itself goes to it as a path; the
rest is unpacked or decoded in memory. A dataframe of any library is a kind of file, too: the same
reader takes its columns.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from freshopt.errors import SourceDataError
from freshopt.frames import POLARS
from freshopt.heavy import polars

if TYPE_CHECKING:
    _Path = Path
else:
    _Path = type(Path())

CSV, JSON, JSON_LINES, PARQUET, FRAME = "CSV", "JSON", "JSON lines", "Parquet", "a dataframe"
WINDOWS = "cp1252"
_SAMPLE = 1 << 16
_LINES = 50
_SEPARATORS = ",;\t|"
_PACKED = {b"\x1f\x8b": "gz", b"\xfd7zXZ\x00": "xz", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zst"}
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
# What polars reads as it is.
_READY = {("", "utf-8"), ("gz", "utf-8"), ("zst", "utf-8"), ("", "utf-8-sig"), ("gz", "utf-8-sig")}
# Files of others, and what to do with them.
_FOREIGN = {
    b"PK\x03\x04": (
        "a spreadsheet or another zip archive",
        "Save it as CSV; of a backup of changedetection.io make a log: freshopt import changedetection",
    ),
    b"\xd0\xcf\x11\xe0": ("an old spreadsheet", "Save it as CSV"),
    b"SQLite format 3": (
        "an SQLite database",
        "Export the table: sqlite3 -csv -header FILE 'SELECT * FROM ...'",
    ),
    b"ARROW1": ("in Arrow's format", "Save it as Parquet"),
    b"Obj\x01": ("in Avro's format", "Save it as Parquet"),
    b"ORC": ("in ORC's format", "Save it as Parquet"),
    b"<": ("XML or a page", "Of dated copies of a sitemap make a log: freshopt import sitemap"),
}
# A hint at the most frequent cause of a parser's error, whose own message is of chunks.
_QUOTES = ", with quotes in pairs"
# Beginning of a line that is no row.
_REMARK = "#"


class FileKind(NamedTuple):
    """What a file is.

    - `form`: `CSV`, `JSON`, `JSON_LINES`, `PARQUET` or `FRAME`.
    - `packed`: "gz", "xz", "bz2", "zst" or empty.
    - `separator`: Between cells.
    - `before`: Lines before the names of the columns.
    """

    form: str
    packed: str = ""
    encoding: str = "utf-8"
    separator: str = ","
    before: int = 0


class Stream(_Path):
    """What a stream held, read as a file is, under a name."""

    content: bytes

    @classmethod
    def of(cls, file: IO[Any]) -> Stream:
        """Read a stream, of text or bytes; the standard input once."""
        known = file in _READ
        once = known and (file.closed or file in (sys.stdin, getattr(sys.stdin, "buffer", None)))
        data = None if once else file.read()
        # At its end a stream holds what it held; wound back, it may hold more.
        if data or not known:
            name = "standard input" if file is sys.stdin else str(getattr(file, "name", "a stream"))
            _READ[file] = cls(name)
            _READ[file].content = data.encode() if isinstance(data, str) else bytes(data or b"")
        return _READ[file]

    @classmethod
    def standard_input(cls) -> Stream:
        """Return what the standard input holds, in bytes where it has them."""
        return cls.of(getattr(sys.stdin, "buffer", sys.stdin))

    def open(self, *_: object, **__: object) -> io.BytesIO:  # type: ignore[override]
        """Return the bytes as a file."""
        return io.BytesIO(self.content)

    def exists(self, **_: object) -> bool:
        """Return True."""
        return True

    def is_dir(self, **_: object) -> bool:
        """Return False."""
        return False


_READ: WeakKeyDictionary[IO[Any], Stream] = WeakKeyDictionary()


class Frame(_Path):
    """A dataframe that is read as a file is, under a name."""

    table: Any
    library: str

    @classmethod
    def of(cls, given: Any, what: str = "the log") -> Frame:  # noqa: ANN401 - any dataframe library's frame
        """Return a dataframe, collected if it is lazy."""
        import narwhals
        import narwhals.exceptions

        try:
            table = narwhals.from_native(given)
        except narwhals.exceptions.DuplicateError:
            raise SourceDataError(f"{what} has two columns of one name. Keep one of them.") from None
        except TypeError:
            kind = type(given).__name__
            kind = f"an {kind}" if kind[0] in "aeiouAEIOU" else f"a {kind}"
            raise SourceDataError(
                f"{what} is {kind}, not a dataframe. Pass one of polars, pandas or PyArrow."
            ) from None
        frame = cls(what)
        frame.table = table.collect() if isinstance(table, narwhals.LazyFrame) else table
        frame.library = library_of(frame.table)
        return frame

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [str(name) for name in self.table.columns]

    def read(self, columns: Sequence[str]) -> polars.DataFrame:
        """Return columns as polars has them."""
        return polars.DataFrame([self._column(name) for name in columns])

    def exists(self, **_: object) -> bool:
        """Return False: there is no file."""
        return False

    def _column(self, name: str) -> polars.Series:
        import narwhals

        if name not in self.table.columns:
            raise SourceDataError(f"column {name} of {self} has a name that is no text. Name it with text.")
        column = self.table[name]
        if self.library == POLARS:
            own: polars.Series = column.to_native()
            return own
        kind = column.dtype
        if isinstance(kind, narwhals.Datetime) and kind.time_zone is not None:
            column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        elif isinstance(kind, narwhals.Categorical | narwhals.Enum):
            column = column.cast(narwhals.String())
        empty = column.is_null().to_numpy()
        array = column.to_numpy()
        if array.dtype.kind in "biufM" and (array.dtype.kind in "fM" or not empty.any()):
            return polars.Series(name, array, nan_to_null=True)
        values = [None if none else value for none, value in zip(empty, array.tolist(), strict=True)]
        if any(isinstance(value, datetime) for value in values):
            # Offsets may differ from row to row, as in text.
            values = [value.isoformat() if isinstance(value, datetime) else value for value in values]
        try:
            return polars.Series(name, values)
        except TypeError:
            kinds = sorted({type(value).__name__ for value in values if value is not None})
            raise SourceDataError(
                f"column '{name}' of {self} holds {' and '.join(kinds)}. Convert it to one of them."
            ) from None


def is_frame(given: object) -> bool:
    """Return whether something is a dataframe, or looks like one."""
    return hasattr(given, "collect_schema") or hasattr(given, "columns")


def library_of(table: Any) -> str:  # noqa: ANN401 - a frame of narwhals
    """Return the library in which a dataframe is made again."""
    kind = table.implementation
    return "pandas" if kind.is_pandas() else "pyarrow" if kind.is_pyarrow() else POLARS


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path as it is, or one of text."""
    return path if isinstance(path, Path) else Path(path)


def kind_of(path: Path) -> FileKind:
    """Return what a file is."""
    if isinstance(path, Frame):
        return FileKind(FRAME)
    with parsing(path, "text"):
        with path.open("rb") as file:
            head = file.read(_SAMPLE)
        packed = next((name for magic, name in _PACKED.items() if head.startswith(magic)), "")
        head = unpacked(path, packed, _SAMPLE) if packed else head
    if path.name.lower().endswith(".parquet") or head.startswith(b"PAR1"):
        return FileKind(PARQUET, packed)
    for magic, (what, remedy) in _FOREIGN.items():
        if head.startswith(magic):
            raise SourceDataError(f"{path} is {what}. {remedy}.")
    encoding = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
    encoding = encoding or ("utf-8" if _is_utf8(head) else WINDOWS)
    if encoding == WINDOWS and b"\0" in head:
        raise SourceDataError(f"{path} is no text. Pass CSV, JSON or Parquet.")
    return _kind_of_text(path, head.decode(encoding, "ignore"), FileKind(CSV, packed, encoding))


def content(path: Path, kind: FileKind) -> Path | bytes:
    """Return a file as polars reads it: path or bytes."""
    if not isinstance(path, Stream) and ((kind.packed, kind.encoding) in _READY or kind.form == PARQUET):
        return path
    data = unpacked(path, kind.packed)
    return data if kind.encoding.startswith("utf-8") else data.decode(kind.encoding, "replace").encode()


def unpacked(path: Path, packed: str, most: int = -1) -> bytes:
    """Return the first bytes of a file, or all."""
    if packed == "zst":
        # Polars unpacks it, but as a table only: here one with a line in each row.
        lines = polars.read_csv(
            path.open("rb").read() if isinstance(path, Stream) else path,
            has_header=False,
            separator="\x01",
            quote_char=None,
            schema={"line": polars.String},
            n_rows=None if most < 0 else most // 100,
            encoding="utf8-lossy",
            truncate_ragged_lines=True,
            glob=False,
        )["line"]
        return "\n".join(lines.fill_null("")).encode()
    with path.open("rb") as raw:
        if not packed:
            return raw.read(most)
        opened: dict[str, Callable[[IO[bytes]], Any]] = {"gz": gzip.open, "xz": lzma.open, "bz2": bz2.open}
        with opened[packed](raw) as file:
            return bytes(file.read(most))


def _is_utf8(head: bytes) -> bool:
    """Return whether bytes are UTF-8, up to a cut last character."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return len(head) == _SAMPLE and error.start > _SAMPLE - 4
    return True


def _kind_of_text(path: Path, text: str, kind: FileKind) -> FileKind:
    """Return what a text is, by its first lines."""
    name = path.name.lower()
    lines = text.splitlines()
    filled = [line for line in lines if line.strip()]
    first = filled[0].strip() if filled else ""
    if ".jsonl" in name or ".ndjson" in name:
        return kind._replace(form=JSON_LINES)
    if first.startswith("{") or (
        first.startswith("[") and (first == "[" or first[1:].lstrip()[:1] in ("{", "[", '"'))
    ):
        alone = len(filled) == 1 or not filled[1].startswith("{")
        return kind._replace(form=JSON if first.startswith("[") or alone else JSON_LINES)
    if first[:4].lower() == "sep=" and len(first) == 5:
        return kind._replace(separator=first[4], before=lines.index(filled[0]) + 1)
    before = next((k for k, line in enumerate(lines) if line.strip() and not line.startswith(_REMARK)), 0)
    return kind._replace(separator=_separator(lines[before:]), before=before)


def _separator(lines: Sequence[str]) -> str:
    """Return the separator that parts names and most lines alike."""
    whole = [line for line in lines[: _LINES + 1] if line.strip()][:-1] or lines[:1]

    def share(sign: str) -> tuple[float, int]:
        widths = [len(row) for row in csv.reader(whole, delimiter=sign)]
        many = widths[0] if widths else 0
        return (widths.count(many) / len(widths), many) if many > 1 else (0.0, 0)

    return max(_SEPARATORS, key=share)


def require_file(path: Path) -> None:
    """Raise SourceDataError where there is no file to read."""
    if path.is_dir():
        raise SourceDataError(f"{path} is a folder, not a file. Name a file in it.")
    if not path.exists():
        raise SourceDataError(f"there is no file {path}. Check the path.")


@contextmanager
def parsing(path: Path, kind: str) -> Iterator[None]:
    """Raise errors of reading a file in one line.

    It names the file. What polars raises is caught by its exact type, here and nowhere else.
    """
    # Of a fixed offset such as +05:30, which pandas writes for a zone, polars else panics.
    os.environ.setdefault("POLARS_IGNORE_TIMEZONE_PARSE_ERROR", "1")
    require_file(path)
    if not str(path).isascii() and str(path) != os.fsencode(path).decode("utf-8", "replace"):
        raise SourceDataError(f"the name of {str(path)!a} is not in UTF-8. Rename the file.")
    try:
        yield
    except polars.exceptions.NoDataError:
        raise SourceDataError(f"{path} is empty. A {kind} file has at least its column names.") from None
    except polars.exceptions.PanicException as error:  # no Exception; polars on damaged pages of Parquet
        if KeyboardInterrupt.__name__ in str(error):  # while polars waited for Python
            raise KeyboardInterrupt from None
        raise SourceDataError(
            f"{path} is damaged: its {kind} cannot be read. Check that it is complete, or write it anew."
        ) from error
    except polars.exceptions.DuplicateError as error:
        raise SourceDataError(f"{path}: {str(error).strip()}. Keep one of them.") from None
    except (
        polars.exceptions.ComputeError,
        polars.exceptions.SchemaError,
        polars.exceptions.InvalidOperationError,
    ) as error:
        quotes = _QUOTES if kind == CSV else ""
        reason = str(error).strip().split("\n", 1)[0].rstrip(".")
        raise SourceDataError(
            f"{path} cannot be read as {kind}: {reason}. Check that it is a complete {kind} file in UTF-8"
            f"{quotes}."
        ) from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise SourceDataError(
            f"{path} cannot be read: {reason_of(error)}. Check that it is a complete file that you may read."
        ) from error


def reason_of(error: Exception) -> str:
    """Return what the system said."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error).rstrip(".")
