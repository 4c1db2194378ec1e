"""`freshopt lifetimes`: how long a cache keeps its copies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from freshopt.cli.report import command_line
from freshopt.cli.schedule import exported_rows
from freshopt.logs.read_events import read_requests
from freshopt.naming import PLANNED
from freshopt.planning.clashes import ON_REQUEST
from freshopt.planning.lifetime_plan import plan_lifetimes
from freshopt.terminal import inputs, options
from freshopt.terminal.commands import OneOf, command
from freshopt.terminal.console import show, working
from freshopt.terminal.estimator_options import Estimation, estimation_options
from freshopt.terminal.log_inputs import Origin, origin_options, outcome, request_rates
from freshopt.terminal.options import Decorator
from freshopt.terminal.settings_file import write_settings
from freshopt.terminal.wish_options import given_options, read_wishes, refuse, wish_option, wish_options
from freshopt.tools.table import LIFETIMES

lifetime_format_option: Decorator = click.option(
    "--format",
    "kind",
    type=OneOf(list(LIFETIMES)),
    metavar="NAME",
    help=f"Also write what a cache loads, for one of {', '.join(LIFETIMES)}.",
)


@command()
@options.log_argument
@options.example_option
@origin_options
@options.requests_option
@wish_options("bandwidth", "requests")
@inputs.goal_options(PLANNED)
@wish_option("importance")
@wish_option("hosts")
@wish_option("host_limits")
@wish_options("bounds")
@estimation_options
@wish_option("confidence")
@lifetime_format_option
@options.folder_option("lifetimes")
@options.time_unit_option
@options.csv_option
@options.overwrite_option
@click.pass_context
def lifetimes(
    context: click.Context,
    /,
    origin: Origin,
    goal: inputs.Goal,
    estimation: Estimation,
    time_unit: str,
    requests: Path | None,
    kind: str | None,
    out: Path,
    csv: bool,
    overwrite: bool,
    **wishes: Any,  # noqa: ANN401 - see `WISHES`
) -> None:
    """Plan how long a cache keeps its copies, with proof.

    LOG is what the cache asked the origin (cache to origin), --requests the log of who asks the cache (client
    to cache): both may be access logs. DIR gets the tables change_rates and lifetimes, summary.json, a page
    and, with --format, what the cache loads.
    """
    said = given_options(context)
    given = {name: value for name, value in wishes.items() if name in said}
    if "freshness" in given and "--objective" not in said:
        goal = replace(goal, objective="binary")
    other = {} if goal.objective == "binary" else {"other objective": str(goal.objective)}
    refuse({**said, **other, ON_REQUEST: "freshopt lifetimes"})
    require_promise(given)
    asked = {"bandwidth": None, **read_wishes(given, time_unit)}
    asked["objective"] = goal.made("on-request", time_unit)
    if ("host_limits" in asked or estimation.by_host) and "hosts" not in asked:
        asked["hosts"] = origin.hosts()
    asked["estimator"] = partial(estimation.fit, hosts=asked.get("hosts"))
    plan_on_request(context, origin, requests, kind, out, time_unit, csv=csv, overwrite=overwrite, **asked)


def require_promise(given: Collection[str]) -> None:
    """Raise UsageError unless fetches of the cache, or its freshness, are given."""
    if not {"freshness", "bandwidth"} & set(given):
        raise click.UsageError(
            "Missing option '--bandwidth' (fetches that the cache may make) or '--freshness'. "
            "Pass such as -b 200/day, or --freshness 99%."
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
    path = requests or origin.files
    if path is None:
        raise click.UsageError(
            "lifetimes follow from how often each source is requested. Name the log of who asks the cache: "
            "--requests FILE."
        )
    found = origin.read(time_unit)
    seen = read_requests(path, columns=None if requests else origin.names(), time_unit=time_unit)
    rates, words = request_rates(seen, found.log.names.tolist(), path)
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
    written = [*written, write_settings(context, out, out)]
    click.echo(f"\nwrote {', '.join(written)} to {out}")
