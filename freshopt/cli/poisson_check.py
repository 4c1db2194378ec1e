"""`freshopt poisson-check`: goodness of fit of the Poisson model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from freshopt.goodness_of_fit.interpretation import interpret
from freshopt.goodness_of_fit.plot import plot as draw
from freshopt.goodness_of_fit.plot import require_picture
from freshopt.goodness_of_fit.poisson_check import TESTS, PoissonCheck
from freshopt.goodness_of_fit.poisson_check import poisson_check as check_poisson
from freshopt.io.atomic_output import complete_file
from freshopt.io.tables import table_ending, write_table
from freshopt.terminal import inputs, options
from freshopt.terminal.console import number, show
from freshopt.terminal.log_inputs import Origin, origin_options, outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

_EFFECTS = {
    "dispersion": "variance of the counts {} times Poisson's",
    "gaps": "distance of the intervals' distribution {}",
    "weekly": "swing of {} about the mean, over all sources",
    "daily": "swing of {} about the mean, over all sources",
    "drift": "second half {} times as fast, median",
}


@click.command("poisson-check", short_help="Test the Poisson model on the changes in a crawl LOG.")
@options.log_argument
@options.example_option
@origin_options
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Table of each source's results to write, .csv or .parquet.",
)
@click.option("--plot", type=click.Path(path_type=Path), help="Picture to write, .png, .svg or .pdf.")
@click.option("--level", type=float, default=0.05, show_default=True, help="Significance level of the tests.")
@options.time_unit_option
@options.overwrite_option
def poisson_check(
    origin: Origin,
    out: Path | None,
    plot: Path | None,
    level: float,
    time_unit: str,
    overwrite: bool,
) -> None:
    """Test the Poisson model on the changes in LOG.

    Intervals of change rates and predicted freshness assume that a source changes at random at a constant
    rate. Tested for each source are the dispersion of counts (bursts), the gaps between changes, weekly and
    daily cycles, and drift.
    """
    if out is not None:
        table_ending(out)
        for read in (origin.log, origin.history):
            inputs.require_other(read, out)
    if plot is not None:
        require_picture(plot)
    found = origin.read(time_unit)
    check = check_poisson(found.data, level=level)
    wrote = []
    if out is not None:
        with complete_file(out, overwrite) as staging:
            write_table(check.to_frame(), staging)
        wrote.append(str(out))
    if plot is not None:
        with complete_file(plot, overwrite) as staging:
            draw(check, staging)
        wrote.append(str(plot))
    show(
        [("data", f"{found.words}{outcome(found.data)}"), *_rows(check), *(("wrote", name) for name in wrote)]
    )
    click.echo(f"\n{interpret(check)}")


def _rows(check: PoissonCheck) -> Iterator[tuple[str, str]]:
    """Yield the printed rows, one per test."""
    if check.tested.any():
        yield (
            "tests",
            f"sources rejected at {check.level:.0%} (at a false-discovery rate of {check.level:.0%})",
        )
    for row in check.summary().iter_rows(named=True):
        test = row["test"]
        if row["tested"] == 0:
            continue
        text = f"{row['rejected']:.0%} ({row['rejected_fdr']:.0%}) of {row['tested']:,}"
        if test in TESTS:
            effect = row["pooled_effect"] if row["pooled_effect"] is not None else row["median_effect"]
            text += f"; {_EFFECTS[test].format(number(effect))}"
        yield test, text
