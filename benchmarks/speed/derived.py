"""Time a user's declared objective against hand-written kernels and against cone solvers, n = 10² to 10⁷.

    python -m benchmarks derived [--largest 7] [--objectives harmonic ...] [--save]

Every objective is declared as a user would, without kernels, and solved by SeparableNewton. Reported are its
evaluations of the expression (solver, and certificate), the processor time of both as a multiple of one
evaluation of value, slope and curvature of all sources, and the certified relative gap. Where the package has
a kernel for the same objective, WaterFilling solves it for comparison. Compiled loops are loaded before.
CVXPY solves the problem through Conic (with the package's cone forms, where there are any) up to the size at
which it fails or would take longer than `--patience`. Ratios are of one run.

All of it takes about 9 minutes, most of it in cone programs of up to 15 seconds.
"""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, by, clocked
from freshopt.compiled import backend as loops
from freshopt.cvx import cp
from freshopt.modelling.objective import Refresh
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.solvers import Conic, SeparableNewton, WaterFilling
from tests.ground_truth.counted_sources import counted
from tests.ground_truth.own_objectives import AlphaFair, Binary, Delay, Harmonic

BUDGET = 0.5  # of the sum of the change rates
GROWTH = 10.0  # of a cone solver's seconds from one size to the next, at least
LOADED = 10**5  # sources that take the loops of larger sizes


class Blend(fo.Objective):
    """Harmonic staleness and a tenth of the delay; refreshes have unequal costs."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:
        """Declare w·(log(1 + Δ/ρ) + 0.1·Δ/ρ)."""
        staleness = cp.logistic(np.log(sources.change_rate) - cp.log(rate))
        return cp.multiply(
            sources.importance, staleness + cp.multiply(0.1 * sources.change_rate, cp.inv_pos(rate))
        )


class Deadline(fo.Objective):
    """Three lines in the rate: every optimal rate is a kink, or one is fractional."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:
        """Declare w·max(3 − 4x, 2 − 1.5x, 1 − x/4, 0) with x = ρ/Δ."""
        x = cp.multiply(1.0 / sources.change_rate, rate)
        return cp.multiply(sources.importance, cp.maximum(3 - 4 * x, 2 - 1.5 * x, 1 - 0.25 * x, 0.0))


OBJECTIVES: dict[str, tuple[fo.Objective, fo.Objective | None]] = {
    "harmonic": (Harmonic(), HarmonicStaleness(Refresh.POISSON)),
    "delay": (Delay(), AccumulatedDelay(Refresh.POISSON)),
    "binary": (Binary(), BinaryFreshness(Refresh.POISSON)),
    "alpha-fair": (AlphaFair(), None),
    "blend": (Blend(), None),
    "deadline": (Deadline(), None),
}
CONES = ("CLARABEL", "ECOS", "SCS")


def instance(name: str, objective: fo.Objective, n: int, *, ill: bool) -> fo.Problem:
    """Return a problem: lognormal data, or change rates over ten decades and importances over twelve."""
    rng = np.random.default_rng([n, int(ill)])
    d = 10 ** rng.uniform(-6, 4, n) if ill else rng.lognormal(0, 1, n)
    w = 10 ** rng.uniform(-6, 6, n) if ill else rng.lognormal(0, 1, n)
    cost: Any = rng.uniform(0.2, 5.0, n) if name == "blend" else 1.0
    sources = fo.Sources(d, w, refresh_cost=cost)
    return fo.Problem(objective, sources, BUDGET * float(np.sum(sources.refresh_cost * d)))


def load(
    name: str, objective: fo.Objective, solver: SeparableNewton | WaterFilling, n: int, *, ill: bool
) -> None:
    """Load the compiled loops that a solver takes so many sources with."""
    with loops.loading():
        fo.solve(instance(name, objective, min(n, LOADED), ill=ill), solver)


def newton(name: str, objective: fo.Objective, n: int, *, ill: bool) -> dict[str, Any]:
    """Solve by SeparableNewton and count."""
    load(name, objective, SeparableNewton(), n, ill=ill)
    problem = instance(name, objective, n, ill=ill)
    numerics = problem.numerics
    if not isinstance(numerics, DerivedNumerics):
        raise TypeError(f"{name} has a kernel.")
    share = np.full(n, problem.bandwidth / float(np.sum(problem.sources.refresh_cost)))
    one = min(clocked(lambda: numerics.jet(share))[2] for _ in range(3))
    solution, wall, processor = clocked(lambda: fo.solve(problem, SeparableNewton(), certify=False))
    proof, _, proving = clocked(lambda: fo.certify(problem, solution.rates, solution.price))
    seen = counted(problem)
    fo.certify(problem, solution.rates, solution.price)
    used = float(np.sum(problem.sources.refresh_cost * solution.rates))
    return {
        "objective": name,
        "method": "SeparableNewton",
        "n": n,
        "ill": ill,
        "seconds": wall,
        "processor": processor,
        "evaluations": solution.iterations,
        "of_certificate": seen[0] / n,
        "one_evaluation": one,
        "ratio": (processor + proving) / one,
        "price": solution.price,
        "gap": proof.relative_gap,
        "miss": abs(used / problem.bandwidth - 1.0) if solution.price > 0.0 else 0.0,
    }


def other(
    name: str,
    objective: fo.Objective,
    solver: WaterFilling | Conic,
    n: int,
    *,
    ill: bool,
    price: float | None,
) -> dict[str, Any]:
    """Solve by another method; its rates are certified at its own price, or at the given one."""
    problem = instance(name, objective, n, ill=ill)
    solution, wall, processor = clocked(lambda: fo.solve(problem, solver, certify=False, throw=False))
    gap = None
    if np.all(np.isfinite(solution.rates)):
        proof = fo.certify(problem, solution.rates, solution.price if price is None else price)
        gap = proof.relative_gap
    method = solver.backend if isinstance(solver, Conic) else type(solver).__name__
    return {
        "objective": name,
        "method": method,
        "n": n,
        "ill": ill,
        "seconds": wall,
        "processor": processor,
        "gap": gap,
    }


def within(seconds: float, *arguments: Any, **named: Any) -> dict[str, Any] | None:
    """Return what `other` returns, or None if it takes longer; in a process that can be ended."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            return pool.apply_async(other, arguments, named).get(seconds)
        except multiprocessing.TimeoutError:
            return None


def rows(
    objectives: tuple[str, ...] = tuple(OBJECTIVES), largest: int = 7, patience: float = 15.0
) -> Iterator[Row]:
    """Yield the methods at sizes up to 10^largest, with `patience` seconds for a cone program."""
    warnings.simplefilter("ignore")
    for name in objectives:
        declared, kernel = OBJECTIVES[name]
        for ill in (False, True):
            given_up: set[str] = set()
            for n in (10**k for k in range(2, largest + 1)):
                reference = newton(name, declared, n, ill=ill)
                yield reference
                if kernel is not None:
                    load(name, kernel, WaterFilling(), n, ill=ill)
                    yield other(name, kernel, WaterFilling(), n, ill=ill, price=None)
                for backend in (each for each in CONES if each not in given_up):
                    asked = (name, kernel or declared, Conic(backend), n)
                    row = within(patience, *asked, ill=ill, price=reference["price"])
                    if row is not None:
                        yield row
                    if row is None or row["gap"] is None or row["seconds"] * GROWTH > patience:
                        given_up.add(backend)


def claims(record: Record) -> Claims:
    """Yield that Newton's rates are proved."""
    for row in record["rows"]:
        if row["method"] == "SeparableNewton":
            yield f"{row['objective']}, {row['n']:,}: gap {row['gap']:.0e}", row["gap"] <= 1e-9


BENCH = Measurement(
    {"rows": rows},
    quick={"largest": 2, "patience": 20.0, "objectives": ("harmonic", "deadline")},
    facts=("patience",),
    notes={"budget": BUDGET},
    merge=by("objective", "method", "n", "ill"),
    claims=claims,
)
