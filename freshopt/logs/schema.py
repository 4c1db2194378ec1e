"""One reader for all tables, by schemas of their columns.

A column has one kind of cells wherever it stands: a source is a name or an integer, a rate a number, a flag
yes or no. A kind of table is a `Schema`: its title, the columns that it must have, without empty cells, the
one of which each row has its own, and those with numbers of 0 or more. Files are read as `Table`; what is
refused of dataframes is refused in the same words.

A CSV file is read as text and converted here, so that a source called 007 keeps its name and a cell that is
no number is named by its row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shown
from freshopt.heavy import polars
from freshopt.logs.cells import Cells
from freshopt.logs.file_kinds import Frame
from freshopt.logs.log_files import log_frame
from freshopt.logs.synonyms import guessed, guessed_of_table
from freshopt.logs.tables import UNIT
from freshopt.numerics.arrays import Array
from freshopt.units import check_time_unit, convert_time, duration_of, rate_of

_NUMBERS = (
    *("change_rate", "importance", "min_rate", "max_rate", "refresh_cost", "changed_cost", "rate"),
    *("request_rate", "stale_while_revalidate", "lifetime", "interval", "success"),
    *("scale", "exponent", "cap", "deadline"),
)
_LABELS, _TEXTS, _FLAGS = ("source", "name"), ("host", "group", UNIT), ("signalled",)


class Schema(NamedTuple):
    """A kind of table.

    - `title`: Empty where the columns that it has are not those of a kind.
    - `needed`: Columns that must be there; where one of several does, with | between them.
    - `key`: Column of which each row has its own value.
    - `amounts`: Columns whose cells are finite numbers of 0 or more.
    - `written`: Columns of rates or times as options have them, with units.
    - `gaps`: Needed columns that may have empty cells.
    - `rows`: What to do where there are no rows; by default there may be none.
    - `has`, `remedy`: What it has, in words, and what to do where a column is missing.
    - `access`: Whether it may be an access log.
    - `option`: That takes it beside a log, by its name in Python.
    """

    title: str
    needed: tuple[str, ...] = ()
    key: str | None = "source"
    amounts: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    rows: str = ""
    has: str = ""
    remedy: str = "Rename or add the columns."
    access: bool = False
    option: str = ""


ANY = Schema("A table", key=None)
# A table whose needed column an option names.
NAMED = Schema("", key=None, remedy="Correct the name, or add the column.")
# Change rates of sources are of no use where they are learnt, whatever their unit.
LISTED = Schema("A list of sources", ("source",), key=None, written=("min_rate", "max_rate", "change_rate"))
IMPORTANCES = Schema(
    "A table of importances", ("source", "importance"), amounts=("importance",), option="importance"
)
HOSTS = Schema("A table of hosts", ("source", "host"))
STARTS = Schema("A table of births", ("source", "start"), gaps=("start",))
HOST_LIMITS = Schema(
    "A table of host limits",
    ("host", "limit|min_interval"),
    key="host",
    rows="Add a host with its limit, or leave --host-limits out.",
    option="host_limits",
)
GROUP_LIMITS = Schema("A table of limits", ("group", "at_most|at_least"), key="group", option="nested_limits")
SOURCE_LIMITS = Schema(
    "A table of limits",
    ("source", "min_interval|max_interval|min_rate|max_rate"),
    written=("min_rate", "max_rate"),
    rows="Add a row a source.",
    option="limits",
)
COSTS = Schema("A table of costs", ("source", "cost"))
REFRESH_COSTS = Schema("A table of costs", ("source", "refresh_cost"))
CHANGED_COSTS = Schema("A table of costs", ("source", "changed_cost"), amounts=("changed_cost",))
CHANGE_RATES = Schema("A table of change rates", ("source", "change_rate"))
CHANGE_RATE_COLUMNS = Schema("A table of sources", ("change_rate",), key=None)
SOURCE_ROWS = Schema("A table of sources", ("source",))
EDGES = Schema("A graph", ("upstream", "downstream"), key=None)
SIGNALS = Schema("A table of signals", ("source", "time"), key=None, rows="Leave it out.")
TIMES = Schema("A table of times", ("source", "time"), key=None, amounts=("time",))
RATES = Schema("A table of rates", ("source", "rate"))
# Intervals are empty for never.
RATES_IN_FORCE = Schema("A table of rates", ("source", "rate|interval"), written=("rate", "interval"))
_WRITTEN = "Check that it was written completely."
# A column of histories, and what its cells say of a row.
EVENT = "history"
START, CHANGE, END = "start", "change", "end"
HISTORY = Schema("A history", ("source", "time"), key=None, rows=_WRITTEN)
REQUESTS = Schema("A log of requests", ("source", "time"), key=None, rows=_WRITTEN, access=True)
CRAWLS = Schema(
    "A log",
    ("source", "changed|hash|etag|status", "time|elapsed"),
    key=None,
    rows="Check that the crawler wrote it.",
    has="source, time and changed (or hash, etag or status)",
    access=True,
)
# What crawls saw has its time.
SEEN_CRAWLS = CRAWLS._replace(needed=("source", "changed|hash|etag|status", "time"))
_BESIDE_LOGS = (IMPORTANCES, HOST_LIMITS, SOURCE_LIMITS, GROUP_LIMITS)
# Columns of what dbt writes.
_OF_DBT = ("unique_id", "max_loaded_at")


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table of one kind, with its columns in their types."""

    schema: Schema
    frame: polars.DataFrame
    cells: Cells

    @classmethod
    def read(cls, path: Path, schema: Schema = ANY) -> Table:
        """Read a CSV, Parquet or JSON lines file."""
        frame, cells = log_frame(path)
        own = frame.columns
        frame = _named(frame, schema, path)
        typed = [
            _typed(frame[name], cells, schema.amounts) for name in frame.columns if name not in schema.written
        ]
        table = cls(schema, frame.with_columns(typed), cells)
        require_columns(frame.columns, schema, path, names=own)
        for name in schema.needed:
            if name in frame.columns and name not in schema.gaps:
                cells.require_filled(frame[name])
        require_own(table.frame, schema, path)
        require_rows(frame, schema, path)
        for name in schema.amounts:
            if name in frame.columns:
                table._require_amounts(name)
        return table

    def unit(self, asked: str | None) -> str:
        """Return the time unit of a table.

        Its column `UNIT` says it; otherwise it is the one asked for, or day.
        """
        frame, path = self.frame, self.cells.path
        if UNIT not in frame.columns or len(frame) == 0:
            return asked or "day"
        named = frame[UNIT].unique(maintain_order=True).to_list()
        if len(named) > 1 or named[0] is None:
            raise SourceDataError(
                f"column '{UNIT}' of {path} does not say one unit for all rows. Write the same in each."
            )
        with naming(path):
            unit = check_time_unit(named[0])
        if asked not in (None, unit):
            raise SourceDataError(
                f"{path} is per {unit}, and not per {asked}. Leave --time-unit {asked} out."
            )
        return unit

    def numbers(self, column: str) -> Array:
        """Return a column as numbers, all of which are there."""
        self.cells.require_filled(self.frame[column])
        return np.asarray(self.cells.numbers(self.frame[column]).to_numpy(), dtype=np.float64)

    def rates(self, column: str, time_unit: str) -> list[float | None]:
        """Return a column of rates per `time_unit`, None where empty.

        They are written as options are; in a column of intervals, such as min_interval, as the time between
        two. A bare number is in the table's own unit, where it has one.
        """
        if column not in self.frame.columns:
            return [None] * self.frame.height
        interval = column.endswith("interval")
        read = duration_of if interval else rate_of
        unit = self.unit(None if UNIT in self.frame.columns else time_unit)
        per = convert_time(1.0, unit, time_unit)
        found: list[float | None] = []
        for k, cell in enumerate(self.frame[column].to_list()):
            value = None if cell is None else read(f"{column} in {self.cells.row_name(k)}", cell, unit)
            if value is not None and not 0.0 <= value < np.inf:
                raise SourceDataError(
                    f"{column} in {self.cells.row_name(k)} is {shown(cell)}. Write a finite rate >= 0."
                )
            found.append(None if value is None else 1.0 / (value * per) if interval else value / per)
        return found

    def by_key(self, column: str) -> dict[str, Any]:
        """Return a column by key, as text."""
        keys = map(str, self.frame[self.schema.key or "source"].to_list())
        return dict(zip(keys, self.frame[column].to_list(), strict=True))

    def of(self, names: Iterable[object], what: str = "row") -> Table:
        """Return the rows of sources; `what` is missing without one."""
        position = {str(name): k for k, name in enumerate(self.frame["source"].to_list())}
        rows = found_in(position, names, what, self.cells.path)
        return replace(self, frame=self.frame[rows], cells=self.cells.of_rows(np.array(rows, dtype=np.int64)))

    def _require_amounts(self, name: str) -> None:
        """Raise unless a column's numbers are finite and not negative."""
        cells = self.frame[name].to_numpy()
        empty = self.frame[name].is_null().to_numpy()
        wrong = np.flatnonzero(~((cells >= 0.0) & (cells < np.inf)) & ~empty).tolist()
        if wrong:
            key = self.schema.key
            named = self.cells.row_name if key is None else lambda k: f"'{self.frame[key][k]}'"
            where = list_offenders(f"{named(k)}: {cells[k]:g}" for k in wrong)
            raise SourceDataError(
                f"{name} in {self.cells.path} is no finite number >= 0 for {where}. Correct these rows."
            )


def column_of(path: Path | None, schema: Schema) -> Callable[[Any], npt.NDArray[Any]] | None:
    """Return the function from names to a table's second column, or None."""
    if path is None:
        return None
    column = schema.needed[1]
    given = Table.read(path, schema).by_key(column)
    return lambda names: np.array(found_in(given, names.tolist(), column, path))


def found_in(given: dict[str, Any], names: Iterable[object], what: str, path: Path) -> list[Any]:
    """Return each name's value."""
    keys = [str(name) for name in names]
    missing = [f"'{key}'" for key in keys if key not in given]
    if missing:
        others = "" if len(missing) < len(keys) else f"; it has {list_offenders(map(repr, given))}"
        raise SourceDataError(
            f"{path} has no {what} for {list_offenders(missing)}{others}. Add a row for each."
        )
    return [given[key] for key in keys]


def require_columns(
    present: Collection[str],
    schema: Schema,
    where: Path | str,
    remedy: Callable[[Sequence[Sequence[str]]], str] | None = None,
    names: Sequence[str] | None = None,
) -> None:
    """Raise if a column is missing; the remedy may depend on which.

    `names` are those of the file, where columns were found under others.
    """
    missing = [each for each in schema.needed if not any(name in present for name in each.split("|"))]
    if missing:
        first = [repr(each.split("|")[0]) for each in missing]
        told = schema.remedy if remedy is None else remedy([each.split("|") for each in missing])
        has = schema.has or " and ".join(each.replace("|", " or ") for each in schema.needed)
        kind = f"{schema.title} has {has}. " if schema.title else ""
        own = list_offenders(map(repr, names or present))
        raise SourceDataError(f"{where} has no column {list_offenders(first)}; it has {own}. {kind}{told}")


def require_log(names: Sequence[str], present: Collection[str], path: Path) -> None:
    """Raise if columns are those of another kind of table.

    Of those of a log some are `present`.
    """
    if {*_OF_DBT} <= {*names} and "changed" not in present:
        raise SourceDataError(
            f"{path} was written by dbt source freshness, and is no log. Make one of all such files: "
            f"freshopt import dbt {path.parent} --out log.parquet."
        )
    for kind in () if {"time", "elapsed"} & {*present} else _BESIDE_LOGS:
        needed = [each.split("|") for each in kind.needed]
        guess = guessed(names, [name for each in needed for name in each], {})
        found = {*guess.found.values(), *guess.several}
        if all(found & {*each} for each in needed):
            line = f"freshopt plan LOG --{kind.option.replace('_', '-')} {path}"
            told = f"{kind.option}= in Python" if isinstance(path, Frame) else line
            raise SourceDataError(
                f"{path} is {kind.title[0].lower()}{kind.title[1:]}, and no log. Pass it beside one: {told}."
            )


def require_own(frame: Any, schema: Schema, where: Path | str) -> None:  # noqa: ANN401 - of any library
    """Raise if two rows have the same key."""
    key = schema.key
    if key is None or key not in frame.columns or not bool(frame[key].is_duplicated().any()):
        return
    twice = frame[key].filter(frame[key].is_duplicated()).unique(maintain_order=True).to_list()
    what = "" if key == "source" else f"{key} "
    raise SourceDataError(
        f"{where} names {what}{list_offenders(map(repr, twice))} more than once. Keep one row each."
    )


def require_rows(frame: polars.DataFrame, schema: Schema, path: Path) -> None:
    """Raise if there are none and some are wanted."""
    if schema.rows and frame.height == 0:
        raise SourceDataError(f"{path} has column names but no rows. {schema.rows}")


@contextmanager
def naming(what: Path | str) -> Iterator[None]:
    """Raise what is refused within after a file's or option's name."""
    try:
        yield
    except SourceDataError as error:
        raise SourceDataError(f"{what}: {error}") from None


def _named(frame: polars.DataFrame, schema: Schema, path: Path) -> polars.DataFrame:
    """Return a table with the known names of columns beside its own."""
    needed = [name for each in schema.needed for name in each.split("|")]
    guess = guessed_of_table(frame.columns, needed, (*_LABELS, *_TEXTS, *_FLAGS, *_NUMBERS))
    for column, names in guess.several.items():
        raise SourceDataError(
            f"{path} has {len(names)} columns that may be the {column}, {list_offenders(map(repr, names))}. "
            f"Rename the one that is to {column}."
        )
    return frame.with_columns(polars.col(name).alias(to) for name, to in guess.found.items() if name != to)


def _typed(column: polars.Series, cells: Cells, amounts: Collection[str]) -> polars.Series:
    """Return a known column in its type, others as they are."""
    name = column.name
    if name in _LABELS:
        cells.texts(column)
        return cells.labels(column)
    if name in _TEXTS:
        return cells.texts(column)
    if name in _FLAGS:
        return cells.flags(column).cast(polars.Boolean)
    return cells.numbers(column) if name in _NUMBERS or name in amounts else column
