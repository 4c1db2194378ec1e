"""One thread against two, of each objective's cell: the ratio of the times, beside the load of the machine.

    python benchmarks/speed/threads.py [--n 10000000] [--rounds 7] [--save]

Solves and certified calls are made in turns with one thread and two, and the least times are compared, by the
clock on the wall. To hold, on an idle machine: 1.7 x for cells whose passes calculate more than they read.
Rates, prices and gaps must be equal bit by bit; the script fails otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from speed_parts import BUDGET, PERIODIC, limited

import freshopt as fo
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    HarmonicStaleness,
    PollingKnapsack,
    PowerCost,
    SynchronizationCost,
)

RESULT = Path("benchmarks/results/threads.json")
HOLD, QUIET = 1.7, 0.5  # the load of an idle machine is less, before the first pass
# Cells whose passes take two ADD of memory and little more: what they gain depends on the memory.
READING = ("binary", "delay", "harmonic")
WORKS: dict[str, fo.Objective] = {
    "harmonic": HarmonicStaleness(),
    "harmonic, periodic": HarmonicStaleness(PERIODIC),
    "binary": BinaryFreshness(),
    "binary, periodic": BinaryFreshness(PERIODIC),
    "delay": AccumulatedDelay(),
    "age": Age(),
    "age, periodic": Age(PERIODIC),
    "power 0.5": SynchronizationCost(PowerCost(1.0, 0.5)),
    "polls": PollingKnapsack("polls"),
}


def problems(n: int) -> dict[str, fo.Problem]:
    """Return a problem of each cell, and one with ten sources a host."""
    rng = np.random.default_rng(0)
    sources = fo.Sources(rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n))
    bandwidth = BUDGET * float(np.sum(sources.change_rate))
    found = {work: fo.Problem(objective, sources, bandwidth) for work, objective in WORKS.items()}
    hosts = limited(max(10, n // 10))
    return {**found, f"harmonic, {len(hosts.hosts):,} host limits": hosts}


def solved(problem: fo.Problem, threads: int, *, certify: bool) -> tuple[float, fo.Solution]:
    """Return the seconds of a solve with so many threads, and the solution."""
    os.environ["FRESHOPT_THREADS"] = str(threads)
    begun = time.perf_counter()
    solution = fo.solve(problem, certify=certify)
    return time.perf_counter() - begun, solution


def bits(solution: fo.Solution) -> tuple[Any, ...]:
    """Return what must not depend on the threads."""
    gap = None if solution.certificate is None else solution.certificate.gap
    return solution.rates.tobytes(), solution.price, tuple(solution.host_prices.values()), solution.value, gap


def measure(n: int, rounds: int) -> dict[str, Any]:
    """Time every cell with one and two threads, in turns; return the record."""
    record: dict[str, Any] = {"n": n, "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
    print(
        f"load {record['load']:.2f} before, {record['cores']} cores; 1 and 2 threads in seconds", flush=True
    )
    rows = []
    for work, problem in problems(n).items():
        row: dict[str, Any] = {"work": work, "n": len(problem.sources)}
        for certify in (False, True):
            times: defaultdict[int, list[float]] = defaultdict(list)
            # The first round may compile.
            for turn in range(rounds + 1):
                found = {threads: solved(problem, threads, certify=certify) for threads in (1, 2)}
                if bits(found[1][1]) != bits(found[2][1]):
                    raise SystemExit(f"{work}: two threads give other bits than one.")
                for threads, (seconds, _) in found.items() if turn else ():
                    times[threads].append(seconds)
            one, two = min(times[1]), min(times[2])
            key = "certified" if certify else "solve"
            row[key] = {"one": one, "two": two, "ratio": one / two}
        # The system counts this process too: what is above one or two of it is others' work.
        row["load"] = os.getloadavg()[0]
        row["hold"] = None if work in READING else HOLD
        rows.append(row)
        print(line(row), flush=True)
    return {**record, "rows": rows}


def line(row: dict[str, Any]) -> str:
    """Return a printed line of a row."""
    told = [f"{row['work']:36}{row['n']:>11,}"]
    for key in ("solve", "certified"):
        each = row[key]
        told.append(f"{key} {each['one']:.4f} {each['two']:.4f} {each['ratio']:.2f} x")
    hold = "" if row["hold"] is None else f">= {row['hold']} x"
    return "  ".join([*told, f"load {row['load']:.2f}", hold])


def main() -> None:
    """Run, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=10**7, help="sources; a tenth of them with host limits")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--save", nargs="?", type=Path, const=Path(), help="write the results, to a folder")
    options = parser.parse_args()
    record = measure(options.n, options.rounds)
    if record["load"] > QUIET:
        print(f"the load was {record['load']:.2f} before: on an idle machine it is below {QUIET}")
    if options.save is not None:
        place = options.save / RESULT
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
