"""Projected gradient: the projection against its exact solution, full solves against bisection, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import freshopt as fo
from freshopt.cvx import cp
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.solvers import WaterFilling
from freshopt.solvers.mirror_descent import MirrorDescent
from freshopt.solvers.projected_gradient import ProjectedGradient
from tests.step_truth import (
    CELLS,
    StepCase,
    best_rates,
    exact_step,
    require_feasible,
    step_cases,
    worst_exchange,
)
from tests.tolerances import CONIC, EXACT, SCALAR

step = ProjectedGradient.step


def straight(q: Any, slope: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    return q - slope


def require_exact(case: StepCase, digits: int = 40) -> None:
    rates = step(*case.arguments())
    require_feasible(case, rates)
    expected = exact_step(case, straight, digits)
    assert np.all(np.abs(rates - expected) <= SCALAR * expected + EXACT * case.bandwidth)


def require_conditions(case: StepCase) -> None:
    rates = step(*case.arguments())
    require_feasible(case, rates)
    push = case.learning_rate * case.gradient
    noise = case.rates + np.abs(push) + rates + case.bandwidth
    assert worst_exchange(case, rates, case.rates - push - rates, noise) <= EXACT


@given(step_cases(decades=2))
@settings(max_examples=150, deadline=None)
def test_step_is_the_exact_solution(case: StepCase) -> None:
    require_exact(case)


@given(step_cases(decades=2, largest=6, hosts=2))
@settings(max_examples=40, deadline=None)
def test_step_with_host_limits_is_the_exact_solution(case: StepCase) -> None:
    require_exact(case, digits=28)


@given(step_cases(decades=8))
@settings(max_examples=300, deadline=None)
def test_no_feasible_exchange_between_two_sources_is_nearer(case: StepCase) -> None:
    require_conditions(case)


@given(step_cases(decades=8, largest=12, hosts=3))
@settings(max_examples=500, deadline=None)
def test_no_feasible_exchange_within_host_limits_is_nearer(case: StepCase) -> None:
    require_conditions(case)


@pytest.mark.parametrize("seed", range(5))
def test_step_agrees_with_a_cone_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 6
    q, g, low = rng.uniform(0.3, 2.0, n), rng.normal(0.0, 1.0, n), rng.uniform(0.0, 0.2, n)
    high = low + rng.uniform(0.3, 2.0, n)
    bandwidth = 0.8 * float(q.sum())
    rate = cp.Variable(n)
    goal = cp.Minimize(cp.sum_squares(rate - (q - 0.7 * g)))
    cp.Problem(goal, [cp.sum(rate) <= bandwidth, rate >= low, rate <= high]).solve(solver="CLARABEL")
    ours = step(q, g, bandwidth, low, high, 0.7)
    assert np.allclose(ours, rate.value, rtol=0.0, atol=1e-3)
    assert abs(np.sum((ours - q + 0.7 * g) ** 2) - goal.value) <= CONIC * abs(goal.value)


def test_learning_rate_zero_projects() -> None:
    assert np.array_equal(step([3.0, 1.0, 0.0], np.zeros(3), 2.0, 0.0, np.inf, 0.0), [2.0, 0.0, 0.0])
    inside = np.array([0.5, 0.25, 1.0])
    assert np.array_equal(step(inside, [4.0, -4.0, 1.0], 2.0, 0.0, 2.0, 0.0), inside)


def test_slack_budget_has_multiplier_zero() -> None:
    assert np.array_equal(step([1.0, 2.0], [0.5, 4.0], 9.0, 0.25, 5.0, 1.0), [0.5, 0.25])


def test_a_common_part_of_all_gradients_cancels_exactly_where_the_budget_binds() -> None:
    q, g = np.array([1.0, 2.0, 0.25]), np.array([-3.0, -1.5, -2.0])
    plain = step(q, g, 4.0, 0.0, np.inf, 1.0)
    assert np.allclose(plain, np.array([4.0, 3.5, 2.25]) - 5.75 / 3, rtol=EXACT)
    assert np.array_equal(step(q, g - 2.0**45, 4.0, 0.0, np.inf, 1.0), plain)


def test_ties_stay_ties_and_spend_the_bandwidth() -> None:
    rates = step(np.full(1000, 0.3), np.full(1000, -5.0), 7.0, 0.0, np.inf, 0.1)
    assert len(set(rates.tolist())) == 1
    assert abs(np.sum(rates) - 7.0) <= EXACT * 7.0


def test_all_at_their_bounds() -> None:
    low, caps = np.array([1.0, 2.0, 0.5]), np.array([1.0, 2.0, 0.5])
    assert np.array_equal(step(np.ones(3), [-1.0, -5.0, 3.0], float(low.sum()), low, 9.0, 1.0), low)
    assert np.array_equal(step(np.ones(3), np.full(3, -9.0), 10.0, 0.0, caps, 9.0), caps)


def test_a_rate_of_zero_is_a_start_for_this_map_and_a_negative_one_is_not() -> None:
    assert np.array_equal(step([0.0, 1.0], [-1.0, 0.0], 9.0, 0.0, 9.0, 1.0), [1.0, 1.0])
    with pytest.raises(fo.SourceDataError, match=r"rates \[0\] = -1 must be finite and >= 0"):
        step([-1.0, 1.0], [-1.0, 0.0], 9.0, 0.0, 9.0, 1.0)
    with pytest.raises(fo.InfeasibleProblemError, match="min_rate needs 3"):
        step([1.0, 1.0], [0.0, 0.0], 2.0, 1.5, 9.0, 1.0)


@pytest.mark.parametrize("n", [1, 2, 10, 1000])
@pytest.mark.parametrize("refresh", ["POISSON", "PERIODIC"])
@pytest.mark.parametrize("name", ["HarmonicStaleness", "BinaryFreshness", "AccumulatedDelay"])
def test_full_solves_reach_the_optimum(name: str, refresh: str, n: int) -> None:
    cost_of, marginal_of = CELLS[name, refresh]
    rng = np.random.default_rng(n + 1)
    d, w = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)
    cost = rng.uniform(0.5, 2.0, n)
    lower = np.where(rng.random(n) < 0.3, 0.1, 0.0)
    upper = np.where(rng.random(n) < 0.3, 0.7, np.inf)
    upper[0] = np.inf
    problem = fo.Problem(
        getattr(fo.problems, name)(refresh=fo.Refresh[refresh]),
        fo.Sources(d, w, min_rate=lower, max_rate=upper, cost=cost),
        bandwidth=0.4 * n,
    )
    solution = fo.solve(problem, ProjectedGradient())
    assert solution.status is fo.Status.OPTIMAL
    assert solution.certificate is not None
    assert solution.certificate.relative_gap <= 1e-7
    with np.errstate(all="ignore"):
        expected = best_rates(lambda r: w * marginal_of(r, d), 0.4 * n, lower, upper, cost)
        best, reached = (float(np.sum(w * cost_of(r, d))) for r in (expected, solution.rates))
    assert abs(reached - best) <= CONIC * abs(best)
    assert np.sum(np.abs(solution.rates - expected)) <= 0.005 * np.sum(expected)


@pytest.mark.parametrize("objective", [HarmonicStaleness(), BinaryFreshness(), AccumulatedDelay()])
@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("bandwidth", [30.0, 1e4])
def test_signalled_sources_agree_with_the_other_two(
    objective: fo.Objective, share: float, bandwidth: float
) -> None:
    rng = np.random.default_rng(7)
    d, w = rng.lognormal(0.0, 1.0, 60), rng.lognormal(0.0, 1.0, 60)
    problem = fo.Problem(objective, fo.Sources(d, w, signalled=rng.random(60) < share), bandwidth)
    agreement = fo.cross_check(problem, [WaterFilling(), MirrorDescent(), ProjectedGradient()])
    assert agreement.agrees
    assert len(agreement.solutions) == 3


def test_the_unit_of_time_and_of_cost_make_no_difference() -> None:
    rng = np.random.default_rng(2)
    d, w = rng.lognormal(0.0, 1.0, 40), rng.lognormal(0.0, 1.0, 40)
    plain = fo.solve(fo.Problem(HarmonicStaleness(), fo.Sources(d, w), 20.0), ProjectedGradient())
    scaled = fo.Problem(HarmonicStaleness(), fo.Sources(d * 2.0**60, w * 2.0**-90), 20.0 * 2.0**60)
    other = fo.solve(scaled, ProjectedGradient())
    assert np.allclose(other.rates, plain.rates * 2.0**60, rtol=1e-2)
    assert abs(other.value * 2.0**90 - plain.value) <= CONIC * plain.value


def hard() -> fo.Problem:
    rng = np.random.default_rng(1)
    return fo.Problem(
        HarmonicStaleness(), fo.Sources(rng.lognormal(0.0, 3.0, 50), rng.lognormal(0.0, 3.0, 50)), 20.0
    )


def test_the_iteration_limit_is_a_status_with_its_certificate() -> None:
    solution = fo.solve(hard(), ProjectedGradient(limit=30), throw=False)
    assert solution.status is fo.Status.ITERATION_LIMIT
    assert solution.certificate is not None
    assert solution.certificate.relative_gap > 1e-6
    assert "30 evaluations" in solution.note
    with pytest.raises(fo.CertificateError, match="iteration limit"):
        fo.solve(hard(), ProjectedGradient(limit=30))


def test_a_cost_of_infinite_slope_at_zero_is_never_asked_for_its_gradient_there() -> None:
    class Root(fo.Objective):
        sense = "maximise"

        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return cp.multiply(sources.importance, cp.power(rate, 0.5))

    w = np.array([1.0, 2.0, 4.0])
    solution = fo.solve(fo.Problem(Root(), fo.Sources([1.0, 1.0, 1.0], w), 21.0), ProjectedGradient())
    assert np.allclose(solution.rates, [1.0, 4.0, 16.0], rtol=1e-2)  # r ∝ w²
    assert abs(solution.value - 21.0) <= CONIC * 21.0


@pytest.mark.parametrize("objective", [HarmonicStaleness(), BinaryFreshness(), AccumulatedDelay()])
def test_the_metric_of_the_curvature_solves_what_the_plain_method_does_not(objective: fo.Objective) -> None:
    rng = np.random.default_rng(1)
    d, w = rng.lognormal(0.0, 3.0, 200), rng.lognormal(0.0, 3.0, 200)
    problem = fo.Problem(objective, fo.Sources(d, w), 80.0)
    plain = fo.solve(problem, ProjectedGradient(limit=2000, scaled=False), throw=False)
    assert plain.status is fo.Status.ITERATION_LIMIT
    scaled = fo.solve(problem, ProjectedGradient(limit=2000))
    assert scaled.status is fo.Status.OPTIMAL
    assert fo.cross_check(problem, [WaterFilling(), ProjectedGradient()]).agrees


def test_the_plain_method_is_exact_on_benign_data() -> None:
    rng = np.random.default_rng(3)
    problem = fo.Problem(BinaryFreshness(), fo.Sources(rng.lognormal(0.0, 1.0, 50)), 20.0)
    assert fo.solve(problem, ProjectedGradient(scaled=False)).status is fo.Status.OPTIMAL
