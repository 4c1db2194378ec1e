"""Look for inputs that are slow: the worst certified solve of each objective over data families and budgets.

    python -m benchmarks cliffs [--quick] [--cells harmonic ...] [--save [FOLDER]]

Every cell (objective and refresh discipline, with and without signals) is solved by ``fo.solve``, certificate
included, for every family of data and every budget, at 10⁴ and 10⁵ sources; each cell's
slowest of 10⁵ also at 10⁶, and its slowest of these at 10⁷, as is what has all sources alike. Times are CPU
times of one thread, the least of up to three: what is measured is the data's doing, not the compiler's. ADD
is one pass ``np.add(w, d, out=r)`` over as many sources, measured beside the solves and at least 2.3 ns a
source.

A cell whose demand is not compiled is measured at 10⁴ and 10⁵ alone. All of it takes minutes, and some more
the first time on a machine, where loops are compiled.

Families: lognormal change rates and importances of σ from 0 (all sources alike) to 4, ties of a few values,
two points, importance in proportion to change rates (w = d), power laws, max_rate on half of the sources,
min_rate on half, hosts of power-law sizes whose limits bind for half. Budgets are shares of the sum of the
change rates.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, shown
from benchmarks.objectives import OBJECTIVES
from freshopt.dual_search.problem_columns import numerics_columns
from freshopt.problems import ExpectedPenalty
from freshopt.separable.kernel import Kernel

BUDGETS = (1e-4, 1e-2, 0.3, 0.9, 0.999)
Columns = dict[str, Any]


class Cell(NamedTuple):
    """An objective, and whether half of its sources are signalled."""

    objective: fo.Objective
    signals: bool = False


# By the order in which tables have them.
CELLS: dict[str, Cell] = {
    **{
        f"{name}{how}": Cell(OBJECTIVES[name + how.removesuffix(", signals")], how == ", signals")
        for name in ("harmonic", "binary", "delay", "age")
        for how in ("", ", signals", ", periodic")
    },
    **{name: Cell(OBJECTIVES[name]) for name in ("power 0.5", "polls", "materials")},
    "expected penalty, root": Cell(ExpectedPenalty(np.sqrt)),
}


def lognormal(sigma: float) -> Callable[[np.random.Generator, int], Columns]:
    """Return a family of independent lognormal change rates and importances."""

    def draw(rng: np.random.Generator, n: int) -> Columns:
        return {"change_rate": rng.lognormal(0.0, sigma, n), "importance": rng.lognormal(0.0, sigma, n)}

    return draw


FAMILIES: dict[str, Callable[[np.random.Generator, int], Columns]] = {
    "all alike": lognormal(0.0),
    "lognormal 1": lognormal(1.0),
    "lognormal 2": lognormal(2.0),
    "lognormal 4": lognormal(4.0),
    "ties": lambda rng, n: {
        "change_rate": rng.choice([0.2, 1.0, 1.5, 7.0], n),
        "importance": rng.choice([1.0, 2.0, 3.0, 10.0, 11.0], n),
    },
    "two points": lambda rng, n: {
        "change_rate": np.where(rare := rng.random(n) < 0.01, 1e3, 1.0),
        "importance": np.where(rare, 1e-3, 1.0),
    },
    "w = d": lambda rng, n: dict.fromkeys(("change_rate", "importance"), rng.lognormal(0.0, 1.0, n)),
    "power law": lambda rng, n: {
        "change_rate": rng.pareto(1.1, n) + 1e-3,
        "importance": rng.pareto(1.1, n) + 1e-3,
    },
    "max_rate on half": lognormal(1.0),
    "min_rate on half": lognormal(1.0),
    "hosts": lognormal(1.0),
}


class Draw(NamedTuple):
    """Data of a family, whatever objective and budget: half are signalled, hosts have tightness 3 to 0.3."""

    columns: Columns
    signalled: np.ndarray
    host: np.ndarray | None
    tightness: np.ndarray | None


@functools.lru_cache(maxsize=1)
def draw(family: str, n: int) -> Draw:
    """Return the data of a family; the last one is kept."""
    rng = np.random.default_rng(1)
    columns = FAMILIES[family](rng, n)
    signalled = rng.random(n) < 0.5
    if family != "hosts":
        return Draw(columns, signalled, None, None)
    share = np.cumsum(rng.pareto(1.5, max(2, n // 30)) + 0.1)
    counts = rng.multinomial(n, np.diff(share, prepend=0.0) / share[-1])
    host = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    return Draw(columns, signalled, host, 10.0 ** rng.uniform(-0.5, 0.5, len(counts)))


def problem(cell: Cell, family: str, budget: float, n: int) -> fo.Problem:
    """Return the problem of a family; the bandwidth is a share of the sum of the change rates.

    Bounds are on every other source: at most the mean rate, or at least half of the lesser of that and the
    change rate. Every other host has a limit, of its tightness times the mean rate a source.
    """
    drawn = draw(family, n)
    columns, limits = dict(drawn.columns), None
    d = columns["change_rate"]
    bandwidth = budget * float(np.sum(d))
    mean, half = bandwidth / n, np.arange(n) % 2 == 0
    if family == "max_rate on half":
        columns["max_rate"] = np.where(half, mean, np.inf)
    if family == "min_rate on half":
        columns["min_rate"] = np.where(half, 0.5 * np.minimum(mean, d), 0.0)
    if drawn.host is not None and drawn.tightness is not None:
        counts = np.bincount(drawn.host)
        known = np.flatnonzero(counts)[::2]
        tight = counts[known] * mean * drawn.tightness[known]
        columns["host"] = drawn.host
        limits = dict(zip(known.tolist(), tight.tolist(), strict=True))
    if cell.signals:
        columns["signalled"] = drawn.signalled
    return fo.Problem(cell.objective, fo.Sources(**columns), bandwidth, limits)


def is_compiled(cell: Cell) -> bool:
    """Return whether the cell's demand is compiled."""
    task = problem(cell, "lognormal 1", 0.3, 4)
    sources, tabled = task.sources, isinstance(task.numerics, Kernel) and task.numerics.tables_of
    return bool(tabled) or (
        task.numerics is not None
        and (numerics_columns(task.numerics, sources.refresh_cost, task.lower, task.upper) is not None)
    )


# One addition of two columns from memory, per source, where memory is slow.
LEAST_ADD = 2.3e-9
# ADD at 10⁷ sources: for any input, and where all sources are alike.
HOLD, HOLD_ALIKE = 80.0, 25.0
ALIKE = "all alike"
# A certificate holds up to this relative gap.
PROVED = 1e-12
# A solve that takes more ADD than this is repeated, up to so many times.
SUSPECT, REPEATS = 5.0, 3


class Sizes(NamedTuple):
    """How many sources: of all inputs, and of how many of a cell's slowest of the size before."""

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
            shown(worst(own))
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


def table(record: Record) -> Iterator[Row]:
    """Yield the worst of each cell and size, and where it was."""
    columns = (*Sizes().every, *(n for n, _ in Sizes().more))
    for name in dict.fromkeys(row["cell"] for row in record["rows"]):
        own = [row for row in record["rows"] if row["cell"] == name]
        told = dict.fromkeys(map(str, columns), "")
        for n in {row["n"] for row in own}:
            last = worst([row for row in own if row["n"] == n])
            told[str(n)] = f"{last['seconds'] * 1e3:.2g} ms" if n <= 10**5 else f"{last['add']:.3g} ADD"
        last = worst([row for row in own if row["n"] == max(row["n"] for row in own)])
        where = f"{last['family']}, budget {last['budget']:g}"
        yield {"cell": name, "where": where, "gap": worst(own)["gap"], **told}


def measured(cells: tuple[str, ...] = tuple(CELLS), small: bool = False) -> Record:
    """Return the rows of some cells."""
    if unknown := set(cells) - set(CELLS):
        raise SystemExit(f"no cell is called {', '.join(sorted(unknown))}; they are {'; '.join(CELLS)}")
    sizes = QUICK if small else Sizes()
    adds = {n: addition(n) for n in (*sizes.every, *(n for n, _ in sizes.more))}
    begun = time.process_time()
    rows = walk({name: CELLS[name] for name in cells}, sizes, adds)
    print("\n".join(verdicts(rows)))
    print(f"CPU time {time.process_time() - begun:.0f} s")
    return {"add": {str(n): add for n, add in adds.items()}, "rows": rows}


def claims(record: Record) -> Claims:
    """Yield that what is proved is proved to 1e-9 at least, and that the bandwidth is kept."""
    for row in record["rows"]:
        where = f"{row['cell']}, {row['family']}, {row['budget']}"
        yield f"{where}: gap {row['gap']}", row["gap"] is None or row["gap"] < 1e-9
        yield f"{where}: over by {row['over']}", row["over"] < 1e-12


BENCH = Measurement(
    {"": measured},
    quick={"small": True},
    facts=("quick",),
    rows={"table": table},
    claims=claims,
    whole=True,
    alone=True,
)
