"""Options of the command line from a table of wishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from freshopt.logs.schema import CHANGED_COSTS, Table, column_of
from freshopt.planning.clashes import refuse_clashes
from freshopt.planning.request import Clock
from freshopt.planning.wishes import WISHES, Wish
from freshopt.terminal import tables
from freshopt.terminal.options import Decorator

# How the table is read that an option names.
TABLES: dict[str, Callable[[Path, str], Any]] = {
    "importance": lambda path, _: tables.importance_of(path),
    "hosts": lambda path, _: tables.hosts_of(path),
    "host_limits": tables.host_limits_of,
    "compare": tables.rates_in_force_of,
}


def option_of(name: str) -> str:
    """Return how the command line writes a wish."""
    return f"--{name.replace('_', '-')}"


def wish_option(name: str, wishes: Mapping[str, Wish] = WISHES, **more: Any) -> Decorator:  # noqa: ANN401 - as in click
    """Return the option of a wish, with `more` that a command says."""
    one = wishes[name]
    kinds: dict[type, Any] = {Path: click.Path(path_type=Path)}
    if one.least is not None:
        kinds |= {int: click.IntRange(min=int(one.least)), float: click.FloatRange(min=one.least)}
    said: dict[str, Any] = {"help": one.help, "metavar": one.metavar}
    if one.kind is bool:
        said["is_flag"] = True
    else:
        said["type"] = kinds.get(one.kind, one.kind)
        if one.kind in (int, float) and one.usual is not None:
            said |= {"default": one.usual, "show_default": True}
    return click.option(option_of(name), name, **{**said, **more})


def wish_options(*groups: str) -> Decorator:
    """Return the decorator that adds the options of groups of wishes."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        names = [name for group in groups for name, one in WISHES.items() if one.group == group]
        for name in reversed(names):
            command = wish_option(name)(command)
        return command

    return add


def given_options(context: click.Context) -> dict[str, str]:
    """Return how given options are written, and wishes by name."""
    found = {}
    for parameter in context.command.params:
        name, source = parameter.name or "", context.get_parameter_source(parameter.name or "")
        if source not in (None, ParameterSource.DEFAULT) and isinstance(parameter, click.Option):
            found[parameter.opts[0]] = parameter.opts[0]
            if name in WISHES and name != "requests":
                found[name] = parameter.opts[0]
    return found


def refuse(said: Mapping[str, str]) -> None:
    """Raise UsageError if given options do not go together."""

    def say(name: str) -> str:
        missing = f"{option_of(name)} {WISHES[name].metavar or ''}".rstrip() if name in WISHES else name
        return said.get(name, missing)

    refuse_clashes(said, say, click.UsageError)


def read_wishes(given: Mapping[str, Any], time_unit: str) -> dict[str, Any]:
    """Return wishes as they are read; errors name the option."""
    return {
        name: TABLES[name](value, time_unit)
        if name in TABLES
        else WISHES[name].read(option_of(name), value, Clock(time_unit))
        for name, value in given.items()
    }


def changed_cost_of(number: float | None, path: Path | None) -> tuple[Any, str]:
    """Return what changes cost, and which option says it.

    `path` is of --source-columns, which may have the column changed_cost.
    """
    column = path is not None and "changed_cost" in Table.read(path).frame.columns
    what = "--changed-cost" if number is not None else f"the column changed_cost of {path}"
    if number is not None and column:
        raise click.UsageError(f"{what} is for all sources, and {path} has a column changed_cost. Give one.")
    if number is not None and not 0.0 <= number < np.inf:
        raise click.UsageError(f"--changed-cost {number:g} is no number >= 0. Give such as 20.")
    if not column or path is None:
        return number, what
    return column_of(path, CHANGED_COSTS), what
