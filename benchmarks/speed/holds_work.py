"""The work of a process of `holds`, which knows the checkout that it imports and nothing else of this one.

A line of standard input names work, cell and number of sources. The first such line also makes the problem
and does the work once before; each is answered by the CPU seconds of the work.
"""

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import freshopt as fo
from freshopt.cvx import Expression, cp

P, S = fo.problems, fo.Refresh
Work = Callable[[], object]


@dataclass(frozen=True)
class SquaredStaleness(fo.Objective):
    """w·log²(1 + Δ/ρ), smooth."""

    def per_source(self, rate: cp.Variable, sources: fo.Sources) -> Expression:
        """Return the cost by source."""
        staleness = cp.logistic(np.log(sources.change_rate) - cp.log(rate))
        return cp.multiply(sources.importance, cp.square(staleness))


@dataclass(frozen=True)
class MissedBeyond(fo.Objective):
    """w·Δ/ρ + max(Δ/ρ − 4, 0), with a kink."""

    def per_source(self, rate: cp.Variable, sources: fo.Sources) -> Expression:
        """Return the cost by source."""
        missed = cp.multiply(sources.change_rate, cp.inv_pos(rate))
        return cp.multiply(sources.importance, missed) + cp.maximum(missed - 4.0, 0.0)


NAMED = {
    "harmonic": P.HarmonicStaleness,
    "binary": P.BinaryFreshness,
    "delay": P.AccumulatedDelay,
    "age": P.Age,
}
CELLS: dict[str, fo.Objective] = {
    **{f"{name}{how}": kind(S.POISSON) for name, kind in NAMED.items() for how in ("", ", signals")},
    **{f"{name}, periodic": kind(S.PERIODIC) for name, kind in NAMED.items()},
    "power 0.5": P.SynchronizationCost(P.PowerCost(1.0, 0.5)),
    "polls": P.PollingKnapsack("polls"),
    "materials": P.PollingKnapsack("materials"),
    "own, smooth": SquaredStaleness(),
    "own, with a kink": MissedBeyond(),
}


def drawn(n: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Return change rates and importances, and what draws more."""
    rng = np.random.default_rng(n)
    return rng.lognormal(size=n), rng.lognormal(size=n), rng


def solved(cell: str, n: int) -> Work:
    """Solve one problem and certify it."""
    d, w, _ = drawn(n)
    signalled = (np.arange(n) % 2 == 0) & ("signals" in cell)
    problem = fo.Problem(CELLS[cell], fo.Sources(d, w, signalled=signalled), 0.5 * float(d.sum()))
    return lambda: fo.solve(problem)


def hosts(cell: str, n: int) -> Work:
    """Solve with limits of as many hosts as a tenth of the sources."""
    d, w, rng = drawn(n)
    m = max(1, n // 10)
    host = rng.permutation(np.arange(n) % m)
    even = np.maximum(0.5 * np.bincount(host, d, m), 1e-9)
    limits = dict(enumerate((even * rng.uniform(0.3, 1.5, m)).tolist()))
    problem = fo.Problem(CELLS[cell], fo.Sources(d, w, host=host), 0.5 * float(d.sum()), limits)
    return lambda: fo.solve(problem)


def batch(cell: str, n: int) -> Work:
    """Solve problems of a thousand sources together."""
    d, w, _ = drawn(n)
    sources, offsets = fo.Sources(d, w), np.arange(0, n + 1, min(n, 1000))
    limits = 0.5 * np.add.reduceat(d, offsets[:-1])
    return lambda: fo.solve_many(CELLS[cell], sources, offsets=offsets, bandwidths=limits)


def frontier(cell: str, n: int) -> Work:
    """Solve for fifty bandwidths."""
    d, w, _ = drawn(n)
    problem = fo.Problem(CELLS[cell], fo.Sources(d, w), float(d.sum()))
    return lambda: fo.frontier(problem, np.geomspace(0.01, 2.0, 50) * float(d.sum()))


def rows(cell: str, n: int) -> Work:
    """Solve with five limits declared beside the bandwidth."""
    d, w, rng = drawn(n)
    kind, total = rng.integers(0, 5, n), float(d.sum())
    limits = [fo.Budget(dict.fromkeys(range(5), 0.12 * total), by=kind, name="kinds"), fo.Budget(0.5 * total)]
    problem = fo.Problem(CELLS[cell], fo.Sources(d, w), constraints=limits)
    return lambda: fo.solve(problem)


def declare(cell: str, n: int) -> Work:
    """Declare twenty problems and solve none."""
    d, w, _ = drawn(n)
    total = 0.5 * float(d.sum())
    return lambda: [fo.Problem(CELLS[cell], fo.Sources(d, w), total) for _ in range(20)]


WORK: dict[str, Callable[[str, int], Work]] = {
    "solve": solved,
    "hosts": hosts,
    "batch": batch,
    "frontier": frontier,
    "rows": rows,
    "declare": declare,
}


def main() -> None:
    """Work line by line; keep one problem at a time."""
    named, work = "", None
    for line in sys.stdin:
        if line != named:
            work = None
            gc.collect()
            kind, cell, n = line.rstrip("\n").split("|")
            named, work = line, WORK[kind](cell, int(n))
            work()
        assert work is not None
        begun = time.process_time()
        work()
        print(time.process_time() - begun, flush=True)


if __name__ == "__main__":
    main()
