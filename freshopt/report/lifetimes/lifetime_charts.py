"""Charts of lifetimes: against change rates and against request rates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from freshopt.formatting import count, number
from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale, covering
from freshopt.report.chart import Frame, axes, chart, figure, line
from freshopt.report.markup import Child, Markup, element
from freshopt.report.plan_tables import files, numbers_of, read_columns
from freshopt.report.source_charts import NAME, SHADES, STRIP, TIMES
from freshopt.report.source_sample import GRID, POINTS
from freshopt.units import SECONDS, duration


class Lifetimes(NamedTuple):
    """Lifetimes of a plan with what they depend on.

    Attributes
    ----------
    names : list of str
    change_rate, request_rate, lifetime : ndarray, shape (n,)
        The lifetime is infinite where a copy is never fetched again.
    """

    names: list[str]
    change_rate: Array
    request_rate: Array
    lifetime: Array

    @classmethod
    def of(cls, folder: Path) -> Lifetimes:
        """Read the tables of a plan's folder."""
        ours, theirs = (files(folder, table)[0] for table in ("change_rates", "lifetimes"))
        first = read_columns(ours, ("source", "change_rate", "request_rate"))
        life = numbers_of(read_columns(theirs, ("lifetime",)), "lifetime", theirs, gaps=True)
        return cls(
            [str(name) for name in first["source"].to_list()],
            numbers_of(first, "change_rate", ours),
            numbers_of(first, "request_rate", ours),
            np.where(np.isnan(life), np.inf, life),
        )


def by_change_rate(known: Lifetimes, unit: str) -> Markup:
    """Return the chart of lifetimes against change rates."""
    frame, x, y = _scales(known, known.change_rate)
    # T = 1/Δ, in what both axes show.
    both = np.array([max(x.low, 1.0 / y.high), min(x.high, 1.0 / y.low)])
    guide = [line(x(both), y(1.0 / both), "guide")] if both[1] > both[0] else []
    words = " On the dashed line a source changes once per lifetime." if guide else ""
    return _figure(known, known.change_rate, "change", unit, frame, (x, y), guide, words)


def by_request_rate(known: Lifetimes, unit: str) -> Markup:
    """Return the chart of lifetimes against request rates."""
    frame, x, y = _scales(known, known.request_rate)
    return _figure(known, known.request_rate, "request", unit, frame, (x, y), [], "")


def _figure(
    known: Lifetimes,
    values: Array,
    noun: str,
    unit: str,
    frame: Frame,
    scales: tuple[Scale, Scale],
    guide: list[Markup],
    words: str,
) -> Markup:
    x, y = scales
    n, title = len(values), f"{noun}s per {unit}"
    ticks = [each / SECONDS[unit] for each in TIMES]
    ticks = [tick for tick in ticks if y.low <= tick <= y.high]
    marks: list[Child] = [
        axes(
            frame,
            x,
            y,
            title,
            "lifetime",
            y_ticks=ticks if len(ticks) > 1 else None,
            y_text=lambda tick: duration(tick, unit),
        ),
        guide,
    ]
    places = _places(known.lifetime, frame, y)
    for place, word, some in (
        (frame.up[1] + 9.0, "never", np.isinf(known.lifetime)),
        (frame.up[0] - 8.0, "at once", known.lifetime == 0.0),
    ):
        if np.any(some):
            at = place + 4.0
            marks.append(element("text", word, x=frame.left - 6, y=at, text_anchor="end", class_="word"))
    if n <= POINTS:
        marks.extend(_points(known, x(values), places, unit))
        key = "A dot is a source."
    else:
        many = np.histogram2d(x(values), places, (_edges(*frame.across, GRID[0]), _edges(*frame.up, GRID[1])))
        marks.extend(_cells(many[0], frame, x, y, title, unit))
        key = f"The darker, the more sources: up to {int(np.max(many[0])):,} in a cell."
    never, always = (int(np.count_nonzero(each)) for each in (np.isinf(known.lifetime), known.lifetime == 0))
    key += f" The row above has {count(never, 'source')} never fetched again." if never else ""
    key += f" The row below has {count(always, 'source')} fetched at each request." if always else ""
    label = f"Lifetime against {noun} rate of {count(n, 'source')}, both logarithmic."
    return figure(f"Lifetime by {noun} rate", chart(frame, label, marks), key + words)


def _scales(known: Lifetimes, values: Array) -> tuple[Frame, Scale, Scale]:
    """Return the frame and its axes.

    They are between the rows of what never expires and of what expires at once.
    """
    above, below = (float(np.any(each)) for each in (np.isinf(known.lifetime), known.lifetime == 0.0))
    frame = Frame(height=290.0 + STRIP * (above + below), left=78.0)
    floor, top = frame.up
    x = covering(values, *frame.across)
    return frame, x, covering(known.lifetime, floor - STRIP * below, top + STRIP * above)


def _places(lifetime: Array, frame: Frame, y: Scale) -> Array:
    """Return the heights of lifetimes, in pixels."""
    finite = np.where((lifetime > 0.0) & np.isfinite(lifetime), lifetime, y.low)
    ends = np.where(np.isinf(lifetime), frame.up[1] + 9.0, frame.up[0] - 8.0)
    return np.where((lifetime > 0.0) & np.isfinite(lifetime), y(finite), ends)


def _points(known: Lifetimes, across: Array, up: Array, unit: str) -> Iterator[Markup]:
    radius = 3.6 if len(across) > 60 else 5.0
    rows = zip(known.names, known.change_rate.tolist(), known.request_rate.tolist(), strict=True)
    for k, (name, change, asked) in enumerate(rows):
        short = name if len(name) <= NAME else f"{name[: NAME - 1]}…"
        told = f"{short}: {expiry(float(known.lifetime[k]), unit)}, {number(change)} changes and "
        title = element("title", f"{told}{number(asked)} requests per {unit}")
        yield element("circle", title, class_="dot", cx=float(across[k]), cy=f"{up[k]:.1f}", r=radius)


def expiry(lifetime: float, unit: str) -> str:
    """Return when a copy expires, in words.

    Examples
    --------
    >>> expiry(0.5, "day"), expiry(0.0, "day"), expiry(np.inf, "day")
    ('expires after 12 hours', 'fetched at each request', 'never fetched again')
    """
    if lifetime == 0.0:
        return "fetched at each request"
    return "never fetched again" if np.isinf(lifetime) else f"expires after {duration(lifetime, unit)}"


def _cells(many: Array, frame: Frame, x: Scale, y: Scale, title: str, unit: str) -> Iterator[Markup]:
    """Yield a group of counted cells for each shade."""
    wide, tall = _edges(*frame.across, GRID[0]), _edges(*frame.up, GRID[1])
    most = float(np.max(many))
    with np.errstate(divide="ignore"):
        shade = 1 + np.floor(np.log(many) / np.log(most + 1.0) * SHADES)
    for level in range(1, SHADES + 1):
        boxes: list[Markup] = []
        for a, b in np.argwhere(shade == level).tolist():
            left, right, top, bottom = wide[a], wide[a + 1], tall[b], tall[b + 1]
            low, high = (number(_value(x, edge)) for edge in (left, right))
            short, long = (duration(_value(y, edge), unit) for edge in (bottom, top))
            sources = count(int(many[a, b]), "source")
            told = f"{sources}: {title} {low} to {high}, lifetime {short} to {long}"
            place = {"x": f"{left:.1f}", "y": f"{top:.1f}"}
            size = {"width": f"{right - left - 0.4:.1f}", "height": f"{bottom - top - 0.4:.1f}"}
            boxes.append(element("rect", element("title", told), **place, **size))
        if boxes:
            yield element("g", boxes, class_="cell", fill_opacity=f"{0.15 + 0.85 * level / SHADES:.2f}")


def _edges(one: float, other: float, parts: int) -> Array:
    return np.linspace(min(one, other), max(one, other), parts + 1)


def _value(scale: Scale, place: float) -> float:
    """Return the number at a place of a logarithmic axis."""
    share = min(max((place - scale.begin) / (scale.end - scale.begin), 0.0), 1.0)
    return float(scale.low * (scale.high / scale.low) ** share)
