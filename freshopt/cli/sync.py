"""`freshopt sync`: intervals of a running tool, set from its own history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import click
import numpy as np

from freshopt.errors import SourceDataError
from freshopt.formatting import percent
from freshopt.naming import OBJECTIVES, PLANNED, Parameters, objective_of
from freshopt.numerics.arrays import Array
from freshopt.numerics.special_functions import mean_stale_share
from freshopt.planning.plan import Plan
from freshopt.planning.plan import plan as make_plan
from freshopt.scheduling.rate_table import read_rates
from freshopt.terminal import options
from freshopt.terminal.commands import OneOf, command
from freshopt.terminal.console import count, fitted, number, plain, progress, show
from freshopt.terminal.wish_options import own_option, required, table_options, wished
from freshopt.tools.changedetection import log_of_watches, names_of_watches
from freshopt.tools.changedetection_api import ChangeDetectionApi, ServedWatch
from freshopt.tools.feeds.opml import Bounds, bounds_of, read_tag_bounds, require_tags
from freshopt.tools.table import SERVED
from freshopt.tools.whole_seconds import ROUNDING, Limits, whole_intervals
from freshopt.units import SECONDS, duration_of, rate_of

_DAY = SECONDS["day"]
# Objectives without parameters of their own.
_OBJECTIVES = [name for name in PLANNED if not OBJECTIVES[name].uses]
# An interval stays as it is within so many seconds, or this share of it, of what is planned.
_ROUNDING, _NEAR = 2, 0.01
# Letters of a watch's address in the table.
_WIDE = 60


class Change(NamedTuple):
    """Interval of a watch in seconds, before and after."""

    served: ServedWatch
    name: str
    before: int | None
    after: int
    change_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOptions:
    """Server whose intervals are set, and what is asked of them."""

    url: str = required(help="Address of the server, such as http://localhost:5000.")
    key: str = required(
        envvar="CHANGEDETECTION_KEY",
        help="API key of its settings; by default of the environment variable CHANGEDETECTION_KEY.",
    )
    bandwidth: str | None = wished(help="Checks of all planned watches, such as 200/day (default: as today).")
    min_interval: str = wished("1min", default="1min", show_default=True, help="Shortest interval to set.")
    max_interval: str = wished("30d", default="30d", show_default=True, help="Longest interval to set.")
    tag_interval: tuple[str, ...] = own_option(
        (),
        metavar="TAG=TIME..TIME",
        help="Shortest and longest interval of watches with a tag, such as news=10min..6h (repeatable); * is "
        "each watch.",
    )
    default_interval: str = own_option(
        "3h", metavar="TIME", help="The server's default interval, which its interface does not tell."
    )
    timeout: float = own_option(
        20.0, type=click.FloatRange(min=0.1, max=3600.0), help="Seconds for each request."
    )
    dry_run: bool = own_option(False, help="Print what would change, and change nothing.")


@command()
@click.argument("tool", type=OneOf(list(SERVED)), metavar="TOOL")
@table_options("asked", SyncOptions)
@options.objective_option(_OBJECTIVES, default="delay")
def sync(tool: str, asked: SyncOptions, objective: str) -> None:
    """Plan a running changedetection.io, and set its intervals between checks.

    TOOL is what runs: changedetection, the only one so far. The watches' histories are read over its
    interface, their change rates estimated and the intervals planned for the same number of checks as today,
    or --bandwidth. Watches that are paused or have no history yet stay as they are, and so do intervals
    within 1 % or 2 s of the plan. Where a watch has active hours, the interval is the one at which checks
    within them are as many as planned. All is read and planned before the first one is set.
    """
    server = SERVED[tool](asked.url.rstrip("/"), asked.key, asked.timeout)
    least = duration_of("--min-interval", asked.min_interval, "second")
    most = duration_of("--max-interval", asked.max_interval, "second")
    usual = int(duration_of("--default-interval", asked.default_interval, "second"))
    if not server.limits.shortest <= least <= most <= server.limits.longest:
        raise SourceDataError(
            f"--min-interval {asked.min_interval} and --max-interval {asked.max_interval} are not in this "
            "order between 1 minute and 1000 years. Correct them."
        )
    with progress(3) as on_progress:
        on_progress("reading")
        served = list(server.watches())
        planned = [each for each in served if _is_planned(each)]
        if not planned:
            raise SourceDataError(
                f"of the {len(served)} watches of {asked.url} none is planned: each is paused, or has not "
                "been checked since its first snapshot. Let it check for a while."
            )
        on_progress("planning")
        names = names_of_watches([each.watch for each in planned])
        shortest, bounds = _bounds(server, planned, names, asked.tag_interval, Bounds(least, most))
        gaps = [each.hours_today.mean(each.watch.interval or usual) for each in planned]
        today = sum(_DAY / gap for gap in gaps)
        total = today if asked.bandwidth is None else rate_of("--bandwidth", asked.bandwidth, "day")
        needed = sum(_DAY / each.most for each in bounds)
        if total < needed:
            raise SourceDataError(
                f"{number(total)} checks per day are too few for {count(len(planned), 'source')} at "
                f"intervals of at most {asked.max_interval}, or a tag's, which take "
                f"{number(needed)}. Raise --bandwidth or --max-interval."
            )
        checked = [each.watch._replace(interval=round(gap)) for each, gap in zip(planned, gaps, strict=True)]
        made = make_plan(
            log_of_watches(checked, "day", usual),
            total,
            "1d",
            objective=objective_of(objective, "periodic", Parameters()),
            limits={
                name: (f"{each.least:.17g} s", f"{each.most:.17g} s")
                for name, each in zip(names, bounds, strict=True)
            },
            draws=0,
            load_limit=1.0,
        )
        changes = _changes(planned, made, server.limits, shortest)
        on_progress("setting")
        if not asked.dry_run:
            _apply(server, [each for each in changes if each.before != each.after])
    moved = [each for each in changes if each.before != each.after]
    _print_table(moved, usual)
    show(_rows(changes, served, total, asked.bandwidth is None, usual))
    done = "would be set; nothing was changed" if asked.dry_run else "set"
    click.echo(f"{count(len(moved), 'interval')} {done}")


def _is_planned(each: ServedWatch) -> bool:
    """Return whether a watch tells something of its changes, and is checked."""
    times = each.watch.times
    able = not each.paused and each.hours.times != ()
    return able and bool(times) and max(each.watch.checked, times[-1]) > times[0]


def _changes(planned: list[ServedWatch], made: Plan, limits: Limits, shortest: list[int]) -> list[Change]:
    """Return the interval of each watch, before and after."""
    names = names_of_watches([each.watch for each in planned])
    gap = dict(zip(made.log.names.tolist(), (_DAY / made.solution.rates).tolist(), strict=True))
    whole_intervals(read_rates(made.solution), limits)  # which refuses what the tool cannot hold
    rates = dict(zip(made.log.names.tolist(), made.sources.change_rate.tolist(), strict=True))
    found = []
    for each, name, least in zip(planned, names, shortest, strict=True):
        after = each.hours.interval(gap[name] * (1.0 - ROUNDING), least)
        found.append(
            Change(each, name, each.watch.interval, _settled(each.watch.interval, after), rates[name])
        )
    return found


def _bounds(
    server: ChangeDetectionApi,
    planned: list[ServedWatch],
    names: list[str],
    told: Sequence[str],
    around: Bounds,
) -> tuple[list[int], list[Bounds]]:
    """Return shortest intervals, and bounds of the mean times between checks."""
    bounds, option = read_tag_bounds(told, "--tag-interval"), "--tag-interval"
    titles = server.tags() if bounds else {}
    own = [[titles[key] for key in each.tags if key in titles] for each in planned]
    require_tags(bounds, {title for titles in own for title in titles}, option)
    by_tag = [bounds_of(name, tags, bounds, around, option) for name, tags in zip(names, own, strict=True)]
    shortest = [math.ceil(max(least, server.limits.shortest)) for least, _ in by_tag]
    means = [each.hours.mean(float(least)) for each, least in zip(planned, shortest, strict=True)]
    # Hours may make it longer than the longest: it is checked as often as they allow then.
    most = [max(mean, each.most) for mean, each in zip(means, by_tag, strict=True)]
    return shortest, [Bounds(*each) for each in zip(means, most, strict=True)]


def _settled(before: int | None, after: int) -> int:
    """Return the planned interval, or the one before if it is near.

    Rounded up anew by each run, intervals would creep up.
    """
    near = before is not None and abs(after - before) <= max(_ROUNDING, _NEAR * before)
    return before if near and before is not None else after


def _apply(server: ChangeDetectionApi, changes: list[Change]) -> None:
    """Set the intervals; an error says which are set."""
    for k, each in enumerate(changes):
        try:
            server.set_interval(each.served.watch.key, each.after)
        except (SourceDataError, KeyboardInterrupt) as error:
            what = str(error).rstrip(".") or "interrupted"
            before = ", ".join(plain(own.name)[:_WIDE] for own in changes[max(0, k - 5) : k]) or "none"
            raise SourceDataError(
                f"{what}. Of {len(changes)} intervals {k} were set before (the latest: "
                f"{before}), that of {plain(each.name)[:_WIDE]} perhaps, the others not. Run it again."
            ) from error


def _print_table(changes: list[Change], usual: int) -> None:
    """Print the intervals that change, those of the fastest watches first."""
    rows = [("watch", "changes per day", "now every", "planned")]
    for each in sorted(changes, key=lambda own: -own.change_rate):
        now = f"{_span(usual)} (default)" if each.before is None else _span(each.before)
        name = plain(each.name)
        short = name if len(name) <= _WIDE else f"{name[: _WIDE - 3]}..."
        rows.append((short, number(each.change_rate), now, _span(each.after)))
    click.echo(f"{fitted(rows)}\n")


def _rows(
    changes: list[Change], served: list[ServedWatch], total: float, as_today: bool, usual: int
) -> list[tuple[str, str]]:
    """Return the printed rows: what the new intervals bring."""
    rate = np.array([each.change_rate for each in changes])
    before = np.array([each.served.hours_today.mean(each.before or usual) for each in changes])
    after = np.array([each.served.hours.mean(each.after) for each in changes])
    paused = sum(each.paused for each in served)
    new = len(served) - len(changes) - paused
    now, then = _delay(rate, before), _delay(rate, after)
    stale = [float(np.mean(mean_stale_share(rate * gap / _DAY))) for gap in (before, after)]
    fresh = [percent(1.0 - share, space=" ") for share in stale]
    kept = sum(each.before == each.after for each in changes)
    per_day = [number(float(np.sum(_DAY / gap))) for gap in (before, after)]
    aim = "as today" if as_today else f"of {number(total)}, instead of {per_day[0]}"
    return [
        (
            "watches",
            f"{len(changes)} planned, {kept} of them as they are; left alone: {paused} paused, "
            f"{new} without history",
        ),
        ("checks", f"{per_day[1]} per day, {aim}"),
        ("noticed", f"a change is noticed after {_span(then)} on average, instead of {_span(now)}"),
        ("up to date", f"{fresh[1]} of the time on average, instead of {fresh[0]}"),
    ]


def _delay(change_rate: Array, interval: Array) -> float:
    """Return the mean seconds from a change to its check."""
    total = float(np.sum(change_rate))
    return float(np.sum(change_rate * interval)) / (2.0 * total) if total else 0.0


def _span(seconds: float) -> str:
    """Return a time in its two largest units.

    Examples
    --------
    >>> _span(90061), _span(7200), _span(59.4)
    ('1 d 1 h', '2 h', '59 s')
    """
    rest = round(seconds)
    parts: list[tuple[int, str]] = []
    for name, whole in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        many, rest = divmod(rest, whole)
        if many or parts:
            parts.append((many, name))
    return " ".join(f"{many} {name}" for many, name in parts[:2] if many) or "0 s"
