"""Count how many ill-scaled problems each cone solver solves, and to what certified gap.

    python benchmarks/cone_solvers.py [--n 100] [--seeds 4] [--save benchmarks/results/cone_solvers.json]

Change rates span 10 decades, importances 12, bandwidths 1e-3, 0.5 and 20 times the sum of the change rates;
plain, with lower bounds, with upper bounds, with ten host limits. Counted are the cone solver's own rates
after repair: no polish, no dual. ``first`` counts those that needed no second attempt of the ladder. ``raw``
is the declared problem handed to the same solver without any scaling.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import cvxpy as cp  # noqa: TID253 - a benchmark
import numpy as np

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
from freshopt.solvers import Conic

PERIODIC = fo.Refresh.PERIODIC
BUDGETS = (1e-3, 0.5, 20.0)
KINDS = ("plain", "lower", "upper", "hosts")
TOLERANCE, FALSE_CLAIM = 1e-6, 1e-5


def objectives(n: int, rng: np.random.Generator) -> dict[str, fo.Objective]:
    """Return the objectives by name; powers have exponents of their own."""
    power = PowerCost(10 ** rng.uniform(-6, 6, n), rng.uniform(0.1, 1.0, n))
    return {
        "harmonic": HarmonicStaleness(),
        "harmonic, periodic": HarmonicStaleness(PERIODIC),
        "binary": BinaryFreshness(),
        "binary, periodic": BinaryFreshness(PERIODIC),
        "delay": AccumulatedDelay(),
        "age": Age(),
        "power, periodic": SynchronizationCost(power),
        "polls": PollingKnapsack(),
    }


def instances(
    n: int, seed: int
) -> Iterator[tuple[fo.Sources, float, dict[int, float] | None, np.random.Generator]]:
    """Yield sources, bandwidth and host limits of every family."""
    rng = np.random.default_rng(seed)
    for budget in BUDGETS:
        for kind in KINDS:
            change_rate, importance = 10 ** rng.uniform(-6, 4, n), 10 ** rng.uniform(-6, 6, n)
            bandwidth = budget * float(change_rate.sum())
            share = bandwidth / n
            extra = {
                "plain": {},
                "lower": {"min_rate": 0.5 * share * rng.random(n)},
                "upper": {"max_rate": share * 10 ** rng.uniform(-1, 2, n)},
                "hosts": {"host": rng.integers(0, 10, n)},
            }[kind]
            limits = None
            if kind == "hosts":
                limits = {
                    int(host): bandwidth * 10 ** rng.uniform(-3, 0) for host in np.unique(extra["host"])
                }
            yield fo.Sources(change_rate, importance, **extra), bandwidth, limits, rng


def raw_gap(problem: fo.Problem, backend: str) -> tuple[float, bool]:
    """Return the certified gap of the declared problem as it stands, and whether the solver said optimal."""
    program = problem.to_cvxpy()
    try:
        program.solve(solver=backend)
    except cp.SolverError:
        return np.inf, False
    rate = next(variable for variable in program.variables() if variable.name() == "rate").value
    if rate is None:
        return np.inf, False
    proof = fo.certify(problem, np.maximum(rate, 0.0))
    return (0.0 if proof.vanishing else proof.relative_gap), program.status == "optimal"


def count(name: str, backend: str, n: int, seeds: int) -> dict[str, object]:
    """Solve every instance of an objective both ways and count."""
    gaps, claims, first, raw, raw_claims = [], 0, 0, [], 0
    begun = time.perf_counter()
    for seed in range(seeds):
        for sources, bandwidth, limits, rng in instances(n, seed):
            problem = fo.Problem(objectives(n, rng)[name], sources, bandwidth, limits)
            solution = fo.solve(problem, Conic(backend), tolerance=TOLERANCE, throw=False)
            proof = solution.certificate
            gap = np.inf if proof is None else 0.0 if proof.vanishing else proof.relative_gap
            gaps.append(gap)
            first += int(gap <= TOLERANCE and "(attempt" not in solution.note)
            claims += int(solution.status is fo.Status.OPTIMAL and gap > FALSE_CLAIM)
            gap, said = raw_gap(problem, backend)
            raw.append(gap)
            raw_claims += int(said and gap > FALSE_CLAIM)
    return {
        "objective": name,
        "backend": backend,
        "instances": len(gaps),
        "solved": int(np.sum(np.array(gaps) <= TOLERANCE)),
        "solved_at_first": first,
        "worst_gap": float(np.max(gaps)) if np.isfinite(gaps).all() else None,
        "false_claims": claims,
        "raw_solved": int(np.sum(np.array(raw) <= TOLERANCE)),
        "raw_false_claims": raw_claims,
        "seconds": round(time.perf_counter() - begun, 2),
    }


def main() -> None:
    """Print the table and save it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--backends", default="CLARABEL,ECOS")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    columns = ("solved", "first", "worst gap", "false", "raw solved", "raw false")
    print(f"{'objective':20} {'backend':9}" + "".join(f"{column:>11}" for column in columns))
    for backend in options.backends.split(","):
        for name in objectives(1, np.random.default_rng(0)):
            row = count(name, backend, options.n, options.seeds)
            rows.append(row)
            worst = "none" if row["worst_gap"] is None else f"{row['worst_gap']:.1e}"
            total = row["instances"]
            cells = (
                f"{row['solved']}/{total}",
                str(row["solved_at_first"]),
                worst,
                str(row["false_claims"]),
                f"{row['raw_solved']}/{total}",
                str(row["raw_false_claims"]),
            )
            print(f"{name:20} {backend:9}" + "".join(f"{cell:>11}" for cell in cells), flush=True)
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        record = {"n": options.n, "seeds": options.seeds, "tolerance": TOLERANCE, "rows": rows}
        options.save.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
