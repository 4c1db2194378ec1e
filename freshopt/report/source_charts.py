"""Charts of all sources: rates, refresh intervals, estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from freshopt.formatting import count, number
from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale
from freshopt.report.chart import NARROW, WIDE, Frame, around, axes, chart, figure, line, steps, strips
from freshopt.report.markup import Child, Markup, element
from freshopt.report.source_sample import BINS, GRID, Cells, Survey
from freshopt.report.value_words import FetchWords
from freshopt.units import SECONDS, duration

# Seconds that people know, for the axis of times.
TIMES = [
    *(1, 10, 60, 600, 3600, 21600, 86400, 259200, 604800, 2592000, 8640000, 31557600, 315576000, 3155760000)
]
# Shades of cells; more could not be told apart.
SHADES = 5
# Height in pixels of the strip of sources that are never refreshed, below the others.
STRIP = 22.0
# Characters of a name that fit on a label.
NAME = 60


def by_change_rate(survey: Survey, unit: str, words: FetchWords) -> Markup:
    """Return the chart of rates against change rates."""
    cells = survey.by_change_rate
    sources = count(survey.n, "source")
    label = f"{words.rate.capitalize()} rate against change rate of {sources}, both logarithmic."
    frame = _frame(survey)
    marks = _cloud(survey, cells, "change_rate", unit, f"changes per {unit}", frame, words)
    caption = [_key(survey)]
    x, y = _scales(cells, frame, survey)
    both = np.array([max(x.low, y.low), min(x.high, y.high)])
    if both[1] > both[0]:
        marks.append(line(x(both), y(both), "guide"))
        caption.append(f" The dashed line is one {words.rate} per change.")
    return figure(f"{words.rate.capitalize()} rate by change rate", chart(frame, label, marks), caption)


def by_importance(survey: Survey, unit: str, words: FetchWords) -> Markup | None:
    """Return the chart of rates against importance, where importances differ."""
    cells = survey.by_importance
    if cells is None:
        return None
    label = (
        f"{words.rate.capitalize()} rate against importance of {count(survey.n, 'source')}, both logarithmic."
    )
    frame = _frame(survey)
    marks = _cloud(survey, cells, "importance", unit, "importance", frame, words)
    idle = " Sources of no importance are at the left edge." if survey.idle else ""
    caption = [_key(survey), idle]
    return figure(f"{words.rate.capitalize()} rate by importance", chart(frame, label, marks), caption)


def by_crawl_rate(survey: Survey, unit: str, words: FetchWords) -> Markup | None:
    """Return the chart of planned against crawled intervals.

    None where all were crawled equally often.
    """
    cells = survey.by_crawl_rate
    if cells is None or survey.crawled_alike:
        return None
    label = (
        f"Time between {words.rates} against time between the log's own crawls of "
        f"{count(survey.n, 'source')}."
    )
    frame = _frame(survey, left=78.0)
    marks = _cloud(survey, cells, "crawl_rate", unit, "crawled every", frame, words)
    x, y = _scales(cells, frame, survey)
    both = np.array([max(x.low, y.low), min(x.high, y.high)])
    below = ""
    if both[1] > both[0]:
        marks.insert(1, line(x(both), y(both), "guide"))
        below = f" On the dashed line a source is {words.done} as often as it was crawled."
    return figure("Planned and crawled intervals", chart(frame, label, marks), [_key(survey), below])


def ratios(survey: Survey, words: FetchWords) -> Markup | None:
    """Return the histogram of planned over crawled rates."""
    if survey.by_crawl_rate is None or not np.any(survey.ratio):
        return None
    frame = Frame()
    scale = replace(survey.ratio_scale, begin=frame.across[0], end=frame.across[1])
    merged = _merged(survey.n)
    many = survey.ratio.reshape(-1, merged).sum(axis=1)
    y = Scale(0.0, float(np.max(many)) * 1.08, *frame.up)
    edges = np.linspace(*frame.across, len(many) + 1)
    ends = [times(each) for each in np.geomspace(scale.low, scale.high, len(many) + 1).tolist()]
    told = (
        f"{count(int(each), 'source')}: {low} to {high} as often"
        for low, high, each in zip(ends, ends[1:], many.tolist(), strict=False)
    )
    marks: list[Child] = [
        axes(
            frame,
            scale,
            y,
            f"{words.rates} planned for a crawl of today",
            "sources",
            x_text=times,
            y_ticks=[tick for tick in y.ticks(4) if tick == round(tick)],
        ),
        steps(edges, y(many), frame.up[0], "bars"),
    ]
    below = ""
    if scale.low < 1.0 < scale.high:
        marks.append(line(np.repeat(scale(1.0), 2), np.array(frame.up), "today"))
        below = "The dotted line is as often as today."
    marks.append(strips(frame, edges, told))
    label = f"Histogram of planned over crawled rates of {count(int(np.sum(many)), 'source')}."
    return figure("How much more or less often", chart(frame, label, marks), below)


def times(ratio: float) -> str:
    """Return a ratio as people multiply or divide.

    Examples
    --------
    >>> times(4.1329), times(0.011865), times(0.0)
    ('× 4.13', '÷ 84.3', '× 0')
    """
    return f"× {ratio:.3g}" if ratio >= 1.0 or ratio == 0.0 else f"÷ {1.0 / ratio:.3g}"


def _merged(n: int) -> int:
    """Return how many bins become one for n sources."""
    return next(each for each in (1, 2, 4, 8) if each == 8 or BINS / each <= 2.0 * np.sqrt(n))


def gaps(survey: Survey, unit: str, words: FetchWords) -> Markup | None:
    """Return the histogram of the refresh intervals.

    Alone in its row it is drawn wide for a desk and narrow for a phone.
    """
    if survey.n - survey.never < 2:
        return None
    kinds = {"wide": WIDE, "narrow": NARROW} if survey.weighed else {"": Frame()}
    pictures = [_gaps(survey, unit, frame, kind, words.rates) for kind, frame in kinds.items()]
    made = figure(f"Time between {words.rates}", pictures, "Time is on a logarithmic axis.")
    return element("div", made, class_="row") if survey.weighed else made


def _gaps(survey: Survey, unit: str, frame: Frame, kind: str, what: str) -> Markup:
    scale = replace(survey.gap_scale, begin=frame.across[0], end=frame.across[1])
    many = survey.gaps.reshape(-1, _merged(survey.n)).sum(axis=1)
    y = Scale(0.0, float(np.max(many)) * 1.08, *frame.up)
    edges = np.linspace(*frame.across, len(many) + 1)
    ticks = [tick for tick in (each / SECONDS[unit] for each in TIMES) if scale.low <= tick <= scale.high]
    marks: list[Child] = [
        axes(
            frame,
            scale,
            y,
            f"time between {what} of a source",
            "sources",
            x_ticks=ticks if len(ticks) > 1 else None,
            y_ticks=[tick for tick in y.ticks(4) if tick == round(tick)],
            x_text=lambda tick: duration(tick, unit),
        ),
        steps(edges, y(many), frame.up[0], "bars"),
        strips(frame, edges, _ranges(scale, many, unit)),
    ]
    middle = (float(np.argmax(many)) + 0.5) / len(many)
    common = duration(scale.low * (scale.high / scale.low) ** middle, unit)
    label = f"Histogram of the time between {what} of a source; most common is about {common}."
    return chart(frame, label, marks, kind=kind)


def _ranges(scale: Scale, many: Array, unit: str) -> Iterator[str]:
    """Yield what each column of the histogram holds."""
    ends = np.geomspace(scale.low, scale.high, len(many) + 1).tolist()
    for low, high, sources in zip(ends, ends[1:], many.tolist(), strict=False):
        yield f"{count(int(sources), 'source')}: every {duration(low, unit)} to {duration(high, unit)}"


def reach(survey: Survey, unit: str, confidence: str) -> Markup:
    """Return the chart of change rates with confidence intervals."""
    frame = Frame()
    told: list[str]
    if survey.points is not None:
        part = survey.points
        order = np.argsort(part.change_rate, kind="stable")
        middle, low, high = (column[order] for column in (part.change_rate, part.lower, part.upper))
        share = (np.arange(len(order)) + 0.5) / len(order)
        named = part.names or [""] * len(order)
        told = [f"{_short(named[k])}: " for k in order.tolist()]
    else:
        some = survey.reach[0] > 0.0
        many, low, high = survey.reach[:, some]
        edges = survey.by_change_rate.x
        steps_ = np.linspace(np.log(edges.low), np.log(edges.high), BINS + 1)
        middle = np.exp(0.5 * (steps_[1:] + steps_[:-1]))[some]
        share = (np.cumsum(many) - 0.5 * many) / np.sum(many)
        told = [f"{count(int(each), 'source')}, about " for each in many.tolist()]
    ends = zip(told, middle.tolist(), low.tolist(), high.tolist(), strict=True)
    told = [
        f"{what}{number(value)} changes per {unit}, {confidence.removesuffix('s')} {number(least)} to "
        f"{number(most)}"
        for what, value, least, most in ends
    ]
    # The interval of a source that never changed goes down to nothing: the axis ends a decade and a half
    # below the slowest estimate, and the bar at its edge.
    y = _around(np.concatenate([np.maximum(low, np.min(middle) / 30.0), middle, high]), frame)
    x = Scale(0.0, 1.0, *frame.across)
    place = x(share)
    marks: list[Child] = list(
        axes(
            frame,
            x,
            y,
            "share of sources, slowest first",
            f"changes per {unit}",
            x_text=lambda t: f"{100 * t:.0f} %",
        )
    )
    if survey.points is not None:
        bars = zip(place.tolist(), y(low).tolist(), y(high).tolist(), strict=True)
        path = "".join(f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in bars)
        width = max(1.0, min(6.0, 0.6 * (x.end - x.begin) / len(place)))
        marks.append(element("path", class_="reach", stroke_width=f"{width:.2g}", d=path))
        radius = 1.3 if len(place) > 60 else 3.0
        marks.append(
            [
                element("circle", element("title", text), class_="middle", cx=a, cy=b, r=radius)
                for a, b, text in zip(place.tolist(), y(middle).tolist(), told, strict=True)
            ]
        )
        what = "A bar is a source's interval, a dot its estimate."
    else:
        outline = np.concatenate([y(low), y(high)[::-1]])
        marks.append(line(np.concatenate([place, place[::-1]]), outline, "area"))
        marks.append(line(place, y(middle), "curve"))
        marks.append(strips(frame, around(place, frame), told))
        what = "The line shows the estimates; the area lies between the geometric mean ends of the intervals."
    label = f"Change rates of {count(survey.n, 'source')} with their {confidence}, from slowest to fastest."
    return figure("Change rates with intervals", chart(frame, label, marks), what)


def _cloud(
    survey: Survey, cells: Cells, key: str, unit: str, x_title: str, frame: Frame, words: FetchWords
) -> list[Child]:
    """Return axes and sources, as points or counted cells.

    Sources that are never refreshed are on a strip below.
    """
    x, y = _scales(cells, frame, survey)
    if key == "crawl_rate":
        # Of two rates people compare the intervals.
        ticks = [_interval_ticks(scale, unit) for scale in (x, y)]

        def every(rate: float) -> str:
            return duration(1.0 / rate, unit)

        shown = axes(
            frame,
            x,
            y,
            x_title,
            f"{words.rate} every",
            x_text=every,
            y_text=every,
            x_ticks=ticks[0],
            y_ticks=ticks[1],
        )
    else:
        shown = axes(frame, x, y, x_title, f"{words.rates} per {unit}")
    marks: list[Child] = list(shown)
    strip = frame.up[0] - 0.5 * STRIP + 3.0
    if survey.never:
        marks.append(
            element("text", "never", x=frame.left - 6, y=strip + 4, text_anchor="end", class_="word")
        )
    if survey.points is None:
        marks.extend(_counted(cells, x, y, strip, x_title, unit))
        return marks
    part = survey.points
    values, names = getattr(part, key), part.names or [""] * len(part.rate)
    across, up = x(values).tolist(), y(np.where(part.rate > 0.0, part.rate, y.low)).tolist()
    radius = 3.6 if len(names) > 60 else 5.0
    for k, name in enumerate(names):
        if math.isnan(values[k]):
            continue
        rate, change = float(part.rate[k]), float(part.change_rate[k])
        often = f"{words.done} every {duration(1.0 / rate, unit)}" if rate > 0.0 else "never refreshed"
        told = f"{_short(name)}: {often}, {number(change)} changes per {unit}"
        if part.importance is not None:
            told += f", importance {number(float(part.importance[k]))}"
        if key == "crawl_rate":
            told = f"{_short(name)}: crawled every {duration(1.0 / float(values[k]), unit)}, now {often}"
        title = element("title", told)
        if rate > 0.0:
            marks.append(element("circle", title, class_="dot", cx=across[k], cy=up[k], r=radius))
        else:
            a, b = across[k], strip
            cross = f"M{a - 3:.1f} {b - 3:.1f}l6 6m0 -6l-6 6"
            marks.append(element("path", title, class_="none", d=cross))
    return marks


def _interval_ticks(scale: Scale, unit: str) -> list[float]:
    """Return the rates of a scale whose intervals people know, ascending."""
    known = [SECONDS[unit] / each for each in reversed(TIMES)]
    found = [rate for rate in known if scale.low <= rate <= scale.high]
    return found if len(found) > 1 else scale.ticks(4)


def _counted(cells: Cells, x: Scale, y: Scale, strip: float, x_title: str, unit: str) -> Iterable[Markup]:
    """Yield a group of cells for each shade."""
    wide, tall = (x.end - x.begin) / GRID[0], (y.begin - y.end) / GRID[1]
    most = float(max(np.max(cells.many), np.max(cells.never)))
    along = [number(float(edge)) for edge in np.geomspace(cells.x.low, cells.x.high, GRID[0] + 1)]
    often = [
        duration(1.0 / float(edge), unit) for edge in np.geomspace(cells.y.low, cells.y.high, GRID[1] + 1)
    ]
    size = {"width": f"{wide - 0.4:.1f}", "height": f"{min(tall, 10.0) - 0.4:.1f}"}
    for name, many in (("cell", cells.many), ("cell-none", cells.never[:, None])):
        shade = np.zeros(many.shape, dtype=np.int64)
        some = many > 0.0
        shade[some] = 1 + np.floor(np.log(many[some]) / np.log(most + 1.0) * SHADES).astype(np.int64)
        for level in range(1, SHADES + 1):
            boxes: list[Markup] = []
            for a, b in np.argwhere(shade == level).tolist():
                top = y.begin - (b + 1) * tall if name == "cell" else strip - 5.0
                every = f"every {often[b + 1]} to {often[b]}" if name == "cell" else "never refreshed"
                what = f"{count(int(many[a, b]), 'source')}: {x_title} {along[a]} to {along[a + 1]}, {every}"
                place = {"x": f"{x.begin + a * wide:.1f}", "y": f"{top:.1f}"}
                boxes.append(element("rect", element("title", what), **place, **size))
            if boxes:
                opacity = f"{0.15 + 0.85 * level / SHADES:.2f}"
                yield element("g", boxes, class_=name, fill_opacity=opacity)


def _key(survey: Survey) -> str:
    """Return the legend of a cloud."""
    if survey.points is not None:
        crosses = " A cross is a source that is never refreshed." if survey.never else ""
        return f"A dot is a source.{crosses}"
    most = int(np.max(survey.by_change_rate.many))
    below = " The row below has those that are never refreshed." if survey.never else ""
    return f"The darker, the more sources: up to {most:,} in a cell.{below}"


def _frame(survey: Survey, left: float = 52.0) -> Frame:
    return Frame(height=290.0 + (STRIP if survey.never else 0.0), left=left)


def _scales(cells: Cells, frame: Frame, survey: Survey) -> tuple[Scale, Scale]:
    """Return the axes of a cloud, above the strip."""
    floor, top = frame.up
    up = (floor - STRIP if survey.never else floor), top
    return (
        replace(cells.x, begin=frame.across[0], end=frame.across[1]),
        replace(cells.y, begin=up[0], end=up[1]),
    )


def _around(values: Array, frame: Frame) -> Scale:
    """Return a vertical logarithmic scale around positive finite values."""
    useful = values[(values > 0.0) & np.isfinite(values)]
    low, high = float(np.min(useful)), float(np.max(useful))
    return Scale(low / 1.3, high * 1.3, *frame.up, logarithmic=True)


def _short(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"
