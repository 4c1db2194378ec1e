"""What the two first-order solvers have in common: exact steps, full solves against bisection, the limit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings

import freshopt as fo
from freshopt.cvx import cp
from freshopt.numerics.arrays import Array
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.solvers import Uniform, WaterFilling
from freshopt.solvers.mirror_descent import MirrorDescent
from freshopt.solvers.projected_gradient import ProjectedGradient
from tests.ground_truth.step_truth import (
    CELLS,
    StepCase,
    best_rates,
    exact_step,
    relative_map,
    require_feasible,
    step_cases,
    straight_map,
    worst_exchange,
)
from tests.ground_truth.strata import stratified
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

Method = type[MirrorDescent] | type[ProjectedGradient]
METHODS: list[Method] = [MirrorDescent, ProjectedGradient]
OBJECTIVES = [HarmonicStaleness(), BinaryFreshness(), AccumulatedDelay()]


class Wish(NamedTuple):
    """What an exchange of bandwidth between two sources would still gain, and the noise of that number."""

    gain: Array
    noise: Array


def wish_of(method: Method, case: StepCase, rates: Array) -> Wish:
    """Return −∂/∂r of the distance that the step minimises, at its rates."""
    push = case.learning_rate * case.gradient
    if method is MirrorDescent:
        noise = 1 / rates + 1 / case.rates + np.abs(push)
        return Wish(1 / rates - 1 / case.rates - push, noise)
    return Wish(case.rates - push - rates, case.rates + np.abs(push) + rates + case.bandwidth)


def require_exact(method: Method, case: StepCase, digits: int = 40) -> None:
    rates = method.step(*case.arguments())
    require_feasible(case, rates)
    mirror = method is MirrorDescent
    expected = exact_step(case, relative_map if mirror else straight_map, digits)
    slack = 0.0 if mirror else EXACT * case.bandwidth
    assert np.all(np.abs(rates - expected) <= SCALAR * expected + slack)


def require_conditions(method: Method, case: StepCase) -> None:
    rates = method.step(*case.arguments())
    require_feasible(case, rates)
    assert worst_exchange(case, rates, *wish_of(method, case, rates)) <= EXACT


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
@given(case=step_cases(decades=2))
@settings(max_examples=150, deadline=None)
def test_step_is_the_exact_solution(method: Method, case: StepCase) -> None:
    require_exact(method, case)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
@given(case=step_cases(decades=2, largest=6, hosts=2))
@settings(max_examples=40, deadline=None)
def test_step_with_host_limits_is_the_exact_solution(method: Method, case: StepCase) -> None:
    require_exact(method, case, digits=28)


@pytest.mark.parametrize("method", METHODS)
@given(case=step_cases(decades=8))
@settings(max_examples=300, deadline=None)
@pytest.mark.exhaustive
def test_no_feasible_exchange_between_two_sources_is_nearer(method: Method, case: StepCase) -> None:
    require_conditions(method, case)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
@given(case=step_cases(decades=8, largest=12, hosts=3))
@settings(max_examples=500, deadline=None)
def test_no_feasible_exchange_within_host_limits_is_nearer(method: Method, case: StepCase) -> None:
    require_conditions(method, case)


def distance(method: Method, rate: Any, q: Array, g: Array) -> Any:  # noqa: ANN401 - CVXPY's or NumPy's
    """Return what a step of learning rate .7 minimises, in CVXPY."""
    if method is MirrorDescent:
        return 0.7 * (g @ rate) + cp.sum(cp.multiply(1 / q, rate)) - cp.sum(cp.log(rate))
    return cp.sum_squares(rate - (q - 0.7 * g))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", METHODS)
def test_step_agrees_with_a_cone_solver(method: Method, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 6
    q, g, low = rng.uniform(0.3, 2.0, n), rng.normal(0.0, 1.0, n), rng.uniform(0.0, 0.2, n)
    high = low + rng.uniform(0.3, 2.0, n)
    bandwidth = 0.8 * float(q.sum())
    rate = cp.Variable(n)
    goal = cp.Minimize(distance(method, rate, q, g))
    cp.Problem(goal, [cp.sum(rate) <= bandwidth, rate >= low, rate <= high]).solve(solver="CLARABEL")
    ours = method.step(q, g, bandwidth, low, high, 0.7)
    assert np.allclose(ours, rate.value, rtol=0.0, atol=1e-3)  # the root of what its value is accurate to
    assert abs(distance(method, ours, q, g).value - goal.value) <= CONIC * abs(goal.value)


@pytest.mark.parametrize("method", METHODS)
def test_ties_stay_ties_and_spend_the_bandwidth(method: Method) -> None:
    rates = method.step(np.full(1000, 0.3), np.full(1000, -5.0), 7.0, 0.0, np.inf, 0.1)
    assert len(set(rates.tolist())) == 1
    assert abs(np.sum(rates) - 7.0) <= EXACT * 7.0


@pytest.mark.parametrize("method", METHODS)
def test_all_at_their_bounds(method: Method) -> None:
    low, caps = np.array([1.0, 2.0, 0.5]), np.array([1.0, 2.0, 0.5])
    assert np.array_equal(method.step(np.ones(3), [-1.0, -5.0, 3.0], float(low.sum()), low, 9.0, 1.0), low)
    assert np.array_equal(method.step(np.ones(3), np.full(3, -9.0), 10.0, 0.0, caps, 9.0), caps)
    assert np.array_equal(method.step(np.ones(3), np.full(3, -9.0), 3.5, 0.0, caps, 9.0), caps)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("method", "name", "refresh", "n"),
    stratified(
        METHODS,
        ["HarmonicStaleness", "BinaryFreshness", "AccumulatedDelay"],
        ["POISSON", "PERIODIC"],
        [1, 2, 10, 1000],
        every=4,
    ),
)
def test_full_solves_reach_the_optimum(method: Method, name: str, refresh: str, n: int) -> None:
    cost_of, marginal_of = CELLS[name, refresh]
    rng = np.random.default_rng(n)
    d, w = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)
    cost = rng.uniform(0.5, 2.0, n)
    lower = np.where(rng.random(n) < 0.3, 0.1, 0.0)
    upper = np.where(rng.random(n) < 0.3, 0.7, np.inf)
    upper[0] = np.inf
    problem = fo.Problem(
        getattr(fo.problems, name)(refresh=fo.Refresh[refresh]),
        fo.Sources(d, w, min_rate=lower, max_rate=upper, refresh_cost=cost),
        bandwidth=0.4 * n,
    )
    solution = fo.solve(problem, method())
    assert solution.status is fo.Status.OPTIMAL
    assert solution.certificate is not None
    assert solution.certificate.relative_gap <= 1e-7
    with np.errstate(all="ignore"):
        expected = best_rates(lambda r: w * marginal_of(r, d), 0.4 * n, lower, upper, cost)
        best, reached = (float(np.sum(w * cost_of(r, d))) for r in (expected, solution.rates))
    assert abs(reached - best) <= CONIC * abs(best)
    assert np.sum(np.abs(solution.rates - expected)) <= 0.005 * np.sum(expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("bandwidth", [30.0, 1e4])
def test_signalled_sources_agree_with_water_filling(
    objective: fo.Objective, share: float, bandwidth: float
) -> None:
    rng = np.random.default_rng(5)
    d, w = rng.lognormal(0.0, 1.0, 100), rng.lognormal(0.0, 1.0, 100)
    problem = fo.Problem(objective, fo.Sources(d, w, signalled=rng.random(100) < share), bandwidth)
    agreement = fo.cross_check(problem, [WaterFilling(), MirrorDescent(), ProjectedGradient()])
    assert agreement.agrees
    assert len(agreement.solutions) == 3


@pytest.mark.parametrize("method", METHODS)
def test_the_iteration_limit_is_a_status_with_its_certificate(method: Method) -> None:
    rng = np.random.default_rng(1)
    sources = fo.Sources(rng.lognormal(0.0, 3.0, 50), rng.lognormal(0.0, 3.0, 50))
    hard = fo.Problem(HarmonicStaleness(), sources, 20.0)
    solution = fo.solve(hard, method(limit=30), throw=False)
    assert solution.status is fo.Status.ITERATION_LIMIT
    assert solution.certificate is not None
    assert solution.certificate.relative_gap > 1e-6
    assert solution.iterations >= 30
    assert "30 evaluations" in solution.note
    assert solution.value < fo.solve(hard, Uniform()).value
    with pytest.raises(fo.CertificateError, match="iteration limit"):
        fo.solve(hard, method(limit=30))
