"""`SourceTable`: sources with the rates in force, and columns of one's own.

The latter are told at an opening, with sources that are added, or changed by hand in the table
``source_column``, and are read anew at every update. The table is made with the first column. What is told of
a source may come before it does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shown
from freshopt.live.database import Database, Row, keep, kept
from freshopt.logs.tables import frame_columns
from freshopt.modelling.sources import COLUMNS, Sources
from freshopt.numerics.arrays import Array, BoolArray, IntArray, own_columns

TABLE = (
    "CREATE TABLE IF NOT EXISTS source_column (source TEXT NOT NULL, name TEXT NOT NULL, "
    "number DOUBLE PRECISION, word TEXT, PRIMARY KEY (source, name))"
)
_ROW = ("source", "name", "number", "word")
# Columns whose names begin so are features (`freshopt.live.featured`).
FEATURE = "feature "
CHANGED_COST = "changed_cost"
_TAKEN = ("names", "time_unit", *(each for each in COLUMNS if each != CHANGED_COST))
# By column, the values of sources.
Columns: TypeAlias = dict[str, dict[str, float | str]]
_COLUMNS = (
    "id, name, host, importance, refresh_cost, min_rate, max_rate, change_rate, rate, last_crawl, next_due, "
    "tried_rate"
)


@dataclass(frozen=True, slots=True, eq=False)
class SourceTable:
    """Sources that a planner has, in the order in which they came.

    - `id` (n,): Their numbers in the database.
    - `name`, `host` ndarray of object (n,): A source without a host has None.
    - `importance`, `refresh_cost`, `min_rate`, `max_rate` (n,)
    - `change_rate`, `planned_rate` (n,): Of the plan; NaN before a source is planned.
    - `last_crawl`, `next_due` (n,): NaN where there is none.
    - `tried_rate` (n,): Rate at which sources that are down are tried; inf of the others.
    - `columns` mapping of str to ndarray (n,): One's own, that the planner keeps.
    """

    id: IntArray
    name: npt.NDArray[Any]
    host: npt.NDArray[Any]
    importance: Array
    refresh_cost: Array
    min_rate: Array
    max_rate: Array
    change_rate: Array
    planned_rate: Array
    last_crawl: Array
    next_due: Array
    tried_rate: Array
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict, kw_only=True)

    @classmethod
    def read(cls, database: Database, where: str = "") -> SourceTable:
        """Return the active sources for which a condition holds."""
        rows = database.rows(f"SELECT {_COLUMNS} FROM source WHERE active = 1 {where} ORDER BY id")
        columns = list(zip(*rows, strict=True)) if rows else [()] * (len(cls.__slots__) - 1)
        identity, name, host, *numbers = columns
        names, hosts = np.empty(len(rows), dtype=object), np.empty(len(rows), dtype=object)
        names[:], hosts[:] = name, host
        floats = [np.array(each, dtype=np.float64) for each in numbers]
        for unlimited in (3, 8):
            floats[unlimited] = np.where(np.isnan(floats[unlimited]), np.inf, floats[unlimited])
        own = columns_in(database, names.tolist(), where)
        return cls(np.array(identity, dtype=np.int64), names, hosts, *floats, columns=own)

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.id)

    @property
    def planned(self) -> BoolArray:
        """Which sources have a rate in force."""
        return ~np.isnan(self.planned_rate)

    @property
    def rate(self) -> Array:
        """Rates in force.

        Those of the plan, or those at which sources that are down are tried; NaN before a source is planned.
        """
        return np.minimum(self.planned_rate, self.tried_rate)

    @property
    def most(self) -> Array:
        """Largest rates.

        Each source's own, or that at which it is tried while it is down.
        """
        return np.minimum(self.max_rate, self.tried_rate)


def told_columns(given: Any) -> Columns:  # noqa: ANN401 - a table
    """Return the columns of a dataframe or mapping; empty cells tell nothing."""
    if isinstance(given, Mapping) and all(isinstance(one, Mapping) for one in given.values()):
        found = {str(name): dict(values) for name, values in given.items()}
    elif hasattr(given, "columns"):
        own = [name for name in given.columns if name != "source"]
        frame = frame_columns(given, "source_columns", ("source",), own)
        names = [*map(str, frame.pop("source").tolist())]
        found = {name: dict(zip(names, column.tolist(), strict=True)) for name, column in frame.items()}
    else:
        raise SourceDataError(
            f"source_columns is {shown(given)}. Pass a dataframe with the column source and your own, or a "
            "mapping of names to {source: value}."
        )
    wrong = [one for one in found.get(CHANGED_COST, {}).values() if isinstance(one, str) or one < 0.0]
    if wrong:
        raise SourceDataError(f"{CHANGED_COST} is {shown(wrong[0])}. Pass numbers of 0 or more.")
    filled = {}
    for name, values in found.items():
        empty = {source for source, one in values.items() if one is None or one != one or one == ""}
        there = {source: one for source, one in values.items() if source not in empty}
        if there:
            checked = own_columns({name: _alike([*there.values()])}, len(there), _TAKEN)[name]
            filled[name] = dict(zip(there, checked.tolist(), strict=True))
    return filled


def columns_beside(sources: Any, names: list[str], known: list[str]) -> Columns:  # noqa: ANN401 - as `add_many`
    """Return the columns that sources to add bring along.

    Those of `Sources`, and of a dataframe those that are `known`.
    """
    if isinstance(sources, Sources):
        given = dict(sources.columns)
        if CHANGED_COST in known and sources.changed_cost is not None:
            given[CHANGED_COST] = sources.changed_cost
        return {key: dict(zip(names, own.tolist(), strict=True)) for key, own in given.items()}
    own = [name for name in known if name in getattr(sources, "columns", ())]
    frame = frame_columns(sources, "the table of sources", own) if own else {}
    return told_columns({key: dict(zip(names, each.tolist(), strict=True)) for key, each in frame.items()})


def keep_columns(database: Database, told: Columns) -> bool:
    """Keep columns, within a transaction; return whether anything is new."""
    if not told:
        return False
    database.run(TABLE)
    kept_so_far = database.rows(f"SELECT {', '.join(_ROW)} FROM source_column")
    known = {(source, name): values for source, name, *values in kept_so_far}
    rows = [
        (source, name, *((None, one) if isinstance(one, str) else (one, None)))
        for name, values in told.items()
        for source, one in values.items()
    ]
    new = [row for row in rows if known.get(row[:2]) != [*row[2:]]]
    database.put("source_column", "source, name", _ROW, new)
    names: list[str] = json.loads(kept(database, "columns") or "[]")
    more = [name for name in told if name not in names]
    keep(database, "columns", json.dumps([*names, *more]))
    return bool(new or more)


def forget_column(database: Database, name: str) -> None:
    """Take a column away, within a transaction."""
    names: list[str] = json.loads(kept(database, "columns") or "[]")
    if name in names:
        keep(database, "columns", json.dumps([each for each in names if each != name]))
        database.run("DELETE FROM source_column WHERE name = ?", (name,))


def kept_names(database: Database, *, features: bool = False) -> list[str]:
    """Return the names of the columns, or features, that a planner keeps."""
    names: list[str] = json.loads(kept(database, "columns") or "[]")
    return [name for name in names if name.startswith(FEATURE) == features]


def columns_in(
    database: Database, sources: list[str], where: str = "", *, features: bool = False
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns, or features, of some active sources.

    `where` is a further condition.

    - raises SourceDataError if one has no value, or numbers stand beside text.
    """
    names = kept_names(database, features=features) if sources else []
    if not names:
        return {}
    rows: Iterable[Row] = database.rows(
        "SELECT source_column.source, source_column.name, number, word FROM source_column JOIN source ON "
        f"source.name = source_column.source WHERE active = 1 {where}"
    )
    values: dict[str, dict[str, Any]] = {name: {} for name in names}
    for source, name, number, word in rows:
        if name in values and (number is not None or word is not None):
            values[name][source] = word if number is None else number
    for name in names:
        _require(name, [source for source in sources if source not in values[name]])
    found = {name: [values[name][source] for source in sources] for name in names}
    return own_columns({name: _alike(column) for name, column in found.items()}, len(sources), ())


def require_values(database: Database, sources: list[str] | None = None) -> None:
    """Raise if a planned source, among `sources`, lacks a kept column."""
    lacks = (
        "SELECT name FROM source WHERE active = 1 AND NOT EXISTS (SELECT 1 FROM source_column AS own WHERE "
        "own.source = source.name AND own.name = ?)"
    )
    features = [name for name in kept_names(database, features=True) if name != f"{FEATURE}url"]
    for name in [*kept_names(database), *features]:
        if sources is None:
            missing = database.rows(f"{lacks} ORDER BY id", (name,))
        else:
            missing = database.rows_among(f"{lacks} AND name IN ({{marks}}) ORDER BY id", sources, name)
        _require(name, [source for (source,) in missing])


def _alike(column: list[Any]) -> npt.NDArray[Any]:
    """Return an array of numbers; where there is text, of objects."""
    return np.array(column, dtype=object if any(isinstance(one, str) for one in column) else None)


def _require(name: str, missing: list[str]) -> None:
    if missing:
        feature = name.startswith(FEATURE)
        reader = "prior reads" if feature else "plan reads" if name == CHANGED_COST else "objective reads"
        option = "--features" if feature else "--source-columns"
        raise SourceDataError(
            f"there is no {name} of {list_offenders(map(repr, missing))}, and this planner's {reader} it of "
            f"each source. Tell it by Planner(..., {option.lstrip('-').replace('-', '_')}=...), or {option}."
        )
