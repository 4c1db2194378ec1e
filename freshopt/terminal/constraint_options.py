"""Options that declare constraints: budgets, nested limits, targets, and the cheapest plan."""

from __future__ import annotations

from collections.abc import Callable
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
from freshopt.modelling.short_form import NAMES
from freshopt.terminal.options import Decorator
from freshopt.terminal.source_columns import PartitionColumns, SourceColumns, limits_of
from freshopt.terminal.target_grammar import goals_of
from freshopt.terminal.wish_options import names_of, own_option, table_options
from freshopt.units import rate_of

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

    def made(
        self, columns: SourceColumns | PartitionColumns, refresh: str | None, time_unit: str
    ) -> list[Constraint]:
        """Return the constraints on sources with these columns."""
        found: list[Constraint] = []
        for text in self.budgets:
            name, what, most, is_file = _budget_of(text, time_unit)
            cost = columns.cost(what, f"--budget {name}", is_file=is_file)
            found.append(Budget(most, cost=cost, name=name))
        if self.nested is not None and self.nested_limits is not None:
            levels, whole = columns.levels(_names_of(self.nested))
            at_most, at_least = (
                {_as_written(key) if whole else key: limit for key, limit in side.items()} or None
                for side in limits_of(self.nested_limits, time_unit)
            )
            found.append(Nested(levels, at_most, at_least))
        for goal in goals_of(self.targets, refresh, time_unit):
            by: Any = None
            bound: Any = goal.everywhere
            if goal.column is not None:
                by, known = columns.groups(goal.column, wanted=bound is not None)
                bound = ({} if bound is None else dict.fromkeys(known, bound)) | goal.groups
            side = "at_least" if goal.objective.sense == "maximise" else "at_most"
            found.append(Target(goal.objective, by=by, name=goal.name, **{side: bound}))
        return found


def constraint_options(*, cheapest: bool = True) -> Decorator:
    """Return the decorator that adds the options as `constraints`."""
    left_out = () if cheapest else ("cheapest",)
    return table_options("constraints", ConstraintOptions, left_out)


def refuse_constraints(words: str) -> Decorator:
    """Return the decorator that refuses the options, in one line with `words`."""

    def refused(context: click.Context, parameter: click.Parameter, value: object) -> None:
        if value:
            raise click.UsageError(f"{parameter.opts[0]} {words}. Leave it out.", context)

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for each in fields(ConstraintOptions):
            declared = click.option(
                *names_of(each),
                is_flag=each.default is False,
                multiple=each.default is not False,
                hidden=True,
                expose_value=False,
                callback=refused,
            )
            command = declared(command)
        return command

    return add


def _names_of(nested: str) -> list[str]:
    """Return the columns that --nested names."""
    names = [name.strip() for name in nested.split(",")]
    if not all(names):
        raise SourceDataError(f"--nested {nested!r} has an empty name. Write such as host,domain,org.")
    return names


def _budget_of(text: str, unit: str) -> tuple[str, str, float, bool]:
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


def _as_written(key: str) -> int | str:
    """Return a group as a column of integers has it."""
    return int(key) if key.removeprefix("-").isdigit() and str(int(key)) == key else key
