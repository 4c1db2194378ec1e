"""Random forests of ratios, and independent checks of the optimality of given rates.

Nothing here imports freshopt. Sources are in any order; a parent of −1 is none.
"""

from dataclasses import dataclass

import numpy as np

from tests.ground_truth import curves
from tests.ground_truth.nested_truth import TINY, Drawn, Ints, marginal
from tests.ground_truth.nested_truth import Floats as Floats
from tests.ground_truth.nested_truth import total_cost as total_cost


@dataclass(frozen=True)
class Trees(Drawn):
    """Sources, each with at most one parent and a ratio, and one budget."""

    parent: Ints
    ratio: Floats
    budget: float


def trees(
    seed: int, curve: str, shape: str, *, ill: bool, n: int | None = None, bounds: bool = True
) -> Trees:
    """Draw a feasible instance: bounds and the budget around random feasible rates."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 200)) if n is None else n
    if shape == "chain":
        above = np.arange(n) - 1
    elif shape == "star":
        above = np.where(np.arange(n) == 0, -1, 0)
    else:
        above = np.floor(rng.random(n) * (np.arange(n) + 1)).astype(np.int64) - 1
    weight = rng.lognormal(0.0, 3.0 if ill else 1.0, n)
    weight[rng.random(n) < 0.05] = 0.0
    weight[0] = 1.0
    change = 10.0 ** rng.uniform(-5.0, 5.0, n) if ill else rng.lognormal(0.0, 1.0, n)
    cost = rng.lognormal(0.0, 1.5, n) if ill else rng.choice([1.0, 0.5, 2.0, 1.7], n)
    ratio = rng.lognormal(0.0, 1.5 if ill else 0.7, n)
    rates = change * rng.lognormal(0.0, 1.0, n)
    if curve == "jump":
        rates = np.minimum(rates, change)
    for k in range(n):
        if above[k] >= 0:
            rates[k] = min(rates[k], 0.9 * ratio[k] * rates[above[k]])
    lower = np.where(rng.random(n) < 0.1, 0.5 * rates, 0.0) if bounds else np.zeros(n)
    upper = np.where(rng.random(n) < 0.1, 1.5 * rates, np.inf) if bounds else np.full(n, np.inf)
    if curve == "jump":
        upper = np.minimum(upper, change)
    shuffled = rng.permutation(n)
    parent = np.full(n, -1, dtype=np.int64)
    parent[shuffled] = np.where(above >= 0, shuffled[above], -1)
    place = np.empty(n, dtype=np.int64)
    place[shuffled] = np.arange(n)
    budget = float(np.sum(cost * rates)) * rng.uniform(0.7, 1.0) + float(np.sum(cost * lower))
    return Trees(
        curve,
        weight[place],
        change[place],
        cost[place],
        lower[place],
        upper[place],
        parent,
        ratio[place],
        budget,
    )


def response(case: Trees, price: Floats) -> Floats:
    """The best response to a price, in closed form, within bounds."""
    plain = np.where(price > 0.0, curves.responses(case.curve, case.weight, case.change, price), np.inf)
    most = np.minimum(case.upper, case.budget / case.cost)
    found: Floats = np.clip(plain, case.lower, np.maximum(case.lower, most))
    return found


@dataclass(frozen=True)
class Residuals:
    """Largest relative violations, and the relative duality gap that multipliers prove."""

    budget: float
    ratios: float
    bounds: float
    gap: float


def residuals(case: Trees, rates: Floats, price: float, eta: Floats) -> Residuals:
    """Check rates against the budget's multiplier and those of the ratios, 0 for roots."""
    child = np.flatnonzero(case.parent >= 0)
    above = case.parent[child]
    allowed = case.ratio[child] * rates[above]
    paid = price * case.cost
    np.add.at(paid, child, eta[child])
    np.add.at(paid, above, -case.ratio[child] * eta[child])
    slope = paid - marginal(case, rates)
    each = np.abs(slope) * np.abs(response(case, paid) - rates)
    used = float(np.sum(case.cost * rates))
    slack = abs(price * (case.budget - used)) + float(np.sum(eta[child] * np.abs(allowed - rates[child])))
    size = max(total_cost(case, rates) + price * case.budget, TINY)
    return Residuals(
        used / case.budget - 1.0,
        float(np.max((rates[child] - allowed) / np.maximum(allowed, TINY), initial=0.0)),
        float(max(np.max(case.lower - rates), np.max(rates - case.upper), 0.0)),
        (float(np.sum(each)) + slack) / size,
    )


def pooled(case: Trees, price: float) -> Floats:
    """Rates at a price by minimum violators (Thompson 1962), every pool by bisection; no bounds of rates."""
    n = len(case.weight)
    scale = np.ones(n)
    for k in range(n):
        node = k
        while case.parent[node] >= 0:
            scale[k] *= case.ratio[node]
            node = int(case.parent[node])
    pool = np.arange(n)

    def level(members: Ints) -> float:
        low, high = -300.0, 300.0
        for _ in range(80):
            middle = 0.5 * (low + high)
            rates = np.ones(n)
            rates[members] = np.exp(middle) * scale[members]
            slope = (price * case.cost - marginal(case, rates))[members]
            low, high = (middle, high) if np.sum(scale[members] * slope) < 0.0 else (low, middle)
        return 0.5 * (low + high)

    levels = np.array([level(np.array([k])) for k in range(n)])
    while True:
        worst, which = 0.0, -1
        for k in range(n):
            # The violator with the highest level joins its parent's pool.
            outside = case.parent[k] >= 0 and pool[k] != pool[case.parent[k]]
            if outside and levels[k] > levels[case.parent[k]] and (which < 0 or levels[k] > worst):
                worst, which = float(levels[k]), k
        if which < 0:
            found: Floats = np.exp(levels) * scale
            return found
        members = np.flatnonzero((pool == pool[which]) | (pool == pool[case.parent[which]]))
        pool[members] = pool[case.parent[which]]
        levels[members] = level(members)
