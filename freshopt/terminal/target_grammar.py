"""Targets in words: ``95%``, ``95%:tier``, ``99%:tier=gold``, ``harmonic<=0.3``, ``later-than=3d<=1%:tier``.

A goal, and after a colon the column by whose groups it holds, or one group of it. The goal is a share of
time that copies are fresh, or an objective with a bound on its mean; ``≤`` and ``≥`` are read as ``<=`` and
``>=``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from freshopt.errors import SourceDataError
from freshopt.modelling.objective import Objective, Refresh
from freshopt.naming import objective_of
from freshopt.problems.later_than import LaterThan
from freshopt.units import parse_duration

# Objectives that need no parameter and whose mean over copies is of use, with how it is told in prices.
GOALS = {"binary": "freshness", "harmonic": "harmonic", "delay": "delay", "age": "age"}
LATER = "later-than"
GRAMMAR = (
    "Write such as 95%, 95%:COLUMN, 99%:COLUMN=GROUP, 'harmonic<=0.3' or 'later-than=3d<=1%' (in quotes, for "
    "the shell)"
)
_GOAL = re.compile(r"(?P<name>[a-z-]+)\s*(=\s*(?P<age>[^<>=]+?))?\s*(?P<side><=|>=)\s*(?P<bound>[^<>=]+)")


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """One goal with its bounds, perhaps by groups.

    Attributes
    ----------
    name : str
        Its label in prices and messages.
    everywhere : float or None
        The bound of all groups that have none of their own.
    """

    name: str
    objective: Objective
    column: str | None
    everywhere: float | None
    groups: dict[str, float]


def goals_of(texts: Sequence[str], refresh: str | None, time_unit: str) -> list[Goal]:
    """Return the goals of --target options, one for each objective and column.

    Examples
    --------
    >>> [goal] = goals_of(["80%:tier", "99%:tier=gold"], None, "day")
    >>> goal.name, goal.everywhere, goal.groups
    ('freshness by tier', 0.8, {'gold': 0.99})
    """
    found: dict[tuple[str, str | None], Goal] = {}
    for text in texts:
        goal, _, where = text.partition(":")
        column, by_group, group = where.partition("=")
        if (":" in text and not column.strip()) or (by_group and not group.strip()):
            raise SourceDataError(f"--target {text!r} names no column or group after ':' or '='. {GRAMMAR}.")
        name, objective, bound = _goal(text, goal.strip(), refresh, time_unit)
        key = column.strip() or None
        label = f"{name} by {key}" if key else name
        own = found.setdefault((name, key), Goal(label, objective, key, None, {}))
        twice = group.strip() in own.groups if group else own.everywhere is not None
        if twice:
            raise SourceDataError(
                f"--target gives {label}{f' {group}' if group else ''} twice. Leave one out."
            )
        if group:
            own.groups[group.strip()] = bound
        else:
            found[name, key] = Goal(label, objective, key, bound, own.groups)
    return list(found.values())


def _goal(text: str, goal: str, refresh: str | None, time_unit: str) -> tuple[str, Objective, float]:
    """Return a goal's label, objective and bound."""
    goal = goal.replace("≤", "<=").replace("≥", ">=")
    if goal.endswith("%") and not set("<>=") & set(goal):
        return GOALS["binary"], objective_of("binary", refresh), _share(text, goal)
    parts = _GOAL.fullmatch(goal)
    if parts is None:
        raise SourceDataError(f"--target {text!r} is no target. {GRAMMAR}.")
    name, age, side, bound = parts["name"], parts["age"], parts["side"], parts["bound"]
    if name != LATER and (name not in GOALS or age is not None):
        raise SourceDataError(
            f"--target {text!r} is of no known goal. Use one of {', '.join(GOALS)} or {LATER}=AGE, such as "
            f"{LATER}=3d<=1%."
        )
    if name == LATER:
        if age is None:
            raise SourceDataError(f"--target {text!r} names no age. Write such as {LATER}=3d<=1%.")
        chosen = Refresh.PERIODIC if refresh is None else Refresh(refresh.replace("-", " "))
        objective: Objective = LaterThan(_duration(text, age, time_unit), chosen)
        label, value = f"{LATER} {age.strip()}", _share(text, bound)
    else:
        objective, label = objective_of(name, refresh), GOALS[name]
        value = _bound(text, name, bound, time_unit)
    right = ">=" if objective.sense == "maximise" else "<="
    if side != right:
        kind = "is to be large: bound it from below" if right == ">=" else "is a cost: bound it from above"
        raise SourceDataError(f"--target {text!r}: {name} {kind}. Write {right} in place of {side}.")
    return label, objective, value


def _bound(text: str, name: str, bound: str, time_unit: str) -> float:
    """Return the bound on an objective's mean."""
    if name == "age":
        return _duration(text, bound, time_unit)
    return _share(text, bound) if name == "binary" else _number(text, bound)


def _share(text: str, bound: str) -> float:
    """Return a share strictly between 0 and 1."""
    digits = bound.strip()
    value = _float(text, digits.removesuffix("%")) / (100.0 if digits.endswith("%") else 1.0)
    if not 0.0 < value < 1.0:
        raise SourceDataError(
            f"--target {text!r}: {digits} is not between 0 and 100 %, at neither of which there is anything "
            "to plan. Write such as 95%."
        )
    return value


def _number(text: str, bound: str) -> float:
    value = _float(text, bound)
    if not value > 0.0:
        raise SourceDataError(f"--target {text!r}: the limit {bound.strip()} is not > 0. Write such as 0.3.")
    return value


def _float(text: str, digits: str) -> float:
    try:
        value = float(digits)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SourceDataError(f"--target {text!r}: {digits.strip()!r} is no number. {GRAMMAR}.")
    return value


def _duration(text: str, age: str, time_unit: str) -> float:
    try:
        return parse_duration(age.strip(), time_unit)
    except SourceDataError as error:
        raise SourceDataError(f"--target {text!r}: {error}") from None
