"""Many small problems: `fo.solve_many` against `fo.solve` one by one, frontiers, and first solves.

    python benchmarks/speed/many.py [--save]

CPU seconds on one thread, in turns, the least of each. Of `fo.solve` one by one, a sample of problems is
timed. First solves are those of new processes, after the imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["FRESHOPT_THREADS"] = "1"

import numpy as np

import freshopt as fo
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness

RESULTS = Path(__file__).parents[1] / "results" / "many.json"
PERIODIC = fo.Refresh.PERIODIC
CELLS: dict[str, fo.Objective] = {
    "harmonic": HarmonicStaleness(),
    "binary": BinaryFreshness(),
    "delay": AccumulatedDelay(),
    "harmonic, periodic": HarmonicStaleness(PERIODIC),
    "binary, periodic": BinaryFreshness(PERIODIC),
    "age": Age(),
}
SHAPES = ((10_000, 100), (1000, 1000), (100, 10_000))
SAMPLE, ROUNDS, POINTS = 20, 5, 50
FIRST = """
import time, numpy as np, freshopt as fo
rng = np.random.default_rng(1)
d, w = rng.lognormal(size={n}), rng.lognormal(size={n})
fo.solve(fo.Problem(fo.problems.HarmonicStaleness(), fo.Sources([1.0]), 1.0))
problem = fo.Problem(fo.problems.HarmonicStaleness(), fo.Sources(d, w), float(d.sum()) / 2)
begun = time.process_time()
fo.solve(problem)
print(time.process_time() - begun)
"""


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def turns(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the least seconds of each work, measured in turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: min(each) for name, each in times.items()}


def batch(name: str, m: int, n: int) -> dict[str, Any]:
    """Return the row of one cell and shape."""
    rng, objective = np.random.default_rng(1), CELLS[name]
    sources = fo.Sources(rng.lognormal(size=m * n), rng.lognormal(size=m * n))
    offsets = np.arange(0, m * n + 1, n)
    bandwidths = 0.5 * np.add.reduceat(sources.change_rate, offsets[:-1])
    found = fo.solve_many(objective, sources, offsets=offsets, bandwidths=bandwidths)
    some = [found.problems[k] for k in range(0, m, max(1, m // SAMPLE))]
    took = turns(
        {
            "many": lambda: fo.solve_many(objective, sources, offsets=offsets, bandwidths=bandwidths),
            "one by one": lambda: [fo.solve(problem) for problem in some],
        }
    )
    each, alone = took["many"] / m, took["one by one"] / len(some)
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
    problem = fo.Problem(HarmonicStaleness(), fo.Sources(d, w), float(d.sum()) / 2)
    limits = problem.bandwidth * np.geomspace(0.1, 2.0, POINTS)
    fo.warm(problem)
    took = turns(
        {
            "certified": lambda: [fo.solve(problem) for _ in range(10)],
            "uncertified": lambda: [fo.solve(problem, certify=False) for _ in range(10)],
            "declared": lambda: fo.Problem(HarmonicStaleness(), fo.Sources(d, w), 1.0),
            "frontier": lambda: fo.frontier(problem, limits),
        }
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


def main() -> None:
    """Measure, print, and with --save keep the rows."""
    fo.warm()
    fo.warm(Age())
    rows = {
        "batches": [batch(name, m, n) for name in CELLS for m, n in SHAPES],
        "single": [single(n) for n in (100, 1000, 10_000, 30_000)],
        "first": [first(n) for n in (1000, 70_000, 300_000)],
    }
    for part, each in rows.items():
        print(part)
        for row in each:
            shown = (f"{key} {v:.4g}" if isinstance(v, float) else f"{key} {v}" for key, v in row.items())
            print("  ", ", ".join(shown))
    if "--save" in sys.argv[1:]:
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
