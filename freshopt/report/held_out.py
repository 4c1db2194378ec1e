"""Policies on held-out data: names, measured costs, notes.

A plan is optimal for estimated change rates; on the part of a log that was held out another policy may do
better. What is said of that follows from the paired differences in ``summary.json`` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.formatting import count, number, percent
from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale, covering
from freshopt.report.charts import NARROW, WIDE, Axis, Chart, Dots, Figure, Hits, Line, Mark
from freshopt.report.context import Context, Facts, tidy
from freshopt.report.finding import Finding, Table
from freshopt.report.load_charts import Clock
from freshopt.report.markup import amount
from freshopt.report.plan_tables import PlanFolder
from freshopt.report.source_charts import pairs
from freshopt.report.source_sample import POINTS
from freshopt.units import SECONDS

# What the plan is compared with source by source: the first that was measured.
RIVALS = ("rates in force", "uniform")
# Policies whose costs are drawn over time, with the style of each line.
LINES = {"plan": "curve", "uniform": "guide", "current": "today", "best static in hindsight": "best"}
# Height of a policy's row in pixels.
ROW = 22.0


def held_out(told: Context, folder: PlanFolder | None = None) -> Finding | None:
    """Return what held-out data say, or None without a back-test."""
    held = told.facts.within("held_out")
    if not held:
        return None
    rows = policy_rows(held)
    failures = held.text("failures") if "failures" in held.values else ""
    sentence = held.text("verdict") if held.values.get("verdict") else ""
    finding = Finding("held-out", "back-test", sentence)
    ruled = [rule_words(each) for each in held.rows("rules")] if held.values.get("rules") else []
    facts: dict[str, Any] = {
        "notes": [*_unsupported(told, rows, sentence), *filter(None, ruled), *notes(rows, failures=failures)],
        "each": None,
    }
    finding = finding.section("Tested on your own past", facts, _table(told, held, rows))
    if folder is None:
        return finding
    pictures = [_measured_chart(told, rows)] if rows else []
    pictures += _over_time(told, held)
    found = folder.held_out(RIVALS)
    each = None if found is None else _source_chart(told, *found, POINTS)
    facts = {**facts, "each": each}
    return finding.section(finding.title, facts, finding.table, tuple(pictures))


def _unsupported(told: Context, rows: list[PolicyRow], verdict: str) -> list[str]:
    """Return what to do about phases that the log does not support."""
    judged = any(row.policy == "plan, phased" and row.saving is not None for row in rows)
    if not told.facts.within("phases") or not judged or phases_supported(verdict):
        return []
    return ["The plan crawls at good hours of the week all the same; --load-limit 1 plans without them."]


def policy_rows(held: Facts) -> list[PolicyRow]:
    """Return the measured costs of the policies on held-out data."""
    return [
        PolicyRow(
            row.text("policy"),
            row.number("refreshes"),
            row.number("realised"),
            row.maybe("error"),
            row.number("fresh"),
            *(row.maybe(key) for key in ("predicted", "saving", "saving_error", "hidden")),
        )
        for row in held.rows("policies")
    ]


def _over_time(told: Context, held: Facts) -> list[Figure]:
    """Return the picture of costs over time, where they were measured."""
    found = held.within("over_time")
    policies = found.within("policies")
    if not policies:
        return []
    edges = _numbers(found, "edges")
    series = {name: _numbers(policies, name, gaps=True) for name in LINES if name in policies.values}
    series = {name: values for name, values in series.items() if not np.all(np.isnan(values))}
    if not series or any(len(values) != len(edges) - 1 for values in series.values()):
        return []
    end = told.date("end")
    begin = None if end is None else end - timedelta(seconds=float(edges[-1] - edges[0]) * SECONDS[told.unit])
    clock = f"time {number(float(edges[0]))} on the log's clock"
    since = clock if begin is None else f"{begin:%Y-%m-%d %H:%M} UTC"
    return [_time_chart(told, Clock(edges - edges[0], told.unit, since, begin), series)]


def _numbers(found: Facts, key: str, *, gaps: bool = False) -> Array:
    """Return a list of numbers of the summary."""
    if not isinstance(found.values.get(key), list):
        raise SourceDataError(
            f"{found.file}: held_out.over_time has no list {key}. Plan again, with --overwrite."
        )
    values = found.numbers(key, gaps=gaps)
    return np.array(values, dtype=np.float64)


def _table(told: Context, held: Facts, known: list[PolicyRow]) -> Table:
    """Return the policies' measured costs."""
    heads = [f"{told.words.rates} per {told.unit}", "predicted", told.value_head, "± error", "percent saved"]
    heads.append("share of time up to date")
    rows = [
        [
            policy_words(row.policy),
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
    windows = "" if held.values.get("splits", 1) == 1 else f" in {held.whole('splits')} windows"
    span = count(tidy(held.number("end") - held.number("begin")), told.unit)
    caption = (
        f"Rates planned from the first part of the log alone, replayed on its last {span}{windows} "
        f"({count(held.whole('sources'), 'source')}{missing})"
    )
    return Table.of(caption, "policy", heads, rows, 0)


def _measured_chart(told: Context, rows: Sequence[PolicyRow]) -> Figure:
    """Return the picture of measured costs with their errors."""
    names = [policy_words(row.policy) for row in rows]
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
    marks.append(Hits(place, [_row_told(told, row) for row in rows], rows=True))
    label = f"Measured {told.goal.noun} of the plan and of {len(rows) - 1} other policies, a row each."
    y = Axis("", Scale(0.0, 1.0, 0.0, 1.0), names=names, own=POLICIES["plan"])
    # A phone has no room for the names beside the rows.
    sizes = {
        WIDE: WIDE._replace(height=52.0 + ROW * len(rows), left=270.0, top=8.0),
        NARROW: NARROW._replace(height=52.0 + 1.8 * ROW * len(rows), left=12.0, top=4.0),
    }
    charts = tuple(
        Chart(label, Axis(told.measure, scale), y._replace(over=size is NARROW), marks, frame)
        for size, frame in sizes.items()
    )
    below = "A dot is what was measured, with its standard error; a ring is what was predicted."
    return Figure(f"Measured {told.value_head}", charts, below, row=True)


def _time_chart(told: Context, clock: Clock, series: dict[str, Array]) -> Figure:
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
    keys = tuple((POLICIES[name], LINES[name]) for name in series)
    return Figure(f"{noun} over time", charts, keys=keys, row=True)


def _source_chart(
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
        f"{'A dot is a source.' if listed else 'The stronger the colour, the more sources.'} "
        f"Below the dashed line the planned rates cost less: for {count(less, 'source')}; "
        f"for {more:,} they cost more. "
        f"{count(silent, 'source')} without a change in that time cost nothing."
    )
    label = f"Cost of each source on held-out data at planned rates against {words}, both logarithmic."
    return Figure("Each source, held out", (Chart(label, *axes, marks),), caption)


def _row_told(told: Context, row: PolicyRow) -> str:
    """Return all that was measured of a policy."""
    error = "" if row.error is None else f" ± {number(row.error)}"
    predicted = "" if row.predicted is None else f", predicted {number(row.predicted)}"
    words = policy_words(row.policy)
    used = f"{number(row.refreshes)} {told.words.rates} per {told.unit}"
    return f"{words}: {told.goal.noun} {number(row.value)}{error}{predicted}, with {used}"


POLICIES = {
    "plan": "planned rates",
    "plan, phased": "planned rates at good phases of the week",
    "re-planned": "planned again from its own crawls",
    "rates in force": "shares of the log's own crawls",
    "uniform": "equal rates",
    "proportional": "rates ∝ change rates",
    "∝ √(w·Δ)": "rates ∝ √(importance × change rate)",
    "best static in hindsight": "best static rates in hindsight",
    "current": "the log's own crawls",
    "plan at current": "planned rates at the log's crawl rate",
    "with signals": "planned, following signals",
    "plan at with signals": "planned rates at as many fetches as with signals",
}
# Words for the plan at good phases.
PHASES = "crawling at good phases of the week"
# Words for crawls that follow signals.
SIGNALS = "following signals"
# How plans at the crawl rates of other policies begin.
PLAN_AT = "plan at "
# Relative differences below this are equality: with four digits they would not show.
SAME = 5e-4
# What is measured where crawls do not show all changes.
HIDDEN = (
    "Costs are those of all changes. Crawls show whether a source changed since the one before, not how "
    "often, nor when, save for dates: that is drawn given what they found, from the posterior of its change "
    "rate. It is {share} of the plan's cost{and_so}."
)
UNSURE = "; half of it counts as a standard error"
TOO_MUCH = ", too much to decide between policies"
# Share of a plan's cost that crawls may hide where policies are compared: beyond it the rates of sources that
# changed at every crawl decide, which no log of such crawls tells.
MOST_HIDDEN = 0.5
SAVED = (
    '"Saved" compares each row with the plan at the same number of fetches; minus means worse. Errors are '
    "standard errors of the paired difference."
)
HINDSIGHT = '"Best in hindsight" is an unreachable bound: it knows the future.'


class PolicyRow(NamedTuple):
    """Measured cost of one policy, a key of `POLICIES`.

    Refreshes are per time unit; savings are of the cost of the plan at the same bandwidth; hidden is the
    share of the cost that crawls hid.
    """

    policy: str
    refreshes: float
    value: float
    error: float | None
    fresh: float
    predicted: float | None = None
    saving: float | None = None
    saving_error: float | None = None
    hidden: float | None = None


def is_plan(policy: str) -> bool:
    """Return whether a policy is a plan that others are compared with."""
    return policy == "plan" or policy.startswith(PLAN_AT)


def policy_words(policy: str) -> str:
    """Return what tables and charts call a policy.

    Examples
    --------
    >>> policy_words("uniform"), policy_words("plan at nutch")
    ('equal rates', 'planned rates at as many fetches as nutch')
    """
    other = policy.removeprefix(PLAN_AT)
    usual = policy if other == policy else f"planned rates at as many fetches as {other}"
    return POLICIES.get(policy, usual)


def saved(row: PolicyRow) -> str:
    """Return what a policy saves, in percent, with its error.

    Examples
    --------
    >>> saved(PolicyRow("uniform", 4.0, 6.0, 0.1, 0.9, 6.1, -0.125, 0.03))
    '-12.5 ± 3.0'
    """
    if row.saving is None or is_plan(row.policy):
        return ""
    error = "" if row.saving_error is None else f" ± {100.0 * row.saving_error:.1f}"
    return f"{round(100.0 * row.saving, 1) + 0.0:.1f}{error}"


def phases_supported(verdict: str) -> bool:
    """Return whether a verdict claims that good phases save."""
    return f"{PHASES} saves " in f"{verdict[:1].lower()}{verdict[1:]}"


def rule_words(rule: Facts) -> str:
    """Return what a reader should know of a rule of crawlers."""
    name, needed, settled = rule.text("rule"), rule.maybe("needed"), rule.maybe("settled")
    used, words = rule.number("used"), []
    if needed is not None and name == "with signals":
        saves = percent(abs(1.0 - used / needed), space=" ")
        words.append(
            f"Without signals the plan costs as much at a bandwidth of {number(needed)} in place of "
            f"{number(used)}: they save {saves} of the fetches."
            if used < needed
            else f"Without signals the plan costs as much at a bandwidth of {number(needed)}, no more than "
            f"{number(used)}: they save nothing."
        )
    elif needed is not None:
        share = percent(abs(1.0 - needed / used), space=" ")
        words.append(
            f"The plan costs as much as {name} at a bandwidth of {number(needed)} in place of "
            f"{number(used)}, {share} {'less' if needed < used else 'more'}."
        )
    if settled:
        words.append(
            f"Intervals of {name} settle after {round(settled):,} fetches of a source (median); "
            f"{round(rule.number('before')):,} came before what was held out."
        )
    return " ".join(words)


def notes(rows: Sequence[PolicyRow], *, failures: str = "") -> list[str]:
    """Return what a reader should know of the rows."""
    head = [SAVED] if any(row.saving is not None for row in rows) else []
    head += [failures] if failures else []
    head += [HINDSIGHT] if any(row.policy == "best static in hindsight" for row in rows) else []
    hidden = max((row.hidden or 0.0 for row in rows if is_plan(row.policy)), default=0.0)
    if hidden > 0.0:
        and_so = TOO_MUCH if hidden > MOST_HIDDEN else UNSURE
        head.append(HIDDEN.format(share=percent(hidden, space=" "), and_so=and_so))
    return head
