"""`freshopt schedule`: refresh times, or a crawler's intervals, from rates."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

import click
import numpy as np

from freshopt.errors import SourceDataError
from freshopt.formatting import percent
from freshopt.logs.atomic_output import complete_file
from freshopt.logs.schema import HOSTS, column_of
from freshopt.logs.source_index import hosts_of_urls
from freshopt.logs.tables import table_ending, write_table
from freshopt.scheduling.host_gap import with_host_gap
from freshopt.scheduling.schedule import Schedule
from freshopt.scheduling.schedule import schedule as make_schedule
from freshopt.terminal import inputs, options, tables
from freshopt.terminal.commands import OneOf, command, not_for
from freshopt.terminal.console import count, number, show
from freshopt.terminal.schedule_options import Choice, Slots, method_options
from freshopt.terminal.tool_options import settings_of, write_options
from freshopt.terminal.wish_options import wish_option
from freshopt.tools.export import Exported, export
from freshopt.tools.icalendar import write_icalendar
from freshopt.tools.table import INTERVALS, LIFETIMES
from freshopt.tools.whole_seconds import ROUNDING
from freshopt.units import duration, duration_of, gap_of

TIMES = {"csv": (".csv", ".csv.gz"), "parquet": (".parquet",), "icalendar": (".ics",)}


@command()
@click.argument("rates", type=click.Path(path_type=Path))
@method_options
@click.option(
    "--format",
    "kind",
    type=OneOf([*INTERVALS, *LIFETIMES, *TIMES]),
    metavar="NAME",
    help=f"What to write: times, as {', '.join(TIMES)} (default: by the ending of --out), or what a tool "
    f"loads: {', '.join([*INTERVALS, *LIFETIMES])}.",
)
@wish_option("horizon", help="Length of a schedule with times, such as 7d or 12h.")
@wish_option("host_gap")
@wish_option("seed")
@click.option(
    "--start", metavar="MOMENT", help="Moment of time 0, such as 2026-01-31T06:00:00Z (UTC); adds timestamps."
)
@write_options
@options.file_option("File to write; a folder with --format nutch or dbt.", required=True)
@wish_option("retry_at_once")
@options.table_unit_option
@options.overwrite_option
def schedule(
    rates: Path,
    choice: Choice,
    kind: str | None,
    horizon: str | None,
    host_gap: str | None,
    seed: int,
    start: str | None,
    out: Path,
    retry_at_once: bool,
    time_unit: str | None,
    overwrite: bool,
    **settings: str | None,
) -> None:
    """Write refresh times or a crawler's intervals for RATES.

    RATES is a table with the columns source and rate. Intervals are rounded so that no source is refreshed
    more often than its rate; the command prints the total rate that results. The formats of caches take the
    column lifetime, which solve --refresh on-request writes. --retry-at-once reads the column success of
    rates of attempts.
    """
    alone = next((name for name in INTERVALS if settings.get(name) is not None), None)
    kind = kind or alone or _told_by(out)
    own = settings_of(kind, settings)
    inputs.require_other(out, rates)
    if kind in INTERVALS or kind in LIFETIMES:
        unused = {"--horizon": horizon, "--start": start, "--host-gap": host_gap, **choice.given()}
        unused |= {"--method": None if choice.method == "periodic" else choice.method}
        for option, value in unused.items():
            if value is not None:
                raise click.UsageError(not_for(option, TIMES, kind, "--format"))
        if kind in LIFETIMES:
            if retry_at_once:
                raise click.UsageError("--retry-at-once is for intervals and times. Leave it out.")
            frame, unit = tables.lifetimes_of(rates, time_unit)
            done = export(frame, LIFETIMES[kind](**own), out, time_unit=unit, overwrite=overwrite)
        else:
            frame, unit = tables.rates_of(rates, time_unit, retry_at_once=retry_at_once)
            done = export(frame, INTERVALS[kind](**own), out, time_unit=unit, overwrite=overwrite)
        show([*exported_rows(kind, done), *_retries(retry_at_once), ("wrote", str(out))])
        return
    if horizon is None:
        raise click.UsageError(f"--format {kind} has the times up to a --horizon, such as 7d. Add it.")
    if out.name and not out.name.lower().endswith(TIMES[kind]):
        raise SourceDataError(
            f"{out} is to be {kind}, whose names end in {' or '.join(TIMES[kind])}. Rename it."
        )
    begin = inputs.moment_of("--start", start)
    if kind == "icalendar" and begin is None:
        raise click.UsageError("--format icalendar has dates. Say with --start when the schedule begins.")
    with complete_file(out, overwrite) as staging:
        frame, unit = tables.rates_of(rates, time_unit, retry_at_once=retry_at_once)
        length = duration_of("--horizon", horizon, unit)
        gap = 0.0 if host_gap is None else gap_of("--host-gap", host_gap, unit)
        method = choice.make(frame, unit, length, seed, begin, by_host=gap > 0.0)
        made = make_schedule(frame, length, method, time_unit=unit)
        if gap > 0.0:
            if isinstance(method, Slots):
                raise click.UsageError(
                    "--host-gap is not for --method slots, which has --min-gap. Give that."
                )
            host_of = column_of(choice.hosts, HOSTS) or hosts_of_urls
            names = np.arange(len(made.rates)) if made.names is None else made.names
            made = with_host_gap(made, host_of(names), gap, seed=seed)
        _write_times(made, begin, kind, staging)
    moved = [("slots", method.words(unit))] if isinstance(method, Slots) else []
    if gap > 0.0:
        moved.append(("hosts", f"{duration(gap, unit)} at least between two refreshes of one"))
    show([("schedule", repr(made)), *moved, *_retries(retry_at_once), ("wrote", str(out))])


def _retries(at_once: bool) -> list[tuple[str, str]]:
    """Return the row of fetches that are retried at once."""
    words = "at once, by the tool: rates are of successes, which take no more attempts than the table has"
    return [("retries", words)] if at_once else []


def _write_times(made: Schedule, begin: datetime | None, kind: str, path: Path) -> None:
    if kind == "icalendar" and begin is not None:
        write_icalendar(made, begin, path)
    else:
        write_table(made.to_frame(begin), path)


def _told_by(out: Path) -> str:
    """Return the format that a file name's ending implies."""
    if out.name.lower().endswith(TIMES["icalendar"]):
        return "icalendar"
    return "parquet" if table_ending(out) == ".parquet" else "csv"


def exported_rows(kind: str, done: Exported) -> list[tuple[str, str]]:
    """Return the printed rows, with the effect of rounding intervals."""
    lost = 1.0 - done.realised / done.planned if done.planned else 0.0
    most = f" (at most {percent(done.largest_loss, space=' ')} for a source)" if done.sources > 1 else ""
    share = percent(lost, space=" ")
    less = "" if lost < ROUNDING else f": {share} less than planned, as intervals are rounded up{most}"
    never = f"; {count(done.never, 'source')} never refreshed: {done.never_words}" if done.never else ""
    what = "a lifetime" if kind in LIFETIMES else "an interval"
    rate = f"{number(done.realised)} of {number(done.planned)} per {done.time_unit} planned{less}"
    if math.isnan(done.planned):
        rate = "not known: the table has no column interval"
    return [
        ("format", f"{kind}: {count(done.sources, 'source')} with {what}{never}"),
        ("total rate", rate.replace("intervals", "lifetimes") if kind in LIFETIMES else rate),
    ]
