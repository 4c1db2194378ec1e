"""docs/mathematics.md: the certificate, the one price and the index, as printed, against the library."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import exp1

import freshopt as fo
from freshopt.numerics.arrays import Array
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness, PollingKnapsack
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR
from tests.pages.mathematics_page import PERIODIC, POISSON, shown

D4, W4 = np.array([0.2, 1.0, 3.0, 9.0]), np.array([2.0, 1.0, 4.0, 1.5])
COST, LIMIT = np.array([1.0, 2.0, 0.5, 1.0]), 1.0


def with_host(bandwidth: float) -> fo.Problem:
    sources = fo.Sources(D4, W4, refresh_cost=COST, host=["h", "h", "i", "j"], min_rate=0.05, max_rate=6.0)
    return fo.Problem(HarmonicStaleness(), sources, bandwidth=bandwidth, host_limits={"h": LIMIT})


def bought(price: Array) -> Array:
    """Return the rates that the sources buy at prices per refresh."""
    a = W4 / price
    rates: Array = np.clip(2 * a / (1 + np.sqrt(1 + 4 * a / D4)), 0.05, 6.0)
    return rates


def test_the_certificate_is_the_printed_bound() -> None:
    shown(r"F^*-F(\rho) \le \sum_k \max\left(0,\,(r_k^*-\rho_k)(f_k'(\rho_k)-\nu_k)\right)")
    shown(r"$G/(P+\min(|\text{cost}|,H))$", r"\qquad H=F(\rho)-F\left(\tfrac12\rho\right)")
    problem, rng, at_h = with_host(4.0), np.random.default_rng(3), np.array([1.0, 1.0, 0.0, 0.0])
    best, exact = fo.solve(problem, tolerance=SCALAR).value, 0
    for _ in range(20):
        rates, price, host = rng.uniform(0.06, 0.3, 4), rng.uniform(0.1, 3.0), rng.uniform(0.0, 3.0)
        nu = COST * (price + host * at_h)
        terms = (bought(nu) - rates) * (W4 * D4 / (rates * (rates + D4)) - nu)
        spare, room = 4.0 - COST @ rates, LIMIT - (COST * at_h) @ rates
        bound = np.sum(np.maximum(0.0, terms)) + price * spare + host * room
        proof = fo.certify(problem, rates, price, {"h": host})
        assert bound * (1 - SCALAR) <= proof.gap <= 2 * bound  # a step that is short by rounding is doubled
        exact += math.isclose(proof.gap, bound, rel_tol=SCALAR)
        cost = W4 @ np.log1p(D4 / rates)
        assert math.isclose(proof.value, cost, rel_tol=EXACT)
        assert cost - best <= bound * (1 + SCALAR)
        free, free_of_h = 4.0 - 0.05 * np.sum(COST), LIMIT - 0.05 * np.sum(COST * at_h)
        halving = W4 @ np.log1p(D4 / (0.5 * rates)) - cost
        at_stake = price * free + host * free_of_h + min(cost, halving)
        assert math.isclose(proof.relative_gap, proof.gap / at_stake, rel_tol=EXACT)
    assert exact >= 5


def test_one_price_and_the_hosts_own() -> None:
    shown(r"\rho_k(\lambda) = \min\left(\max\left((f_k')^{-1}(c_k\lambda),\, l_k\right),\, u_k\right)")
    shown(r"$\mu_h=\max(0,\lambda_h-\lambda)$", r"\frac{dF^*}{dB} = \lambda")

    def root(excess: Callable[[float], float]) -> float:
        low, high = 1e-6, 1e6
        for _ in range(200):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        return low

    own = root(lambda x: float((COST * bought(COST * x))[:2].sum() - LIMIT))
    pays = np.array([1.0, 1.0, 0.0, 0.0])
    for bandwidth, binds in ((4.0, True), (1.5, False)):
        problem = with_host(bandwidth)
        found = fo.solve(problem, tolerance=SCALAR)

        def too_much(x: float, allowed: float = bandwidth) -> float:
            return float(COST @ bought(COST * np.maximum(x, own * pays)) - allowed)

        price = root(too_much)
        assert math.isclose(found.price, price, rel_tol=SCALAR)
        assert math.isclose(found.host_prices["h"], max(0.0, own - price), rel_tol=SCALAR, abs_tol=SCALAR)
        assert (own > price) is binds
        rates = bought(COST * np.maximum(price, own * pays))
        np.testing.assert_allclose(found.rates, rates, rtol=SCALAR)
        step = 1e-4 * bandwidth
        up, down = (fo.solve(problem.with_bandwidth(bandwidth + s)).value for s in (step, -step))
        assert math.isclose((down - up) / (2 * step), price, rel_tol=CONIC)  # of a difference quotient


def test_where_one_step_suffices() -> None:
    shown(r"\sqrt\lambda = \frac{\sum_k\sqrt{w_k\Delta_k}}{B+\sum_k\Delta_k}")
    d, w, bandwidth = np.array([0.5, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]), 4.0
    found = fo.solve(fo.Problem(BinaryFreshness(), fo.Sources(d, w), bandwidth))
    root = np.sqrt(w * d)
    assert math.isclose(found.price, (root.sum() / (bandwidth + d.sum())) ** 2, rel_tol=SCALAR)
    np.testing.assert_allclose(found.rates, root / math.sqrt(found.price) - d, rtol=SCALAR)
    shown(r"\rho_k = B\sqrt{w_k\Delta_k}/\sum_j\sqrt{w_j\Delta_j}", r"$\ln R$ is linear in $\ln\lambda$")
    for refresh in (POISSON, PERIODIC):
        delay = fo.solve(fo.Problem(AccumulatedDelay(refresh), fo.Sources(d, w), bandwidth))
        np.testing.assert_allclose(delay.rates, bandwidth * root / root.sum(), rtol=SCALAR)
    shown(r"$r_k=B a_k/\sum_j a_j$")
    for form in ("polls", "materials"):
        polls = fo.solve(fo.Problem(PollingKnapsack(form), fo.Sources(d), bandwidth))
        np.testing.assert_allclose(polls.rates, bandwidth * d / d.sum(), rtol=SCALAR)


def test_a_jump_is_shared_out() -> None:
    shown(r"\rho=\theta\rho(\lambda^-)+(1-\theta)\rho(\lambda^+)")
    sources = fo.Sources([1.0, 2.0], 1.0, signalled=True)  # worth 1 and 1/2 per refresh
    found = fo.solve(fo.Problem(BinaryFreshness(), sources, bandwidth=1.5))
    np.testing.assert_allclose(found.rates, [1.0, 0.5], rtol=EXACT)
    assert math.isclose(found.price, 0.5, rel_tol=SCALAR)


def test_the_greedy_policy_finds_the_price_and_no_schedule_beats_the_bound() -> None:
    shown(r"$w_kV_k(1/\rho_k)=\lambda$", "the periodic optimum at the bandwidth $B+n/T$")
    d, w, n = np.array([0.3, 1.0, 2.5, 6.0]), np.array([1.0, 2.0, 3.0, 9.0]), 4
    sources = fo.Sources(d, w)
    found = fo.solve(fo.Problem(HarmonicStaleness(PERIODIC), sources, bandwidth=20.0))

    def index(s: Any) -> Any:  # noqa: ANN401
        return w * (s - (1 - np.exp(-d * s)) / d)

    np.testing.assert_allclose(index(1 / found.rates), found.price, rtol=SCALAR)
    copies, slots = 50, 60_000  # of each source, so that a slot is short beside every gap
    age, counts = np.zeros((copies, n)), np.zeros(n)
    for _ in range(slots):
        age += 1 / (20.0 * copies)
        row, k = divmod(int(np.argmax(index(age))), n)
        age[row, k] = 0.0
        counts[k] += 1
    np.testing.assert_allclose(counts / slots * 20.0, found.rates, rtol=0.02)  # slots are whole
    horizon, rng = 5.0, np.random.default_rng(2)
    least = horizon * fo.solve(found.problem.with_bandwidth(20.0 + n / horizon)).value
    for _ in range(30):
        polls = rng.multinomial(int(20 * horizon), rng.dirichlet(20 * found.rates))
        total = 0.0
        for k in range(n):
            cuts = np.sort(rng.uniform(0, horizon, polls[k]))
            even = np.arange(1, polls[k] + 1) * horizon / (polls[k] + 1)
            for times in (cuts, even):
                gaps = np.diff(np.concatenate(([0.0], times, [horizon])))
                cost = w[k] * sum(float(g * _mean_harmonic(d[k] * g)) for g in gaps)
            total += cost  # of the even ones, which cost least
        assert total >= least


def _mean_harmonic(u: float) -> float:
    return float(exp1(u) + math.log(u) + np.euler_gamma - 1 - math.expm1(-u) / u)
