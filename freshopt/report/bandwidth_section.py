"""Section of value, freshness and shadow price along the bandwidth: the frontier.

All points were solved and certified when the plan was made (`freshopt.planning.findings`). The slider moves
over them and shows one at a time; between them nothing is shown, because nothing is known there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from freshopt.formatting import number, percent
from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale
from freshopt.report.chart import Frame, around, axes, chart, figure, line, smooth, strips
from freshopt.report.components import Column, Section, amount, paragraph, table
from freshopt.report.context import Context
from freshopt.report.markup import Child, Markup, data_block, element
from freshopt.report.source_sections import gains
from freshopt.report.summary_facts import Facts

# Relative differences below this may be those of two solves of one problem.
SAME = 1e-6
# Multiples of the plan's bandwidth that have a row of the table.
ROWS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
FRAME = Frame(width=340.0, height=250.0, left=56.0)


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
    def of(cls, rows: Sequence[Sequence[float | None]], bandwidth: float, sense: str) -> Points:
        """Sort rows of bandwidth, value, price and share of time fresh.

        `better` is +1 where a higher value is better, else −1; without all of the shares there are none.
        """
        ascending = sorted(rows, key=lambda row: row[0] or 0.0)
        columns = np.array(ascending, dtype=np.float64).reshape(-1, 4).T
        fresh = None if np.any(np.isnan(columns[3])) else columns[3]
        here = int(np.argmin(np.abs(columns[0] - bandwidth)))
        return cls(columns[0], columns[1], columns[2], fresh, here, 1 if sense == "maximise" else -1)

    def words(self, told: Context) -> list[list[str]]:
        """Return each point in words.

        Bandwidth, what it is of the plan's, share of time fresh, value, its difference, and price.
        """
        own = float(self.value[self.here])
        fresh = (
            [""] * len(self.value) if self.fresh is None else [percent(each) for each in self.fresh.tolist()]
        )
        rows = zip(self.bandwidth.tolist(), fresh, self.value.tolist(), self.price.tolist(), strict=True)
        return [
            [
                f"{number(at)} per {told.unit}",
                _times(at / float(self.bandwidth[self.here])),
                share,
                number(value),
                _difference(value, own) or "the same",
                number(price),
            ]
            for at, share, value, price in rows
        ]


def bandwidth(told: Context, today: float | None = None) -> Section | None:
    """Return the section of value and price over bandwidth.

    Parameters
    ----------
    told : Context
    today : float, optional
        Refreshes per time unit of the log's own crawls, where the bandwidth counts refreshes.
    """
    facts, unit = told.facts, told.unit
    rows = [
        (row.positive("bandwidth"), row.maybe("value"), row.maybe("price"), row.maybe("fresh"))
        for row in told.findings.rows("frontier")
    ]
    known = [row for row in rows if row[1] is not None and row[2] is not None]
    if len(known) < 2:
        return None
    points = Points.of(known, facts.positive("bandwidth"), facts.text("sense"))
    words: list[Child] = _price(told, points)
    if np.ptp(points.value) <= SAME * abs(told.value) and not np.any(points.price > 0.0):
        least = f"{number(float(points.bandwidth[0]))} per {unit}"
        words.append(f" The {told.goal.noun} is the same at every bandwidth from {least} on that was solved.")
        return Section.of("bandwidth", "Value of bandwidth", paragraph(*words))
    charts = _charts(told, points, today)
    body: list[Child] = [
        paragraph(*words, _crawled(today, unit)),
        _slider(told, points),
        element("div", charts, class_="figures" if len(charts) == 2 else "figures three"),
        _table(told, points),
    ]
    small = [at for at, value, *_ in rows if value is None]
    if small:
        what = "bounds" if told.facts.within("constraints") is None else "bounds and constraints"
        body.append(paragraph(f"{number(max(small))} per {unit} or less does not suffice for the {what}."))
    more = told.findings.within("more_bandwidth")
    if more is not None and more.rows("sources"):
        body += _gain(told, more)
    return Section.of("bandwidth", "Value of bandwidth", body)


def _slider(told: Context, points: Points) -> list[Markup]:
    """Return the slider over the solved bandwidths, hidden without script."""
    words = points.words(told)
    heads = ["bandwidth", "of this plan's", f"{told.shares} up to date", told.measure]
    heads += ["difference", f"shadow price {told.price_unit}"]
    shown = [(head, words[points.here][k], k) for k, head in enumerate(heads) if any(row[k] for row in words)]
    label = "Bandwidth, among those that were solved"
    most = len(words) - 1
    pieces = [
        element("label", label, for_="bandwidth-at"),
        element("input", type="range", id="bandwidth-at", min=0, max=most, step=1, value=points.here),
        element("button", "this plan", type="button", id="bandwidth-reset"),
        element(
            "dl",
            [
                element("div", element("dt", head), element("dd", text, data_column=k))
                for head, text, k in shown
            ],
        ),
    ]
    return [
        element("div", pieces, class_="slider", id="bandwidth-slider", hidden=True),
        data_block("bandwidth-data", {"here": points.here, "rows": words, "of": told.shares}),
    ]


def _charts(told: Context, points: Points, today: float | None) -> list[Markup]:
    unit, noun = told.unit, told.measure
    own = points.words(told)
    heads = {0: "", 1: "", 2: "up to date", 3: noun, 5: f"shadow price {told.price_unit}"}
    texts = [", ".join(f"{head} {row[k]}".strip() for k, head in heads.items() if row[k]) for row in own]
    k = points.here
    better, moves = ("Higher", "rises") if points.better > 0 else ("Lower", "falls")
    caption = f"{better} is better. The ring is this plan; the tangent {moves} by the shadow price."
    x = Scale(0.0, float(points.bandwidth[-1]), *FRAME.across)

    def made(title: str, what: str, values: Array, y: Scale, curve: list[Markup], below: str) -> Markup:
        ends = (0, -1, k)
        first, last, here = (f"{number(float(values[j]))}" for j in ends)
        span = [f"{number(float(points.bandwidth[j]))} per {unit}" for j in ends]
        label = (
            f"{what.capitalize()} along the bandwidth, from {first} at {span[0]} to {last} at {span[1]}; "
            f"this plan has {here} at {span[2]}."
        )
        marks: list[Child] = [
            axes(FRAME, x, y, f"bandwidth, {told.words.uses} per {unit}", what),
            _today(today, x),
            curve,
            [
                element("circle", class_="point", cx=a, cy=b, r=2.2, data_point=j)
                for j, (a, b) in enumerate(zip(x(points.bandwidth).tolist(), y(values).tolist(), strict=True))
            ],
            element("circle", class_="here", cx=float(x(points.bandwidth[k])), cy=float(y(values[k])), r=5),
            strips(FRAME, around(x(points.bandwidth), FRAME), texts),
        ]
        return figure(title, chart(FRAME, label, marks), below)

    pictures = []
    if points.fresh is not None:
        shares = 100.0 * points.fresh
        y = _up(shares)
        trace = [line(x(points.bandwidth), y(shares), "curve")]
        which = "" if noun == "freshness" else f" The rates are those of the least {told.goal.noun}."
        what = "time in which copies are" if told.shares == "time" else "requests that find a copy"
        words = f"Expected share of {what} up to date.{which if points.better < 0 else ''}"
        title = f"{told.shares.capitalize()} up to date by bandwidth"
        pictures.append(made(title, f"percent of {told.shares} up to date", shares, y, trace, words))
    y = _up(points.value)
    slope = points.better * points.price * (y.end - y.begin) / (y.high - y.low)
    slope = slope / ((x.end - x.begin) / (x.high - x.low))
    at, price = points.bandwidth[k], points.price[k]
    ends = _tangent(points, y, 0.3 * (x.high - x.low))
    curve = [
        smooth(x(points.bandwidth), y(points.value), slope, "curve"),
        line(x(ends), y(points.value[k] + points.better * price * (ends - at)), "guide"),
    ]
    pictures.append(made("Value by bandwidth", noun, points.value, y, curve, caption))
    pictures.append(_price_chart(points, told, x, made))
    return pictures


def _price_chart(points: Points, told: Context, x: Scale, made: Callable[..., Markup]) -> Markup:
    """Return the chart of shadow price over bandwidth."""
    y = Scale(0.0, 1.08 * float(np.max(points.price)) or 1.0, *FRAME.up)
    even = np.linspace(points.bandwidth[0], points.bandwidth[-1], 80)
    along = np.unique(np.concatenate([points.bandwidth, even]))
    falls = points.price[0] > points.price[-1] and bool(np.all(np.diff(points.price) <= 0.0))
    caption = f"Marginal value of one more {told.words.bandwidth} per {told.unit}."
    caption += " It falls: marginal values diminish." if falls else ""
    curve = [line(x(along), y(_between(points, along)), "curve")]
    return made(
        "Shadow price by bandwidth", f"shadow price {told.price_unit}", points.price, y, curve, caption
    )


def _today(today: float | None, x: Scale) -> Child:
    """Return the line at the bandwidth of the log's own crawls."""
    if today is None or not x.low < today <= x.high:
        return None
    at = float(x(today))
    top = FRAME.top
    side, shift = ("end", -4.0) if at > 0.7 * FRAME.width else ("start", 4.0)
    return [
        line(np.array([at, at]), np.array(FRAME.up), "today"),
        element("text", "today", x=at + shift, y=top + 10, text_anchor=side, class_="word"),
    ]


def _crawled(today: float | None, unit: str) -> str:
    """Return the bandwidth of the log's own crawls, in a sentence."""
    return "" if today is None else f" The log's own crawls were {number(today)} per {unit}."


def _table(told: Context, points: Points) -> Markup:
    """Return the rows at round multiples of the plan's bandwidth."""
    own = told.facts.positive("bandwidth")
    columns = [Column("bandwidth"), Column(f"per {told.unit}", "number"), Column(told.measure, "number")]
    columns += [
        Column("difference from this plan's", "number"),
        Column(f"shadow price {told.price_unit}", "number"),
    ]
    columns += [] if points.fresh is None else [Column(f"{told.shares} up to date", "number")]
    cells: list[list[Child]] = []
    here = None
    for k, at in enumerate(points.bandwidth.tolist()):
        if not any(abs(at / own - each) < 1e-9 for each in ROWS):
            continue
        value = float(points.value[k])
        here = len(cells) if k == points.here else here
        row: list[Child] = [
            _times(at / own),
            amount(at),
            amount(value),
            _difference(value, told.value) or None,
        ]
        row.append(amount(float(points.price[k])))
        if points.fresh is not None:
            share = float(points.fresh[k])
            row.append(amount(share, percent(share, even=True)))
        cells.append(row)
    return table(f"More and less bandwidth, each solved anew{_all_proved(told)}", columns, cells, own=here)


def _price(told: Context, points: Points) -> list[Child]:
    """Return the shadow price with what certificate and values prove."""
    price, unit, noun = told.facts.number("price"), told.unit, told.words.bandwidth
    if price > 0.0:
        words: list[Child] = [
            "The shadow price of the bandwidth is ",
            amount(price),
            f" {told.amounts} {told.price_unit}",
        ]
        marginal = f": the marginal value, an upper bound on what one more {noun} per {unit} gains"
        return [*words, f"{marginal if told.proved else ''}."]
    more = points.better * (points.value[points.here :] - points.value[points.here])
    if told.proved and np.all(more <= SAME * abs(told.value)):
        return ["The bandwidth does not bind: its shadow price is 0, and more of it brings nothing."]
    return ["The shadow price of the bandwidth is 0."]


def _all_proved(told: Context) -> str:
    """Return the words for a frontier whose points are all certified."""
    solved = [row for row in told.findings.rows("frontier") if row.maybe("value") is not None]
    return " and proved optimal" if all(row.values.get("status") == "optimal" for row in solved) else ""


def _gain(told: Context, more: Facts) -> list[Child]:
    """Return what more bandwidth changes, and for which sources."""
    value, raised = more.number("value"), more.number("bandwidth") / told.facts.positive("bandwidth") - 1.0
    direction = "more" if value > told.value else "less"
    return [
        element(
            "h3", f"{percent(raised)} more bandwidth: {number(more.number('bandwidth'))} per {told.unit}"
        ),
        paragraph(
            f"{told.measure.capitalize()} ",
            amount(value),
            f" in place of {number(told.value)}, {number(abs(value - told.value))} {direction}.",
        ),
        gains(told, more.rows("sources")),
    ]


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
    return Scale(bottom, high + room, *FRAME.up)


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
