"""`read_log`: a crawl log from a table or an access log.

CSV and JSON lines are read as text and converted here, column by column: a cell that is not what it should be
can then be named by its row and line, whatever stood in the rows before it.

Cost: some passes over the columns; 10⁷ rows of Parquet take about a second, of CSV four to ten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, warn
from freshopt.formatting import count
from freshopt.io.log_files import log_frame
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.source_index import Codes, code_integers, ranked_names
from freshopt.logs.timestamps import Moments, RowNames, read_text, scattered
from freshopt.logs.verdicts import NOT_MODIFIED, Verdicts, verdicts
from freshopt.numerics.arrays import label_array

if TYPE_CHECKING:
    import os

    import polars

_LOGGER = logging.getLogger(__name__)
COLUMNS = ("source", "time", "changed", "elapsed", "changes", "last_modified")
# What crawls saw, from which `changed` follows where it is not there.
SEEN = ("hash", "etag", "status")
_REMEDY = {
    "source": "Fill it in without zero bytes, or drop the row.",
    "time": "Fill it in, or drop the row.",
    "changed": "Write 1 where the source had changed since its previous crawl, else 0.",
    "elapsed": "Write the time since the previous crawl as a number.",
    "last_modified": "Write a time such as those of the column time, or leave it empty where it is not told.",
    "status": "Write an HTTP status such as 200 or 304, or leave it empty.",
    "changes": "Write how many changes were found, or leave it empty where that is unknown.",
}
_FLAGS = {"true": 1.0, "false": 0.0}


def read_log(
    path: str | os.PathLike[str], time_unit: str = "day", *, columns: Mapping[str, str] | None = None
) -> CrawlLog:
    """Read a crawl log from a file.

    Parameters
    ----------
    path : path
        A CSV file with a header line (.csv or .csv.gz), a Parquet file (.parquet), JSON lines (.jsonl,
        .ndjson, or these with .gz) or the access log of a web server (a name with .log). The first three
        have the columns

        * ``source``: names, or integers;
        * ``time``: numbers in `time_unit`, or dates and times (in text: ISO 8601; without an offset: UTC);
        * ``changed``: 0 or 1, false or true. Without it, what crawls saw: ``hash`` (of the content),
          ``etag`` or ``status`` (HTTP, of conditional requests), one or more of them; a crawl found a change
          if that differs from the previous crawl of the same source, see `freshopt.logs.verdicts`;
        * ``elapsed``, optional: each row's gap in `time_unit`, also the first, used instead of the
          differences of ``time``. With it ``time`` may be missing;
        * ``changes``, optional: the number of changes, empty where unknown;
        * ``last_modified``, optional: when the source had last changed, as the crawl was told, written as
          ``time`` is (dates also as HTTP has them), empty where it was not told.

        Other columns are ignored. Rows may be in any order. A source's first row is its baseline, unless
        ``elapsed`` says otherwise. In an access log the URL is the source, and requests by GET or HEAD are
        its crawls: answers 200 found a change, answers 304 none, others are no evidence.
    time_unit : str
        The log's clock: "second", "minute", "hour", "day" or "week".
    columns : mapping of str to str, optional
        Names of the file's columns to those above, such as ``{"url": "source", "fetched_at": "time"}``.

    Returns
    -------
    CrawlLog

    Raises
    ------
    SourceDataError
        If the file cannot be read, a column is missing, or a cell cannot be used; names the file, the column
        and the row. Rows are counted from 1, lines with the header line.

    Warns
    -----
    SourceDataWarning
        As `CrawlLog`, with the row's line; of malformed lines in an access log, with their number.
    """
    path, begun = Path(path), time.perf_counter()
    found, names, cells = read_columns(path, columns)
    log = CrawlLog.from_columns(found, names=names, time_unit=time_unit, row_name=cells.row_name)
    _LOGGER.info("read %s: %r in %.2f s", path, log, time.perf_counter() - begun)
    return log


def read_columns(
    path: Path, columns: Mapping[str, str] | None = None
) -> tuple[dict[str, npt.ArrayLike], npt.NDArray[Any], Cells]:
    """Return the columns of a log's file, its names and cells.

    The column ``source`` holds positions among the names.

    Raises
    ------
    SourceDataError
        As `read_log`, of cells that cannot be used; what rows say together is not looked at.
    """
    frame, layout = log_frame(path, COLUMNS + SEEN, columns)
    _check_columns(path, layout.present)
    cells = Cells(path, layout.head is not None, layout.head or 0, layout.line)
    if frame.height == 0:
        raise SourceDataError(f"{path} has column names but no rows. Check that the crawler wrote it.")
    names, codes = cells.sources(frame["source"])
    found: dict[str, npt.ArrayLike] = {"source": codes}
    if "changed" in frame.columns:
        found["changed"] = cells.flags(frame["changed"])
    if "time" in frame.columns:
        found["time"] = cells.times(frame["time"])
    for key in ("elapsed", "changes"):
        if key in frame.columns:
            found[key] = cells.numbers(frame[key]).to_numpy()
    if "last_modified" in frame.columns:
        found["last_modified"] = cells.told_times(frame["last_modified"])
    if "changed" in found:
        return found, names, cells
    seen = {key: frame[key] for key in SEEN if key in frame.columns}
    if "status" in seen:
        seen["status"] = cells.numbers(filled(seen["status"]))
    told = verdicts(codes, np.asarray(found["time"]), seen)
    _require_verdicts(path, told, seen, len(codes))
    kept = {key: np.asarray(column)[told.rows] for key, column in found.items()}
    known, kept["source"] = np.unique(kept["source"], return_inverse=True)
    return {**kept, "changed": told.changed}, names[known], cells.of_rows(told.rows)


def filled(column: polars.Series) -> polars.Series:
    """Return a column whose empty texts are empty cells."""
    import polars
    from polars import col

    if column.dtype != polars.String:
        return column
    text = column.str.strip_chars().to_frame()
    return text.select(polars.when(col(column.name) != "").then(col(column.name)))[column.name]


def _require_verdicts(path: Path, told: Verdicts, seen: Mapping[str, Any], rows: int) -> None:
    """Raise if no row is evidence; warn if no status is 304."""
    if len(told.rows) == 0:
        raise SourceDataError(
            f"no row of {path} has a value in {', '.join(seen)} that tells whether its source had changed "
            f"({count(rows, 'row')}). Fill one of them in, or add the column changed."
        )
    later = told.changed > 0.0
    if set(seen) == {"status"} and later.any() and not (seen["status"] == NOT_MODIFIED).any():
        warn(
            f"{path} has no status 304: every answer counts as a change. Let the crawler ask conditionally "
            "(If-None-Match, If-Modified-Since), or add hashes of the content."
        )


class Cells:
    """Columns of one file, converted with precise error messages.

    They name the file and the row.
    """

    def __init__(
        self, path: Path, has_lines: bool, head: int = 1, row: npt.NDArray[np.int64] | None = None
    ) -> None:
        self.path = path
        self.has_lines = has_lines
        self.head = head
        self.row = row

    def of_rows(self, rows: npt.NDArray[np.int64]) -> Cells:
        """Return the cells of some rows, which keep their names."""
        return Cells(self.path, self.has_lines, self.head, rows if self.row is None else self.row[rows])

    def row_name(self, k: int) -> str:
        """Return the name of row k in messages.

        A cell with a line break in it shifts the lines below, not the rows.
        """
        k = k if self.row is None else int(self.row[k])
        if self.has_lines and not self.head:
            return f"line {k + 1} of {self.path}"
        line = f", line {k + 1 + self.head}" if self.has_lines else ""
        return f"row {k + 1}{line} of {self.path}"

    def sources(self, column: polars.Series) -> tuple[npt.NDArray[Any], Codes]:
        """Return the sorted labels and each row's position among them."""
        import polars

        self._requirefilled(column)
        if str(column.dtype) in ("Int128", "UInt128"):  # NumPy has none: their digits are names
            column = column.cast(polars.String)
        text = column.dtype in (polars.Categorical, polars.Enum, polars.String)
        if not (text or column.dtype.is_integer()):
            raise SourceDataError(
                f"column 'source' of {self.path} holds {column.dtype}. A source is a name or an integer. "
                "Convert the column to text."
            )
        if text:
            column = column.cast(polars.String)
            numbers = column.cast(polars.Int64, strict=False) if self.has_lines else column.clear()
            # Only what prints the same is a number: 007 and +7 are names.
            if len(numbers) and not numbers.has_nulls() and (numbers.cast(polars.String) == column).all():
                column, text = numbers, False
        if text:
            labels, codes = ranked_names(column)
            if labels.str.contains("\0", literal=True).any():
                self._require_known(column, ~column.str.contains("\0", literal=True))
            return label_array(labels.to_list()), codes
        return code_integers(column.to_numpy())

    def told_times(self, column: polars.Series) -> Moments:
        """Return times, NaN or NaT where a cell is empty."""
        row = column.is_not_null().arg_true().to_numpy().astype(np.int64)
        if len(row) == 0:
            return np.full(len(column), np.nan)
        found = self.times(column.filter(column.is_not_null()), lambda k: self.row_name(int(row[k])))
        return scattered(found, row, len(column))

    def times(self, column: polars.Series, row_name: RowNames | None = None) -> Moments:
        """Return times as numbers or UTC moments."""
        import polars

        self._requirefilled(column)
        if column.dtype == polars.String:
            return read_text(column, column.name, row_name or self.row_name)
        if column.dtype == polars.Date or isinstance(column.dtype, polars.Datetime):
            # What is stored counts from 1970 in UTC, whatever the zone. To cast it may panic: nothing keeps a
            # file from holding days beyond any calendar.
            unit = column.dtype.time_unit if isinstance(column.dtype, polars.Datetime) else "D"
            return column.to_physical().cast(polars.Int64).to_numpy().view(f"datetime64[{unit}]")
        return self.numbers(column).to_numpy()

    def flags(self, column: polars.Series) -> npt.NDArray[np.float64] | npt.NDArray[np.bool_]:
        """Return `changed` as numbers or booleans."""
        import polars

        self._requirefilled(column)
        if column.dtype == polars.Boolean:
            return column.to_numpy()
        if column.dtype == polars.String:
            text = column.str.strip_chars().str.to_lowercase()
            words = text.replace_strict(_FLAGS, default=None, return_dtype=polars.Float64)
            known = words.fill_null(text.cast(polars.Float64, strict=False))
        else:
            known = self.numbers(column)
        self._require_known(column, known.is_in([0.0, 1.0]).fill_null(False))
        return known.to_numpy()

    def numbers(self, column: polars.Series) -> polars.Series:
        """Return a column as float64, its empty cells as NaN."""
        import polars

        if column.dtype == polars.String:
            numbers = column.str.strip_chars().cast(polars.Float64, strict=False)
            self._require_known(column, numbers.is_not_null() | column.is_null())
        elif column.dtype.is_numeric():
            numbers = column.cast(polars.Float64)
        else:
            raise SourceDataError(
                f"column {column.name!r} of {self.path} holds {column.dtype}. {_REMEDY[column.name]}"
            )
        return numbers.fill_null(np.nan)

    def _requirefilled(self, column: polars.Series) -> None:
        if column.has_nulls():
            rows = column.is_null().arg_true()
            where = list_offenders(map(self.row_name, rows.head(5))) + _more(len(rows))
            raise SourceDataError(f"{column.name} is empty in {where}. {_REMEDY[column.name]}")

    def _require_known(self, column: polars.Series, known: polars.Series) -> None:
        if not known.all():
            rows = (~known).arg_true()
            where = list_offenders(f"{column[k]!r} in {self.row_name(k)}" for k in rows.head(5))
            raise SourceDataError(f"{column.name} is {where}{_more(len(rows))}. {_REMEDY[column.name]}")


def _more(count: int) -> str:
    return f" and {count - 5} more" if count > 5 else ""


def _check_columns(path: Path, present: list[str]) -> None:
    """Raise if a file lacks the columns of a log."""
    seen = any(key in present for key in SEEN)
    missing = [] if "source" in present else ["source"]
    if "changed" not in present and not seen:
        missing.append("changed")
    if "time" not in present and (seen or "elapsed" not in present):
        missing.append("time")
    if missing:
        raise SourceDataError(
            f"{path} has no column {list_offenders(map(repr, missing))}; "
            f"it has {list_offenders(map(repr, present))}. A log has source, time and changed (or hash, etag "
            "or status), in CSV parted by commas. Name its own columns with --columns url=source,..., or "
            "columns={...} in Python."
        )
