"""`Cells`: columns of a file, converted with precise messages.

What the owner of a table wrote (names, times, numbers) is refused where it cannot be used. What strangers
wrote (a status, a date of last change) is left out, counted and told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shown, warn
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.logs.file_kinds import Frame
from freshopt.logs.row_outcomes import ABSENT
from freshopt.logs.source_index import Codes, code_integers, ranked_names
from freshopt.logs.timestamps import Moments, read_moments, read_text, scattered
from freshopt.logs.told_dates import read_dates, read_text_dates
from freshopt.numerics.arrays import Array, IntArray, label_array

# What to do about a cell that cannot be used: of columns that are told apart by more than their kind.
REMEDIES: Mapping[str, str] = {
    **dict.fromkeys(("source", "name", "host"), "Fill it in without zero bytes, or drop the row."),
    "changed": "Write 1 where the source had changed since its previous crawl, else 0.",
    "elapsed": "Write the time since the previous crawl as a number.",
    "last_modified": "Write a time such as those of the column time, or leave it empty where it is not told.",
    "status": "Write an HTTP status such as 200 or 304, 0 where there was no answer.",
    "changes": "Write how many changes were found, or leave it empty where that is unknown.",
    "signalled": "Write true or false.",
    "time_unit": "Write text without zero bytes.",
}
_NUMBER, _FILL = "Write a number, without a unit.", "Fill it in, or drop the row."
# Yes and no in words; in those of spreadsheets too.
_YES = "1 1.0 true t yes y changed modified updated wahr ja j vrai oui verdadero sí si vero sì sim waar"
_NO = "0 0.0 false f no n unchanged unmodified same falsch nein faux non falso não nao onwaar nee"
FLAGS = {
    **dict.fromkeys((*_YES.split(), "has changed"), 1.0),
    **dict.fromkeys((*_NO.split(), "not changed", "not modified", "not_modified", "no change"), 0.0),
}


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Columns of one file, converted with precise error messages.

    - `present`: All columns, by the names that they have here.
    - `head`: Lines before the first row; None where rows are no lines of text.
    - `row`: Number of each row, where rows were left out.
    - `comma`: Whether numbers have a comma for a point, as where semicolons part the cells.
    - `own`: The names that a table's columns have in the file.
    """

    path: Path
    present: tuple[str, ...]
    head: int | None = 1
    row: IntArray | None = None
    comma: bool = False
    own: tuple[str, ...] = ()

    def of_rows(self, rows: IntArray) -> Cells:
        """Return the cells of some rows, which keep their names."""
        return replace(self, row=rows if self.row is None else self.row[rows])

    def row_name(self, k: int) -> str:
        """Return the name of row k in messages.

        A cell with a line break in it shifts the lines below, not the rows.
        """
        k = k if self.row is None else int(self.row[k])
        if isinstance(self.path, Frame):
            return f"row {k}"
        if self.head == 0:
            return f"line {k + 1} of {self.path}"
        line = "" if self.head is None else f", line {k + 1 + self.head}"
        return f"row {k + 1}{line} of {self.path}"

    def labels(self, column: polars.Series) -> polars.Series:
        """Return names as text or integers; any other type is refused."""
        if column.dtype in (polars.Categorical, polars.Enum) or str(column.dtype) in ("Int128", "UInt128"):
            column = column.cast(polars.String)  # NumPy has no such integers: their digits are names
        if column.dtype != polars.String:
            if not (column.dtype.is_integer() or column.dtype == polars.Null):
                what = "A source is a name" if column.name == "source" else "Write text"
                raise SourceDataError(
                    f"column '{column.name}' of {self.path} holds {column.dtype}. {what} or an integer. "
                    "Convert the column to text."
                )
            return column
        if self.head is None:
            return column
        numbers = column.cast(polars.Int64, strict=False)
        # Only what prints the same is a number: 007 and +7 are names.
        same = len(numbers) > 0 and (numbers.cast(polars.String) == column).fill_null(value=False).all()
        return numbers if same else column

    def texts(self, column: polars.Series) -> polars.Series:
        """Return names as text, without zero bytes."""
        text = self.labels(column).cast(polars.String)
        self._require_known(text, ~text.str.contains("\0", literal=True).fill_null(value=False))
        return text

    def sources(self, column: polars.Series) -> tuple[npt.NDArray[Any], Codes]:
        """Return the sorted labels and each row's position among them."""
        self.require_filled(column)
        column = self.labels(column)
        if column.dtype != polars.String:
            return code_integers(column.to_numpy())
        labels, codes = ranked_names(column)
        if labels.str.contains("\0", literal=True).any():
            self.texts(column)
        return label_array(labels.to_list()), codes

    def dates(self, column: polars.Series, time: Moments | None) -> Moments:
        """Return dates of last change beside crawls; NaN or NaT for none."""
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
        self.require_filled(column)
        if column.dtype.is_decimal() or str(column.dtype) in ("Int128", "UInt128"):  # NumPy has none
            column = column.cast(polars.String)
        if column.dtype == polars.String:
            return read_text(self._pointed(column), column.name, self.row_name, time_unit, dated=dated)
        if column.dtype == polars.Date or isinstance(column.dtype, polars.Datetime):
            # What is stored counts from 1970 in UTC, whatever the zone. To cast it may panic: nothing keeps a
            # file from holding days beyond any calendar.
            unit = column.dtype.time_unit if isinstance(column.dtype, polars.Datetime) else "D"
            return column.to_physical().cast(polars.Int64).to_numpy().view(f"datetime64[{unit}]")
        numbers = column if column.dtype.is_numeric() else self.numbers(column)
        return read_moments(numbers.to_numpy(), column.name, self.row_name, time_unit, dated=dated)

    def flags(self, column: polars.Series) -> polars.Series:
        """Return yes and no, in words or numbers; empty cells stay empty."""
        column = filled(column)
        if column.dtype in (polars.Boolean, polars.Null):
            return column
        if column.dtype == polars.String:
            text = column.str.strip_chars().str.to_lowercase()
            known = text.replace_strict(FLAGS, default=None, return_dtype=polars.Float64)
        else:
            known = self.numbers(column).fill_nan(None)
        self._require_known(column, known.is_in([0.0, 1.0]).fill_null(False) | column.is_null())
        return known

    def statuses(self, column: polars.Series) -> Array:
        """Return HTTP statuses, NaN where a cell says nothing readable."""
        column = filled(column)
        if column.dtype != polars.String:
            return self.numbers(column).fill_null(np.nan).to_numpy()
        numbers = column.str.strip_chars().cast(polars.Float64, strict=False)
        lost = (numbers.is_null() & column.is_not_null()).arg_true()
        if len(lost):
            k = int(lost[0])
            warn(
                f"status is no number in {count(len(lost), 'row')}, such as {shown(column[k])} in "
                f"{self.row_name(k)}. It says nothing there. {REMEDIES['status']}"
            )
        return numbers.fill_null(np.nan).to_numpy()

    def numbers(self, column: polars.Series) -> polars.Series:
        """Return a column as float64; empty cells stay empty."""
        if column.dtype == polars.String:
            numbers = self._pointed(column).str.strip_chars().cast(polars.Float64, strict=False)
            self._require_known(column, numbers.is_not_null() | column.is_null())
            return numbers
        if not column.dtype.is_numeric():
            raise SourceDataError(
                f"column '{column.name}' of {self.path} holds {column.dtype}. {self._remedy(column.name)}"
            )
        return column.cast(polars.Float64)

    def _pointed(self, column: polars.Series) -> polars.Series:
        """Return numbers in text with a point for their comma."""
        return column.str.replace(r"^(\s*-?[0-9]+),([0-9]+\s*)$", "${1}.${2}") if self.comma else column

    def require_filled(self, column: polars.Series) -> None:
        """Raise if a column has empty cells."""
        if column.has_nulls():
            rows = column.is_null().arg_true()
            where = list_offenders(map(self.row_name, rows), len(rows))
            remedy = REMEDIES.get(column.name, _FILL)
            raise SourceDataError(f"{column.name} is empty in {where}. {remedy}")

    def _require_known(self, column: polars.Series, known: polars.Series) -> None:
        if not known.all():
            rows = (~known).arg_true()
            where = list_offenders((f"{shown(column[k])} in {self.row_name(k)}" for k in rows), len(rows))
            raise SourceDataError(f"{column.name} is {where}. {self._remedy(column.name)}")

    def _remedy(self, name: str) -> str:
        return REMEDIES.get(name, _NUMBER)


def filled(column: polars.Series) -> polars.Series:
    """Return a column whose texts that say nothing are empty cells."""
    if column.dtype != polars.String:
        return column
    text = column.str.strip_chars().to_frame()
    absent = polars.col(column.name).str.to_lowercase().is_in(ABSENT)
    return text.select(polars.when(~absent).then(polars.col(column.name)))[column.name]
