"""Many small problems: `fo.solve_many` against `fo.solve` one by one, frontiers, and first solves.

    python -m benchmarks many [--save]

CPU seconds on one thread, in turns, the least of each. Of `fo.solve` one by one, a sample of problems is
timed. First solves are those of new processes, after the imports.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, turns
from benchmarks.objectives import some
from freshopt.modelling.objective import Refresh
from freshopt.problems import Age, HarmonicStaleness

CELLS = some("harmonic", "binary", "delay", "harmonic, periodic", "binary, periodic", "age")
SHAPES = ((10_000, 100), (1000, 1000), (100, 10_000))
SAMPLE, ROUNDS, POINTS = 20, 5, 50
FIRST = """
import time, numpy as np, freshopt as fo
rng = np.random.default_rng(1)
d, w = rng.lognormal(size={n}), rng.lognormal(size={n})
fo.solve(fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), fo.Sources([1.0]), 1.0))
problem = fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), fo.Sources(d, w), float(d.sum()) / 2)
begun = time.process_time()
fo.solve(problem)
print(time.process_time() - begun)
"""


def batch(name: str, m: int, n: int) -> dict[str, Any]:
    """Return the row of one cell and shape."""
    rng, objective = np.random.default_rng(1), CELLS[name]
    sources = fo.Sources(rng.lognormal(size=m * n), rng.lognormal(size=m * n))
    offsets = np.arange(0, m * n + 1, n)
    bandwidths = 0.5 * np.add.reduceat(sources.change_rate, offsets[:-1])
    found = fo.solve_many(objective, sources, offsets=offsets, bandwidths=bandwidths)
    chosen = [found.problems[k] for k in range(0, m, max(1, m // SAMPLE))]
    took = turns(
        {
            "many": lambda: fo.solve_many(objective, sources, offsets=offsets, bandwidths=bandwidths),
            "one by one": lambda: [fo.solve(problem) for problem in chosen],
        },
        ROUNDS,
        time.process_time,
    )
    each, alone = took["many"] / m, took["one by one"] / len(chosen)
    return {
        "cell": name,
        "problems": m,
        "sources": n,
        "many_us": 1e6 * each,
        "one_by_one_us": 1e6 * alone,
        "times": alone / each,
        "evaluations": float(found.iterations.mean()),
        "largest_gap": float(found.relative_gaps.max()),
    }


def single(n: int) -> dict[str, Any]:
    """Return the row of one problem, loops loaded, and of a frontier over it."""
    rng = np.random.default_rng(1)
    d, w = rng.lognormal(size=n), rng.lognormal(size=n)
    problem = fo.Problem(HarmonicStaleness(Refresh.POISSON), fo.Sources(d, w), float(d.sum()) / 2)
    limits = problem.bandwidth * np.geomspace(0.1, 2.0, POINTS)
    fo.warm(problem)
    took = turns(
        {
            "certified": lambda: [fo.solve(problem) for _ in range(10)],
            "uncertified": lambda: [fo.solve(problem, certify=False) for _ in range(10)],
            "declared": lambda: fo.Problem(HarmonicStaleness(Refresh.POISSON), fo.Sources(d, w), 1.0),
            "frontier": lambda: fo.frontier(problem, limits),
        },
        ROUNDS,
        time.process_time,
    )
    return {
        "sources": n,
        "certified_ms": 100.0 * took["certified"],
        "uncertified_ms": 100.0 * took["uncertified"],
        "declared_ms": 1000.0 * took["declared"],
        "frontier_of_50_ms": 1000.0 * took["frontier"],
    }


def first(n: int) -> dict[str, Any]:
    """Return the row of a first solve, of a new process."""
    command = [sys.executable, "-c", FIRST.format(n=n)]
    ran = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3)]
    return {"sources": n, "first_seconds": min(float(one.stdout) for one in ran)}


def batches(largest: int = 10**6) -> Iterator[Row]:
    """Yield the cells and shapes, of so many sources in all at most."""
    fo.warm()
    fo.warm(Age(Refresh.POISSON))
    for name in CELLS:
        for m, n in SHAPES:
            yield batch(name, min(m, max(1, largest // n)), n)


def singles(sizes: tuple[int, ...] = (100, 1000, 10_000, 30_000)) -> Iterator[Row]:
    """Yield one problem at a time."""
    yield from map(single, sizes)


def firsts(new: tuple[int, ...] = (1000, 70_000, 300_000)) -> Iterator[Row]:
    """Yield first solves."""
    yield from map(first, new)


def claims(record: Record) -> Claims:
    """Yield that all are proved, and that a batch is faster."""
    for row in record["batches"]:
        where = f"{row['cell']}, {row['problems']} of {row['sources']}"
        yield f"{where}: gap {row['largest_gap']:.0e}", row["largest_gap"] <= 1e-9
        if row["problems"] > 1000:
            yield f"{where}: {row['times']:.1f} times as fast", row["times"] > 1.0


BENCH = Measurement(
    {"batches": batches, "single": singles, "first": firsts},
    quick={"largest": 10_000, "sizes": (100,), "new": (1000,)},
    claims=claims,
    alone=True,
)
