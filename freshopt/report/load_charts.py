"""Charts of refreshes over time, in clock times of dated logs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from freshopt.formatting import count, number
from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale
from freshopt.report.charts import (
    NARROW,
    SHADES,
    WIDE,
    Axis,
    Bars,
    Cells,
    Chart,
    Figure,
    Frame,
    Hits,
    Line,
    Mark,
)
from freshopt.report.value_words import FetchWords
from freshopt.units import SECONDS, duration

# Lengths, in seconds, by which people divide time: those of a clock and of a calendar.
CLOCK = [1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2419200, 7257600]
MOST_COLUMNS, FEWEST = 100, 14
# The bandwidth is drawn up to this multiple of the busiest column; beyond, it would flatten the chart.
FAR = 4.0
# Average number of refreshes of a column; with fewer the chart shows noise.
EACH = 3.0
# Height of a host's row in pixels.
ROW = 20.0
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Columns of time from a schedule's start, with their names."""

    edges: Array
    unit: str
    since: str
    begin: datetime | None = None

    @property
    def step(self) -> str:
        """Length of a column in words."""
        return duration(float(self.edges[1] - self.edges[0]), self.unit)

    def moment(self, time: float) -> datetime | None:
        """Return a time as a moment, or None without dates."""
        if self.begin is None:
            return None
        try:
            return self.begin + timedelta(seconds=round(time * SECONDS[self.unit]))
        except OverflowError:
            return None

    def span(self, begin: float, end: float) -> str:
        """Return a stretch of time in words."""
        first, last = self.moment(begin), self.moment(end)
        if first is None or last is None:
            return f"{number(begin)} to {count(float(f'{end:.4g}'), self.unit)}"
        whole = (end - begin) * SECONDS[self.unit] >= DAY and not (first.hour or first.minute)
        form = "%a %Y-%m-%d" if whole else "%a %Y-%m-%d %H:%M"
        if whole and last - first == timedelta(days=1):
            return f"{first:{form}}"
        same = first.date() == last.date()
        return f"{first:{form}} to {last:%H:%M}" if same else f"{first:{form}} to {last:{form}}"

    def ticks(self, most: int) -> tuple[list[float], Callable[[float], str] | None, str]:
        """Return ticks of the axis, their texts, and its title."""
        end = float(self.edges[-1])
        if self.begin is None or self.moment(end) is None:
            return Scale(0.0, end, 0.0, 1.0).ticks(most), None, f"{self.unit}s from {self.since}"
        size = SECONDS[self.unit]
        fitting = (each for each in CLOCK if each >= 60 and end * size / each <= most)
        width = float(next(fitting, end * size / most))
        since = self.begin.replace(hour=0, minute=0, second=0, microsecond=0)
        gone = (self.begin - since).total_seconds()
        first = math.ceil(gone / width) * width - gone
        found = np.arange(first, end * size, width) / size
        month = 28.0 * DAY
        form = (
            "%b %Y"
            if width >= month
            else "%d %b"
            if width >= DAY
            else "%d %b %H:%M"
            if end * size > DAY
            else "%H:%M"
        )

        def text(tick: float) -> str:
            at = self.moment(tick)
            return "" if at is None else f"{at:{form}}".lstrip("0")

        return found.tolist(), text, f"UTC, from {self.since}"

    def axis(self, most: int) -> Axis:
        """Return the axis of time, with at most so many ticks."""
        ticks, text, title = self.ticks(most)
        return Axis(title, Scale(0.0, float(self.edges[-1]), 0.0, 1.0), text, ticks)


class HostLoad(NamedTuple):
    """Refreshes between a clock's edges of the hosts with most."""

    hosts: list[str]
    many: Array
    sources: list[int]
    of: int


def load_edges(horizon: float, unit: str, refreshes: int) -> Array:
    """Return the edges of columns of a familiar length.

    There are at most `MOST_COLUMNS`, with at least `EACH` refreshes on average where the horizon allows.

    Examples
    --------
    >>> [len(load_edges(days, "day", many)) - 1 for days, many in ((90.0, 360), (7.0, 1000), (7.0, 7))]
    [90, 56, 14]
    """
    most = min(MOST_COLUMNS, max(FEWEST, refreshes / EACH))
    fitting = (each / SECONDS[unit] for each in CLOCK if horizon * SECONDS[unit] / each <= most)
    width = next(fitting, horizon / FEWEST)
    columns = max(1, math.ceil(horizon / width * (1.0 - 1e-12)))
    edges = width * np.arange(columns + 1.0)
    edges[-1] = horizon
    return edges


def over_time(clock: Clock, many: Array, bandwidth: float | None, words: FetchWords) -> Figure:
    """Return the chart of refreshes, with the bandwidth where it is near."""
    unit, what = clock.unit, words.rates.capitalize()
    rates = many / np.diff(clock.edges)
    mean, most = float(np.sum(many) / clock.edges[-1]), float(np.max(rates))
    known = "" if bandwidth is None else f"; the bandwidth is {number(bandwidth)}"
    label = f"{what} per {unit} over the schedule: on average {number(mean)}, at most {number(most)}{known}."
    spans = zip(clock.edges.tolist(), clock.edges[1:].tolist(), many.tolist(), strict=False)
    told = [f"{clock.span(a, b)}: {count(int(each), words.rate)}" for a, b, each in spans]
    marks: list[Mark] = [Bars(clock.edges, rates)]
    top, below = most, ""
    if bandwidth is not None and bandwidth <= FAR * most:
        marks.append(Line(clock.edges[[0, -1]], np.full(2, bandwidth), "guide"))
        top, below = max(most, bandwidth), "The dashed line is the bandwidth."
    elif bandwidth is not None:
        below = f"The bandwidth, {number(bandwidth)} per {unit}, is far above its use."
    y = Axis(f"{words.rates} per {unit}", Scale(0.0, 1.12 * (top or 1.0), 0.0, 1.0))
    marks.append(Hits(clock.edges, told))
    charts = tuple(
        Chart(label, clock.axis(ticks), y, marks, frame) for frame, ticks in ((WIDE, 12), (NARROW, 5))
    )
    return Figure(f"{what} per {unit}, in steps of {clock.step}", charts, below)


def by_host(load: HostLoad, clock: Clock, words: FetchWords) -> Figure:
    """Return a row of cells for each host."""
    most, what = number(float(np.max(load.many))), words.rates.capitalize()
    below = f"A cell is {clock.step}; the stronger its colour, the more {words.rates}, up to {most}."
    charts = tuple(_rows_of_hosts(load, clock, size, words) for size in (WIDE, NARROW))
    return Figure(f"{what} by host over time", charts, below)


def _rows_of_hosts(load: HostLoad, clock: Clock, size: Frame, words: FetchWords) -> Chart:
    """Return a picture whose cells are wide enough to be pointed at."""
    rows, left = len(load.hosts), 170.0 if size is WIDE else 96.0
    frame = size._replace(height=24.0 + ROW * rows + 40.0, left=left, top=6.0)
    by = max(1, math.ceil(load.many.shape[1] / ((frame.width - frame.right - left) / 5.0)))
    starts = np.arange(0, load.many.shape[1], by)
    edges, many = np.append(clock.edges[starts], clock.edges[-1]), np.add.reduceat(load.many, starts, axis=1)
    spans = [clock.span(a, b) for a, b in zip(edges.tolist(), edges[1:].tolist(), strict=False)]

    def title(a: int, b: int) -> str:
        return f"{load.hosts[b]}, {spans[a]}: {count(int(many[b, a]), words.rate)}"

    dark = 0.05 + 0.9 * np.ceil(SHADES * many.T / max(float(np.max(many)), 1.0)) / SHADES
    label = f"{words.rates.capitalize()} over time of {count(rows, 'host')}; {load.hosts[0]} has most."
    y = Axis("", Scale(0.0, 1.0, 0.0, 1.0), names=load.hosts, own="*")
    x = clock.axis(max(2, int((frame.width - frame.right - left) / 80.0)))
    return Chart(label, x, y, [Cells(edges, np.arange(float(rows)), dark, title)], frame)
