"""The page of `benchmarks/accuracy/replay.py`, docs/schedules.md, and its picture, from what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
METHODS = ("Periodic", "Carousel", "EarliestDeadline", "Greedy", "DiscreteCounts", "PoissonArrivals")
MINUTES = 1440
INTRODUCTION = """# Schedules, replayed

Costs of schedules under simulated or recorded changes, integrated exactly between the times of
refreshes and changes. The formulas that determined the rates are not used.
"""
DISCIPLINES = """
Sources with lognormal change rates and Pareto importances, one refresh per source and day on average. *As
written*: the expected cost of that schedule, all copies fresh at first, against four worlds or more. *In
the long run*: the objective's own cell against as many samples of refreshes and changes. z is the
difference in standard errors, which have 20 degrees of freedom at least. The last column is the expected
cost in the last two thirds of the time over the periodic optimum; for Poisson refreshes at their own
optimum it is their cell over the periodic one.
"""
LOADS = """
Binary freshness, periodic optimum, one day. Seconds of one core; memory of the whole process at its
largest, the problem and its solution included. Methods with slots refresh at a constant rate; equal
intervals have phases chosen for the day. A schedule that does not fit in the memory that is free, at 64
bytes a refresh (160 in a plan), raises an error before it is begun.

![Refreshes per minute over a day, divided by their mean, for six methods](load.png)
"""
HISTORY = """
Rates counted in the first half, (changes + ½)/(days + ½) unless said otherwise, and refreshes replayed
on the true changes of the second: the share of time, weighted by importance, for which copies were
fresh. One refresh per source and week on average, importances Pareto(1.5), sampled anew in each run; a
source counts until its own end. The error is that of one run, over sources; the spread is that of the
runs.
"""
SLOTS = """
`SlotAssignment`: preferred times are at equal intervals in a day of {slots} minutes; hosts need pauses of
two to eight minutes where the table says so, and with nights no source is crawled for an hour and every
tenth host not for six. Moved: the total displacement of crawls from their preferred minute. The bound
is that of the linear program: no assignment moves less. Where it rounds up to the displacement found,
it proves the optimum; elsewhere branch and bound did, to one part in a thousand. Seconds of one core.
"""
CLOSING = (
    "`python benchmarks/accuracy/replay.py --data FOLDER --save` measures this anew "
    "and writes this page; the slots "
    "are measured by `python benchmarks/speed/slots.py --save`."
)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the load per minute of each method."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = sorted((row for row in rows if "load" in row), key=lambda row: METHODS.index(row["method"]))
    figure = Figure(figsize=(10.0, 4.6), dpi=90, facecolor="white", layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    top = max(row["busiest_minute"] for row in rows)
    for axis, each in zip(axes.flat, rows, strict=True):
        load = np.array(each["load"].split(), dtype=np.float64)
        axis.plot(np.arange(MINUTES) / 60.0, load / load.mean(), linewidth=0.5, color="#1f5fa8")
        axis.set_title(f"{each['method']}: busiest minute {each['busiest_minute']:.3f}", fontsize=10)
        axis.axhline(1.0, color="black", linewidth=0.4)
        axis.set_xticks(range(0, 25, 6))
        axis.set_ylim(2.0 - top - 0.05, top + 0.05)
        axis.grid(alpha=0.25)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.supxlabel("hour of the day", fontsize=10)
    figure.supylabel("refreshes in a minute / mean", fontsize=10)
    FigureCanvasAgg(figure).print_png(path)


def page(record: dict[str, Any]) -> str:
    """Return docs/schedules.md as the measurement gives it."""
    parts = [INTRODUCTION.rstrip(), "## Predicted and replayed", DISCIPLINES.strip()]
    lines = [
        "| objective | schedule | predicted | replayed | z | above the optimum |",
        "|---|---|---|---|---|---|",
    ]
    for each in record["disciplines"]:
        excess = "" if each["excess"] is None else f"{100.0 * each['excess']:+.2f} %"
        lines.append(
            f"| {each['objective']} | {each['schedule']} | {each['predicted']:.5g} | "
            f"{each['replayed']:.5g} ± {each['error']:.2g} | {each['z']:+.1f} | {excess} |"
        )
    parts += ["\n".join(lines), "## The load of a day", LOADS.strip()]
    lines = [
        "| | sources | refreshes | seconds | memory, MB | busiest minute / mean |",
        "|---|---|---|---|---|---|",
    ]
    for each in (*record["loads"], *record["greedy"]):
        many = each.get("refreshes", each.get("events"))
        busiest = f"{each['busiest_minute']:.3f}" if "busiest_minute" in each else ""
        what = "replay, refreshes and changes" if each["method"] == "replay" else each["method"]
        lines.append(
            f"| {what} | {each['sources']:,} | {many:,} | {each['cpu_seconds']:.1f} | {each['peak_mb']} | "
            f"{busiest} |"
        )
    parts += ["\n".join(lines), "## Real histories", HISTORY.strip()]
    lines = [
        "| history | rates | schedule | runs | fresh | its error | spread |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each['history']} | {each['rates']} | {each['schedule']} | {each['runs']} | "
        f"{each['fresh']:.3f} | {each['error_of_one_run']:.3f} | {each['spread_over_runs']:.3f} |"
        for each in record["histories"]
    ]
    parts += ["\n".join(lines), *slot_table(), CLOSING]
    return "\n\n".join(parts) + "\n"


def slot_table() -> list[str]:
    """Return the part of the page on slots, if they have been measured."""
    saved = ROOT / "benchmarks" / "results" / "slots.json"
    if not saved.exists():
        return []
    days = json.loads(saved.read_text(encoding="utf-8"))["days"]
    lines = [
        "| crawls | hosts | a minute | pauses | nights | moved | bound | proof | seconds | memory, MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each['crawls']:,} | {each['hosts']} | {each['capacity']} | "
        f"{'yes' if each['pauses'] else 'no'} | {'yes' if each['nights'] else 'no'} | {each['moved']:,} | "
        f"{each['bound']:,.2f} | {each['proof']} | "
        f"{each['cpu_seconds']:.0f} | {each['peak_mb']} |"
        for each in days
    ]
    return ["## Slots", SLOTS.strip().format(slots=days[0]["slots"]), "\n".join(lines)]
