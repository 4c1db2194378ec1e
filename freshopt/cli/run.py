"""`freshopt run`: a live plan carried out by commands."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import click
import numpy as np
import numpy.typing as npt

from freshopt.cli.live_settings import LiveOptions
from freshopt.errors import SourceDataError
from freshopt.heavy import polars
from freshopt.live.hand_out import Visit
from freshopt.live.planner import Planner, filled_planner
from freshopt.live.running import run_planner
from freshopt.live.service.alarms import Alarm
from freshopt.live.signal_feed import SignalFeed
from freshopt.live.source_command import Fetch, SourceCommand
from freshopt.live.sqlite_store import holds_planner
from freshopt.logs.log_files import is_table
from freshopt.logs.read_crawls import read_log
from freshopt.logs.schema import LISTED, Table
from freshopt.logs.source_index import hosts_of_urls
from freshopt.noisy_signals.with_signals import require_signals
from freshopt.numerics.arrays import labels_of
from freshopt.planning.request import SourceLimits
from freshopt.terminal import options
from freshopt.terminal.commands import command
from freshopt.terminal.console import count, show
from freshopt.terminal.own_objectives import OwnObjective
from freshopt.terminal.wish_options import (
    RateLimits,
    own_option,
    rate_limits,
    table_options,
)
from freshopt.units import convert_time, duration_of

if TYPE_CHECKING:
    from freshopt.logs.crawl_log import CrawlLog


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What fetches a live plan's sources, and for how long."""

    text: str | None = own_option(
        names=("--command",),
        metavar="WORDS",
        help="What fetches a source, without a shell, such as 'curl -sS --fail {source}' ({host} is filled"
        " in, too). Without it the state of the plan is shown.",
    )
    sources: Path | None = own_option(
        help="Sources: a text file with one a line, or a table with source and any of importance, host, "
        "refresh_cost, and the columns of --limits."
    )
    log: Path | None = own_option(
        metavar="LOG",
        help="Crawls so far, with dates, to learn from. Without --sources, its sources are planned for.",
    )
    changed_by: Literal["output", "exit-code"] = own_option(
        "output",
        help="output: another output than last time is a change. exit-code: 0 is unchanged, 1 is changed. "
        "Other exit codes are failures.",
    )
    jobs: int = own_option(4, type=click.IntRange(1, 256), help="Commands at a time.")
    timeout: str = own_option("1min", metavar="TIME", help="Longest run of a command.")
    signals_from: str | None = own_option(
        metavar="FILE",
        help="Signals that sources may have changed: a file that grows, or the words of a program that "
        "prints them, lines such as source,time,kind.",
    )
    once: bool = own_option(False, help="End when nothing more is due, instead of waiting.")
    duration: str | None = own_option(
        names=("--for",), metavar="TIME", help="End after this time, such as 8h."
    )
    quiet: bool = own_option(False, help="Print no line for each source.")


@command()
@click.argument("folder")
@table_options("asked", RunOptions)
@table_options("live", LiveOptions)
@options.answers_option
@rate_limits
def run(
    folder: str, asked: RunOptions, live: LiveOptions, answers_are_changes: bool, bounds: RateLimits
) -> None:
    """Fetch each source by a command whenever it is due.

    What is found tells how often each changes, and the plan follows. FOLDER keeps the state. It is made with
    --bandwidth and --sources, and any later run goes on from there; runs side by side share the work. What
    fails is no evidence, and is tried again early, then ever later. Ctrl-C finishes what is running, and
    hands the rest back. The exit code is 1 if a command failed.

    FOLDER may be the address of a PostgreSQL database. Other commands take a folder for the log that it
    keeps: freshopt plan FOLDER writes the page of it.
    """
    seconds = duration_of("--timeout", asked.timeout, "second")
    command = None if asked.text is None else SourceCommand.parse(asked.text, seconds, asked.changed_by)
    ends = None
    if asked.duration is not None:
        ends = datetime.now(UTC) + timedelta(seconds=duration_of("--for", asked.duration, "second"))
    listed = None if asked.sources is None else _sources(asked.sources)
    history = None if asked.log is None else _history(asked.log, answers_are_changes=answers_are_changes)
    if history is not None and listed is None and _is_new(folder):
        listed = _named(_texts(history).tolist())
    if asked.signals_from is not None and command is None:
        raise click.UsageError("--signals-from goes with --command, whose fetches tell what signals say.")
    settings = live.settings(None if asked.signals_from is None else "--signals-from")
    if listed is None and bounds != RateLimits():
        raise click.UsageError("Limits are of the sources that --sources lists, or --log has. Name it, too.")
    if listed is not None:
        listed = bounds.on(listed, "day")
        needed = "host_limits" in settings or "host_gap" in settings
        needed = needed or (command is not None and command.names_host)
        if needed and "host" not in listed.columns:
            listed = listed.with_columns(host=hosts_of_urls(listed["source"].to_numpy()))
    if asked.signals_from is not None and "objective" in settings:
        require_signals(settings["objective"])
    if _is_new(folder) and ("bandwidth" not in settings or listed is None):
        raise SourceDataError(
            f"there is no planner in '{folder}'. Give --bandwidth, such as 200/day, and --sources, a file of "
            "them, or --log to begin one."
        )
    if command is None:
        with _planner(folder, settings, listed, history) as planner:
            show(planner.status().rows())
        return
    with (
        nullcontext() if asked.signals_from is None else closing(SignalFeed(asked.signals_from)) as feed,
        _planner(folder, settings, listed, history, hears=feed is not None) as planner,
        _interrupts() as stop,
    ):
        tally = run_planner(
            planner,
            command,
            jobs=asked.jobs,
            until=ends,
            once=asked.once,
            stop=stop,
            signals=feed,
            **({} if asked.quiet else {"on_fetch": _tell}),
        )
        many = "fetch" if tally.fetched == 1 else "fetches"
        found = f"{tally.changed:,} changed, {tally.failed:,} failed"
        of = f" of {count(len(tally.sources), 'source')}" if tally.fetched else ""
        fetched = f"{tally.fetched:,} {many}{of}; {found}"
        told = [("fetched", fetched), *(("failed", why) for why in tally.failures)]
        told += [] if feed is None else [("signals", feed.words)]
        show([*told, *planner.status().rows()])
    if tally.failed:
        click.get_current_context().exit(1)


@command()
@click.argument("folder")
@click.option(
    "--fail-if",
    multiple=True,
    metavar="WORDS",
    help="Exit with 1 and one line if so: 'fresh < 90%', 'down > 10', 'idle > 2h' since any crawl, "
    "'5% older than 2h', 'news/*: 5% older than 2h' (repeatable).",
)
@click.option(
    "--objective",
    metavar="MODULE:CLASS",
    help="Your own objective, as of freshopt run, if the plan is for one.",
)
def status(folder: str, fail_if: tuple[str, ...], objective: str | None) -> None:
    """Show the state of a live plan, or fail a job.

    FOLDER is that of freshopt run or serve, or the address of a database. With --fail-if one line is printed.
    """
    alarms = [Alarm.of(text) for text in fail_if]
    if _is_new(folder):
        raise SourceDataError(f"there is no planner in '{folder}'. Name the folder of freshopt run.")
    own = None if objective is None else OwnObjective.parsed(objective).made(None)
    with Planner(folder, objective=own) as planner:
        found = planner.status()
        if not alarms:
            show(found.rows())
            return
        raised = [why for each in alarms if (why := each.raised(planner, found)) is not None]
    if raised:
        click.echo(f"alarm: {'; '.join(raised)}")
        click.get_current_context().exit(1)
    click.echo(f"ok: {count(found.sources, 'source')}, none of {count(len(alarms), 'alarm')}")


def _is_new(place: str) -> bool:
    """Return whether a folder has no planner; an address is asked later."""
    return "://" not in place and not holds_planner(Path(place))


def _planner(
    place: str,
    settings: dict[str, Any],
    listed: polars.DataFrame | None,
    history: CrawlLog | None,
    *,
    hears: bool = False,
) -> Planner:
    """Open the planner, its sources and crawls added, or change nothing."""

    def fill(planner: Planner) -> None:
        if listed is not None:
            per_day = convert_time(1.0, planner.settings.time_unit, "day")
            planner.add_many(listed.with_columns(polars.col("^(min|max)_rate$") * per_day))
        if history is not None:
            _record(planner, history)
        if len(planner) == 0:
            raise SourceDataError(
                f"the planner in '{place}' has no sources. Name a file of them by --sources."
            )
        if hears:
            require_signals(planner.settings.objective)

    return filled_planner(place, settings, fill)


def _sources(path: Path) -> polars.DataFrame:
    """Return the sources that a file lists, with bounds per day."""
    if is_table(path):
        table = Table.read(path, LISTED)
        every = table.frame["source"].to_numpy()
        least, most = SourceLimits.of_table(table, "day").around(every, 0.0, np.inf)
        told = {"min_rate": least} if {"min_rate", "max_interval"} & {*table.frame.columns} else {}
        told |= {"max_rate": most} if {"max_rate", "min_interval"} & {*table.frame.columns} else {}
        return table.frame.with_columns(**{name: polars.Series(bounds) for name, bounds in told.items()})
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise SourceDataError(f"{path} is no text in UTF-8 ({error.reason}). Write it in UTF-8.") from None
    names = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not names:
        raise SourceDataError(f"{path} lists no sources. Write one a line.")
    return _named(names)


def _named(names: list[str]) -> polars.DataFrame:
    return polars.DataFrame({"source": names})


def _history(path: Path, *, answers_are_changes: bool) -> CrawlLog:
    """Return a log whose times are dates."""
    found = read_log(path, "day", answers_are_changes=answers_are_changes)
    if found.origin is None:
        raise SourceDataError(
            f"{path} has numbers for times, and a live plan follows the clock. Write dates such as "
            "2026-01-31T06:00:00Z in the column time."
        )
    return found


def _texts(history: CrawlLog) -> npt.NDArray[np.object_]:
    """Return the names of a log's sources; a planner has no integers."""
    return np.array([*map(str, history.names.tolist())], dtype=object)


def _record(planner: Planner, history: CrawlLog) -> None:
    """Record the crawls so far of the planner's sources."""
    known = np.isin(_texts(history), planner.to_frame()["source"].to_numpy())
    rows = np.flatnonzero(known[history.source_index])
    first = np.zeros(len(history), dtype=np.bool_)
    first[history.offsets[:-1]] = True
    changed = np.where(np.isnan(history.interval) & ~first, np.nan, history.changed)
    planner.observed_many(
        labels_of(_texts(history), history.source_index[rows]),
        history.clock.moments(history.time[rows]),
        changed[rows],
        changes=None if history.changes is None else history.changes[rows],
        last_modified=None
        if history.last_modified is None
        else history.clock.moments(history.last_modified[rows]),
    )


@contextmanager
def _interrupts() -> Iterator[Event]:
    """Return an event that Ctrl-C and termination set, twice to end."""
    stop = Event()
    before: dict[int, object] = {}

    def ask(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        click.echo("Finishing what is running; once more ends at once.", err=True)

    for each in (signal.SIGINT, signal.SIGTERM):
        before[each] = signal.signal(each, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


def _tell(visit: Visit, fetch: Fetch, changed: bool) -> None:
    word = f"failed: {fetch.failure}" if fetch.failure else "changed" if changed else "unchanged"
    if not fetch.failure and (visit.last_crawl is None or (fetch.content and visit.content is None)):
        word = "first"
    click.echo(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {word:9} {visit.source}")
