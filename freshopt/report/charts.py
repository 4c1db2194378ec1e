"""`Chart`: two axes and marks as data, and their drawing as SVG.

Pictures are drawn in pixels of about the page's own, with the page's colours, so that text in them is as
large and as dark as text beside them, on a phone and at night too. What a chart shows is told in words to
those who cannot see it, by its label; what a mark shows, by its title: browsers show it under the pointer,
and ``marks.js`` under a finger and to those who use keys. Of lines and columns, transparent `Hits` have
titles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale, tick_texts
from freshopt.report.markup import escaped

# Width of a character of a tick's label in pixels, rounded up.
DIGIT = 7.2
# Width of a letter of a row's name in pixels, on average.
LETTER = 6.4
# Height in pixels of the strip of marks at 0, or at infinity, which a logarithmic axis does not have.
STRIP = 22.0
# Shades of cells; more could not be told apart.
SHADES = 5


class Frame(NamedTuple):
    """Where axes are in a picture, in pixels."""

    width: float = 420.0
    height: float = 290.0
    left: float = 52.0
    right: float = 12.0
    top: float = 24.0
    bottom: float = 40.0
    kind: str = ""


# The same chart for a desk and for a phone.
WIDE, NARROW = Frame(960.0, 230.0, kind="wide"), Frame(height=240.0, kind="narrow")
PLAIN = Frame()


class Axis(NamedTuple):
    """An axis: title, range, how its ticks are written, names of rows.

    `ticks` are those in place of round ones, `text` writes one; `falling` axes have their largest value
    first. `zero` and `infinite` name the strips of marks at 0 and at infinity; `names` are rows in place of
    numbers, of which the one in `own` stands out; they stand `over` their rows where no room is beside them.
    """

    title: str
    scale: Scale
    text: Callable[[float], str] | None = None
    ticks: Sequence[float] | None = None
    zero: str = ""
    infinite: str = ""
    names: Sequence[str] = ()
    own: str = ""
    over: bool = False
    falling: bool = False

    def texts(self, ticks: Sequence[float]) -> list[str]:
        """Return the labels of ticks."""
        return tick_texts(ticks) if self.text is None else [self.text(tick) for tick in ticks]


class Dots(NamedTuple):
    """Circles, each with its title; `numbered` for the script."""

    x: Array
    y: Array
    titles: Sequence[str] = ()
    kind: str = "dot"
    radius: float = 3.6
    numbered: bool = False


class Crosses(NamedTuple):
    """Crosses, each with its title."""

    x: Array
    y: Array
    titles: Sequence[str]


class Line(NamedTuple):
    """A line through points; with slopes a spline, with ends an area."""

    x: Array
    y: Array
    kind: str
    slopes: Array | None = None
    ends: Array | None = None


class Bars(NamedTuple):
    """Adjacent columns as one shape."""

    edges: Array
    height: Array


class Hits(NamedTuple):
    """Transparent strips over parts of an axis, with titles."""

    edges: Array
    titles: Sequence[str]
    rows: bool = False


class Spans(NamedTuple):
    """A vertical bar for each point."""

    x: Array
    low: Array
    high: Array


class Cells(NamedTuple):
    """Cells between edges, of shades 0 to 1; none at 0.

    In place of edges along y, 0 and infinity stand for the strips.
    """

    x: Array
    y: Array
    shades: Array
    title: Callable[[int, int], str]
    kind: str = "cell"


class Word(NamedTuple):
    """A word at the top of a chart, beside a vertical line."""

    x: float
    text: str


class Label(NamedTuple):
    """Words beside a point, shifted by pixels to the right and down."""

    x: float
    y: float
    text: str
    right: float = 8.0
    down: float = 4.0
    side: str = "start"


class Arrow(NamedTuple):
    """A level arrow from one place to another."""

    begin: float
    end: float
    y: float


Mark: TypeAlias = Dots | Crosses | Line | Bars | Hits | Spans | Cells | Word | Label | Arrow


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: what it shows in words, its axes and its marks."""

    label: str
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    frame: Frame = PLAIN

    def __html__(self) -> str:
        """Return the picture as SVG."""
        return _Canvas(self).svg()


@dataclass(frozen=True, slots=True)
class Figure:
    """Charts of one thing, for a desk and a phone, with title."""

    title: str
    charts: tuple[Chart, ...]
    caption: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    row: bool = False


def around(places: Array, low: float, high: float) -> Array:
    """Return the edges of strips around ascending places."""
    middle = 0.5 * (places[1:] + places[:-1])
    return np.concatenate([[min(low, places[0])], middle, [max(high, places[-1])]])


def shades(many: Array, most: float) -> Array:
    """Return shades of counts, logarithmic, none of 0."""
    level = np.zeros(many.shape)
    some = many > 0.0
    level[some] = 1.0 + np.floor(np.log(many[some]) / np.log(most + 1.0) * SHADES)
    return np.where(some, 0.15 + 0.85 * level / SHADES, 0.0)


class _Canvas:
    """A chart with its places in pixels."""

    def __init__(self, chart: Chart) -> None:
        strips = STRIP * (bool(chart.y.zero) + bool(chart.y.infinite))
        self.chart = chart
        self.frame = chart.frame._replace(height=chart.frame.height + strips)
        self.left, self.right = self.frame.left, self.frame.width - self.frame.right
        self.floor, self.top = self.frame.height - self.frame.bottom, self.frame.top
        # Names of the strips below and above the axis.
        self.below, self.above = (chart.y.zero, chart.y.infinite)[:: -1 if chart.y.falling else 1]
        ends = self.floor - STRIP * bool(self.below), self.top + STRIP * bool(self.above)
        self.x = _placed(chart.x, self.left, self.right)
        self.scale = _placed(chart.y, *ends)
        self.row = (self.floor - self.top) / max(len(chart.y.names), 1)

    def y(self, values: Array) -> Array:
        """Return heights in pixels, in the strips of 0 and infinity."""
        values = np.asarray(values, dtype=np.float64)
        if self.chart.y.names:
            middle = 0.72 if self.chart.y.over else 0.5
            return np.asarray(np.round(self.top + self.row * (values + middle), 1))
        low, high = (values == 0.0) & bool(self.chart.y.zero), np.isinf(values) & bool(self.chart.y.infinite)
        inside = self.scale(np.where(low | high, self.scale.low, values))
        below, above = (high, low) if self.chart.y.falling else (low, high)
        return np.where(below, self.floor - 8.0, np.where(above, self.top + 9.0, inside))

    def svg(self) -> str:
        """Return the picture."""
        drawn = "".join(piece for mark in self.chart.marks for piece in self.drawn(mark))
        return (
            f'<svg class="{f"chart {self.frame.kind}".strip()}" '
            f'viewBox="0 0 {self.frame.width:g} {self.frame.height:g}" role="img" '
            f'aria-label="{escaped(self.chart.label)}">{"".join(self.axes())}{drawn}</svg>'
        )

    def axes(self) -> Iterator[str]:
        """Yield grid lines, ticks, names of rows and strips, and titles."""
        x, y = self.chart.x, self.chart.y
        ticks = () if y.names else self.scale.ticks(5) if y.ticks is None else y.ticks
        for tick, label in zip(ticks, y.texts(ticks), strict=True):
            at = float(self.scale(tick))
            yield f'<line class="grid" x1="{self.left:g}" x2="{self.right:g}" y1="{at}" y2="{at}"/>'
            yield _text(label, self.left - 6, at + 4, "end")
        free = -np.inf
        ticks = self.x.ticks(6) if x.ticks is None else x.ticks
        for tick, label in sorted(zip(ticks, x.texts(ticks), strict=True), reverse=x.falling):
            at = float(self.x(tick))
            half = 0.5 * DIGIT * len(label)
            if at - half < free or at + half > self.frame.width + 2:
                # It would overlap the label before it or be cut off.
                continue
            free = at + half + DIGIT
            yield f'<line class="frame" x1="{at}" x2="{at}" y1="{self.floor:g}" y2="{self.floor + 4:g}"/>'
            yield _text(label, at, self.floor + 17, "middle")
        floor = f'y1="{self.floor:g}" y2="{self.floor:g}"'
        yield f'<line class="frame" x1="{self.left:g}" x2="{self.right:g}" {floor}/>'
        cut = not y.names and not self.scale.logarithmic and self.scale.low > 0.0
        if cut:
            # The axis is broken below: it does not begin at 0.
            yield f'<path class="frame cut" d="M{self.left - 5:g} {self.floor - 3:g}l10 -4m-10 0l10 -4"/>'
        yield _text(f"{y.title}{' (not from 0)' if cut else ''}", 2, 12, kind="axis") if y.title else ""
        letters = int((self.left - 12.0) / LETTER)
        for k, name in enumerate(y.names):
            short = name if len(name) <= letters else f"{name[: letters - 1]}…"
            at, kind = float(self.y(np.array(k))), "word" if y.own in ("*", name) else ""
            beside = _text(short, self.left - 8, at + 4, "end", kind)
            yield _text(name, 2, at - 0.3 * self.row, kind=kind) if y.over else beside
        for at, word in ((self.floor - 4.0, self.below), (self.top + 13.0, self.above)):
            yield _text(word, self.left - 6, at, "end", "word") if word else ""
        yield _text(x.title, self.right, self.frame.height - 4, "end", "axis")

    def drawn(self, mark: Mark) -> Iterator[str]:
        """Yield a mark's elements."""
        match mark:
            case Dots(x, y, titles, kind, radius, numbered):
                for k, (a, b) in enumerate(_pairs(self.x(x), self.y(y))):
                    point = f' data-point="{k}"' if numbered else ""
                    given = f'class="{kind}" cx="{a}" cy="{b}" r="{radius:g}"{point}'
                    yield _mark("circle", given, titles[k] if titles else "")
            case Crosses(x, y, titles):
                for (a, b), title in zip(_pairs(self.x(x), self.y(y)), titles, strict=True):
                    yield _mark("path", f'class="none" d="M{a - 3:.1f} {b - 3:.1f}l6 6m0 -6l-6 6"', title)
            case Line(x, y, kind, None, None):
                yield _path(kind, _through(_pairs(self.x(x), self.y(y))))
            case Line(x, y, kind, None, ends):
                there = list(_pairs(self.x(x), self.y(y)))
                back = list(_pairs(self.x(x), self.y(np.asarray(ends))))[::-1]
                yield _path(kind, f"{_through([*there, *back])}Z")
            case Line(x, y, kind, slopes, _):
                yield _path(kind, self.spline(x, y, np.asarray(slopes)))
            case Bars(edges, height):
                tops = np.concatenate([[self.floor], np.repeat(self.y(height), 2), [self.floor]])
                yield _path("bars", f"{_through(_pairs(np.repeat(self.x(edges), 2), tops))}Z")
            case Hits(edges, titles, rows):
                across = [(self.left, self.right)] * len(titles) if rows else list(_runs(self.x(edges)))
                up = (
                    [self.top + self.row * k for k in range(len(titles))]
                    if rows
                    else [self.top] * len(titles)
                )
                tall = self.row if rows else self.floor - self.top
                for (a, b), top, title in zip(across, up, titles, strict=True):
                    yield _mark("rect", f'class="hit" {_box(a, top, b - a, tall)}', title)
            case Spans(x, low, high):
                bars = zip(*(each.tolist() for each in (self.x(x), self.y(low), self.y(high))), strict=True)
                width = max(1.0, min(6.0, 0.6 * (self.right - self.left) / len(x)))
                path = "".join(f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in bars)
                yield f'<path class="reach" stroke-width="{width:.2g}" d="{path}"/>'
            case Cells():
                yield from self.cells(mark)
            case Label():
                yield self.label(mark)
            case Arrow():
                yield self.arrow(mark)
            case Word(x, text):
                at = float(self.x(x))
                far = at > 0.7 * self.frame.width
                shift, side = (-4.0, "end") if far else (4.0, "start")
                yield _text(text, at + shift, self.top + 10, side, "word")

    def label(self, mark: Label) -> str:
        """Return words beside a point."""
        at, up = float(self.x(mark.x)) + mark.right, float(self.y(np.array(mark.y))) + mark.down
        return _text(mark.text, round(at, 1), round(up, 1), mark.side, "word")

    def arrow(self, mark: Arrow) -> str:
        """Return a level arrow, which ends before what is marked there."""
        begin, end, up = float(self.x(mark.begin)), float(self.x(mark.end)), float(self.y(np.array(mark.y)))
        back = 6.0 if begin > end else -6.0
        head = f"M{end + 2 * back:.1f} {up - 4.5:.1f}l{-back:g} 4.5l{back:g} 4.5"
        return _path("saved", f"M{begin:.1f} {up:.1f}H{end + back:.1f}{head}")

    def cells(self, mark: Cells) -> Iterator[str]:
        """Yield a group of cells for each shade."""
        across = list(_runs(self.x(mark.x)))
        if self.chart.y.names:
            up = [(self.top + self.row * k, self.row - 2.0) for k in range(len(self.chart.y.names))]
        elif len(mark.y) == 1:
            up = [(float(self.y(mark.y)[0]) - 5.0, 9.6)]
        else:
            up = [(b, a - b - 0.4) for a, b in _runs(self.y(mark.y))]
        for shade in np.unique(mark.shades[mark.shades > 0.0]).tolist():
            yield f'<g class="{mark.kind}" fill-opacity="{shade:.2f}">'
            for a, b in np.argwhere(mark.shades == shade).tolist():
                (left, right), (top, tall) = across[a], up[b]
                yield _mark("rect", _box(left, top, max(right - left - 0.4, 0.4), tall), mark.title(a, b))
            yield "</g>"

    def spline(self, x: Array, y: Array, slopes: Array) -> str:
        """Return the path of the cubic spline through points with given slopes."""
        a, b = self.x(x), self.y(y)
        across, up = self.x.end - self.x.begin, self.scale.end - self.scale.begin
        slope = slopes * (up / (self.scale.high - self.scale.low)) / (across / (self.x.high - self.x.low))
        pieces = [f"M{a[0]:.1f} {b[0]:.1f}"]
        for k, step in enumerate((np.diff(a) / 3.0).tolist()):
            one = (a[k] + step, b[k] + slope[k] * step)
            two = (a[k + 1] - step, b[k + 1] - slope[k + 1] * step)
            pieces.append("C" + " ".join(f"{i:.1f} {j:.1f}" for i, j in (one, two, (a[k + 1], b[k + 1]))))
        return "".join(pieces)


def _placed(axis: Axis, begin: float, end: float) -> Scale:
    """Return an axis' scale between two places, reversed if it falls."""
    begin, end = (end, begin) if axis.falling else (begin, end)
    return replace(axis.scale, begin=begin, end=end)


def _pairs(x: Array, y: Array) -> Iterator[tuple[float, float]]:
    return zip(np.atleast_1d(x).tolist(), np.atleast_1d(y).tolist(), strict=True)


def _runs(edges: Array) -> Iterator[tuple[float, float]]:
    ends = edges.tolist()
    return pairwise(ends)


def _through(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _box(left: float, top: float, width: float, height: float) -> str:
    return f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'


def _path(kind: str, path: str) -> str:
    return f'<path class="{kind}" d="{path}"/>'


def _mark(name: str, given: str, title: str) -> str:
    if not title:
        return f"<{name} {given}/>"
    # Lines of a title stay lines; those of the page do not.
    told = escaped(title).replace("\n", "&#10;")
    return f"<{name} {given}><title>{told}</title></{name}>"


def _text(text: str, x: float, y: float, anchor: str = "", kind: str = "") -> str:
    given = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:g}" y="{y:g}"{given}>{escaped(text)}</text>'
