"""`freshopt schedule`: refresh times, or a crawler's intervals, from rates."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from freshopt.errors import SourceDataError
from freshopt.exporters import (
    ChangeDetection,
    Crontab,
    ExternalSecrets,
    Nutch,
    StormCrawler,
    export,
    write_icalendar,
)
from freshopt.exporters.nutch import LONGEST
from freshopt.exporters.whole_intervals import ROUNDING, Exported, IntervalFormat
from freshopt.formatting import percent
from freshopt.io.atomic_output import complete_file
from freshopt.io.tables import table_ending, write_table
from freshopt.scheduling.schedule import Schedule
from freshopt.scheduling.schedule import schedule as make_schedule
from freshopt.terminal import inputs, options, tables
from freshopt.terminal.console import count, number, show
from freshopt.terminal.schedule_options import Choice, Slots, method_options

TIMES = {"csv": (".csv", ".csv.gz"), "parquet": (".parquet",), "icalendar": (".ics",)}
INTERVALS = ("nutch", "stormcrawler", "changedetection", "crontab", "external-secrets")


@click.command(short_help="Write refresh times or intervals for a table of RATES.")
@click.argument("rates", type=click.Path(path_type=Path))
@method_options
@click.option(
    "--format",
    "kind",
    type=click.Choice([*INTERVALS, *TIMES]),
    metavar="NAME",
    help=f"Output format: the times of a schedule ({', '.join(TIMES)}; by default from the ending of "
    f"--out) or an "
    f"interval for each source, for {', '.join(INTERVALS)}.",
)
@click.option("--horizon", metavar="TIME", help="Length of a schedule with times, such as 7d or 12h.")
@options.seed_option
@click.option(
    "--start", metavar="MOMENT", help="Moment of time 0, such as 2026-01-31T06:00:00Z (UTC); adds timestamps."
)
@click.option("--longest", metavar="TIME", help="For --format nutch: db.fetch.interval.max (default 90d).")
@click.option(
    "--command", metavar="WORDS", help="For --format crontab: command that refreshes the source it is given."
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="File to write; a folder with --format nutch.",
)
@options.table_unit_option
@options.overwrite_option
def schedule(
    rates: Path,
    choice: Choice,
    kind: str | None,
    horizon: str | None,
    seed: int,
    start: str | None,
    longest: str | None,
    command: str | None,
    out: Path,
    time_unit: str | None,
    overwrite: bool,
) -> None:
    """Write refresh times or a crawler's intervals for RATES.

    RATES is a table with the columns source and rate. Intervals are rounded so that no source is refreshed
    more often than its rate; the command prints the total rate that results.
    """
    kind = kind or _told_by(out)
    _require_of(kind, {"--longest": (longest, ("nutch",)), "--command": (command, ("crontab",))})
    inputs.require_other(rates, out)
    if kind in INTERVALS:
        unused = {"--horizon": horizon, "--start": start, **choice.given()}
        unused |= {"--method": None if choice.method == "periodic" else choice.method}
        _require_of(kind, {name: (given, tuple(TIMES)) for name, given in unused.items()})
        frame, unit = tables.rates_of(rates, time_unit)
        done = export(frame, _target(kind, longest, command), out, time_unit=unit, overwrite=overwrite)
        show(_rows(kind, done, out))
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
        frame, unit = tables.rates_of(rates, time_unit)
        length = inputs.duration_of("--horizon", horizon, unit)
        method = choice.make(frame, unit, length, seed, begin)
        made = make_schedule(frame, length, method, time_unit=unit)
        _write_times(made, begin, kind, staging)
    moved = [("slots", method.words(unit))] if isinstance(method, Slots) else []
    show([("schedule", repr(made)), *moved, ("wrote", str(out))])


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


def _require_of(kind: str, given: dict[str, tuple[object, tuple[str, ...]]]) -> None:
    """Raise if an option does not apply to the format."""
    for option, (value, kinds) in given.items():
        if value is not None and kind not in kinds:
            raise click.UsageError(
                f"{option} is for --format {', '.join(kinds)}, not for {kind}. Leave it out."
            )


def _target(kind: str, longest: str | None, command: str | None) -> IntervalFormat:
    """Return the format with its settings."""
    if kind == "nutch":
        seconds = LONGEST if longest is None else int(inputs.duration_of("--longest", longest, "second"))
        if not 1 <= seconds < 2**31:
            raise SourceDataError(f"--longest: {longest!r} is not from 1 s to 68 years. Nutch counts so far.")
        return Nutch(seconds)
    made: dict[str, IntervalFormat] = {
        "stormcrawler": StormCrawler(),
        "changedetection": ChangeDetection(),
        "crontab": Crontab() if command is None else Crontab(command),
        "external-secrets": ExternalSecrets(),
    }
    return made[kind]


def _rows(kind: str, done: Exported, out: Path) -> list[tuple[str, str]]:
    """Return the printed rows, with the effect of rounding intervals."""
    lost = 1.0 - done.realised / done.planned if done.planned else 0.0
    most = f" (at most {percent(done.largest_loss, space=' ')} for a source)" if done.sources > 1 else ""
    share = percent(lost, space=" ")
    less = "" if lost < ROUNDING else f": {share} less than planned, as intervals are rounded up{most}"
    never = f"; {count(done.never, 'source')} never refreshed: {done.never_words}" if done.never else ""
    return [
        ("format", f"{kind}: {count(done.sources, 'source')} with an interval{never}"),
        (
            "total rate",
            f"{number(done.realised)} of {number(done.planned)} per {done.time_unit} planned{less}",
        ),
        ("wrote", str(out)),
    ]
