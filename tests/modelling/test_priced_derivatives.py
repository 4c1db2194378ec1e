"""Derivatives of optima beside costs of sums, and ties beside them: against optima solved anew and CVXPY."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.numerics.arrays import Array

N = 12
BY = np.arange(N) % 3
TIES = ["a", "a", "b", "b", None, None, None, None, None, None, "c", "c"]
RULES: dict[str, Callable[[], list[Any]]] = {
    "smooth cost of all": lambda: [fo.Priced(fo.Budget(), lambda u: 0.02 * cp.power(u, 1.5))],
    "on a step": lambda: [fo.Priced(fo.Budget(), {0: 0.02, 7: 0.9})],
    "between steps": lambda: [fo.Priced(fo.Budget(), {0: 0.2, 70: 0.9})],
    "bytes": lambda: [fo.Priced(fo.Budget(cost=1.0 + BY, name="bytes"), lambda u: 0.01 * cp.square(u))],
    "fair groups": lambda: [fo.Priced(fo.Budget(by=BY), lambda u: -2.0 * cp.log(u))],
    "steps of groups": lambda: [fo.Priced(fo.Budget(by=BY), {0: 0.05, 2: 0.3, 4: 1.0})],
    "both": lambda: [
        fo.Priced(fo.Budget(), lambda u: 0.02 * cp.square(u)),
        fo.Priced(fo.Budget(by=BY, name="groups"), lambda u: 3.0 * cp.exp(-u)),
    ],
}
BOUNDED = {"smooth cost of all", "on a step", "between steps", "bytes", "steps of groups", "both"}
# Central differences of optima that are exact to 1e-13, over steps of 1e-4.
STEP, NEAR = 1e-4, 2e-6


def declared(name: str, ties: bool, data: tuple[Array, Array, Array]) -> fo.Problem:
    """Return the problem of importances, change rates and refresh costs."""
    weight, speed, dear = data
    rules = RULES[name]() + ([fo.Tied(TIES)] if ties else [])
    kind = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
    own = fo.Sources(speed, importance=weight, refresh_cost=dear)
    return fo.Problem(kind, own, None if name in BOUNDED else 9.0, constraints=rules)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_derivatives_beside_costs_of_sums(name: str, ties: bool) -> None:
    rng = np.random.default_rng(4)
    data = rng.lognormal(0.0, 0.7, N), rng.lognormal(0.0, 0.7, N), rng.lognormal(0.0, 0.3, N)
    ways = [rng.normal(size=N) * one for one in data]
    solution = fo.solve(declared(name, ties, data))
    at = solution.sensitivity()
    assert at.degenerate == 0
    change = at.jvp(importance=ways[0], change_rate=ways[1], refresh_cost=ways[2])
    ends = []
    for step in (STEP, -STEP):
        weight, speed, dear = (one + step * way for one, way in zip(data, ways, strict=True))
        ends.append(fo.solve(declared(name, ties, (weight, speed, dear))))
    slope = (ends[0].rates - ends[1].rates) / (2.0 * STEP)
    np.testing.assert_allclose(change.rates, slope, rtol=NEAR, atol=NEAR * np.abs(slope).max())
    assert change.value == pytest.approx((ends[0].value - ends[1].value) / (2.0 * STEP), rel=NEAR)
    for label, price in solution.prices.items():
        moved = (ends[0].prices[label] - ends[1].prices[label]) / (2.0 * STEP)
        assert change.prices[label] == pytest.approx(moved, rel=1e-4, abs=1e-5 * price + 1e-9)
    # What is pulled back is what is pushed forward.
    felt = rng.normal(size=N)
    back = at.vjp(rates=felt, value=0.7)
    pulled = back.importance @ ways[0] + back.change_rate @ ways[1] + back.refresh_cost @ ways[2]
    assert float(pulled) == pytest.approx(float(felt @ change.rates) + 0.7 * change.value, rel=1e-9)


@pytest.mark.parametrize("name", RULES)
def test_ties_beside_costs_of_sums(name: str) -> None:
    rng = np.random.default_rng(7)
    data = rng.lognormal(0.0, 1.5, N), rng.lognormal(0.0, 1.5, N), rng.lognormal(0.0, 0.3, N)
    problem = declared(name, True, data)
    solution = fo.solve(problem)
    assert solution.value == pytest.approx(problem.to_cvxpy().solve(solver="CLARABEL"), rel=1e-6)
    assert solution.certificate.relative_gap < 1e-11
    for label in "abc":
        own = [k for k, tie in enumerate(TIES) if tie == label]
        assert len(set(solution.rates[own].tolist())) == 1
    # Others are proved no better, and what is apart is no solution.
    for prices in (None, solution.prices):
        proof = fo.certify(problem, solution.rates * 0.9, prices=prices)
        assert proof.value - solution.value <= proof.gap * (1.0 + 1e-9)
    with pytest.raises(AssertionError, match="apart from its bundle"):
        fo.testing.assert_optimal(problem, solution.rates * np.where(np.arange(N) == 0, 0.5, 1.0), 1e-6)
