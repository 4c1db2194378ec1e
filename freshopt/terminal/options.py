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
from freshopt.terminal.exported_names import solvers_of
from freshopt.terminal.objective_options import EXPONENT, OBJECTIVES, PLANNED
from freshopt.units import SECONDS

SOLVERS = solvers_of(solvers)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


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

        wrapped: Callable[..., Any] = with_one
        for option in reversed([*options]):
            wrapped = option(wrapped)
        return wrapped

    return add


def engine_options(words: str) -> Decorator:
    """Return the options --engine and --scheduler.

    `words` say what dask reads and writes.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        scheduler = click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="For --engine dask: address of a Dask scheduler (default: threads).",
        )
        engine = click.option(
            "--engine",
            type=click.Choice(["memory", "dask"]),
            default="memory",
            show_default=True,
            help=f"memory, or dask for more sources than fit into it: {words}",
        )
        wrapped: Callable[..., Any] = engine(scheduler(command))
        return wrapped

    return add


def objective_option(names: Iterable[str], *, default: str | None = "harmonic") -> Decorator:
    """Return the option --objective with all names explained.

    Without a default all of them are meant.
    """
    explained = "; ".join(f"{name}: {OBJECTIVES[name].words}" for name in names)
    begin = "Objective to optimise (default: all). " if default is None else "Objective to optimise. "
    return click.option(
        "--objective",
        type=click.Choice(list(names)),
        metavar="NAME",
        default=default,
        show_default=default is not None,
        help=f"{begin}{explained}.",
    )


solve_objective_option: Decorator = objective_option(OBJECTIVES)
plan_objective_option: Decorator = objective_option(PLANNED)
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
    help="Table with the column source, and the columns that --budget, --nested and --target name; or the "
    "column changed_cost.",
)
refresh_option: Decorator = click.option(
    "--refresh",
    type=click.Choice(["periodic", "poisson"]),
    help="Refresh discipline: periodic (equal intervals; the default wherever the objective has it) or "
    "poisson "
    "(exponential intervals, the papers' model).",
)
requests_option: Decorator = click.option(
    "--requests",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="For --refresh on-request: access log of those who ask the cache, or a table with columns source, "
    "time (default: LOG, each line a request).",
)
solve_refresh_option: Decorator = click.option(
    "--refresh",
    type=click.Choice(["periodic", "poisson", "on-request"]),
    help="Refresh discipline: periodic (equal intervals; the default wherever the objective has it), poisson "
    "(exponential intervals, the papers' model) or on-request (of caches: the first request after a lifetime "
    "fetches; lifetimes in place of intervals).",
)
answers_option: Decorator = click.option(
    "--answers-are-changes",
    is_flag=True,
    help="For a LOG in which no row has a status 304, a hash or an ETag: take answers 200 for changes, which "
    "is right of a crawler that asks conditionally and found a change each time.",
)
time_unit_option: Decorator = click.option(
    "--time-unit",
    type=click.Choice(list(SECONDS)),
    default="day",
    show_default=True,
    help="Time unit of numeric times, of rates and of the results.",
)
table_unit_option: Decorator = click.option(
    "--time-unit",
    type=click.Choice(list(SECONDS)),
    help="Time unit of the table's rates and of the results (default: the one that the table names, or day).",
)
overwrite_option: Decorator = click.option("--overwrite", is_flag=True, help="Replace an earlier result.")
log_argument: Decorator = click.argument("log", required=False, type=click.Path(path_type=Path))
example_option: Decorator = click.option(
    "--example", metavar="NAME", help=f"Bundled log instead of LOG: {', '.join(EXAMPLES)}."
)
