"""`freshopt poisson-check`: goodness of fit of the Poisson model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from freshopt.goodness_of_fit.interpretation import advice, draw, interpret, remarks, verdict
from freshopt.goodness_of_fit.poisson_check import PoissonCheck
from freshopt.goodness_of_fit.poisson_check import poisson_check as check_poisson
from freshopt.logs.atomic_output import complete_file
from freshopt.logs.tables import table_ending, write_table
from freshopt.plots import require_picture
from freshopt.terminal import inputs, options
from freshopt.terminal.commands import command
from freshopt.terminal.console import show, working, wrapped
from freshopt.terminal.log_inputs import Origin, origin_options, outcome

if TYPE_CHECKING:
    from collections.abc import Iterator


@command("poisson-check")
@options.log_argument
@options.example_option
@origin_options
@options.file_option("Table of each source's results to write, .csv or .parquet.")
@click.option("--plot", type=click.Path(path_type=Path), help="Picture to write, .png, .svg or .pdf.")
@click.option("--level", type=float, default=0.05, show_default=True, help="Significance level of the tests.")
@options.time_unit_option
@options.overwrite_option
@working("testing")
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
    daily cycles, and drift. Printed is the share of sources that a test rejects, at the level and at a false
    discovery rate (FDR) of it, with what to do.
    """
    if out is not None:
        table_ending(out)
        inputs.require_other(out, *origin.paths)
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
    rows = [("data", f"{found.words}{outcome(found.data)}"), *(("wrote", name) for name in wrote)]
    if not check.tested.any():
        show([*rows, ("result", interpret(check))])
        return
    show([*rows, ("result", verdict(check))])
    click.echo()
    for line in _table(check):
        click.echo(line)
    if remarks(check):
        click.echo()
        click.echo(wrapped(" ".join(remarks(check))))


def _table(check: PoissonCheck) -> Iterator[str]:
    """Yield the table of tests: shares rejected, effect, what to do."""
    rows = [("test", "rejected", f"FDR {check.level:.0%}", "of", "what it found", "what to do")]
    rows += [
        (row.test, f"{row.rejected:.0%}", f"{row.at_rate:.0%}", f"{row.tested:,}", row.effect, row.advice)
        for row in advice(check)
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(5)]
    for test, *shares, effect, todo in rows:
        cells = (cell.rjust(width) for cell, width in zip(shares, widths[1:4], strict=True))
        yield "  ".join([test.ljust(widths[0]), *cells, effect.ljust(widths[4]), todo])
