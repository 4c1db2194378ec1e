"""`freshopt replay`: measured cost of a schedule under known changes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click
import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs.atomic_output import complete_file
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.read_crawls import read_log
from freshopt.logs.read_events import read_history
from freshopt.logs.schema import IMPORTANCES, TIMES, Table, column_of
from freshopt.logs.tables import column_names, read_table, table_ending, write_table
from freshopt.noisy_signals.rule_table import read_rule
from freshopt.noisy_signals.signal_table import SignalTable
from freshopt.noisy_signals.simulated_signals import replay_signals
from freshopt.noisy_signals.with_signals import learnt_signals
from freshopt.numerics.arrays import Array, label_array
from freshopt.planning.known_changes import known_changes
from freshopt.report.value_words import amount, mean_amount
from freshopt.scheduling.schedule import Schedule
from freshopt.simulation.replay_result import NAMED, Replay
from freshopt.simulation.replaying import replay as replay_schedule
from freshopt.simulation.rules import RULES, replay_rule, rules_of
from freshopt.simulation.world import World
from freshopt.terminal import inputs, options, tables
from freshopt.terminal.commands import command
from freshopt.terminal.console import count, number, show, working
from freshopt.terminal.wish_options import own_option, table_options, wished
from freshopt.units import SECONDS, duration_of

_KINDS = {name: kind.__name__ for kind, name in NAMED.items()}
WORDS = {
    "binary": "share of time that copies are fresh",
    "harmonic": "staleness, the m-th missed change counts 1/m",
    "delay": "number of missed changes",
    "age": "time since the oldest missed change",
}


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Changes under which a schedule is replayed, and its place among them."""

    history: Path | None = own_option(help="Table of all changes (source, time).")
    log: Path | None = own_option(
        help="Crawl log; a change is placed in the middle of the crawl interval in which it was found."
    )
    sources: Path | None = own_option(
        help="Table of sources; their changes are simulated as Poisson processes with its change rates."
    )
    origin: float | None = own_option(
        metavar="TIME",
        help="Start of the schedule on the clock of the changes (default: what its timestamps say, or the "
        "first change).",
    )
    horizon: str | None = wished(help="Length of the schedule, such as 7d (default: up to its last refresh).")
    signals: Path | None = own_option(
        help="Table of signals (source, time), all of which are followed. SCHEDULE is then the table waits, "
        "thresholds or ages of a plan with --signals."
    )
    skip: str | None = own_option(
        metavar="TIME",
        help="Time at the start of the schedule that is not counted, such as 1d (default: none).",
    )
    importance: Path | None = wished()
    seed: int = wished(0)
    compare_rule: tuple[str, ...] = wished(
        (),
        multiple=True,
        help=f"Measure a rule that crawlers run, too (repeatable): {', '.join(RULES)}, or an interval: 6h.",
    )


@command()
@click.argument("schedule", type=click.Path(path_type=Path))
@table_options("asked", ReplayOptions)
@options.answers_option
@options.file_option("File to write, .csv or .parquet.")
@options.time_unit_option
@options.overwrite_option
@working("replaying")
def replay(
    schedule: Path,
    asked: ReplayOptions,
    answers_are_changes: bool,
    out: Path | None,
    time_unit: str,
    overwrite: bool,
) -> None:
    """Measure the cost of a SCHEDULE under known changes.

    SCHEDULE is a table with the columns source and time, or with --signals the rule of a plan that follows
    signals; every objective's cost is measured. Give one of
    --history, --log and --sources. All copies are fresh when the schedule begins. Costs count to
    the end of the schedule, and of each source only as long as its changes are known: in a log until its last
    crawl. Sources that change but are not in the schedule are never refreshed, and count.
    """
    if sum(given is not None for given in (asked.history, asked.log, asked.sources)) != 1:
        raise click.UsageError("Give one of --history, --log and --sources, and only one.")
    if asked.signals is not None and asked.sources is not None:
        raise click.UsageError("--signals are of recorded changes. Give --history or --log with them.")
    rules = rules_of("--compare-rule", asked.compare_rule)
    if out is not None:
        table_ending(out)
        inputs.require_other(out, schedule)
    with complete_file(out, overwrite) if out else nullcontext() as staging:
        world, until, clock, words, heard = _world(asked, time_unit, answers_are_changes)
        weights = column_of(asked.importance, IMPORTANCES)
        skip = 0.0 if asked.skip is None else duration_of("--skip", asked.skip, world.time_unit)
        importance = None if weights is None else weights(world.names)
        if heard is None:
            plan, begin = _schedule(schedule, world, asked.horizon, clock)
            start = float(np.min(world.start)) if begin is None else begin
            horizon, idle = plan.horizon, int(np.count_nonzero(plan.counts == 0))
            found = replay_schedule(
                plan,
                world,
                origin=begin if asked.origin is None else asked.origin,
                skip=skip,
                end=until,
                importance=importance,
                seed=asked.seed,
            )
        else:
            start, names = float(np.min(world.start)), label_array(() if world.names is None else world.names)
            origin, idle = start if asked.origin is None else asked.origin, None
            horizon = world.horizon - origin
            if asked.horizon is not None:
                horizon = min(horizon, duration_of("--horizon", asked.horizon, world.time_unit))
            found = replay_signals(
                read_rule(schedule, names, world.time_unit),
                world,
                None,
                None,
                horizon,
                signals=(heard.source, heard.time),
                origin=origin,
                skip=skip,
                end=until,
                importance=importance,
                seed=asked.seed,
            )
        if staging is not None:
            write_table(found.to_frame(), staging)
    beside, unit = [], world.time_unit
    for name, rule in rules.items():
        other = replay_rule(
            rule,
            world,
            origin=found.begin - skip,
            skip=skip,
            end=found.end if until is None else np.minimum(until, found.end),
            importance=importance,
            seed=asked.seed,
        )
        costs = (
            f"{key} {amount(_KINDS.get(key, key), each.value, unit)}" for key, each in other.costs.items()
        )
        beside.append((name, f"{number(other.refreshes)} refreshes in that time: {', '.join(costs)}"))
    beyond = (start if asked.origin is None else asked.origin) + horizon - found.end
    show([*_rows(found, idle, words, until, beyond), *beside])
    if out is not None:
        click.echo(f"\nwrote {out}")


def _world(
    asked: ReplayOptions, time_unit: str, answers_are_changes: bool
) -> tuple[World, Array | None, Clock | None, str, SignalTable | None]:
    """Return the changes and how far they are known.

    With them come the end of each source's record, the moment of time 0 if there are dates, a text, and
    signals.
    """
    if asked.sources is not None:
        known, *_ = tables.sources_of(asked.sources, None)
        return (
            World.poisson(known, asked.seed),
            None,
            None,
            f"{asked.sources}: {count(len(known), 'Poisson source')}",
            None,
        )
    data = (
        read_history(asked.history, time_unit=time_unit)
        if asked.history
        else read_log(asked.log or "", time_unit, answers_are_changes=answers_are_changes)
    )
    heard = None
    if asked.signals is not None:
        heard = SignalTable.of(data, asked.signals)
        heard = heard.of_kinds(np.ones(len(heard.kinds)))
    learnt = learnt_signals(data, heard, None) if heard is not None and isinstance(data, CrawlLog) else None
    world, place = known_changes(data, learnt), "in the middle of its crawl interval"
    if learnt is not None:
        heard, place = learnt.signals_, f"{place}, or where signals make it likely"
    middle = "" if asked.history else f", each placed {place}; costs leave out what crawls hid"
    many = int(world.events(-np.inf, np.inf)[0][-1])
    words = f"{asked.history or asked.log}: {count(many, 'change')} of {count(len(world), 'source')}{middle}"
    # After the last crawl of a source its changes are unknown, which does not mean that there are none.
    until = data.last_crawl if isinstance(data, CrawlLog) else np.broadcast_to(data.end, len(world))
    return world, until, data.clock, words, heard


def _schedule(
    path: Path, world: World, horizon: str | None, clock: Clock | None
) -> tuple[Schedule, float | None]:
    """Read a schedule of the world's sources, and its start.

    The start is on the world's clock; None where the schedule does not say it.
    """
    if "wait" in column_names(path):
        raise SourceDataError(f"{path} is a rule of crawls that follow signals. Give these with --signals.")
    table = Table.read(path, TIMES)
    frame, time = table.frame, table.numbers("time")
    labels = np.arange(len(world)) if world.names is None else world.names
    place = {str(name): k for k, name in enumerate(labels.tolist())}
    named = [str(name) for name in frame["source"].to_list()]
    unknown = sorted({name for name in named if name not in place})
    if unknown:
        raise SourceDataError(
            f"{path} refreshes {list_offenders(map(repr, unknown))}, of which no changes are known. Add "
            "their changes, or drop these rows."
        )
    source = np.array([place[name] for name in named], dtype=np.int64)
    if len(time) == 0 and horizon is None:
        raise SourceDataError(f"{path} has no refreshes. Say with --horizon how long the schedule is.")
    if horizon is None:
        length = float(np.nextafter(np.max(time), np.inf))
    else:
        length = duration_of("--horizon", horizon, world.time_unit)
    length = length if length > 0.0 else 1.0
    order = np.lexsort((source, time))
    inside = order[time[order] < length]
    made = Schedule(
        source[inside],
        time[inside],
        length,
        np.bincount(source[inside], minlength=len(world)) / length,
        names=world.names,
        time_unit=world.time_unit,
    )
    return made, _begin(path, time, clock)


def _begin(path: Path, time: Array, clock: Clock | None) -> float | None:
    """Return a dated schedule's start on the clock of the changes."""
    if clock is None or not clock.dated or len(time) == 0:
        return None
    frame = read_table(path)
    if "timestamp" not in frame.columns or not frame["timestamp"].dtype.is_temporal():
        return None
    offset = timedelta(seconds=float(time[0]) * SECONDS[clock.unit])
    return clock.number(frame["timestamp"][0], "timestamp") - offset.total_seconds() / SECONDS[clock.unit]


def _rows(
    found: Replay, idle: int | None, words: str, until: Array | None, beyond: float
) -> list[tuple[str, str]]:
    """Return the printed rows of a replay.

    `idle` sources are never refreshed, None where signals decide; `beyond` is the length of the schedule's
    end of which no changes are known.
    """
    last = f"{count(idle or 0, 'source')} never refreshed"
    if idle is None:
        last = f"{number(found.on_signal)} of them at a signal"
    runs = "" if found.runs == 1 else f", mean of {found.runs} samples"
    rest = ""
    if beyond > 1e-9 * (abs(found.end) + 1.0):
        rest = f" (of the last {count(beyond, found.time_unit)} of the schedule no changes are known)"
    rows = [
        ("changes", words),
        (
            "schedule",
            f"{number(found.refreshes)} refreshes from {number(found.begin)} to "
            f"{count(found.end, found.time_unit)}{runs}{rest}; {last}",
        ),
    ]
    short = 0 if until is None else int(np.count_nonzero(until < found.end))
    if short:
        rows.append(
            (
                "known",
                f"{count(short, 'source')} only until before {number(found.end)}; costs count until then",
            )
        )
    for name, cost in found.costs.items():
        kind, unit = _KINDS.get(name, name), found.time_unit
        error = "" if np.isnan(cost.error) else f" ± {amount(kind, cost.error, unit)}"
        mean = (
            f", {mean_amount(kind, cost.mean, 1.0, unit)} a source"
            if len(found.per_source["binary"]) > 1
            else ""
        )
        rows.append((name, f"{amount(kind, cost.value, unit)}{error}{mean}: {WORDS.get(name, name)}"))
    return rows
