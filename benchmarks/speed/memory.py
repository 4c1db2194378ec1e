"""Peak memory of a hundred million sources in one process: inputs, output, and how much more.

``python -m benchmarks memory --save`` runs each kind of input in a process of its own and prints
what the system says was resident at most, beyond what the libraries take, after `fo.solve` with and without a
certificate. At most 10 % beyond inputs and output is to be held.
"""

import resource
import time
from collections.abc import Iterator
from itertools import product

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, apart
from benchmarks.objectives import some

OBJECTIVES = some("harmonic", "binary", "harmonic, periodic")
HOLD = 1.1
BLOCK = 10**6


def peak() -> int:
    """Return the largest resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def column(n: int, kind: str, seed: int) -> np.ndarray:
    """Return lognormal numbers, made a block at a time."""
    rng, values = np.random.default_rng(seed), np.empty(n, dtype=kind)
    for begin in range(0, n, BLOCK):
        mine = values[begin : begin + BLOCK]
        mine[:] = np.exp(rng.standard_normal(len(mine)))
    return values


def measure(objective: str, kind: str, n: int, certify: bool) -> Row:
    """Solve one problem and return what it took; to be run in a fresh process."""
    few = fo.Sources(column(70_000, kind, 2), column(70_000, kind, 3))
    fo.solve(fo.Problem(OBJECTIVES[objective], few, 3e4))  # libraries and compiled loops are loaded
    before = peak()
    d, w = column(n, kind, 0), column(n, kind, 1)
    problem = fo.Problem(OBJECTIVES[objective], fo.Sources(d, w), 0.5 * float(np.sum(d, dtype=float)))
    begun = time.perf_counter()
    solution = fo.solve(problem, certify=certify)
    seconds, solved = time.perf_counter() - begun, peak() - before
    least = d.nbytes + w.nbytes + solution.rates.nbytes
    proof = solution.certificate
    return {
        "objective": objective,
        "columns": kind,
        "sources": n,
        "certified": certify,
        "ratio": solved / least,
        "gigabytes": solved / 1e9,
        "seconds": seconds,
        "gap": None if proof is None else proof.relative_gap,
        "met": solved <= HOLD * least,
    }


def rows(sources: int = 10**8) -> Iterator[Row]:
    """Yield the kinds of inputs, each solved in a process of its own."""
    for objective, kind, certify in product(OBJECTIVES, ("float64", "float32"), (False, True)):
        yield apart(measure, objective, kind, sources, certify)


def claims(record: Record) -> Claims:
    """Yield what is held of memory beside inputs and output, and that all is proved."""
    for row in record["rows"]:
        if row["sources"] >= 10**8:
            told = f"{row['objective']}, {row['columns']}: {row['ratio']:.3f} of inputs and output"
            yield f"{told}, to hold {HOLD}", row["met"] == (row["ratio"] <= HOLD)
        if row["certified"]:
            yield f"{row['objective']}: gap {row['gap']:.1e}", row["gap"] <= 1e-9


BENCH = Measurement({"rows": rows}, quick={"sources": 70_000}, facts=("cores",), claims=claims)
