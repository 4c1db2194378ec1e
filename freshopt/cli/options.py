"""What the command line understands: its options, and the names of objectives and solvers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from freshopt.examples.histories import EXAMPLES
from freshopt.objective import Objective, Refresh
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from freshopt.solvers import (
    Auto,
    BinaryLambdaCrawl,
    ClosedForm,
    Conic,
    LambdaCrawl,
    LambdaCrawlApprox,
    MirrorDescent,
    ProjectedGradient,
    Proportional,
    Uniform,
    WaterFilling,
)
from freshopt.units import SECONDS
from freshopt.verdict import Solver

OBJECTIVES: dict[str, Callable[[Refresh], Objective]] = {
    "harmonic": lambda refresh: HarmonicStaleness(refresh),
    "binary": lambda refresh: BinaryFreshness(refresh),
    "delay": lambda refresh: AccumulatedDelay(refresh),
    "age": lambda refresh: Age(refresh),
}
SOLVERS: dict[str, Solver] = {
    "auto": Auto(),
    "water-filling": WaterFilling(),
    "closed-form": ClosedForm(),
    "clarabel": Conic("CLARABEL"),
    "ecos": Conic("ECOS"),
    "scs": Conic("SCS"),
    "lambda-crawl": LambdaCrawl(),
    "lambda-crawl-approx": LambdaCrawlApprox(),
    "binary-lambda-crawl": BinaryLambdaCrawl(),
    "mirror-descent": MirrorDescent(),
    "projected-gradient": ProjectedGradient(),
    "uniform": Uniform(),
    "proportional": Proportional(),
}

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

objective_option: Decorator = click.option(
    "--objective",
    type=click.Choice(list(OBJECTIVES)),
    default="harmonic",
    show_default=True,
    help="What to optimise: harmonic staleness, binary freshness, accumulated delay, or age.",
)
refresh_option: Decorator = click.option(
    "--refresh",
    type=click.Choice(["periodic", "poisson"]),
    default="periodic",
    show_default=True,
    help="How rates become times: equal gaps, or exponential ones (the papers' cell).",
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
    help="Of the random times of --refresh poisson.",
)
smoothing_option: Decorator = click.option(
    "--smoothing",
    type=float,
    default=0.5,
    show_default=True,
    help="Imaginary observation of each source, in days; 0 for none.",
)
confidence_option: Decorator = click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="Of the change rates' intervals."
)


def objective_of(name: str, refresh: str) -> Objective:
    """Return the named objective under the named discipline."""
    return OBJECTIVES[name](Refresh(refresh))
