"""Steps of mirror descent: nearest by Bregman distance, within budgets of groups."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings

import freshopt as fo
from freshopt.cvx import cp
from freshopt.numerics.arrays import Array
from freshopt.solvers import Uniform, WaterFilling
from freshopt.solvers.mirror_descent import MirrorDescent
from freshopt.solvers.projected_gradient import ProjectedGradient
from tests.ground_truth import curves, step_truth, truth
from tests.ground_truth.cases import as_cost, as_problem
from tests.ground_truth.cell_truth import CURVES
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix, stratified
from tests.ground_truth.strategies import sample
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

Method = type[MirrorDescent] | type[ProjectedGradient]
METHODS: list[Method] = [MirrorDescent, ProjectedGradient]
CURVE_OF = {"HarmonicStaleness": "harmonic", "BinaryFreshness": "binary", "AccumulatedDelay": "delay"}
# Rounding, in units of what is allowed.
ULP = float(np.finfo(np.float64).eps) / EXACT
OBJECTIVES = [HARMONIC, BINARY, DELAY]


class Wish(NamedTuple):
    """What an exchange of bandwidth between two sources would still gain, and the noise of that number."""

    gain: Array
    noise: Array


def wish_of(method: Method, case: step_truth.StepCase, rates: Array) -> Wish:
    """Return −∂/∂r of the distance that the step minimises, at its rates."""
    push = case.learning_rate * case.gradient
    if method is MirrorDescent:
        # What rounding the bandwidth may add to a rate, too.
        noise = 1 / rates + 1 / case.rates + np.abs(push) + ULP * case.bandwidth / rates**2
        return Wish(1 / rates - 1 / case.rates - push, noise)
    return Wish(case.rates - push - rates, case.rates + np.abs(push) + rates + case.bandwidth)


def require_exact(method: Method, case: step_truth.StepCase, digits: int = 40) -> None:
    rates = method.step(*case.arguments())
    step_truth.require_feasible(case, rates)
    mirror = method is MirrorDescent
    expected = step_truth.exact_step(
        case, step_truth.relative_map if mirror else step_truth.straight_map, digits
    )
    slack = 0.0 if mirror else EXACT * case.bandwidth
    assert np.all(np.abs(rates - expected) <= SCALAR * expected + slack)


def require_conditions(method: Method, case: step_truth.StepCase) -> None:
    rates = method.step(*case.arguments())
    step_truth.require_feasible(case, rates)
    assert step_truth.worst_exchange(case, rates, *wish_of(method, case, rates)) <= EXACT


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
@given(case=step_truth.step_cases(decades=2))
@settings(max_examples=150, deadline=None)
def test_step_is_the_exact_solution(method: Method, case: step_truth.StepCase) -> None:
    require_exact(method, case)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
@given(case=step_truth.step_cases(decades=2, largest=6, hosts=2))
@settings(max_examples=40, deadline=None)
def test_step_with_host_limits_is_the_exact_solution(method: Method, case: step_truth.StepCase) -> None:
    require_exact(method, case, digits=28)


@pytest.mark.parametrize("method", METHODS)
@given(case=step_truth.step_cases(decades=8))
@settings(max_examples=300, deadline=None)
@pytest.mark.exhaustive
def test_no_feasible_exchange_between_two_sources_is_nearer(
    method: Method, case: step_truth.StepCase
) -> None:
    require_conditions(method, case)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
@given(case=step_truth.step_cases(decades=8, largest=12, hosts=3))
@settings(max_examples=500, deadline=None)
def test_no_feasible_exchange_within_host_limits_is_nearer(method: Method, case: step_truth.StepCase) -> None:
    require_conditions(method, case)


def distance(method: Method, rate: Any, q: Array, g: Array) -> Any:  # noqa: ANN401 - CVXPY's or NumPy's
    """Return what a step of learning rate .7 minimises, in CVXPY."""
    if method is MirrorDescent:
        return 0.7 * (g @ rate) + cp.sum(cp.multiply(1 / q, rate)) - cp.sum(cp.log(rate))
    return cp.sum_squares(rate - (q - 0.7 * g))


@matrix(seed=range(5), method=METHODS)
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
        list(CURVE_OF),
        ["POISSON", "PERIODIC"],
        [1, 2, 10, 1000],
        every=4,
    ),
)
def test_full_solves_reach_the_optimum(method: Method, name: str, refresh: str, n: int) -> None:
    curve = CURVE_OF[name] + (" periodic" if refresh == "PERIODIC" else "")
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
    assert present(solution.certificate).relative_gap <= 1e-7
    with np.errstate(all="ignore"):
        expected = step_truth.best_rates(lambda r: w * curves.fall(curve, r, d), 0.4 * n, lower, upper, cost)
        best, reached = (float(np.sum(w * curves.cost(curve, r, d))) for r in (expected, solution.rates))
    assert abs(reached - best) <= CONIC * abs(best)
    assert np.sum(np.abs(solution.rates - expected)) <= 0.005 * np.sum(expected)


@pytest.mark.exhaustive
@matrix(objective=OBJECTIVES, share=[0.5, 1.0], bandwidth=[30.0, 1e4])
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
    hard = fo.Problem(HARMONIC, sources, 20.0)
    solution = fo.solve(hard, method(limit=30), throw=False)
    assert solution.status is fo.Status.ITERATION_LIMIT
    assert present(solution.certificate).relative_gap > 1e-6
    assert solution.iterations >= 30
    assert "30 evaluations" in solution.note
    assert solution.value < fo.solve(hard, Uniform()).value
    refused("iteration limit", fo.solve, hard, method(limit=30), error=fo.CertificateError)


DESCENTS = [MirrorDescent(), ProjectedGradient()]
Descent = MirrorDescent | ProjectedGradient


def divergence(descent: Descent, q: truth.Floats, rate: Any) -> Any:  # noqa: ANN401 - a CVXPY expression
    if isinstance(descent, MirrorDescent):
        return cp.sum(cp.multiply(1 / q, rate)) - cp.sum(cp.log(rate)) + float(np.sum(np.log(q))) - len(q)
    return cp.sum_squares(rate - q) / 2


@matrix(descent=DESCENTS, seed=range(6))
def test_step_agrees_with_a_cone_solver_groups(descent: Descent, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 9
    q, g, low = rng.uniform(0.3, 2.0, n), rng.normal(0.0, 1.0, n), rng.uniform(0.0, 0.2, n)
    high = low + rng.uniform(0.3, 2.0, n)
    host = np.array([0, 0, 0, 1, 1, 1, 2, 2, 3])
    limits = np.array([0.3, 0.8, 9.0]) * [np.sum(q[host == h]) for h in range(3)]
    bandwidth = rng.choice([0.5, 0.75, 3.0]) * float(q.sum())
    rate = cp.Variable(n)
    goal = cp.Minimize(0.7 * (g @ rate) + divergence(descent, q, rate))
    inside = [cp.sum(rate[host == h]) <= limits[h] for h in range(3)]
    cp.Problem(goal, [cp.sum(rate) <= bandwidth, rate >= low, rate <= high, *inside]).solve(solver="CLARABEL")
    ours = descent.step(q, g, bandwidth, low, high, 0.7, host, limits)
    assert np.allclose(ours, rate.value, rtol=0.0, atol=1e-3)  # the root of what its value is accurate to
    reached = float((0.7 * (g @ ours) + divergence(descent, q, cp.Constant(ours))).value)
    assert abs(reached - goal.value) <= CONIC * (abs(goal.value) + float(np.abs(g) @ q))
    assert np.sum(ours) <= bandwidth * (1 + EXACT)
    assert all(np.sum(ours[host == h]) <= limits[h] * (1 + EXACT) for h in range(3))


@pytest.mark.parametrize("descent", DESCENTS)
def test_hosts_of_a_step_by_hand(descent: Descent) -> None:
    rates = descent.step(np.ones(4), np.zeros(4), 3.5, 0.0, 9.0, 1.0, [0, 0, 1, 1], [1.0, 9.0])
    assert np.allclose(rates, [0.5, 0.5, 1.0, 1.0], rtol=EXACT)  # the first host alone is at its limit
    rates = descent.step(np.ones(4), np.zeros(4), 2.0, 0.0, 9.0, 1.0, [0, 0, 1, 1], [1.5, 9.0])
    assert np.allclose(rates, 0.5, rtol=EXACT)  # at the multiplier of the budget no limit is reached
    rates = descent.step(np.ones(4), np.zeros(4), 2.0, 0.0, 9.0, 1.0, [1, 0, 1, 2], [1.5, 0.5])
    assert np.allclose(rates, [0.25, 0.75, 0.25, 0.75], rtol=EXACT)  # in any order; the last has no limit


def test_bounds_of_which_one_is_too_coarse_to_tell_the_multipliers_of_another_apart() -> None:
    # The last source's bounds have multipliers 1e-18 apart; the first one's cap rounds its own to 4e-16.
    low, high = np.array([0.1, 1.0, 1.0, 1e9]), np.array([1.1, 2.0, 2.0, 1e9 + 1])
    q, g, eta = np.ones(4), np.array([1.0, -1.0, -1.0, -100.0]), 0.03
    bandwidth = 1e9 + 3.1
    wide = MirrorDescent.step(q, g, bandwidth + 0.003, low, high, eta)
    rates = MirrorDescent.step(q, g, bandwidth, low, wide, eta)  # all are at their caps at one multiplier
    assert abs(np.sum(rates) - bandwidth) <= EXACT * 1e-3 * bandwidth


@pytest.mark.exhaustive
def test_an_event_too_coarse_to_lie_on_either_side_of_two_others() -> None:
    # The last source's bounds have multipliers 2e-17 apart; the cap from its host blurs another's by 1e-14.
    q, g = np.append(np.ones(7), 1000.0), np.array([1.0, 1.0, 1.0, 1.0, 1.0, 100.0, 1.0, -0.01])
    low = np.array([0.1, 1.0, 0.1, 1.0, 1.0, 0.0, 1.0, 1.7e7])
    high = np.array([1.1, 2.0, 0.1, 2.0, 2.0, 1.0, 2.0, 1.7e7 + 1])
    limits = np.array([17000004.117001005, 0.10000100010000001])
    case = step_truth.StepCase(
        q, g, 17000004.217001002, low, high, 1.0, np.array([1, 0, 0, 0, 0, 0, 0, 0]), limits
    )
    rates = MirrorDescent.step(*case.arguments())
    expected = step_truth.exact_step(
        case, lambda q, slope: 1 / (1 / q + slope) if 1 / q + slope > 0 else step_truth.mp.inf
    )
    assert np.allclose(rates, expected, rtol=CONIC, atol=0.0)  # an ulp of the sum is 4e-7 of the sixth rate


@pytest.mark.parametrize("descent", DESCENTS)
def test_limits_that_cannot_bind_change_no_bit(descent: Descent) -> None:
    rng = np.random.default_rng(4)
    q, g, host = rng.lognormal(0.0, 1.0, 50), rng.normal(0.0, 1.0, 50), rng.integers(0, 6, 50)
    plain = descent.step(q, g, 20.0, 0.0, 5.0, 0.3)
    assert np.array_equal(descent.step(q, g, 20.0, 0.0, 5.0, 0.3, host, np.full(5, 1e3)), plain)
    assert np.array_equal(descent.step(q, g, 20.0, 0.0, 5.0, 0.3, host * 0, []), plain)


@pytest.mark.parametrize("descent", DESCENTS)
def test_limits_are_filled_and_a_host_without_sources_does_not_matter(descent: Descent) -> None:
    rng = np.random.default_rng(5)
    host = np.repeat([0, 1, 3], 400)
    q, g = rng.lognormal(0.0, 2.0, 1200), rng.normal(-5.0, 1.0, 1200)
    limits = np.array([1.0, 1e-6, 7.0, 1e3])
    rates = descent.step(q, g, 500.0, 0.0, np.inf, 1.0, host, limits)
    held = np.bincount(host, weights=rates, minlength=4)
    assert np.all(np.abs(held[:2] - limits[:2]) <= EXACT * limits[:2])
    assert abs(np.sum(rates) - 500.0) <= EXACT * 500.0


@pytest.mark.parametrize("descent", DESCENTS)
@pytest.mark.parametrize(
    ("host", "limits", "words"),
    [
        ([0, 0], None, "host and host_limits belong together"),
        (None, [1.0], "host and host_limits belong together"),
        ([0, 0], [0.0], r"host_limits \[0\] = 0 must be numbers > 0"),
        ([0, 0], [np.inf], "host_limits"),
        ([0, 2], [1.0], r"host \[1\] = 2 must be whole numbers, positions in host_limits or 1"),
        ([0, -1], [1.0], r"host \[1\] = -1"),
        ([0.5, 1.0], [1.0], r"host \[0\] = 0.5"),
        ([0, 0, 0], [1.0], "host has shape"),
    ],
)
def test_step_refuses_bad_hosts_by_name(
    descent: Descent, host: list[float] | None, limits: list[float] | None, words: str
) -> None:
    refused(words, descent.step, [1.0, 1.0], [0.0, 0.0], 2.0, 0.0, 9.0, 1.0, host, limits)


@pytest.mark.parametrize("descent", DESCENTS)
def test_step_refuses_floors_beyond_a_limit_and_takes_floors_that_use_it_up(descent: Descent) -> None:
    low, host = np.array([0.3, 0.2, 0.0]), [1, 1, 2]
    with pytest.raises(
        fo.InfeasibleProblemError, match=r"min_rate needs more than host_limits \[1\] = 0.4, 0.5"
    ):
        descent.step(np.ones(3), np.zeros(3), 2.0, low, 9.0, 1.0, host, [1.0, 0.4])
    rates = descent.step(np.ones(3), np.full(3, -1.0), 2.0, low, 9.0, 1.0, host, [1.0, 0.5])
    assert np.allclose(rates, [0.3, 0.2, 1.5], rtol=EXACT)


@pytest.mark.parametrize(
    ("curve", "discipline", "family", "descent"),
    stratified(CURVES, ["poisson", "periodic"], ["hosts", "all"], DESCENTS, every=2),
)
@pytest.mark.sampled(4)
def test_full_solves_are_the_truth(curve: str, discipline: str, family: str, descent: Descent) -> None:
    binding = 0
    for seed in range(3):
        plain = sample(seed + 20, curve, discipline, family, 12).without_counted()
        best = truth.best(plain)
        solution = fo.solve(as_problem(plain), descent, throw=False)
        assert solution.status is fo.Status.OPTIMAL, solution
        assert present(solution.certificate).relative_gap <= 1e-7
        assert abs(as_cost(plain, solution.value) - best.value) <= 2e-7 * best.scale
        binding += int(np.sum(best.host_prices > 0.0))
    assert binding


@pytest.mark.parametrize("descent", DESCENTS)
def test_prices_of_bandwidth_and_hosts_are_those_of_the_optimum(descent: Descent) -> None:
    plain = truth.instance(
        "count", "poisson", [1.0, 4.0, 1.0, 4.0, 1.0], 6.0, host=[0, 0, 1, 1, -1], limits=[1.5, 2.4]
    )
    best = truth.best(plain)
    assert np.all(best.host_prices > 0.0)
    solution = fo.solve(as_problem(plain), descent)
    assert np.allclose(solution.rates, best.rates, rtol=1e-3)
    assert np.allclose([solution.host_prices[h] for h in "01"], best.host_prices, rtol=1e-2)
    assert abs(solution.price - best.price) <= 1e-2 * best.price


@pytest.mark.exhaustive
@matrix(descent=DESCENTS, objective=[HARMONIC, BINARY, DELAY])
def test_a_hundred_hosts_agree_with_water_filling(objective: fo.Objective, descent: Descent) -> None:
    rng = np.random.default_rng(8)
    d, w, cost = rng.lognormal(0.0, 1.0, 600), rng.lognormal(0.0, 1.0, 600), rng.uniform(0.5, 2.0, 600)
    host = rng.permutation(np.arange(600) % 120)
    limits = {h: float(rng.uniform(0.5, 3.0)) for h in range(100)}
    problem = fo.Problem(objective, fo.Sources(d, w, host=host, refresh_cost=cost), 240.0, limits)
    agreement = fo.cross_check(problem, [WaterFilling(), descent])
    assert agreement.agrees
    prices = np.array(list(agreement.solutions[0].host_prices.values()))
    assert np.sum(prices > 0.0) > 10


@pytest.mark.exhaustive
@pytest.mark.parametrize("descent", DESCENTS)
def test_sources_that_cannot_pay_their_hosts_price_end_at_rate_zero(descent: Descent) -> None:
    rng = np.random.default_rng(9)
    d, w = rng.lognormal(0.0, 1.0, 200), rng.lognormal(0.0, 1.0, 200)
    host = np.arange(200) % 4
    problem = fo.Problem(BINARY, fo.Sources(d, w, host=host), 100.0, {0: 2.0, 1: 9.0})
    solution, exact = fo.solve(problem, descent), fo.solve(problem, WaterFilling())
    paid = exact.price + np.array([exact.host_prices.get(h, 0.0) for h in host])
    clear = np.abs(w / d - paid) > 0.01 * paid
    assert np.array_equal((solution.rates == 0.0)[clear], (w / d < paid)[clear])
    assert np.sum((w / d < paid) & (w / d > exact.price)) > 10  # starved by their host alone


@pytest.mark.parametrize("descent", DESCENTS)
def test_a_host_whose_limit_min_rate_uses_up(descent: Descent) -> None:
    d, w, low = np.array([1.0, 2.0, 3.0, 5.0]), np.array([1.0, 2.0, 3.0, 5.0]), [0.3, 0.2, 0.0, 0.0]
    sources = fo.Sources(d, w, host=["a", "a", "a", "b"], min_rate=low)
    problem = fo.Problem(BINARY, sources, 2.0, {"a": 0.5})
    solution = fo.solve(problem, descent)
    assert np.allclose(solution.rates, [0.3, 0.2, 0.0, 1.5], rtol=SCALAR, atol=0.0)
    # Δ/(Δ+ρ)² at importance w = Δ: 25/6.5² is the price, and the third source, at rate 0, is worth 1.
    assert abs(solution.price - 25 / 6.5**2) <= CONIC
    assert abs(solution.price + solution.host_prices["a"] - 1.0) <= CONIC
    starving = fo.Problem(HARMONIC, sources, 2.0, {"a": 0.5})
    with pytest.raises(
        fo.InfeasibleProblemError, match="uses up a host's limit and leaves nothing for source 2"
    ):
        fo.solve(starving, descent)
    fed = fo.Sources(d[:2], w[:2], host=["a", "a"], min_rate=low[:2])
    assert np.array_equal(fo.solve(fo.Problem(HARMONIC, fed, 2.0, {"a": 0.5}), descent).rates, [0.3, 0.2])
