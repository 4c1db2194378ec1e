"""Refreshes on request, source by source: best responses and gap terms against 50 digits; whole problems."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.cells import request_functions, request_proofs
from freshopt.compiled.cells.request_age import request_age
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.proof_functions import ProofCell
from freshopt.modelling.objective import Objective
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from tests.compiled.test_proof_functions import term
from tests.ground_truth.routes import compile_all
from tests.ground_truth.source_gaps import DIGITS, ExactCell, Number, exact_source_gap

ON_REQUEST = fo.Refresh.ON_REQUEST


def _ein(u: Number) -> Number:
    if u > 1:
        return mpmath.e1(u) + mpmath.log(u) + mpmath.euler
    term, total, k = mpmath.mpf(1), mpmath.mpf(0), 0
    while k < 4 or abs(term) > mpmath.mpf(10) ** (-DIGITS - 30) * abs(total):
        k += 1
        term = -term * u / k
        total -= term / k
    return total


def _index(u: Number) -> Number:
    """Return u − 1 + e^{−u} with its own digits where u is small."""
    return u + mpmath.expm1(-u) if u > 1 else mpmath.nsum(lambda k: (-u) ** k / mpmath.factorial(k), [2, 60])


def _age_index(u: Number) -> Number:
    """Return u²/2 − 1 + (1 + u)e^{−u}, with its own digits where u is small."""
    if u > 1:
        return u**2 / 2 - 1 + (1 + u) * mpmath.exp(-u)
    return -mpmath.nsum(lambda k: (-u) ** k * (k - 1) / mpmath.factorial(k), [3, 60])


def _life(r: Number, asked: Number) -> Number:
    return 1 / r - 1 / asked


EXACT = {
    "delay": ExactCell(
        lambda r, d, z: r * d * _life(r, z) ** 2 / 2,
        lambda r, d, z: d * (_life(r, z) ** 2 / 2 + _life(r, z) / z),
    ),
    "harmonic": ExactCell(
        lambda r, d, z: r / d * (d * _life(r, z) * _ein(d * _life(r, z)) - _index(d * _life(r, z))),
        lambda r, d, z: _index(d * _life(r, z)) / d + _ein(d * _life(r, z)) / z,
    ),
    "binary": ExactCell(
        lambda r, d, z: r / d * _index(d * _life(r, z)),
        lambda r, d, z: (
            -mpmath.expm1(mpmath.log1p(d * _life(r, z)) - d * _life(r, z)) / d
            - mpmath.expm1(-d * _life(r, z)) / z
        ),
    ),
}
EXACT["age"] = ExactCell(
    lambda r, d, z: r / d**2 * (_index(d * _life(r, z)) * d * _life(r, z) - _age_index(d * _life(r, z))),
    lambda r, d, z: (_age_index(d * _life(r, z)) + d / z * _index(d * _life(r, z))) / d**2,
)
PARTS: dict[str, tuple[Demand, ProofCell, Objective]] = {
    "delay": (request_functions.request_delay, request_proofs.REQUEST_DELAY, AccumulatedDelay(ON_REQUEST)),
    "harmonic": (
        request_functions.request_harmonic,
        request_proofs.REQUEST_HARMONIC,
        HarmonicStaleness(ON_REQUEST),
    ),
    "binary": (request_functions.request_binary, request_proofs.REQUEST_BINARY, BinaryFreshness(ON_REQUEST)),
    "age": (request_age, request_proofs.REQUEST_AGE, Age(ON_REQUEST)),
}


def terms_bound_the_gap(name: str, trials: int) -> None:
    _, cell, _ = PARTS[name]
    rng, ratios = np.random.default_rng(len(name)), []
    with mpmath.workdps(DIGITS):
        for trial in range(trials):
            asked = float(10.0 ** rng.uniform(-3.0, 3.0))
            d = asked * float(10.0 ** rng.uniform(-5.0, 5.0))
            w = float(rng.choice([1.0, 1e-6, 1e6, 0.37]))
            best = asked * float(10.0 ** rng.uniform(-3.0, -0.01))
            off = float(10.0 ** rng.uniform(-12.0, np.log10(3.0)))
            rate = min(best * (1.0 + off) if rng.random() < 0.5 else best / (1.0 + off), asked)
            exact = EXACT[name]
            paid = float(w * exact.marginal(mpmath.mpf(best), mpmath.mpf(d), mpmath.mpf(asked)))
            paid *= float(rng.choice([1.0, 1.0, 1.0 + 1e-16, 0.3, 40.0]))
            bounds = [(0.0, asked), (min(rate, 0.9 * best), max(rate, min(asked, 1.1 * best)))][trial % 2]
            truth = exact_source_gap(exact, rate, w, paid, bounds, [d, asked])
            cost, gain, found, outside = term(cell, rate, w, paid, bounds, [d, asked])
            assert outside == 0.0
            assert found >= truth, (d, asked, w, rate, paid, bounds)
            whole = float(w * exact.cost(mpmath.mpf(rate), mpmath.mpf(d), mpmath.mpf(asked)))
            assert cost == pytest.approx(whole, rel=1e-12, abs=1e-15 * w)
            if name == "binary":
                assert gain == pytest.approx(w - whole, rel=1e-12, abs=1e-15 * w)
            if truth > 1e-24 * (abs(whole) + paid * rate):
                ratios.append(float(found / truth))
    assert np.median(ratios) < 8.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PARTS)
def test_terms_bound_the_exact_share_of_a_gap(name: str) -> None:
    terms_bound_the_gap(name, 12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PARTS)
def test_many_terms_bound_the_exact_share_of_a_gap(name: str) -> None:
    terms_bound_the_gap(name, 150)


@pytest.mark.parametrize("name", PARTS)
def test_marginal_values_are_within_the_rounding_allowed(name: str) -> None:
    _, cell, _ = PARTS[name]
    rng, worst = np.random.default_rng(7), 0.0
    with mpmath.workdps(DIGITS + 40):
        for x in rng.uniform(-9.0, -1e-3, 60):
            asked = float(10.0 ** rng.uniform(-3.0, 3.0))
            d, rate = asked * float(10.0 ** rng.uniform(-8.0, 8.0)), asked * 10.0**x
            _, _, marginal, rounding = cell.values(*map(np.float64, (rate, 1.0, d, asked)))
            exact = EXACT[name].marginal(mpmath.mpf(rate), mpmath.mpf(d), mpmath.mpf(asked))
            worst = max(worst, abs(float(marginal / exact - 1)) / rounding)
    assert worst <= 0.5


@pytest.mark.parametrize("name", PARTS)
def test_best_responses_are_those_of_numpy(name: str) -> None:
    demand, _, objective = PARTS[name]
    rng = np.random.default_rng(2)
    n = 400
    asked, d = 10.0 ** rng.uniform(-90.0, 90.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    d *= asked
    numerics = fo.Problem(objective, fo.Sources(d, 1.0, request_rate=asked), bandwidth=1.0).numerics
    assert numerics is not None
    price = numerics.marginal(asked * 10.0 ** rng.uniform(-6.0, -1e-3, n))
    # Above the largest marginal value, and next to nothing.
    price[:40], price[40:80] = price[:40] * 1e9, price[40:80] * 1e-9
    expected = numerics.inverse_marginal(price)
    with np.errstate(all="ignore"):
        found = np.array([demand(*each) for each in zip(1.0 / price, d, asked, strict=True)])
    again = numerics.marginal(found)
    same = np.abs(found - expected) <= 1e-12 * expected
    assert np.all(same | (np.abs(again / price - 1.0) < 1e-12))


@pytest.mark.parametrize("name", PARTS)
def test_no_price_and_no_marginal_value(name: str) -> None:
    demand = PARTS[name][0]
    with np.errstate(all="ignore"):
        for d, asked in ((1e-100, 1e100), (1e100, 1e-100), (1.0, 1.0), (1e-100, 1e-100), (1e100, 1e100)):
            some = np.float64(d), np.float64(asked)
            assert demand(np.float64(0.0), *some) == 0.0
            assert demand(np.float64(np.inf), *some) == pytest.approx(asked, rel=1e-12), (d, asked)


@pytest.mark.exhaustive
@pytest.mark.parametrize("ill", [False, True])
@pytest.mark.parametrize("name", PARTS)
def test_compiled_solutions_are_those_of_numpy(name: str, ill: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(1), 3000
    d, w, asked, cost = 10.0 ** rng.uniform(-4.0, 4.0, (4, n)) if ill else rng.lognormal(0.0, 1.0, (4, n))
    host = rng.integers(0, 20, n)
    sources = fo.Sources(d, w, request_rate=asked, refresh_cost=cost, host=host)
    bandwidth = 0.3 * float((cost * asked).sum())
    problem = fo.Problem(PARTS[name][2], sources, bandwidth, {0: 0.01 * bandwidth, 3: 1e-4 * bandwidth})
    plain = fo.solve(problem)
    compile_all(monkeypatch)
    compiled = fo.solve(problem)
    assert compiled.certificate is not None
    assert compiled.certificate.relative_gap < 1e-12
    assert compiled.value == pytest.approx(plain.value, rel=1e-12)
    assert compiled.price == pytest.approx(plain.price, rel=1e-9)
