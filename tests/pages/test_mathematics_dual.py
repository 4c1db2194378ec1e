"""The page of mathematics: the dual problem and rows of constraints are what the code computes."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import exp1

import freshopt as fo
from freshopt.interior_point.row_passes import NumpyRowPasses
from freshopt.modelling.objective import Refresh
from freshopt.numerics.arrays import Array
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness, PollingKnapsack
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR
from tests.pages.mathematics_page import PERIODIC, POISSON, shown

D4, W4 = np.array([0.2, 1.0, 3.0, 9.0]), np.array([2.0, 1.0, 4.0, 1.5])
COST, LIMIT = np.array([1.0, 2.0, 0.5, 1.0]), 1.0


def with_host(bandwidth: float) -> fo.Problem:
    sources = fo.Sources(D4, W4, refresh_cost=COST, host=["h", "h", "i", "j"], min_rate=0.05, max_rate=6.0)
    return fo.Problem(
        HarmonicStaleness(Refresh.POISSON), sources, bandwidth=bandwidth, host_limits={"h": LIMIT}
    )


def bought(price: Array) -> Array:
    """Return the rates that the sources buy at prices per refresh."""
    a = W4 / price
    rates: Array = np.clip(2 * a / (1 + np.sqrt(1 + 4 * a / D4)), 0.05, 6.0)
    return rates


def test_the_certificate_is_the_printed_bound() -> None:
    shown(
        r"F^*-F(\rho) \le \sum_k \min(D_k,\,T_k)",
        r"D_k = f_k(r_k^*)-f_k(\rho_k)-\nu_k(r_k^*-\rho_k)",
        r"T_k = \max\left(0,\,(r_k^*-\rho_k)(f_k'(\rho_k)-\nu_k)\right)",
    )
    shown(r"$G/(P+\min(|\text{cost}|,H))$", r"\qquad H=F(\rho)-F\left(\tfrac12\rho\right)")
    problem, rng, at_h = with_host(4.0), np.random.default_rng(3), np.array([1.0, 1.0, 0.0, 0.0])
    best = fo.solve(problem, tolerance=SCALAR).value
    for _ in range(20):
        rates, price, host = rng.uniform(0.06, 0.3, 4), rng.uniform(0.1, 3.0), rng.uniform(0.0, 3.0)
        nu = COST * (price + host * at_h)
        tangents = (bought(nu) - rates) * (W4 * D4 / (rates * (rates + D4)) - nu)
        dual = W4 * (np.log1p(D4 / rates) - np.log1p(D4 / bought(nu))) - nu * (bought(nu) - rates)
        assert np.all((dual < tangents) | (dual < EXACT))
        spare, room = 4.0 - COST @ rates, LIMIT - (COST * at_h) @ rates
        bound = np.sum(np.minimum(dual, np.maximum(0.0, tangents))) + price * spare + host * room
        proof = fo.certify(problem, rates, price, {"h": host})
        assert bound <= proof.gap * (1 + EXACT)
        assert math.isclose(proof.gap, bound, rel_tol=SCALAR)
        cost = W4 @ np.log1p(D4 / rates)
        assert math.isclose(proof.value, cost, rel_tol=EXACT)
        assert cost - best <= bound * (1 + SCALAR)
        free, free_of_h = 4.0 - 0.05 * np.sum(COST), LIMIT - 0.05 * np.sum(COST * at_h)
        halving = W4 @ np.log1p(D4 / (0.5 * rates)) - cost
        at_stake = price * free + host * free_of_h + min(cost, halving)
        assert math.isclose(proof.relative_gap, proof.gap / at_stake, rel_tol=EXACT)


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
    found = fo.solve(fo.Problem(BinaryFreshness(Refresh.POISSON), fo.Sources(d, w), bandwidth))
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
    found = fo.solve(fo.Problem(BinaryFreshness(Refresh.POISSON), sources, bandwidth=1.5))
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


D5, W5 = np.array([0.2, 1.0, 3.0, 9.0, 0.5]), np.array([2.0, 1.0, 4.0, 1.5, 0.7])
SIZE = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
GROUP = np.array(["a", "a", "a", "b", "b"])
IN_A = GROUP == "a"
SHARE = W5 * IN_A / W5[IN_A].sum()
SOURCES = fo.Sources(D5, W5, min_rate=0.05, max_rate=1.5)
# So low that no row implies a lower one.
BOUNDS = (0.05, 1.5)
# Of the bandwidth, the bytes and group a's mean stale share.
LIMITS = np.array([3.5, 3.6, 0.56])


def declared(limits: Array) -> fo.Problem:
    rows = [
        fo.Budget(limits[0]),
        fo.Budget(limits[1], cost=SIZE, name="bytes"),
        fo.Target(BinaryFreshness(Refresh.POISSON), at_least={"a": 1.0 - limits[2]}, by=GROUP, name="fresh"),
    ]
    return fo.Problem(HarmonicStaleness(Refresh.POISSON), SOURCES, constraints=rows)


def used(rates: Array) -> Array:
    return np.array([rates.sum(), SIZE @ rates, SHARE @ (D5 / (D5 + rates))])


def slopes(rates: Array) -> Array:
    """Return g', one row each."""
    return np.stack([np.ones(5), SIZE, -SHARE * D5 / (D5 + rates) ** 2])


def slope(rates: Array, y: Array, objective: float = 1.0) -> Array:
    """Return φ' of every source."""
    own: Array = -objective * W5 * D5 / (rates * (rates + D5)) + y @ slopes(rates)
    return own


def response(y: Array, objective: float = 1.0) -> Array:
    """Return the minimisers of φ within the bounds, by bisection."""
    low, high = np.full(5, BOUNDS[0]), np.full(5, BOUNDS[1])
    for _ in range(60):
        middle = 0.5 * (low + high)
        falls = slope(middle, y, objective) < 0.0
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    found: Array = 0.5 * (low + high)
    return found


def test_the_certificate_of_rows_is_the_printed_bound() -> None:
    shown(
        r"\sum_k\min\left(\varphi_k(\rho_k)-\varphi_k(r_k^*),\,|\varphi_k'(\rho_k)|\,|\rho_k-r_k^*|\right) "
        r"+ \sum_j y_j\,(b_j-G_j(\rho))",
        r"d(y)=\sum_k\min_{l_k\le r\le u_k}\varphi_k(r;y)-\sum_j y_jb_j \le F^*",
    )
    problem, rng = declared(LIMITS), np.random.default_rng(4)
    best = fo.solve(problem, tolerance=SCALAR).value
    some = rng.uniform(0.2, 1.5, (100_000, 5))
    amounts = np.stack([some.sum(axis=1), some @ SIZE, (D5 / (D5 + some)) @ SHARE], axis=1)
    feasible = some[np.all(amounts <= LIMITS, axis=1)][:20]
    assert len(feasible) == 20
    for rates in feasible:
        y = rng.uniform(0.0, [2.0, 1.0, 8.0])
        at = response(y)
        tangents = np.abs(slope(rates, y)) * np.abs(rates - at)
        terms = W5 * (np.log1p(D5 / rates) - np.log1p(D5 / at)) + (y[0] + y[1] * SIZE) * (rates - at)
        terms += y[2] * SHARE * (D5 / (D5 + rates) - D5 / (D5 + at))
        assert np.all((terms < tangents) | (terms < EXACT))
        bound = np.minimum(terms, tangents).sum() + y @ (LIMITS - used(rates))
        prices = dict(zip(("bandwidth", "bytes", "fresh[a]"), y, strict=True))
        proof = fo.certify(problem, rates, prices=prices)
        assert math.isclose(proof.gap, bound, rel_tol=SCALAR)
        cost = W5 @ np.log1p(D5 / rates)
        assert cost - best <= bound * (1 + SCALAR)
        # Weak duality: the same sum, from the dual function.
        dual = W5 @ np.log1p(D5 / at) + y @ (used(at) - LIMITS)
        assert dual <= best * (1 + SCALAR)
        assert math.isclose(cost - dual, bound, rel_tol=SCALAR)


def test_prices_of_rows_are_slopes() -> None:
    shown(r"\frac{\partial F^*}{\partial b_j} = -y_j")
    found = fo.solve(declared(LIMITS), tolerance=SCALAR)
    for j, label in enumerate(("bandwidth", "bytes", "fresh[a]")):
        step = np.zeros(3)
        step[j] = 3e-5 * LIMITS[j]
        up, down = (fo.solve(declared(LIMITS + side), tolerance=SCALAR).value for side in (step, -step))
        change = (down - up) / (2.0 * step[j])
        # Of a difference quotient.
        assert math.isclose(found.prices[label], change, rel_tol=CONIC, abs_tol=CONIC)
    assert sum(price > CONIC for price in found.prices.values()) >= 2


def test_farkas() -> None:
    shown(r"D(y)=\sum_k\min_{l_k\le r\le u_k}\sum_j y_j\,g_{jk}(r)-\sum_j y_jb_j > 0")
    limits = np.array([6.0, 3.0, 0.5])
    with pytest.raises(fo.InfeasibleProblemError) as caught:
        fo.solve(declared(limits))
    conflict = caught.value.conflict
    assert conflict.labels == ("bytes", "fresh[a]")
    y = np.array([0.0, *conflict.weights])
    at = response(y, objective=0.0)
    excess = y @ (used(at) - limits)
    assert excess > 0.0
    for rates in np.random.default_rng(5).uniform(*BOUNDS, (200, 5)):
        assert y @ (used(rates) - limits) >= excess * (1 - SCALAR)
    # What suffices is at least what this proof asks for.
    for j, enough, declared_limit in zip((1, 2), conflict.sufficient, (3.0, 0.5), strict=True):
        assert abs(enough - declared_limit) >= excess / y[j] * (1 - SCALAR)


def test_the_matrix_of_the_engine() -> None:
    shown(r"H=\frac{\partial s}{\partial y}=\sum_k\frac{g_k'\,g_k'^{\,T}}{\varphi_k''}")
    problem, y = declared(LIMITS), np.array([0.4, 0.3, 2.0])
    rates = response(y)
    inside = (rates > BOUNDS[0] + CONIC) & (rates < BOUNDS[1] - CONIC)
    assert inside.sum() >= 3
    bend = W5 * D5 * (2.0 * rates + D5) / (rates * (rates + D5)) ** 2
    bend += y[2] * 2.0 * SHARE * D5 / (D5 + rates) ** 3
    g = slopes(rates)[:, inside]
    matrix = (g / bend[inside]) @ g.T
    program = present(problem.program)
    gram = NumpyRowPasses(program).evaluate(y).gram
    assert isinstance(gram, np.ndarray)
    np.testing.assert_allclose(gram, matrix, rtol=SCALAR)
    passes = NumpyRowPasses(program)
    for j in range(3):
        step = np.zeros(3)
        step[j] = 1e-5
        up, down = (passes.evaluate(y + side, gram=False).used for side in (step, -step))
        np.testing.assert_allclose((down - up) / 2e-5, matrix[j], rtol=1e3 * CONIC, atol=CONIC)


def test_the_worst_group_and_nested_limits() -> None:
    shown(r"the dual asks for $\sum_jy_j=1$", r"E_a=\min\left(\max(E_p,\,\alpha_a),\,\beta_a\right)")
    fairest = fo.solve(
        fo.Problem(fo.Worst(HarmonicStaleness(Refresh.POISSON), by=GROUP), SOURCES, bandwidth=5.0)
    )
    shares = [fairest.prices[f"worst[{name}]"] for name in "ab"]
    assert math.isclose(sum(shares), 1.0, rel_tol=SCALAR)
    # One level: α is the price at which a group alone uses its limit, β that at which it takes its reserve.
    nested = fo.Nested([GROUP], at_most={"a": 1.5}, at_least={"b": 1.0})
    for bandwidth in (2.0, 3.0, 8.0):
        found = fo.solve(
            fo.Problem(HarmonicStaleness(Refresh.POISSON), SOURCES, bandwidth, constraints=[nested])
        )
        pays = {
            name: found.prices["bandwidth"] + found.prices[label] * sign
            for name, label, sign in (("a", "nested[a]", 1.0), ("b", "nested reserve[b]", -1.0))
        }
        for name, limit, moved in (("a", 1.5, max), ("b", 1.0, min)):
            own = name == GROUP
            low, high = 1e-9, 1e9
            for _ in range(70):
                middle = math.sqrt(low * high)
                takes = response(np.array([middle, 0.0, 0.0]))[own].sum()
                low, high = (middle, high) if takes > limit else (low, middle)
            expected = moved(found.prices["bandwidth"], low)
            assert math.isclose(pays[name], expected, rel_tol=SCALAR)
