"""SeparableNewton: kernels hidden, against the truth; evaluations counted; kinks, refusals and limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import freshopt as fo
from freshopt.cvx import cp
from freshopt.dual_search.model_dual import newton_prices
from freshopt.problems import ExpectedPenalty
from freshopt.separable.kernel import MixedNumerics
from freshopt.solvers import Auto, SeparableNewton, WaterFilling
from tests.ground_truth import named, truth
from tests.ground_truth.cases import as_cost, as_problem
from tests.ground_truth.counted_sources import counted
from tests.ground_truth.kkt import violations
from tests.ground_truth.named import AGE, BINARY, BINARY_PERIODIC, DELAY, HARMONIC, present
from tests.ground_truth.refusals import refused
from tests.ground_truth.routes import compile_all
from tests.ground_truth.strata import matrix, stratified
from tests.ground_truth.strategies import BUDGETS, FAMILIES, instances, sample
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.ground_truth.truth import Instance

Array = np.ndarray[Any, np.dtype[np.float64]]
CELLS = [("harmonic", "poisson"), ("binary", "poisson"), ("count", "poisson"), ("count", "periodic")]
SMOOTH = 20  # evaluations of a smooth objective, whatever its scales
ULPS = 4e-15  # how far a binding limit may be from used up


class Hidden(fo.Objective):
    """A named objective without its kernels, as a user would declare it."""

    def __init__(self, named: fo.Objective) -> None:
        self.named, self.refresh = named, named.refresh
        self.sense = named.sense  # type: ignore[misc]

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return self.named.per_source(rate, sources)

    def signalled_per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return self.named.signalled_per_source(rate, sources)


def hidden(plain: Instance) -> fo.Problem:
    """Return an instance's problem with all kernels hidden."""
    named = as_problem(plain)
    return fo.Problem(Hidden(named.objective), named.sources, named.bandwidth, named.host_limits)


def require_used_up(problem: fo.Problem, solution: fo.Solution) -> None:
    used = problem.sources.refresh_cost * solution.rates
    share = float(np.sum(used)) / problem.bandwidth
    assert share <= 1.0 + ULPS
    assert solution.price == 0.0 or share >= 1.0 - ULPS
    held = problem.hosts.totals(used) / problem.hosts.limits
    paid = np.array(list(solution.host_prices.values()))
    assert np.all(held <= 1.0 + ULPS)
    assert np.all((held >= 1.0 - ULPS) | (paid <= 1e-9 * solution.price))


def check_against_truth(plain: Instance) -> None:
    plain = plain.without_counted()
    problem = hidden(plain)
    solution = fo.solve(problem, SeparableNewton(), throw=False)
    assert solution.iterations <= SMOOTH
    require_used_up(problem, solution)
    best, achieved = truth.best(plain), truth.total_cost(plain, solution.rates)
    nothing = 1e-12 * float(np.sum(plain.importance))
    shortfall = achieved - best.value
    assert shortfall <= EXACT * best.scale or best.value <= nothing >= shortfall
    # The gap is one between costs, which a freshness hides behind Σw.
    assert present(solution.certificate).gap >= shortfall - EXACT * (
        best.scale + float(np.sum(plain.importance))
    )


@pytest.mark.parametrize(("cell", "ill", "family"), stratified(CELLS, [False, True], FAMILIES, every=3))
@pytest.mark.sampled(4)
def test_hidden_kernels_are_the_truth(cell: tuple[str, str], ill: bool, family: str) -> None:
    curve, discipline = cell
    for n, budget in ((1, 0.5), (2, 1e-3), (3, 1.0), (10, 20.0)):
        check_against_truth(sample(11, curve, discipline, family, n, ill=ill, budget=budget))


@settings(max_examples=80, deadline=None)
@given(plain=instances())
@pytest.mark.exhaustive
def test_hidden_kernels_are_the_truth_in_the_corners(plain: Instance) -> None:
    if (plain.curve, plain.discipline) in CELLS:
        check_against_truth(plain)


@matrix(family=FAMILIES, budget=BUDGETS)
@pytest.mark.parametrize(("curve", "discipline"), CELLS)
def test_a_thousand_ill_scaled_sources_meet_the_conditions_of_optimality(
    curve: str, discipline: str, budget: float, family: str
) -> None:
    plain = sample(12, curve, discipline, family, 1000, ill=True, budget=budget).without_counted()
    problem = hidden(plain)
    solution = fo.solve(problem, SeparableNewton(), throw=False)
    assert present(solution.certificate).confirms(EXACT)
    assert solution.iterations <= SMOOTH
    require_used_up(problem, solution)
    host_prices = [solution.host_prices.get(str(h), 0.0) for h in range(len(plain.limits))]
    assert violations(plain, solution.rates, solution.price, host_prices).worst() <= SCALAR


@pytest.mark.parametrize("objective", [DELAY, BINARY, HARMONIC, AGE])
def test_named_objectives_are_solved_without_their_kernels(objective: fo.Objective) -> None:
    """The certificate then comes from the kernel alone, the rates from the declaration alone."""
    rng = np.random.default_rng(3)
    sources = fo.Sources(rng.lognormal(0.0, 2.0, 300), rng.lognormal(0.0, 2.0, 300))
    problem = fo.Problem(objective, sources, 100.0)
    solution = fo.solve(problem, SeparableNewton(), tolerance=EXACT)
    assert abs(solution.value - fo.solve(problem, WaterFilling()).value) <= EXACT * abs(solution.value)


def of_columns(cost: Callable[[Any, Array, Array], Any]) -> fo.Objective:
    """Return an objective made of a function of (rate, change rate, importance)."""
    return named.declared(lambda rate, sources: cost(rate, sources.change_rate, sources.importance))


USERS: dict[str, tuple[Callable[[Any, Array, Array], Any], Callable[[Array, Array, Array], Array]]] = {
    # What CVXPY is told, and −d/dρ by hand.
    "alpha-fair": (
        lambda r, d, w: cp.multiply(w, cp.exp(2 * cp.logistic(np.log(d) - cp.log(r)))),
        lambda r, d, w: 2 * w * (1 + d / r) * d / r / r,
    ),
    "blend": (
        lambda r, d, w: cp.multiply(
            w, cp.logistic(np.log(d) - cp.log(r)) + cp.multiply(0.1 * d, cp.inv_pos(r))
        ),
        lambda r, d, w: w * (d / r / (r + d) + 0.1 * d / r / r),
    ),
    "inverse square": (lambda r, d, w: cp.multiply(w * d, cp.power(r, -2)), lambda r, d, w: 2 * w * d / r**3),
    "root": (lambda r, d, w: -cp.multiply(w, cp.sqrt(r + d)), lambda r, d, w: 0.5 * w / np.sqrt(r + d)),
}


@pytest.mark.parametrize("name", USERS)
def test_a_users_objective_takes_few_evaluations_certificate_included(name: str) -> None:
    declared, marginal = USERS[name]
    rng = np.random.default_rng(5)
    n = 2000
    for d, w in (
        (rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)),
        (10 ** rng.uniform(-6.0, 4.0, n), 10 ** rng.uniform(-6.0, 6.0, n)),
    ):
        cost = rng.uniform(0.2, 5.0, n)
        for budget in BUDGETS:
            problem = fo.Problem(
                of_columns(declared), fo.Sources(d, w, refresh_cost=cost), budget * float(np.sum(cost * d))
            )
            seen = counted(problem)
            solution = fo.solve(problem, SeparableNewton(), certify=False)
            assert seen[0] == solution.iterations * n + n  # the last one is the value
            proof = fo.certify(problem, solution.rates, solution.price)
            assert proof.relative_gap <= EXACT
            assert seen[0] <= SMOOTH * n
            require_used_up(problem, solution)
            worth = marginal(solution.rates, d, w) / cost / solution.price
            assert np.all(np.abs(worth[solution.rates > 0.0] - 1.0) <= 1e-6)
            with np.errstate(over="ignore", divide="ignore"):
                at_zero = marginal(np.full(n, 1e-300), d, w) / cost
            assert np.all((solution.rates > 0.0) | (at_zero <= solution.price * (1.0 + EXACT)))


def test_budgets_that_do_not_bind_have_no_price() -> None:
    satiated = fo.Problem(
        of_columns(lambda r, d, w: cp.multiply(w, cp.square(r - d))), fo.Sources([1.0, 2.0, 7.0]), 20.0
    )
    solution = fo.solve(satiated, SeparableNewton())
    assert solution.price == 0.0
    assert np.allclose(solution.rates, [1.0, 2.0, 7.0], rtol=1e-6)
    capped = fo.Problem(HARMONIC, fo.Sources([1.0, 2.0], max_rate=[0.5, 1.0]), 20.0)
    assert np.array_equal(fo.solve(capped, SeparableNewton()).rates, [0.5, 1.0])


def test_sources_of_no_importance_get_their_least() -> None:
    sources = fo.Sources([1.0, 5.0, 2.0], importance=[2.0, 0.0, 0.0], min_rate=[0.0, 0.5, 0.0])
    solution = fo.solve(fo.Problem(Hidden(HARMONIC), sources, 3.0), SeparableNewton())
    assert np.allclose(solution.rates, [2.5, 0.5, 0.0], rtol=EXACT, atol=0.0)


def test_limits_used_up_by_min_rate() -> None:
    sources = fo.Sources([1.0, 2.0, 3.0], min_rate=[1.0, 0.5, 0.0], host=["a", "a", "b"])
    held = fo.Problem(Hidden(HARMONIC), sources, 4.0, {"a": 1.5})
    solution = fo.solve(held, SeparableNewton(), tolerance=SCALAR)
    assert np.allclose(solution.rates, [1.0, 0.5, 2.5], rtol=EXACT)
    everything = fo.Problem(Hidden(BINARY), sources, 1.5)
    assert np.array_equal(fo.solve(everything, SeparableNewton(), tolerance=SCALAR).rates, [1.0, 0.5, 0.0])
    starving = fo.Problem(Hidden(HARMONIC), sources, 1.5)
    refused(r"source 2.*infinite", fo.solve, starving, SeparableNewton(), error=fo.InfeasibleProblemError)


def test_two_kinds_of_sources_are_derived_separately() -> None:
    plain = sample(4, "harmonic", "poisson", "signals", 50)
    problem = hidden(plain)
    assert isinstance(problem.numerics, MixedNumerics)
    solution = fo.solve(problem, SeparableNewton(), tolerance=EXACT)
    named = fo.solve(as_problem(plain), WaterFilling(), tolerance=EXACT)
    assert np.allclose(solution.rates, named.rates, rtol=SCALAR)
    assert abs(as_cost(plain, solution.value) - as_cost(plain, named.value)) <= EXACT * named.value


def test_what_is_refused_says_why() -> None:
    sources = fo.Sources([1.0, 2.0])
    for objective, reason in (
        (BINARY_PERIODIC, "auxiliary variables"),
        (ExpectedPenalty(np.square), "marginals differ"),
    ):
        problem = fo.Problem(objective, sources, 1.0)
        refusal = present(SeparableNewton().supports(problem))
        assert reason in refusal
        refused(reason, fo.solve, problem, SeparableNewton(), error=fo.SolverRefusedError)


def test_auto_takes_newton_where_there_is_no_kernel() -> None:
    sources = fo.Sources([1.0, 2.0])
    assert isinstance(Auto().choice(fo.Problem(Hidden(HARMONIC), sources, 1.0))[0], SeparableNewton)
    assert isinstance(Auto().choice(fo.Problem(HARMONIC, sources, 1.0))[0], WaterFilling)


def test_the_limit_of_evaluations_is_told() -> None:
    plain = sample(5, "harmonic", "poisson", "none", 100, ill=True)
    solution = fo.solve(hidden(plain), SeparableNewton(limit=4), throw=False, tolerance=SCALAR)
    assert solution.status is fo.Status.INACCURATE
    assert "limit of 4 evaluations" in solution.note


def test_prices_of_many_groups_at_once() -> None:
    """Groups of power-law demand, a step, and one that never meets its target."""
    rates = np.array([3.0, 0.5, 2.0])

    def response(log_price: Array) -> tuple[Array, Array]:
        power = rates[0] * np.exp(-0.5 * log_price[0])
        step = 1.0 if log_price[1] < 0.25 else 0.1
        return np.array([power, step, 1.0]), np.array([0.5 * power, 0.0, 0.0])

    found = newton_prices(response, np.array([6.0, 0.5, 2.0]), np.zeros(3), 0.0)
    expected = np.array([2.0 * np.log(0.5), 0.25])
    assert np.all(found.low[:2] <= expected)
    assert np.all(found.high[:2] >= expected - 1e-14)
    assert np.all(found.high[:2] - found.low[:2] <= 1e-12)
    assert found.high[2] == found.low[2] == -690.0


class Exponential(fo.Objective):
    """w·e^{−ρ/Δ}, whose marginal all but vanishes at 700 Δ."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance, cp.exp(-rate / sources.change_rate))


@pytest.mark.parametrize("compiled", [False, True])
def test_marginals_whose_inverse_overflows_have_no_line(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        compile_all(monkeypatch)
    rng = np.random.default_rng(3000)
    d, w = 10.0 ** rng.uniform(-3.0, 3.0, 3000), 10.0 ** rng.uniform(-2.0, 2.0, 3000)
    shared = 3000.0 / len(d)  # the rates of the first evaluation
    marginals = np.exp(-shared / d)
    assert np.any((marginals > 0.0) & (marginals < np.finfo(float).tiny))
    low, high = -50.0, 50.0
    for _ in range(100):
        log_price = 0.5 * (low + high)
        rates = d * np.maximum(0.0, np.log(w / d) - log_price)
        low, high = (log_price, high) if rates.sum() > 3000.0 else (low, log_price)
    solution = fo.solve(fo.Problem(Exponential(), fo.Sources(d, w), 3000.0), SeparableNewton())
    assert solution.rates == pytest.approx(rates, rel=SCALAR, abs=SCALAR)
    assert solution.iterations <= SMOOTH
