"""Planted instances of the tests as declared problems: names and arrays, no formulas of freshopt."""

import math
from typing import Any

import cvxpy as cp
import numpy as np

import freshopt as fo
from freshopt import problems
from freshopt.cvx import Expression
from freshopt.modelling.objective import Refresh
from tests.ground_truth.nested_truth import Forest
from tests.ground_truth.planted_rows import POWER, Planted
from tests.ground_truth.row_truth import Planted as Mixed


def objective_of(formula: str, d: np.ndarray) -> fo.Objective:
    """Return the objective whose cost is the formula."""
    if formula == "power":
        # The Poisson cell of a·s^e is Γ(1+e)·a·ρ^−e.
        return problems.SynchronizationCost(
            problems.PowerCost(d / math.gamma(1.0 + POWER), POWER), fo.Refresh.POISSON
        )
    return {
        "rate": fo.Spend(),
        "harmonic": problems.HarmonicStaleness(Refresh.POISSON),
        "delay": problems.AccumulatedDelay(Refresh.POISSON),
        "binary": problems.BinaryFreshness(Refresh.POISSON),
    }[formula]


def atom(formula: str, rate: Expression, d: np.ndarray) -> Expression:
    """Return a formula in CVXPY, as a user writes it."""
    return {
        "rate": lambda: rate,
        "harmonic": lambda: cp.logistic(np.log(d) - cp.log(rate)),
        "delay": lambda: cp.multiply(d, cp.inv_pos(rate)),
        "binary": lambda: cp.inv_pos(1.0 + cp.multiply(1.0 / d, rate)),
        "tail": lambda: cp.exp(-cp.multiply(1.0 / d, rate)),
    }[formula]()


def sources_of(formula: str, p: Planted | Mixed, weight: np.ndarray) -> fo.Sources:
    """Return the sources; a spend's weights are costs of a refresh."""
    if formula == "rate":
        return fo.Sources(p.d, refresh_cost=weight, min_rate=p.lower, max_rate=p.upper)
    return fo.Sources(p.d, weight, min_rate=p.lower, max_rate=p.upper)


def planted_problem(p: Planted) -> fo.Problem:
    """Return budgets as `fo.Budget`, all other rows as CVXPY inequalities, labelled "row j".

    A limit of 0, which stops all sources of its row, is no budget.
    """
    rows = list(enumerate(zip(p.formulas, p.coefficients, p.limits, strict=True)))
    budgets = [
        fo.Budget(float(b), cost=a, name=f"row {j}") for j, (t, a, b) in rows if t == "rate" and b > 0.0
    ]

    def others(rate: Expression) -> list[Expression]:
        return [
            (a @ atom(t, rate, p.d) <= b).set_label(f"row {j}")
            for j, (t, a, b) in rows
            if t != "rate" or b <= 0.0
        ]

    constraints: list[Any] = [*budgets]
    if len(budgets) < len(rows):
        constraints.append(others)
    return fo.Problem(
        objective_of(p.objective, p.d), sources_of(p.objective, p, p.weight), constraints=constraints
    )


def mixed_problem(p: Mixed, kept: np.ndarray | None = None) -> fo.Problem:
    """Return rows that may add several formulas as CVXPY inequalities, labelled "rowj"."""
    chosen = range(len(p.limits)) if kept is None else kept.tolist()

    def rows(rate: Expression) -> list[Expression]:
        found = []
        for j in chosen:
            parts = [
                m[j] @ atom(t, rate, p.d) for t, m in zip(p.types, p.matrices, strict=True) if m[j].any()
            ]
            # A row without sources says 0 ≤ 0.
            if parts:
                found.append((sum(parts[1:], parts[0]) <= p.limits[j]).set_label(f"row{j}"))
        return found

    return fo.Problem(objective_of(p.objective, p.d), sources_of(p.objective, p, p.w), constraints=[rows])


def levels_of(member: np.ndarray) -> list[list[Any]]:
    """Return the groups of a laminar family as labels of each source, innermost level first.

    A group's level is the number of groups that hold it.
    """
    inside = (member.astype(np.int64) @ member.T == member.sum(axis=1)[:, None]) & ~np.eye(
        len(member), dtype=bool
    )
    # Of equal sets the later one is the outer.
    equal = inside & inside.T
    inside &= ~(equal & (np.arange(len(member))[:, None] > np.arange(len(member))))
    depth = inside.sum(axis=1)
    levels = []
    for level in range(int(depth.max()), -1, -1):
        labels: list[Any] = [None] * member.shape[1]
        for group in np.flatnonzero(depth == level):
            for k in np.flatnonzero(member[group]):
                labels[k] = int(group)
        levels.append(labels)
    return levels


CURVES: dict[str, fo.Objective] = {
    "harmonic": problems.HarmonicStaleness(Refresh.POISSON),
    "delay": problems.AccumulatedDelay(Refresh.POISSON),
    "binary": problems.BinaryFreshness(Refresh.POISSON),
    "jump": problems.BinaryFreshness(Refresh.POISSON),
}


def forest_sources(case: Forest, *, importance: np.ndarray | None = None) -> fo.Sources:
    """Return a forest's sources; freshness of those that announce their changes is linear."""
    return fo.Sources(
        case.change,
        case.weight if importance is None else importance,
        refresh_cost=case.cost,
        min_rate=case.lower,
        max_rate=case.upper,
        signalled=np.full(len(case.cost), case.curve == "jump"),
    )


def nested_problem(case: Forest) -> fo.Problem:
    """Return limits and reserves on nested groups as `fo.Nested`."""
    limited, reserved = np.flatnonzero(np.isfinite(case.limit)), np.flatnonzero(case.reserve > 0.0)
    tree = fo.Nested(
        levels_of(case.member),
        at_most={int(g): float(case.limit[g]) for g in limited},
        at_least={int(g): float(case.reserve[g]) for g in reserved},
    )
    return fo.Problem(CURVES[case.curve], forest_sources(case), constraints=[tree])


def nested_targets_problem(case: Forest, targets: np.ndarray) -> tuple[fo.Problem, np.ndarray]:
    """Return the cheapest rates under targets on nested groups, and the targets that were declared.

    One `fo.Target` a level; freshness is declared by its mean, which rounds what a target leaves stale.
    """
    objective, constraints, kept = CURVES[case.curve], [], targets.copy()
    total = case.member @ case.weight
    for depth, labels in enumerate(levels_of(case.member)):
        groups = sorted({g for g in labels if g is not None})
        means = {g: float(targets[g] / total[g]) for g in groups}
        name = f"level {depth}"
        if objective.sense == "maximise":
            fresh = {g: 1.0 - mean for g, mean in means.items()}
            kept[groups] = [total[g] * (1.0 - fresh[g]) for g in groups]
            constraints.append(fo.Target(objective, at_least=fresh, by=labels, name=name))
        else:
            constraints.append(fo.Target(objective, at_most=means, by=labels, name=name))
    return fo.Problem(fo.Spend(), forest_sources(case), constraints=constraints), kept
