"""Input tables: sources, rates, times, importances, hosts, host limits.

A CSV file is read as text and converted here, so that a source called 007 keeps its name and a cell that is
no number is named by its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.formatting import count
from freshopt.logs.log_files import JSON_LINES, is_access_log, read_json_lines
from freshopt.logs.read_planner import is_planner, planned_rates
from freshopt.logs.tables import UNIT, read_table, require_file, table_ending, without_blank_end
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.scheduling.lifetime_table import read_lifetimes
from freshopt.scheduling.rate_table import RateTable, read_rates
from freshopt.terminal.objective_options import NAMES, Parameters
from freshopt.units import check_time_unit

if TYPE_CHECKING:
    import polars

_NUMBERS = (
    *("change_rate", "importance", "min_rate", "max_rate", "refresh_cost", "changed_cost", "rate", "limit"),
    *("request_rate", "stale_while_revalidate", "lifetime", "interval", "success", *NAMES),
)
_TEXTS = ("host", UNIT)
# Columns that a log of crawls has, and sources have not.
_OF_LOGS = {"source", "time"}
_LABELS = ("source", "name")
_FLAGS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
_OR = {"source": " or integers", "name": " or integers", "host": " or integers", "signalled": " or flags"}


class SourceTable(NamedTuple):
    """Sources, the columns that are parameters of objectives, and all columns."""

    sources: Sources
    parameters: Parameters
    frame: polars.DataFrame


def sources_of(path: Path, time_unit: str | None) -> SourceTable:
    """Return the sources of a table with a column change_rate.

    Of a plan's folder it is the table change_rates.
    """
    path = _table_in(path, "change_rates")
    if path.is_file() and is_access_log(path):
        raise _no_sources(path)
    frame = table_of(path)
    if "change_rate" not in frame.columns and set(frame.columns) >= _OF_LOGS:
        raise _no_sources(path)
    unit = unit_of(frame, path, time_unit)
    try:
        sources = Sources.from_frame(frame, unit)
    except SourceDataError as error:
        raise SourceDataError(f"{path}: {error}") from None
    return SourceTable(sources, Parameters(**{name: _parameter(frame, name, path) for name in NAMES}), frame)


def rates_of(
    path: Path, time_unit: str | None, *, retry_at_once: bool = False
) -> tuple[polars.DataFrame, str]:
    """Return a table of rates (source, rate) and its unit.

    With `retry_at_once` rates of attempts become those of successes. Of a plan's folder it is the table
    rates.
    """
    path = _table_in(path, "rates")
    frame = table_of(path)
    unit = unit_of(frame, path, time_unit)
    try:
        rates = read_rates(frame, unit)
        if retry_at_once:
            frame = frame.drop("success", strict=False).with_columns(rate=rates.of_successes().rates)
    except SourceDataError as error:
        raise SourceDataError(f"{path}: {error}") from None
    return frame, unit


def lifetimes_of(path: Path, time_unit: str | None) -> tuple[polars.DataFrame, str]:
    """Return a table of lifetimes (source, lifetime) and its unit."""
    frame = table_of(path)
    unit = unit_of(frame, path, time_unit)
    try:
        read_lifetimes(frame, unit)
    except SourceDataError as error:
        raise SourceDataError(f"{path}: {error}") from None
    return frame, unit


def rates_in_force_of(path: Path, time_unit: str) -> RateTable:
    """Return the rates of an earlier plan, a planner or a table.

    A table has the columns source and rate, or interval in place of the rate: empty where never.
    """
    import polars

    if not path.exists():
        raise SourceDataError(f"there is no folder or file {path}. Name the folder of a plan, or a table.")
    if is_planner(path):
        return read_rates(*planned_rates(path))
    path = _table_in(path, "rates")
    frame = table_of(path)
    if "rate" not in frame.columns and "interval" in frame.columns:
        interval = numbers_of(frame["interval"], path).cast(polars.Float64)
        if bool((interval <= 0.0).any()):
            raise SourceDataError(
                f"interval in {path} is not > 0 throughout. Correct it, or leave it empty for never."
            )
        frame = frame.with_columns((1.0 / interval).fill_null(0.0).alias("rate"))
    unit = unit_of(frame, path, None) if UNIT in frame.columns else time_unit
    try:
        return read_rates(frame, unit)
    except SourceDataError as error:
        raise SourceDataError(f"{path}: {error}") from None


def _table_in(path: Path, name: str) -> Path:
    """Return a plan folder's table; what is no folder as it is."""
    if not path.is_dir():
        return path
    there = [table for table in (path / f"{name}.parquet", path / f"{name}.csv") if table.exists()]
    if not there:
        raise SourceDataError(f"{path} holds no table {name}. Name the folder of a plan, or a table.")
    return there[0]


def _no_sources(path: Path) -> SourceDataError:
    """Return the error of a log where sources belong."""
    return SourceDataError(
        f"{path} is a log of crawls, not a table of sources. Estimate their change rates first: freshopt "
        f"estimate {path} --out change_rates.csv."
    )


def times_of(path: Path) -> tuple[polars.DataFrame, Array]:
    """Return a schedule's rows and its times >= 0."""
    frame = table_of(path)
    require_columns(frame, ("source", "time"), path)
    time = numbers_of(frame["time"], path).to_numpy()
    wrong = np.flatnonzero(~((time >= 0.0) & (time < np.inf))).tolist()
    if wrong:
        where = list_offenders(f"row {row + 1}: {time[row]:g}" for row in wrong)
        raise SourceDataError(f"time in {path} is no number >= 0 in {where}. Correct these rows.")
    return frame, np.asarray(time, dtype=np.float64)


def importance_of(path: Path | None) -> Callable[[Any], Array] | None:
    """Return the function from source names to importances.

    The table has the columns source and importance.
    """
    if path is None:
        return None
    weights = column_by_source(path, "importance")
    wrong = [f"'{key}': {weight:g}" for key, weight in weights.items() if not weight >= 0.0]
    if wrong:
        raise SourceDataError(
            f"importance in {path} is not a number >= 0 for {list_offenders(wrong)}. Correct these rows."
        )
    return lambda names: np.array(look_up(weights, names.tolist(), "importance", path), dtype=np.float64)


def hosts_of(path: Path | None) -> Callable[[Any], npt.NDArray[Any]] | None:
    """Return the function from source names to hosts.

    The table has the columns source and host.
    """
    if path is None:
        return None
    hosts = column_by_source(path, "host")
    return lambda names: np.array(look_up(hosts, names.tolist(), "host", path))


def starts_of(path: Path, names: npt.NDArray[Any]) -> list[Any]:
    """Return since when each source exists, None where unknown.

    The table has the columns source and start.
    """
    frame = table_of(path)
    if "start" not in frame.columns or frame["start"].null_count() == len(frame):
        require_columns(frame, ("source", "start"), path)
    known = column_by_source(path, "start", may_be_empty=True)
    return [known.get(str(name)) for name in names.tolist()]


def host_limits_of(path: Path | None, time_unit: str) -> dict[str, float] | None:
    """Return the host limits of a table, per `time_unit`.

    The table has the columns host and limit.
    """
    if path is None:
        return None
    frame = table_of(path)
    unit_of(frame, path, time_unit)
    require_columns(frame, ("host", "limit"), path)
    twice = frame["host"].filter(frame["host"].is_duplicated()).unique(maintain_order=True).to_list()
    if twice:
        offenders = list_offenders(f"'{name}'" for name in twice)
        raise SourceDataError(f"{path} names host {offenders} more than once. Keep one row each.")
    if len(frame) == 0:
        raise SourceDataError(f"{path} has no rows. Add a host with its limit, or leave --host-limits out.")
    return dict(zip(frame["host"].to_list(), frame["limit"].to_list(), strict=True))


def column_by_source(path: Path, column: str, *, may_be_empty: bool = False) -> dict[str, Any]:
    """Return a table's column as a map from source."""
    frame = table_of(path)
    require_columns(frame, ("source",) if may_be_empty else ("source", column), path)
    keys = [str(name) for name in frame["source"].to_list()]
    given = dict(zip(keys, frame[column].to_list(), strict=True))
    if len(given) < len(keys):
        twice = frame["source"].filter(frame["source"].is_duplicated()).unique(maintain_order=True).to_list()
        offenders = list_offenders(f"'{name}'" for name in twice)
        raise SourceDataError(f"{path} names {offenders} more than once. Keep one row each.")
    return given


def look_up(given: dict[str, Any], names: Iterable[object], what: str, path: Path) -> list[Any]:
    """Return each name's value."""
    keys = [str(name) for name in names]
    missing = [f"'{key}'" for key in keys if key not in given]
    if missing:
        raise SourceDataError(f"{path} has no {what} for {list_offenders(missing)}. Add a row for each.")
    return [given[key] for key in keys]


def require_columns(frame: polars.DataFrame, columns: Iterable[str], path: Path) -> None:
    """Raise if a column is missing or has empty cells."""
    for column in columns:
        if column not in frame.columns:
            raise SourceDataError(
                f"{path} has no column '{column}', it has {list_offenders(frame.columns)}. Rename or add it."
            )
        nulls = frame[column].null_count()
        if nulls:
            raise SourceDataError(
                f"column '{column}' of {path} has {count(nulls, 'empty cell')}. Fill them or drop the rows."
            )


def _parameter(frame: polars.DataFrame, name: str, path: Path) -> Array | None:
    """Return a parameter of each source, or None.

    An empty cell of the column cap means no cap.
    """
    if name not in frame.columns:
        return None
    column = frame[name].fill_null(np.inf) if name == "cap" else frame[name]
    nulls = column.null_count()
    if nulls:
        raise SourceDataError(
            f"column '{name}' of {path} has {count(nulls, 'empty cell')}. Fill them or drop the rows."
        )
    return column.to_numpy()


def unit_of(frame: polars.DataFrame, path: Path, asked: str | None) -> str:
    """Return the time unit of a table.

    Its column `UNIT` says it; otherwise it is the one asked for, or day.
    """
    if UNIT not in frame.columns or len(frame) == 0:
        return asked or "day"
    named = frame[UNIT].unique(maintain_order=True).to_list()
    if len(named) > 1 or named[0] is None:
        raise SourceDataError(
            f"column '{UNIT}' of {path} does not say one unit for all rows. Write the same in each."
        )
    try:
        unit = check_time_unit(named[0])
    except SourceDataError as error:
        raise SourceDataError(f"{path}: {error}") from None
    if asked not in (None, unit):
        raise SourceDataError(f"{path} is per {unit}, and not per {asked}. Leave --time-unit {asked} out.")
    return unit


def table_of(path: Path) -> polars.DataFrame:
    """Read a table with its known columns in their types."""
    import polars

    require_file(path)
    if path.name.lower().endswith(JSON_LINES):
        frame = read_json_lines(path)
    else:
        is_text = table_ending(path) != ".parquet"
        frame = read_table(path, as_text=is_text)
        frame = without_blank_end(frame) if is_text else frame
    for name in frame.columns:
        column = frame[name]
        if name in (*_LABELS, *_TEXTS, "signalled"):
            frame = frame.with_columns(column := _plain(column, path))
        if name in _NUMBERS:
            frame = frame.with_columns(numbers_of(column, path))
        elif name in _TEXTS:
            frame = frame.with_columns(column.cast(polars.String))
        elif name in _LABELS and column.dtype == polars.String:
            numbers = column.cast(polars.Int64, strict=False)
            # Only what prints the same is a number: 007 and +7 are names.
            if (numbers.cast(polars.String) == column).fill_null(False).all():
                frame = frame.with_columns(numbers)
        elif name == "signalled" and column.dtype == polars.String:
            text = column.str.strip_chars().str.to_lowercase()
            words = text.replace_strict(_FLAGS, default=None, return_dtype=polars.Boolean)
            _require(column, words, path, "Write true or false.")
            frame = frame.with_columns(words)
    return frame


def _plain(column: polars.Series, path: Path) -> polars.Series:
    """Return labels, units and flags as text.

    Labels may be integers too; any other type raises.
    """
    import polars

    if column.dtype in (polars.Categorical, polars.Enum) or str(column.dtype) in ("Int128", "UInt128"):
        column = column.cast(polars.String)
    if column.name == "signalled" and column.dtype.is_numeric():
        column = column.cast(polars.String)
    wanted = column.dtype in (polars.String, polars.Null) or column.dtype.is_integer()
    if not (wanted or (column.name == "signalled" and column.dtype == polars.Boolean)):
        raise SourceDataError(
            f"column '{column.name}' of {path} holds {column.dtype}. Write text{_OR.get(column.name, '')}."
        )
    if column.dtype == polars.String:
        rows = column.str.contains("\0", literal=True).fill_null(False).arg_true().to_list()
        if rows:
            where = list_offenders(f"{column[row]!r} in row {row + 1}" for row in rows)
            raise SourceDataError(f"{column.name} in {path} is {where}. Leave the zero bytes out.")
    return column


def numbers_of(column: polars.Series, path: Path) -> polars.Series:
    """Return a column as numbers; empty cells stay empty."""
    import polars

    if column.dtype == polars.String:
        numbers = column.str.strip_chars().cast(polars.Float64, strict=False)
        _require(column, numbers, path, "Write a number, without a unit.")
        return numbers
    if not column.dtype.is_numeric():
        raise SourceDataError(f"column '{column.name}' of {path} holds {column.dtype}. Make it numbers.")
    return column.cast(polars.Float64)


def _require(column: polars.Series, read: polars.Series, path: Path, remedy: str) -> None:
    """Raise if non-empty cells could not be read."""
    rows = (read.is_null() & column.is_not_null()).arg_true().to_list()
    if rows:
        where = list_offenders(f"{column[row]!r} in row {row + 1}, line {row + 2}" for row in rows)
        raise SourceDataError(f"{column.name} in {path} is {where}. {remedy}")
