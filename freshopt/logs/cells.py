"""`Cells`: columns of a log's file, converted with precise messages.

What the owner of a log wrote (names, times, `changed`) is refused where it cannot be used. What strangers
wrote (a status, a date of last change) is left out, counted and told.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shown, warn
from freshopt.formatting import count
from freshopt.logs.row_outcomes import ABSENT
from freshopt.logs.source_index import Codes, code_integers, ranked_names
from freshopt.logs.timestamps import Moments, read_moments, read_text, scattered
from freshopt.logs.told_dates import read_dates, read_text_dates
from freshopt.numerics.arrays import Array, label_array

if TYPE_CHECKING:
    import polars

_REMEDY = {
    "source": "Fill it in without zero bytes, or drop the row.",
    "time": "Fill it in, or drop the row.",
    "changed": "Write 1 where the source had changed since its previous crawl, else 0.",
    "elapsed": "Write the time since the previous crawl as a number.",
    "last_modified": "Write a time such as those of the column time, or leave it empty where it is not told.",
    "status": "Write an HTTP status such as 200 or 304, 0 where there was no answer.",
    "changes": "Write how many changes were found, or leave it empty where that is unknown.",
}
_FLAGS = {"true": 1.0, "false": 0.0}


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

        self._require_filled(column)
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

    def dates(self, column: polars.Series, time: Moments | None) -> Moments:
        """Return dates of last change, beside the times of crawls.

        NaN or NaT where there is none to use.
        """
        import polars

        dated = time is not None and time.dtype.kind == "M"
        if column.dtype == polars.String:
            found = read_text_dates(column, dated, self.row_name)
        elif column.dtype == polars.Null:
            found = None
        else:
            known = column.is_not_null().arg_true().to_numpy().astype(np.int64)
            typed = self.times(column.filter(column.is_not_null()), dated=False)
            found = read_dates(scattered(typed, known, len(column)), dated, self.row_name)
        return np.full(len(column), np.nan) if found is None else found

    def times(
        self, column: polars.Series, time_unit: str | None = None, *, dated: bool | None = None
    ) -> Moments:
        """Return times as numbers or UTC moments.

        Which of both short numbers are, the column decides where its `time_unit` is given, or `dated`.
        """
        import polars

        self._require_filled(column)
        if column.dtype.is_decimal() or str(column.dtype) in ("Int128", "UInt128"):  # NumPy has none
            column = column.cast(polars.String)
        if column.dtype == polars.String:
            return read_text(column, column.name, self.row_name, time_unit, dated=dated)
        if column.dtype == polars.Date or isinstance(column.dtype, polars.Datetime):
            # What is stored counts from 1970 in UTC, whatever the zone. To cast it may panic: nothing keeps a
            # file from holding days beyond any calendar.
            unit = column.dtype.time_unit if isinstance(column.dtype, polars.Datetime) else "D"
            return column.to_physical().cast(polars.Int64).to_numpy().view(f"datetime64[{unit}]")
        numbers = column if column.dtype.is_numeric() else self.numbers(column)
        return read_moments(numbers.to_numpy(), column.name, self.row_name, time_unit, dated=dated)

    def flags(self, column: polars.Series, *, alone: bool) -> npt.NDArray[np.float64] | npt.NDArray[np.bool_]:
        """Return `changed` as numbers or booleans, NaN where a cell is empty.

        `alone` says that no other column tells changes: then not all are empty.
        """
        import polars

        column = filled(column)
        if column.null_count() == len(column):
            if alone:
                self._require_filled(column)
            return np.full(len(column), np.nan)
        if column.dtype == polars.Boolean:
            return column.cast(polars.Float64).to_numpy() if column.has_nulls() else column.to_numpy()
        if column.dtype == polars.String:
            text = column.str.strip_chars().str.to_lowercase()
            words = text.replace_strict(_FLAGS, default=None, return_dtype=polars.Float64)
            known = words.fill_null(text.cast(polars.Float64, strict=False))
        else:
            known = self.numbers(column).fill_nan(None)
        self._require_known(column, known.is_in([0.0, 1.0]).fill_null(False) | column.is_null())
        return known.fill_null(np.nan).to_numpy()

    def statuses(self, column: polars.Series) -> Array:
        """Return HTTP statuses, NaN where a cell says nothing readable."""
        import polars

        column = filled(column)
        if column.dtype != polars.String:
            return self.numbers(column).to_numpy()
        numbers = column.str.strip_chars().cast(polars.Float64, strict=False)
        lost = (numbers.is_null() & column.is_not_null()).arg_true()
        if len(lost):
            k = int(lost[0])
            warn(
                f"status is no number in {count(len(lost), 'row')}, such as {shown(column[k])} in "
                f"{self.row_name(k)}. It says nothing there. {_REMEDY['status']}"
            )
        return numbers.fill_null(np.nan).to_numpy()

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

    def _require_filled(self, column: polars.Series) -> None:
        if column.has_nulls():
            rows = column.is_null().arg_true()
            where = list_offenders(map(self.row_name, rows.head(5))) + more_than_five(len(rows))
            raise SourceDataError(f"{column.name} is empty in {where}. {_REMEDY[column.name]}")

    def _require_known(self, column: polars.Series, known: polars.Series) -> None:
        if not known.all():
            rows = (~known).arg_true()
            where = list_offenders(f"{column[k]!r} in {self.row_name(k)}" for k in rows.head(5))
            raise SourceDataError(
                f"{column.name} is {where}{more_than_five(len(rows))}. {_REMEDY[column.name]}"
            )


def more_than_five(many: int) -> str:
    """Return how many rows a message leaves out."""
    return f" and {many - 5} more" if many > 5 else ""


def filled(column: polars.Series) -> polars.Series:
    """Return a column whose texts that say nothing are empty cells."""
    import polars
    from polars import col

    if column.dtype != polars.String:
        return column
    text = column.str.strip_chars().to_frame()
    absent = col(column.name).str.to_lowercase().is_in(ABSENT)
    return text.select(polars.when(~absent).then(col(column.name)))[column.name]
