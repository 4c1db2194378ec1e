"""Count how many ill-scaled problems each cone solver solves, and to what certified gap.

    python -m benchmarks cone_solvers [--n 100] [--seeds 4] [--backends CLARABEL ECOS]
        [--objectives age "delay, signalled"] [--kinds plain hosts] [--no-raw] [--save]

Change rates span 10 decades, importances 12, bandwidths 1e-3, 0.5 and 20 times the sum of the change rates;
plain, with lower bounds, with upper bounds, with ten host limits, with costs over two decades, and, where the
objective admits that, with half of the sources announcing their changes. In the "signalled" rows all of them
do, under every kind. Counted are the cone solver's own rates after repair: no polish, no dual.

``first`` counts those that needed no second attempt of the ladder, ``false`` those that are called optimal
although their cost exceeds the exact dual's by more than 1e-5. ``raw`` is the declared problem handed to the
same solver without any scaling; ``--no-raw`` leaves it out, as one must for thousands of sources.
"""

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, by
from benchmarks.objectives import OBJECTIVES, POISSON
from freshopt.problems import ExpectedPenalty, PowerCost, SynchronizationCost
from freshopt.solvers import Conic, WaterFilling

BUDGETS = (1e-3, 0.5, 20.0)
KINDS = ("plain", "lower", "upper", "hosts", "costs", "signals")
TOLERANCE, FALSE_CLAIM = 1e-6, 1e-5


def bounded(missed: np.ndarray) -> np.ndarray:
    """Forgive two missed changes, and do not distinguish beyond fifty."""
    return np.clip(missed - 2.0, 0.0, 48.0)


def objectives(n: int, rng: np.random.Generator) -> dict[str, tuple[fo.Objective, bool]]:
    """Return the objectives by name, and whether all sources are signalled.

    Powers have exponents of their own, caps beyond which half of the sources may be left.
    """
    scale, exponent = 10 ** rng.uniform(-6, 6, n), rng.uniform(0.1, 1.0, n)
    power = PowerCost(scale, exponent)
    capped = PowerCost(scale, exponent, scale * 10 ** (exponent * rng.uniform(-4, 6, n)))
    return {
        **{
            f"{name}{how}": (OBJECTIVES[name + how.removesuffix(", signalled")], how == ", signalled")
            for name in ("harmonic", "binary", "delay", "age")
            for how in ("", ", periodic", ", signalled")
        },
        "power": (SynchronizationCost(power, POISSON), False),
        "power, periodic": (SynchronizationCost(power), False),
        "capped power": (SynchronizationCost(capped, POISSON), False),
        "capped, periodic": (SynchronizationCost(capped), False),
        "polls": (OBJECTIVES["polls"], False),
        "materials": (OBJECTIVES["materials"], False),
        "penalty √m": (ExpectedPenalty(np.sqrt), False),
        "penalty √m, signalled": (ExpectedPenalty(np.sqrt), True),
        "penalty bounded": (ExpectedPenalty(bounded), False),
        "penalty bounded, s.": (ExpectedPenalty(bounded), True),
    }


def problems(name: str, n: int, seed: int, kinds: tuple[str, ...]) -> Iterator[fo.Problem]:
    """Yield an objective's problem of every budget and kind; signals only where they are admitted."""
    rng = np.random.default_rng(seed)
    for budget in BUDGETS:
        for kind in KINDS:
            change_rate, importance = 10 ** rng.uniform(-6, 4, n), 10 ** rng.uniform(-6, 6, n)
            bandwidth = budget * float(change_rate.sum())
            share = bandwidth / n
            objective, signalled = objectives(n, rng)[name]
            extra: dict[str, dict[str, Any]] = {
                "plain": {},
                "lower": {"min_rate": 0.5 * share * rng.random(n)},
                "upper": {"max_rate": share * 10 ** rng.uniform(-1, 2, n)},
                "hosts": {"host": rng.integers(0, 10, n)},
                "costs": {"refresh_cost": 10 ** rng.uniform(-1, 1, n)},
                "signals": {"signalled": rng.random(n) < 0.5},
            }
            given = extra[kind]
            if signalled:
                given["signalled"] = True
                if "min_rate" in given:
                    given["min_rate"] = np.minimum(given["min_rate"], 0.5 * change_rate)
            limits = (
                {int(host): bandwidth * 10 ** rng.uniform(-3, 0) for host in np.unique(given["host"])}
                if kind == "hosts"
                else None
            )
            if kind not in kinds or (kind == "signals" and (signalled or objective.refuses_signals())):
                continue
            yield fo.Problem(objective, fo.Sources(change_rate, importance, **given), bandwidth, limits)


@dataclass
class Counts:
    """What is counted over the instances of an objective and a backend."""

    instances: int = 0
    solved: int = 0
    solved_at_first: int = 0
    worst_gap: float = 0.0
    without_rates: int = 0
    false_claims: int = 0
    raw_solved: int = 0
    raw_false_claims: int = 0
    seconds: float = 0.0
    slowest: float = 0.0


def true_gap(solution: fo.Solution) -> float:
    """Return by how much the solution costs more than the exact dual's, on the certificate's scale."""
    problem = solution.problem
    exact = fo.solve(problem, WaterFilling(), certify=False, throw=False)
    best, found = (float(np.sum(problem.numerics.cost(rates))) for rates in (exact.rates, solution.rates))
    hosts = sum(exact.host_prices[host] * limit for host, limit in problem.host_limits.items())
    scale = abs(best) + exact.price * problem.bandwidth + hosts
    return 0.0 if solution.certificate.vanishing or scale == 0.0 else (found - best) / scale


def raw_gap(problem: fo.Problem, backend: str) -> tuple[float, bool]:
    """Return the certified gap of the declared problem as it stands, and whether the solver said optimal."""
    program = problem.to_cvxpy()
    try:
        program.solve(solver=backend)
    except cp.SolverError:
        return math.inf, False
    rate = next(variable for variable in program.variables() if variable.name() == "rate").value
    if rate is None:
        return math.inf, False
    try:
        proof = fo.certify(problem, np.maximum(rate, 0.0))
    except fo.ObjectiveError:  # a penalty cannot be summed at a rate of 1e-323
        return math.inf, program.status == "optimal"
    return proof.relative_gap, program.status == "optimal"


def count(name: str, backend: str, n: int, seeds: int, kinds: tuple[str, ...], *, raw: bool) -> Counts:
    """Solve every instance of an objective, scaled and if wanted raw, and count."""
    row = Counts()
    for seed in range(seeds):
        for problem in problems(name, n, seed, kinds):
            begun = time.perf_counter()
            solution = fo.solve(problem, Conic(backend), tolerance=TOLERANCE, throw=False)
            seconds = time.perf_counter() - begun
            proof = solution.certificate
            gap = math.inf if proof is None else proof.relative_gap
            row.instances += 1
            row.solved += int(gap <= TOLERANCE)
            row.solved_at_first += int(gap <= TOLERANCE and "(attempt" not in solution.note)
            row.without_rates += int(proof is None)
            row.worst_gap = max(row.worst_gap, gap if math.isfinite(gap) else 1.0)
            if solution.status is fo.Status.OPTIMAL:
                row.false_claims += int(true_gap(solution) > FALSE_CLAIM)
            row.seconds, row.slowest = row.seconds + seconds, max(row.slowest, seconds)
            if raw:
                gap, said = raw_gap(problem, backend)
                row.raw_solved += int(gap <= TOLERANCE)
                row.raw_false_claims += int(said and gap > FALSE_CLAIM)
    return row


NAMES = tuple(objectives(1, np.random.default_rng(0)))


def rows(
    n: int = 100,
    seeds: int = 4,
    backends: tuple[str, ...] = ("CLARABEL", "ECOS"),
    objectives: tuple[str, ...] = NAMES,
    kinds: tuple[str, ...] = KINDS,
    raw: bool = True,
) -> Iterator[Row]:
    """Yield the counts of each backend and objective."""
    warnings.simplefilter("ignore")
    for backend, name in product(backends, objectives):
        counted = vars(count(name, backend, n, seeds, kinds, raw=raw)).items()
        kept = {key: value for key, value in counted if raw or not key.startswith("raw")}
        rounded = {key: float(f"{x:.3g}") if isinstance(x, float) else x for key, x in kept.items()}
        yield {"objective": name, "backend": backend, **rounded}


def claims(record: Record) -> Claims:
    """Yield that nothing is called optimal that is not."""
    for row in record["rows"]:
        told = f"{row['objective']}, {row['backend']}: {row['false_claims']} false of {row['instances']}"
        yield (
            told,
            row["false_claims"] == 0 and 0 < row["solved_at_first"] <= row["solved"] <= row["instances"],
        )


BENCH = Measurement(
    {"rows": rows},
    quick={"n": 5, "seeds": 1, "objectives": ("age", "binary"), "kinds": ("plain",)},
    facts=("n", "seeds", "kinds"),
    notes={"tolerance": TOLERANCE},
    merge=by("objective", "backend"),
    claims=claims,
)
