"""Powers of the age on request, source by source: best responses and gap terms; whole problems."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.cells.request_power import request_power
from freshopt.compiled.cells.request_proofs import REQUEST_POWER
from freshopt.problems import PowerCost, SynchronizationCost
from freshopt.separable.kernel import Kernel
from tests.compiled.test_proof_functions import term
from tests.ground_truth.routes import compile_all
from tests.ground_truth.source_gaps import DIGITS, ExactCell, Number, exact_source_gap

ON_REQUEST = fo.Refresh.ON_REQUEST


def _cost(r: Number, level: Number, e: Number, asked: Number) -> Number:
    """Return ρ·C(T) of the cost e^level·ζ^{1+e}·s^e of age."""
    life = 1 / r - 1 / asked
    return r * mpmath.exp(level) * (asked * life) ** (1 + e) / (1 + e) if life > 0 else mpmath.mpf(0)


def _marginal(r: Number, level: Number, e: Number, asked: Number) -> Number:
    """Return T·c(T) − C(T) + c(T)/ζ of the same."""
    life = asked / r - 1
    return mpmath.exp(level) * life**e * (e / (1 + e) * life + 1) if life > 0 else mpmath.mpf(0)


EXACT = ExactCell(_cost, _marginal)


def drawn(rng: np.random.Generator) -> tuple[float, list[float]]:
    """Return a rate, and a level, an exponent and a request rate."""
    asked = float(10.0 ** rng.uniform(-3.0, 3.0))
    own = [float(rng.normal(0.0, 8.0)), float(10.0 ** rng.uniform(-1.5, 0.8)), asked]
    return asked * float(10.0 ** rng.uniform(-6.0, -0.01)), own


@pytest.mark.exhaustive
def test_terms_bound_the_exact_share_of_a_gap() -> None:
    rng, ratios = np.random.default_rng(11), []
    with mpmath.workdps(DIGITS):
        for trial in range(400):
            best, own = drawn(rng)
            off = float(10.0 ** rng.uniform(-12.0, np.log10(3.0)))
            rate = min(best * (1.0 + off) if rng.random() < 0.5 else best / (1.0 + off), own[2])
            paid = float(EXACT.marginal(*map(mpmath.mpf, (best, *own))))
            paid *= float(rng.choice([1.0, 1.0, 1.0 + 1e-16, 0.3, 40.0]))
            bounds = [(0.0, own[2]), (min(rate, 0.9 * best), max(rate, min(own[2], 1.1 * best)))][trial % 2]
            truth = exact_source_gap(EXACT, rate, 1.0, paid, bounds, own)
            cost, _, found, outside = term(REQUEST_POWER, rate, 1.0, paid, bounds, own)
            assert outside == 0.0
            assert found >= truth, (own, rate, paid, bounds)
            whole = float(EXACT.cost(*map(mpmath.mpf, (rate, *own))))
            assert cost == pytest.approx(whole, rel=1e-12)
            if truth > 1e-24 * (whole + paid * rate):
                ratios.append(float(found / truth))
    # Small exponents have a reach of 1/e.
    assert np.median(ratios) < 12.0


def test_marginal_values_are_within_the_rounding_allowed() -> None:
    rng, worst = np.random.default_rng(7), 0.0
    with mpmath.workdps(DIGITS):
        for _ in range(150):
            rate, own = drawn(rng)
            _, _, marginal, rounding = REQUEST_POWER.values(*map(np.float64, (rate, 1.0, *own)))
            exact = EXACT.marginal(*map(mpmath.mpf, (rate, *own)))
            worst = max(worst, abs(float(marginal / exact - 1)) / rounding)
    assert worst <= 0.5


def test_best_responses_are_those_of_numpy() -> None:
    rng, n = np.random.default_rng(2), 500
    w, asked = 10.0 ** rng.uniform(-20.0, 20.0, n), 10.0 ** rng.uniform(-9.0, 9.0, n)
    cost = PowerCost(10.0 ** rng.uniform(-9.0, 9.0, n), 10.0 ** rng.uniform(-2.0, 0.8, n))
    sources = fo.Sources(1.0 + 0.0 * w, w, request_rate=asked)
    numerics = fo.Problem(SynchronizationCost(cost, ON_REQUEST), sources, bandwidth=1.0).numerics
    assert isinstance(numerics, Kernel)
    assert numerics.unit_demand is request_power
    assert numerics.demand_parameters is not None
    price = numerics.marginal(asked * 10.0 ** rng.uniform(-6.0, -1e-3, n))
    expected = numerics.inverse_marginal(price)
    found = np.array(
        [request_power(*each) for each in zip(1.0 / price, *numerics.demand_parameters, strict=True)]
    )
    again = numerics.marginal(found)
    same = np.abs(found - expected) <= 1e-11 * expected
    assert np.all(same | (np.abs(again / price - 1.0) < 1e-11))


def test_no_price_and_no_importance() -> None:
    for e, asked in itertools.product((0.01, 0.5, 9.0), (1e-100, 1.0, 1e100)):
        # τ^e is 1e-300 at most.
        least = asked / (1.0 + 1e-300 ** (1.0 / e))
        with np.errstate(over="ignore"):
            assert request_power(1e-8, -np.inf, e, asked) == 0.0
            assert request_power(1e300, 0.0, e, asked) == pytest.approx(least, rel=1e-12)
            assert 0.0 <= request_power(0.0, 0.0, e, asked) < 1e-20 * asked


@pytest.mark.parametrize("cost", [PowerCost(1.0, 0.5, cap=2.0), PowerCost(1.0, 0.005)])
def test_caps_and_tiny_exponents_stay_in_numpy(cost: PowerCost) -> None:
    problem = fo.Problem(
        SynchronizationCost(cost, ON_REQUEST), fo.Sources([1.0, 2.0], request_rate=3.0), bandwidth=1.0
    )
    assert isinstance(problem.numerics, Kernel)
    assert problem.numerics.unit_demand is None


@pytest.mark.exhaustive
@pytest.mark.parametrize("each", [False, True])
def test_compiled_solutions_are_those_of_numpy(each: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(1), 3000
    w, asked, cost = 10.0 ** rng.uniform(-4.0, 4.0, (3, n)) if each else rng.lognormal(0.0, 1.0, (3, n))
    power = PowerCost(rng.lognormal(0.0, 1.0, n), rng.uniform(0.1, 3.0, n) if each else 0.5)
    sources = fo.Sources(1.0 + 0.0 * w, w, request_rate=asked, refresh_cost=cost)
    bandwidth = 0.3 * float((cost * asked).sum())
    problem = fo.Problem(SynchronizationCost(power, ON_REQUEST), sources, bandwidth)
    plain = fo.solve(problem)
    compile_all(monkeypatch)
    compiled = fo.solve(problem)
    assert compiled.certificate is not None
    assert compiled.certificate.relative_gap < 1e-12
    assert compiled.value == pytest.approx(plain.value, rel=1e-11)
    assert compiled.price == pytest.approx(plain.price, rel=1e-9)


def test_rates_that_round_to_the_requests_waste_next_to_nothing() -> None:
    # τ = 1e-40 at the price 1e-4 of C = 1.
    own = [0.0, 0.1, 3.0]
    _, _, found, outside = term(REQUEST_POWER, 3.0, 1.0, 1e-4, (0.0, 3.0), own)
    assert outside == 0.0
    assert 0.0 < found < 1e-39
