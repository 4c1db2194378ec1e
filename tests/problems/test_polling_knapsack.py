"""The polling knapsack in both forms: gains against quadrature, optima, and what weights do to the two."""

from __future__ import annotations

from typing import Literal

import mpmath
import numpy as np
import pytest
from scipy.special import expn, gammainc

import freshopt as fo
from freshopt.cvx import cp
from freshopt.problems import BinaryFreshness, PollingKnapsack
from tests.ground_truth.cost_truth import Floats, market
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

Form = Literal["polls", "materials"]
FORMS: list[Form] = ["polls", "materials"]
RANK = np.arange(1.0, 101.0)
RATIOS = np.logspace(-8.0, 8.0, 33)  # a/x: updates per poll

mp = mpmath.MPContext()
mp.dps = 50


def exact_gain(form: Form, a: float, x: float) -> mpmath.mpf:
    """x·d(x), or ∫₀ˣ d, with d(t) = 1 − e^{−a/t}."""
    u = mp.mpf(a) / x
    return -x * mp.expm1(-u) + (a * mp.e1(u) if form == "materials" else 0)


def exact_slope(form: Form, a: float, x: float) -> mpmath.mpf:
    u = mp.mpf(a) / x
    return -mp.expm1(-u) - (u * mp.exp(-u) if form == "polls" else 0)


def test_materials_gain_is_the_integral_of_the_detection_probability() -> None:
    for x in (0.05, 0.5, 3.0, 100.0):
        knots = [0, *(k for k in (0.01, 0.03, 0.1, 0.5, 2.0, 10.0) if k < x), x]
        integral = mp.quad(lambda t: -mp.expm1(-1 / t), knots)
        assert abs(exact_gain("materials", 1.0, x) - integral) <= 1e-14 * integral


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("a", [1e-6, 0.7, 30.0])
def test_gain_slope_and_inverse_over_sixteen_decades(form: Form, a: float) -> None:
    sources, rates = fo.Sources(np.full(len(RATIOS), a)), a / RATIOS
    kernel = PollingKnapsack(form).kernel(sources)
    loss, slope = kernel.cost(rates), kernel.marginal(rates)
    for x, cost, worth in zip(rates, loss, slope, strict=True):
        missed = a if form == "polls" else 0.0
        expected = missed - exact_gain(form, a, float(x))
        assert abs(cost - float(expected)) <= EXACT * abs(float(expected))
        assert abs(worth - float(exact_slope(form, a, float(x)))) <= EXACT * worth
    back = kernel.inverse_marginal(slope)
    told_apart = RATIOS <= 5.0  # beyond, the slope is 1 to within float64's view of the rate
    assert np.all(np.abs(back - rates)[told_apart] <= 10 * EXACT * rates[told_apart])
    assert np.all(kernel.inverse_marginal(np.full(len(RATIOS), 1.0)) == 0.0)
    assert np.all(kernel.cost(np.zeros(len(RATIOS))) == (a if form == "polls" else 0.0))


@pytest.mark.parametrize("form", FORMS)
def test_without_weights_polls_are_proportional(form: Form) -> None:
    a = -np.log1p(-np.array([1e-6, 0.01, 0.2, 0.5, 0.9, 1 - 1e-9]))
    for bandwidth in (1e-3, 1.0, 1e4):
        solution = fo.solve(fo.Problem(PollingKnapsack(form), fo.Sources(a), bandwidth), tolerance=SCALAR)
        assert np.all(np.abs(solution.rates - bandwidth * a / a.sum()) <= 10 * SCALAR * solution.rates)


def test_polls_are_periodic_freshness_weighted_by_the_update_rate() -> None:
    a, w = np.array([0.02, 0.4, 3.0]), np.array([1.0, 0.1, 2.0])
    polls = fo.solve(fo.Problem(PollingKnapsack(), fo.Sources(a, w), 0.5))
    fresh = fo.solve(fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), fo.Sources(a, w * a), 0.5))
    assert np.allclose(polls.rates, fresh.rates, rtol=SCALAR, atol=0.0)
    assert polls.value == pytest.approx(fresh.value, rel=EXACT)


def zipf(exponent: float, importance: Floats) -> fo.Sources:
    """Update probabilities 0.9/k^exponent."""
    return fo.Sources(-np.log1p(-0.9 / RANK**exponent), importance)


def gain(form: Form, sources: fo.Sources, x: Floats) -> float:
    z = sources.change_rate / np.maximum(x, 1e-280)
    each = x * (-np.expm1(-z) if form == "polls" else 1.0 - expn(2, z))
    return float(np.sum(sources.importance * each))


def losses(sources: fo.Sources, bandwidth: float) -> list[float]:
    """What each form's optimum is missing under the other form."""
    rates = {f: fo.solve(fo.Problem(PollingKnapsack(f), sources, bandwidth)).rates for f in FORMS}
    return [
        1.0 - gain(form, sources, rates[other]) / gain(form, sources, rates[form])
        for form, other in zip(FORMS, reversed(FORMS), strict=True)
    ]


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_with_weights_each_form_loses_some_of_the_other(exponent: float) -> None:
    """2-6 % where the busy sources are the important ones, 9-20 % where importance is independent."""
    alike = losses(zipf(exponent, 1.0 / RANK), 5.0)
    assert 0.001 <= min(alike) <= max(alike) <= 0.07
    shuffled = np.random.default_rng(round(2 * exponent) - 1).permutation(RANK)
    unlike = losses(zipf(exponent, 1.0 / shuffled), 2.0)
    assert 0.07 <= min(unlike) <= max(unlike) <= 0.2


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(4))
def test_optimum_is_that_of_brute_force(form: Form, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, spread = 8, (1.0, 1.0, 4.0, 6.0)[seed]
    a, w = 10.0 ** rng.uniform(-spread, spread, n), 10.0 ** rng.uniform(-spread, spread, n)
    bandwidth = float(0.3 * a.sum())
    lower = np.where(rng.random(n) < 0.3, 0.01 * bandwidth, 0.0)
    upper = np.where(rng.random(n) < 0.3, 0.2 * bandwidth, np.inf)
    host = np.where(np.arange(n) < 3, 0, -1)
    sources = fo.Sources(a, w, min_rate=lower, max_rate=upper, host=host)
    problem = fo.Problem(PollingKnapsack(form), sources, bandwidth, {0: 0.1 * bandwidth})
    solution = fo.solve(problem, tolerance=SCALAR)

    def marginal(x: Floats) -> Floats:
        return w * (gammainc(2.0, a / x) if form == "polls" else -np.expm1(-a / x))

    best = market(marginal, bandwidth, n, lower=lower, upper=upper, host=host, limits=[0.1 * bandwidth])
    assert solution.certificate is not None
    assert solution.certificate.relative_gap <= SCALAR
    expected = gain(form, sources, best.optimum())
    assert abs(solution.value - expected) <= SCALAR * (expected + solution.price * bandwidth)


def declared(form: Form, sources: fo.Sources, rates: Floats, nodes: int = 16) -> float:
    rate = cp.Variable(len(sources), nonneg=True)
    expression, cones = PollingKnapsack(form, nodes).per_source(rate, sources)
    problem = cp.Problem(cp.Maximize(cp.sum(expression)), [*cones, rate == rates])
    return float(problem.solve(solver="CLARABEL"))


def test_polls_are_declared_exactly() -> None:
    sources = fo.Sources([0.1, 0.7, 2.0], importance=[1.0, 0.0, 3.0])
    for rates in (np.array([0.05, 0.3, 1.1]), np.array([3.0, 0.9, 0.4])):
        assert declared("polls", sources, rates) == pytest.approx(gain("polls", sources, rates), rel=CONIC)


def test_materials_are_declared_as_accurately_as_stated() -> None:
    """With 16 nodes: 6e-6 for a/x ≥ 0.1, 4e-3 for a/x ≥ 0.001."""
    for ratio, stated in ((10.0, 6e-6), (1.0, 6e-6), (0.1, 6e-6), (0.01, 4e-3), (0.001, 4e-3)):
        sources, rates = fo.Sources([1.0, 0.5]), np.array([1.0, 0.5]) / ratio
        expected = gain("materials", sources, rates)
        assert abs(declared("materials", sources, rates) - expected) <= stated * expected
        assert abs(declared("materials", sources, rates, nodes=32) - expected) <= stated * expected


def test_forms_and_signals_that_are_refused() -> None:
    with pytest.raises(fo.ObjectiveError, match=r"form of .* is 'both'\. Pass 'polls' or 'materials'"):
        PollingKnapsack("both")  # type: ignore[arg-type]
    with pytest.raises(fo.ObjectiveError, match=r"source 0 is signalled, .* Pass signalled=False"):
        fo.Problem(PollingKnapsack(), fo.Sources([1.0], signalled=True), bandwidth=1.0)


def test_declarations_print_their_form() -> None:
    assert repr(PollingKnapsack("materials")) == "PollingKnapsack(form='materials', nodes=16)"
