"""`SourceTable`: sources of a plan with the rates in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.live.database import Database
from freshopt.live.own_columns import columns_in
from freshopt.numerics.arrays import Array, BoolArray, IntArray

_COLUMNS = (
    "id, name, host, importance, refresh_cost, min_rate, max_rate, change_rate, rate, last_crawl, next_due, "
    "tried_rate"
)


@dataclass(frozen=True, slots=True, eq=False)
class SourceTable:
    """Sources that a planner has, in the order in which they came.

    Attributes
    ----------
    id : ndarray of int, shape (n,)
        Their numbers in the database.
    name, host : ndarray of object, shape (n,)
        A source without a host has None.
    importance, refresh_cost, min_rate, max_rate : ndarray, shape (n,)
    change_rate, planned_rate : ndarray, shape (n,)
        Of the plan; NaN before a source is planned.
    last_crawl, next_due : ndarray, shape (n,)
        NaN where there is none.
    tried_rate : ndarray, shape (n,)
        Rate at which sources that are down are tried; inf of the others.
    columns : mapping of str to ndarray, shape (n,)
        One's own, that the planner keeps.
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
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

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
        return cls(np.array(identity, dtype=np.int64), names, hosts, *floats, own)

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
