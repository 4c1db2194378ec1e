"""`with_limit`: declared constraints with one limit changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from freshopt.errors import SourceDataError, list_offenders, shortened
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.constraints.groups import Groups
from freshopt.modelling.constraints.nested import Nested
from freshopt.modelling.constraints.priced import Priced
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.sources import Sources


def constraint_with_limit(one: Constraint, label: str, value: float, sources: Sources) -> Constraint | None:
    """Return a constraint with another limit, None without the label.

    - `label`: "name" for all its rows, "name[group]" for one of them.
    - raises SourceDataError if the label is that of several limits, or of a row without a limit of its own.
    """
    if isinstance(one, Nested):
        for side, name in (("at_most", one.name), ("at_least", f"{one.name} reserve")):
            limits = getattr(one, side) or {}
            if label == name and limits:
                raise SourceDataError(_several(label, limits))
            key = _key_of(label, name, limits)
            if key is not None:
                part: dict[str, Any] = {side: {**limits, key[0]: value}}
                return replace(one, **part)
        return None
    if isinstance(one, Priced):
        changed = constraint_with_limit(one.budget, label, value, sources)
        return replace(one, budget=changed) if isinstance(changed, Budget) else None
    reserve = f"{one.label} reserve"
    if isinstance(one, Budget) and (label == reserve or label.startswith(f"{reserve}[")):
        label = one.label + label[len(reserve) :]
        return _with_side(one, "at_least" if one.exactly is None else "exactly", label, value, sources)
    if label != one.label and not label.startswith(f"{one.label}["):
        return None
    if not isinstance(one, Budget | Target):
        raise SourceDataError(f"{shortened(label)} has no limit of its own. Declare the problem anew.")
    if isinstance(one, Budget):
        return _with_side(one, "limit" if one.exactly is None else "exactly", label, value, sources)
    return _with_side(one, "at_least" if one.at_most is None else "at_most", label, value, sources)


def _with_side(
    one: Budget | Target, side: str, label: str, value: float, sources: Sources
) -> Constraint | None:
    """Return a constraint with another limit on one side."""
    limits = getattr(one, side)
    if limits is None:
        return None
    if label == one.label:
        if isinstance(limits, Mapping):
            raise SourceDataError(_several(label, limits))
        whole: dict[str, Any] = {side: value}
        return replace(one, **whole)
    if one.by is None:
        return None
    if not isinstance(limits, Mapping):
        limits = dict.fromkeys(Groups.of(limits, one.by, sources, label).keys, limits)
    key = _key_of(label, one.label, limits)
    changes: dict[str, Any] = {} if key is None else {side: {**limits, key[0]: value}}
    return replace(one, **changes) if changes else None


def unknown_limit(label: str, known: Sequence[str]) -> SourceDataError:
    """Return the error for a label of no row."""
    return SourceDataError(
        f"no constraint is labelled {shortened(repr(label))}. Pass one of {list_offenders(known)}."
    )


def _key_of(label: str, name: str, limits: Mapping[Any, float]) -> tuple[Any] | None:
    """Return the group that a label names, in a tuple."""
    return next(((key,) for key in limits if f"{name}[{key}]" == label), None)


def _several(label: str, limits: Mapping[Any, float]) -> str:
    rows = list_offenders(f"{label}[{key}]" for key in limits)
    return f"{label} has a limit for each of several groups. Pass one of {rows}."
