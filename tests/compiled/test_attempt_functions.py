"""Periodic attempts of binary freshness, source by source against 50 digits; whole problems against NumPy."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.cells.attempt_functions import attempt_binary
from freshopt.compiled.cells.attempt_proofs import ATTEMPT_BINARY
from freshopt.compiled.proof_functions import proved
from freshopt.problems import BinaryFreshness
from tests.ground_truth.routes import compile_all
from tests.ground_truth.source_gaps import DIGITS, ExactCell, Number, exact_source_gap

PERIODIC = BinaryFreshness(fo.Refresh.PERIODIC)


def fresh(r: Number, d: Number, s: Number) -> Number:
    """Return (s/u)(1 − e^{−u})/(1 − (1 − s)e^{−u})."""
    u = d / r
    return -s / u * mpmath.expm1(-u) / (s - (1 - s) * mpmath.expm1(-u))


EXACT = ExactCell(
    lambda r, d, s: 1 - fresh(r, d, s),
    lambda r, d, s: mpmath.diff(lambda x: fresh(x, d, s), r, h=r * mpmath.mpf(10) ** -DIGITS, relative=False),
)


def drawn(rng: np.random.Generator) -> tuple[float, float, float]:
    """Return a change rate, a rate of attempts and a chance of success."""
    success = 10.0 ** rng.uniform(-6.0, 0.0) if rng.random() < 0.6 else 1.0 - 10.0 ** rng.uniform(-9.0, -0.1)
    d = 10.0 ** rng.uniform(-6.0, 4.0)
    return d, d / 10.0 ** rng.uniform(-5.0, 1.3), 1.0 if rng.random() < 0.1 else success


def terms_bound_the_gap(trials: int) -> None:
    rng, ratios = np.random.default_rng(3), []
    with mpmath.workdps(DIGITS):
        for trial in range(trials):
            d, best, success = drawn(rng)
            w = float(rng.choice([1.0, 1e-6, 1e6, 0.37]))
            off = float(10.0 ** rng.uniform(-12.0, np.log10(3.0)))
            rate = best * (1.0 + off) if rng.random() < 0.5 else best / (1.0 + off)
            paid = float(w * EXACT.marginal(mpmath.mpf(best), mpmath.mpf(d), mpmath.mpf(success)))
            paid *= float(rng.choice([1.0, 1.0, 1.0 + 1e-16, 0.3, 40.0]))
            bounds = [(0.0, np.inf), (min(rate, 0.9 * best), max(rate, 1.1 * best))][trial % 2]
            truth = exact_source_gap(EXACT, rate, w, paid, bounds, [d, success])
            own: Any = (np.float64(d), np.float64(success))
            with np.errstate(all="ignore"):
                cost, gain, found, outside = proved(
                    lambda _, rate, w, p: ATTEMPT_BINARY.values(rate, w, *p),
                    lambda _, *given: ATTEMPT_BINARY.reach(*given[:-1], *given[-1]),
                    False,
                    np.float64(rate),
                    np.float64(w),
                    np.float64(paid),
                    np.float64(bounds[0]),
                    np.float64(bounds[1]),
                    own,
                )
            assert outside == 0.0
            assert found >= truth, (d, success, w, rate, paid, bounds)
            whole = float(w * EXACT.cost(mpmath.mpf(rate), *map(mpmath.mpf, own)))
            assert cost == pytest.approx(whole, rel=1e-12, abs=1e-15 * w)
            assert gain == pytest.approx(w - whole, rel=1e-12, abs=1e-15 * w)
            if truth > 1e-24 * (abs(whole) + paid * rate):
                ratios.append(float(found / truth))
    assert np.median(ratios) < 8.0


def test_terms_bound_the_exact_share_of_a_gap() -> None:
    terms_bound_the_gap(12)


@pytest.mark.exhaustive
def test_many_terms_bound_the_exact_share_of_a_gap() -> None:
    terms_bound_the_gap(400)


def test_marginal_values_are_within_the_rounding_allowed() -> None:
    rng, worst = np.random.default_rng(7), 0.0
    with mpmath.workdps(DIGITS + 40):
        for _ in range(150):
            d, rate, success = map(np.float64, drawn(rng))
            _, _, marginal, rounding = ATTEMPT_BINARY.values(rate, np.float64(1.0), d, success)
            exact = EXACT.marginal(*map(mpmath.mpf, map(float, (rate, d, success))))
            worst = max(worst, abs(float(marginal / exact - 1)) / rounding)
    assert worst <= 0.5


def test_best_responses_are_those_of_numpy() -> None:
    rng = np.random.default_rng(2)
    d, rate, success = np.array([drawn(rng) for _ in range(600)]).T
    numerics = fo.Problem(PERIODIC, fo.Sources(d, success=success), bandwidth=1.0).numerics
    assert numerics is not None
    price = numerics.marginal(rate)
    # Above the largest marginal value, and next to nothing.
    price[:40], price[40:80] = price[:40] * 1e9, price[40:80] * 1e-9
    expected = numerics.inverse_marginal(price)
    with np.errstate(all="ignore"):
        found = np.array([attempt_binary(*each) for each in zip(1.0 / price, d, success, strict=True)])
        again = numerics.marginal(found)
    assert np.count_nonzero(found == 0.0) > 20
    same = np.abs(found - expected) <= 1e-12 * expected
    assert np.all(same | (np.abs(again / price - 1.0) < 1e-12))


@pytest.mark.parametrize("success", [1e-300, 1e-9, 0.5, 1.0])
def test_no_price_and_no_marginal_value(success: float) -> None:
    with np.errstate(all="ignore"):
        for d in (1e-100, 1.0, 1e100):
            assert attempt_binary(np.float64(0.0), np.float64(d), np.float64(success)) == 0.0
            assert attempt_binary(np.float64(np.inf), np.float64(d), np.float64(success)) > 1e100 * d


@pytest.mark.exhaustive
@pytest.mark.parametrize("ill", [False, True])
def test_compiled_solutions_are_those_of_numpy(ill: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(1), 3000
    d, w, cost = 10.0 ** rng.uniform(-4.0, 4.0, (3, n)) if ill else rng.lognormal(0.0, 1.0, (3, n))
    success = rng.choice([1e-4, 0.03, 0.5, 0.99, 1.0], n)
    sources = fo.Sources(d, w, success=success, refresh_cost=cost, host=rng.integers(0, 20, n))
    bandwidth = 0.3 * float((cost * d).sum())
    problem = fo.Problem(PERIODIC, sources, bandwidth, {0: 0.01 * bandwidth, 3: 1e-4 * bandwidth})
    plain = fo.solve(problem)
    compile_all(monkeypatch)
    compiled = fo.solve(problem)
    assert compiled.certificate is not None
    assert compiled.certificate.relative_gap < 1e-12
    assert compiled.value == pytest.approx(plain.value, rel=1e-12)
    assert compiled.price == pytest.approx(plain.price, rel=1e-9)
