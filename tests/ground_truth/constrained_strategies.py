"""Random problems with declared constraints, and the same written in CVXPY by hand.

Three costs are known in closed form: Δ/ρ, log(1 + Δ/ρ), and Δ/(Δ + ρ), the stale share. Constraints are
budgets in units of their own, over groups or all sources, and bounds on the mean of one of the costs.
"""

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

import freshopt as fo
from tests.ground_truth.named import BINARY, DELAY, HARMONIC

Floats = npt.NDArray[np.float64]
COSTS = {
    "delay": DELAY,
    "harmonic": HARMONIC,
    "stale": BINARY,
}


def cost_of(kind: str, rate: cp.Expression, d: Floats) -> cp.Expression:
    """Return the cost of each source, in cones."""
    if kind == "delay":
        return cp.multiply(d, cp.inv_pos(rate))
    if kind == "harmonic":
        return cp.logistic(np.log(d) - cp.log(rate))
    return cp.multiply(d, cp.inv_pos(rate + d))


@dataclass(frozen=True)
class Drawn:
    """One problem, drawn: as the library takes it, and in CVXPY."""

    problem: fo.Problem
    change_rate: Floats
    importance: Floats
    objective: str
    # Kind, members, coefficients or importances, limit: of Σ a·ρ ≤ limit where the kind is "budget".
    rows: tuple[tuple[str, Floats, Floats, float], ...]
    benign: bool

    def constraints(self, rate: cp.Expression) -> list[Any]:
        found = []
        for kind, member, weight, limit in self.rows:
            if kind == "budget":
                found.append((member * weight) @ rate <= limit)
            else:
                share = member * weight / np.sum(member * weight)
                found.append(share @ cost_of(kind, rate, self.change_rate) <= limit)
        return found

    def program(self) -> tuple[Any, Any]:
        """Return the CVXPY problem and its variable."""
        rate = cp.Variable(len(self.change_rate), nonneg=True)
        value = self.importance @ cost_of(self.objective, rate, self.change_rate)
        return cp.Problem(cp.Minimize(value), self.constraints(rate)), rate


@st.composite
def constrained_problems(draw: st.DrawFn, *, benign: bool | None = None, largest: int = 7) -> Drawn:
    """Draw a problem, feasible or not: benign numbers or over ten decades, ties, groups of one source."""
    n = draw(st.integers(1, largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    tame = draw(st.booleans()) if benign is None else benign
    d = rng.lognormal(size=n) if tame else 10.0 ** rng.uniform(-6.0, 4.0, n)
    w = rng.lognormal(size=n) if tame else rng.lognormal(0.0, 3.0, n)
    if draw(st.booleans()):
        d[:], w[:] = d[rng.integers(0, n, n)], w[rng.integers(0, n, n)]
    kind = draw(st.sampled_from(sorted(COSTS)))
    budget = float(np.sum(d)) * draw(st.sampled_from([0.05, 0.5, 5.0]))
    everyone = np.ones(n)
    rows = [("budget", everyone, everyone, budget)]
    declared: list[Any] = [fo.Budget(budget, name="pages")]
    spread = 1.0 if tame else 1.5
    reference = 0.9 * budget * d / np.sum(d)
    for k in range(draw(st.integers(0, 2))):
        cost = rng.lognormal(0.0, spread, n)
        group = np.where(rng.random(n) < 0.5, "p", "q") if draw(st.booleans()) else np.full(n, "p")
        group[0] = "p"
        limits = {
            str(g): float(np.sum((cost * reference)[group == g])) * draw(st.sampled_from([0.3, 0.8, 1.5]))
            for g in np.unique(group)
        }
        rows += [("budget", (group == g) * 1.0, cost, limit) for g, limit in limits.items()]
        declared.append(fo.Budget(limits, cost=cost, by=group, name=f"unit {k}"))
    for k in range(draw(st.integers(0, 2))):
        target = draw(st.sampled_from(sorted(COSTS)))
        member = np.ones(n) if draw(st.booleans()) else (np.arange(n) % 2 == 0) * 1.0
        by = np.where(member > 0.0, "in", "out")
        share = member * w / np.sum(member * w)
        reached = float(share @ _cost(target, reference, d))
        limit = reached * draw(st.sampled_from([0.6, 1.1, 2.0]))
        if target == "stale":
            limit = min(limit, 0.999)
            given: dict[str, Any] = {"at_least": {"in": 1.0 - limit}}
        else:
            given = {"at_most": {"in": limit}}
        rows.append((target, member, w, limit))
        declared.append(fo.Target(COSTS[target], by=by, name=f"target {k}", **given))
    problem = fo.Problem(COSTS[kind], fo.Sources(d, w), constraints=declared)
    return Drawn(problem, d, w, kind, tuple(rows), tame)


def _cost(kind: str, rate: Floats, d: Floats) -> Floats:
    if kind == "delay":
        return np.asarray(d / rate)
    return np.asarray(np.log1p(d / rate) if kind == "harmonic" else d / (d + rate))
