"""Options that several commands share, and the named solvers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from freshopt import solvers
from freshopt.datasets.change_histories import EXAMPLES
from freshopt.naming import EXPONENT, solvers_of
from freshopt.terminal.commands import PARAMETERS, OneOf
from freshopt.terminal.own_objectives import is_own
from freshopt.units import SECONDS

SOLVERS = solvers_of(solvers)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(options: Iterable[Decorator]) -> Decorator:
    """Return the decorator that adds options, in this order."""
    last_first = [*options][::-1]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in last_first:
            command = option(command)
        return command

    return add


def bundled(argument: str, options: Iterable[Decorator], make: Callable[..., Any]) -> Decorator:
    """Return the decorator that adds options, of which one argument is made.

    `make` takes those of its parameters that are among the command's; the time unit is handed on too.
    """
    names = inspect.signature(make).parameters

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_one(**given: Any) -> Any:  # noqa: ANN401 - as in click
            made = make(**{name: given[name] for name in names if name in given})
            rest = {name: value for name, value in given.items() if name not in names or name == "time_unit"}
            return command(**rest, **{argument: made})

        return together(options)(with_one)

    return add


def engine_options(words: str) -> Decorator:
    """Return the options --engine and --scheduler, dask's in `words`."""
    engine = click.option(
        "--engine",
        type=OneOf(["memory", "dask"]),
        default="memory",
        show_default=True,
        help=f"memory, or dask for more than fits into it: {words}",
    )
    scheduler = click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="For --engine dask: address of a Dask scheduler (default: threads).",
    )
    return together([engine, scheduler])


class Output(click.Path):
    """Path of what is written, which standard output cannot take."""

    def __init__(self, remedy: str) -> None:
        super().__init__(path_type=Path)
        self.remedy = remedy

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the path; ./- is one called so."""
        if str(value) == "-":
            self.fail(f"- would be standard output, which is not written to. {self.remedy}.", param, ctx)
        return super().convert(value, param, ctx)


def file_option(words: str, *, required: bool = False, metavar: str | None = None) -> Decorator:
    """Return the option --out of a file, explained in `words`."""
    kind = Output("Name a file")
    return click.option("--out", required=required, type=kind, metavar=metavar, help=words)


def folder_option(usual: str | None = None) -> Decorator:
    """Return the option --out of a folder, required unless one is usual."""
    return click.option(
        "--out",
        "-o",
        **({"required": True} if usual is None else {"default": usual, "show_default": True}),
        type=Output(f"A result is several files: name a folder, such as --out {usual or 'result'}"),
        metavar="DIR",
        help="Folder to write.",
    )


# Of objectives that help explains; the others need a page.
_BRIEF = {
    "harmonic": "harmonic (missed changes, further ones count less)",
    "binary": "binary (time fresh)",
    "delay": "delay (missed changes)",
    "power": "power:0.5",
    "deadline": "deadline:2d",
}


class ObjectiveName(OneOf):
    """Name of an objective, perhaps with its parameter: power:0.5, deadline:2d.

    Or, where they may be, one's own: MODULE:CLASS(ARGUMENTS).
    """

    def __init__(self, names: Iterable[str], *, own: bool = False) -> None:
        super().__init__([*names])
        self.own = own

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401 - as in click
        """Return the text if it is one."""
        name, colon, parameter = str(value).partition(":")
        if self.own and is_own(str(value)):
            return str(value)
        found = super().convert(name, param, ctx)
        if colon and found not in PARAMETERS:
            self.fail(f"{found!r} takes no parameter. Leave {colon + parameter!r} out.", param, ctx)
        if colon and not parameter:
            self.fail(f"{value!r} names no parameter. Write such as power:0.5 or deadline:2d.", param, ctx)
        return f"{found}{colon}{parameter}"


def objective_option(
    names: Iterable[str], *, default: str | None = "harmonic", own: bool = False
) -> Decorator:
    """Return the option --objective with its names, all by default, explained."""
    named = list(names)
    brief = (_BRIEF.get(name, name) for name in named)
    begin = "What to optimise (default: all): " if default is None else "What to optimise: "
    return click.option(
        "--objective",
        type=ObjectiveName(named, own=own),
        metavar="NAME",
        default=default,
        show_default=default is not None,
        help=f"{begin}{', '.join(brief)}{'; or your own, MODULE:CLASS(2.0)' if own else ''}.",
    )


exponent_option: Decorator = click.option(
    "--exponent",
    type=float,
    metavar="E",
    help=f"Exponent for --objective power (> 0, default {EXPONENT:g}).",
)
deadline_option: Decorator = click.option(
    "--deadline", metavar="TIME", help="Age limit for --objective deadline, such as 2d or 12h."
)
columns_option: Decorator = click.option(
    "--source-columns",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with the column source and those that --budget, --nested and --target name, or changed_cost.",
)
refresh_option: Decorator = click.option(
    "--refresh",
    type=OneOf(["periodic", "poisson"]),
    help="When a source is refreshed: periodic, at equal intervals (the default where there is a "
    "choice), or poisson, at random ones.",
)
requests_option: Decorator = click.option(
    "--requests",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Access log of those who ask the cache, or a table with columns source, time (default: LOG, each "
    "line a request).",
)
solve_refresh_option: Decorator = click.option(
    "--refresh",
    type=OneOf(["periodic", "poisson", "on-request"]),
    help="When a source is refreshed: periodic, at equal intervals (the default where there is a "
    "choice); poisson, at random ones; on-request, for caches.",
)
answers_option: Decorator = click.option(
    "--answers-are-changes",
    is_flag=True,
    help="Count every 200 as a change, in a LOG without any 304, hash or ETag. Right only for a "
    "crawler that asks conditionally.",
)
time_unit_option: Decorator = click.option(
    "--time-unit",
    type=OneOf(list(SECONDS)),
    default="day",
    show_default=True,
    help="Time unit of numeric times, of rates and of the results.",
)
table_unit_option: Decorator = click.option(
    "--time-unit",
    type=OneOf(list(SECONDS)),
    help="Time unit of the table's rates and of the results (default: the one that the table names, or day).",
)
csv_option: Decorator = click.option("--csv", is_flag=True, help="Write CSV instead of Parquet.")
overwrite_option: Decorator = click.option("--overwrite", is_flag=True, help="Replace an earlier result.")
log_argument: Decorator = click.argument("log", nargs=-1, type=click.Path(path_type=Path))
example_option: Decorator = click.option(
    "--example",
    is_flag=False,
    flag_value="gstreamer-plugins",
    metavar="[NAME]",
    help=f"Bundled log instead of LOG: {', '.join(EXAMPLES)} (default: gstreamer-plugins).",
)
