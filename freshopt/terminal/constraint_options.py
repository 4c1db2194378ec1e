"""Options that declare constraints: budgets, nested limits, targets, and the cheapest plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from freshopt.errors import SourceDataError
from freshopt.logs.tables import ENDINGS
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.constraints.nested import Nested
from freshopt.modelling.constraints.target import Target
from freshopt.modelling.short_form import NAMES
from freshopt.terminal.options import Decorator, bundled
from freshopt.terminal.source_columns import SourceColumns, costs_by_name, limits_of
from freshopt.terminal.target_grammar import GOALS, Goal, goals_of
from freshopt.units import rate_of

_BUDGET = "Write such as bytes=size:2e9 (a column) or bytes=sizes.csv:2e9 (a table with columns source, cost)"
_COMMON: tuple[Decorator, ...] = (
    click.option(
        "--budget",
        "budgets",
        multiple=True,
        metavar="NAME=COLUMN:LIMIT",
        help="Further budget: the refreshes' cost per time unit, in a unit of its own, is at most LIMIT, "
        "such as bytes=size:2e9 or bytes=sizes.csv:2e9/day. What one refresh of each source costs is in a "
        "COLUMN of the sources, or in a file with columns source, cost (repeatable).",
    ),
    click.option(
        "--nested",
        metavar="COLUMNS",
        help="Columns with nested groups of sources, innermost first, such as host,domain,org; for "
        "--nested-limits.",
    ),
    click.option(
        "--nested-limits",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Table with columns group, at_most, at_least: bandwidth limit and reserve of groups of any "
        "level, empty for none.",
    ),
    click.option(
        "--target",
        "targets",
        multiple=True,
        metavar="GOAL[:COLUMN]",
        help="What is to be reached, on average by importance: 95% (of the time fresh); 95%:tier, in each "
        "group of a column; 99%:tier=gold, in one group; 'harmonic<=0.3', a limit on the mean of "
        f"{', '.join(name for name in GOALS if name != 'binary')}; 'later-than=3d<=1%', share of copies "
        "older than 3 days. Quotes keep the shell from reading '<' (repeatable).",
    ),
)
_CHEAPEST: Decorator = click.option(
    "--cheapest",
    is_flag=True,
    help="Use the least bandwidth that meets the targets, in place of --objective; --bandwidth is then only "
    "an upper limit, and not needed.",
)


@dataclass(frozen=True, slots=True)
class ConstraintOptions:
    """Constraints as the command line declares them."""

    budgets: tuple[str, ...] = ()
    nested: str | None = None
    nested_limits: Path | None = None
    targets: tuple[str, ...] = ()
    cheapest: bool = False

    def given(self) -> list[str]:
        """Return the options that were given."""
        found = {
            "--budget": bool(self.budgets),
            "--nested": self.nested is not None,
            "--nested-limits": self.nested_limits is not None,
            "--target": bool(self.targets),
            "--cheapest": self.cheapest,
        }
        return [name for name, there in found.items() if there]

    def require_bandwidth(self, bandwidth: object) -> None:
        """Raise UsageError if nothing limits the rates."""
        if bandwidth is None and not (self.cheapest or self.budgets):
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
    return bundled("constraints", (*_COMMON, _CHEAPEST) if cheapest else _COMMON, ConstraintOptions)


def refuse_constraints(words: str) -> Decorator:
    """Return the decorator that refuses the options, in one line with `words`."""

    def refused(context: click.Context, parameter: click.Parameter, value: object) -> None:
        if value:
            raise click.UsageError(f"{parameter.opts[0]} {words}. Leave it out.", context)

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in ("--budget", "--nested", "--nested-limits", "--target"):
            option = click.option(name, multiple=True, hidden=True, expose_value=False, callback=refused)
            command = option(command)
        flag = click.option("--cheapest", is_flag=True, hidden=True, expose_value=False, callback=refused)
        wrapped: Callable[..., Any] = flag(command)
        return wrapped

    return add


def levels_of(nested: str) -> list[str]:
    """Return the columns that --nested names."""
    names = [name.strip() for name in nested.split(",")]
    if not all(names):
        raise SourceDataError(f"--nested {nested!r} has an empty name. Write such as host,domain,org.")
    return names


def nested_of(levels: Sequence[Any], at_most: dict[Any, float], at_least: dict[Any, float]) -> Nested:
    """Return nested limits and reserves, of which one side may be empty."""
    return Nested(levels, at_most or None, at_least or None)


def budget_of(text: str, unit: str) -> tuple[str, str, float, bool]:
    """Return a budget's name, costs, limit, and whether costs are a file."""
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
    return name, what, most, what.endswith(ENDINGS)


def bounds_of(goal: Goal, known: Sequence[str]) -> dict[str, Any]:
    """Return a goal's bound by its side, given the known groups."""
    bound: float | dict[str, float] | None = goal.everywhere
    if goal.column is not None:
        everywhere = {} if goal.everywhere is None else dict.fromkeys(sorted(known), goal.everywhere)
        bound = everywhere | goal.groups
    return {"at_least" if goal.objective.sense == "maximise" else "at_most": bound}


def _budget(text: str, columns: SourceColumns, unit: str) -> Budget:
    name, what, most, is_file = budget_of(text, unit)
    option = f"--budget {name}"
    cost = costs_by_name(columns.sources, Path(what), option) if is_file else columns.numbers(what, option)
    return Budget(most, cost=cost, name=name)


def _target(goal: Goal, columns: SourceColumns) -> Target:
    by = None if goal.column is None else columns.labels(goal.column, "--target")
    known = [] if by is None else sorted({label for label in by.tolist() if label is not None})
    return Target(goal.objective, by=by, name=goal.name, **bounds_of(goal, known))
