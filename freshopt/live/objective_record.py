"""Objectives as text: those of `freshopt.problems` with their settings, and no code.

A planner's file may come from elsewhere: what it says about the objective is looked up by name, never
executed. An objective of the user's own, or one with a value per source, has no such text.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from freshopt import problems
from freshopt.errors import SourceDataError
from freshopt.modelling.objective import Objective, Refresh


def objective_record(objective: Objective) -> dict[str, Any] | None:
    """Return an objective's name and settings; None where they cannot be written.

    Examples
    --------
    >>> objective_record(problems.BinaryFreshness(Refresh.PERIODIC))
    {'name': 'BinaryFreshness', 'refresh': 'periodic'}
    """
    found: dict[str, Any] | None = _record(objective)
    return found


def objective_from(record: dict[str, Any]) -> Objective:
    """Return the objective of a record.

    Raises
    ------
    SourceDataError
        If this freshopt has none of that name.

    Examples
    --------
    >>> objective_from({"name": "BinaryFreshness", "refresh": "periodic"})
    BinaryFreshness(refresh=Refresh.PERIODIC)
    """
    made = _made(record)
    if not isinstance(made, Objective):
        raise SourceDataError(f"{record!r} is no objective. Pass objective=... to the planner.")
    return made


def _record(value: object) -> Any:  # noqa: ANN401 - JSON
    kind = type(value)
    if getattr(problems, kind.__name__, None) is not kind or not is_dataclass(value):
        return None
    found: dict[str, Any] = {"name": kind.__name__}
    for each in fields(value):
        if not each.init:
            continue
        own = getattr(value, each.name)
        if isinstance(own, Refresh):
            own = own.value
        elif isinstance(own, np.ndarray) and own.ndim == 0:
            own = own.item()
        elif is_dataclass(own):
            own = _record(own)
            if own is None:
                return None
        if not isinstance(own, str | int | float | dict | None):
            return None
        found[each.name] = own
    return found


def _made(record: dict[str, Any]) -> object:
    name = record.get("name")
    if not isinstance(name, str) or name not in problems.__all__:
        raise SourceDataError(
            f"the planner's objective is {name!r}, which this freshopt does not have. Pass objective=..."
        )
    own: dict[str, Any] = {}
    for key, value in record.items():
        if key == "refresh":
            own[key] = Refresh(value)
        elif key != "name":
            own[key] = _made(value) if isinstance(value, dict) else value
    return getattr(problems, name)(**own)
