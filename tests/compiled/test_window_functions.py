"""Stale-while-revalidate windows, source by source: best responses and gap terms; whole problems."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.cells import window_functions, window_proofs
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.proof_functions import ProofCell
from freshopt.modelling.objective import Objective
from freshopt.numerics.arrays import Array
from freshopt.problems import AccumulatedDelay, BinaryFreshness
from tests.compiled.test_proof_functions import term
from tests.ground_truth.routes import compile_all
from tests.ground_truth.source_gaps import ExactCell, Number, exact_source_gap

ON_REQUEST = fo.Refresh.ON_REQUEST
# What is subtracted below has up to 40 of these in common.
DIGITS = 110


def _expired(z: Number, s: Number) -> Number:
    """Return ∫₀^σ e^{−ζx} dx."""
    return -mpmath.expm1(-z * s) / z


def _delay(t: Number, d: Number, z: Number, s: Number) -> tuple[Number, Number]:
    """Return G(T) = ∫₀ᵀ c + ∫₀^σ e^{−ζx}c(T + x) dx of c = Δs, and G'."""
    moment = (1 - (1 + z * s) * mpmath.exp(-z * s)) / z**2
    return d * (t**2 / 2 + t * _expired(z, s) + moment), d * (t + _expired(z, s))


def _binary(t: Number, d: Number, z: Number, s: Number) -> tuple[Number, Number]:
    """Return the same of c = 1 − e^{−Δs}."""
    fresh = mpmath.exp(-d * t)
    both = _expired(z + d, s)
    return t + mpmath.expm1(-d * t) / d + _expired(z, s) - fresh * both, 1 - fresh + d * fresh * both


def _exact(of_lifetime: Callable[..., tuple[Number, Number]]) -> ExactCell:
    """Return J = ρG(T) and −J' = (T + 1/ζ)G' − G."""

    def cost(r: Number, d: Number, z: Number, s: Number) -> Number:
        return r * of_lifetime(1 / r - 1 / z, d, z, s)[0]

    def marginal(r: Number, d: Number, z: Number, s: Number) -> Number:
        whole, slope = of_lifetime(1 / r - 1 / z, d, z, s)
        return slope / r - whole

    return ExactCell(cost, marginal)


EXACT = {"delay": _exact(_delay), "binary": _exact(_binary)}
PARTS: dict[str, tuple[Demand, ProofCell, Objective]] = {
    "delay": (window_functions.window_delay, window_proofs.WINDOW_DELAY, AccumulatedDelay(ON_REQUEST)),
    "binary": (window_functions.window_binary, window_proofs.WINDOW_BINARY, BinaryFreshness(ON_REQUEST)),
}


def drawn(rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Return a rate over ζ, a change rate, a request rate and a window."""
    asked = float(10.0 ** rng.uniform(-3.0, 3.0))
    d = asked * float(10.0 ** rng.uniform(-5.0, 5.0))
    window = float(10.0 ** rng.uniform(-5.0, 2.0)) / (asked if rng.random() < 0.6 else d)
    return float(10.0 ** rng.uniform(-3.0, -0.01)), d, asked, 0.0 if rng.random() < 0.1 else window


def terms_bound_the_gap(name: str, trials: int) -> None:
    _, cell, _ = PARTS[name]
    exact, rng, ratios = EXACT[name], np.random.default_rng(len(name)), []
    with mpmath.workdps(DIGITS):
        for trial in range(trials):
            share, d, asked, window = drawn(rng)
            w, best = float(rng.choice([1.0, 1e-6, 1e6, 0.37])), asked * share
            off = float(10.0 ** rng.uniform(-12.0, np.log10(3.0)))
            rate = min(best * (1.0 + off) if rng.random() < 0.5 else best / (1.0 + off), asked)
            own = [d, asked, window]
            paid = float(w * exact.marginal(*map(mpmath.mpf, (best, *own))))
            paid *= float(rng.choice([1.0, 1.0, 1.0 + 1e-16, 0.3, 40.0]))
            bounds = [(0.0, asked), (min(rate, 0.9 * best), max(rate, min(asked, 1.1 * best)))][trial % 2]
            truth = exact_source_gap(exact, rate, w, paid, bounds, own)
            cost, gain, found, outside = term(cell, rate, w, paid, bounds, own)
            assert outside == 0.0
            assert found >= truth, (own, w, rate, paid, bounds)
            whole = float(w * exact.cost(*map(mpmath.mpf, (rate, *own))))
            assert cost == pytest.approx(whole, rel=1e-12)
            if name == "binary":
                fresh = float(w * (1 - exact.cost(*map(mpmath.mpf, (rate, *own)))))
                assert gain == pytest.approx(fresh, rel=1e-12)
            if truth > 1e-24 * (abs(whole) + paid * rate):
                ratios.append(float(found / truth))
    assert np.median(ratios) < 8.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PARTS)
def test_terms_bound_the_exact_share_of_a_gap(name: str) -> None:
    terms_bound_the_gap(name, 150)


@pytest.mark.parametrize("name", PARTS)
def test_marginal_values_are_within_the_rounding_allowed(name: str) -> None:
    _, cell, _ = PARTS[name]
    rng, worst = np.random.default_rng(7), 0.0
    with mpmath.workdps(DIGITS):
        for _ in range(80):
            share, *own = drawn(rng)
            rate = own[1] * share**3
            _, _, marginal, rounding = cell.values(*map(np.float64, (rate, 1.0, *own)))
            exact = EXACT[name].marginal(*map(mpmath.mpf, (rate, *own)))
            worst = max(worst, abs(float(marginal / exact - 1)) / rounding)
    assert worst <= 0.5


def numerics_of(name: str, d: Array, asked: Array, window: Array) -> fo.Problem:
    sources = fo.Sources(d, 1.0, request_rate=asked, stale_while_revalidate=window)
    return fo.Problem(PARTS[name][2], sources, bandwidth=1.0)


@pytest.mark.parametrize("name", PARTS)
def test_best_responses_are_those_of_numpy(name: str) -> None:
    rng = np.random.default_rng(2)
    share, d, asked, window = np.array([drawn(rng) for _ in range(300)]).T
    numerics = numerics_of(name, d, asked, window).numerics
    assert numerics is not None
    price = numerics.marginal(asked * share**2)
    # Above the largest marginal value, and next to nothing, where every request fetches.
    price[:40], price[40:80] = price[:40] * 1e9, price[40:80] * 1e-9
    expected = np.minimum(numerics.inverse_marginal(price), asked)
    with np.errstate(all="ignore"):
        found = np.array([PARTS[name][0](*each) for each in zip(1.0 / price, d, asked, window, strict=True)])
    again = numerics.marginal(found)
    same = np.abs(found - expected) <= 1e-12 * expected
    assert np.all(same | (np.abs(again / price - 1.0) < 1e-12))


@pytest.mark.parametrize("name", PARTS)
def test_no_price_and_no_marginal_value(name: str) -> None:
    demand = PARTS[name][0]
    with np.errstate(all="ignore"):
        for d, asked in ((1e-100, 1e100), (1e100, 1e-100), (1.0, 1.0), (1e-100, 1e-100), (1e100, 1e100)):
            for window in (0.0, 1e-100, 1.0, 1e100, np.inf):
                own = np.float64(d), np.float64(asked), np.float64(window)
                assert demand(np.float64(0.0), *own) == 0.0
                assert demand(np.float64(np.inf), *own) == pytest.approx(asked, rel=1e-12), own


@pytest.mark.exhaustive
@pytest.mark.parametrize("ill", [False, True])
@pytest.mark.parametrize("name", PARTS)
def test_compiled_solutions_are_those_of_numpy(name: str, ill: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(1), 3000
    columns = 10.0 ** rng.uniform(-4.0, 4.0, (5, n)) if ill else rng.lognormal(0.0, 1.0, (5, n))
    d, w, asked, cost, window = columns
    sources = fo.Sources(
        d,
        w,
        request_rate=asked,
        refresh_cost=cost,
        host=rng.integers(0, 20, n),
        stale_while_revalidate=window,
    )
    bandwidth = 0.3 * float((cost * asked).sum())
    problem = fo.Problem(PARTS[name][2], sources, bandwidth, {0: 0.01 * bandwidth, 3: 1e-4 * bandwidth})
    plain = fo.solve(problem)
    compile_all(monkeypatch)
    compiled = fo.solve(problem)
    assert compiled.certificate is not None
    assert compiled.certificate.relative_gap < 1e-12
    assert compiled.value == pytest.approx(plain.value, rel=1e-12)
    assert compiled.price == pytest.approx(plain.price, rel=1e-9)
