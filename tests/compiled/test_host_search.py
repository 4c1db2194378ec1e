"""Prices of host limits where demand has steps: against bisection of closed forms, and in how many turns."""

from __future__ import annotations

import math

import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.column_passes import best_response
from freshopt.compiled.host_search import JUMPS, LATE, LINEAR, HostSearch, search_price, settle_host
from freshopt.compiled.source_columns import SearchStart, SourceColumns
from freshopt.numerics.arrays import Array, BoolArray
from freshopt.problems import BinaryFreshness
from tests.ground_truth.routes import compile_all
from tests.ground_truth.tolerances import EXACT

MEMBERS = 30


def steps(worth: float, d: float) -> float:
    """Return Δ where a signal is worth its price, else 0."""
    return d if worth >= d else 0.0


def plateau(worth: float, d: float) -> float:
    """Return a demand that rises from d / 37 at a step."""
    return d / 37.0 * math.sqrt(worth / d) if worth >= d else 0.0


def both(worth: float, d: float, signalled: bool) -> float:
    """Return all or nothing on signals, else √(aΔ) − Δ."""
    return steps(worth, d) if signalled else max(0.0, math.sqrt(worth * d) - d)


def searched(kind: str, seed: int) -> tuple[HostSearch, Array, Array, BoolArray, float]:
    """Return a search, w, d, who is signalled, and the limit."""
    rng = np.random.default_rng(seed)
    d, w = rng.lognormal(size=MEMBERS), rng.lognormal(size=MEMBERS)
    signalled = rng.random(MEMBERS) < {"steps": 1.0, "plateau": 0.0, "both": 0.5}[kind]
    one = np.ones(MEMBERS)
    # Uncompiled, the logarithm of no demand is an error: a little is always asked for.
    own = SourceColumns(signalled, w, (d,), one, 1e-15 * one, np.inf * one)
    limit = float(rng.uniform(0.02, 0.6)) * float(np.sum(d)) * (1.0 / 37.0 if kind == "plateau" else 1.0)

    def rate(signalled: bool, worth: float, parameters: tuple[float]) -> float:
        return plateau(worth, *parameters) if kind == "plateau" else both(worth, *parameters, signalled)

    def respond(columns: SourceColumns, inverse_price: float, rates: Array) -> None:
        for k in range(len(rates)):
            rates[k] = best_response(rate, columns, k, inverse_price)

    floor = 1e-3
    used = sum(rate(s, a / floor, (b,)) for s, a, b in zip(signalled.tolist(), w, d, strict=True))
    start = SearchStart(math.log(floor), 0.0, 1.0)
    found = search_price(
        respond, own, limit, math.log(used / limit), start, np.empty(MEMBERS), np.empty(MEMBERS)
    )
    return found, w, d, signalled, limit


@pytest.mark.parametrize("kind", ["steps", "plateau", "both"])
def test_a_step_that_crosses_the_limit_is_enclosed_within_few_turns(kind: str) -> None:
    """The step is where importance over change rate is the price; halving alone would take 43 turns."""
    jumped = []
    for seed in range(60):
        found, w, d, signalled, _ = searched(kind, seed)
        if found.state == JUMPS:
            places = np.log(w / d)[signalled if kind == "both" else slice(None)]
            inside = (places >= found.low - 1e-13) & (places <= found.high + 1e-13)
            assert np.sum(inside) == 1
            assert found.high - found.low <= 3e-13
            jumped.append(found.turn)
    assert len(jumped) >= 15
    assert float(np.mean(jumped)) < 24.0
    assert max(jumped) <= LATE + 48


@pytest.mark.parametrize("seed", range(60))
def test_demand_crosses_the_limit_between_both_ends(seed: int) -> None:
    found, w, d, signalled, limit = searched("both", seed)

    def demand(x: float) -> float:
        worth = w * math.exp(-x)
        return math.fsum(map(both, worth.tolist(), d.tolist(), signalled.tolist()))

    if found.state == JUMPS:
        assert demand(found.low - 1e-12) > limit >= demand(found.high + 1e-12)
    else:
        # Rates and price are interpolated from the last two.
        near = 2.0 * abs(found.x - found.before) if found.state == LINEAR else 1e-11
        assert demand(found.x - near) > limit > demand(found.x + near)


def upright(worth: float, d: float) -> float:
    """Return Δ/t with e^{−t} = 1 − Δ/a: no rate at a = Δ, and a slope without bound there."""
    share = min(d / worth, 1.0)
    return d / -math.log1p(-share) if share < 1.0 else 1e-300


@pytest.mark.parametrize("seed", range(4, 8))
def test_a_price_beside_a_vertical_slope_is_found(seed: int) -> None:
    """Logarithms of prices near 1 are finer than prices: two may have one demand, not quite the limit."""
    rng = np.random.default_rng(seed)
    for near in 10.0 ** rng.uniform(-13.0, -9.0, 100):
        many = int(rng.integers(1, 13))
        d = rng.lognormal(size=many)
        w = d * np.exp(rng.uniform(-0.5, 0.5, many))
        one, rates = np.ones(many), np.empty(many)
        own = SourceColumns(np.zeros(many, dtype=np.bool_), w, (d,), one, 1e-15 * one, np.inf * one)

        def rate(_signalled: bool, worth: float, parameters: tuple[float]) -> float:
            return upright(worth, *parameters)

        def respond(columns: SourceColumns, inverse_price: float, out: Array) -> None:
            for k in range(len(out)):
                out[k] = best_response(rate, columns, k, inverse_price)

        def demand(price: float, own: SourceColumns = own) -> float:
            return math.fsum(map(upright, (own.importance / price).tolist(), own.parameters[0].tolist()))

        limit = demand(float(rng.choice(w / d)) * (1.0 - near))
        start = SearchStart(math.log(1e-3), 0.0, 1.0)
        scratch = np.empty((2, many))
        price = settle_host(respond, own, limit, demand(1e-3), start, scratch, np.arange(many), rates)
        assert math.fsum(rates) == pytest.approx(limit, rel=EXACT)
        assert demand(price * (1.0 - 1e-12)) >= limit >= demand(price * (1.0 + 1e-12))


@pytest.mark.exhaustive
def test_rates_of_hosts_whose_demand_jumps_are_between_those_of_both_sides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compile_all(monkeypatch)
    rng, n, hosts = np.random.default_rng(1), 3000, 100
    d, w, host = rng.lognormal(size=n), rng.lognormal(size=n), np.arange(n) % hosts
    sources = fo.Sources(d, w, signalled=rng.random(n) < 0.7, host=host)
    limits = dict(enumerate((rng.uniform(0.1, 0.9, hosts) * np.bincount(host, d)).tolist()))
    solution = fo.solve(fo.Problem(BinaryFreshness(), sources, 0.9 * float(np.sum(d)), limits))
    assert solution.certificate is not None
    assert solution.certificate.relative_gap < EXACT
    signalled = sources.signalled
    binding = [(k, price) for k, price in solution.host_prices.items() if price > 0.0]
    assert len(binding) > hosts // 2
    for k, price in binding:
        mine = host == k
        assert math.fsum(solution.rates[mine]) == pytest.approx(limits[k], rel=EXACT)
        for side, sign in ((1.0 + 1e-9, -1.0), (1.0 - 1e-9, 1.0)):
            worth = w[mine] / ((price + solution.price) * side)
            bound = [both(*each) for each in zip(worth, d[mine], signalled[mine], strict=True)]
            assert np.all(sign * (np.array(bound) - solution.rates[mine]) >= -1e-12)
