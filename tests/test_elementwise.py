"""Derived value, slope and curvature: against mpmath, the kernels, and at work in a user's objective."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.declaration import declare
from freshopt.derived import DerivedNumerics
from freshopt.elementwise import UnknownAtomError, compile_expression
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.solvers import Auto, Conic
from tests.tolerances import CONIC, EXACT, SCALAR
from tests.unknown_atom import stranger

mp = mpmath.MPContext()
mp.dps = 50

RATES = np.logspace(-6.0, 6.0, 25)
D = np.linspace(0.5, 4.0, 25)
Written = Callable[[Any], Any]
# What CVXPY is told, and the same function of a rate r with its own constant d, for mpmath.
EXPRESSIONS: dict[str, tuple[Written, Callable[[Any, Any], Any]]] = {
    "AddExpression": (lambda x: cp.log(x) + cp.sqrt(x) + D, lambda r, d: mp.log(r) + mp.sqrt(r) + d),
    "NegExpression": (lambda x: -cp.log(x), lambda r, _: -mp.log(r)),
    "multiply": (lambda x: cp.multiply(D, cp.log(x)), lambda r, d: d * mp.log(r)),
    "multiply, constant second": (lambda x: cp.multiply(cp.sqrt(x), D), lambda r, d: mp.sqrt(r) * d),
    "DivExpression": (lambda x: cp.log(x) / 3.0, lambda r, _: mp.log(r) / 3),
    "DivExpression, by a vector": (lambda x: cp.log(x) / D, lambda r, d: mp.log(r) / d),
    "Promote": (lambda x: x + cp.Constant(2.0), lambda r, _: r + 2),
    "log": (lambda x: cp.log(x + D), lambda r, d: mp.log(r + d)),
    "exp": (lambda x: cp.exp(-cp.multiply(D, cp.log(x))), lambda r, d: mp.exp(-d * mp.log(r))),
    "logistic": (lambda x: cp.logistic(np.log(D) - cp.log(x)), lambda r, d: mp.log(1 + d / r)),
    "logistic, rising": (
        lambda x: cp.logistic(1e-3 * x - D),
        lambda r, d: mp.log(1 + mp.exp(mp.mpf(1e-3) * r - d)),
    ),
    "power: inv_pos": (lambda x: cp.inv_pos(x + D), lambda r, d: 1 / (r + d)),
    "power: sqrt": (lambda x: cp.sqrt(x), lambda r, _: mp.sqrt(r)),
    "power: square": (lambda x: cp.square(x - D), lambda r, d: (r - d) ** 2),
    "power: -2.5": (lambda x: cp.power(x, -2.5), lambda r, _: r ** mp.mpf(-2.5)),
    "power: 0.3": (lambda x: cp.power(x, 0.3), lambda r, _: r ** mp.mpf(0.3)),
}


def compiled(written: Written, n: int) -> Any:  # noqa: ANN401 - a Node
    rate = cp.Variable(n, nonneg=True)
    return compile_expression(written(rate), rate)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_value_slope_and_curvature_are_the_derivatives(name: str) -> None:
    written, exact = EXPRESSIONS[name]
    with np.errstate(over="ignore"):  # as DerivedNumerics does: 1/(1+e^x) is 0 where e^x overflows
        jet = compiled(written, len(RATES)).evaluate(RATES)
    for k, r in enumerate(RATES):
        of_rate = functools.partial(lambda d, x: exact(x, d), mp.mpf(D[k]))
        for order, found in enumerate(jet):
            expected = float(mp.diff(of_rate, mp.mpf(r), order))
            unit = abs(expected) + 1e-30  # mpmath differentiates in 50 digits
            unit += abs(r) + D[k] if order == 0 else 0.0  # sums of terms may cancel in the value
            if name == "power: square":
                unit += abs(2.0 * D[k])
            assert abs(float(np.broadcast_to(found, RATES.shape)[k]) - expected) <= EXACT * unit, (order, r)


def test_taking_some_sources_takes_their_constants() -> None:
    written, _ = EXPRESSIONS["logistic"]
    node = compiled(written, len(RATES))
    for index in (slice(3, 9), np.array([7, 2, 2])):
        part = node.take(index).evaluate(RATES[index])
        assert np.array_equal(part.slope, node.evaluate(RATES).slope[index])


@pytest.mark.parametrize("objective", [AccumulatedDelay(), BinaryFreshness(), HarmonicStaleness()])
@pytest.mark.parametrize("signalled", [False, True])
def test_derived_numerics_are_the_kernels(objective: fo.Objective, signalled: bool) -> None:
    share = np.logspace(-8.0, 0.0 if signalled else 8.0, 33)
    d = np.logspace(-3.0, 3.0, 33)
    sources = fo.Sources(d, importance=np.linspace(0.5, 2.0, 33))
    kernel = (objective.signalled_kernel if signalled else objective.kernel)(sources)
    assert kernel is not None
    rate = cp.Variable(33, nonneg=True)
    method = objective.signalled_per_source if signalled else objective.per_source
    declared = declare(objective, method, rate, sources)
    sign = 1.0 if objective.sense == "minimise" else -1.0
    derived = DerivedNumerics(compile_expression(declared.expression, rate), sign, d)
    rates = d * share
    lost = np.sum(sources.importance) - np.sum(kernel.cost(rates))
    if objective.sense == "maximise":  # the derived cost is minus the freshness, the kernel's what is lost
        assert abs(-np.sum(derived.cost(rates)) - lost) <= EXACT * np.sum(sources.importance)
    else:
        near_free = 1e-15 * sources.importance  # at p = 1 the cost is 0 up to rounding of the share
        assert np.all(
            np.abs(derived.cost(rates) - kernel.cost(rates)) <= EXACT * kernel.cost(rates) + near_free
        )
    marginal = kernel.marginal(rates)
    assert np.all(np.abs(derived.marginal(rates) - marginal) <= EXACT * marginal)
    if isinstance(
        objective, BinaryFreshness
    ):  # linear, or flat to an ulp near rate 0: compare where neither is
        if signalled:
            return
        rates, marginal = rates[share > 0.1], marginal[share > 0.1]
        derived, d = derived.take(share > 0.1), d[share > 0.1]
    back = derived.inverse_marginal(marginal)
    assert np.all(np.abs(back - rates) <= SCALAR * rates)


class AlphaFairFreshness(fo.Objective):
    """Σ w/freshness²: sources that are rarely fresh weigh more and more."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        staleness = cp.logistic(np.log(sources.change_rate) - cp.log(rate))
        return cp.multiply(sources.importance, cp.exp(2 * staleness))


def planted(n: int) -> tuple[fo.Problem, np.ndarray[Any, np.dtype[np.float64]], float]:
    """Choose optimal rates and a price; −d/dρ (1+Δ/ρ)² = 2(1+Δ/ρ)Δ/ρ² gives the importances."""
    rng = np.random.default_rng(n)
    d, rates, price = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n), 0.8
    w = price / (2.0 * (1.0 + d / rates) * d / rates**2)
    return fo.Problem(AlphaFairFreshness(), fo.Sources(d, w), float(rates.sum())), rates, price


@pytest.mark.parametrize("n", [1, 2, 10, 1000])
def test_a_users_objective_is_solved_and_certified(n: int) -> None:
    problem, rates, price = planted(n)
    solution = fo.solve(problem, Auto(), tolerance=SCALAR)
    assert solution.status is fo.Status.OPTIMAL
    assert np.all(np.abs(solution.rates - rates) <= SCALAR * rates)
    assert abs(solution.price - price) <= SCALAR * price
    value = float(np.sum(problem.sources.importance * (1.0 + problem.sources.change_rate / rates) ** 2))
    assert abs(solution.value - value) <= SCALAR * value


@pytest.mark.parametrize("backend", ["CLARABEL", "ECOS", "SCS"])
def test_a_users_objective_by_cone_solvers(backend: Any) -> None:  # noqa: ANN401 - a Literal
    problem, rates, _ = planted(10)
    solution = fo.solve(problem, Conic(backend), tolerance=CONIC)
    assert np.all(np.abs(solution.rates - rates) <= 1e3 * CONIC * rates)  # rates: about the root of the gap


class LogFreshness(fo.Objective):
    """Maximised log-freshness, log(ρ/(ρ+Δ)), is harmonic staleness with the opposite sign."""

    sense = "maximise"

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return -cp.multiply(sources.importance, cp.logistic(np.log(sources.change_rate) - cp.log(rate)))


def test_log_freshness_is_harmonic_staleness_upside_down() -> None:
    sources = fo.Sources([0.1, 1.0, 30.0], importance=[1.0, 2.0, 0.3])
    mine = fo.solve(fo.Problem(LogFreshness(), sources, 2.0), tolerance=SCALAR)
    named = fo.solve(fo.Problem(HarmonicStaleness(), sources, 2.0), tolerance=SCALAR)
    assert abs(mine.value + named.value) <= EXACT * named.value
    assert np.all(np.abs(mine.rates - named.rates) <= SCALAR * named.rates)


class Strange(fo.Objective):
    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401, ARG002
        return stranger(rate - 5.0)


def test_an_unknown_atom_is_named_with_the_remedy() -> None:
    rate = cp.Variable(2, nonneg=True)
    with pytest.raises(UnknownAtomError, match=r"'stranger' in the objective.*register.*kernel\(\)"):
        compile_expression(stranger(rate), rate)


def test_an_unknown_atom_is_solved_but_not_called_optimal() -> None:
    problem = fo.Problem(Strange(), fo.Sources([1.0, 2.0]), 3.0)
    solution = fo.solve(problem, throw=False)
    assert solution.status is fo.Status.INACCURATE
    assert abs(solution.rates.sum() - 3.0) <= 1e-4
    with pytest.raises(fo.CertificateError, match="stranger") as caught:
        fo.solve(problem)
    assert caught.value.solution.status is fo.Status.INACCURATE
    refused = fo.solve(problem, fo.solvers.WaterFilling(), throw=False)
    assert refused.status is fo.Status.REFUSED
    assert "stranger" in refused.note
