"""Section of hosts: their load over time, and binding limits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.formatting import count, number, percent
from freshopt.numerics.arrays import Array
from freshopt.report.axis import Scale
from freshopt.report.chart import NARROW, WIDE, Frame, chart, figure
from freshopt.report.components import Column, Section, amount, name, paragraph, table
from freshopt.report.context import Context
from freshopt.report.markup import Child, Markup, element
from freshopt.report.plan_charts import Clock
from freshopt.report.source_charts import SHADES
from freshopt.report.value_words import FetchWords

# Hosts that are drawn and listed, those with the highest load.
LISTED = 12
# Characters of a host's name beside its row, and the height of a row in pixels.
LABEL, ROW = 22, 20.0


class HostLoad(NamedTuple):
    """Refreshes of the hosts with the highest load.

    Attributes
    ----------
    hosts : list of str
        The highest load first.
    many : ndarray, shape (len(hosts), columns)
        Refreshes between the clock's edges.
    sources : list of int
    of : int
        Hosts in all.
    """

    hosts: list[str]
    many: Array
    sources: list[int]
    of: int


def hosts(told: Context, load: HostLoad | None, clock: Clock) -> Section | None:
    """Return the section of hosts, or None where a plan has none."""
    body: list[Child] = []
    if load is not None:
        body += _load(told, load, clock)
    limits = _limits(told)
    if limits:
        body += [element("h3", "Limits") if body else None, *limits]
    return Section.of("hosts", "Hosts", body) if body else None


def _load(told: Context, load: HostLoad, clock: Clock) -> list[Child]:
    """Return picture and table of the load by host."""
    unit, horizon, words = told.unit, told.facts.positive("horizon"), told.words
    width = np.diff(clock.edges)
    planned = told.counts.whole("refreshes")
    columns = [Column("host"), Column("sources", "number"), Column(f"{words.rates} per {unit}", "number")]
    columns += [Column(f"of all {words.rates}", "number"), Column(f"busiest {clock.step}", "number")]
    cells: list[list[Child]] = []
    for host, sources, many in zip(load.hosts, load.sources, load.many, strict=True):
        mean = float(np.sum(many)) / horizon
        row: list[Child] = [name(host), f"{sources:,}", amount(mean)]
        row.append(percent(float(np.sum(many)) / planned, even=True) if planned else None)
        row.append(f"{number(float(np.max(many / width)))} per {unit}")
        cells.append(row)
    shown = len(load.hosts)
    caption = "Load by host, the highest first"
    caption += f": the first {shown:,} of {load.of:,}" if shown < load.of else ""
    pictures = [_heat(load, clock, frame, words) for frame in (WIDE, NARROW)]
    most = number(float(np.max(load.many)))
    below = f"A cell is {clock.step}; the darker, the more {words.rates}, up to {most}."
    return [
        figure(f"{words.rates.capitalize()} by host over time", pictures, below),
        table(caption, columns, cells),
    ]


def _heat(load: HostLoad, clock: Clock, size: Frame, words: FetchWords) -> Markup:
    """Return a row of cells for each host."""
    wide = size is WIDE
    rows = len(load.hosts)
    frame = Frame(size.width, 24.0 + ROW * rows + 40.0, 170.0 if wide else 96.0, top=6.0)
    x = Scale(0.0, float(clock.edges[-1]), *frame.across)
    merged = _merged(load.many, clock, (frame.across[1] - frame.across[0]) / 5.0)
    most = float(max(np.max(merged.many), 1.0))
    ends = x(merged.edges).tolist()
    letters = LABEL if wide else LABEL // 2
    marks: list[Child] = [clock.axis(frame, x)]
    for k, host in enumerate(load.hosts):
        top = frame.top + ROW * k
        short = host if len(host) <= letters else f"{host[: letters - 1]}…"
        place = {"x": frame.left - 6, "y": top + 14}
        marks.append(element("text", short, **place, text_anchor="end", class_="word"))
        for left, right, many, when in zip(
            ends, ends[1:], merged.many[k].tolist(), merged.spans, strict=False
        ):
            shade = 0.0 if many == 0.0 else np.ceil(SHADES * many / most) / SHADES
            marks.append(
                element(
                    "rect",
                    element("title", f"{host}, {when}: {count(int(many), words.rate)}"),
                    class_="cell",
                    fill_opacity=f"{0.05 + 0.9 * float(shade):.2f}",
                    x=f"{left:.1f}",
                    y=f"{top:.1f}",
                    width=f"{max(right - left - 0.4, 0.4):.1f}",
                    height=f"{ROW - 2.0:g}",
                )
            )
    label = f"{words.rates.capitalize()} over time of {count(rows, 'host')}; {load.hosts[0]} has most."
    return chart(frame, label, marks, kind="wide" if wide else "narrow")


class _Merged(NamedTuple):
    """Columns merged until a cell is wide enough to be pointed at."""

    edges: Array
    many: Array
    spans: list[str]


def _merged(many: Array, clock: Clock, most: float) -> _Merged:
    columns = many.shape[1]
    by = max(1, int(np.ceil(columns / most)))
    starts = np.arange(0, columns, by)
    edges = np.append(clock.edges[starts], clock.edges[-1])
    ends = [clock.span(a, b) for a, b in zip(edges.tolist(), edges[1:].tolist(), strict=False)]
    return _Merged(edges, np.add.reduceat(many, starts, axis=1), ends)


def _limits(told: Context) -> list[Child]:
    """Return the limits that bind, or nothing where there are no limits."""
    found = told.findings.within("hosts")
    if found is None:
        return []
    limited, binding = found.whole("limited"), found.whole("binding")
    binds = "binds" if binding == 1 else "bind"
    head = f"{f'{binding:,}' if binding else 'None'} of {count(limited, 'limit')} {binds}."
    if not binding:
        text = " No host would be refreshed more often without its limit." if told.proved else ""
        return [paragraph(f"{head}{text}")]
    unit = told.unit
    columns = [Column("host"), Column("sources", "number"), Column(f"limit per {unit}", "number")]
    columns += [Column("used, of the limit", "number"), Column("shadow price", "number")]
    rows = found.rows("hosts")
    cells: list[list[Child]] = [
        [
            name(row.name("host")),
            f"{row.whole('sources'):,}",
            amount(row.positive("limit")),
            amount(row.number("used"), percent(min(row.number("used") / row.positive("limit"), 1.0))),
            amount(row.number("price")),
        ]
        for row in rows
    ]
    text = (
        f"{head} The shadow price of a limit is the marginal value of one more {told.words.bandwidth} per "
        f"{unit} of that host, on top of the shadow price of bandwidth, "
        f"{number(told.facts.number('price'))}."
    )
    caption = "Binding limits, highest shadow price first"
    caption += f": the first {len(rows):,} of {binding:,}" if len(rows) < binding else ""
    return [paragraph(text), table(caption, columns, cells)]
