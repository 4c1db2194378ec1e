"""Measure how exact water-filling is on ill-scaled data, and whether the certificate ever claims too much.

    python -m benchmarks exactness [--candidates 20000] [--save]

Part one: every objective, n from 1 to 10⁵, change rates over 10 decades, importances over 12, bandwidths
1e-3, 0.5 and 20 times the sum of the change rates; plain, bounded below, bounded above, with hosts, with
all of it and unequal costs. Printed are the worst certified relative gap and the worst miss of a bandwidth
that binds.

Part two: the adversary's cases of all shipped cells, n up to 50, with hosts or without, by loops and by
NumPy, alone and in a batch; rates of all kinds from the optimum itself to far off, at given prices, searched
ones and both. Optimum and true gap are found in extended precision: a violation is a certified gap below the
true one by more than 2e-18 of the costs and prices that it is a difference of.
"""

import itertools
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.adversary.case import Case, backend
from benchmarks.adversary.cells import CELLS
from benchmarks.adversary.drawing import draw
from benchmarks.adversary.judging import Oracle
from benchmarks.harness import Claims, Measurement, Record, Row
from benchmarks.objectives import OBJECTIVES as EVERY
from freshopt.errors import ObjectiveError
from tests.ground_truth.cell_truth import wide

OBJECTIVES = tuple(each for name, each in EVERY.items() if name != "power 0.5")
KINDS = ("plain", "lower", "upper", "hosts", "all")
BUDGETS = (1e-3, 0.5, 20.0)
SIZES = (1, 2, 3, 10, 100, 1_000, 10_000, 100_000)
# Sources of a case at most, candidates of each, and the share of cases whose loops are compiled.
FEW, TRIED, COMPILED = 50, 4, 0.5
# Rounding of extended precision, of an ulp of rates, and how well an optimum has to be known.
EXTENDED, ULP, UNSETTLED = 2e-18, 4e-16, 1e-16


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


def certificates(candidates: int = 20_000) -> dict[str, int]:
    """Return how many gaps were checked and how many were below the true one.

    Cells take turns. Those whose optimum extended precision does not settle are counted as unsettled.
    """
    rng = np.random.default_rng(1)
    found = {"checked": 0, "violations": 0, "unsettled": 0}
    for kind in itertools.cycle(CELLS):
        if found["checked"] >= candidates:
            return found
        case = draw(rng, kind)
        case = case.take(np.arange(min(len(case), FEW))).changed(layout="plain", solver="None")
        with warnings.catch_warnings(), backend(bool(rng.random() < COMPILED), 1):
            warnings.simplefilter("ignore")
            _judge(case, rng, found)
    return found


def _judge(case: Case, rng: np.random.Generator, found: dict[str, int]) -> None:
    """Count the gaps of one case: of answers, alone and in a batch, and of rates near and far."""
    try:
        problem = case.problem()
        best = fo.solve(problem, throw=False)
    except fo.InfeasibleProblemError:
        return
    if best.certificate is None or not math.isfinite(best.certificate.gap):
        return
    proofs = [best.certificate]
    if not case.limits:
        several = fo.solve_many([problem, problem.with_bandwidth(1.5 * problem.bandwidth)], throw=False)
        proofs.append(several[0].certificate)
    names = list(case.limits)
    for _ in range(TRIED):
        spread, share = 10.0 ** rng.uniform(-17.0, 0.5), 1.0 - 10.0 ** rng.uniform(-17.0, -0.3)
        rates = np.clip(share * best.rates * np.exp(spread * rng.normal(size=len(case))), 0.0, problem.upper)
        away = np.exp(10.0 ** rng.uniform(-17.0, 0.5) * rng.normal(size=1 + len(names)))
        hosts = {name: best.host_prices[name] * x for name, x in zip(names, away[1:], strict=True)}
        # Rates so small that a penalty cannot be summed there are refused.
        with suppress(ObjectiveError):
            proofs.append(fo.certify(problem, rates, best.price * away[0], hosts))
            proofs.append(fo.certify(problem, rates, best.price * away[0]))
            proofs.append(fo.certify(problem, rates))
    judged = case.per_bandwidth()
    oracle = Oracle(judged)
    least, cost, rates = _optimum(oracle)
    prices = wide([best.price, *(best.host_prices[name] for name in names)])
    limits = np.append(oracle.bandwidth, oracle.hosts.limits)
    paid = np.sum(prices * limits)
    for proof in proofs:
        if proof is None or not math.isfinite(proof.gap) or not np.all(np.isfinite(proof.rates)):
            continue
        own = judged.costs(wide(proof.rates) if judged is case else case.used(wide(proof.rates)))
        size = np.sum(abs(own)) + np.sum(abs(judged.costs(rates))) + np.sum(case["importance"])
        noise = EXTENDED * (size + paid)
        # Rates that a bandwidth of one's own makes are stored to an ulp, for which no certificate speaks.
        noise += 0.0 if judged is case else ULP * (paid + np.sum(abs(own)))
        if not abs(cost - least) <= UNSETTLED * (abs(cost) + paid):
            found["unsettled"] += 1
            continue
        found["checked"] += 1
        found["violations"] += int(np.sum(own) - cost > proof.gap + noise)


def _optimum(oracle: Oracle) -> tuple[Any, Any, Any]:
    """Return a bound, the cost of rates within all limits, and these rates."""
    least, _, rates = oracle.least_cost()
    spare = oracle.cost * (rates - oracle.lower)
    if len(oracle.hosts.limits):
        over = np.maximum(0, oracle.hosts.totals(oracle.cost * rates) - oracle.hosts.limits)
        share = over / np.maximum(oracle.hosts.totals(spare), np.finfo(np.longdouble).tiny)
        rates = rates - (rates - oracle.lower) * oracle.hosts.spread(share)
    over = np.maximum(0, np.sum(oracle.cost * rates) - oracle.bandwidth)
    spare = oracle.cost * (rates - oracle.lower)
    rates = rates - (rates - oracle.lower) * (over / np.sum(spare) if over > 0 else 0)
    return least, oracle.total(rates), rates


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
