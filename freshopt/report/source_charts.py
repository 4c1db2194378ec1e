"""Charts of all sources: rates, refresh intervals, estimates, lifetimes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from freshopt.formatting import count, number
from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale, covering
from freshopt.report.charts import (
    NARROW,
    WIDE,
    Axis,
    Bars,
    Cells,
    Chart,
    Crosses,
    Dots,
    Figure,
    Frame,
    Hits,
    Line,
    Mark,
    Spans,
    around,
    shades,
)
from freshopt.report.source_sample import BINS, GRID, Survey
from freshopt.report.source_sample import Cells as Counts
from freshopt.report.value_words import FetchWords
from freshopt.units import SECONDS, duration

# Seconds that people know, for the axis of times.
TIMES = [
    *(1, 10, 60, 600, 3600, 21600, 86400, 259200, 604800, 2592000, 8640000, 31557600, 315576000, 3155760000)
]
# Characters of a name that fit on a label.
NAME = 60


def rates(seen: Survey, unit: str, words: FetchWords) -> list[Figure]:
    """Return rates by change rate and importance, and times between refreshes."""
    what, x_title = f"{words.rate.capitalize()} rate", f"changes per {unit}"
    below = f" The dashed line is one {words.rate} per change."
    found = [_cloud(seen, seen.by_change_rate, "change_rate", x_title, what, unit, words, guide=below)]
    if seen.by_importance is not None:
        idle = " Sources of no importance are at the left edge." if seen.idle else ""
        by = seen.by_importance
        found.append(_cloud(seen, by, "importance", "importance", what, unit, words, after=idle))
    if seen.n - seen.never < 2:
        return found
    # Alone in its row it is drawn wide for a desk and narrow for a phone.
    kinds = (WIDE, NARROW) if seen.weighed else (Frame(),)
    many = seen.gaps.reshape(-1, _merged(seen.n)).sum(axis=1)
    middle = seen.gap_scale.low * (seen.gap_scale.high / seen.gap_scale.low) ** (
        (float(np.argmax(many)) + 0.5) / len(many)
    )
    common = duration(middle, unit)
    label = f"Histogram of the time between {words.rates} of a source; most common is about {common}."
    x = _times(f"time between {words.rates} of a source", seen.gap_scale, unit)
    charts = [_histogram(many, x, frame, label, lambda a, b: f"every {a} to {b}") for frame in kinds]
    title = f"Time between {words.rates}"
    return [*found, Figure(title, tuple(charts), "Time is on a logarithmic axis.", row=seen.weighed)]


def changes(seen: Survey, unit: str, words: FetchWords) -> list[Figure]:
    """Return planned against crawled intervals, and their ratios."""
    found = []
    cells = seen.by_crawl_rate
    if cells is not None and not seen.crawled_alike:
        below = f" On the dashed line a source is {words.done} as often as it was crawled."
        what = "Planned and crawled intervals"
        found.append(_cloud(seen, cells, "crawl_rate", "crawled every", what, unit, words, guide=below))
    if cells is not None and np.any(seen.ratio):
        many = seen.ratio.reshape(-1, _merged(seen.n)).sum(axis=1)
        label = f"Histogram of planned over crawled rates of {count(int(np.sum(many)), 'source')}."
        x = Axis(f"{words.rates} planned for a crawl of today", seen.ratio_scale, times)
        # Alone in its row it is drawn wide for a desk and narrow for a phone.
        kinds = (Frame(),) if found else (WIDE, NARROW)
        charts = [_histogram(many, x, kind, label, lambda a, b: f"{a} to {b} as often") for kind in kinds]
        inside = x.scale.low < 1.0 < x.scale.high
        if inside:
            today = Line(np.ones(2), np.array([0.0, charts[0].y.scale.high]), "today")
            charts = [replace(each, marks=[each.marks[0], today, *each.marks[1:]]) for each in charts]
        dotted = "The dotted line is as often as today." if inside else ""
        found.append(Figure("How much more or less often", tuple(charts), dotted, row=not found))
    return found


def reach(seen: Survey, unit: str, confidence: str) -> Figure:
    """Return the chart of change rates with confidence intervals."""
    if seen.points is not None:
        part = seen.points
        order = np.argsort(part["change_rate"].to_numpy(), kind="stable")
        middle, low, high = (part[key].to_numpy()[order] for key in ("change_rate", "lower", "upper"))
        share = (np.arange(len(order)) + 0.5) / len(order)
        named = part["source"].to_list()
        heads = [f"{_short(named[k])}: " for k in order.tolist()]
    else:
        some = seen.reach[0] > 0.0
        many, low, high = seen.reach[:, some]
        edges = seen.by_change_rate.x
        logs = np.linspace(np.log(edges.low), np.log(edges.high), BINS + 1)
        middle = np.exp(0.5 * (logs[1:] + logs[:-1]))[some]
        share = (np.cumsum(many) - 0.5 * many) / np.sum(many)
        heads = [f"{count(int(each), 'source')}, about " for each in many.tolist()]
    ends = zip(heads, middle.tolist(), low.tolist(), high.tolist(), strict=True)
    interval = confidence.removesuffix("s")
    told = [
        f"{head}{number(value)} changes per {unit}, {interval} {number(least)} to {number(most)}"
        for head, value, least, most in ends
    ]
    # The interval of a source that never changed goes down to nothing: the axis ends a decade and a half
    # below the slowest estimate, and the bar at its edge.
    shown = np.concatenate([np.maximum(low, np.min(middle) / 30.0), middle, high])
    useful = shown[(shown > 0.0) & np.isfinite(shown)]
    y = Scale(float(np.min(useful)) / 1.3, float(np.max(useful)) * 1.3, 0.0, 1.0, logarithmic=True)
    marks: list[Mark]
    if seen.points is not None:
        radius = 1.3 if len(share) > 60 else 3.0
        marks = [Spans(share, low, high), Dots(share, middle, told, "middle", radius)]
        what = "A bar is a source's interval, a dot its estimate."
    else:
        marks = [Line(share, low, "area", ends=high), Line(share, middle, "curve")]
        marks.append(Hits(around(share, 0.0, 1.0), told))
        what = "The line shows the estimates; the area lies between the geometric mean ends of the intervals."
    label = f"Change rates of {count(seen.n, 'source')} with their {confidence}, from slowest to fastest."
    x = Axis("share of sources, slowest first", Scale(0.0, 1.0, 0.0, 1.0), lambda t: f"{100 * t:.0f} %")
    chart = Chart(label, x, Axis(f"changes per {unit}", y), marks)
    return Figure("Change rates with intervals", (chart,), what)


def times(ratio: float) -> str:
    """Return a ratio as people multiply or divide.

    Examples
    --------
    >>> times(4.1329), times(0.011865), times(0.0)
    ('× 4.13', '÷ 84.3', '× 0')
    """
    return f"× {ratio:.3g}" if ratio >= 1.0 or ratio == 0.0 else f"÷ {1.0 / ratio:.3g}"


def lifetimes(names: Sequence[str], columns: dict[str, Array], unit: str, most: int) -> list[Figure]:
    """Return lifetimes against change rates and against request rates.

    Up to `most` sources are drawn one by one.

    Columns are ``change_rate``, ``request_rate`` and ``lifetime``, infinite where nothing is fetched again.
    """
    life, n = columns["lifetime"], len(names)
    never, always = int(np.count_nonzero(np.isinf(life))), int(np.count_nonzero(life == 0.0))
    y = _times("lifetime", covering(life, 0.0, 1.0), unit)
    y = y._replace(zero="at once" if always else "", infinite="never" if never else "")
    shown = names if n <= most else ()
    keys = ("change_rate", "request_rate", "lifetime")
    rows = zip(shown, *(columns[key][: len(shown)].tolist() for key in keys), strict=True)
    told = [
        f"{_short(name)}: {expiry(value, unit)}, {number(change)} changes and "
        f"{number(asked)} requests per {unit}"
        for name, change, asked, value in rows
    ]
    found = []
    for noun in ("change", "request"):
        values = columns[f"{noun}_rate"]
        x = Axis(f"{noun}s per {unit}", covering(values, 0.0, 1.0))
        marks: list[Mark] = []
        words = ""
        # T = 1/Δ, in what both axes show.
        ends = max(x.scale.low, 1.0 / y.scale.high), min(x.scale.high, 1.0 / y.scale.low)
        if noun == "change" and ends[1] > ends[0]:
            marks.append(Line(np.array(ends), 1.0 / np.array(ends), "guide"))
            words = " On the dashed line a source changes once per lifetime."
        if told:
            marks.append(Dots(values, life, told, radius=3.6 if n > 60 else 5.0))
            key = "A dot is a source."
        else:
            cells, highest = _grid(values, life, x, y, unit)
            marks += cells
            key = f"The stronger the colour, the more sources: up to {highest:,} in a cell."
        key += f" The row above has {count(never, 'source')} never fetched again." if never else ""
        key += f" The row below has {count(always, 'source')} fetched at each request." if always else ""
        label = f"Lifetime against {noun} rate of {count(n, 'source')}, both logarithmic."
        chart = Chart(label, x, y, marks, Frame(left=78.0))
        found.append(Figure(f"Lifetime by {noun} rate", (chart,), key + words))
    return found


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


def pairs(
    x: Array, y: Array, names: Sequence[str], axes: tuple[Axis, Axis], told: Callable[[int], str]
) -> Mark:
    """Return a named dot for each source, or counted cells."""
    if names:
        return Dots(x, y, [told(k) for k in range(len(names))])
    edges = _edges(axes[0].scale, GRID[0]), _edges(axes[1].scale, GRID[1])
    many = np.histogram2d(x, y, edges)[0]

    def title(a: int, b: int) -> str:
        at = f"from {number(float(edges[0][a]))} to {number(float(edges[1][b]))}"
        return f"{count(int(many[a, b]), 'source')}: {at}"

    return Cells(*edges, shades(many, float(np.max(many))), title)


def _grid(values: Array, life: Array, x: Axis, y: Axis, unit: str) -> tuple[list[Mark], int]:
    """Return counted cells of lifetimes, also of 0 and infinity."""
    edges = _edges(x.scale, GRID[0]), _edges(y.scale, GRID[1])
    inside = (life > 0.0) & np.isfinite(life)
    across = np.clip(values, x.scale.low, x.scale.high)
    many = np.histogram2d(across[inside], np.clip(life[inside], y.scale.low, y.scale.high), edges)[0]
    strips = {
        at: np.histogram(across[life == at], edges[0])[0][:, None].astype(float) for at in (0.0, math.inf)
    }
    most = float(max(np.max(many), *(np.max(each) for each in strips.values())))

    def title(counts: Array, spans: Sequence[str]) -> Callable[[int, int], str]:
        def told(a: int, b: int) -> str:
            low, high = (number(float(edge)) for edge in edges[0][a : a + 2])
            return f"{count(int(counts[a, b]), 'source')}: {x.title} {low} to {high}, lifetime {spans[b]}"

        return told

    ends = [duration(float(edge), unit) for edge in edges[1]]
    spans = [f"{short} to {long}" for short, long in pairwise(ends)]
    marks: list[Mark] = [Cells(*edges, shades(many, most), title(many, spans))]
    for at, words in ((0.0, "0: fetched at each request"), (math.inf, "infinite: never fetched again")):
        marks.append(Cells(edges[0], np.array([at]), shades(strips[at], most), title(strips[at], [words])))
    return marks, int(most)


def _cloud(
    seen: Survey,
    cells: Counts,
    key: str,
    x_title: str,
    what: str,
    unit: str,
    words: FetchWords,
    *,
    guide: str = "",
    after: str = "",
) -> Figure:
    """Return sources by a property and by rate, as points or cells."""
    crawled = key == "crawl_rate"
    x, y = Axis(x_title, cells.x), Axis(f"{words.rates} per {unit}", cells.y)
    title, label = f"{what} by {key.replace('_', ' ')}", f"{what} against {key.replace('_', ' ')} of "
    label += f"{count(seen.n, 'source')}, both logarithmic."
    if crawled:
        # Of two rates people compare the intervals.
        x, y = (_intervals(axis, unit) for axis in (x, y))
        y, title = y._replace(title=f"{words.rate} every"), what
        label = f"Time between {words.rates} against time between the log's own crawls of "
        label += f"{count(seen.n, 'source')}."
    y = y._replace(zero="never" if seen.never else "")
    marks = _points(seen, key, unit, words) if seen.points is not None else _counted(cells, x_title, unit)
    both = np.array([max(cells.x.low, cells.y.low), min(cells.x.high, cells.y.high)])
    if guide and both[1] > both[0]:
        marks.insert(0 if crawled else len(marks), Line(both, both, "guide"))
        after += guide
    if seen.points is not None:
        legend = "A dot is a source."
        legend += " A cross is a source that is never refreshed." if seen.never else ""
    else:
        most = int(np.max(seen.by_change_rate.many))
        legend = f"The stronger the colour, the more sources: up to {most:,} in a cell."
        legend += " The row below has those that are never refreshed." if seen.never else ""
    chart = Chart(label, x, y, marks, Frame(left=78.0) if crawled else Frame())
    return Figure(title, (chart,), legend + after)


def _points(seen: Survey, key: str, unit: str, words: FetchWords) -> list[Mark]:
    """Return a dot or a cross for each source."""
    part = seen.points
    assert part is not None, "sources are drawn one by one"
    values, rates, changes = (part[each].to_numpy() for each in (key, "rate", "change_rate"))
    names, weights = part["source"].to_list(), part["importance"] if "importance" in part.columns else None

    def title(k: int) -> str:
        rate, known = float(rates[k]), float(values[k])
        often = f"{words.done} every {duration(1.0 / rate, unit)}" if rate > 0.0 else "never refreshed"
        if key == "crawl_rate":
            return f"{_short(names[k])}: crawled every {duration(1.0 / known, unit)}, now {often}"
        told = f"{_short(names[k])}: {often}, {number(float(changes[k]))} changes per {unit}"
        weight = "" if weights is None else f", importance {number(weights[k])}"
        return f"{told}{weight}"

    there = ~np.isnan(values)
    some, none = (np.flatnonzero(there & each) for each in (rates > 0.0, rates == 0.0))
    radius = 3.6 if len(names) > 60 else 5.0
    dots = Dots(values[some], rates[some], [title(k) for k in some.tolist()], radius=radius)
    return [dots, Crosses(values[none], rates[none], [title(k) for k in none.tolist()])]


def _counted(cells: Counts, x_title: str, unit: str) -> list[Mark]:
    """Return counted cells, and a row of sources that are never refreshed."""
    x, y = (_edges(scale, size) for scale, size in zip((cells.x, cells.y), GRID, strict=True))
    most = float(max(np.max(cells.many), np.max(cells.never)))
    along = [number(edge) for edge in x.tolist()]
    often = [duration(1.0 / edge, unit) for edge in y.tolist()]
    never = cells.never[:, None]

    def title(many: Array, a: int, every: str) -> str:
        return f"{count(int(many), 'source')}: {x_title} {along[a]} to {along[a + 1]}, {every}"

    def refreshed(a: int, b: int) -> str:
        return title(cells.many[a, b], a, f"every {often[b + 1]} to {often[b]}")

    def not_refreshed(a: int, _: int) -> str:
        return title(cells.never[a], a, "never refreshed")

    strip = Cells(x, np.zeros(1), shades(never, most), not_refreshed, "cell-none")
    return [Cells(x, y, shades(cells.many, most), refreshed), strip]


def _histogram(many: Array, x: Axis, frame: Frame, label: str, told: Callable[[str, str], str]) -> Chart:
    """Return columns of sources along a logarithmic axis."""
    scale = Scale(0.0, float(np.max(many)) * 1.08, 0.0, 1.0)
    y = Axis("sources", scale, ticks=[tick for tick in scale.ticks(4) if tick == round(tick)])
    edges = _edges(x.scale, len(many))
    ends = x.texts(edges.tolist())
    spans = zip(ends, ends[1:], many.tolist(), strict=False)
    titles = [f"{count(int(each), 'source')}: {told(low, high)}" for low, high, each in spans]
    return Chart(label, x, y, [Bars(edges, many), Hits(edges, titles)], frame)


def _edges(scale: Scale, cells: int) -> Array:
    return np.asarray(np.geomspace(scale.low, scale.high, cells + 1))


def _merged(n: int) -> int:
    """Return how many bins become one for n sources."""
    return next(each for each in (1, 2, 4, 8) if each == 8 or BINS / each <= 2.0 * np.sqrt(n))


def _times(title: str, scale: Scale, unit: str) -> Axis:
    """Return an axis of times that people know."""
    known = [tick for tick in (each / SECONDS[unit] for each in TIMES) if scale.low <= tick <= scale.high]
    return Axis(title, scale, lambda tick: duration(tick, unit), known if len(known) > 1 else None)


def _intervals(axis: Axis, unit: str) -> Axis:
    """Return an axis of rates that is read as intervals."""
    known = [SECONDS[unit] / each for each in reversed(TIMES)]
    found = [rate for rate in known if axis.scale.low <= rate <= axis.scale.high]
    ticks = found if len(found) > 1 else axis.scale.ticks(4)
    return axis._replace(text=lambda rate: duration(1.0 / rate, unit), ticks=ticks, falling=True)


def _short(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"
