"""Look for inputs that are slow: the worst certified solve of each cell over data, hosts and budgets.

    python -m benchmarks cliffs [--quick] [--cells harmonic ...] [--save [FOLDER]]

Every shipped cell (objective and refresh discipline; with signals, requests, windows, fetches that fail) is
solved by ``fo.solve``, certificate included, for every family of data, without hosts and with two kinds of
them, at every budget, with 10⁴ and 10⁵ sources; each cell's slowest of 10⁵ also at 10⁶, and its slowest of
these at 10⁷, as is what has all sources alike. Times are CPU times of one thread, of a cell's eight slowest
at each size the least of up to three: what is told is the data's doing, not the compiler's. ADD is one pass
``np.add(w, d, out=r)`` over as many sources, measured beside the solves and at least 2.3 ns a source.

All of it takes about half an hour, and nearly as long again the first time on a machine, for compilation.

Families: lognormal change rates and importances of σ from 0 (all sources alike) to 4, ties of a few values,
two points, importance in proportion to change rates (w = d), power laws, twelve decades of importances, a
third without importance, refresh costs of their own, max_rate on half of the sources, min_rate on half.
Hosts have power-law sizes; every other one has a limit, or all have. Budgets are shares of the sum of the
change rates; where all hosts have limits, of the sum of these, which most of the budgets are next to.
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
from freshopt.compiled import backend
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    ExpectedPenalty,
    HarmonicStaleness,
    LaterThan,
    LogFreshness,
    PiecewiseLinearCost,
    PowerCost,
    SynchronizationCost,
)

# Shares of the sum of the change rates, and of the limits where all hosts have one.
BUDGETS = (1e-4, 1e-2, 0.3, 0.9, 0.999)
LIMITED = (1e-4, 0.9, 1.0 - 1e-9, 1.0, 1.0 + 1e-9)
# Which hosts have limits.
NONE, HALF, ALL = "", "hosts", "limits everywhere"
HOSTS = (NONE, HALF, ALL)
Columns = dict[str, Any]


class Cell(NamedTuple):
    """An objective, and what of its sources it takes: `signalled` of half of them, or columns by name."""

    objective: fo.Objective
    columns: tuple[str, ...] = ()


REQUEST, PERIODIC, POISSON = fo.Refresh.ON_REQUEST, fo.Refresh.PERIODIC, fo.Refresh.POISSON
PIECES = PiecewiseLinearCost([0.0, 1.0, 3.0], [0.0, -1.0, -9.0])
CAPPED = PowerCost(1.0, 0.5, 2.0)
NAMED = {"harmonic": HarmonicStaleness, "binary": BinaryFreshness, "delay": AccumulatedDelay, "age": Age}
SIGNALS, WINDOW, FAILING = ("signalled",), ("request_rate", "stale_while_revalidate"), ("success",)


def cells() -> dict[str, Cell]:
    """Return all cells that are shipped, in the order in which tables have them."""
    found: dict[str, Cell] = {}
    for name, make in NAMED.items():
        plain = OBJECTIVES[name]
        found |= {name: Cell(plain), f"{name}, signals": Cell(plain, SIGNALS)}
        found[f"{name}, periodic"] = Cell(OBJECTIVES[f"{name}, periodic"])
        found[f"{name}, on request"] = Cell(make(REQUEST), WINDOW[:1])
        found[f"{name}, windows"] = Cell(make(REQUEST), WINDOW)
        if name != "delay":
            found[f"{name}, attempts"] = Cell(make(PERIODIC), FAILING)
    found["binary, periodic, signals"] = Cell(OBJECTIVES["binary, periodic"], SIGNALS)
    found["log, periodic"] = Cell(LogFreshness(PERIODIC))
    found["log, periodic, signals"] = Cell(LogFreshness(PERIODIC), SIGNALS)
    found["power 0.5"] = Cell(OBJECTIVES["power 0.5"])
    found["power 0.5, on request"] = Cell(SynchronizationCost(PowerCost(1.0, 0.5), REQUEST), WINDOW[:1])
    found["power 0.5, windows"] = Cell(SynchronizationCost(PowerCost(1.0, 0.5), REQUEST), WINDOW)
    found["power with a cap"] = Cell(SynchronizationCost(CAPPED))
    found["power with a cap, Poisson"] = Cell(SynchronizationCost(CAPPED, POISSON))
    found["power with a cap, on request"] = Cell(SynchronizationCost(CAPPED, REQUEST), WINDOW[:1])
    found["pieces"] = Cell(SynchronizationCost(PIECES))
    found["pieces, on request"] = Cell(SynchronizationCost(PIECES, REQUEST), WINDOW[:1])
    found["pieces, attempts"] = Cell(SynchronizationCost(PIECES), FAILING)
    found["later"] = Cell(LaterThan(1.0))
    found["later, Poisson"] = Cell(LaterThan(1.0, POISSON))
    found |= {name: Cell(OBJECTIVES[name]) for name in ("polls", "materials")}
    penalty = ExpectedPenalty(np.sqrt)
    return found | {
        "expected penalty, root": Cell(penalty),
        "expected penalty, root, signals": Cell(penalty, SIGNALS),
    }


CELLS = cells()


def lognormal(sigma: float, **more: Callable[[np.random.Generator, int], np.ndarray]) -> Family:
    """Return a family of independent lognormal change rates and importances, and more columns."""

    def draw(rng: np.random.Generator, n: int) -> Columns:
        own = {"change_rate": rng.lognormal(0.0, sigma, n), "importance": rng.lognormal(0.0, sigma, n)}
        return own | {name: column(rng, n) for name, column in more.items()}

    return draw


Family = Callable[[np.random.Generator, int], Columns]
FAMILIES: dict[str, Family] = {
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
    "twelve decades": lognormal(2.0, importance=lambda rng, n: 10.0 ** rng.uniform(-6.0, 6.0, n)),
    "no importance": lognormal(
        1.0, importance=lambda rng, n: np.where(rng.random(n) < 1 / 3, 0.0, rng.lognormal(0.0, 1.0, n))
    ),
    "costs": lognormal(1.0, refresh_cost=lambda rng, n: rng.lognormal(0.0, 1.0, n)),
    "max_rate on half": lognormal(1.0),
    "min_rate on half": lognormal(1.0),
}


class Draw(NamedTuple):
    """Data of a family, whatever cell, hosts and budget; hosts have a tightness of 3 to 0.3."""

    columns: Columns
    given: Columns
    host: np.ndarray
    tightness: np.ndarray


@functools.lru_cache(maxsize=1)
def draw(family: str, n: int) -> Draw:
    """Return the data of a family; the last one is kept."""
    rng = np.random.default_rng(1)
    columns = FAMILIES[family](rng, n)
    given = {
        "signalled": rng.random(n) < 0.5,
        "request_rate": columns["change_rate"] * rng.lognormal(2.0, 1.0, n),
        "stale_while_revalidate": rng.lognormal(-1.0, 1.0, n),
        "success": rng.uniform(0.5, 1.0, n),
    }
    share = np.cumsum(rng.pareto(1.5, max(2, n // 30)) + 0.1)
    counts = rng.multinomial(n, np.diff(share, prepend=0.0) / share[-1])
    host = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    return Draw(columns, given, host, 10.0 ** rng.uniform(-0.5, 0.5, len(counts)))


def problem(cell: Cell, which: Input) -> fo.Problem:
    """Return the problem of an input; the bandwidth is a share of the sum of the change rates or limits.

    Bounds are on every other source: at most the mean rate, or at least a fifth of the least of that, the
    change rate and the request rate. Limits are a host's tightness times the mean rate a source; where all
    hosts have one, the mean is a third of the change rates'.
    """
    drawn, n = draw(which.family, which.n), which.n
    columns, limits = dict(drawn.columns), None
    d, cost = columns["change_rate"], columns.get("refresh_cost", np.ones(n))
    mean = (0.3 if which.hosts == ALL else which.budget) * float(np.sum(d)) / n
    half = np.arange(n) % 2 == 0
    bandwidth = mean * n
    if which.hosts:
        counts = np.bincount(drawn.host, cost)
        known = np.flatnonzero(counts)[:: 2 if which.hosts == HALF else 1]
        tight = counts[known] * mean * drawn.tightness[known]
        columns["host"] = drawn.host
        limits = dict(zip(known.tolist(), tight.tolist(), strict=True))
        bandwidth = which.budget * float(np.sum(tight)) if which.hosts == ALL else bandwidth
    least = bandwidth / n
    if which.family == "max_rate on half":
        columns["max_rate"] = np.where(half, mean, np.inf)
    if which.family == "min_rate on half":
        most = np.minimum(d, drawn.given["request_rate"])
        columns["min_rate"] = np.where(half, 0.2 * np.minimum(least, most), 0.0)
    columns |= {name: drawn.given[name] for name in cell.columns}
    return fo.Problem(cell.objective, fo.Sources(**columns), bandwidth, limits)


# One addition of two columns from memory, per source, where memory is slow.
LEAST_ADD = 2.3e-9
# ADD at the largest sizes: of all, of inputs without hosts, and where all sources are alike.
HOLD, HOLD_PLAIN, HOLD_ALIKE = 200.0, 80.0, 25.0
ALIKE = "all alike"
# A certificate holds up to this relative gap.
PROVED = 1e-12
# Of a cell and size, as many of the slowest as this are repeated, up to so many times: of a million sources
# or more, if they take more ADD than this.
TOLD, REPEATS, SUSPECT = 8, 3, 5.0


class Sizes(NamedTuple):
    """How many sources: of all inputs, and of how many of a cell's slowest of the size before."""

    every: tuple[int, ...] = (10**4, 10**5)
    more: tuple[tuple[int, int], ...] = ((10**6, 4), (10**7, 1))
    budgets: tuple[float, ...] = BUDGETS
    limited: tuple[float, ...] = LIMITED


QUICK = Sizes((3000,), ((6000, 1),), (1e-2, 0.9), (1.0,))


class Input(NamedTuple):
    """One problem that is measured."""

    cell: str
    family: str
    budget: float
    n: int
    hosts: str = NONE


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


def measure(cell: Cell, which: Input, add: float, slow: float = 0.0) -> Row:
    """Return the row of one input: the CPU time of a certified solve, the least of some from `slow` on."""
    task = problem(cell, which)
    least = np.inf
    for _ in range(REPEATS):
        begun = time.process_time()
        with backend.loading():
            solution = fo.solve(task, throw=False)
        spent = time.process_time() - begun
        settled = spent > 0.8 * least
        least = min(least, spent)
        if settled or least < slow or (least <= SUSPECT * add and which.n >= 10**6):
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
            Input(name, family, budget, n, hosts)
            for family in FAMILIES
            for hosts in HOSTS
            for name in measured
            for budget in (sizes.limited if hosts == ALL else sizes.budgets)
        ]
        rows += run(measured, everything, adds[n])
    before = sizes.every[-1]
    for n, many in sizes.more:
        some = [
            Input(name, row["family"], row["budget"], n, row["hosts"])
            for name in measured
            for row in slowest([row for row in rows if (row["cell"], row["n"]) == (name, before)], many)
        ]
        rows += run(measured, some, adds[n])
        before = n
    return rows


def run(measured: dict[str, Cell], inputs: list[Input], add: float) -> list[Row]:
    """Measure inputs of one size, a family at a time, and print the slowest of each cell."""
    rows = []
    told: dict[str, list[float]] = {name: [] for name in measured}
    for which in sorted(inputs, key=lambda each: list(FAMILIES).index(each.family)):
        known = told[which.cell]
        rows.append(measure(measured[which.cell], which, add, known[0] if len(known) == TOLD else 0.0))
        told[which.cell] = sorted([*known, rows[-1]["seconds"]])[-TOLD:]
        if which.n >= 10**6:
            gc.collect()
    for name in measured:
        own = [row for row in rows if row["cell"] == name]
        if own:
            shown(worst(own))
    return rows


def slowest(rows: list[Row], many: int) -> list[Row]:
    """Return the slowest budget of a cell's slowest families and hosts, and of sources that are all alike."""
    last = {(row["family"], row["hosts"]): row for row in sorted(rows, key=lambda row: row["add"])}
    alike = [last.pop((ALIKE, NONE))] if (ALIKE, NONE) in last else []
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
        ("without hosts", HOLD_PLAIN, [row for row in largest if not row["hosts"]]),
        (f"{ALIKE}, without hosts", HOLD_ALIKE, [row for row in largest if is_alike(row)]),
    ):
        if some:
            last = worst(some)
            verdict = "met" if last["add"] <= limit else "NOT MET"
            told.append(
                f"{what}, {n:,} sources: {last['add']:.1f} ADD ({last['cell']}, {where(last)}), to hold "
                f"{limit:g}: {verdict}"
            )
    told += [
        f"NOT PROVED: {row['cell']}, {where(row)}, {row['n']:,} sources" for row in rows if not row["held"]
    ]
    return told


def is_alike(row: Row) -> bool:
    """Return whether all sources are alike, without hosts."""
    return bool(row["family"] == ALIKE and not row["hosts"])


def where(row: Row) -> str:
    """Return a row's data, hosts and budget."""
    hosts = f", {row['hosts']}" if row["hosts"] else ""
    return f"{row['family']}{hosts}, budget {row['budget']:.10g}"


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
        yield {"cell": name, "where": where(last), "gap": worst(own)["gap"], **told}


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
        told = f"{row['cell']}, {where(row)}"
        yield f"{told}: gap {row['gap']}", row["gap"] is None or row["gap"] < 1e-9
        yield f"{told}: over by {row['over']}", row["over"] < 1e-12


BENCH = Measurement(
    {"": measured},
    quick={
        "small": True,
        "cells": ("harmonic", "binary, periodic", "age, signals", "delay, windows", "polls"),
    },
    facts=("quick",),
    rows={"table": table},
    claims=claims,
    whole=True,
    alone=True,
)
