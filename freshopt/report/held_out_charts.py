"""Charts of a back-test: measured costs, over time, and source by source."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from freshopt.formatting import count, number
from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale, covering
from freshopt.report.charts import NARROW, WIDE, Axis, Chart, Dots, Figure, Hits, Line, Mark
from freshopt.report.context import Context
from freshopt.report.held_out import POLICIES, PolicyRow
from freshopt.report.load_charts import Clock
from freshopt.report.source_charts import pairs

# Policies whose costs are drawn over time, with the style of each line.
LINES = {"plan": "curve", "uniform": "guide", "current": "today", "best static in hindsight": "best"}
# Height of a policy's row in pixels.
ROW = 22.0


def measured(told: Context, rows: Sequence[PolicyRow]) -> Figure:
    """Return the picture of measured costs with their errors."""
    names = [POLICIES.get(row.policy, row.policy) for row in rows]
    error = np.array([row.error or 0.0 for row in rows])
    value, place = np.array([row.value for row in rows]), np.arange(float(len(rows)))
    known = [k for k, row in enumerate(rows) if row.predicted is not None]
    predicted = np.array([rows[k].predicted for k in known], dtype=np.float64)
    most = float(max([*(value + error), *predicted, 0.0]))
    scale = Scale(min(0.0, float(np.min(value))), 1.05 * most or 1.0, 0.0, 1.0)
    marks: list[Mark] = []
    for k in range(len(rows)):
        reach = np.array([value[k] - error[k], value[k] + error[k]])
        marks.append(Line(reach, np.array([k, k]), "error"))
    marks.append(Dots(predicted, np.array(known), kind="ring", radius=4.0))
    for k, row in enumerate(rows):
        kind = "value own" if row.policy == "plan" else "value"
        marks.append(Dots(value[[k]], np.array([k]), kind=kind, radius=4.5))
    marks.append(Hits(place, [_told(told, row) for row in rows], rows=True))
    label = f"Measured {told.goal.noun} of the plan and of {len(rows) - 1} other policies, a row each."
    y = Axis("", Scale(0.0, 1.0, 0.0, 1.0), names=names, own=POLICIES["plan"])
    charts = tuple(
        Chart(
            label,
            Axis(told.measure, scale),
            y,
            marks,
            size._replace(
                height=12.0 + ROW * len(rows) + 40.0, left=270.0 if size is WIDE else 158.0, top=8.0
            ),
        )
        for size in (WIDE, NARROW)
    )
    below = "A dot is what was measured, with its standard error; a ring is what was predicted."
    return Figure(f"Measured {told.value_head}", charts, below)


def over_time(told: Context, clock: Clock, series: dict[str, Array]) -> Figure:
    """Return costs over time as a step line for each policy."""
    every = np.concatenate(list(series.values()))
    low, high = float(min(np.nanmin(every), 0.0)), float(np.nanmax(every))
    y = Axis(told.value_head, Scale(low, 1.08 * high if high > 0.0 else low + 1.0, 0.0, 1.0))
    corners = np.repeat(clock.edges, 2)[1:-1]
    marks: list[Mark] = []
    for name, values in reversed(series.items()):
        known = ~np.isnan(np.repeat(values, 2))
        marks.append(Line(corners[known], np.repeat(values, 2)[known], LINES[name]))
    titles = []
    for k, (begin, end) in enumerate(pairwise(clock.edges.tolist())):
        there = {name: float(values[k]) for name, values in series.items() if values[k] == values[k]}
        each = [f"{POLICIES[name]} {number(value)}" for name, value in there.items()]
        titles.append("\n".join([clock.span(begin, end), *each]))
    marks.append(Hits(clock.edges, titles))
    noun, named = told.goal.noun.capitalize(), ", ".join(POLICIES[name] for name in series)
    label = f"{noun} over the held-out time of {named}."
    charts = tuple(
        Chart(label, clock.axis(ticks), y, marks, frame) for frame, ticks in ((WIDE, 8), (NARROW, 4))
    )
    return Figure(f"{noun} over time", charts, keys=tuple((POLICIES[name], LINES[name]) for name in series))


def by_source(
    told: Context, names: Sequence[str], rival: str, own: Array, other: Array, most: int
) -> Figure | None:
    """Return each source's cost under two policies."""
    some = np.flatnonzero((own > 0.0) & (other > 0.0))
    if len(some) < 2:
        return None
    words, mine, theirs = POLICIES[rival], own[some], other[some]
    scale = covering(np.concatenate([mine, theirs]), 0.0, 1.0)
    axes = Axis(f"{told.measure} at {words}", scale), Axis(f"{told.measure} at planned rates", scale)
    ends = np.array([scale.low, scale.high])
    listed = [names[k] for k in some.tolist()] if len(own) <= most else []

    def title(k: int) -> str:
        planned = f"planned rates {number(float(mine[k]))}"
        return f"{listed[k]}: {planned}, {words} {number(float(theirs[k]))}"

    marks: list[Mark] = [Line(ends, ends, "guide"), pairs(theirs, mine, listed, axes, title)]
    less, more = (int(np.count_nonzero(each)) for each in (mine < theirs, mine > theirs))
    silent = int(np.count_nonzero((own == 0.0) & (other == 0.0)))
    caption = (
        f"{'A dot is a source.' if listed else 'The darker, the more sources.'} Below the dashed line the "
        f"planned rates cost less: for {count(less, 'source')}; for {more:,} they cost more. "
        f"{count(silent, 'source')} without a change in that time cost nothing."
    )
    label = f"Cost of each source on held-out data at planned rates against {words}, both logarithmic."
    return Figure("Each source, held out", (Chart(label, *axes, marks),), caption)


def _told(told: Context, row: PolicyRow) -> str:
    """Return all that was measured of a policy."""
    error = "" if row.error is None else f" ± {number(row.error)}"
    predicted = "" if row.predicted is None else f", predicted {number(row.predicted)}"
    words = POLICIES.get(row.policy, row.policy)
    used = f"{number(row.refreshes)} {told.words.rates} per {told.unit}"
    return f"{words}: {told.goal.noun} {number(row.value)}{error}{predicted}, with {used}"
