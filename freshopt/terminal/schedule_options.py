"""Named scheduling methods of the command line, and their options."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.heavy import polars
from freshopt.logs.schema import HOSTS, column_of
from freshopt.modelling.problem import Problem
from freshopt.naming import objective_of
from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.constant_load import Carousel, EarliestDeadline
from freshopt.scheduling.greedy import Greedy
from freshopt.scheduling.integer_counts import DiscreteCounts
from freshopt.scheduling.periodic import Periodic
from freshopt.scheduling.poisson_arrivals import PoissonArrivals
from freshopt.scheduling.rate_table import read_rates
from freshopt.scheduling.schedule import Method
from freshopt.scheduling.slot_assignment import Assignment, SlotAssignment
from freshopt.terminal import tables
from freshopt.terminal.commands import OneOf, not_for
from freshopt.terminal.console import count
from freshopt.terminal.wish_options import option_of, own_option, table_options, wished
from freshopt.units import SECONDS, duration_of

METHODS = ("periodic", "poisson", "carousel", "earliest-deadline", "greedy", "counts", "slots")
# Objectives with a cost of age and without parameters.
GAINS = ("harmonic", "binary", "delay", "age")
# Methods that need the sources' change rates and importances.
WEIGHED = ("greedy", "counts")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")


_WEIGHED = f"For --method {', '.join(WEIGHED)}:"


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Scheduling method and settings as the options give them, or None."""

    method: str | None = own_option(
        type=OneOf(list(METHODS)),
        metavar="NAME",
        help=f"Scheduling method: {', '.join(METHODS)} (default periodic).",
    )
    sources: Path | None = own_option(help=f"{_WEIGHED} table of sources with change_rate and importance.")
    objective: str | None = own_option(
        type=OneOf(GAINS),
        metavar="NAME",
        help=f"{_WEIGHED} objective that a refresh improves, of {', '.join(GAINS)}, as in freshopt solve "
        "(default harmonic).",
    )
    slot: str | None = own_option(metavar="TIME", help="For --method slots: length of a slot, such as 1min.")
    crawlers: int | None = own_option(
        type=click.IntRange(min=1),
        metavar="N",
        help="For --method slots: capacity of a slot, in crawls of all crawlers together.",
    )
    hosts: Path | None = wished()
    per_host: int | None = own_option(
        type=click.IntRange(min=1),
        metavar="N",
        help="For --method slots: capacity of a slot for one host, in crawls.",
    )
    min_gap: str | None = own_option(
        metavar="TIME",
        help="For --method slots: minimum time between two crawls of a host, such as 10s (default: none).",
    )
    blackout: tuple[str, ...] = own_option(
        (),
        metavar="WINDOW",
        help="For --method slots: no crawls at 22:00-06:00, every day by the clock of --start, or "
        "2h..5h after it; @HOST for one host (repeatable).",
    )

    def given(self) -> dict[str, object]:
        """Return the options by name, with values or None."""
        return {option_of(field.name): getattr(self, field.name) or None for field in fields(self)}

    def make(
        self,
        frame: polars.DataFrame,
        unit: str,
        horizon: float,
        seed: int,
        start: datetime | None,
        *,
        by_host: bool = False,
    ) -> Method:
        """Return the method."""
        name = self.method or "periodic"
        owners = {"--sources": WEIGHED, "--objective": WEIGHED}
        for option, value in self.given().items():
            use = owners.get(option, ("slots",))
            free = option == "--method" or (option == "--hosts" and by_host)
            if value is not None and not free and name not in use:
                raise click.UsageError(not_for(option, use, name, "--method"))
        if name in WEIGHED:
            problem = self._problem(frame, unit)
            return Greedy(problem) if name == "greedy" else DiscreteCounts(problem)
        if name == "slots":
            return self._slots(frame, unit, horizon, start)
        plain: dict[str, Method] = {
            "periodic": Periodic(),
            "poisson": PoissonArrivals(seed),
            "carousel": Carousel(),
            "earliest-deadline": EarliestDeadline(),
        }
        return plain[name]

    def _problem(self, frame: polars.DataFrame, unit: str) -> Problem:
        """Return the problem of the sources, in the rates' order."""
        path = self.sources
        if path is None:
            raise click.UsageError(
                f"--method {self.method} needs change rates and importances. Name the table of sources: "
                f"--sources."
            )
        known, *_ = tables.sources_of(path, unit)
        wanted = read_rates(frame, unit)
        own = [] if known.names is None else [str(name) for name in known.names.tolist()]
        names = [] if wanted.names is None else [str(name) for name in wanted.names.tolist()]
        if own != names:
            missing = sorted(set(names) ^ set(own)) or names
            raise SourceDataError(
                f"{path} does not list the sources of the rates in their order (first difference: "
                f"{list_offenders(map(repr, missing[:1]))}). Pass the table from which the rates were solved."
            )
        total_rate = float(np.sum(wanted.rates))
        if total_rate == 0.0:
            raise SourceDataError(
                f"all rates are 0. --method {self.method} shares a total rate. Pass rates that are not 0."
            )
        return Problem(objective_of(self.objective or "harmonic", None), known, total_rate)

    def _slots(self, frame: polars.DataFrame, unit: str, horizon: float, start: datetime | None) -> Slots:
        """Return the slot assignment for the rates' sources and hosts."""
        if self.slot is None or self.crawlers is None:
            raise click.UsageError(
                "--method slots needs the length of a slot and the crawls that fit into one. Add --slot, "
                "such as 1min, and --crawlers, such as 8."
            )
        if self.hosts is None and self.per_host is not None:
            raise click.UsageError("--per-host needs to know the hosts. Name their table: --hosts.")
        host_of = column_of(self.hosts, HOSTS)
        names = read_rates(frame, unit).names
        host = None if host_of is None or names is None else host_of(names)
        closed = [window for text in self.blackout for window in _windows(text, unit, horizon, start, host)]
        method = SlotAssignment(
            slot=duration_of("--slot", self.slot, unit),
            capacity=self.crawlers,
            host=host,
            host_capacity=self.per_host,
            min_gap=0.0 if self.min_gap is None else duration_of("--min-gap", self.min_gap, unit),
            blackouts=closed,
        )
        return Slots(method)


class Slots:
    """Slot assignment that keeps its displacements."""

    def __init__(self, method: SlotAssignment) -> None:
        self.method = method
        self.found: Assignment | None = None

    def __repr__(self) -> str:
        return repr(self.method)

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in their slots."""
        self.found = self.method.assign(rates, horizon)
        return self.found.source, self.found.time

    def words(self, unit: str) -> str:
        """Return the displacement of the crawls in words."""
        found = self.found
        if found is None or len(found.time) == 0:
            return "no crawls"
        if found.moved == 0.0:
            return "every crawl is in its preferred slot"
        mean, most = found.moved / len(found.time), float(np.max(np.abs(found.time - found.preferred_time)))
        least = found.bound / len(found.time)
        return (
            f"crawls moved by {_short(mean, unit)} on average, by {_short(most, unit)} at most; "
            f"lower bound on the average: {_short(least, unit)}"
        )


def _short(time: float, unit: str) -> str:
    """Return a time in the largest unit that it reaches."""
    seconds = time * SECONDS[unit]
    fitting = [name for name in ("day", "hour", "minute", "second") if seconds >= SECONDS[name]]
    name = fitting[0] if fitting else "second"
    return count(seconds / SECONDS[name], name)


def _windows(
    text: str,
    unit: str,
    horizon: float,
    start: datetime | None,
    host: Any,  # noqa: ANN401 - an array or None
) -> list[tuple[Any, ...]]:
    """Return the windows of a blackout within the horizon.

    They are written from..to, or hh:mm-hh:mm of every day.
    """
    times, at, who = text.partition("@")
    if at and (host is None or who not in host.tolist()):
        raise SourceDataError(
            f"--blackout: {text!r} names the host {who!r}, of which --hosts knows nothing. Correct the name."
        )
    more = (who,) if at else ()
    clock = _CLOCK.fullmatch(times.strip())
    begin, dots, end = times.partition("..")
    if clock is None and not dots:
        raise SourceDataError(
            f"--blackout: {text!r} is no window. Write it such as 22:00-06:00, every day, or 2h..5h after "
            "the start, with @HOST for one host."
        )
    if clock is None:
        first = 0.0 if begin.strip() == "0" else duration_of("--blackout", begin, unit)
        last = duration_of("--blackout", end, unit)
        if not first < last:
            raise SourceDataError(
                f"--blackout: {text!r} ends before it begins. Write the earlier time first."
            )
        return [(first, last, *more)]
    hours = [int(number) for number in clock.groups()]
    if max(hours[0], hours[2]) > 24 or max(hours[1], hours[3]) > 59:
        raise SourceDataError(f"--blackout: {text!r} is no time of day. Write it such as 22:00-06:00.")
    day = 86_400.0 / SECONDS[unit]
    since = 0.0 if start is None else start.hour / 24 + start.minute / 1440 + start.second / 86_400
    opens, closes = hours[0] / 24 + hours[1] / 1440, hours[2] / 24 + hours[3] / 1440
    length = closes - opens if closes > opens else closes - opens + 1.0
    found = []
    for k in range(-1, int(horizon / day) + 2):
        first, last = (k + opens - since) * day, (k + opens + length - since) * day
        if last > 0.0 and first < horizon:
            found.append((max(first, 0.0), min(last, horizon), *more))
    return found


method_options = table_options("choice", Choice)
