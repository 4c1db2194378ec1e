"""Chart of the schedule's load, in clock times of dated logs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from freshopt.formatting import count, number
from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale, tick_text
from freshopt.report.chart import NARROW, WIDE, Frame, axes, chart, figure, line, steps, strips
from freshopt.report.markup import Child, Markup, element
from freshopt.report.value_words import FetchWords
from freshopt.units import SECONDS, duration

# Lengths, in seconds, by which people divide time: those of a clock and of a calendar.
CLOCK = [1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2419200, 7257600]
MOST_COLUMNS, FEWEST = 100, 14
# The bandwidth is drawn up to this multiple of the busiest column; beyond, it would flatten the chart.
FAR = 4.0
# Average number of refreshes of a column; with fewer the chart shows noise.
EACH = 3.0
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Columns of time from a schedule's start, with their names.

    Attributes
    ----------
    edges : ndarray, shape (columns + 1,)
        In time units from the start.
    unit : str
    since : str
        The start in words.
    begin : datetime or None
        The start, where the log has dates.
    """

    edges: Array
    unit: str
    since: str
    begin: datetime | None = None

    @property
    def step(self) -> str:
        """Length of a column in words."""
        return duration(float(self.edges[1] - self.edges[0]), self.unit)

    def moment(self, time: float) -> datetime | None:
        """Return a time as a moment, or None.

        There is none without dates, and beyond those that a calendar has.
        """
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

    def ticks(self, most: int) -> tuple[list[float], Callable[[float], str], str]:
        """Return ticks of the axis, their texts, and its title.

        With dates they are at midnights, or at round hours of a short schedule.
        """
        end = float(self.edges[-1])
        if self.begin is None or self.moment(end) is None:
            return Scale(0.0, end, 0.0, 1.0).ticks(most), tick_text, f"{self.unit}s from {self.since}"
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

    def axis(self, frame: Frame, x: Scale) -> list[Markup]:
        """Return the axis of time below rows of a picture."""
        found, text, title = self.ticks(max(2, int((x.end - x.begin) / 80.0)))
        floor = frame.up[0]
        marks: list[Markup] = []
        for tick in found:
            at = float(x(tick))
            marks.append(element("line", class_="frame", x1=at, x2=at, y1=floor, y2=floor + 4))
            marks.append(element("text", text(tick), x=at, y=floor + 17, text_anchor="middle"))
        marks.append(element("text", title, class_="axis", x=x.end, y=frame.height - 4, text_anchor="end"))
        return marks


@dataclass(frozen=True, slots=True)
class Load:
    """Refreshes of a schedule over time.

    Attributes
    ----------
    clock : Clock
    many : ndarray, shape (columns,)
        Refreshes.
    """

    clock: Clock
    many: Array

    @property
    def rates(self) -> Array:
        """Refreshes per time unit in each column."""
        return np.asarray(self.many / np.diff(self.clock.edges))


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


def load_chart(load: Load, bandwidth: float | None, words: FetchWords) -> Markup:
    """Return the load chart for desk and phone."""
    many = words.rates.capitalize()
    unit = load.clock.unit
    known = "" if bandwidth is None else f"; the bandwidth is {number(bandwidth)}"
    label = (
        f"{many} per {unit} over the schedule: on average {number(_mean(load))}, at most "
        f"{number(float(np.max(load.rates)))}{known}."
    )
    title = f"{many} per {unit}, in steps of {load.clock.step}"
    near = bandwidth is not None and bandwidth <= FAR * float(np.max(load.rates))
    guide = bandwidth if near else None
    pictures = [_load_chart(load, guide, label, kind, words) for kind in ("wide", "narrow")]
    beyond = ""
    if bandwidth is not None:
        beyond = f"The bandwidth, {number(bandwidth)} per {unit}, is far above its use."
    return figure(title, pictures, "The dashed line is the bandwidth." if near else beyond)


def _load_chart(load: Load, bandwidth: float | None, label: str, kind: str, words: FetchWords) -> Markup:
    frame, clock = WIDE if kind == "wide" else NARROW, load.clock
    x = Scale(0.0, float(clock.edges[-1]), *frame.across)
    most = max(bandwidth or 0.0, float(np.max(load.rates))) or 1.0
    y = Scale(0.0, 1.12 * most, *frame.up)
    found, text, title = clock.ticks(12 if kind == "wide" else 5)
    marks: list[Child] = [
        axes(frame, x, y, title, f"{words.rates} per {clock.unit}", x_ticks=found, x_text=text),
        steps(x(clock.edges), y(load.rates), frame.up[0], "bars"),
    ]
    if bandwidth is not None:
        marks.append(line(np.array(frame.across), np.repeat(y(bandwidth), 2), "guide"))
    pairs = zip(clock.edges.tolist(), clock.edges[1:].tolist(), load.many.tolist(), strict=False)
    told = (f"{clock.span(a, b)}: {count(int(many), words.rate)}" for a, b, many in pairs)
    marks.append(strips(frame, x(clock.edges), told))
    return chart(frame, label, marks, kind=kind)


def _mean(load: Load) -> float:
    return float(np.sum(load.many) / load.clock.edges[-1])
