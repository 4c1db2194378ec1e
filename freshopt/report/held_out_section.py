"""Section of held-out data: costs over time and by source."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.formatting import count, number, percent
from freshopt.numerics.arrays import Array
from freshopt.report import plan_tables as tables
from freshopt.report.axis import Scale, covering
from freshopt.report.chart import NARROW, WIDE, Frame, axes, chart, figure, line, strips
from freshopt.report.components import Column, Section, amount, paragraph, table
from freshopt.report.context import Context, tidy
from freshopt.report.held_out import POLICIES, PolicyRow, notes, saved
from freshopt.report.markup import Child, Markup, element
from freshopt.report.plan_charts import Clock
from freshopt.report.source_sample import GRID, POINTS
from freshopt.report.summary_facts import Facts
from freshopt.units import SECONDS

# Policies whose costs are drawn over time, with the style of each line.
LINES = {"plan": "curve", "uniform": "guide", "current": "today", "best static in hindsight": "best"}
# What the plan is compared with source by source: the first that was measured.
RIVALS = ("rates in force", "uniform")
# Height of a policy's row in pixels, and characters of its name on a phone.
ROW, LETTERS = 22.0, 20


def held_out(told: Context, folder: Path) -> Section | None:
    """Return the section of held-out data, or None without a back-test."""
    held = told.facts.within("held_out")
    if held is None:
        return None
    rows = policy_rows(held)
    verdict = held.text("verdict") if held.values.get("verdict") else None
    body: list[Child] = [
        paragraph(verdict) if verdict else None,
        _policies(told, rows),
        _over_time(told, held),
        _by_source(told, folder),
    ]
    return Section.of("held-out", "On held-out data", body, _table(told, held))


def _policies(told: Context, rows: Sequence[PolicyRow]) -> Child:
    """Return the picture of measured costs with their errors."""
    if not rows:
        return None
    pictures = [_rows(told, rows, size) for size in (WIDE, NARROW)]
    below = "A dot is what was measured, with its standard error; a ring is what was predicted."
    return figure(f"Measured {told.value_head}", pictures, below)


def _rows(told: Context, rows: Sequence[PolicyRow], size: Frame) -> Markup:
    wide = size is WIDE
    frame = Frame(size.width, 12.0 + ROW * len(rows) + 40.0, 270.0 if wide else 158.0, top=8.0)
    ends = [row.value + (row.error or 0.0) for row in rows]
    most = max([*ends, *(row.predicted or 0.0 for row in rows)])
    x = Scale(min(0.0, *(row.value for row in rows)), 1.05 * most or 1.0, *frame.across)
    marks: list[Child] = [axes(frame, x, Scale(0.0, 1.0, *frame.up), told.measure, "", y_ticks=[])]
    for k, row in enumerate(rows):
        middle = frame.top + ROW * (k + 0.5)
        words = POLICIES.get(row.policy, row.policy)
        short = words if wide or len(words) <= LETTERS else f"{words[: LETTERS - 1]}…"
        style = "word" if row.policy == "plan" else None
        marks.append(element("text", short, x=frame.left - 10, y=middle + 4, text_anchor="end", class_=style))
        error = row.error or 0.0
        reach = x(np.array([row.value - error, row.value + error]))
        marks.append(line(reach, np.repeat(middle, 2), "error"))
        if row.predicted is not None:
            marks.append(element("circle", class_="ring", cx=float(x(row.predicted)), cy=middle, r=4))
        kind = "value own" if row.policy == "plan" else "value"
        marks.append(element("circle", class_=kind, cx=float(x(row.value)), cy=middle, r=4.5))
        marks.append(
            element(
                "rect",
                element("title", _told(told, row)),
                class_="hit",
                x=f"{frame.left:g}",
                y=f"{middle - 0.5 * ROW:g}",
                width=f"{frame.across[1] - frame.left:g}",
                height=f"{ROW:g}",
            )
        )
    label = f"Measured {told.goal.noun} of the plan and of {len(rows) - 1} other policies, a row each."
    return chart(frame, label, marks, kind="wide" if wide else "narrow")


def _told(told: Context, row: PolicyRow) -> str:
    """Return all that was measured of a policy."""
    error = "" if row.error is None else f" ± {number(row.error)}"
    predicted = "" if row.predicted is None else f", predicted {number(row.predicted)}"
    words = POLICIES.get(row.policy, row.policy)
    used = f"{number(row.refreshes)} {told.words.rates} per {told.unit}"
    return f"{words}: {told.goal.noun} {number(row.value)}{error}{predicted}, with {used}"


def _over_time(told: Context, held: Facts) -> Child:
    """Return the picture of costs over time, where they were measured."""
    found = held.within("over_time")
    policies = None if found is None else found.within("policies")
    if found is None or policies is None:
        return None
    edges = _numbers(found, "edges")
    series = {name: _numbers(policies, name, gaps=True) for name in LINES if name in policies.values}
    series = {name: values for name, values in series.items() if not np.all(np.isnan(values))}
    if not series or any(len(values) != len(edges) - 1 for values in series.values()):
        return None
    end = told.date("end")
    span = timedelta(seconds=float(edges[-1] - edges[0]) * SECONDS[told.unit])
    since = (
        f"time {number(float(edges[0]))} on the log's clock"
        if end is None
        else f"{end - span:%Y-%m-%d %H:%M} UTC"
    )
    clock = Clock(edges - edges[0], told.unit, since, None if end is None else end - span)
    pictures = [_lines(told, clock, series, size) for size in (WIDE, NARROW)]
    keys = [element("span", POLICIES[name], class_=f"key {LINES[name]}") for name in series]
    return figure(f"{told.goal.noun.capitalize()} over time", pictures, keys)


def _lines(told: Context, clock: Clock, series: dict[str, Array], frame: Frame) -> Markup:
    """Return costs over time as a step line for each policy."""
    x = Scale(0.0, float(clock.edges[-1]), *frame.across)
    every = np.concatenate(list(series.values()))
    low, high = float(min(np.nanmin(every), 0.0)), float(np.nanmax(every))
    y = Scale(low, 1.08 * high if high > 0.0 else low + 1.0, *frame.up)
    ticks, text, title = clock.ticks(8 if frame is WIDE else 4)
    marks: list[Child] = [axes(frame, x, y, title, told.value_head, x_ticks=ticks, x_text=text)]
    corners = np.repeat(x(clock.edges), 2)[1:-1]
    for name, values in reversed(series.items()):
        known = ~np.isnan(np.repeat(values, 2))
        marks.append(line(corners[known], y(np.repeat(values, 2)[known]), LINES[name]))
    told_of = []
    for k, (begin, end) in enumerate(pairwise(clock.edges.tolist())):
        each = [
            f"{POLICIES[name]} {number(float(values[k]))}"
            for name, values in series.items()
            if values[k] == values[k]
        ]
        told_of.append("\n".join([clock.span(begin, end), *each]))
    marks.append(strips(frame, x(clock.edges), told_of))
    named = ", ".join(POLICIES[name] for name in series)
    label = f"{told.goal.noun.capitalize()} over the held-out time of {named}."
    return chart(frame, label, marks, kind="wide" if frame is WIDE else "narrow")


def _by_source(told: Context, folder: Path) -> Child:
    """Return the picture of each source's cost under two policies."""
    found = tables.held_out(folder, ("plan",), RIVALS)
    if found is None:
        return None
    names, rival, own, other = found
    some = (own > 0.0) & (other > 0.0)
    if np.count_nonzero(some) < 2:
        return None
    frame = Frame()
    words = POLICIES[rival]
    both = covering(np.concatenate([own[some], other[some]]), 0.0, 1.0)
    x, y = (
        Scale(both.low, both.high, *frame.across, logarithmic=True),
        Scale(both.low, both.high, *frame.up, logarithmic=True),
    )
    marks: list[Child] = [
        axes(frame, x, y, f"{told.measure} at {words}", f"{told.measure} at planned rates"),
        line(x(np.array([both.low, both.high])), y(np.array([both.low, both.high])), "guide"),
    ]
    if len(own) <= POINTS:
        places = zip(
            x(other[some]).tolist(), y(own[some]).tolist(), np.flatnonzero(some).tolist(), strict=True
        )
        for a, b, k in places:
            text = f"{names[k]}: planned rates {number(float(own[k]))}, {words} {number(float(other[k]))}"
            marks.append(element("circle", element("title", text), class_="dot", cx=a, cy=b, r=3.6))
        key = "A dot is a source."
    else:
        marks.append(_cells(x, y, other[some], own[some]))
        key = "The darker, the more sources."
    less, more = (
        int(np.count_nonzero(own[some] < other[some])),
        int(np.count_nonzero(own[some] > other[some])),
    )
    silent = int(np.count_nonzero((own == 0.0) & (other == 0.0)))
    caption = (
        f"{key} Below the dashed line the planned rates cost less: for {count(less, 'source')}; for {more:,} "
        f"they cost more. {count(silent, 'source')} without a change in that time cost nothing."
    )
    label = f"Cost of each source on held-out data at planned rates against {words}, both logarithmic."
    return element(
        "div", figure("Each source, held out", chart(frame, label, marks), caption), class_="figures"
    )


def _cells(x: Scale, y: Scale, across: Array, up: Array) -> Markup:
    """Return counted cells of a grid, the darker the more."""
    edges = [np.geomspace(scale.low, scale.high, size + 1) for scale, size in zip((x, y), GRID, strict=True)]
    many = np.histogram2d(across, up, edges)[0]
    left, top = x(edges[0]), y(edges[1])
    boxes = []
    for a, b in np.argwhere(many > 0.0).tolist():
        opacity = 0.2 + 0.8 * np.log1p(many[a, b]) / np.log1p(np.max(many))
        what = (
            f"{count(int(many[a, b]), 'source')}: from {number(float(edges[0][a]))} to "
            f"{number(float(edges[1][b]))}"
        )
        place = {"x": f"{left[a]:.1f}", "y": f"{top[b + 1]:.1f}", "fill_opacity": f"{opacity:.2f}"}
        size = {"width": f"{left[a + 1] - left[a]:.1f}", "height": f"{top[b] - top[b + 1]:.1f}"}
        boxes.append(element("rect", element("title", what), **place, **size))
    return element("g", boxes, class_="cell")


def _numbers(found: Facts, key: str, *, gaps: bool = False) -> Array:
    """Return a list of numbers of the summary."""
    values = found.values.get(key)
    if not isinstance(values, list):
        raise SourceDataError(
            f"{found.file}: held_out.over_time has no list {key}. Plan again, with --overwrite."
        )
    inner = Facts(found.file, {str(k): value for k, value in enumerate(values)}, f"{found.path}.{key}")
    if gaps:
        return np.array([inner.maybe(str(k)) for k in range(len(values))], dtype=np.float64)
    return np.array([inner.number(str(k)) for k in range(len(values))], dtype=np.float64)


def _table(told: Context, held: Facts) -> list[Child]:
    """Return the policies' measured costs on held-out data."""
    span = count(tidy(held.number("end") - held.number("begin")), told.unit)
    columns = [
        Column("policy"),
        Column(f"{told.words.rates} per {told.unit}", "number"),
        Column("predicted", "number"),
        Column(told.value_head, "number"),
        Column("± error", "number"),
        Column("percent saved", "number"),
        Column("share of time up to date", "number"),
    ]
    known = policy_rows(held)
    rows: list[list[Child]] = [
        [
            POLICIES.get(row.policy, row.policy),
            amount(row.refreshes),
            None if row.predicted is None else amount(row.predicted),
            amount(row.value),
            None if row.error is None else amount(row.error),
            saved(row) or None,
            amount(row.fresh, percent(row.fresh, even=True)),
        ]
        for row in known
    ]
    left = held.values.get("left_out")
    missing = (
        f"; {count(held.whole('left_out'), 'source')} not crawled before and in it left out" if left else ""
    )
    splits = held.values.get("splits", 1)
    windows = "" if splits == 1 else f" in {held.whole('splits')} windows"
    failures = held.text("failures") if "failures" in held.values else ""
    words = (
        f"Rates planned from the first part of the log alone, replayed on its last {span}{windows} "
        f"({count(held.whole('sources'), 'source')}{missing})"
    )
    return [
        table(words, columns, rows, own=0),
        [paragraph(text, kind="small faint") for text in notes(known, failures=failures)],
    ]


def policy_rows(held: Facts) -> list[PolicyRow]:
    """Return the measured costs of the policies on held-out data."""
    return [
        PolicyRow(
            row.text("policy"),
            row.number("refreshes"),
            row.number("realised"),
            row.maybe("error"),
            row.number("fresh"),
            row.maybe("predicted"),
            row.maybe("saving"),
            row.maybe("saving_error"),
            row.maybe("hidden") if "hidden" in row.values else None,
        )
        for row in held.rows("policies")
    ]
