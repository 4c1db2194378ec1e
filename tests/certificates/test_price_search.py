"""Prices from a sample and a few dozen compiled proofs against NumPy's search, and against the optimum."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates import price_search
from freshopt.compiled import proof_columns as compiled_proofs
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness

N = 2000
OBJECTIVES = [
    HarmonicStaleness(),
    BinaryFreshness(),
    BinaryFreshness(fo.Refresh.PERIODIC),
    AccumulatedDelay(),
    Age(fo.Refresh.PERIODIC),
]
# A bound at a price from here may exceed that of NumPy's search, and the distance to the optimum, by so much.
MOST, LOOSE = 2.5, 30.0


@pytest.fixture(autouse=True)
def _compiled_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_proofs, "WORTHWHILE", 1)
    monkeypatch.setattr(compiled_proofs, "AT_HAND", 1)
    monkeypatch.setattr(price_search, "SAMPLE", 300)


@pytest.mark.parametrize("spread", [0.5, pytest.param(3.0, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_prices_of_foreign_rates_have_nearly_the_smallest_bound(
    monkeypatch: pytest.MonkeyPatch, objective: fo.Objective, spread: float
) -> None:
    rng = np.random.default_rng(int(10 * spread))
    d, w = rng.lognormal(0.0, spread, N), rng.lognormal(0.0, spread, N)
    bandwidth = 0.4 * float(d.sum())
    upper = np.where(rng.random(N) < 0.1, 0.5 * d, np.inf)
    task = fo.Problem(objective, fo.Sources(d, w, max_rate=upper), bandwidth)
    optimum = fo.solve(task)
    for off in (1e-8, 1e-3, 0.5, 3.0):
        rates = np.minimum(upper, optimum.rates * np.exp(off * rng.uniform(-1.0, 1.0, N)))
        rates *= min(1.0, bandwidth / float(rates.sum()) * (1.0 - 1e-14))
        mine = fo.certify(task, rates)
        with monkeypatch.context() as patch:
            patch.setenv("FRESHOPT_COMPILED", "0")
            theirs = fo.certify(task, rates)
        assert mine.gap <= MOST * theirs.gap + 1e-13 * abs(theirs.value)
        apart = abs(mine.value - optimum.value)
        # Tangents are far from convex costs where rates are wrong by e³; NumPy's are too.
        assert off > 1.0 or mine.gap <= LOOSE * apart + 1e-12 * abs(optimum.value)
        better = -1.0 if objective.sense == "minimise" else 1.0
        assert better * (mine.bound - optimum.value) >= -1e-12 * abs(optimum.value)


def test_rates_of_no_use_are_proved_at_price_zero() -> None:
    sources = fo.Sources(np.linspace(1.0, 2.0, N), max_rate=1.0)
    task = fo.Problem(BinaryFreshness(), sources, bandwidth=2.0 * N)
    found = fo.certify(task, np.ones(N))
    assert found.price == 0.0
    assert found.gap == 0.0
