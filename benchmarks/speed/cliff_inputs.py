"""Inputs that may be slow: objectives, families of data, budgets.

Families: lognormal change rates and importances of σ from 0 (all sources alike) to 4, ties of a few values,
two points, importance in proportion to change rates (w = d), power laws, max_rate on half of the sources,
min_rate on half, hosts of power-law sizes whose limits bind for half.
Budgets are shares of the sum of the change rates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import freshopt as fo
from benchmarks.speed.objectives import OBJECTIVES
from freshopt.dual_search.problem_columns import numerics_columns
from freshopt.problems import (
    ExpectedPenalty,
)
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
