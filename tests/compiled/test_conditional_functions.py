"""Conditional fetches, source by source: best responses against brute-force roots; whole problems."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammainc

import freshopt as fo
from freshopt.compiled.cells import conditional_functions
from freshopt.compiled.demand_functions import Demand
from freshopt.modelling.objective import Objective
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.routes import compile_all

PERIODIC = fo.Refresh.PERIODIC
CELLS: dict[str, tuple[Demand, Objective]] = {
    "binary": (conditional_functions.binary_changed, BinaryFreshness(PERIODIC)),
    "harmonic": (conditional_functions.harmonic_changed, HarmonicStaleness(PERIODIC)),
    "delay": (conditional_functions.delay_changed, AccumulatedDelay(PERIODIC)),
    "age": (conditional_functions.age_changed, Age(PERIODIC)),
    "binary, Poisson": (conditional_functions.binary_changed_poisson, BinaryFreshness()),
    "harmonic, Poisson": (conditional_functions.harmonic_changed_poisson, HarmonicStaleness()),
    "delay, Poisson": (conditional_functions.delay_changed_poisson, AccumulatedDelay()),
    "age, Poisson": (conditional_functions.age_changed_poisson, Age()),
}


def marginal(name: str, u: float, d: float) -> float:
    """Return −J' at ρ = Δ/u by the textbook formulas, for u that are not small."""
    value: float = {
        "binary": gammainc(2.0, u) / d,
        "harmonic": (u + np.expm1(-u)) / d,
        "delay": u * u / (2.0 * d),
        "age": (u * u / 2.0 - gammainc(2.0, u)) / d**2,
        "binary, Poisson": d / (d / u + d) ** 2,
        "harmonic, Poisson": d / (d / u * (d / u + d)),
        "delay, Poisson": d / (d / u) ** 2,
        "age, Poisson": d * (2.0 * d / u + d) / (d / u * (d / u + d)) ** 2,
    }[name]
    return value


def changed(name: str, u: float) -> tuple[float, float]:
    """Return what a fetch finds changed, and by how much more one at a higher rate."""
    if name.endswith("Poisson"):
        return u / (1.0 + u), (u / (1.0 + u)) ** 2
    return float(-np.expm1(-u)), float(gammainc(2.0, u))


@pytest.mark.parametrize("name", CELLS)
def test_best_responses_are_roots_of_the_marginal_per_bandwidth(name: str) -> None:
    demand, rng = CELLS[name][0], np.random.default_rng(len(name))
    for _ in range(60):
        worth, d, c0, c1 = 10.0 ** rng.uniform(-1.5, 1.5, 4)

        def excess(log_u: float, own: tuple[float, float, float, float] = (worth, d, c0, c1)) -> float:
            worth, d, c0, c1 = own
            u = np.exp(log_u)
            return float(np.log(worth * marginal(name, u, d)) - np.log(c0 + c1 * changed(name, u)[1]))

        if excess(6.0) <= 0.0:
            assert not name.startswith("binary") or demand(worth, d, d, c0, c1) == 0.0
            continue
        if excess(-4.0) >= 0.0:
            continue
        u = float(np.exp(brentq(excess, -4.0, 6.0, xtol=1e-14, rtol=1e-14)))
        used = d / u * (c0 + c1 * changed(name, u)[0])
        assert demand(worth, d, d, c0, c1) == pytest.approx(used, rel=1e-9)


@pytest.mark.parametrize("name", CELLS)
def test_best_responses_are_those_of_numpy_at_any_scale(name: str) -> None:
    demand, objective = CELLS[name]
    rng = np.random.default_rng(5)
    d, w, c0, c1, price = 10.0 ** rng.uniform(-8.0, 8.0, (5, 60))
    c1[:10] = 0.0
    twin = fo.Problem(objective, fo.Sources(d, w, refresh_cost=c0, changed_cost=c1), 1.0).per_bandwidth
    assert twin is not None
    assert twin.numerics is not None
    expected = twin.numerics.inverse_marginal(price)
    found = [demand(*own) for own in zip(w / price, d, d, c0, c1, strict=True)]
    assert found == pytest.approx(expected, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("name", CELLS)
def test_worth_nothing_and_everything(name: str) -> None:
    demand = CELLS[name][0]
    with np.errstate(all="ignore"):
        assert demand(np.float64(0.0), *np.array([2.0, 2.0, 1.0, 5.0])) == 0.0
        assert demand(np.float64(np.inf), *np.array([2.0, 2.0, 1.0, 5.0])) > 1e100


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CELLS)
def test_compiled_solutions_are_those_of_numpy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(1), 3000
    d, w, c0, c1 = rng.lognormal(0.0, 1.0, (4, n))
    host = rng.integers(0, 20, n)
    sources = fo.Sources(d, w, refresh_cost=c0, changed_cost=10.0 * c1, host=host)
    problem = fo.Problem(CELLS[name][1], sources, 6000.0, {0: 50.0, 3: 20.0})
    plain = fo.solve(problem)
    compile_all(monkeypatch)
    compiled = fo.solve(problem)
    assert compiled.certificate is not None
    assert compiled.certificate.relative_gap < 1e-9
    assert compiled.value == pytest.approx(plain.value, rel=1e-12)
    assert compiled.price == pytest.approx(plain.price, rel=1e-9)
