"""Look for inputs that are slow: the worst certified solve of each objective over data families and budgets.

    python benchmarks/speed/cliffs.py [--quick] [--cells harmonic;...] [--save [FOLDER]]

Every cell (objective and refresh discipline, with and without signals) is solved by ``fo.solve``, certificate
included, for every family of data and every budget of `cliff_inputs`, at 10⁴ and 10⁵ sources; each cell's
slowest of 10⁵ also at 10⁶, and its slowest of these at 10⁷, as is what has all sources alike. Times are CPU
times of one thread, the least of up to three: what is measured is the data's doing, not the compiler's. ADD
is one pass ``np.add(w, d, out=r)`` over as many sources, measured beside the solves and at least 2.3 ns a
source.

A cell whose demand is not compiled is measured at 10⁴ and 10⁵ alone. --save writes
benchmarks/results/cliffs.json and the table of docs/speed.md, below FOLDER if one is given; --quick is for
trying it out. All of it takes minutes, and some more the first time on a machine, where loops are compiled.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cliff_inputs import BUDGETS, FAMILIES, Cell, cells, is_compiled, problem
from speed import ROOT, keep_to_one_core

import freshopt as fo

RESULT, PAGE = Path("benchmarks/results/cliffs.json"), Path("docs/speed.md")
BEGIN, END = "<!-- cliffs -->\n", "<!-- end of cliffs -->\n"
# One addition of two columns from memory, per source, where memory is slow.
LEAST_ADD = 2.3e-9
# ADD at 10⁷ sources: for any input, and where all sources are alike.
HOLD, HOLD_ALIKE = 80.0, 25.0
ALIKE = "all alike"
# A certificate holds up to this relative gap.
PROVED = 1e-12
# A solve that takes more ADD than this is repeated, up to so many times.
SUSPECT, REPEATS = 5.0, 3
Row = dict[str, Any]


class Sizes(NamedTuple):
    """How many sources.

    Attributes
    ----------
    every : tuple of int
        Of all inputs.
    more : tuple of (int, int)
        Larger sizes, each with how many of a cell's slowest inputs of the size before are measured.
    budgets : tuple of float
    """

    every: tuple[int, ...] = (10**4, 10**5)
    more: tuple[tuple[int, int], ...] = ((10**6, 4), (10**7, 1))
    budgets: tuple[float, ...] = BUDGETS


QUICK = Sizes((3000,), ((6000, 1),), (1e-2, 0.9))


class Input(NamedTuple):
    """One problem that is measured."""

    cell: str
    family: str
    budget: float
    n: int


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


def measure(cell: Cell, which: Input, add: float) -> Row:
    """Return the row of one input: the least CPU time of a certified solve."""
    task = problem(cell, which.family, which.budget, which.n)
    least = np.inf
    for _ in range(REPEATS):
        begun = time.process_time()
        solution = fo.solve(task, throw=False)
        spent = time.process_time() - begun
        settled = spent > 0.8 * least
        least = min(least, spent)
        if settled or (least <= SUSPECT * add and which.n >= 10**6):
            break
    proof = solution.certificate
    gap = None if proof is None else proof.relative_gap
    used = float(np.sum(task.sources.refresh_cost * solution.rates)) if solution.rates is not None else 0.0
    return {
        **which._asdict(),
        "seconds": least,
        "add": least / add,
        "passes": solution.iterations,
        "gap": gap,
        "over": max(0.0, used / task.bandwidth - 1.0),
        "held": gap is not None and gap <= PROVED,
    }


def walk(measured: dict[str, Cell], sizes: Sizes, adds: dict[int, float]) -> list[Row]:
    """Return the rows of some cells: all inputs of the small sizes, the slowest also at larger ones."""
    rows: list[Row] = []
    for n in sizes.every:
        everything = [
            Input(name, family, budget, n)
            for family in FAMILIES
            for name in measured
            for budget in sizes.budgets
        ]
        rows += run(measured, everything, adds[n])
    before = sizes.every[-1]
    for n, many in sizes.more:
        some = [
            Input(name, row["family"], row["budget"], n)
            for name, cell in measured.items()
            if is_compiled(cell)
            for row in slowest([row for row in rows if (row["cell"], row["n"]) == (name, before)], many)
        ]
        rows += run(measured, some, adds[n])
        before = n
    return rows


def run(measured: dict[str, Cell], inputs: list[Input], add: float) -> list[Row]:
    """Measure inputs of one size, a family at a time, and print the slowest of each cell."""
    rows = []
    for which in sorted(inputs, key=lambda each: list(FAMILIES).index(each.family)):
        rows.append(measure(measured[which.cell], which, add))
        if which.n >= 10**6:
            gc.collect()
    for name in measured:
        own = [row for row in rows if row["cell"] == name]
        if own:
            show(worst(own))
    return rows


def slowest(rows: list[Row], many: int) -> list[Row]:
    """Return the slowest budget of a cell's slowest families, and of sources that are all alike."""
    last = {row["family"]: row for row in sorted(rows, key=lambda row: row["add"])}
    alike = [last.pop(ALIKE)] if ALIKE in last else []
    return sorted(last.values(), key=lambda row: -row["add"])[:many] + alike


def worst(rows: list[Row]) -> Row:
    """Return the slowest row, with the largest gap of all and whether every certificate held."""
    last = max(rows, key=lambda row: row["add"])
    gaps = [row["gap"] for row in rows if row["gap"] is not None]
    return {**last, "gap": max(gaps, default=None), "held": all(row["held"] for row in rows)}


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
            last = worst(there) if there else None
            if last is None:
                told.append("")
            elif n <= 10**5:
                told.append(f"{last['seconds'] * 1e3:.2g} ms")
            else:
                told.append(f"{last['add']:.3g} ADD")
        last = worst([row for row in own if row["n"] == max(row["n"] for row in own)])
        gap = worst(own)["gap"]
        where = f"{last['family']}, budget {last['budget']:g}"
        lines.append(f"| {name} | {' | '.join(told)} | {where} | {gap:.0e} |")
    return "\n".join(lines) + "\n"


def filled(page: str, record: dict[str, Any]) -> str:
    """Return the page with what stands between its marks replaced by a measurement."""
    head, rest = page.split(BEGIN)
    return head + BEGIN + table(record) + END + rest.split(END, 1)[1]


def verdicts(rows: list[Row]) -> list[str]:
    """Return what is to hold at the largest size, and whether it does; then what is not proved."""
    n = max(row["n"] for row in rows)
    largest = [row for row in rows if row["n"] == n]
    told = []
    for what, limit, some in (
        ("any input", HOLD, largest),
        (ALIKE, HOLD_ALIKE, [row for row in largest if row["family"] == ALIKE]),
    ):
        if some:
            last = worst(some)["add"]
            verdict = "met" if last <= limit else "NOT MET"
            told.append(f"{what}, {n:,} sources: {last:.1f} ADD, to hold {limit:g}: {verdict}")
    told += [
        f"NOT PROVED: {row['cell']}, {row['family']}, budget {row['budget']:g}, {row['n']:,} sources"
        for row in rows
        if not row["held"]
    ]
    return told


def _lines(record: dict[str, Any]) -> str:
    """Return a record as JSON, a row a line: there are some two thousand."""
    head = json.dumps({**record, "rows": []})
    rows = ",\n".join(map(json.dumps, record["rows"]))
    return head.removesuffix("[]}") + f"[\n{rows}\n]}}\n"


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
    adds = {n: addition(n) for n in (*sizes.every, *(n for n, _ in sizes.more))}
    begun = time.process_time()
    rows = walk({name: cells()[name] for name in names}, sizes, adds)
    print("\n".join(verdicts(rows)))
    print(f"CPU time {time.process_time() - begun:.0f} s")
    record = {"quick": options.quick, "add": {str(n): add for n, add in adds.items()}, "rows": rows}
    if options.save:
        page = filled((ROOT / PAGE).read_text(encoding="utf-8"), record)
        for path, text in ((RESULT, _lines(record)), (PAGE, page)):
            (options.save / path).parent.mkdir(parents=True, exist_ok=True)
            (options.save / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
