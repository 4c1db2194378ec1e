"""Prices from a sample and a few dozen compiled proofs against NumPy's search, and against the optimum."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates import price_search
from freshopt.certificates.certificate import repair
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.routes import compile_all
from tests.ground_truth.strata import exhaustive, stratified

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
    compile_all(monkeypatch)
    monkeypatch.setattr(price_search, "SAMPLE", 300)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("objective", "spread"), stratified(OBJECTIVES, [0.5, 3.0], every=6), ids=repr)
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


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", stratified(OBJECTIVES, every=5), ids=repr)
def test_prices_of_foreign_rates_under_host_limits(
    monkeypatch: pytest.MonkeyPatch, objective: fo.Objective
) -> None:
    """Hosts from one source to half of all, limits that bind, do not, or never can."""
    rng = np.random.default_rng(4)
    d, w = rng.lognormal(0.0, 1.0, N), rng.lognormal(0.0, 1.0, N)
    host = np.minimum((rng.pareto(0.7, N) * 3.0).astype(np.int64), 400)
    host[:30] = 1000 + np.arange(30)
    bandwidth, names = 0.4 * float(d.sum()), np.unique(host)[::2]
    held = np.array([float(np.sum(d[host == each])) for each in names])
    limits = dict(
        zip(names.tolist(), (held * rng.choice([0.05, 0.3, 9.0], len(names))).tolist(), strict=True)
    )
    upper = np.where(rng.random(N) < 0.1, 0.5 * d, np.inf)
    task = fo.Problem(objective, fo.Sources(d, w, host=host, max_rate=upper), bandwidth, limits)
    optimum = fo.solve(task)
    exact = fo.certify(task, optimum.rates)
    assert exact.relative_gap < 1e-12
    assert 0.0 < sum(price > 0.0 for price in exact.host_prices.values()) < len(limits)
    for off in (1e-8, 1e-3, 0.5):
        rates = repair(task, optimum.rates * np.exp(off * rng.uniform(-1.0, 1.0, N)))[0]
        mine = fo.certify(task, rates)
        with monkeypatch.context() as patch:
            patch.setenv("FRESHOPT_COMPILED", "0")
            theirs = fo.certify(task, rates)
        assert mine.gap <= MOST * theirs.gap + 1e-13 * abs(theirs.value)
        apart = abs(mine.value - optimum.value)
        assert mine.gap <= LOOSE * apart + 1e-12 * abs(optimum.value)
        better = -1.0 if objective.sense == "minimise" else 1.0
        assert better * (mine.bound - optimum.value) >= -1e-12 * abs(optimum.value)


@exhaustive
def test_rates_of_no_use_under_host_limits() -> None:
    """All sources at their bounds, idle hosts, limits that are not used."""
    sources = fo.Sources(np.linspace(1.0, 2.0, N), max_rate=1.0, host=np.arange(N) % 7)
    task = fo.Problem(BinaryFreshness(), sources, 2.0 * N, {0: 2.0 * N, 3: float(N)})
    found = fo.certify(task, np.ones(N))
    assert (found.price, found.gap, dict(found.host_prices)) == (0.0, 0.0, {0: 0.0, 3: 0.0})
    none = fo.certify(task, np.zeros(N))
    assert np.isfinite(none.gap)
    assert none.gap >= fo.solve(task).value - none.value


@pytest.mark.exhaustive
def test_prices_of_hosts_have_the_same_bits_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    d, host = rng.lognormal(0.0, 1.0, N), rng.integers(0, 90, N)
    task = fo.Problem(HarmonicStaleness(), fo.Sources(d, host=host), 0.3 * N, dict.fromkeys(range(90), 5.0))
    rates = 0.1 + 0.05 * rng.random(N)
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("FRESHOPT_THREADS", threads)
        found.append(fo.certify(task, rates))
    assert found[0].price == found[1].price == found[2].price
    assert found[0].gap == found[1].gap == found[2].gap
    assert found[0].host_prices == found[1].host_prices == found[2].host_prices


@pytest.mark.exhaustive
def test_rates_of_no_use_are_proved_at_price_zero() -> None:
    sources = fo.Sources(np.linspace(1.0, 2.0, N), max_rate=1.0)
    task = fo.Problem(BinaryFreshness(), sources, bandwidth=2.0 * N)
    found = fo.certify(task, np.ones(N))
    assert found.price == 0.0
    assert found.gap == 0.0
