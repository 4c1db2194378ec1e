"""Costs with kinks, solved by Newton's method: against bisection of marginals that are written by hand."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.dual_search.model_dual import first_models
from freshopt.solvers import SeparableNewton, WaterFilling
from freshopt.solvers.separable_newton import declared_numerics
from tests.ground_truth.named import declared, present
from tests.ground_truth.routes import compile_all
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR

Array = np.ndarray[Any, np.dtype[np.float64]]
N = 24
# Evaluations of an objective with kinks, those for the kinks included.
FEW = 20
BUDGETS = (1e-3, 0.1, 1.0, 20.0)


class Case(NamedTuple):
    """A cost of x = ρ/Δ and importance w: declared, its value, and −d/dx from the right."""

    declared: Callable[[Any, Array], Any]
    cost: Callable[[Array], Array]
    marginal: Callable[[Array], Array]


def _late(x: Array) -> Array:
    return np.maximum(1.0 - x, 0.0)


CASES: dict[str, Case] = {
    "late, and the delay": Case(
        lambda x, w: cp.multiply(w, cp.pos(1 - x) + 0.01 * cp.inv_pos(x)),
        lambda x: _late(x) + 0.01 / x,
        lambda x: (x < 1.0) + 0.01 / x**2,
    ),
    "late": Case(lambda x, w: cp.multiply(w, cp.pos(1 - x)), _late, lambda x: (x < 1.0) + 0.0 * x),
    "late, squared": Case(
        lambda x, w: cp.multiply(w, cp.square(cp.pos(1 - x))),
        lambda x: _late(x) ** 2,
        lambda x: 2.0 * _late(x),
    ),
    "missed beyond four": Case(
        lambda x, w: cp.multiply(w, cp.inv_pos(x) + cp.maximum(cp.inv_pos(x) - 4, 0)),
        lambda x: 1.0 / x + np.maximum(1.0 / x - 4.0, 0.0),
        lambda x: (1.0 + (x < 0.25)) / x**2,
    ),
    "four lines": Case(
        lambda x, w: cp.multiply(w, cp.maximum(3 - 4 * x, 2 - 1.5 * x, 1 - x / 4, 0)),
        lambda x: np.maximum.reduce([3 - 4 * x, 2 - 1.5 * x, 1 - x / 4, 0 * x]),
        lambda x: np.select([x < 0.4, x < 0.8, x < 4.0], [4.0, 1.5, 0.25], 0.0),
    ),
    "least at a finite rate": Case(
        lambda x, w: cp.multiply(w, cp.abs(x - 0.5) + cp.inv_pos(x)),
        lambda x: np.abs(x - 0.5) + 1.0 / x,
        lambda x: np.where(x < 0.5, 1.0, -1.0) + 1.0 / x**2,
    ),
    "kinks inside kinks": Case(
        lambda x, w: cp.multiply(w, cp.pos(cp.pos(cp.inv_pos(x) - 1) - 1) + 0.1 * cp.inv_pos(x)),
        lambda x: np.maximum(np.maximum(1.0 / x - 1.0, 0.0) - 1.0, 0.0) + 0.1 / x,
        lambda x: ((x < 0.5) + 0.1) / x**2,
    ),
    "linear beyond one": Case(
        lambda x, w: cp.multiply(w, cp.huber(cp.pos(2 - x), 1.0)),
        lambda x: np.where(x < 1.0, 3.0 - 2.0 * x, 4.0 * _late(x / 2.0) ** 2),
        lambda x: np.where(x < 1.0, 2.0, 4.0 * _late(x / 2.0)),
    ),
    "two curves": Case(
        lambda x, w: cp.multiply(w, cp.maximum(cp.square(cp.pos(2 - x)), cp.inv_pos(x))),
        lambda x: np.maximum(_late(x / 2.0) ** 2 * 4.0, 1.0 / x),
        lambda x: np.where(4.0 * _late(x / 2.0) ** 2 > 1.0 / x, 4.0 * _late(x / 2.0), 1.0 / x**2),
    ),
}


def drawn(name: str, ill: bool) -> tuple[Array, Array]:
    rng = np.random.default_rng([len(name), int(ill)])
    if ill:
        return 10.0 ** rng.uniform(-6.0, 4.0, N), 10.0 ** rng.uniform(-6.0, 6.0, N)
    return rng.lognormal(size=N), rng.lognormal(size=N)


def objective(case: Case) -> fo.Objective:
    return declared(lambda r, s: case.declared(cp.multiply(1.0 / s.change_rate, r), s.importance))


def best_value(case: Case, d: Array, w: Array, bandwidth: float, most: Array) -> float:
    """Return the least cost, by bisection of rates at prices and of the price; both sides of it mixed."""

    def responses(price: float) -> Array:
        low, high = np.full(len(d), -800.0), np.log(most / d)
        for _ in range(64):
            middle = 0.5 * (low + high)
            above = w / d * case.marginal(np.exp(middle)) > price
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.minimum(d * np.exp(high), most)

    with np.errstate(all="ignore"):
        if np.sum(responses(1e-300)) <= bandwidth:
            return float(np.sum(w * case.cost(responses(1e-300) / d)))
        low, high = -690.0, 690.0
        for _ in range(64):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if np.sum(responses(np.exp(middle))) > bandwidth else (low, middle)
        some, few = responses(np.exp(low)), responses(np.exp(high))
        share = (bandwidth - np.sum(few)) / max(np.sum(some) - np.sum(few), 1e-300)
        rates = few + min(1.0, max(0.0, share)) * (some - few)
        return float(np.sum(w * case.cost(rates / d)))


@matrix(compiled=[False, True], ill=[False, True], name=CASES, every=3)
def test_costs_with_kinks_are_solved_in_few_evaluations(
    name: str, ill: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        compile_all(monkeypatch)
    case, (d, w) = CASES[name], drawn(name, ill)
    for budget in BUDGETS:
        bandwidth = budget * float(np.sum(d))
        solution = fo.solve(fo.Problem(objective(case), fo.Sources(d, w), bandwidth), SeparableNewton())
        assert solution.iterations <= FEW
        assert present(solution.certificate).confirms(SCALAR)
        least = best_value(case, d, w, bandwidth, np.full(N, 2.0 * bandwidth))
        assert abs(float(solution.value) - least) <= EXACT * abs(least) + 1e-14 * float(np.sum(w))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_upper_bounds_at_kinks_and_on_both_sides_of_them(
    name: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        compile_all(monkeypatch)
    case, (d, w) = CASES[name], drawn(name, ill=True)
    kinks = np.array([0.25, 0.4, 0.5, 0.8, 1.0, 2.0])
    most = d * np.resize([*kinks, *(0.9 * kinks), *(1.1 * kinks)], N)
    for budget in (0.1, 1.0):
        bandwidth = budget * float(np.sum(d))
        sources = fo.Sources(d, w, max_rate=most)
        solution = fo.solve(fo.Problem(objective(case), sources, bandwidth), SeparableNewton())
        assert present(solution.certificate).confirms(SCALAR)
        least = best_value(case, d, w, bandwidth, np.minimum(most, 2.0 * bandwidth))
        assert abs(float(solution.value) - least) <= EXACT * abs(least) + 1e-14 * float(np.sum(w))


@matrix(ill=[False, True], name=CASES, every=3)
def test_hosts_and_lower_bounds_among_kinks(name: str, ill: bool) -> None:
    case, (d, w) = CASES[name], drawn(name, ill)
    host = np.arange(N) % 5
    limits = {h: share * float(np.sum(d[host == h])) for h, share in enumerate((0.2, 0.5, 1.0, 3.0))}
    sources = fo.Sources(d, w, host=host, min_rate=0.05 * d, refresh_cost=np.resize([1.0, 0.3, 2.0], N))
    problem = fo.Problem(objective(case), sources, 0.6 * float(np.sum(d)), limits)
    solution = fo.solve(problem, SeparableNewton())
    assert present(solution.certificate).confirms(SCALAR)
    filled = fo.solve(problem, WaterFilling())
    assert abs(float(solution.value) - float(filled.value)) <= EXACT * abs(float(filled.value))


def test_all_sources_alike_and_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """At equal marginals the demand of all jumps at one price, and all share what is left."""
    cases = []
    for n, name, budget in itertools.product((1, 7), CASES, (0.3, 0.4, 0.7)):
        case, bandwidth, d, w = CASES[name], budget * 2.0 * n, np.full(n, 2.0), np.ones(n)
        problem = fo.Problem(objective(case), fo.Sources(d, w), bandwidth)
        cases.append((name, problem, best_value(case, d, w, bandwidth, np.full(n, 2.0 * bandwidth))))
    for compiled in (False, True):
        if compiled:
            compile_all(monkeypatch)
        for name, problem, least in cases:
            solution = fo.solve(problem, SeparableNewton())
            assert abs(float(solution.value) - least) <= EXACT * abs(least) + 1e-14, (name, compiled)


@pytest.mark.parametrize("name", CASES)
def test_an_evaluation_leaves_nothing_of_the_last_lines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all(monkeypatch)
    case, (d, w) = CASES[name], drawn(name, ill=True)
    problem = fo.Problem(objective(case), fo.Sources(d, w), float(np.sum(d)))
    numerics, price = declared_numerics(problem), np.broadcast_to(0.3, N)
    assert not isinstance(numerics, str)
    fresh, again = (first_models(problem, numerics, None)[0] for _ in range(2))
    for share in (0.1, 3.0):
        again = again.evaluated(share * d, price).models
    fresh = fresh.evaluated(0.3 * d, price).models
    again = again.evaluated(0.3 * d, price).models
    for log_price in (-3.0, 0.0, 3.0):
        assert again.total_response(log_price) == fresh.total_response(log_price)
        assert np.array_equal(again.rates(log_price), fresh.rates(log_price))
