"""Costs of what groups use, beside a bandwidth or a cost of all use: against bisection and CVXPY."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from tests.ground_truth.refusals import present
from tests.modelling.test_priced import COSTS, DELAY, LONG, STEPS, Long, sources, tariff

GROUPS: dict[str, tuple[fo.Budget, Any]] = {
    "power": (fo.Budget(by=np.arange(30) % 3), lambda u: 0.02 * cp.square(u)),
    "steps": (fo.Budget(by=np.arange(30) % 3), {0: 0.01, 2: 0.3, 6: 2.0}),
    "limits": (fo.Budget({0: 2.0, 1: 5.0}, by=np.arange(30) % 3), 0.1),
    "a reserve": (fo.Budget(by=np.arange(30) % 3, at_least=3.5), {0: 0.5, 3: 0.7}),
    "fair below a limit": (fo.Budget({0: 2.0, 2: 3.0}, by=np.arange(30) % 3), lambda u: -5.0 * cp.log(u)),
    "fair": (fo.Budget(by=np.arange(30) % 3), lambda u: -5.0 * cp.log(u)),
    "saturation": (fo.Budget(by=np.arange(30) % 3), lambda u: 8.0 * cp.exp(-u)),
    "near 5": (fo.Budget(by=np.arange(30) % 3), lambda u: cp.square(u - 5.0)),
    "within a band": (fo.Budget(by=np.arange(30) % 3), lambda u: 3.0 * cp.maximum(4.0 - u, 0.0, u - 6.0)),
}


@pytest.mark.parametrize("objective", [pytest.param("harmonic", marks=pytest.mark.exhaustive), "binary"])
@pytest.mark.parametrize("name", GROUPS)
def test_costs_of_groups_beside_a_bandwidth(name: str, objective: str) -> None:
    budget, cost = GROUPS[name]
    kind = {"harmonic": fo.problems.HarmonicStaleness, "binary": fo.problems.BinaryFreshness}[objective]
    own = fo.Sources(sources(30, 1.0).change_rate, importance=sources(30, 1.0, 1).change_rate)
    problem = fo.Problem(kind(fo.Refresh.POISSON), own, 12.0, constraints=[fo.Priced(budget, cost)])
    solution = fo.solve(problem)
    value = problem.to_cvxpy().solve(solver="CLARABEL")
    assert solution.status is fo.Status.OPTIMAL
    assert solution.value == pytest.approx(value, rel=1e-6)
    assert solution.certificate.relative_gap < 1e-10
    assert solution.bandwidth_used <= 12.0 * (1.0 + 1e-14)


# Of an interval of 600 in the logarithm of a price or use: to 1e-19, the rounding of extended precision.
HALVINGS = 72


def whole(
    roots: Long,
    loose: np.longdouble,
    outside: float | tuple[Callable[[Any], Any], Callable[[Any], Any]],
    most: Long,
    slope: Callable[[Any], Any],
    cost: Callable[[Any], Any],
) -> tuple[Any, Any]:
    """Return value and the price outside by bisection in both prices.

    What a group uses at p is root/√p, and what sources of no group use loose/√p. `outside` is the bandwidth,
    or slope and cost of what all use.
    """

    def of_all(used: np.longdouble) -> Any:  # noqa: ANN401
        if isinstance(outside, float):
            return LONG(np.inf if used > outside else 0.0)
        return outside[0](used)

    def uses(price: np.longdouble) -> Long:
        low, high = np.full((2, len(roots)), LONG(-300.0)) * np.array([[1], [-1]])
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            u = np.exp(middle)
            less = (u > most) | (price + np.array([slope(one) for one in u]) > (roots / u) ** 2)
            low, high = np.where(less, low, middle), np.where(less, middle, high)
        found: Long = np.minimum(np.exp(high), most)
        return found

    low, high = LONG(-300.0), LONG(300.0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        used = np.sum(uses(np.exp(middle))) + loose / np.exp(middle / 2)
        low, high = (middle, high) if of_all(used) > np.exp(middle) else (low, middle)
    price = np.exp(high)
    u = uses(price)
    paid = np.array([cost(one) for one in u])
    used = np.sum(u) + loose / np.sqrt(price)
    cost_of_all = LONG(0.0) if isinstance(outside, float) else outside[1](used)
    return np.sum(roots**2 / u + paid) + loose * np.sqrt(price) + cost_of_all, price


@pytest.mark.parametrize("spread", [0.5, pytest.param(3.0, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("limited", ["", "in the price", "of hosts"])
@pytest.mark.parametrize("name", ["steps", "free at first", "power"])
@pytest.mark.sampled(4)
def test_prices_of_groups_and_of_the_bandwidth_around_them(name: str, limited: str, spread: float) -> None:
    (cost, _, slope, total), own = COSTS[name], sources(40, spread)
    by = np.array([None if k % 9 == 8 else f"g{k % 9}" for k in range(40)], dtype=object)
    root = np.sqrt(LONG(own.importance) * LONG(own.change_rate) * LONG(own.refresh_cost))
    roots = np.array([np.sum(root[by == f"g{k}"]) for k in range(8)])
    bandwidth, most = float(np.sum(root)), np.full(8, LONG(np.inf))
    limits = {f"g{k}": 0.25 * bandwidth / (k + 1) for k in range(8)}
    rules: list[Any] = [fo.Priced(fo.Budget(limits if limited == "in the price" else None, by=by), cost)]
    if limited:
        most = np.array([LONG(limit) for limit in limits.values()])
    if limited == "of hosts":
        rules.append(fo.Budget(limits, by=by, name="hosts"))
    solution = fo.solve(fo.Problem(DELAY, own, bandwidth, constraints=rules))
    value, price = whole(roots, np.sum(root[by == None]), bandwidth, most, slope, total)  # noqa: E711
    assert "the price of each sum" in solution.note
    assert solution.iterations <= 25
    assert solution.value == pytest.approx(float(value), rel=1e-12)
    assert solution.prices["bandwidth"] == pytest.approx(float(price), rel=1e-7, abs=1e-200)
    assert solution.certificate.relative_gap < 1e-12
    assert float(LONG(solution.value) - value) <= solution.certificate.gap + 1e-15 * float(value)


FALLING: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "fair": (lambda u: -5.0 * cp.log(u), lambda u: -5.0 / u, lambda u: -5.0 * np.log(u)),
    "saturation": (
        lambda u: 800.0 * cp.exp(-u / 9.0),
        lambda u: -800.0 / LONG(9.0) * np.exp(-u / LONG(9.0)),
        lambda u: 800.0 * np.exp(-u / LONG(9.0)),
    ),
    "near 5": (lambda u: cp.square(u - 5.0), lambda u: 2.0 * (u - 5.0), lambda u: (u - LONG(5.0)) ** 2),
    "within a band": (
        lambda u: 3.0 * cp.maximum(4.0 - u, 0.0, u - 6.0),
        lambda u: LONG(3.0 * (float(u > 6.0) - float(u < 4.0))),
        lambda u: 3.0 * np.maximum(np.maximum(4.0 - u, u - 6.0), LONG(0.0)),
    ),
}


@pytest.mark.parametrize("spread", [0.5, 3.0])
@pytest.mark.parametrize("around", ["a bandwidth", "a tariff", "congestion"])
@pytest.mark.parametrize("name", [*FALLING, "steps"])
@pytest.mark.sampled(7)
def test_costs_of_groups_that_fall_and_costs_of_all_around_them(
    name: str, around: str, spread: float
) -> None:
    own = sources(40, spread)
    cost, slope, total = FALLING[name] if name in FALLING else (STEPS, *tariff(STEPS))
    by = np.array([None if k % 9 == 8 else f"g{k % 9}" for k in range(40)], dtype=object)
    root = np.sqrt(LONG(own.importance) * LONG(own.change_rate) * LONG(own.refresh_cost))
    roots = np.array([np.sum(root[by == f"g{k}"]) for k in range(8)])
    use = float(np.sum(root))
    steps = {0.0: 1e-3, 0.5 * use: 0.25, 1.1 * use: 8.0}
    outside: Any = {
        "a bandwidth": use,
        "a tariff": tariff(steps),
        "congestion": (lambda u: 2.0 * u / LONG(use), lambda u: u**2 / LONG(use)),
    }[around]
    rules = [fo.Priced(fo.Budget(by=by, name="groups"), cost)]
    if around != "a bandwidth":
        given: Any = steps if around == "a tariff" else lambda u: cp.square(u) / use
        rules.append(fo.Priced(fo.Budget(), given))
    problem = fo.Problem(DELAY, own, use if around == "a bandwidth" else None, constraints=rules)
    solution = fo.solve(problem)
    value, price = whole(roots, np.sum(root[by == None]), outside, np.full(8, LONG(np.inf)), slope, total)  # noqa: E711
    assert "the price of each sum" in solution.note
    assert solution.iterations <= 25
    assert solution.value == pytest.approx(float(value), rel=1e-12)
    assert solution.certificate.relative_gap < 1e-12
    assert float(LONG(solution.value) - value) <= solution.certificate.gap + 1e-14 * abs(float(value))
    label = "bandwidth" if around == "a bandwidth" else "cost of bandwidth"
    assert solution.prices[label] == pytest.approx(float(price), rel=1e-7)


def test_two_costs_a_limit_and_a_reserve_of_the_same_groups() -> None:
    own, by = sources(30, 1.0), np.arange(30) % 3
    rules: list[Any] = [
        fo.Priced(fo.Budget(by=by, name="fair"), lambda u: -5.0 * cp.log(u)),
        fo.Priced(fo.Budget(by=by, cost=2.0 * own.refresh_cost, name="bytes"), {0: 0.01, 4: 0.3, 12: 2.0}),
        fo.Budget({0: 2.0, 1: 5.0}, by=by, name="most", at_least={2: 4.5}),
    ]
    objective = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
    for bandwidth in (None, 9.0):
        problem = fo.Problem(objective, own, bandwidth, constraints=rules)
        solution = fo.solve(problem)
        assert "the price of each sum" in solution.note
        assert solution.certificate.relative_gap < 1e-12
        assert solution.value == pytest.approx(problem.to_cvxpy().solve(solver="CLARABEL"), rel=1e-6)


def test_a_utility_that_wants_more_than_there_is_has_all() -> None:
    own = fo.Sources([1.0, 2.0, 4.0, 3.0], max_rate=[2.0, 1.0, 3.0, 5.0])
    wish = fo.Priced(fo.Budget(by=["a", "a", "b", "b"]), lambda u: cp.square(u - 50.0))
    solution = fo.solve(
        fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), own, 90.0, constraints=wish)
    )
    assert solution.rates == pytest.approx([2.0, 1.0, 3.0, 5.0], rel=1e-12)
    assert solution.certificate.relative_gap < 1e-12


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FALLING)
def test_a_million_sources_in_groups_whose_costs_fall(name: str) -> None:
    own, by = sources(1_000_000, 2.0), np.random.default_rng(3).integers(0, 100_000, 1_000_000)
    mean = float(own.refresh_cost @ own.change_rate) / 100_000
    worth = float(own.importance.sum()) / 100_000
    cost = FALLING[name][0]
    rules = [
        fo.Priced(fo.Budget(by=by, name="groups"), lambda u: 0.1 * worth * cost(10.0 / mean * u)),
        fo.Priced(fo.Budget(), {0: 1e-3, 4e4 * mean: 1.0}),
    ]
    for bandwidth in (None, 3e4 * mean):
        kind = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
        solution = fo.solve(fo.Problem(kind, own, bandwidth, constraints=rules))
        assert "the price of each sum" in solution.note
        assert solution.iterations <= 25
        assert solution.certificate.relative_gap < 1e-11


@pytest.mark.parametrize("bandwidth", [None, 12.0])
@pytest.mark.parametrize("name", ["steps", "power"])
def test_a_cost_of_all_use_around_limits_of_groups(name: str, bandwidth: float | None) -> None:
    cost, own = GROUPS[name][1], sources(30, 1.0)
    hosts = fo.Budget({0: 2.0, 1: 5.0, 2: 3.0}, by=np.arange(30) % 3, name="hosts")
    tariff = fo.Priced(fo.Budget(), cost)
    objective = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
    problem = fo.Problem(objective, own, bandwidth, constraints=[hosts, tariff])
    solution = fo.solve(problem)
    assert "the price of each sum" in solution.note
    assert solution.value == pytest.approx(problem.to_cvxpy().solve(solver="CLARABEL"), rel=1e-6)
    assert solution.certificate.relative_gap < 1e-11


@pytest.mark.parametrize("name", ["a kink", "congestion"])
def test_demand_that_begins_nearly_with_a_jump_takes_few_passes(name: str) -> None:
    # Binary freshness at equal gaps: a source begins with Δ over the log of its distance to the price wanted.
    rng, n, m = np.random.default_rng(1), 10_000, 1_000
    own, by = fo.Sources(rng.lognormal(-1.0, 1.5, n), rng.lognormal(0.0, 1.0, n)), rng.integers(0, m, n)
    price, mean = present(fo.solve(fo.Problem("binary", own, float(n))).price), n / m
    kink = {0.0: 0.5 * price, mean: 2.0 * price}
    cost: Any = kink if name == "a kink" else lambda u: 0.5 * price * cp.square(u) / mean
    rules = fo.Priced(fo.Budget(by=by), cost)
    solution = fo.solve(fo.Problem("binary", own, 0.8 * n, constraints=rules))
    assert "the price of each sum" in solution.note
    assert solution.iterations <= 30
    assert solution.certificate.relative_gap < 1e-13


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [fo.problems.HarmonicStaleness, fo.problems.BinaryFreshness])
def test_a_million_sources_in_groups_with_a_tariff_beside_a_bandwidth(kind: Callable[[Any], Any]) -> None:
    own, by = sources(1_000_000, 2.0), np.random.default_rng(3).integers(0, 100_000, 1_000_000)
    steps = {0.0: 0.01, 2.0: 0.5, 4.0: 5.0}
    rules = [fo.Priced(fo.Budget(by=by), steps)]
    solution = fo.solve(fo.Problem(kind(fo.Refresh.POISSON), own, 2e5, constraints=rules))
    assert "the price of each sum" in solution.note
    assert solution.iterations <= 60
    assert solution.certificate.relative_gap < 1e-9


@pytest.mark.parametrize("host", [False, True])
def test_what_is_dearer_than_any_gain_is_not_used(host: bool) -> None:
    """Beside a bandwidth, of which nothing is used then."""
    own, by = fo.Sources([1.0, 2.0], importance=[0.5, 1.0]), ["a", "b"]
    rules: list[Any] = [fo.Priced(fo.Budget(by=by), {0.0: 5.0, 1.0: 9.0})]
    rules += [fo.Budget({"a": 0.3, "b": 1.0}, by=by, name="hosts")] if host else []
    kind = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    solution = fo.solve(fo.Problem(kind, own, 1.0, constraints=rules))
    assert (solution.status, solution.rates.tolist(), solution.value) == (fo.Status.OPTIMAL, [0.0, 0.0], 0.0)


@pytest.mark.parametrize("bandwidth", [35.0, 86.0, 1e6])
@pytest.mark.parametrize("steep", [0.1, 34.0])
def test_sources_at_their_bounds_take_no_more_however_cheap_it_is(bandwidth: float, steep: float) -> None:
    """One of no group, so that the bandwidth has no price, beside one in a group with a cost."""
    own = fo.Sources([3.5, 0.4], importance=[1.6, 1.5], max_rate=[31.0, np.inf])
    cost = fo.Priced(fo.Budget(by=[None, "a"]), lambda u: steep * cp.power(u, 1.5))
    solution = fo.solve(fo.Problem(DELAY, own, bandwidth, constraints=[cost]))
    # wΔ/ρ² = 3/2·cρ^½
    best = (0.6 / (1.5 * steep)) ** 0.4
    assert solution.rates == pytest.approx([31.0, best], rel=1e-9)
    assert solution.value == pytest.approx(5.6 / 31.0 + 0.6 / best + steep * best**1.5, rel=1e-12)
    assert solution.prices["bandwidth"] == pytest.approx(0.0, abs=1e-12)
    assert "the price of each sum" in solution.note
    assert solution.iterations <= 12
