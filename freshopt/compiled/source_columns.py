"""Records of columns: what compiled passes read and write, by name.

Named tuples, which numba compiles as they are: a field costs what a variable does.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from freshopt.numerics.arrays import Array, IntArray, read_only

# Stands for a rate without bound: times the largest cost, 1e100, and a billion sources it is still a float.
LARGEST_RATE = 1e190

Data: TypeAlias = Any  # a column, a number that stands for n equal ones, or a tuple of them


class SourceColumns(NamedTuple):
    """Columns of sources, of n entries each or one number for all.

    - `signalled` ndarray of bool or False
    - `parameters` tuple of ndarray or float: Of the demand functions.
    - `lower`, `upper`: Bounds of the rates.
    """

    signalled: Data
    importance: Data
    parameters: Data
    cost: Data
    lower: Data
    upper: Data

    def take(self, index: slice | IntArray) -> SourceColumns:
        """Return the columns of the sources that an index picks."""

        def taken(column: Data) -> Data:
            if isinstance(column, tuple):
                return tuple(map(taken, column))
            if not isinstance(column, np.ndarray) or column.ndim == 2:
                return column
            return read_only(np.ascontiguousarray(column[index]))

        return SourceColumns(*map(taken, self))


_FIELDS = attrgetter(*SourceColumns._fields)


def record_of(columns: Data) -> SourceColumns:
    """Return the columns among the fields of a record."""
    return SourceColumns(*_FIELDS(columns))


class HostGroups(NamedTuple):
    """Who belongs to which host: as in `freshopt.modelling.host_limits.HostLimits`."""

    limits: Array
    codes: IntArray
    order: IntArray
    first: IntArray


class SearchStart(NamedTuple):
    """Where the search for the hosts' prices starts.

    - `floor`, `guess`: Logarithms of a price below all that matter and of a likely one.
    - `steepness`: −d log(demand)/d log(price), about, > 0.
    - `tells`: Whether demand at the floor tells a price better than the guess does.
    """

    floor: float
    guess: float
    steepness: float
    tells: bool
