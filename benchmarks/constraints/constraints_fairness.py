"""Leximin by `fo.Worst(..., then="next")` against a sequence of minimax cone programs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from scipy.optimize import linprog

import freshopt as fo
from benchmarks.constraints.constraints_declared import atom, objective_of
from benchmarks.constraints.constraints_families import CERTIFIED, MET, Row, measured
from freshopt.problems import BinaryFreshness
from freshopt.solvers import InteriorPoint

# What the cone solver leaves of a level that it finds with what the levels before it leave of the budget.
SUCCESSIVE = 1e-5
FORMULAS = ("harmonic", "delay", "binary")


@dataclass(frozen=True)
class Case:
    """Groups that share a budget."""

    formula: str
    weight: np.ndarray
    change: np.ndarray
    cost: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    group: np.ndarray
    budget: float

    @property
    def share(self) -> np.ndarray:
        """Weight of each source in its group's mean."""
        return self.weight / np.bincount(self.group, weights=self.weight)[self.group]

    def levels(self, rates: np.ndarray) -> np.ndarray:
        """Return the groups' means of the formula."""
        d = self.change
        each = {"harmonic": np.log1p(d / rates), "delay": d / rates, "binary": d / (d + rates)}[self.formula]
        return np.bincount(self.group, weights=self.share * each)


def drawn(seed: int) -> Case:
    """Draw groups, some of which cannot be helped beyond a level."""
    rng = np.random.default_rng([seed, 5])
    groups = int(rng.integers(2, 6))
    n = groups * int(rng.integers(2, 6))
    group = np.append(np.arange(groups), rng.integers(0, groups, n - groups))
    change, cost = rng.lognormal(0.0, 0.7, n), rng.lognormal(0.0, 0.5, n)
    rates = change * rng.lognormal(0.0, 0.7, n)
    bounded = (rng.random(groups) < 0.4)[group]
    return Case(
        FORMULAS[seed % 3],
        rng.lognormal(0.0, 0.7, n),
        change,
        cost,
        np.where(rng.random(n) < 0.2, 0.3 * rates, 0.0),
        np.where(bounded, rates, np.inf),
        group,
        float(cost @ rates) * float(rng.uniform(0.5, 1.0)),
    )


def successive(case: Case) -> np.ndarray:
    """Return levels of minimax after minimax by CLARABEL.

    A group with a multiplier cannot do better without another that does worse; its rates are unique and
    stay.
    """
    groups = int(case.group.max()) + 1
    found, budget = np.full(groups, math.nan), case.budget
    while np.isnan(found).any():
        own = np.flatnonzero(np.isnan(found)[case.group])
        rest = np.flatnonzero(np.isnan(found))
        unit, worst, change = cp.Variable(len(own), nonneg=True), cp.Variable(), case.change[own]
        means = (case.group[own] == rest[:, None]) * case.share[own]
        level = means @ atom(case.formula, unit, np.ones(len(own))) <= worst
        limits = [(case.cost[own] * change) @ unit <= budget, unit >= case.lower[own] / change]
        bounded = np.flatnonzero(np.isfinite(case.upper[own]))
        if len(bounded):
            limits.append(unit[bounded] <= (case.upper[own] / change)[bounded])
        program = cp.Problem(cp.Minimize(worst), [level, *limits])
        program.solve(solver=cp.CLARABEL)
        stuck = rest[level.dual_value > 0.5 / groups]
        stuck = stuck if len(stuck) else rest[[int(np.argmax(level.dual_value))]]
        held = np.isin(case.group[own], stuck)
        budget -= float((case.cost[own] * change * unit.value)[held].sum())
        found[stuck] = float(program.value)
    return found


def leximin(count: int, quick: bool) -> Row:
    """Return every group's level beside those of the cone programs."""

    def one(seed: int) -> Row:
        case = drawn(seed)
        sources = fo.Sources(
            case.change, case.weight, refresh_cost=case.cost, min_rate=case.lower, max_rate=case.upper
        )
        fairest = fo.Worst(objective_of(case.formula, case.change), by=case.group, then="next")
        solution = fo.solve(fo.Problem(fairest, sources, case.budget), throw=False)
        proof = solution.certificate
        if proof is None:
            return {"error": solution.note}
        levels, expected = case.levels(solution.rates), successive(case)
        return {
            "certified": proof.gap / float(levels.max()),
            "beside successive minimax": float(np.max(np.abs(levels / expected - 1.0))),
            "limits missed": max(0.0, float(case.cost @ solution.rates) / case.budget - 1.0),
            "passes": solution.iterations,
        }

    band = {"certified": CERTIFIED, "beside successive minimax": SUCCESSIVE, "limits missed": MET}
    return measured("leximin", band, count, one, quick)


LINEAR = 1e-10
# HiGHS ends within 1e-7 of feasibility by default; values then agree to less than this.
HIGHS = 1e-6


def linear(count: int, quick: bool) -> Row:
    """Return random linear programs, a third of them with ties, half of them ill-scaled."""

    def one(seed: int) -> Row:
        rng = np.random.default_rng([seed, 9])
        n, m, ill = 300, int(rng.integers(2, 13)), seed % 2 == 1
        d = 10.0 ** rng.uniform(-5.0, 5.0, n) if ill else rng.lognormal(0.0, 1.0, n)
        w, a = rng.lognormal(0.0, 3.0 if ill else 1.0, n), rng.lognormal(0.0, 1.5 if ill else 0.5, (m, n))
        if seed % 3 == 0:
            # Few kinds of sources: whole groups have one marginal value per unit of every budget.
            kind = rng.integers(0, 12, n)
            d, w, a = d[kind], w[kind], a[:, kind]
        limits = (a @ d) * rng.uniform(0.1, 0.7, m)
        sources = fo.Sources(d, w, signalled=np.ones(n, dtype=np.bool_))
        rows = [
            fo.Budget(float(b), cost=c, name=f"row {j}")
            for j, (b, c) in enumerate(zip(limits, a, strict=True))
        ]
        solution = fo.solve(
            fo.Problem(BinaryFreshness(), sources, constraints=rows), InteriorPoint(), throw=False
        )
        proof = solution.certificate
        if proof is None:
            return {"error": solution.note}
        y = np.array([solution.prices[f"row {j}"] for j in range(m)])
        lost = float(np.sum(w * (1.0 - solution.rates / d)))
        # Over ρ/Δ; the loss is Σ w less what is fresh.
        other = linprog(
            -w, A_ub=a * d / limits[:, None], b_ub=np.ones(m), bounds=[(0.0, 1.0)] * n, method="highs"
        )
        size = lost + float(y @ limits)
        return {
            "certified": proof.gap / size,
            "beside HiGHS": abs(lost - float(np.sum(w) + other.fun)) / size,
            "limits missed": max(0.0, float(np.max(a @ solution.rates / limits - 1.0))),
            "passes": solution.iterations,
        }

    band = {"certified": LINEAR, "beside HiGHS": HIGHS, "limits missed": MET}
    return measured("linear programs", band, count, one, quick)
