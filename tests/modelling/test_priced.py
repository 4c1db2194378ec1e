"""Costs of sums: prices and values against bisection in long double and CVXPY, certificates honest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.cvx import Expression, cp
from freshopt.numerics.arrays import Array
from tests.ground_truth.refusals import present, refused

DELAY = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
LONG = np.longdouble
Long: TypeAlias = npt.NDArray[np.longdouble]


def sources(n: int, spread: float, seed: int = 0) -> fo.Sources:
    """Return sources whose data span so many e-folds."""
    rng = np.random.default_rng(seed)
    rate, weight, cost = (rng.lognormal(0.0, s, n) for s in (spread, spread, 0.5 * spread))
    return fo.Sources(rate, importance=weight, refresh_cost=cost)


def reference(
    given: fo.Sources, slope: Callable[[Any], Any], cost: Callable[[Any], Any], most: float = np.inf
) -> tuple[Any, Any]:
    """Return value and price of the delay Σ wΔ/ρ + φ(Σ cρ) by bisection, no code of freshopt's."""
    work = LONG(given.importance) * LONG(given.change_rate)
    root = np.sum(np.sqrt(work * LONG(given.refresh_cost)))  # Σ cρ = root/√p, Σ wΔ/ρ = root·√p

    # At use u the price is (root/u)²; it falls, and the slope of φ rises.
    low, high = LONG(-300.0), LONG(300.0)
    for _ in range(400):
        middle = (low + high) / 2
        u = np.exp(middle)
        less = u > most or slope(u) > (root / u) ** 2
        low, high = (low, middle) if less else (middle, high)
    u = min(np.exp(high), LONG(most))
    return root**2 / u + cost(u), (root / u) ** 2


def tariff(steps: dict[float, float]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return slope and cost of a tariff in long double."""
    begins, prices = np.array([*steps], dtype=LONG), np.array([*steps.values()], dtype=LONG)
    rises = np.diff(prices, prepend=LONG(0.0))
    return lambda u: np.sum(rises[u > begins]), lambda u: np.sum(rises * np.maximum(u - begins, 0))


STEPS = {0.0: 0.01, 5.0: 0.5, 40.0: 2.0, 300.0: 30.0, 9e3: 1e3}
COSTS: dict[str, tuple[Any, Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "steps": (STEPS, np.inf, *tariff(STEPS)),
    "steps below a limit": (STEPS, 3.0, *tariff(STEPS)),
    "per unit": (0.25, np.inf, lambda _: LONG(0.25), lambda u: LONG(0.25) * u),
    "free at first": ({0.0: 0.0, 50.0: 0.5}, np.inf, *tariff({0.0: 0.0, 50.0: 0.5})),
    "power": (lambda u: cp.power(u, 1.5), np.inf, lambda u: 1.5 * np.sqrt(u), lambda u: u * np.sqrt(u)),
    "congestion": (
        lambda u: 50.0 * cp.inv_pos(400.0 - u) - 0.125,
        399.0,
        lambda u: 50.0 / (400.0 - u) ** 2 if u < 400.0 else LONG(np.inf),
        lambda u: 50.0 / (400.0 - u) - LONG(0.125),
    ),
    "take or pay": (
        lambda u: 0.7 * cp.maximum(u, 60.0),
        np.inf,
        lambda u: LONG(0.7) if u > 60.0 else LONG(0.0),
        lambda u: LONG(0.7) * np.maximum(u, 60.0),
    ),
    "soft limit": (
        lambda u: 0.01 * u + cp.square(cp.pos(u - 20.0)),
        np.inf,
        lambda u: LONG(0.01) + 2.0 * np.maximum(u - 20.0, 0.0),
        lambda u: LONG(0.01) * u + np.maximum(u - 20.0, 0.0) ** 2,
    ),
}


@pytest.mark.parametrize("spread", [pytest.param(0.5, marks=pytest.mark.exhaustive), 3.0])
@pytest.mark.parametrize("name", COSTS)
def test_one_cost_of_all_use(name: str, spread: float) -> None:
    cost, most, slope, total = COSTS[name]
    own = sources(40, spread)
    budget = fo.Budget() if np.isinf(most) else fo.Budget(most)
    problem = fo.Problem(DELAY, own, constraints=[fo.Priced(budget, cost)])
    solution = fo.solve(problem)
    value, price = reference(own, slope, total, most)
    rounding = 1e-15 * float(abs(value))
    assert solution.status is fo.Status.OPTIMAL
    assert solution.value == pytest.approx(float(value), rel=1e-12)
    assert solution.prices["cost of bandwidth"] == pytest.approx(float(price), rel=1e-8)
    assert solution.certificate.relative_gap < 1e-12
    assert float(LONG(solution.value) - value) <= solution.certificate.gap + rounding
    # Any other rates are proved no better than they are.
    rng = np.random.default_rng(1)
    rates = solution.rates * np.exp(0.1 * rng.normal(size=40))
    if not np.isinf(most):
        rates *= min(1.0, most / float(own.refresh_cost @ rates))
    for prices in (None, solution.prices):
        proof = fo.certify(problem, rates, prices=prices)
        used = float(own.refresh_cost @ proof.rates)
        true = LONG(np.sum(own.importance * own.change_rate / proof.rates)) + total(LONG(used))
        assert proof.value == pytest.approx(float(true), rel=1e-12)
        assert float(true - value) <= proof.gap + rounding


def test_a_cost_of_use_beside_a_target() -> None:
    own = sources(30, 1.0)
    old = fo.Target(fo.problems.LaterThan(3.0, fo.Refresh.POISSON), at_most=1e-3)
    tariffs = [fo.Priced(fo.Budget(), {0: 0.05, 5: 0.2}), fo.Priced(fo.Budget(cost=2.0), 0.1)]
    problem = fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), own, constraints=[old, *tariffs])
    solution = fo.solve(problem)
    assert solution.prices["LaterThan"] > 0.0
    rows = present(solution.certificate.rows)
    assert rows["LaterThan"].used == pytest.approx(1e-3)
    assert rows["cost of bandwidth"].used == pytest.approx(solution.bandwidth_used)
    assert solution.certificate.relative_gap < 1e-10
    assert solution.value == pytest.approx(problem.to_cvxpy().solve(solver="CLARABEL"), rel=1e-6)


def test_many_groups_have_prices_of_their_own() -> None:
    own, by = sources(3000, 2.0), np.arange(3000) % 100
    problem = fo.Problem(DELAY, own, constraints=[fo.Priced(fo.Budget(by=by), STEPS)])
    solution = fo.solve(problem)
    slope, cost = tariff(STEPS)
    values = [reference(own.take(by == g), slope, cost)[0] for g in range(100)]
    assert solution.value == pytest.approx(float(sum(values)), rel=1e-12)
    assert solution.certificate.relative_gap < 1e-12
    assert solution.iterations <= 25


def test_sources_of_no_group_pay_nothing() -> None:
    own = fo.Sources([1.0, 4.0], max_rate=10.0)
    priced = fo.Priced(fo.Budget(by=np.array(["a", None], dtype=object)), 0.25)
    assert fo.solve(fo.Problem(DELAY, own, constraints=[priced])).rates == pytest.approx([2.0, 10.0])


def test_demand_that_jumps_between_two_steps_is_met_by_a_mixture() -> None:
    # Rates of freshness at signals are linear: all of a source, or nothing.
    own = fo.Sources([1.0, 2.0, 4.0], importance=[3.0, 2.0, 1.0], signalled=True)
    freshness = fo.problems.BinaryFreshness(fo.Refresh.PERIODIC)
    problem = fo.Problem(freshness, own, constraints=[fo.Priced(fo.Budget(), {0: 0.5, 2: 2.0})])
    solution = fo.solve(problem)
    assert solution.status is fo.Status.OPTIMAL
    # Δ of the first source at 3 each, one more unit at 1 each, beyond that 1 < 2.
    assert solution.rates == pytest.approx([1.0, 1.0, 0.0])
    assert solution.value == pytest.approx(3.0 + 1.0 - 2 * 0.5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COSTS)
def test_a_million_sources(name: str) -> None:
    cost, most, slope, total = COSTS[name]
    own = sources(1_000_000, 2.0)
    budget = fo.Budget() if np.isinf(most) else fo.Budget(most)
    solution = fo.solve(fo.Problem(DELAY, own, constraints=[fo.Priced(budget, cost)]))
    assert solution.iterations <= 25
    assert solution.value == pytest.approx(float(reference(own, slope, total, most)[0]), rel=1e-11)
    assert solution.certificate.relative_gap < 1e-11


def test_a_limit_changes_by_label() -> None:
    problem = fo.Problem(DELAY, sources(10, 1.0), constraints=[fo.Priced(fo.Budget(3.0), 1e-6)])
    assert fo.solve(problem.with_limit("bandwidth", 2.0)).bandwidth_used == pytest.approx(2.0)
    met = fo.Problem(DELAY, sources(10, 1.0), constraints=[fo.Budget(exactly=3.0)])
    assert fo.solve(met.with_limit("bandwidth", 2.0)).bandwidth_used == pytest.approx(2.0)


def test_refusals() -> None:
    own, budget = sources(3, 1.0), fo.Budget()
    refused("a discount for more", fo.Priced, budget, {0: 2.0, 5: 1.0}, error=fo.ObjectiveError)
    refused("not >= 0|numbers >= 0", fo.Priced, budget, -1.0)
    refused("exactly=", fo.Priced, fo.Budget(exactly=1.0), 1.0)
    refused("Pass fo.Budget", fo.Priced, 3.0, 1.0, error=TypeError)
    refused("the class Problem", fo.Priced, budget, fo.Problem, error=TypeError)
    refused("bounds nothing", fo.Problem, DELAY, own, constraints=[budget])
    refused("exactly= alone", fo.Budget, 1.0, exactly=2.0)
    concave = fo.Priced(budget, lambda u: cp.sqrt(u))
    refused("needs convex", fo.Problem, DELAY, own, constraints=[concave], error=fo.ObjectiveError)
    worst = fo.Worst(DELAY, by=["a", "a", "b"])
    paid = fo.Priced(budget, 1.0)
    refused("no cost to add", fo.Problem, worst, own, 1.0, constraints=paid, error=fo.ObjectiveError)
    free = fo.Priced(budget, 0.0)
    refused("more always helps", fo.Problem, DELAY, own, constraints=[free])


class Divergence(fo.Objective):
    """Kullback-Leibler divergence from given rates."""

    def __init__(self, target: Array) -> None:
        self.target = target

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:  # noqa: ARG002
        return cp.kl_div(rate, self.target)


def test_a_projection_that_must_add_up_to_1() -> None:
    # Case 4 of the collection: the first may have .4 at most, weights of 1e-62.
    target = np.array([1.0, 0.1, 1e-62, 0.05, 0.05])
    own = fo.Sources(np.ones(5), max_rate=[0.4, 1.0, 1.0, 1.0, 1.0])
    solution = fo.solve(fo.Problem(Divergence(target), own, constraints=[fo.Budget(exactly=1.0)]))
    assert solution.rates == pytest.approx([0.4, 0.3, 3e-62, 0.15, 0.15], rel=1e-12)
    assert solution.certificate.relative_gap < 1e-12


@pytest.mark.exhaustive
def test_two_sums_that_must_be_met_also_as_equations() -> None:
    both = [fo.Budget(exactly=1.0), fo.Budget(exactly=2.0, cost=[1.0, 2.0, 3.0, 4.0, 5.0], name="cost")]
    for given in (both, lambda r: [cp.sum(r) == 1.0, np.arange(1.0, 6.0) @ r == 2.0]):
        problem = fo.Problem(Divergence(np.full(5, 0.2)), fo.Sources(np.ones(5)), constraints=given)
        found = fo.solve(problem)
        # ρ ∝ x^k with Σρ = 1, Σkρ = 2.
        roots = np.roots([3.0, 2.0, 1.0, 0.0, -1.0])
        x = float(next(z.real for z in roots if abs(z.imag) < 1e-12 and z.real > 0.0))
        power = x ** np.arange(1, 6)
        assert found.rates == pytest.approx(power / power.sum(), rel=1e-9)
        assert found.status is fo.Status.OPTIMAL


class Paid(fo.Objective):
    """Delay and a convex cost of each rate."""

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources.importance * sources.change_rate, cp.inv_pos(rate)) + 0.3 * cp.power(
            rate, 1.2
        )


def test_what_has_its_cost_in_it_needs_no_bandwidth() -> None:
    own = sources(50, 3.0)
    solution = fo.solve(fo.Problem(Paid(), own))
    exact = (own.importance * own.change_rate / 0.36) ** (1.0 / 2.2)
    assert solution.rates == pytest.approx(exact, rel=1e-12)
    assert solution.certificate.relative_gap < 1e-15
    refused("there is no bandwidth", fo.Problem, DELAY, own)


WEIGHTS = sources(20, 1.5).importance
# Of min Σ a/ρ: the constraint, the exact optimum and the price of its limit 3.
ROWS: dict[str, tuple[Callable[[Expression], Expression], Callable[[Array], float]]] = {
    "sum of squares": (lambda r: cp.sum_squares(r) <= 3.0, lambda a: np.sum(a ** (2 / 3)) ** 1.5 / 3.0**0.5),
    "norm": (lambda r: cp.norm(r) <= 3.0, lambda a: np.sum(a ** (2 / 3)) ** 1.5 / 3.0),
    "twice a norm": (lambda r: 2.0 * cp.norm(r) - 3.0 <= 0.0, lambda a: np.sum(a ** (2 / 3)) ** 1.5 / 1.5),
    "norm of 3": (lambda r: cp.pnorm(r, 3) <= 3.0, lambda a: np.sum(a**0.75) ** (4 / 3) / 3.0),
    "norm of 1": (lambda r: cp.norm1(r) <= 3.0, lambda a: np.sum(np.sqrt(a)) ** 2 / 3.0),
    "maximum": (lambda r: cp.max(r) <= 3.0, lambda a: np.sum(a) / 3.0),
    "largest norm": (lambda r: cp.norm_inf(r) <= 3.0, lambda a: np.sum(a) / 3.0),
    "weighted maximum": (
        lambda r: cp.max(cp.multiply(WEIGHTS, r)) <= 3.0, lambda a: float(WEIGHTS @ a) / 3.0
    ),
    "diagonal form": (
        lambda r: cp.quad_form(r, np.diag(WEIGHTS)) <= 3.0,
        lambda a: np.sum((a * np.sqrt(WEIGHTS)) ** (2 / 3)) ** 1.5 / 3.0**0.5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_are_sums_once_their_limit_is_moved(name: str) -> None:
    rule, optimum = ROWS[name]
    own = sources(20, 1.5, 3)
    solution = fo.solve(fo.Problem(DELAY, own, constraints=rule))
    value = optimum(own.importance * own.change_rate)
    assert solution.status is fo.Status.OPTIMAL
    assert solution.value == pytest.approx(value, rel=1e-11)
    assert solution.certificate.relative_gap < 1e-11
    if solution.prices:  # F* is a power of the limit, −1 or −1/2
        elasticity = 0.5 if "squares" in name or "form" in name else 1.0
        assert [*solution.prices.values()] == pytest.approx([elasticity * value / 3.0], rel=1e-8)


def test_log_sum_exp_is_a_row() -> None:
    own = fo.Sources([1.0, 1.0, 1.0])
    solution = fo.solve(fo.Problem(DELAY, own, constraints=lambda r: cp.log_sum_exp(r) <= 2.0 + np.log(3.0)))
    assert solution.rates == pytest.approx([2.0, 2.0, 2.0], rel=1e-10)
    assert [*solution.prices.values()] == pytest.approx([3 / 4], rel=1e-8)  # −d(3/ρ)/dρ, ρ = c − log 3
    assert solution.certificate.relative_gap < 1e-11


@pytest.mark.parametrize("by", [None, ["a", "b", "a", "b"]])
@pytest.mark.parametrize("cost", [0.0, {0: 0.0, 1.0: 0.0}, {0.0: 0.0, 1e9: 1.0}])
def test_what_is_free_leaves_the_solution_as_it_is(
    by: list[str] | None, cost: float | dict[float, float]
) -> None:
    given = sources(4, 1.0)
    plain = fo.solve(fo.Problem(DELAY, given, 2.0))
    for limit in (None, 1.5):
        budget = fo.Budget(limit, by=by, name="own")
        free = fo.solve(fo.Problem(DELAY, given, 2.0, constraints=[fo.Priced(budget, cost)]))
        held = fo.solve(fo.Problem(DELAY, given, 2.0, constraints=[budget])) if limit else plain
        np.testing.assert_allclose(free.value, held.value, rtol=1e-9)
