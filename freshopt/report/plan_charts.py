"""Charts of the plan: load, value and shadow price."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from freshopt.formatting import number
from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale
from freshopt.report.chart import NARROW, WIDE, Frame, axes, chart, figure, line, smooth, steps
from freshopt.report.markup import Child, Markup, element, join
from freshopt.units import SECONDS, duration

# Lengths, in seconds, by which people divide time: those of a clock and of a calendar.
CLOCK = [1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2419200, 7257600]
MOST_COLUMNS, FEWEST = 100, 14
# The bandwidth is drawn up to this multiple of the busiest column; beyond, it would flatten the chart.
FAR = 4.0
# Average number of refreshes of a column; with fewer the chart shows noise.
EACH = 3.0


@dataclass(frozen=True, slots=True)
class Load:
    """Refreshes of a schedule over time.

    Attributes
    ----------
    edges : ndarray, shape (columns + 1,)
        In time units from the schedule's start.
    many : ndarray, shape (columns,)
        Refreshes.
    """

    edges: Array
    many: Array

    @property
    def rates(self) -> Array:
        """Refreshes per time unit in each column."""
        return np.asarray(self.many / np.diff(self.edges))


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


def load_chart(load: Load, bandwidth: float | None, unit: str, since: str) -> Markup:
    """Return the load chart for desk and phone."""
    known = "" if bandwidth is None else f"; the bandwidth is {number(bandwidth)}"
    label = (
        f"Refreshes per {unit} over the schedule: on average {number(_mean(load))}, at most "
        f"{number(float(np.max(load.rates)))}{known}."
    )
    title = f"Refreshes per {unit}, in steps of {step(load, unit)}"
    near = bandwidth is not None and bandwidth <= FAR * float(np.max(load.rates))
    guide = bandwidth if near else None
    pictures = [_load_chart(load, guide, unit, since, label, kind) for kind in ("wide", "narrow")]
    beyond = ""
    if bandwidth is not None:
        beyond = f"The bandwidth, {number(bandwidth)} per {unit}, is far above its use."
    return figure(title, pictures, "The dashed line is the bandwidth." if near else beyond)


def _load_chart(load: Load, bandwidth: float | None, unit: str, since: str, label: str, kind: str) -> Markup:
    frame = WIDE if kind == "wide" else NARROW
    x = Scale(0.0, float(load.edges[-1]), *frame.across)
    most = max(bandwidth or 0.0, float(np.max(load.rates))) or 1.0
    y = Scale(0.0, 1.12 * most, *frame.up)
    marks: list[Child] = [
        axes(frame, x, y, f"{unit}s from {since}", f"refreshes per {unit}"),
        steps(x(load.edges), y(load.rates), frame.up[0], "bars"),
    ]
    if bandwidth is not None:
        marks.append(line(np.array(frame.across), np.repeat(y(bandwidth), 2), "guide"))
    return chart(frame, label, marks, kind=kind)


def _mean(load: Load) -> float:
    return float(np.sum(load.many) / load.edges[-1])


def step(load: Load, unit: str) -> str:
    """Return the length of a column in words."""
    return duration(float(load.edges[1]), unit)


@dataclass(frozen=True, slots=True)
class Points:
    """Values and prices at ascending bandwidths, the plan's included."""

    bandwidth: Array
    value: Array
    price: Array
    here: int
    better: int

    @classmethod
    def of(cls, rows: Sequence[tuple[float, float, float]], bandwidth: float, sense: str) -> Points:
        """Sort rows of bandwidth, value and price.

        `better` is +1 where a higher value is better, else −1.
        """
        columns = np.array(sorted(rows), dtype=np.float64).reshape(-1, 3).T
        here = int(np.argmin(np.abs(columns[0] - bandwidth)))
        return cls(columns[0], columns[1], columns[2], here, 1 if sense == "maximise" else -1)


def value_chart(points: Points, unit: str, what: str) -> Markup:
    """Return the chart of value over bandwidth.

    The shadow price is the slope at the plan.
    """
    frame = Frame(left=64.0)
    x, y = _across(points, frame), _up(points.value, frame)
    k = points.here
    slope = (
        points.better
        * points.price
        * (y.end - y.begin)
        / (y.high - y.low)
        / ((x.end - x.begin) / (x.high - x.low))
    )
    run = 0.45 * (x.high - x.low)
    ends = _tangent(points, y, run)
    at, value = points.bandwidth[k], points.value[k]
    marks: list[Child] = [
        axes(frame, x, y, f"bandwidth, refreshes per {unit}", what),
        smooth(x(points.bandwidth), y(points.value), slope, "curve"),
        line(x(ends), y(value + points.better * points.price[k] * (ends - at)), "guide"),
        _here(x, y, at, value, f"this plan: {number(float(value))} at {number(float(at))} per {unit}"),
    ]
    label = (
        f"{what.capitalize()} along the bandwidth, from {number(float(points.value[0]))} at "
        f"{number(float(points.bandwidth[0]))} per {unit} to {number(float(points.value[-1]))} at "
        f"{number(float(points.bandwidth[-1]))}; this plan has {number(float(value))} at {number(float(at))}."
    )
    better, moves = ("Higher", "rises") if points.better > 0 else ("Lower", "falls")
    caption = f"{better} is better. The ring is this plan; the tangent {moves} by the shadow price."
    return figure("Value by bandwidth", chart(frame, label, marks), caption)


def price_chart(points: Points, unit: str) -> Markup:
    """Return the chart of shadow price over bandwidth."""
    frame = Frame(left=64.0)
    x = _across(points, frame)
    y = Scale(0.0, 1.08 * float(np.max(points.price)) or 1.0, *frame.up)
    k = points.here
    at, price = points.bandwidth[k], points.price[k]
    along = np.unique(
        np.concatenate([points.bandwidth, np.linspace(points.bandwidth[0], points.bandwidth[-1], 80)])
    )
    marks: list[Child] = [
        axes(frame, x, y, f"bandwidth, refreshes per {unit}", "shadow price"),
        line(x(along), y(_between(points, along)), "curve"),
        _here(x, y, at, price, f"this plan: {number(float(price))} at {number(float(at))} per {unit}"),
    ]
    label = (
        f"Shadow price along the bandwidth, from {number(float(points.price[0]))} to "
        f"{number(float(points.price[-1]))}; this plan's is {number(float(price))}."
    )
    falls = points.price[0] > points.price[-1] and bool(np.all(np.diff(points.price) <= 0.0))
    caption = f"Marginal value of one more refresh per {unit}."
    caption += " It falls: marginal values diminish." if falls else ""
    return figure("Shadow price by bandwidth", chart(frame, label, marks), caption)


def _between(points: Points, bandwidth: Array) -> Array:
    """Interpolate prices, log-log where they are positive."""
    if np.all(points.price > 0.0):
        return np.asarray(
            np.exp(np.interp(np.log(bandwidth), np.log(points.bandwidth), np.log(points.price)))
        )
    return np.asarray(np.interp(bandwidth, points.bandwidth, points.price))


def _here(x: Scale, y: Scale, at: float, value: float, told: str) -> Markup:
    return join(
        [element("circle", element("title", told), class_="here", cx=float(x(at)), cy=float(y(value)), r=5)]
    )


def _across(points: Points, frame: Frame) -> Scale:
    return Scale(0.0, float(points.bandwidth[-1]), *frame.across)


def _up(values: Array, frame: Frame) -> Scale:
    """Return the axis of values, from 0 where near."""
    low, high = float(np.min(values)), float(np.max(values))
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    bottom = 0.0 if 0.0 <= low < 0.35 * (high - low) else low - room
    return Scale(bottom, high + room, *frame.up)


def _tangent(points: Points, y: Scale, run: float) -> Array:
    """Return the bandwidths at the tangent's ends, within the chart."""
    at, value = float(points.bandwidth[points.here]), float(points.value[points.here])
    slope = points.better * float(points.price[points.here])
    reach = [run, run]
    if slope != 0.0:
        for k, sign in enumerate((-1.0, 1.0)):
            room = (y.high - value) if sign * slope > 0.0 else (value - y.low)
            reach[k] = min(run, room / abs(slope))
    return np.array([max(at - reach[0], 0.0), min(at + reach[1], float(points.bandwidth[-1]))])
