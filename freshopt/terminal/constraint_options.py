"""Options that declare constraints: budgets, nested limits, targets, and the cheapest plan.

Targets are words such as ``95%``, ``95%:tier``, ``99%:tier=gold``, ``harmonic<=0.3``,
``later-than=3d<=1%:tier``.

A goal, and after a colon the column by whose groups it holds, or one group of it. The goal is a share of
time that copies are fresh, or an objective with a bound on its mean; ``≤`` and ``≥`` are read as ``<=`` and
``>=``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from freshopt.errors import SourceDataError
from freshopt.logs.tables import ENDINGS
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.constraints.nested import Nested
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.short_form import NAMES
from freshopt.naming import objective_of
from freshopt.problems.later_than import LaterThan
from freshopt.terminal.options import Decorator, together
from freshopt.terminal.tables import SourceColumns, costs_by_name, limits_of
from freshopt.terminal.wish_options import names_of, own_option, table_options
from freshopt.units import parse_duration, rate_of

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

    - `name`: Its label in prices and messages.
    - `everywhere`: The bound of all groups that have none of their own.
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


_BUDGET = "Write such as bytes=size:2e9 (a column) or bytes=sizes.csv:2e9 (a table with columns source, cost)"


@dataclass(frozen=True, slots=True)
class ConstraintOptions:
    """Constraints as the command line declares them."""

    budgets: tuple[str, ...] = own_option(
        (),
        names=("--budget",),
        metavar="NAME=COLUMN:LIMIT",
        help="A further budget: COLUMN (or a file with source, cost) has the cost of a refresh, LIMIT "
        "is their sum per time unit: bytes=size:2e9 (repeatable).",
    )
    nested: str | None = own_option(
        metavar="COLUMNS",
        help="Columns of nested groups, innermost first, such as host,domain,org. Their limits are in "
        "--nested-limits.",
    )
    nested_limits: Path | None = own_option(
        help="Table with columns group, at_most, at_least: limit and reserve of groups of any level "
        "(empty: none)."
    )
    targets: tuple[str, ...] = own_option(
        (),
        names=("--target",),
        metavar="GOAL[:COLUMN]",
        help="Reach a goal, on average: 95% (time fresh), 95%:tier (in each group of a column), "
        "99%:tier=gold, 'harmonic<=0.3', 'later-than=3d<=1%' (repeatable).",
    )
    cheapest: bool = own_option(
        False,
        help="Find the least bandwidth that meets the targets; --bandwidth is then an upper limit at most.",
    )

    def given(self) -> list[str]:
        """Return the options that were given."""
        return [names_of(each)[0] for each in fields(self) if getattr(self, each.name)]

    @property
    def limit_bandwidth(self) -> bool:
        """Whether no bandwidth is needed besides."""
        return self.cheapest or bool(self.budgets)

    def require_bandwidth(self, bandwidth: object) -> None:
        """Raise UsageError if nothing limits the rates."""
        if bandwidth is None and not self.limit_bandwidth:
            more = ", or --cheapest for the least that meets the targets" if self.targets else ""
            raise click.UsageError(f"Missing option '--bandwidth'. Pass such as --bandwidth 200/day{more}.")

    def made(self, columns: SourceColumns, refresh: str | None) -> list[Constraint]:
        """Return the constraints on the sources of `columns`."""
        unit = columns.sources.time_unit
        found: list[Constraint] = [_budget(text, columns, unit) for text in self.budgets]
        if self.nested is not None and self.nested_limits is not None:
            levels = [columns.labels(name, "--nested") for name in levels_of(self.nested)]
            found.append(nested_of(levels, *limits_of(self.nested_limits, unit)))
        return found + [_target(goal, columns) for goal in goals_of(self.targets, refresh, unit)]


def constraint_options(*, cheapest: bool = True) -> Decorator:
    """Return the decorator that adds the options as `constraints`."""
    left_out = () if cheapest else ("cheapest",)
    return table_options("constraints", ConstraintOptions, left_out)


def refuse_constraints(words: str) -> Decorator:
    """Return the decorator that refuses the options, in one line with `words`."""

    def refused(context: click.Context, parameter: click.Parameter, value: object) -> None:
        if value:
            raise click.UsageError(f"{parameter.opts[0]} {words}. Leave it out.", context)

    return together(
        click.option(
            *names_of(each),
            is_flag=each.default is False,
            multiple=each.default is not False,
            hidden=True,
            expose_value=False,
            callback=refused,
        )
        for each in fields(ConstraintOptions)
    )


def levels_of(nested: str) -> list[str]:
    """Return the columns that --nested names."""
    names = [name.strip() for name in nested.split(",")]
    if not all(names):
        raise SourceDataError(f"--nested {nested!r} has an empty name. Write such as host,domain,org.")
    return names


def nested_of(levels: Sequence[Any], at_most: dict[Any, float], at_least: dict[Any, float]) -> Nested:
    """Return nested limits and reserves, of which one side may be empty."""
    return Nested(levels, at_most or None, at_least or None)


def _budget(text: str, columns: SourceColumns, unit: str) -> Budget:
    """Return the budget that a text declares."""
    name, equals, rest = (part.strip() for part in text.partition("="))
    what, colon, limit = (part.strip() for part in rest.rpartition(":"))
    if not (name and equals and what and colon and limit):
        raise SourceDataError(f"--budget {text!r} is no budget. {_BUDGET}.")
    option = f"--budget {name}"
    most = rate_of(option, limit, unit)
    if not most > 0.0:
        raise SourceDataError(f"{option}: the limit {limit} is not > 0. {_BUDGET}.")
    if name in NAMES:
        raise SourceDataError(f"{option}: the name is taken. Choose another, such as bytes.")
    from_file = what.endswith(ENDINGS)
    cost = costs_by_name(columns.sources, Path(what), option) if from_file else columns.numbers(what, option)
    return Budget(most, cost=cost, name=name)


def bounds_of(goal: Goal, known: Sequence[str]) -> dict[str, Any]:
    """Return a goal's bound by its side, given the known groups."""
    bound: float | dict[str, float] | None = goal.everywhere
    if goal.column is not None:
        everywhere = {} if goal.everywhere is None else dict.fromkeys(sorted(known), goal.everywhere)
        bound = everywhere | goal.groups
    return {"at_least" if goal.objective.sense == "maximise" else "at_most": bound}


def _target(goal: Goal, columns: SourceColumns) -> Target:
    by = None if goal.column is None else columns.labels(goal.column, "--target")
    known = [] if by is None else sorted({label for label in by.tolist() if label is not None})
    return Target(goal.objective, by=by, name=goal.name, **bounds_of(goal, known))
