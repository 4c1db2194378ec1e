"""Options that several commands share, and the named solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
host_limits_option: Decorator = click.option(
    "--host-limits",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with columns host, limit: bandwidth limit of each host, per time unit.",
)
importance_option: Decorator = click.option(
    "--importance",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with columns source, importance: weight of each source, >= 0 (default 1).",
)
hosts_option: Decorator = click.option(
    "--hosts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with columns source, host: host of each source (default: the log's column host, or that of "
    "its URL).",
)
columns_option: Decorator = click.option(
    "--source-columns",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with the column source, and the columns that --budget, --nested and --target name; or the "
    "column changed_cost.",
)
changed_cost_option: Decorator = click.option(
    "--changed-cost",
    type=float,
    metavar="NUMBER",
    help="What a fetch uses besides where the source has changed, in units of what asking uses: 20 where a "
    "download is 20 times as large as an answer that nothing changed. --bandwidth and --host-limits are then "
    "in that unit. By source: the column changed_cost of --source-columns.",
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
bandwidth_option: Decorator = click.option(
    "--bandwidth", required=True, metavar="RATE", help="Total refresh rate, such as 200/day or 4/h."
)
# Commands that take declared constraints ask for it themselves, where nothing else limits the rates.
optional_bandwidth_option: Decorator = click.option(
    "--bandwidth",
    metavar="RATE",
    help="Total refresh rate, such as 200/day or 4/h. Required without --budget, --cheapest or --freshness.",
)
horizon_option: Decorator = click.option(
    "--horizon",
    metavar="TIME",
    help="Length of the schedule, such as 7d or 12h. Required but with --refresh on-request.",
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
retry_option: Decorator = click.option(
    "--retry-at-once",
    is_flag=True,
    help="The crawler repeats a fetch that fails at once: rates and intervals are then of successes, and the "
    "attempts that these take keep to the bandwidth. Best where failures do not depend on each other.",
)
overwrite_option: Decorator = click.option("--overwrite", is_flag=True, help="Replace an earlier result.")
log_argument: Decorator = click.argument("log", required=False, type=click.Path(path_type=Path))
example_option: Decorator = click.option(
    "--example", metavar="NAME", help=f"Bundled log instead of LOG: {', '.join(EXAMPLES)}."
)
seed_option: Decorator = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Random seed.",
)
confidence_option: Decorator = click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="Level of the change rates' intervals."
)
