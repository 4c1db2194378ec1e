"""Peak memory of a hundred million sources in one process: inputs, output, and how much more.

``python benchmarks/speed/memory.py --save`` runs each kind of input in a process of its own and prints
what the system says was resident at most, beyond what the libraries take, after `fo.solve` with and without a
certificate. At most 10 % beyond inputs and output is to be held.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from freshopt.problems import BinaryFreshness, HarmonicStaleness

RESULTS = Path(__file__).parents[1] / "results" / "memory.json"
OBJECTIVES = {
    "harmonic": HarmonicStaleness(),
    "binary": BinaryFreshness(),
    "harmonic, periodic": HarmonicStaleness(fo.Refresh.PERIODIC),
}
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


def measure(objective: str, kind: str, n: int, *, certify: bool) -> dict[str, Any]:
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


def main() -> None:
    """Print a table of ratios; ``--save`` keeps it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", type=float, default=1e8)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--one", nargs=3, metavar=("OBJECTIVE", "COLUMNS", "CERTIFY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    n = int(given.sources)
    if given.one:
        objective, kind, certify = given.one
        print(json.dumps(measure(objective, kind, n, certify=certify == "1")))
        return
    rows, line = [], "{:20} {:8} {:9} {:>6} {:>21} {:>8}{}"
    print(line.format("objective", "columns", "certified", "GB", "of inputs and output", "seconds", ""))
    for objective in OBJECTIVES:
        for kind in ("float64", "float32"):
            for certify in ("0", "1"):
                command = [sys.executable, __file__, "--sources", str(n), "--one", objective, kind, certify]
                row = json.loads(
                    subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                )
                rows.append(row)
                sure, held = "yes" if row["certified"] else "no", "" if row["met"] else "  NOT MET"
                figures = f"{row['gigabytes']:.2f}", f"{row['ratio']:.3f}", f"{row['seconds']:.2f}"
                print(line.format(objective, kind, sure, *figures, held), flush=True)
    if given.save:
        RESULTS.write_text(json.dumps({"cores": len(os.sched_getaffinity(0)), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
