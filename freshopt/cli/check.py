"""`freshopt check`: cross-check solvers on your sources, or on built-in instances."""

from __future__ import annotations

import math
from pathlib import Path

import click
import numpy as np

from freshopt.cli import inputs, options
from freshopt.crosscheck import cross_check
from freshopt.errors import SourceDataError
from freshopt.model import Problem
from freshopt.sources import Sources


@click.command()
@click.argument("sources", required=False, type=click.Path(path_type=Path))
@click.option(
    "--objective",
    type=click.Choice(list(options.OBJECTIVES)),
    help="Only this objective; all of them by default.",
)
@options.refresh_option
@click.option("--bandwidth", metavar="RATE", help="Total refreshes; half of all changes by default.")
@click.option("--solvers", metavar="NAMES", help=f"Comma-separated, of {', '.join(options.SOLVERS)}.")
@click.option(
    "--tolerance", type=float, default=1e-6, show_default=True, help="Relative gap that counts as optimal."
)
@options.time_unit_option
@click.pass_context
def check(
    context: click.Context,
    sources: Path | None,
    objective: str | None,
    refresh: str,
    bandwidth: str | None,
    solvers: str | None,
    tolerance: float,
    time_unit: str,
) -> None:
    """Solve with several solvers and compare what is proved.

    SOURCES is a table with columns source, change_rate, importance, ...; without it, built-in instances of 10
    and 1000 sources are used. The exit code is 1 if a solver is not proved optimal, or none applies.
    """
    if not 0.0 < tolerance < math.inf:
        raise SourceDataError(f"--tolerance: {tolerance} is not > 0. Pass a relative gap such as 1e-6.")
    chosen = [options.SOLVERS[name] for name in _names(solvers)]
    instances = [inputs.sources_of(sources, time_unit)] if sources else [_instance(10), _instance(1000)]
    agreed = True
    for known in instances:
        for name in [objective] if objective else options.OBJECTIVES:
            limit = (
                inputs.rate_of("--bandwidth", bandwidth, time_unit)
                if bandwidth
                else 0.5 * float(np.sum(known.change_rate))
            )
            problem = Problem(options.objective_of(name, refresh), known, limit)
            agreement = cross_check(problem, chosen, tolerance=tolerance)
            click.echo(f"{agreement!r}\n")
            agreed &= agreement.agrees
    context.exit(0 if agreed else 1)


def _names(given: str | None) -> list[str]:
    names = (
        [k for k in options.SOLVERS if k != "auto"]
        if given is None
        else [name.strip() for name in given.split(",")]
    )
    unknown = [name for name in names if name not in options.SOLVERS]
    if unknown:
        raise click.BadParameter(
            f"{unknown[0]!r} is not one of {', '.join(options.SOLVERS)}.", param_hint="'--solvers'"
        )
    return names


def _instance(n: int) -> Sources:
    """Return n seeded sources with lognormal change rates and importances, as real ones are."""
    rng = np.random.default_rng(n)
    return Sources(rng.lognormal(-1.0, 1.5, n), rng.lognormal(0.0, 1.0, n))
