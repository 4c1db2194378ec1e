"""Value, freshness and shadow price along the bandwidth: the frontier.

All points were solved and certified when the plan was made (`freshopt.planning.findings`). The slider moves
over them and shows one at a time; between them nothing is shown, because nothing is known there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from freshopt.formatting import number, percent
from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale
from freshopt.report.charts import (
    Arrow,
    Axis,
    Chart,
    Dots,
    Figure,
    Frame,
    Hits,
    Label,
    Line,
    Mark,
    Word,
    around,
)
from freshopt.report.context import Context, Facts
from freshopt.report.finding import Finding, Table
from freshopt.report.headline import fewer, rate
from freshopt.report.markup import amount
from freshopt.report.plan_tables import PlanFolder
from freshopt.report.source_findings import gains
from freshopt.report.value_words import FetchWords, price_text

# Of its section on the page.
TITLE = "More or less bandwidth"
# Relative differences below this may be those of two solves of one problem.
SAME = 1e-6
# Multiples of the plan's bandwidth that have a row of the table.
ROWS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
FRAME = Frame(width=340.0, height=250.0, left=56.0)
# The chart of the head, for a desk and for a phone.
WIDE_HEAD, NARROW_HEAD = Frame(540.0, 300.0, kind="wide"), Frame(400.0, 260.0, kind="narrow")
# Bandwidths that differ by more are told on a logarithmic axis; an axis that would begin lower begins at 0.
NEAR, LOW = 6.0, 0.3


@dataclass(frozen=True, slots=True)
class Points:
    """Values, prices and freshness at ascending bandwidths, the plan's included."""

    bandwidth: Array
    value: Array
    price: Array
    fresh: Array | None
    here: int
    better: int

    @classmethod
    def of(cls, rows: Sequence[Facts], bandwidth: float, *, maximised: bool) -> Points:
        """Sort rows by bandwidth; without all shares there are none."""
        keys = ("bandwidth", "value", "price", "fresh")
        known = sorted([[row.maybe(key) for key in keys] for row in rows], key=lambda row: row[0] or 0.0)
        columns = np.array(known, dtype=np.float64).reshape(-1, 4).T
        fresh = None if np.any(np.isnan(columns[3])) else columns[3]
        here = int(np.argmin(np.abs(columns[0] - bandwidth)))
        return cls(columns[0], columns[1], columns[2], fresh, here, 1 if maximised else -1)

    def words(self, unit: str) -> list[list[str]]:
        """Return bandwidth, its ratio, share fresh, value, difference and price in words."""
        own, here = float(self.value[self.here]), float(self.bandwidth[self.here])
        shares = (
            [""] * len(self.value) if self.fresh is None else [percent(each) for each in self.fresh.tolist()]
        )
        rows = zip(self.bandwidth.tolist(), shares, self.value.tolist(), self.price.tolist(), strict=True)
        return [
            [
                f"{number(at)} per {unit}",
                _times(at / here),
                share,
                number(value),
                _difference(value, own) or "the same",
                number(price),
            ]
            for at, share, value, price in rows
        ]


def frontier(told: Context, folder: PlanFolder | None = None) -> Finding | None:
    """Return value and price over bandwidth, and today's."""
    price = told.facts.maybe("price")
    if price is None:
        return None
    finding = Finding("bandwidth", "shadow price", _price(told, price))
    if folder is None:
        return finding
    today = told.facts.within("moved").maybe("crawled") if told.words == FetchWords() else None
    rows = told.findings.rows("frontier")
    for row in rows:
        row.positive("bandwidth")
    known = [row for row in rows if row.maybe("value") is not None and row.maybe("price") is not None]
    if len(known) < 2:
        return finding
    points = Points.of(known, told.facts.positive("bandwidth"), maximised=told.maximised)
    flat = bool(np.ptp(points.value) <= SAME * abs(told.value)) and not np.any(points.price > 0.0)
    gained = points.better * (points.value[points.here :] - points.value[points.here])
    facts: dict[str, Any] = {
        "slack": told.proved and bool(np.all(gained <= SAME * abs(told.value))),
        "flat": flat,
        "least": float(points.bandwidth[0]),
        "today": today,
        "more": None,
    }
    if flat:
        return finding.section(TITLE, facts)
    small = [row.number("bandwidth") for row in rows if row.maybe("value") is None]
    more = told.findings.within("more_bandwidth")
    gaining = more.rows("sources")
    if gaining:
        raised = more.number("bandwidth") / told.facts.positive("bandwidth") - 1.0
        change = abs(more.number("value") - told.value)
        facts["more"] = {"raised": raised, "change": change, "of": more}
        facts["gains"] = gains(told, gaining)
    words = points.words(told.unit)
    heads = ["bandwidth", "of this plan's", f"{told.shares} up to date", told.measure]
    heads += ["difference", f"shadow price {told.price_unit}"]
    facts |= {
        "short": max(small) if small else None,
        "slider": [
            (head, words[points.here][k], k) for k, head in enumerate(heads) if any(row[k] for row in words)
        ],
        "last": len(words) - 1,
        "data": {"here": points.here, "rows": words, "of": told.shares},
    }
    charts = _charts(told, points, today, words)
    return finding.section(TITLE, facts, _table(told, points), charts)


def _price(told: Context, price: float) -> str:
    """Return the bandwidth's shadow price; where it is 0, the reason."""
    facts, used, bandwidth = told.facts, told.facts.number("bandwidth_used"), told.facts.number("bandwidth")
    if price > 0.0:
        # Kept intervals are not what a bandwidth's price would choose.
        kept = bool(facts.within("few_changes")) and facts.text("status") != "optimal"
        words = price_text(
            facts.text("objective"),
            price,
            bandwidth,
            told.value,
            told.unit,
            maximised=told.maximised,
            optimal=not kept,
            fetch=told.words.bandwidth,
        )
        return f"{words}, of which all may change" if kept else words
    if used >= (1.0 - 1e-9) * bandwidth:
        return "0: more bandwidth gains nothing"
    other = (
        "other constraints or maximum rates"
        if facts.within("constraints")
        else "maximum rates or host limits"
    )
    return f"0: {other} are reached, or nothing is left to gain"


def _table(told: Context, points: Points) -> Table:
    """Return the rows at round multiples of the plan's bandwidth."""
    own = told.facts.positive("bandwidth")
    heads = [
        f"per {told.unit}",
        told.measure,
        "difference from this plan's",
        f"shadow price {told.price_unit}",
    ]
    heads += [] if points.fresh is None else [f"{told.shares} up to date"]
    shown = [
        k
        for k, at in enumerate(points.bandwidth.tolist())
        if any(abs(at / own - each) < 1e-9 for each in ROWS)
    ]
    cells: list[list[str | None]] = []
    for k in shown:
        at, value, price = (float(column[k]) for column in (points.bandwidth, points.value, points.price))
        row = [
            _times(at / own),
            amount(at),
            amount(value),
            _difference(value, told.value) or None,
            amount(price),
        ]
        if points.fresh is not None:
            share = float(points.fresh[k])
            row.append(amount(share, percent(share, even=True)))
        cells.append(row)
    solved = [row for row in told.findings.rows("frontier") if row.maybe("value") is not None]
    proved = all(row.values.get("status") == "optimal" for row in solved)
    caption = f"More and less bandwidth, each solved anew{' and proved optimal' if proved else ''}"
    own_row = shown.index(points.here) if points.here in shown else None
    return Table.of(caption, "bandwidth", heads, cells, own_row)


def _charts(told: Context, points: Points, today: float | None, words: list[list[str]]) -> tuple[Figure, ...]:
    """Return freshness, value and price over the bandwidth."""
    unit, noun, at, k = told.unit, told.measure, points.bandwidth, points.here
    heads = {0: "", 1: "", 2: "up to date", 3: noun, 5: f"shadow price {told.price_unit}"}
    texts = [", ".join(f"{head} {row[j]}".strip() for j, head in heads.items() if row[j]) for row in words]
    x = Axis(f"bandwidth, {told.words.uses} per {unit}", Scale(0.0, float(at[-1]), 0.0, 1.0))

    def made(title: str, what: str, values: Array, y: Scale, curve: Sequence[Mark], below: str) -> Figure:
        first, last, here = (f"{number(float(values[j]))} at {words[j][0]}" for j in (0, -1, k))
        label = f"{what.capitalize()} along the bandwidth, from {first} to {last}; this plan has {here}."
        marks: list[Mark] = []
        if today is not None and 0.0 < today <= x.scale.high:
            marks = [Line(np.full(2, today), np.array([y.low, y.high]), "today"), Word(today, "today")]
        marks += [
            *curve,
            Dots(at, values, kind="point", radius=2.2, numbered=True),
            Dots(at[[k]], values[[k]], kind="here", radius=5.0),
            Hits(around(at, 0.0, float(at[-1])), texts),
        ]
        return Figure(title, (Chart(label, x, Axis(what, y), marks, FRAME),), below)

    figures = []
    if points.fresh is not None:
        shares = 100.0 * points.fresh
        which = "" if noun == "freshness" else f" The rates are those of the least {told.goal.noun}."
        what = "time in which copies are" if told.shares == "time" else "requests that find a copy"
        below = f"Expected share of {what} up to date.{which if points.better < 0 else ''}"
        title = f"{told.shares.capitalize()} up to date by bandwidth"
        percents = f"percent of {told.shares} up to date"
        figures.append(made(title, percents, shares, _up(shares), [Line(at, shares, "curve")], below))
    up, moves = _up(points.value), ("Higher", "rises") if points.better > 0 else ("Lower", "falls")
    caption = f"{moves[0]} is better. The ring is this plan; the tangent {moves[1]} by the shadow price."
    ends = _tangent(points, up, 0.3 * float(at[-1]))
    tangent = points.value[k] + points.better * points.price[k] * (ends - at[k])
    curve = [Line(at, points.value, "curve", points.better * points.price), Line(ends, tangent, "guide")]
    figures.append(made("Value by bandwidth", noun, points.value, up, curve, caption))
    falls = points.price[0] > points.price[-1] and bool(np.all(np.diff(points.price) <= 0.0))
    caption = f"Marginal value of one more {told.words.bandwidth} per {unit}."
    caption += " It falls: marginal values diminish." if falls else ""
    up = Scale(0.0, 1.08 * float(np.max(points.price)) or 1.0, 0.0, 1.0)
    along = np.unique(np.concatenate([at, np.linspace(at[0], at[-1], 80)]))
    what = f"shadow price {told.price_unit}"
    price = [Line(along, _between(points, along), "curve")]
    return *figures, made("Shadow price by bandwidth", what, points.price, up, price, caption)


def _times(ratio: float) -> str:
    return "this plan" if abs(ratio - 1.0) < 1e-9 else f"{ratio:.4g} times"


def _difference(value: float, own: float) -> str:
    share = (value - own) / abs(own) if own != 0.0 else 0.0
    if abs(share) < SAME:
        return ""
    return f"{'+' if share > 0 else '−'}{percent(abs(share), even=True)}"


def _between(points: Points, bandwidth: Array) -> Array:
    """Interpolate prices, log-log where they are positive."""
    if np.all(points.price > 0.0):
        logs = np.interp(np.log(bandwidth), np.log(points.bandwidth), np.log(points.price))
        return np.asarray(np.exp(logs))
    return np.asarray(np.interp(bandwidth, points.bandwidth, points.price))


def _up(values: Array) -> Scale:
    """Return the axis of values, from 0 where near."""
    low, high = float(np.min(values)), float(np.max(values))
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    bottom = 0.0 if 0.0 <= low < 0.35 * (high - low) else low - room
    return Scale(bottom, high + room, 0.0, 1.0)


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


def head_chart(told: Context) -> Figure | None:
    """Return the time up to date over the bandwidth."""
    rows = told.findings.rows("freshness") if told.findings.values.get("freshness") else []
    if len(rows) < 2 or told.fresh("plan") is None or told.facts.number("bandwidth_used") <= 0.0:
        return None
    at, best, equal = (np.array([row.number(key) for row in rows]) for key in ("bandwidth", "best", "equal"))
    marked = _marked(told)
    places = [place for _, place, _ in marked]
    span = max(places) / min(places)
    scale = Scale(0.0, float(at[-1]), 0.0, 1.0)
    if span > NEAR:
        scale = Scale(float(at[0]), float(at[-1]), 0.0, 1.0, logarithmic=True)
    shares = [share for *_, share in marked]
    # What is marked stands in the upper part; where that is far above 0, the axis is cut.
    room = max(best[-1] - min(shares), 0.02 * (1.0 - min(shares)))
    bottom = min(shares) - 1.2 * room
    y = Scale(100.0 * bottom if bottom > LOW else 0.0, 100.0 * float(best[-1]) + 8.0 * room, 0.0, 1.0)
    y = replace(y, high=min(y.high, 100.0))
    # Every second point is told: more could not be pointed at.
    second = [each[::2].tolist() for each in (at, best, equal)]
    told_at = [
        f"{rate(told, where)}: {percent(high)} at best, {percent(low)} if all alike"
        for where, high, low in zip(*second, strict=True)
    ]
    marks: list[Mark] = [_above(at, 100.0 * equal, y, "guide"), _above(at, 100.0 * best, y, "curve")]
    marks += [Hits(around(at[::2], scale.low, float(at[-1])), told_at)]
    spread = {size: [*marks, *_words(told, marked, scale, size)] for size in (WIDE_HEAD, NARROW_HEAD)}
    words = "; ".join(f"{name}: {percent(share)} at {rate(told, place)}" for name, place, share in marked)
    axes = Axis(told.words.fetches + f" per {told.unit}", scale), Axis("% of the time up to date", y)
    charts = tuple(
        Chart(f"Time up to date by {told.words.fetches} per {told.unit}. {words}.", *axes, each, size)
        for size, each in spread.items()
    )
    # A plan that knows good hours of the week may be above the curve, which does not.
    best_of = "the best for freshness" + (" at equal intervals" if told.flat_fresh is not None else "")
    keys = ((best_of, "curve"), ("all fetched equally often", "guide"))
    return Figure(f"Time up to date by {told.words.fetches}", charts, "", keys)


def _marked(told: Context) -> list[tuple[str, float, float]]:
    """Return what the chart of the saving marks."""
    fresh, equal, today = told.fresh("plan"), told.fresh("uniform"), told.today
    used = told.facts.positive("bandwidth_used")
    marked = [("this plan", used, fresh or 0.0)]
    now = today.within("cut") or today
    share = now.maybe("fresh")
    if share is not None:
        marked.append(("today", now.positive("bandwidth"), share))
        needed = today.maybe("needed")
        marked += [("as fresh as today", needed, share)] if needed else []
    if equal is not None and all(abs(used / place - 1.0) > 0.01 for _, place, _ in marked[1:]):
        marked.append(("equally often", used, equal))
    return marked


def _words(
    told: Context, marked: Sequence[tuple[str, float, float]], x: Scale, size: Frame
) -> Iterator[Mark]:
    """Yield the dots of what is marked, with words that fit."""
    wide = size.width - size.left - size.right
    placed = replace(x, begin=0.0, end=wide)
    known = {name: (place, share) for name, place, share in marked}
    for name, (place, share) in known.items():
        title = f"{name}: {percent(share)} of the time at {rate(told, place)}"
        dot = np.array([place]), np.array([100.0 * share])
        kind = {"this plan": "value own", "today": "value"}.get(name, "here")
        if name == "as fresh as today" and place < known["today"][0]:
            yield Arrow(known["today"][0], place, 100.0 * share)
            middle = 0.5 * float(placed(place) + placed(known["today"][0]))
            less = fewer(place, known["today"][0])
            yield Label(x.low, 100.0 * share, less, middle, 20.0, "middle")
        yield Dots(*dot, titles=[title], kind=kind, radius=6.0 if name == "this plan" else 4.5)
        left = float(placed(place)) > 0.6 * wide
        if name == "this plan":
            beside = (-9.0, -9.0, "end") if left else (9.0, 18.0, "start")
            yield Label(place, 100.0 * share, name, *beside)
        elif name == "today":
            cut = told.today.within("cut")
            text, room = ("today, cut to the limits", 150.0) if cut else (name, 50.0)
            beside = (0.0, 36.0, "end") if float(placed(place)) > wide - room else (9.0, 4.0, "start")
            yield Label(place, 100.0 * share, text, *beside)


def _above(x: Array, y: Array, scale: Scale, kind: str) -> Line:
    """Return the part of a rising line that is on the axis."""
    first = int(np.searchsorted(y, scale.low))
    if first == 0 or first == len(y):
        return Line(x, y, kind)
    cut = float(np.interp(scale.low, y[first - 1 : first + 1], x[first - 1 : first + 1]))
    return Line(np.append(cut, x[first:]), np.append(scale.low, y[first:]), kind)
