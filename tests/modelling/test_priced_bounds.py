"""Sums whose sources are at bounds, that use nothing, or whose whole costs less the more it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.numerics.arrays import Array, IntArray
from tests.modelling.test_priced import DELAY, LONG, Long, sources

BINARY = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
BY = np.arange(24) % 3
# Slope on the left, cost, and the cost as it is declared.
Cost = tuple[Callable[[Any], Any], Callable[[Any], Any], Any]
# Of an interval of 180 in the logarithm of a price: to 1e-17, where values are compared to 1e-9.
HALVINGS = 64


def kink(use: float, below: float, above: float) -> Cost:
    """Return a cost whose slope changes at a use."""
    rise = above - below
    return (
        lambda u: LONG(below) + LONG(rise) * (u > use),
        lambda u: LONG(below) * (u - use) + LONG(rise) * np.maximum(u - use, LONG(0.0)),
        lambda u: below * (u - use) + rise * cp.pos(u - use),
    )


NONE: Cost = (lambda u: LONG(0.0) * u, lambda u: LONG(0.0) * u, None)
GROUPS: dict[str, Cost] = {
    "none": NONE,
    "a wish that is free beyond": kink(8.0, -2.0, 0.0),
    "priced out": kink(1.0, 1e6, 3e6),
    "saturation": (
        lambda u: -LONG(3.0) * np.exp(-u),
        lambda u: LONG(3.0) * np.exp(-u),
        lambda u: 3.0 * cp.exp(-u),
    ),
    "a steep step": kink(2.0, 1e-6, 1e6),
    "near 5": (lambda u: 2.0 * (u - 5.0), lambda u: (u - LONG(5.0)) ** 2, lambda u: cp.square(u - 5.0)),
    "steep": (lambda u: LONG(2e3) * u, lambda u: LONG(1e3) * u * u, lambda u: 1e3 * cp.square(u)),
}
WHOLES: dict[str, Cost] = {
    "none": NONE,
    "a wish": (lambda u: 2.0 * (u - 60.0), lambda u: (u - LONG(60.0)) ** 2, lambda u: cp.square(u - 60.0)),
    "fair": (
        lambda u: LONG(-40.0) / u if u > 0.0 else -LONG(np.inf),
        lambda u: LONG(-40.0) * np.log(u),
        lambda u: -40.0 * cp.log(u),
    ),
    "a steep step": kink(9.0, 1e-6, 1e6),
    "priced out": kink(1.0, 1e5, 1e7),
}


def rates_at(objective: object, own: fo.Sources, price: Long) -> Long:
    """Return best responses to prices of a unit's cost."""
    with np.errstate(all="ignore"):
        change, cost = LONG(own.change_rate), LONG(own.refresh_cost)
        root = np.sqrt(LONG(own.importance) * change / (price * cost))
        free = root if objective is DELAY else np.maximum(root - change, LONG(0.0))
    found: Long = np.clip(free, LONG(own.min_rate), LONG(own.max_rate))
    return found


def optimum(objective: object, own: fo.Sources, group: Cost, whole: Cost, bandwidth: float) -> Any:  # noqa: ANN401
    """Return the least cost by bisection in the price outside, and in the groups' prices for each."""
    cost = LONG(own.refresh_cost)

    def of_groups(price: Long) -> Long:
        used: Long = (cost * rates_at(objective, own, price[BY])).reshape(-1, 3).sum(axis=0)
        return used

    def rates(outside: Any) -> Long:  # noqa: ANN401
        low, high = np.full((2, 3), LONG(-90.0)) * np.array([[1], [-1]])
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            dear = np.exp(middle) > outside + group[0](of_groups(np.exp(middle)))
            low, high = np.where(dear, low, middle), np.where(dear, middle, high)
        return rates_at(objective, own, np.exp(high)[BY])

    def too_dear(outside: Any) -> bool:  # noqa: ANN401
        used = np.sum(cost * rates(outside))
        return bool(used <= bandwidth and outside > whole[0](used))

    sign, (low, high) = -1.0 if too_dear(LONG(0.0)) else 1.0, (LONG(-90.0), LONG(90.0))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = too_dear(sign * np.exp(middle)) == (sign > 0.0)
        low, high = (low, middle) if above else (middle, high)
    best = rates(sign * np.exp(high))
    used = np.array([np.sum((cost * best)[k == BY]) for k in range(3)])
    work, change = LONG(own.importance) * LONG(own.change_rate), LONG(own.change_rate)
    own_cost = np.sum(work / best) if objective is DELAY else np.sum(work / (best + change))
    return own_cost + np.sum(group[1](used)) + whole[1](np.sum(used))


PAIRS = [(group, whole) for group in GROUPS for whole in WHOLES if group != "none" or whole != "none"]


@pytest.mark.sampled(29)
@pytest.mark.parametrize("spread", [0.0, 3.0])
@pytest.mark.parametrize("objective", [DELAY, BINARY], ids=["delay", "binary"])
@pytest.mark.parametrize("bandwidth", [3.0, 1e7])
@pytest.mark.parametrize(("group", "whole"), PAIRS)
def test_sums_at_the_bounds_of_their_sources(
    group: str, whole: str, bandwidth: float, objective: fo.Objective, spread: float
) -> None:
    given = sources(24, spread)
    own = fo.Sources(
        given.change_rate,
        importance=given.importance,
        refresh_cost=given.refresh_cost,
        max_rate=np.where(np.arange(24) % 2, 4.0, 0.5) * given.change_rate,
    )
    rules = [
        fo.Priced(fo.Budget(by=by, name=name), cost[2])
        for by, name, cost in ((BY, "groups", GROUPS[group]), (None, "whole", WHOLES[whole]))
        if cost[2] is not None
    ]
    solution = fo.solve(fo.Problem(objective, own, bandwidth, constraints=rules))
    value = optimum(objective, own, GROUPS[group], WHOLES[whole], bandwidth)
    worth = LONG(0.0) if objective is DELAY else np.sum(LONG(own.importance))
    found = LONG(solution.value) if objective is DELAY else worth - LONG(solution.value)
    size = max(1.0, abs(float(value)))
    # Two steps of 1e12 at once may leave it to the general search, as uses next to them prove too little.
    assert "the price of each sum" in solution.note or group == whole == "a steep step"
    assert solution.iterations <= 60
    assert float(found) == pytest.approx(float(value), rel=1e-9, abs=1e-9 * size)
    assert solution.certificate.relative_gap < 1e-9
    assert float(found - value) <= solution.certificate.gap + 1e-8 * size
    assert solution.bandwidth_used <= bandwidth * (1.0 + 1e-14)


def declared_by_hand(
    own: fo.Sources, bundle: IntArray, costs: list[tuple[Array, IntArray, Any]], limit: float
) -> float:
    """Return CVXPY's optimum of the delay, a bundle's cost in a sum being its dearest source's."""
    rate, value, rules = cp.Variable(len(own)), 0.0, []
    for source in range(1, len(own)):
        if bundle[source] == bundle[source - 1]:
            rules.append(rate[source] == rate[source - 1])
    for cost, members, price in costs:
        dearest = [
            max(members[bundle[members] == b], key=lambda k: cost[k]) for b in np.unique(bundle[members])
        ]
        used = cost[dearest] @ rate[dearest]
        value = value + price(used)
        rules.append(used <= limit)
    delay = cp.sum(cp.multiply(own.importance * own.change_rate, cp.inv_pos(rate)))
    return float(cp.Problem(cp.Minimize(delay + value), rules).solve(solver="CLARABEL"))


@pytest.mark.parametrize("limit", [None, 4.0])
def test_costs_of_sums_beside_ties_that_are_charged_once(limit: float | None) -> None:
    own, bundle = sources(24, 1.0), np.arange(24) // 3
    by, other = bundle % 2, sources(24, 1.0, 5).change_rate
    tied = fo.Tied(bundle, cost="once")
    groups = fo.Priced(fo.Budget(limit, by=by, name="groups"), {0: 0.1, 2: 1.0})
    kilobytes = fo.Priced(fo.Budget(limit, cost=other, name="kB"), lambda u: 0.05 * cp.square(u))
    every, most = np.arange(24), np.inf if limit is None else limit
    step, square = lambda u: 0.1 * u + 0.9 * cp.pos(u - 2.0), lambda u: 0.05 * cp.square(u)
    halves = [(own.refresh_cost, np.flatnonzero(by == k), step) for k in (0, 1)]
    for rule, costs in ((groups, halves), (kilobytes, [(other, every, square)])):
        problem = fo.Problem(DELAY, own, constraints=[tied, rule])
        solution = fo.solve(problem)
        assert "the price of each sum" in solution.note
        assert solution.certificate.relative_gap < 1e-12
        value = declared_by_hand(own, bundle, costs, 1e9 if np.isinf(most) else most)
        assert solution.value == pytest.approx(value, rel=1e-6)
        assert problem.to_cvxpy().solve(solver="CLARABEL") == pytest.approx(value, rel=1e-6)
        cones = fo.solve(problem, fo.solvers.Conic(), throw=False)
        assert cones.value == pytest.approx(value, rel=1e-6)
        assert cones.certificate.relative_gap < 1e-7


@pytest.mark.parametrize("bandwidth", [None, 5.0])
def test_rates_of_others_are_proved_where_sums_are_beyond_the_last_step(bandwidth: float | None) -> None:
    own = sources(24, 1.0)
    steps = fo.Priced(fo.Budget(by=np.arange(24) % 2, name="groups"), {0: 0.1, 2: 1.0})
    problem = fo.Problem(DELAY, own, bandwidth, constraints=[steps])
    solution = fo.solve(problem)
    # A price by least squares is the last slope to rounding, beyond which the dual function is infinite.
    near = fo.certify(problem, solution.rates * (1.0 - 1e-9))
    assert near.bound == pytest.approx(solution.value, rel=1e-8)
    assert near.bound <= solution.value * (1.0 + 1e-12)


def test_a_step_so_steep_that_one_ulp_more_costs_more_than_all() -> None:
    own = fo.Sources([1.0, 2.0], importance=[0.5, 1.0])
    steps = fo.Priced(fo.Budget(), {0.0: 0.0, 0.1 + 0.2: 1e9})
    solution = fo.solve(fo.Problem(BINARY, own, 5.0, constraints=steps))
    assert solution.certificate.relative_gap < 1e-12
    assert solution.bandwidth_used == pytest.approx(0.3, rel=1e-14)


def test_reserves_and_a_bandwidth_are_met_at_once_to_rounding() -> None:
    own, by = sources(3000, 0.5), np.arange(3000) % 6
    least = {k: 0.9 * float(own.refresh_cost[by == k] @ own.change_rate[by == k]) for k in (0, 3)}
    held = fo.Budget(by=by, at_least=least, name="held")
    steps = fo.Priced(fo.Budget(by=by, name="steps"), lambda u: 1e-3 * cp.square(cp.pos(u - 1.0)))
    bandwidth = 1.3 * sum(least.values())
    solution = fo.solve(fo.Problem(BINARY, own, bandwidth, constraints=[held, steps]))
    assert "the price of each sum" in solution.note
    assert solution.certificate.relative_gap < 1e-12
    assert solution.bandwidth_used == pytest.approx(bandwidth, rel=1e-14)
