"""Look for inputs that are slow: the worst certified solve of each objective over data families and budgets.

    python benchmarks/speed/cliffs.py [--quick] [--cells harmonic,...] [--save [FOLDER]]

Every cell (objective and refresh discipline, with and without signals) is solved by ``fo.solve``, certificate
included, for every family of data and every budget, at 10⁴, 10⁵ and 10⁶ sources; the worst few of 10⁶ also at
10⁷. Times are CPU times of one thread, the least of two or three where a first one is long: what is measured
is the data's doing, not the compiler's. ADD is one pass ``np.add(w, d, out=r)`` over as many sources,
measured beside the solves and at least 2.3 ns a source.

Families: lognormal change rates and importances of σ from 0 (all sources alike) to 4, ties of a few values,
two points, importance in proportion to change rates (w = d), power laws, max_rate on half of the sources,
min_rate on half, hosts of power-law sizes whose limits bind for half.
Budgets are shares of the sum of the change rates.

A cell whose demand is not compiled is measured at 10⁴ and 10⁵ alone. --save writes
benchmarks/results/cliffs.json and the table of docs/speed.md, below FOLDER if one is given; --quick is for
trying it out.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from speed import ROOT, keep_to_one_core

import freshopt as fo
from freshopt.dual_search.problem_columns import numerics_columns
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    ExpectedPenalty,
    HarmonicStaleness,
    PollingKnapsack,
    PowerCost,
    SynchronizationCost,
)

RESULT, PAGE = Path("benchmarks/results/cliffs.json"), Path("docs/speed.md")
BEGIN, END = "<!-- cliffs -->\n", "<!-- end of cliffs -->\n"
PERIODIC = fo.Refresh.PERIODIC
# One addition of two columns from memory, per source, where memory is slow.
LEAST_ADD = 2.3e-9
BUDGETS = (1e-4, 1e-2, 0.3, 0.9, 0.999)
# ADD at 10⁷ sources: for any input, and where all sources are alike.
HOLD, HOLD_ALIKE = 80.0, 25.0
# A certificate holds up to this relative gap.
PROVED = 1e-12
# A solve that takes more ADD than this is repeated, up to so many times.
SUSPECT, REPEATS = 5.0, 3
Row = dict[str, Any]
Columns = dict[str, Any]


class Cell(NamedTuple):
    """An objective, and whether half of its sources are signalled."""

    objective: fo.Objective
    signals: bool = False


class Sizes(NamedTuple):
    """How many sources, and how many solves of the largest size."""

    small: tuple[int, ...] = (10**4, 10**5, 10**6)
    most_plain: int = 10**5
    largest: int = 10**7
    worst: int = 2
    budgets: tuple[float, ...] = BUDGETS


QUICK = Sizes((3000,), 3000, 6000, 1, (1e-2, 0.9))


def cells() -> dict[str, Cell]:
    """Return the objectives."""
    return {
        "harmonic": Cell(HarmonicStaleness()),
        "harmonic, signals": Cell(HarmonicStaleness(), signals=True),
        "harmonic, periodic": Cell(HarmonicStaleness(PERIODIC)),
        "binary": Cell(BinaryFreshness()),
        "binary, signals": Cell(BinaryFreshness(), signals=True),
        "binary, periodic": Cell(BinaryFreshness(PERIODIC)),
        "delay": Cell(AccumulatedDelay()),
        "delay, signals": Cell(AccumulatedDelay(), signals=True),
        "delay, periodic": Cell(AccumulatedDelay(PERIODIC)),
        "age": Cell(Age()),
        "age, signals": Cell(Age(), signals=True),
        "age, periodic": Cell(Age(PERIODIC)),
        "power 0.5": Cell(SynchronizationCost(PowerCost(1.0, 0.5))),
        "polls": Cell(PollingKnapsack("polls")),
        "materials": Cell(PollingKnapsack("materials")),
        "expected penalty, root": Cell(ExpectedPenalty(np.sqrt)),
    }


def lognormal(sigma: float) -> Callable[[np.random.Generator, int], Columns]:
    """Return a family of independent lognormal change rates and importances."""

    def draw(rng: np.random.Generator, n: int) -> Columns:
        return {"change_rate": rng.lognormal(0.0, sigma, n), "importance": rng.lognormal(0.0, sigma, n)}

    return draw


def _ties(rng: np.random.Generator, n: int) -> Columns:
    return {
        "change_rate": rng.choice([0.2, 1.0, 1.5, 7.0], n),
        "importance": rng.choice([1.0, 2.0, 3.0, 10.0, 11.0], n),
    }


def _two_points(rng: np.random.Generator, n: int) -> Columns:
    rare = rng.random(n) < 0.01
    return {"change_rate": np.where(rare, 1e3, 1.0), "importance": np.where(rare, 1e-3, 1.0)}


def _proportional(rng: np.random.Generator, n: int) -> Columns:
    d = rng.lognormal(0.0, 1.0, n)
    return {"change_rate": d, "importance": d}


def _power_law(rng: np.random.Generator, n: int) -> Columns:
    return {"change_rate": rng.pareto(1.1, n) + 1e-3, "importance": rng.pareto(1.1, n) + 1e-3}


FAMILIES: dict[str, Callable[[np.random.Generator, int], Columns]] = {
    "all alike": lognormal(0.0),
    "lognormal 1": lognormal(1.0),
    "lognormal 2": lognormal(2.0),
    "lognormal 4": lognormal(4.0),
    "ties": _ties,
    "two points": _two_points,
    "w = d": _proportional,
    "power law": _power_law,
    "max_rate on half": lognormal(1.0),
    "min_rate on half": lognormal(1.0),
    "hosts": lognormal(1.0),
}


def problem(cell: Cell, family: str, budget: float, n: int) -> fo.Problem:
    """Return the problem of a family; the bandwidth is a share of the sum of the change rates.

    Bounds are on every other source: at most the mean rate, or at least half of the lesser of that and the
    change rate. Hosts have sizes of a
    power law, 30 sources on average, and limits of 3 to 0.3 mean rates a source on half of them.
    """
    rng = np.random.default_rng(1)
    columns = FAMILIES[family](rng, n)
    d = columns["change_rate"]
    bandwidth = budget * float(np.sum(d))
    mean, half = bandwidth / n, np.arange(n) % 2 == 0
    limits = None
    if family == "max_rate on half":
        columns["max_rate"] = np.where(half, mean, np.inf)
    if family == "min_rate on half":
        columns["min_rate"] = np.where(half, 0.5 * np.minimum(mean, d), 0.0)
    if family == "hosts":
        share = np.cumsum(rng.pareto(1.5, max(2, n // 30)) + 0.1)
        host = np.searchsorted(share / share[-1], rng.random(n))
        counts = np.bincount(host)
        known = np.flatnonzero(counts)[::2]
        tight = counts[known] * mean * 10.0 ** rng.uniform(-0.5, 0.5, len(known))
        columns["host"] = host
        limits = dict(zip(known.tolist(), tight.tolist(), strict=True))
    if cell.signals:
        columns["signalled"] = rng.random(n) < 0.5
    return fo.Problem(cell.objective, fo.Sources(**columns), bandwidth, limits)


def is_compiled(cell: Cell) -> bool:
    """Return whether the cell's demand is compiled."""
    task = problem(cell, "lognormal 1", 0.3, 4)
    sources = task.sources
    return task.numerics is not None and (
        numerics_columns(task.numerics, sources.refresh_cost, task.lower, task.upper) is not None
    )


def addition(n: int) -> float:
    """Return the CPU time of one addition of two columns of n entries."""
    a, b, out = np.ones(n), np.ones(n), np.zeros(n)
    times = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(max(1, 10**6 // n)):
            np.add(a, b, out=out)
        times.append((time.process_time() - begun) / max(1, 10**6 // n))
    return max(LEAST_ADD * n, min(times))


def measure(name: str, cell: Cell, family: str, budget: float, n: int, add: float) -> Row:
    """Return the row of one input: the least CPU time of a certified solve."""
    task = problem(cell, family, budget, n)
    least = np.inf
    for _ in range(REPEATS):
        gc.collect()
        begun = time.process_time()
        solution = fo.solve(task, throw=False)
        spent = time.process_time() - begun
        settled = spent > 0.8 * least
        least = min(least, spent)
        if settled or (least <= SUSPECT * add and n >= 10**6):
            break
    proof = solution.certificate
    gap = None if proof is None else proof.relative_gap
    used = float(np.sum(task.sources.refresh_cost * solution.rates)) if solution.rates is not None else 0.0
    return {
        "cell": name,
        "family": family,
        "budget": budget,
        "n": n,
        "seconds": least,
        "add": least / add,
        "passes": solution.iterations,
        "gap": gap,
        "over": max(0.0, used / task.bandwidth - 1.0),
        "held": gap is not None and gap <= PROVED,
    }


def walk(name: str, cell: Cell, sizes: Sizes, adds: dict[int, float]) -> list[Row]:
    """Return the rows of a cell: all inputs of the small sizes, the slowest also at the largest."""
    rows: list[Row] = []
    plain = not is_compiled(cell)
    for n in sizes.small:
        if plain and n > sizes.most_plain:
            break
        measured = [
            measure(name, cell, family, budget, n, adds[n]) for family in FAMILIES for budget in sizes.budgets
        ]
        rows += measured
        show(worst(measured))
    if not plain:
        last = sorted((row for row in rows if row["n"] == sizes.small[-1]), key=lambda row: -row["add"])
        alike = [row for row in last if row["family"] == "all alike"][:1]
        others = [row for row in last if row["family"] != "all alike"][: sizes.worst]
        for row in (*others, *alike):
            n = sizes.largest
            rows.append(measure(name, cell, row["family"], row["budget"], n, adds[n]))
            show(rows[-1])
    return rows


def worst(rows: list[Row]) -> Row:
    """Return the slowest row, with the largest gap of all and whether every certificate held."""
    slowest = max(rows, key=lambda row: row["add"])
    gaps = [row["gap"] for row in rows if row["gap"] is not None]
    return {**slowest, "gap": max(gaps, default=None), "held": all(row["held"] for row in rows)}


def show(row: Row) -> None:
    """Print a row."""
    gap = "none" if row["gap"] is None else f"{row['gap']:.1e}"
    speed = f"{row['add']:>9.1f} ADD{row['seconds'] * 1e9 / row['n']:>9.1f} ns/source"
    where = f"{row['seconds'] * 1e6:>12,.0f} µs  {row['family']:18} {row['budget']:<6g}"
    held = "" if row["held"] else " NOT PROVED"
    print(f"{row['cell']:24}{row['n']:>11,}{speed}{where} gap {gap:8}{held}", flush=True)


def table(record: dict[str, Any]) -> str:
    """Return the page's table: the worst of each cell and size."""
    sizes = sorted({row["n"] for row in record["rows"]})
    lines = [
        "| cell | " + " | ".join(f"{n:,}" for n in sizes) + " | worst at | largest gap |",
        "|---|" + "---|" * (len(sizes) + 2),
    ]
    for name in dict.fromkeys(row["cell"] for row in record["rows"]):
        own = [row for row in record["rows"] if row["cell"] == name]
        told = []
        for n in sizes:
            there = [row for row in own if row["n"] == n]
            slowest = worst(there) if there else None
            small = slowest is not None and n <= 10**5
            told.append(
                ""
                if slowest is None
                else f"{slowest['seconds'] * 1e3:.2g} ms"
                if small
                else f"{slowest['add']:.3g} ADD"
            )
        last = worst([row for row in own if row["n"] == max(row["n"] for row in own)])
        gap = worst(own)["gap"]
        where = f"{last['family']}, budget {last['budget']:g}"
        lines.append(f"| {name} | {' | '.join(told)} | {where} | {gap:.0e} |")
    return "\n".join(lines) + "\n"


def filled(page: str, record: dict[str, Any]) -> str:
    """Return the page with what stands between its marks replaced by a measurement."""
    head, rest = page.split(BEGIN)
    return head + BEGIN + table(record) + END + rest.split(END, 1)[1]


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cells", default=";".join(cells()), help="names, with semicolons between")
    parser.add_argument("--save", nargs="?", type=Path, const=ROOT, metavar="FOLDER")
    options = parser.parse_args()
    names = options.cells.split(";")
    if unknown := set(names) - set(cells()):
        parser.error(f"no cell is called {', '.join(sorted(unknown))}; they are {'; '.join(cells())}")
    if options.save and set(names) != set(cells()):
        parser.error("only a complete measurement is saved: leave out --cells or --save")
    keep_to_one_core()
    sizes = QUICK if options.quick else Sizes()
    adds = {n: addition(n) for n in (*sizes.small, sizes.largest)}
    rows = [row for name in names for row in walk(name, cells()[name], sizes, adds)]
    record = {"quick": options.quick, "add": {str(n): add for n, add in adds.items()}, "rows": rows}
    largest = [row for row in rows if row["n"] == sizes.largest]
    for told, limit, some in (
        ("any input", HOLD, largest),
        ("all alike", HOLD_ALIKE, [row for row in largest if row["family"] == "all alike"]),
    ):
        slowest = worst(some) if some else None
        if slowest is not None:
            verdict = "met" if slowest["add"] <= limit else "NOT MET"
            print(
                f"{told}, {sizes.largest:,} sources: {slowest['add']:.1f} ADD, to hold {limit:g}: {verdict}"
            )
    if options.save:
        page = filled((ROOT / PAGE).read_text(encoding="utf-8"), record)
        for path, text in ((RESULT, json.dumps(record, indent=1) + "\n"), (PAGE, page)):
            (options.save / path).parent.mkdir(parents=True, exist_ok=True)
            (options.save / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
