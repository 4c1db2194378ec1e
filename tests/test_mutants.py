"""Small tests, each of which fails for wrong lines that `benchmarks/mutation.py` had put in unnoticed.

Accumulated delay, Σ w·Δ/ρ, has its numerics written out here in one line each; bisection does the rest.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

import freshopt as fo
from freshopt.certificate import repair
from freshopt.learning import crawl_likelihood
from freshopt.learning.crawl_likelihood import CrawlLikelihood
from freshopt.problems import AccumulatedDelay
from freshopt.solvers import WaterFilling
from freshopt.solvers.price_search import search_prices
from tests.tolerances import EXACT, SCALAR
from tests.truth import Floats

HOSTS = ("a", "b", "c", "free")


def market(
    seed: int, n: int = 9, limits: tuple[float, ...] = (0.3, 0.5, 9.0), budget: float = 0.8
) -> fo.Problem:
    """Draw sources of three hosts with limits and one without, bounds and costs."""
    rng = np.random.default_rng(seed)
    cost, lower = rng.uniform(0.2, 3.0, n), rng.uniform(0.05, 0.2, n)
    host = [HOSTS[k % 4] for k in range(n)]
    sources = fo.Sources(
        rng.uniform(0.1, 5.0, n),
        rng.uniform(0.5, 2.0, n),
        host=host,
        min_rate=lower,
        max_rate=rng.uniform(0.4, 2.0, n),
        cost=cost,
    )
    least = [float(np.sum((cost * lower)[np.array(host) == name])) for name in HOSTS[:3]]
    named = {name: low + room for name, low, room in zip(HOSTS, least, limits, strict=False)}
    return fo.Problem(AccumulatedDelay(), sources, float(np.sum(cost * lower)) + budget, named)


def members(problem: fo.Problem, name: str) -> list[int]:
    assert problem.sources.host is not None
    return [k for k, host in enumerate(problem.sources.host.tolist()) if host == name]


def repaired_by_hand(problem: fo.Problem, rates: Floats) -> tuple[Floats, float]:
    cost, low = problem.sources.cost, problem.sources.min_rate
    kept = np.array([min(max(x, a), b) for x, a, b in zip(rates, low, problem.sources.max_rate, strict=True)])
    worst = max(abs(x - y) / max(x, y) for x, y in zip(kept, rates, strict=True))
    groups = [(members(problem, name), limit) for name, limit in problem.host_limits.items()]
    for group, limit in [*groups, (list(range(len(rates))), problem.bandwidth)]:
        used, least = sum(cost[k] * kept[k] for k in group), sum(cost[k] * low[k] for k in group)
        if used > limit * (1.0 + EXACT):
            worst = max(worst, used / limit - 1.0)
            for k in group:
                kept[k] = low[k] + (kept[k] - low[k]) * (limit - least) / (used - least)
    return kept, worst


@pytest.mark.parametrize("scale", [(0.0, 0.1), (0.0, 1.0), (0.0, 30.0), (-2.0, 0.1), (-2.0, 2.0)])
@pytest.mark.parametrize("budget", [0.3, 50.0])
def test_repair_is_clipping_and_shrinking(scale: tuple[float, float], budget: float) -> None:
    """Bounds alone, above or below, one host alone, all hosts, the bandwidth, and everything broken."""
    problem = market(1, budget=budget)
    low, high = problem.sources.min_rate, problem.sources.max_rate
    draws = np.random.default_rng(2).uniform(*scale, (20, len(low)))
    for share in draws:
        rates = np.maximum(0.0, low + share * (high - low))
        expected, worst = repaired_by_hand(problem, rates)
        found, violation = repair(problem, rates)
        np.testing.assert_allclose(found, expected, rtol=EXACT)
        assert violation == pytest.approx(worst, rel=1e-9, abs=0.0)
        assert (violation == 0.0) == bool(np.array_equal(found, rates))


@pytest.mark.parametrize("which", ["below", "above"])
def test_a_single_rate_off_its_bounds_is_a_violation(which: str) -> None:
    problem = market(3, limits=(50.0, 50.0, 50.0), budget=100.0)
    low, high = problem.sources.min_rate, problem.sources.max_rate
    rates = 0.5 * (low + high)
    rates[4] = 0.5 * low[4] if which == "below" else 1.25 * high[4]
    found, violation = repair(problem, rates)
    assert found[4] == (low[4] if which == "below" else high[4])
    assert violation == pytest.approx(0.5 if which == "below" else 0.2, rel=EXACT)


def demand(problem: fo.Problem, price: Floats) -> Floats:
    sources = problem.sources
    worth = sources.importance * sources.change_rate
    with np.errstate(divide="ignore"):
        return np.clip(np.sqrt(worth / (sources.cost * price)), sources.min_rate, sources.max_rate)


def cleared_by_hand(problem: fo.Problem) -> tuple[Floats, float, dict[str, float]]:
    """Return rates, λ and the hosts' prices on top by bisection, hosts first."""
    cost, own = problem.sources.cost, {}
    each = np.zeros(len(cost))
    for name, limit in problem.host_limits.items():
        group = members(problem, name)

        def over(x: float, group: list[int] = group, limit: float = limit) -> float:
            return float(np.sum((cost * demand(problem, np.full(len(cost), math.exp(x))))[group])) - limit

        own[name] = math.exp(brentq(over, -40.0, 40.0, xtol=1e-15)) if over(-40.0) > 0.0 else 0.0
        each[group] = own[name]

    def spent(x: float) -> float:
        return float(np.sum(cost * demand(problem, np.maximum(each, math.exp(x))))) - problem.bandwidth

    price = math.exp(brentq(spent, -40.0, 40.0, xtol=1e-15)) if spent(-40.0) > 0.0 else 0.0
    rates = demand(problem, np.maximum(each, price))
    return rates, price, {name: max(0.0, mine - price) for name, mine in own.items()}


@pytest.mark.parametrize("budget", [0.3, 0.8, 1.5, 50.0])
@pytest.mark.parametrize("seed", [4, 5, 6])
def test_rates_and_all_prices_are_those_of_bisection(seed: int, budget: float) -> None:
    problem = market(seed, budget=budget)
    rates, price, host_prices = cleared_by_hand(problem)
    found = fo.solve(problem, WaterFilling())
    np.testing.assert_allclose(found.rates, rates, rtol=SCALAR)
    assert found.price == pytest.approx(price, rel=SCALAR, abs=0.0)
    assert dict(found.host_prices) == pytest.approx(host_prices, rel=SCALAR, abs=SCALAR * (1.0 + price))
    assert found.certificate is not None
    assert found.certificate.relative_gap <= EXACT


def test_limits_that_min_rate_uses_up_cost_what_their_steepest_source_would_pay() -> None:
    problem = market(7, limits=(0.0, 0.4, 9.0), budget=0.6)
    sources, group = problem.sources, members(problem, "a")
    steepest = np.max((sources.importance * sources.change_rate / sources.min_rate**2 / sources.cost)[group])
    found = fo.solve(problem, WaterFilling())
    np.testing.assert_array_equal(found.rates[group], sources.min_rate[group])
    assert found.price + found.host_prices["a"] == pytest.approx(steepest, rel=EXACT)
    assert found.certificate is not None
    assert found.certificate.relative_gap <= EXACT
    everybody = fo.Problem(AccumulatedDelay(), sources, float(np.sum(sources.cost * sources.min_rate)))
    whole = fo.solve(everybody, WaterFilling())
    slopes = sources.importance * sources.change_rate / sources.min_rate**2 / sources.cost
    assert whole.price == pytest.approx(float(np.max(slopes)), rel=EXACT)
    np.testing.assert_array_equal(whole.rates, sources.min_rate)


def bound_by_hand(problem: fo.Problem, rates: Floats, price: float, on_top: dict[str, float]) -> float:
    """The printed bound, with the exact inverse of the marginal."""
    sources, total = problem.sources, 0.0
    each = np.full(len(rates), price)
    for name, mine in on_top.items():
        group = members(problem, name)
        each[group] += mine
        total += mine * (problem.host_limits[name] - float(np.sum((sources.cost * rates)[group])))
    slope = sources.importance * sources.change_rate / rates**2
    total += price * (problem.bandwidth - float(np.sum(sources.cost * rates)))
    return total + float(np.sum((demand(problem, each) - rates) * (slope - sources.cost * each)))


@pytest.mark.parametrize("reach", [0.4, 0.05])
@pytest.mark.parametrize("seed", [8, 9, 10, 11])
def test_bound_and_scale_are_the_printed_ones(seed: int, reach: float) -> None:
    problem, rng = market(seed), np.random.default_rng(seed)
    low, high = problem.sources.min_rate, problem.sources.max_rate
    rates, _ = repair(problem, low + rng.uniform(0.0, reach, len(low)) * (high - low))
    cost = float(np.sum(problem.sources.importance * problem.sources.change_rate / rates))
    for price in (0.0, 0.5, 8.0):
        on_top = {name: float(rng.exponential(3.0)) for name in problem.host_limits}
        proof = fo.certify(problem, rates, price, on_top)
        assert proof.gap == pytest.approx(bound_by_hand(problem, rates, price, on_top), rel=1e-9)
        scale = cost + price * problem.bandwidth
        scale += sum(mine * problem.host_limits[name] for name, mine in on_top.items())
        least = problem.sources.cost * problem.sources.min_rate
        free = price * (problem.bandwidth - float(np.sum(least)))
        for name, mine in on_top.items():
            free += mine * (problem.host_limits[name] - float(np.sum(least[members(problem, name)])))
        share = proof.gap / (cost + free)
        expected = share if share > 0.5 else proof.gap / scale
        assert proof.relative_gap == pytest.approx(expected, rel=EXACT)
        assert proof.bound == pytest.approx(cost - proof.gap, rel=EXACT)
    searched = fo.certify(problem, rates)
    assert searched.gap == pytest.approx(
        bound_by_hand(problem, rates, searched.price, dict(searched.host_prices)), rel=1e-9
    )
    alone = fo.certify(problem, rates, 0.0)  # without λ the hosts' prices are searched each on its own
    for name in problem.host_limits:
        tried = [
            bound_by_hand(problem, rates, 0.0, dict(alone.host_prices) | {name: float(price)})
            for price in np.concatenate([[0.0], np.logspace(-2.0, 4.0, 121)])
        ]
        assert alone.gap <= 1.001 * min(tried)


def test_prices_are_bracketed_in_about_ten_evaluations() -> None:
    """Power laws whose roots are decades apart, and a demand with steps."""
    power = np.array([0.5, 1.0, 2.0, 3.0, 0.9])
    roots = np.array([1.0, 1e-90, 1e120, 3.7, 1e-5])

    def demanded(price: Floats) -> Floats:
        return np.array(np.exp(np.clip(power * np.log(roots / price), -700.0, 700.0)))

    found = search_prices(demanded, np.ones(5), np.full(5, 2.0))
    np.testing.assert_allclose(found.low, roots, rtol=1e-11)
    np.testing.assert_allclose(found.high, roots, rtol=1e-11)
    assert found.evaluations <= 20
    curved = search_prices(
        lambda price: 1.0 / price + 1.0 / (1.0 + price) ** 2, np.array([0.37]), np.array([9.0])
    )
    exact = brentq(lambda x: 1.0 / x + 1.0 / (1.0 + x) ** 2 - 0.37, 0.1, 100.0, xtol=1e-15)
    assert curved.low[0] <= exact * (1.0 + 1e-15)
    assert curved.high[0] >= exact * (1.0 - 1e-15)
    assert curved.high[0] / curved.low[0] <= 1.0 + 2e-13
    assert curved.evaluations <= 14


@pytest.mark.parametrize("guess", [1e-20, 0.99, 1e8])
def test_a_step_of_demand_is_bracketed_from_both_sides(guess: float) -> None:
    steps = np.array([0.3, 7.0, 1e30])
    found = search_prices(lambda price: np.where(price < steps, 2.0, 0.5), np.ones(3), np.full(3, guess))
    assert bool(np.all(found.low < steps))
    assert bool(np.all(steps <= found.high))
    assert bool(np.all(found.high <= found.low * (1.0 + 1e-12)))
    assert found.evaluations <= 80


def likelihood(imaginary: float = 0.0, *, weighted: bool = True) -> tuple[CrawlLikelihood, list[list[float]]]:
    """Draw sources with gaps of unknown changes, counted ones and quiet time, weighted."""
    rng = np.random.default_rng(12)
    sizes = [3, 1, 6, 2, 4]
    gaps = [rng.uniform(0.2, 3.0, size) for size in sizes]
    weight = [rng.uniform(0.2, 1.0, size) if weighted else np.ones(size) for size in sizes]
    counted, quiet = np.array([0.0, 2.0, 0.0, 1.5, 0.0]), np.array([2.0, 1.0, 0.3, 4.0, 9.0])
    made = CrawlLikelihood(
        gaps=np.concatenate(gaps),
        offsets=np.cumsum([0, *sizes]),
        counted=counted,
        exposure=quiet + imaginary,
        imaginary=imaginary,
        weight=np.concatenate(weight) if weighted else None,
    )
    return made, [[k, counted[k], quiet[k] + imaginary] for k in range(len(sizes))]


def value_by_hand(made: CrawlLikelihood, k: int, rate: float) -> float:
    part = slice(int(made.offsets[k]), int(made.offsets[k + 1]))
    weight = np.ones(len(made.gaps)) if made.weight is None else made.weight
    total = float(np.sum(weight[part] * np.log(1.0 - np.exp(-made.gaps[part] * rate))))
    if made.imaginary > 0.0:
        total += math.log(1.0 - math.exp(-made.imaginary * rate))
    return total + float(made.counted[k]) * math.log(rate) - float(made.exposure[k]) * rate


@pytest.mark.parametrize("imaginary", [0.0, 0.7])
@pytest.mark.parametrize("weighted", [True, False])
def test_likelihood_maximum_and_ends_in_a_few_steps(
    monkeypatch: pytest.MonkeyPatch, imaginary: float, weighted: bool
) -> None:
    """Against differences and bisection of the printed sum; the starts are near."""
    monkeypatch.setattr(crawl_likelihood, "STEPS", 7)
    made, rows = likelihood(imaginary, weighted=weighted)
    rate, n, h = made.maximum(), len(rows), 1e-5
    lower, upper = made.profile(rate, 1.9)
    at = np.linspace(0.3, 2.0, n)
    for k in range(n):
        here, up, down = (value_by_hand(made, k, float(at[k]) + x) for x in (0.0, h, -h))
        assert float(made.value(at)[k]) == pytest.approx(here, rel=EXACT)
        total, curve = made.slope(at)
        assert float(total[k] - made.exposure[k]) == pytest.approx(
            (up - down) / (2.0 * h), rel=1e-6, abs=1e-6
        )
        assert float(curve[k]) == pytest.approx((2.0 * here - up - down) / h**2, rel=1e-4)
        best = float(rate[k])
        top = value_by_hand(made, k, best)
        assert all(value_by_hand(made, k, best * x) < top for x in (0.999, 1.001))
        for end in (float(lower[k]), float(upper[k])):
            assert value_by_hand(made, k, end) == pytest.approx(top - 1.9, rel=SCALAR)
        assert lower[k] < best < upper[k]


def test_ends_where_every_gap_changed_or_none_did() -> None:
    made = CrawlLikelihood(
        gaps=np.array([0.5, 2.0, 1.0]),
        offsets=np.array([0, 3, 3, 3]),
        counted=np.zeros(3),
        exposure=np.array([0.0, 4.0, 0.0]),
        weight=np.array([0.3, 1.0, 0.6]),
    )
    rate = made.maximum()
    assert rate[0] == math.inf
    assert rate[1] == 0.0
    assert math.isnan(rate[2])
    lower, upper = made.profile(rate, 1.5)
    assert value_by_hand(made, 0, float(lower[0])) == pytest.approx(-1.5, rel=SCALAR)
    assert upper[0] == math.inf
    assert (lower[1], upper[1]) == (0.0, pytest.approx(1.5 / 4.0, rel=EXACT))
    assert (lower[2], upper[2]) == (0.0, math.inf)
