"""What the command line understands: the options that several commands share, and the names of solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from freshopt.cli.objectives import EXPONENT, OBJECTIVES, PLANNED
from freshopt.examples.histories import EXAMPLES
from freshopt.solvers import (
    Auto,
    AutomataTree,
    BinaryLambdaCrawl,
    ClosedForm,
    Conic,
    LambdaCrawl,
    LambdaCrawlApprox,
    MirrorDescent,
    ProjectedGradient,
    Proportional,
    SeparableNewton,
    Uniform,
    WaterFilling,
)
from freshopt.units import SECONDS
from freshopt.verdict import Solver

SOLVERS: dict[str, Solver] = {
    "auto": Auto(),
    "water-filling": WaterFilling(),
    "separable-newton": SeparableNewton(),
    "closed-form": ClosedForm(),
    "clarabel": Conic("CLARABEL"),
    "ecos": Conic("ECOS"),
    "scs": Conic("SCS"),
    "highs": Conic("HIGHS"),
    "lambda-crawl": LambdaCrawl(),
    "lambda-crawl-approx": LambdaCrawlApprox(),
    "binary-lambda-crawl": BinaryLambdaCrawl(),
    "mirror-descent": MirrorDescent(),
    "projected-gradient": ProjectedGradient(),
    "automata-tree": AutomataTree(),
    "uniform": Uniform(),
    "proportional": Proportional(),
}

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def engine_options(words: str) -> Decorator:
    """Return the options --engine and --scheduler; `words` say what dask takes and writes."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        scheduler = click.option(
            "--scheduler", metavar="ADDRESS", help="Of --engine dask: a Dask scheduler; threads by default."
        )
        engine = click.option(
            "--engine",
            type=click.Choice(["memory", "dask"]),
            default="memory",
            show_default=True,
            help=f"memory, or dask for more sources than fit: {words}",
        )
        wrapped: Callable[..., Any] = engine(scheduler(command))
        return wrapped

    return add


def objective_option(names: Iterable[str], *, default: str | None = "harmonic") -> Decorator:
    """Return the option that names an objective, explained; without a default all of them are meant."""
    explained = "; ".join(f"{name}: {OBJECTIVES[name].words}" for name in names)
    begin = "What to optimise; all of them by default. " if default is None else "What to optimise. "
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
    help=f"Of --objective power, > 0; {EXPONENT:g} by default.",
)
deadline_option: Decorator = click.option(
    "--deadline", metavar="TIME", help="Of --objective deadline, such as 2d or 12h."
)
host_limits_option: Decorator = click.option(
    "--host-limits",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with columns host, limit: bandwidth that a host may take, per time unit.",
)
importance_option: Decorator = click.option(
    "--importance",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with columns source, importance.",
)
hosts_option: Decorator = click.option(
    "--hosts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table with columns source, host.",
)
refresh_option: Decorator = click.option(
    "--refresh",
    type=click.Choice(["periodic", "poisson"]),
    help="How rates become times: periodic (equal gaps; the default wherever the objective has it) or "
    "poisson (exponential gaps, the papers' cell).",
)
bandwidth_option: Decorator = click.option(
    "--bandwidth", required=True, metavar="RATE", help="Total refreshes, such as 200/day or 4/h."
)
horizon_option: Decorator = click.option(
    "--horizon", required=True, metavar="TIME", help="Length of the schedule, such as 7d or 12h."
)
time_unit_option: Decorator = click.option(
    "--time-unit",
    type=click.Choice(list(SECONDS)),
    default="day",
    show_default=True,
    help="Unit of numeric times, of rates and of the results.",
)
table_unit_option: Decorator = click.option(
    "--time-unit",
    type=click.Choice(list(SECONDS)),
    help="Unit of the table's rates and of the results; the one that the table names, or day.",
)
overwrite_option: Decorator = click.option("--overwrite", is_flag=True, help="Replace an earlier result.")
log_argument: Decorator = click.argument("log", required=False, type=click.Path(path_type=Path))
example_option: Decorator = click.option(
    "--example", metavar="NAME", help=f"A bundled log instead of LOG: {', '.join(EXAMPLES)}."
)
seed_option: Decorator = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of whatever is random: Poisson times, draws.",
)
confidence_option: Decorator = click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="Of the change rates' intervals."
)
