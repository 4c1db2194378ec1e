"""Settings of declared constraints, checked when they are made.

What can be judged without the sources is judged here, so that a wrong number is refused where it is written
and not when a problem is made of it. Arrays become read-only views, mappings copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shown
from freshopt.numerics.arrays import (
    LARGEST,
    SMALLEST,
    Array,
    BoolArray,
    as_number,
    as_vector,
    read_only,
    shape_of,
)

# One number, or one per group.
Limit: TypeAlias = float | Mapping[Any, float]
# A label per source, None for no group; or a column's name.
Labels: TypeAlias = Sequence[Any] | npt.NDArray[Any]


def checked_name(name: object, what: str) -> str:
    """Return a constraint's name, text of one line."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise TypeError(f"name of {what} is {shown(name)}. Pass text of one line.")
    return name


def checked_limit(limit: object, what: str, *, positive: bool) -> float | dict[Any, float]:
    """Return a limit, or a copy of limits by group.

    - raises SourceDataError if one is no finite number, or with `positive` not > 0.
    """
    if not isinstance(limit, Mapping):
        return checked_number(limit, f"the limit of {what}", positive=positive)
    return {
        key: checked_number(value, f"the limit of {what} for {shown(key)}", positive=positive)
        for key, value in limit.items()
    }


def checked_labels(by: Any, what: str) -> Any:  # noqa: ANN401 - of any kind
    """Return group labels as a read-only vector, or a column's name.

    - raises SourceDataError if they are no vector.
    """
    if isinstance(by, str):
        return _column(by, what)
    if len(shape_of(by, what)) != 1:
        raise SourceDataError(f"{what} is {shown(by)}, no list. Pass a group per source, or None.")
    return read_only(np.asarray(by))


def checked_costs(cost: Any, what: str) -> float | Array | str:  # noqa: ANN401 - array_like
    """Return costs >= 0, one or per source, or a column's name."""
    if isinstance(cost, str):
        return _column(cost, what)
    shape = shape_of(cost, what)
    if not shape:
        number = float(as_vector(cost, 1, what)[0])
        bad = [] if _usable(np.array([number]))[0] else [f"{number:g}"]
    else:
        costs = as_vector(cost, shape[0], what)
        bad = [f"source {k}: {costs[k]:g}" for k in np.flatnonzero(~_usable(costs))]
    if bad:
        raise SourceDataError(
            f"{what} is negative or no number: {list_offenders(bad)}. Pass 0, or numbers from {SMALLEST:g} "
            f"to {LARGEST:g}."
        )
    return costs if shape else number


def _column(name: str, what: str) -> str:
    """Return the name of a column, text of one line."""
    if not name or not name.isprintable():
        raise SourceDataError(f"{what} is {shown(name)}, no column. Pass an array, or the name of a column.")
    return name


def _usable(costs: Array) -> BoolArray:
    """Return which costs are 0 or of an accepted magnitude."""
    usable: BoolArray = (costs == 0.0) | ((costs >= SMALLEST) & (costs <= LARGEST))
    return usable


def require_groups(limit: object, by: object, what: str) -> None:
    """Raise SourceDataError for limits by group without groups."""
    if by is None and isinstance(limit, Mapping):
        raise SourceDataError(f"{what} has limits by group but no groups. Pass by=, a group per source.")


def checked_number(value: object, what: str, *, positive: bool) -> float:
    """Return a finite number, or a positive one; else raise SourceDataError."""
    remedy = "Pass a number > 0." if positive else "Pass a finite number, or leave it out."
    number = as_number(value, what, remedy)
    if not (SMALLEST if positive else -LARGEST) <= number <= LARGEST:
        why = ", not > 0" if number <= 0.0 and positive else ""
        raise SourceDataError(f"{what} is {number:g}{why}. {remedy}")
    return number
