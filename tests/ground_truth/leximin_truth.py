"""Groups that share a budget, and their lexicographic minimax by a sequence of conic programs.

Nothing here imports freshopt.
"""

from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from tests.ground_truth import curves
from tests.ground_truth.nested_truth import Drawn, Floats, Ints

# What the conic solver leaves of a level that it finds with what the levels before it leave of the budget.
SUCCESSIVE = 1e-5
ATOMS = {
    "harmonic": lambda unit: cp.logistic(-cp.log(unit)),
    "delay": cp.inv_pos,
    "binary": lambda unit: cp.inv_pos(unit + 1.0),
}


@dataclass(frozen=True)
class Groups(Drawn):
    """Sources in groups, each of which counts its cost in a unit of its own, under one budget."""

    group: Ints
    unit: Floats
    budget: float

    def levels(self, rates: Floats) -> Floats:
        """Return the groups' costs in their units."""
        each = curves.costs(self.curve, self.weight, self.change, rates)
        return np.asarray(np.bincount(self.group, weights=each) / self.unit, dtype=np.float64)


def drawn(rng: np.random.Generator, curve: str, most: int, *, ill: bool = False) -> Groups:
    """Draw fewer groups than `most`, some of which cannot be helped beyond a level; units are weights."""
    groups = int(rng.integers(2, most))
    n = groups * int(rng.integers(2, most))
    group = np.append(np.arange(groups), rng.integers(0, groups, n - groups))
    change = 10.0 ** rng.uniform(-5.0, 5.0, n) if ill else rng.lognormal(0.0, 0.7, n)
    cost = rng.lognormal(0.0, 1.5 if ill else 0.5, n)
    rates = change * rng.lognormal(0.0, 0.7, n)
    bounded = (rng.random(groups) < 0.4)[group]
    weight = rng.lognormal(0.0, 3.0 if ill else 0.7, n)
    lower = np.where(rng.random(n) < 0.2, 0.3 * rates, 0.0)
    unit = np.asarray(np.bincount(group, weights=weight), dtype=np.float64)
    budget = float(cost @ rates) * float(rng.uniform(0.5, 1.0))
    return Groups(curve, weight, change, cost, lower, np.where(bounded, rates, np.inf), group, unit, budget)


def successive(case: Groups) -> Floats:
    """Minimise the worst level, hold the groups with a multiplier at their rates, and go on with the others.

    A group with a multiplier cannot do better without another that does worse, and its rates are unique.
    """
    groups = len(case.unit)
    found, budget = np.full(groups, np.nan), case.budget
    while np.isnan(found).any():
        own, rest = np.flatnonzero(np.isnan(found)[case.group]), np.flatnonzero(np.isnan(found))
        unit, worst, change = cp.Variable(len(own), nonneg=True), cp.Variable(), case.change[own]
        share = (case.group[own] == rest[:, None]) * case.weight[own] / case.unit[rest, None]
        level = share @ ATOMS[case.curve](unit) <= worst
        limits = [(case.cost[own] * change) @ unit <= budget, unit >= case.lower[own] / change]
        bounded = np.flatnonzero(np.isfinite(case.upper[own]))
        if len(bounded):
            limits.append(unit[bounded] <= (case.upper[own] / change)[bounded])
        program = cp.Problem(cp.Minimize(worst), [level, *limits])
        program.solve(solver=cp.CLARABEL)
        stuck = rest[level.dual_value > 0.5 / groups]
        stuck = stuck if len(stuck) else rest[[int(np.argmax(level.dual_value))]]
        held = np.isin(case.group[own], stuck)
        assert unit.value is not None
        budget -= float(((case.cost[own] * change) * unit.value)[held].sum())
        found[stuck] = float(program.value)
    return found
