"""SVG charts: a frame with axes, and marks.

They are drawn in pixels of about the page's own, with the page's colours, so that text in them is as large
and as dark as text beside them, on a phone and at night too. What a chart shows is told in words to those who
cannot see it, by its label; what a mark shows, by its title: browsers show it under the pointer, and
``marks.js`` under a finger and to those who use keys. Of lines and columns, transparent `strips` have titles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale, tick_text
from freshopt.report.markup import Child, Markup, element

# Width of a character of a tick's label in pixels, rounded up.
DIGIT = 7.2


@dataclass(frozen=True, slots=True)
class Frame:
    """Position of a chart's axes, in pixels."""

    width: float = 420.0
    height: float = 290.0
    left: float = 52.0
    right: float = 12.0
    top: float = 24.0
    bottom: float = 40.0

    @property
    def across(self) -> tuple[float, float]:
        """Ends of the x axis."""
        return self.left, self.width - self.right

    @property
    def up(self) -> tuple[float, float]:
        """Ends of the y axis, bottom first."""
        return self.height - self.bottom, self.top


# The same chart for a desk and for a phone.
WIDE, NARROW = Frame(width=960.0, height=230.0), Frame(height=240.0)


def axes(
    frame: Frame,
    x: Scale,
    y: Scale,
    x_title: str,
    y_title: str,
    *,
    x_text: Callable[[float], str] = tick_text,
    y_text: Callable[[float], str] = tick_text,
    x_ticks: Sequence[float] | None = None,
    y_ticks: Sequence[float] | None = None,
) -> list[Markup]:
    """Return grid lines, ticks with their labels, and titles."""
    (left, right), floor = frame.across, frame.up[0]
    marks: list[Markup] = []
    for tick in y.ticks(5) if y_ticks is None else y_ticks:
        at = float(y(tick))
        marks.append(element("line", class_="grid", x1=left, x2=right, y1=at, y2=at))
        marks.append(element("text", y_text(tick), x=left - 6, y=at + 4, text_anchor="end"))
    free = -np.inf
    for tick in x.ticks(6) if x_ticks is None else x_ticks:
        at, label = float(x(tick)), x_text(tick)
        half = 0.5 * DIGIT * len(label)
        if at - half < free or at + half > frame.width + 2:
            # It would overlap the label before it or be cut off.
            continue
        free = at + half + DIGIT
        marks.append(element("line", class_="frame", x1=at, x2=at, y1=floor, y2=floor + 4))
        marks.append(element("text", label, x=at, y=floor + 17, text_anchor="middle"))
    marks.append(element("line", class_="frame", x1=left, x2=right, y1=floor, y2=floor))
    marks.append(element("text", y_title, class_="axis", x=2, y=12))
    marks.append(element("text", x_title, class_="axis", x=right, y=frame.height - 4, text_anchor="end"))
    return marks


def chart(frame: Frame, label: str, *marks: Child, kind: str = "") -> Markup:
    """Return the SVG of marks with a describing label."""
    return element(
        "svg",
        marks,
        class_=f"chart {kind}".strip(),
        viewBox=f"0 0 {frame.width:g} {frame.height:g}",
        role="img",
        aria_label=label,
    )


def figure(title: str, picture: Child, caption: Child) -> Markup:
    """Return a figure with title and caption."""
    return element("figure", element("b", title), picture, element("figcaption", caption))


def line(x: Array, y: Array, class_: str) -> Markup:
    """Return a line through points."""
    return element("path", class_=class_, d=_through(zip(x.tolist(), y.tolist(), strict=True)))


def smooth(x: Array, y: Array, slope: Array, class_: str) -> Markup:
    """Return the cubic spline through points with given slopes."""
    third = np.diff(x) / 3.0
    pieces = [f"M{x[0]:.1f} {y[0]:.1f}"]
    for k, step in enumerate(third.tolist()):
        one = (x[k] + step, y[k] + slope[k] * step)
        two = (x[k + 1] - step, y[k + 1] - slope[k + 1] * step)
        pieces.append("C" + " ".join(f"{a:.1f} {b:.1f}" for a, b in (one, two, (x[k + 1], y[k + 1]))))
    return element("path", class_=class_, d="".join(pieces))


def steps(edges: Array, height: Array, floor: float, class_: str) -> Markup:
    """Return adjacent columns as one shape."""
    corners = np.repeat(edges, 2)
    tops = np.concatenate([[floor], np.repeat(height, 2), [floor]])
    shape = _through(zip(corners.tolist(), tops.tolist(), strict=True))
    return element("path", class_=class_, d=f"{shape}Z")


def strips(frame: Frame, edges: Array, told: Iterable[str]) -> list[Markup]:
    """Return transparent strips over parts of the x axis, with titles.

    Parameters
    ----------
    frame : Frame
    edges : ndarray, shape (m + 1,)
        In pixels.
    told : iterable of m str
    """
    floor, top = frame.up
    ends = edges.tolist()
    return [
        element(
            "rect",
            element("title", text),
            class_="hit",
            x=f"{left:.1f}",
            y=f"{top:g}",
            width=f"{right - left:.1f}",
            height=f"{floor - top:g}",
        )
        for left, right, text in zip(ends, ends[1:], told, strict=False)
    ]


def around(places: Array, frame: Frame) -> Array:
    """Return the edges of strips around ascending places of the x axis."""
    left, right = frame.across
    middle = 0.5 * (places[1:] + places[:-1])
    return np.concatenate([[min(left, places[0])], middle, [max(right, places[-1])]])


def _through(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
