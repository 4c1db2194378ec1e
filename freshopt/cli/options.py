"""What the command line understands: names of objectives and solvers, quantities with units, input files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from freshopt.arrays import Array, as_vector
from freshopt.errors import SourceDataError, list_offenders
from freshopt.examples.histories import EXAMPLES, load_example
from freshopt.io.read_log import read_log
from freshopt.io.tables import read_table
from freshopt.learning.crawl_log import CrawlLog
from freshopt.objective import Objective, Refresh
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.solvers import Auto, ClosedForm, Conic, Proportional, Uniform, WaterFilling
from freshopt.sources import Sources
from freshopt.units import SECONDS
from freshopt.verdict import Solver

if TYPE_CHECKING:
    import polars

OBJECTIVES: dict[str, Callable[[Refresh], Objective]] = {
    "harmonic": lambda refresh: HarmonicStaleness(refresh),
    "binary": lambda refresh: BinaryFreshness(refresh),
    "delay": lambda refresh: AccumulatedDelay(refresh),
}
SOLVERS: dict[str, Solver] = {
    "auto": Auto(),
    "water-filling": WaterFilling(),
    "closed-form": ClosedForm(),
    "clarabel": Conic("CLARABEL"),
    "ecos": Conic("ECOS"),
    "scs": Conic("SCS"),
    "uniform": Uniform(),
    "proportional": Proportional(),
}

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

objective_option: Decorator = click.option(
    "--objective",
    type=click.Choice(list(OBJECTIVES)),
    default="harmonic",
    show_default=True,
    help="What to optimise: harmonic staleness, binary freshness, or accumulated delay.",
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
smoothing_option: Decorator = click.option(
    "--smoothing",
    type=float,
    default=0.5,
    show_default=True,
    help="Imaginary observation, in days; 0 for none.",
)
confidence_option: Decorator = click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="Of the change rates' intervals."
)


def objective_of(name: str, refresh: str) -> Objective:
    """Return the named objective under the named discipline."""
    return OBJECTIVES[name](Refresh(refresh))


def log_of(path: Path | None, example: str | None, time_unit: str) -> CrawlLog:
    """Return the crawl log that the command was given, one way or the other."""
    if (path is None) == (example is None):
        raise click.UsageError("give either LOG or --example NAME, not both or neither.")
    if example is not None:
        return load_example(example)
    return read_log(path or "", time_unit)


def sources_of(path: Path, time_unit: str) -> Sources:
    """Return the sources in a table: source, change_rate, and whatever else it says of them."""
    frame = read_table(path)
    try:
        return Sources.from_frame(frame, time_unit)
    except SourceDataError as error:
        raise SourceDataError(f"{path}: {error}") from None


def importance_of(path: Path | None) -> Callable[[Any], Array] | None:
    """Return how a log's sources are weighted: by a table with columns source and importance."""
    if path is None:
        return None
    frame = read_table(path)
    for column in ("source", "importance"):
        if column not in frame.columns:
            raise SourceDataError(
                f"{path} has no column '{column}', it has {list_offenders(frame.columns)}. Rename or add it."
            )
        if frame[column].null_count():
            raise SourceDataError(f"column '{column}' of {path} has empty cells. Fill them or drop the rows.")
    return lambda names: _weights(frame, names, path)


def _weights(frame: polars.DataFrame, names: Any, path: Path) -> Array:  # noqa: ANN401 - names or integers
    """Look up each name's importance."""
    import polars

    keys = [str(name) for name in frame["source"].cast(polars.String).to_list()]
    weights = as_vector(frame["importance"].to_numpy(), len(keys), f"importance in {path}")
    given = dict(zip(keys, weights.tolist(), strict=True))
    if len(given) < len(keys):
        twice = (
            sorted(key for key in given if keys.count(key) > 1)[:5] if len(keys) < 10_000 else ["some source"]
        )
        raise SourceDataError(f"{path} names {list_offenders(twice)} more than once. Keep one row each.")
    missing = [f"'{name}'" for name in names.tolist() if str(name) not in given]
    if missing:
        raise SourceDataError(f"{path} has no importance for {list_offenders(missing)}. Add a row for each.")
    return np.array([given[str(name)] for name in names.tolist()])
