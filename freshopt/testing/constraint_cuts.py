"""`cut`: declared constraints of some of the sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError, shown
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.nested import Nested
from freshopt.modelling.constraints.ratio import Ratio
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.constraints.tied import Tied
from freshopt.numerics.arrays import Index


def cut(constraint: object, index: Index, host: npt.NDArray[Any] | None) -> object | None:
    """Return a constraint on some of the sources, None for nothing.

    Limits of groups without sources are dropped.

    Parameters
    ----------
    constraint : Constraint
    index : ndarray of int
    host : ndarray, shape (n,), or None
        Hosts of all sources, for constraints by host.

    Raises
    ------
    ObjectiveError
        If it cannot be cut, as a function of the rate.
    """
    way = _WAYS.get(type(constraint))
    if way is None:
        raise ObjectiveError(f"{shown(constraint)} holds what is needed for all sources. Keep all of them.")
    return way(constraint, index, host)


def _budget(one: Budget, index: Index, host: npt.NDArray[Any] | None) -> Budget | None:
    limit = _kept(one.limit, one.by, index, host)
    changes: dict[str, Any] = {"limit": limit, "by": _part(one.by, index), "cost": _part(one.cost, index)}
    return None if isinstance(limit, dict) and not limit else replace(one, **changes)


def _target(one: Target, index: Index, host: npt.NDArray[Any] | None) -> Target | None:
    side = "at_least" if one.at_most is None else "at_most"
    limit = _kept(getattr(one, side), one.by, index, host)
    changes: dict[str, Any] = {
        side: limit,
        "by": _part(one.by, index),
        "objective": one.objective.take(index),
    }
    return None if isinstance(limit, dict) and not limit else replace(one, **changes)


def _nested(one: Nested, index: Index, host: npt.NDArray[Any] | None) -> Nested | None:
    present: set[Any] = set()
    for level in one.levels:
        present |= _labels(level, index, host)
    most = {key: value for key, value in (one.at_most or {}).items() if key in present}
    least = {key: value for key, value in (one.at_least or {}).items() if key in present}
    if not most and not least:
        return None
    levels = tuple(_part(level, index) for level in one.levels)
    return replace(one, levels=levels, at_most=most or None, at_least=least or None)


def _tied(one: Tied, index: Index, _: npt.NDArray[Any] | None) -> Tied:
    return replace(one, bundle=_part(one.bundle, index))


def _ratio(one: Ratio, index: Index, _: npt.NDArray[Any] | None) -> Ratio:
    of = np.asarray(one.of)
    place = np.full(len(of) + 1, -1, dtype=np.int64)
    kept = np.arange(len(of))[index]
    place[kept] = np.arange(len(kept))
    parent = of[kept]
    own = np.where(parent >= 0, place[parent], -1)
    # A source that stands for several of the old ones is not its own parent.
    return replace(one, of=np.where(own == np.arange(len(kept)), -1, own), at_most=_part(one.at_most, index))


def _part(value: Any, index: Index) -> Any:  # noqa: ANN401 - a setting of any kind
    return value[index] if isinstance(value, np.ndarray) and value.ndim == 1 else value


def _kept(limit: Any, by: Any, index: Index, host: npt.NDArray[Any] | None) -> Any:  # noqa: ANN401
    if not isinstance(limit, Mapping):
        return limit
    present = _labels(by, index, host)
    return {key: value for key, value in limit.items() if key in present}


def _labels(by: Any, index: Index, host: npt.NDArray[Any] | None) -> set[Any]:  # noqa: ANN401
    labels = host if isinstance(by, str) else by
    return set() if labels is None else set(labels[index].tolist())


_WAYS: dict[type, Callable[..., object | None]] = {
    Budget: _budget,
    Target: _target,
    Nested: _nested,
    Tied: _tied,
    Ratio: _ratio,
}
