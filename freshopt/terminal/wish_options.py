"""Options of the command line from a table of wishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import numpy as np
from click.core import ParameterSource

from freshopt.heavy import polars
from freshopt.logs.schema import CHANGED_COSTS, HOSTS, IMPORTANCES, Table, column_of
from freshopt.planning.clashes import refuse_clashes
from freshopt.planning.request import Clock, SourceLimits
from freshopt.planning.wishes import WISHES, Wish
from freshopt.terminal import tables
from freshopt.terminal.commands import OneOf
from freshopt.terminal.options import Decorator, bundled, together
from freshopt.units import bounds_as_intervals

# How the table is read that an option names.
TABLES: dict[str, Callable[[Path, str], Any]] = {
    "importance": lambda path, _: column_of(path, IMPORTANCES),
    "hosts": lambda path, _: column_of(path, HOSTS),
    "host_limits": tables.host_limits_with_units,
    "limits": tables.source_limits_of,
    "compare": tables.rates_in_force_of,
    # Read with the log, on its clock.
    "signals": lambda path, _: path,
    "features": lambda path, _: path,
}

# Options with a letter, too.
LETTERS = {"bandwidth": "-b"}


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
    letters = [LETTERS[name]] if name in LETTERS else []
    return click.option(option_of(name), *letters, name, **{**said, **more})


def wish_options(*groups: str) -> Decorator:
    """Return the decorator that adds the options of groups of wishes."""
    names = [name for group in groups for name, one in WISHES.items() if one.group == group]
    return together(map(wish_option, names))


def own_option(usual: Any = None, **said: Any) -> Any:  # noqa: ANN401 - the field's type
    """Return a field of a command's options, with what click is told.

    Its type tells how it is read: a path, a flag, one of some words, several texts.
    """
    return field(default=usual, metadata={"option": said})


def required(**said: Any) -> Any:  # noqa: ANN401
    """Return a field of an option that must be given."""
    return field(metadata={"option": {"required": True, **said}})


def wished(usual: Any = None, wishes: Mapping[str, Wish] = WISHES, **more: Any) -> Any:  # noqa: ANN401
    """Return a field of a wish, with `more` that a command says."""
    return field(default=usual, metadata={"wish": (wishes, more)})


def names_of(own: Field[Any]) -> tuple[str, ...]:
    """Return how the command line writes a field of options."""
    return tuple(own.metadata.get("option", {}).get("names", (option_of(own.name),)))


def table_options(argument: str, table: type, left_out: Sequence[str] = ()) -> Decorator:
    """Return the decorator that adds a table's options as one argument."""
    hints = get_type_hints(table)
    own = [each for each in fields(table) if each.name not in left_out]
    return bundled(argument, [_option(each, hints[each.name]) for each in own], table)


def _option(own: Field[Any], hint: Any) -> Decorator:  # noqa: ANN401 - a type
    """Return the option of a field of a table."""
    if "wish" in own.metadata:
        wishes, more = own.metadata["wish"]
        return wish_option(own.name, wishes, **more)
    said = {key: value for key, value in own.metadata["option"].items() if key != "names"}
    kind = get_args(hint)[0] if get_origin(hint) in (UnionType, Union) else hint
    if get_origin(kind) is tuple:
        said, kind = {"multiple": True, **said}, get_args(kind)[0]
    elif own.default not in (None, False, MISSING):
        said = {"default": own.default, "show_default": True, **said}
    if kind is bool:
        said["is_flag"] = True
    elif kind is Path:
        said = {"type": click.Path(path_type=Path), "metavar": "FILE", **said}
    elif get_origin(kind) is Literal:
        said["type"] = OneOf([*get_args(kind)])
    else:
        said = {"type": kind, **said}
    return click.option(*names_of(own), own.name, **said)


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
    """Return what changes cost, by number or column, and its option."""
    column = path is not None and "changed_cost" in Table.read(path).frame.columns
    what = "--changed-cost" if number is not None else f"the column changed_cost of {path}"
    if number is not None and column:
        raise click.UsageError(f"{what} is for all sources, and {path} has a column changed_cost. Give one.")
    if number is not None and not 0.0 <= number < np.inf:
        raise click.UsageError(f"--changed-cost {number:g} is no number >= 0. Give such as 20.")
    if not column or path is None:
        return number, what
    return column_of(path, CHANGED_COSTS), what


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Bounds of refresh rates as options give them."""

    min_interval: str | None = None
    max_interval: str | None = None
    limits: Path | None = None
    min_rate: str | None = None
    max_rate: str | None = None

    def on(self, frame: polars.DataFrame, unit: str) -> polars.DataFrame:
        """Return a table of sources within these bounds."""
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        given = read_wishes({name: value for name, value in told.items() if value is not None}, unit)
        if not given:
            return frame
        limits = given.get("limits", SourceLimits({}, {}))
        as_intervals = limits.by_interval or "min_interval" in given or "max_interval" in given
        click.get_current_context().with_resource(bounds_as_intervals(as_intervals))
        lower = given.get("min_rate", 0.0)
        if "max_interval" in given:
            lower = 1.0 / given["max_interval"]
        upper = given.get("max_rate", np.inf)
        if "min_interval" in given:
            upper = 1.0 / given["min_interval"]
        names = frame["source"].to_numpy() if "source" in frame.columns else np.arange(len(frame))
        least, most = limits.around(names, lower, upper)
        if "min_rate" in frame.columns:
            least = np.fmax(least, frame["min_rate"].to_numpy())
        if "max_rate" in frame.columns:
            most = np.fmin(most, frame["max_rate"].to_numpy())
        return frame.with_columns(min_rate=least, max_rate=most)


rate_limits = bundled("bounds", [wish_options("bounds")], RateLimits)
