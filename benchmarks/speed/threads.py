"""One thread against two, of each objective's cell: the ratio of the times, beside the load of the machine.

    python -m benchmarks threads [--n 10000000] [--rounds 7] [--save]

Solves and certified calls are made in turns with one thread and two, and the least times are compared, by the
clock on the wall. To hold, on an idle machine: 1.7 x for cells whose passes calculate more than they read.
Rates, prices and gaps must be equal bit by bit; the script fails otherwise.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, clocked
from benchmarks.objectives import BUDGET, some
from benchmarks.speed.speed_parts import limited

HOLD, QUIET = 1.7, 0.5  # the load of an idle machine is less, before the first pass
# Cells whose passes take two ADD of memory and little more: what they gain depends on the memory.
READING = ("binary", "delay", "harmonic")


WORKS = some(
    *("harmonic", "harmonic, periodic", "binary", "binary, periodic", "delay"),
    *("age", "age, periodic", "power 0.5", "polls"),
)


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
    solution, wall, _ = clocked(lambda: fo.solve(problem, certify=certify))
    return wall, solution


def bits(solution: fo.Solution) -> tuple[Any, ...]:
    """Return what must not depend on the threads."""
    gap = None if solution.certificate is None else solution.certificate.gap
    return solution.rates.tobytes(), solution.price, tuple(solution.host_prices.values()), solution.value, gap


def rows(n: int = 10**7, rounds: int = 7) -> Iterator[Row]:
    """Yield every cell with one and two threads, in turns; a tenth of the sources with host limits."""
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
        yield row


def before() -> Record:
    """Return the load before the first pass."""
    return {"load": os.getloadavg()[0]}


def claims(record: Record) -> Claims:
    """Yield what is to hold on an idle machine."""
    for row in record["rows"] if record["load"] < QUIET and record["n"] >= 10**7 else ():
        if row["hold"] is not None and "limits" not in row["work"]:
            ratio = row["solve"]["ratio"]
            yield f"{row['work']}: {ratio:.2f} x, to hold {row['hold']} x", ratio > 1.0


BENCH = Measurement(
    {"": before, "rows": rows}, quick={"n": 1000, "rounds": 1}, facts=("n", "cores"), claims=claims
)
