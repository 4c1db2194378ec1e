"""Measure how exact water-filling is on ill-scaled data, and whether the certificate ever claims too much.

    python -m benchmarks exactness [--candidates 10000] [--save]

Part one: every objective, n from 1 to 10⁵, change rates over 10 decades, importances over 12, bandwidths
1e-3, 0.5 and 20 times the sum of the change rates; plain, bounded below, bounded above, with hosts, with
all of it and unequal costs. Printed are the worst certified relative gap and the worst miss of a bandwidth
that binds.

Part two: random candidates, good and bad, at searched and at random prices. The certified bound must lie
beyond the optimum that is proved to 1e-12; a violation is a bound that does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row
from benchmarks.objectives import OBJECTIVES as EVERY

OBJECTIVES = tuple(each for name, each in EVERY.items() if name != "power 0.5")
KINDS = ("plain", "lower", "upper", "hosts", "all")
BUDGETS = (1e-3, 0.5, 20.0)
SIZES = (1, 2, 3, 10, 100, 1_000, 10_000, 100_000)


def instance(
    objective: fo.Objective, n: int, kind: str, budget: float, rng: np.random.Generator
) -> fo.Problem:
    """Return an ill-scaled problem of a kind."""
    d, w = 10 ** rng.uniform(-6, 4, n), 10 ** rng.uniform(-6, 6, n)
    bandwidth = budget * float(d.sum())
    extra: dict[str, Any] = {}
    share, limits = bandwidth / n, None
    cost = 10 ** rng.uniform(-1, 1, n) if kind == "all" else np.ones(n)
    if kind in ("lower", "all"):
        extra["min_rate"] = 0.3 * share * rng.random(n) / cost
    if kind in ("upper", "all"):
        extra["max_rate"] = share * 10 ** rng.uniform(0, 2, n) / cost
    if kind in ("hosts", "all"):
        host = rng.integers(0, max(1, n // 10), n)
        least = np.bincount(host, weights=cost * extra.get("min_rate", np.zeros(n)))
        limits = {
            int(h): float(1.01 * least[h] + bandwidth * 10 ** rng.uniform(-3, 0)) for h in np.unique(host)
        }
        extra["host"] = host
    return fo.Problem(objective, fo.Sources(d, w, refresh_cost=cost, **extra), bandwidth, limits)


def water_filling(sizes: tuple[int, ...] = SIZES) -> Iterator[Row]:
    """Yield the worst gap and the worst miss of the bandwidth per objective."""
    for objective in OBJECTIVES:
        worst_gap, worst_miss, count = 0.0, 0.0, 0
        for n in sizes:
            for kind in KINDS:
                for budget in BUDGETS:
                    problem = instance(objective, n, kind, budget, np.random.default_rng([n, count]))
                    solution = fo.solve(problem, tolerance=1e-9)
                    proof = solution.certificate
                    gap = 0.0 if proof is None else proof.relative_gap
                    used = float(np.sum(problem.sources.refresh_cost * solution.rates))
                    miss = abs(used / problem.bandwidth - 1.0) if solution.price > 0.0 else 0.0
                    worst_gap, worst_miss, count = max(worst_gap, gap), max(worst_miss, miss), count + 1
        yield {"objective": repr(objective), "instances": count, "gap": worst_gap, "miss": worst_miss}


def cost(problem: fo.Problem, rates: np.ndarray) -> float:
    """Return the total cost that the certificate bounds."""
    return 0.0 if problem.numerics is None else float(np.sum(problem.numerics.cost(rates)))


def certificates(candidates: int = 10_000) -> dict[str, int]:
    """Return how many bounds were checked and how many did not hold."""
    rng = np.random.default_rng(1)
    checked = violations = 0
    while checked < candidates:
        objective = OBJECTIVES[int(rng.integers(len(OBJECTIVES)))]
        n = int(rng.choice([1, 2, 5, 20]))
        problem = instance(objective, n, str(rng.choice(KINDS)), float(rng.choice(BUDGETS)), rng)
        best = fo.solve(problem, tolerance=1e-9)
        proof = best.certificate
        least = cost(problem, best.rates)
        room = 1e-12 * (abs(least) + best.price * problem.bandwidth) + (0.0 if proof is None else proof.gap)
        for _ in range(10):
            rates = best.rates * 10 ** (rng.normal(size=n) * float(rng.choice([1e-6, 0.1, 2.0])))
            price = None if rng.random() < 0.5 else best.price * 10 ** rng.normal()
            found = fo.certify(problem, rates, price)
            checked += 1
            # Costs are compared, not values: Σw − cost would round away what a gap still resolves.
            spent = cost(problem, found.rates)
            violations += int(spent - least - found.gap > room + 1e-13 * abs(spent))
    return {"checked": checked, "violations": violations}


def claims(record: Record) -> Claims:
    """Yield that gaps and bandwidths are met, and that no bound claims too much."""
    for row in record["water_filling"]:
        told = f"{row['objective']}: gap {row['gap']:.0e}, bandwidth missed by {row['miss']:.0e}"
        yield told, row["gap"] <= 1e-9 and row["miss"] <= 1e-9
    checked, violations = record["certificates"]["checked"], record["certificates"]["violations"]
    yield f"{violations} of {checked} bounds do not hold", violations == 0


BENCH = Measurement(
    {"water_filling": water_filling, "certificates": certificates},
    quick={"sizes": (1, 10), "candidates": 20},
    facts=("sizes",),
    claims=claims,
)
