"""Periodic attempts of age and harmonic staleness, source by source against many digits; whole problems."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.cells import attempt_proofs
from freshopt.compiled.cells.attempt_costs import mean_harmonic_attempts
from freshopt.compiled.cells.attempt_roots import attempt_age, attempt_harmonic
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.proof_functions import ProofCell
from freshopt.modelling.objective import Objective
from freshopt.numerics import attempt_means
from freshopt.problems import Age, HarmonicStaleness
from tests.compiled.test_attempt_functions import drawn
from tests.compiled.test_proof_functions import term
from tests.ground_truth.routes import compile_all
from tests.ground_truth.source_gaps import ExactCell, Number, exact_source_gap

PERIODIC = fo.Refresh.PERIODIC
# What is subtracted below has up to 40 of these in common.
DIGITS = 110


def harmonic_marginal(r: Number, d: Number, s: Number) -> Number:
    """Return s²·Σ q^{k−1}(ku − 1 + e^{−ku})/Δ."""
    v = mpmath.exp(-d / r)
    return (d / r - s + s**2 * v / (1 - (1 - s) * v)) / d


def stale_over(v: Number, s: Number) -> Number:
    """Return the stale share of attempts over v = Δ/ρ; v − 1 + e^{−v} is v²/2·₁F₁(1; 3; −v)."""
    failed = -(1 - s) * mpmath.expm1(-v)
    return (s * v / 2 * mpmath.hyp1f1(1, 3, -v) + failed) / (s + failed) / v


def harmonic_cost(r: Number, d: Number, s: Number) -> Number:
    """Return the integral of the marginal value, the stale share over ρ, from ρ on."""
    with mpmath.workdps(45):
        u = d / r
        edges = [mpmath.mpf(0), *(s * mpmath.mpf(10) ** k for k in range(-1, 30))]
        return mpmath.quad(lambda v: stale_over(v, s), [*(x for x in edges if x < u), u])


def age_cost(r: Number, d: Number, s: Number) -> Number:
    """Return sρ·E C(N/ρ), C(τ) = τ²/2 − τ/Δ + (1 − e^{−Δτ})/Δ², N geometric."""
    v = mpmath.exp(-d / r)
    stale = 1 - s * v / (1 - (1 - s) * v)
    return s * r * ((2 - s) / s**2 / (2 * r**2) - 1 / (s * r * d) + stale / d**2)


def age_marginal(r: Number, d: Number, s: Number) -> Number:
    """Return s²·Σ q^{k−1}((ku)²/2 − 1 + (1 + ku)e^{−ku})/Δ²."""
    u, q = d / r, 1 - s
    v = mpmath.exp(-u)
    own = u**2 * (1 + q) / (2 * s**3) - 1 / s + v / (1 - q * v) + u * v / (1 - q * v) ** 2
    return s**2 * own / d**2


EXACT = {"harmonic": ExactCell(harmonic_cost, harmonic_marginal), "age": ExactCell(age_cost, age_marginal)}
PARTS: dict[str, tuple[Demand, ProofCell, Objective]] = {
    "harmonic": (attempt_harmonic, attempt_proofs.ATTEMPT_HARMONIC, HarmonicStaleness(PERIODIC)),
    "age": (attempt_age, attempt_proofs.ATTEMPT_AGE, Age(PERIODIC)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "trials"), [("harmonic", 60), ("age", 400)])
def test_terms_bound_the_exact_share_of_a_gap(name: str, trials: int) -> None:
    _, cell, _ = PARTS[name]
    exact, rng, ratios = EXACT[name], np.random.default_rng(3), []
    with mpmath.workdps(DIGITS):
        for trial in range(trials):
            d, best, success = drawn(rng)
            w = float(rng.choice([1.0, 1e-6, 1e6, 0.37]))
            off = float(10.0 ** rng.uniform(-12.0, np.log10(3.0)))
            rate = best * (1.0 + off) if rng.random() < 0.5 else best / (1.0 + off)
            paid = float(w * exact.marginal(*map(mpmath.mpf, (best, d, success))))
            paid *= float(rng.choice([1.0, 1.0, 1.0 + 1e-16, 0.3, 40.0]))
            bounds = [(0.0, np.inf), (min(rate, 0.9 * best), max(rate, 1.1 * best))][trial % 2]
            truth = exact_source_gap(exact, rate, w, paid, bounds, [d, success])
            cost, _, found, outside = term(cell, rate, w, paid, bounds, [d, success])
            assert outside == 0.0
            assert found >= truth, (d, success, w, rate, paid, bounds)
            whole = float(w * exact.cost(*map(mpmath.mpf, (rate, d, success))))
            assert cost == pytest.approx(whole, rel=1e-12)
            if truth > 1e-24 * (abs(whole) + paid * rate):
                ratios.append(float(found / truth))
    assert np.median(ratios) < 8.0


@pytest.mark.parametrize("name", PARTS)
def test_marginal_values_are_within_the_rounding_allowed(name: str) -> None:
    _, cell, _ = PARTS[name]
    rng, worst = np.random.default_rng(7), 0.0
    with mpmath.workdps(DIGITS):
        for trial in range(150):
            d, rate, success = drawn(rng)
            rate *= 10.0 ** rng.uniform(-8.0, 8.0) if trial % 2 else 1.0
            _, _, marginal, rounding = cell.values(*map(np.float64, (rate, 1.0, d, success)))
            exact = EXACT[name].marginal(*map(mpmath.mpf, (rate, d, success)))
            worst = max(worst, abs(float(marginal / exact - 1)) / rounding)
    assert worst <= 0.5


def test_costs_are_sums_over_the_number_of_attempts() -> None:
    def mean(u: Number) -> Number:
        return mpmath.e1(u) + mpmath.log(u) + mpmath.euler - 1 - mpmath.expm1(-u) / u

    for u, success in ((0.3, 0.6), (7.0, 0.74), (25.0, 0.75), (60.0, 0.9), (3.0, 1.0)):
        s, failing = mpmath.mpf(success), 1 - mpmath.mpf(success)
        exact = float(sum(s**2 * k * failing ** (k - 1) * mean(mpmath.mpf(u) * k) for k in range(1, 50)))
        assert float(mean_harmonic_attempts(u, success)) == pytest.approx(exact, rel=1e-13)
        given = np.array([u]), np.array([success])
        assert float(attempt_means.mean_harmonic_attempts(*given)[0]) == pytest.approx(exact, rel=1e-13)


def test_costs_are_the_same_in_lanes_and_one_by_one() -> None:
    rng = np.random.default_rng(4)
    u, success = 10.0 ** rng.uniform(-8.0, 8.0, 60), 10.0 ** rng.uniform(-9.0, 0.0, 60)
    one_by_one = [mean_harmonic_attempts(*each) for each in zip(u, success, strict=True)]
    np.testing.assert_allclose(attempt_means.mean_harmonic_attempts(u, success), one_by_one, rtol=1e-13)


@pytest.mark.parametrize("name", PARTS)
def test_best_responses_are_those_of_numpy(name: str) -> None:
    demand, _, objective = PARTS[name]
    rng = np.random.default_rng(2)
    d, rate, success = np.array([drawn(rng) for _ in range(600)]).T
    numerics = fo.Problem(objective, fo.Sources(d, success=success), bandwidth=1.0).numerics
    assert numerics is not None
    price = numerics.marginal(rate)
    price[:40], price[40:80] = price[:40] * 1e9, price[40:80] * 1e-9
    expected = numerics.inverse_marginal(price)
    with np.errstate(all="ignore"):
        found = np.array([demand(*each) for each in zip(1.0 / price, d, success, strict=True)])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("success", [1e-30, 1e-9, 0.5, 1.0])
@pytest.mark.parametrize("name", PARTS)
def test_no_price_and_no_marginal_value(name: str, success: float) -> None:
    demand = PARTS[name][0]
    with np.errstate(all="ignore"):
        for d in (1e-100, 1.0, 1e100):
            assert demand(np.float64(0.0), np.float64(d), np.float64(success)) == 0.0
            assert demand(np.float64(np.inf), np.float64(d), np.float64(success)) > 1e80 * d


@pytest.mark.exhaustive
@pytest.mark.parametrize("ill", [False, True])
@pytest.mark.parametrize("name", PARTS)
def test_compiled_solutions_are_those_of_numpy(name: str, ill: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(1), 3000
    d, w, cost = 10.0 ** rng.uniform(-4.0, 4.0, (3, n)) if ill else rng.lognormal(0.0, 1.0, (3, n))
    success = rng.choice([1e-4, 0.03, 0.5, 0.99, 1.0], n)
    sources = fo.Sources(d, w, success=success, refresh_cost=cost, host=rng.integers(0, 20, n))
    bandwidth = 0.3 * float((cost * d).sum())
    problem = fo.Problem(PARTS[name][2], sources, bandwidth, {0: 0.01 * bandwidth, 3: 1e-4 * bandwidth})
    plain = fo.solve(problem)
    compile_all(monkeypatch)
    compiled = fo.solve(problem)
    assert compiled.certificate is not None
    assert compiled.certificate.relative_gap < 1e-12
    assert compiled.value == pytest.approx(plain.value, rel=1e-12)
    assert compiled.price == pytest.approx(plain.price, rel=1e-9)
