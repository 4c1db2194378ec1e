"""Random trees of limits and reserves, and an independent check of the optimality of given rates.

Nothing here imports freshopt. A group is the set of its sources, as a row of a boolean matrix.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tests.ground_truth import curves
from tests.ground_truth.curves import Floats as Floats

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
TINY = 1e-300


@dataclass(frozen=True)
class Drawn:
    """Sources of one curve, with bounds."""

    curve: str
    weight: Floats
    change: Floats
    cost: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True)
class Forest(Drawn):
    """Sources, and groups that are nested or disjoint, innermost first; the last holds all sources."""

    member: Bools
    limit: Floats
    reserve: Floats


def tree_of(rng: np.random.Generator, n: int, groups: int, depth: int) -> Bools:
    """Return a random laminar family, smaller sets first; the last is everyone."""
    sets = [np.ones(n, dtype=bool)]
    level = [0]
    open_ = [(np.arange(n), 0)]
    while len(sets) < groups and open_:
        members, deep = open_.pop(int(rng.integers(len(open_))))
        if deep >= depth or len(members) < 2:
            continue
        parts = min(len(members), int(rng.integers(2, 6)))
        code = rng.integers(0, parts + 1, len(members))
        for part in range(parts):
            own = members[code == part]
            if len(own) and len(sets) < groups:
                row = np.zeros(n, dtype=bool)
                row[own] = True
                sets.append(row)
                level.append(deep + 1)
                open_.append((own, deep + 1))
    order = np.argsort(-np.array(level), kind="stable")
    return np.array(sets)[order]


def forest(seed: int, curve: str, *, ill: bool, groups: int | None = None, fixed: float = 0.05) -> Forest:
    """Draw a feasible instance: limits and reserves around what random rates use."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 170)) if groups is None else groups
    n = int(rng.integers(max(1, count), 4 * count + 2))
    member = tree_of(rng, n, count, int(rng.integers(1, 9)))
    weight = rng.lognormal(0.0, 3.0 if ill else 1.0, n)
    weight[rng.random(n) < 0.05] = 0.0
    change = 10.0 ** rng.uniform(-5.0, 5.0, n) if ill else rng.lognormal(0.0, 1.0, n)
    cost = rng.lognormal(0.0, 1.5, n) if ill else rng.choice([1.0, 0.5, 2.0, 1.7], n)
    rates = change * rng.lognormal(0.0, 1.0, n)
    lower = np.where(rng.random(n) < 0.2, 0.5 * rates, 0.0)
    upper = np.where(rng.random(n) < 0.2, 1.5 * rates, np.inf)
    if curve == "jump":
        upper = np.minimum(upper, change)
        rates, lower = np.minimum(rates, change), np.minimum(lower, 0.4 * change)
    rates = np.minimum(np.maximum(rates, lower), upper)
    used = member @ (cost * rates)
    limit = used * np.where(rng.random(len(used)) < 0.7, rng.uniform(1.0, 1.3, len(used)), np.inf)
    reserve = np.where(rng.random(len(used)) < 0.3, used * rng.uniform(0.5, 1.0, len(used)), 0.0)
    limit[-1] = used[-1] * 1.01
    # A share `fixed` of groups is held at one number; what rounding adds to sums stays inside.
    equal = (rng.random(len(used)) < fixed) & (reserve > 0.0)
    limit[equal] = reserve[equal] = used[equal]
    return Forest(curve, weight, change, cost, lower, upper, member, limit, reserve)


def marginal(case: Drawn, rates: Floats) -> Floats:
    """−w·J'(ρ), in closed form."""
    return curves.marginals(case.curve, case.weight, case.change, rates)


def response(case: Forest, price: Floats) -> Floats:
    """The best response to a price, in closed form, within bounds."""
    plain = curves.responses(case.curve, case.weight, case.change, price)
    # No feasible rate exceeds what a limit leaves; else rounding of a price 0 would promise infinity.
    held = np.where(case.member, case.limit[:, None], np.inf)
    most = np.min(held, axis=0, initial=np.inf) / case.cost
    found: Floats = np.clip(plain, case.lower, np.maximum(case.lower, np.minimum(case.upper, most)))
    return found


def costs(case: Drawn, rates: Floats) -> Floats:
    """w·J(ρ), in closed form."""
    return curves.costs(case.curve, case.weight, case.change, rates)


def total_cost(case: Drawn, rates: Floats) -> float:
    return float(np.sum(costs(case, rates)))


@dataclass(frozen=True)
class Residuals:
    """Largest relative violations of the KKT conditions, and the relative duality gap they prove."""

    limits: float
    reserves: float
    bounds: float
    gap: float

    def require(self, rounding: float, gap: float) -> None:
        """Require that no limit, reserve or bound is broken beyond rounding, and a gap."""
        assert max(self.limits, self.reserves) <= rounding
        assert self.bounds <= 0.0
        assert self.gap <= gap


def residuals(case: Forest, rates: Floats, mu: Floats, xi: Floats) -> Residuals:
    """Check rates against multipliers mu ≥ 0 of the limits and xi ≥ 0 of the reserves."""
    used = case.member @ (case.cost * rates)
    price = (mu - xi) @ case.member
    slope = price * case.cost - marginal(case, rates)
    best = response(case, price * case.cost)
    moved = np.abs(best - rates)
    each = np.abs(slope) * moved
    limit = np.where(np.isfinite(case.limit), case.limit, used)
    slack = mu * (limit - used) + xi * (used - case.reserve)
    size = max(total_cost(case, rates) + float(np.sum(mu * limit) + np.sum(xi * case.reserve)), TINY)
    reserved = case.reserve > 0.0
    short = np.where(reserved, 1.0 - used / np.where(reserved, case.reserve, 1.0), 0.0)
    return Residuals(
        float(np.max(used / case.limit - 1.0)),
        float(np.max(short)),
        float(max(np.max(case.lower - rates), np.max(rates - case.upper), 0.0)),
        float((np.sum(each) + np.sum(np.abs(slack))) / size),
    )


def with_targets(case: Forest, seed: int) -> tuple[Forest, Floats]:
    """Return a case, whose limits and reserves mean nothing then, and targets that random rates meet."""
    rng = np.random.default_rng(1000 + seed)
    rates = np.minimum(np.maximum(case.change * rng.lognormal(size=len(case.cost)), case.lower), case.upper)
    each = case.member @ costs(case, rates)
    targets = each * rng.uniform(1.0, 1.5, len(case.member))
    return replace(case, member=case.member[each > 0.0]), targets[each > 0.0]


def target_gap(case: Forest, targets: Floats, rates: Floats, y: Floats) -> float:
    """Return the relative duality gap of the cheapest rates under targets, proved by multipliers y ≥ 0."""
    scaled = replace(case, weight=case.weight * (y @ case.member), limit=np.zeros(0))
    best = response(replace(scaled, member=case.member[:0]), case.cost)
    slope = case.cost - marginal(scaled, rates)
    # Infinite slopes at a rate of 0 that is also the best response add nothing.
    moved = np.abs(best - rates)
    terms = np.where(moved > 0.0, np.abs(slope) * moved, 0.0)
    slack = np.abs(y * (targets - case.member @ costs(case, rates)))
    return float(np.sum(terms) + np.sum(slack)) / float(np.sum(case.cost * rates) + np.sum(y * targets))
