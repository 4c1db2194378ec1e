"""Exact dual solver of nested or disjoint targets at the least cost.

Minimise Σ price_k·ρ_k subject to Σ_{k∈a} c_k·J_k(ρ_k) ≤ s_a for groups a that are nested or disjoint: the
mirror image of `freshopt.dual_search.nested_prices`. A group meets its target from a multiplier θ_a on, and a
source has the largest multiplier of the groups around it: if an inner group already does more than the outer
one asks for, the outer multiplier decides elsewhere. So each group, from the leaves to the root, is searched
between the rates that the groups inside it have left, and the rates found are lower bounds for the groups
around it.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.dual_search.target_search import TargetGroups, meet_targets
from freshopt.errors import InfeasibleProblemError
from freshopt.numerics.arrays import ROUNDED, Array, BoolArray, IntArray
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.program import Program


def fill_nested_targets(program: Program, tree: LaminarTree) -> tuple[Array, Array, int]:
    """Return the cheapest rates that meet all targets, multipliers, and evaluations.

    - `program`: Its objective is linear, with a positive price of every rate, and its rows are the tree's.
    - `tree`: Of one curve; ``LaminarTree.from_rows(program.rows)``.
    - returns `rates` (n,)
    - returns `multipliers` (m,)
    - returns `evaluations`: Passes over all sources.
    - raises InfeasibleProblemError if upper bounds do not let a group meet its target.
    """
    if program.numerics is None:
        raise ValueError("the program has no objective, so that all multipliers are 0. Pass numerics.")
    order, nesting = tree.nesting.order, tree.nesting
    # −f', which is the same everywhere.
    price = -program.numerics.marginal(program.typical)[order]
    curve = program.rows.curves[tree.kind - 1].take(order)
    weight, typical = tree.cost[order], program.typical[order]
    lower, upper = program.lower[order], program.upper[order]
    theta, evaluated = np.zeros(len(tree)), 0.0
    for which in tree.bounded_heights():
        size = nesting.end[which] - nesting.begin[which]
        offset = np.cumsum(size) - size
        place = np.repeat(nesting.begin[which] - offset, size) + np.arange(int(np.sum(size)))
        groups = TargetGroups(
            curve.take(place),
            weight[place],
            price[place],
            lower[place],
            upper[place],
            typical[place],
            np.repeat(np.arange(len(which)), size),
            len(which),
        )
        found = meet_targets(groups, tree.limit[which])
        theta[which], lower[place] = found.multipliers, found.rates
        evaluated += found.evaluated
        full = np.isinf(found.multipliers)
        if bool(np.any(full)):
            _require_met(tree, which, groups, found.rates, full)
            theta[which[full]] = _edges(groups, found.rates)[full]
    rates = np.empty(len(order))
    rates[order] = lower
    paid = tree.paid(theta, np.full(len(tree), np.inf))
    return rates, tree.multipliers(paid), math.ceil(evaluated / max(1, len(order)))


def _require_met(
    tree: LaminarTree, which: IntArray, groups: TargetGroups, rates: Array, full: BoolArray
) -> None:
    """Raise InfeasibleProblemError where upper bounds miss a target by more than rounding."""
    cost, target = groups.cost(rates), tree.limit[which]
    missed = np.flatnonzero(full & ~(cost <= target + 2.0 * ROUNDED * np.abs(target)))
    if len(missed):
        one = missed[0]
        raise InfeasibleProblemError(
            f"{tree.labels[tree.limit_row[which[one]]]!r} asks for at most {target[one]:g} and max_rate "
            f"leaves {cost[one]:g}. No rates meet it. Raise the target to that, or raise max_rate."
        )


def _edges(groups: TargetGroups, rates: Array) -> Array:
    """Return the least multipliers at which sources take their upper bounds."""
    with np.errstate(all="ignore"):
        each = groups.price / (groups.weight * groups.curve.marginal(rates))
    moving = np.isfinite(each) & (groups.upper > groups.lower)
    found = np.zeros(groups.count)
    np.maximum.at(found, groups.code[moving], each[moving])
    return found
