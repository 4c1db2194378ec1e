"""`freshopt plan --refresh on-request`: lifetimes of a cache's copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from freshopt.cli.report import command_line
from freshopt.cli.schedule import exported_rows
from freshopt.logs.read_requests import read_requests
from freshopt.planning.lifetime_plan import plan_lifetimes
from freshopt.terminal.console import show, working
from freshopt.terminal.log_inputs import Origin, outcome
from freshopt.terminal.options import Decorator
from freshopt.terminal.request_words import request_rates
from freshopt.tools.table import LIFETIMES

lifetime_format_option: Decorator = click.option(
    "--format",
    "kind",
    type=click.Choice(list(LIFETIMES)),
    metavar="NAME",
    help=f"For --refresh on-request: also write what a cache loads, of {', '.join(LIFETIMES)}.",
)


@working("planning lifetimes")
def plan_on_request(
    context: click.Context,
    origin: Origin,
    requests: Path | None,
    kind: str | None,
    out: Path,
    time_unit: str,
    *,
    csv: bool,
    overwrite: bool,
    **asked: Any,  # noqa: ANN401 - as plan_lifetimes takes them
) -> None:
    """Plan lifetimes, write and print."""
    path = requests or origin.log
    if path is None:
        raise click.UsageError(
            "--refresh on-request needs to know how often each source is requested. Name the log of who asks "
            "the cache: --requests FILE."
        )
    found = origin.read(time_unit)
    seen = read_requests(path, columns=None if requests else origin.names(), time_unit=time_unit)
    rates, words = request_rates(seen, found.log.sources_.tolist(), path)
    if requests is None:
        words += "; as no --requests names another log, each line of LOG is a request"
    made = plan_lifetimes(found.data, rates, **asked)
    target = None if kind is None else LIFETIMES[kind]()
    more = {"command": command_line(context)}
    written, done = made.write(out, target, csv=csv, overwrite=overwrite, more=more)
    rows = [
        (label, f"{text}, from {words}" if label == "requests" else text)
        for label, text in made.rows(f"{found.words}{outcome(found.data)}")
    ]
    show([*rows, *([] if kind is None or done is None else exported_rows(kind, done))])
    click.echo(f"\nwrote {', '.join(written)} to {out}")
