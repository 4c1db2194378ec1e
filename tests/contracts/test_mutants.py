"""Small tests, each of which fails for wrong lines that mutation testing had put in unnoticed.

Accumulated delay, Σ w·Δ/ρ, has its numerics written out here in one line each; bisection does the rest.
"""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

import freshopt as fo
from freshopt.certificates.best_response import crossing_steps
from freshopt.certificates.price_search import minimise
from freshopt.certificates.row_repair import repair
from freshopt.cvx import cp
from freshopt.dual_search.price_bracketing import search_prices
from freshopt.estimators import crawl_likelihood
from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.crawl_rows import Intervals
from freshopt.solvers import WaterFilling
from tests.ground_truth.named import DELAY, present, written
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.ground_truth.truth import Floats

HOSTS = ("a", "b", "c", "free")


def market(
    seed: int,
    n: int = 9,
    limits: tuple[float, ...] = (0.3, 0.5, 9.0),
    budget: float = 0.8,
    unit: float = 1.0,
    weight: float = 1.0,
) -> fo.Problem:
    """Draw sources of three hosts with limits and one without, bounds and costs; every rate in a unit."""
    rng = np.random.default_rng(seed)
    cost, lower = rng.uniform(0.2, 3.0, n), rng.uniform(0.05, 0.2, n)
    host = [HOSTS[k % 4] for k in range(n)]
    sources = fo.Sources(
        unit * rng.uniform(0.1, 5.0, n),
        weight * rng.uniform(0.5, 2.0, n),
        host=host,
        min_rate=unit * lower,
        max_rate=unit * rng.uniform(0.4, 2.0, n),
        refresh_cost=cost,
    )
    least = [float(np.sum((cost * lower)[np.array(host) == name])) for name in HOSTS[:3]]
    named = {name: unit * (low + room) for name, low, room in zip(HOSTS, least, limits, strict=False)}
    bandwidth = unit * (float(np.sum(cost * lower)) + budget)
    return fo.Problem(DELAY, sources, bandwidth, named)


def members(problem: fo.Problem, name: str) -> list[int]:
    return [k for k, host in enumerate(present(problem.sources.host).tolist()) if host == name]


def repaired_by_hand(problem: fo.Problem, rates: Floats) -> tuple[Floats, float]:
    cost, low = problem.sources.refresh_cost, problem.sources.min_rate
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


@matrix(scale=[(0.0, 0.1), (0.0, 1.0), (0.0, 30.0), (-2.0, 0.1), (-2.0, 2.0)], budget=[0.3, 50.0])
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
        return np.clip(np.sqrt(worth / (sources.refresh_cost * price)), sources.min_rate, sources.max_rate)


def cleared_by_hand(problem: fo.Problem) -> tuple[Floats, float, dict[str, float]]:
    """Return rates, λ and the hosts' prices on top by bisection, hosts first."""
    cost, own = problem.sources.refresh_cost, {}
    each = np.zeros(len(cost))
    for name, limit in problem.host_limits.items():
        group = members(problem, name)

        def over(x: float, group: list[int] = group, limit: float = limit) -> float:
            return float(np.sum((cost * demand(problem, np.full(len(cost), math.exp(x))))[group])) - limit

        own[name] = math.exp(brentq(over, -70.0, 70.0, xtol=1e-15)) if over(-70.0) > 0.0 else 0.0
        each[group] = own[name]

    def spent(x: float) -> float:
        return float(np.sum(cost * demand(problem, np.maximum(each, math.exp(x))))) - problem.bandwidth

    price = math.exp(brentq(spent, -70.0, 70.0, xtol=1e-15)) if spent(-70.0) > 0.0 else 0.0
    rates = demand(problem, np.maximum(each, price))
    return rates, price, {name: max(0.0, mine - price) for name, mine in own.items()}


@pytest.mark.parametrize("budget", [0.3, 0.8, 1.5, 50.0])
@pytest.mark.parametrize(("seed", "unit"), [(4, 1.0), (5, 1.0), (6, 1e-12), (6, 1e12)])
def test_rates_and_all_prices_are_those_of_bisection(seed: int, unit: float, budget: float) -> None:
    problem = market(seed, budget=budget, unit=unit)
    rates, price, host_prices = cleared_by_hand(problem)
    found = fo.solve(problem, WaterFilling())
    np.testing.assert_allclose(found.rates, rates, rtol=SCALAR)
    assert found.price == pytest.approx(price, rel=SCALAR, abs=0.0)
    assert dict(found.host_prices) == pytest.approx(
        host_prices, rel=SCALAR, abs=SCALAR * (1.0 / unit + price)
    )
    assert present(found.certificate).relative_gap <= EXACT


def test_limits_that_min_rate_uses_up_cost_what_their_steepest_source_would_pay() -> None:
    problem = market(7, limits=(0.0, 0.4, 9.0), budget=0.6)
    sources, group = problem.sources, members(problem, "a")
    steepest = np.max(
        (sources.importance * sources.change_rate / sources.min_rate**2 / sources.refresh_cost)[group]
    )
    found = fo.solve(problem, WaterFilling())
    np.testing.assert_array_equal(found.rates[group], sources.min_rate[group])
    assert found.price + found.host_prices["a"] == pytest.approx(steepest, rel=EXACT)
    assert present(found.certificate).relative_gap <= EXACT
    everybody = fo.Problem(DELAY, sources, float(np.sum(sources.refresh_cost * sources.min_rate)))
    whole = fo.solve(everybody, WaterFilling())
    slopes = sources.importance * sources.change_rate / sources.min_rate**2 / sources.refresh_cost
    assert whole.price == pytest.approx(float(np.max(slopes)), rel=EXACT)
    np.testing.assert_array_equal(whole.rates, sources.min_rate)


def bound_by_hand(problem: fo.Problem, rates: Floats, price: float, on_top: dict[str, float]) -> float:
    """The printed bound, of each source the smaller one, with the exact inverse of the marginal."""
    sources, total = problem.sources, 0.0
    each = np.full(len(rates), price)
    for name, mine in on_top.items():
        group = members(problem, name)
        each[group] += mine
        total += mine * (problem.host_limits[name] - float(np.sum((sources.refresh_cost * rates)[group])))
    slope = sources.importance * sources.change_rate / rates**2
    total += price * (problem.bandwidth - float(np.sum(sources.refresh_cost * rates)))
    best, paid = demand(problem, each), sources.refresh_cost * each
    tangents = (best - rates) * (slope - paid)
    dual = sources.importance * sources.change_rate * (1.0 / rates - 1.0 / best) - paid * (best - rates)
    assert np.sum(dual) < np.sum(tangents)
    return total + float(np.sum(np.minimum(dual, tangents)))


@pytest.mark.parametrize("reach", [0.4, 0.05])
@pytest.mark.parametrize(("seed", "weight"), [(8, 1.0), (9, 1.0), (10, 1e-4), (11, 1.0)])
def test_bound_and_scale_are_the_printed_ones(seed: int, weight: float, reach: float) -> None:
    problem, rng = market(seed, weight=weight), np.random.default_rng(seed)
    low, high = problem.sources.min_rate, problem.sources.max_rate
    rates, _ = repair(problem, low + rng.uniform(0.0, reach, len(low)) * (high - low))
    cost = float(np.sum(problem.sources.importance * problem.sources.change_rate / rates))
    for price in (0.0, 0.5 * weight, 8.0 * weight):
        on_top = {name: weight * float(rng.exponential(3.0)) for name in problem.host_limits}
        proof = fo.certify(problem, rates, price, on_top)
        assert proof.gap == pytest.approx(bound_by_hand(problem, rates, price, on_top), rel=1e-9)
        least = problem.sources.refresh_cost * problem.sources.min_rate
        free = price * (problem.bandwidth - float(np.sum(least)))
        for name, mine in on_top.items():
            free += mine * (problem.host_limits[name] - float(np.sum(least[members(problem, name)])))
        lost = cost  # w·Δ/(ρ/2) is twice w·Δ/ρ
        assert proof.relative_gap == pytest.approx(proof.gap / (free + lost), rel=EXACT)
        assert proof.bound == pytest.approx(cost - proof.gap, rel=EXACT)
    searched = fo.certify(problem, rates)
    assert searched.gap == pytest.approx(
        bound_by_hand(problem, rates, searched.price, dict(searched.host_prices)), rel=1e-9
    )
    alone = fo.certify(problem, rates, 0.0)  # without λ the hosts' prices are searched each on its own
    for name in problem.host_limits:
        tried = [
            bound_by_hand(problem, rates, 0.0, dict(alone.host_prices) | {name: float(price)})
            for price in np.concatenate([[0.0], weight * np.logspace(-2.0, 4.0, 121)])
        ]
        assert alone.gap <= (1.0 + 1e-9) * min(tried)


def test_no_cost_and_no_price_leave_no_gap() -> None:
    problem = fo.Problem(DELAY, fo.Sources([1.0, 2.0], 0.0), 1.0)
    proof = fo.certify(problem, [0.2, 0.3], 0.0)
    assert (proof.gap, proof.relative_gap) == (0.0, 0.0)


def test_there_is_one_price_of_bandwidth() -> None:
    refused("price", fo.certify, market(1), np.ones(9), [1.0, 2.0])


def test_rates_that_are_fixed_have_no_price() -> None:
    sources = fo.Sources([1.0, 2.0], [1.0, 1e-3], min_rate=[0.5, 0.25], max_rate=[0.5, 1.0])
    found = fo.solve(fo.Problem(DELAY, sources, 0.75), WaterFilling())
    assert found.price == pytest.approx(2e-3 / 0.25**2, rel=EXACT)


class Inaccurate:
    """The marginal 1/ρ² with an inverse that returns what it is told."""

    def __init__(self, wish: Floats) -> None:
        self.wish = wish

    def marginal(self, rate: Floats) -> Floats:
        return rate**-2.0

    def inverse_marginal(self, price: Floats) -> Floats:
        return self.wish + 0.0 * price


@matrix(size=[1e-9, 1.0, 1e9], off=[1e-12, 1e-8, 1e-3])
def test_an_inverse_on_the_wrong_side_is_pushed_across_and_not_far(off: float, size: float) -> None:
    rates = size * np.array([1.0, 1.0, 1.0])
    crossing, rising = rates * np.array([1.0 + off, 1.0 - off, 1.2]), np.array([True, False, True])
    room, wish = np.array([np.inf, size, np.inf]), rates * np.array([1.0, 1.0, 1.5])
    step = crossing_steps(Inaccurate(wish), rates, crossing**-2.0, rising, room, rates)  # type: ignore[arg-type]
    assert bool(np.all(step[:2] >= off * size * (1.0 - 1e-3)))
    assert bool(np.all(step[:2] <= 8.01 * off * size))
    assert step[2] == pytest.approx(0.5 * size)


def test_what_never_crosses_takes_all_the_room() -> None:
    rates, room, paid = np.ones(2), np.array([1e250, np.inf]), np.array([1e-290, 0.25])
    step = crossing_steps(Inaccurate(rates), rates, paid, np.array([True, True]), room, rates)  # type: ignore[arg-type]
    assert step[0] >= 1e145
    assert 1.0 <= step[1] <= 8.0


# Every refresh of a source is worth the same.
Worth = written("Worth", lambda rate, sources: cp.multiply(sources.importance, -rate))


# A first refresh is worth any price.
Root = written("Root", lambda rate, sources: cp.multiply(sources.importance, -cp.sqrt(rate)))


@pytest.mark.parametrize("bandwidth", [1.3, 2.2, 2.9])
def test_constant_worths_are_bought_greedily_within_hosts(bandwidth: float) -> None:
    worth, most = np.array([5.0, 4.0, 3.5, 3.0, 2.0, 1.0]), np.array([0.5, 0.4, 0.6, 0.3, 0.9, 0.7])
    cost, host = np.array([1.0, 2.0, 0.5, 1.0, 1.5, 1.0]), ["a", "b", "a", "b", "a", "b"]
    room, left, expected = {"a": 0.7, "b": 1.6}, bandwidth, np.zeros(6)
    limits = dict(room)
    for k in np.argsort(-worth / cost):
        expected[k] = min(most[k], room[host[k]] / cost[k], left / cost[k])
        room[host[k]] -= cost[k] * expected[k]
        left -= cost[k] * expected[k]
    sources = fo.Sources(np.ones(6), worth, host=host, max_rate=most, refresh_cost=cost)
    found = fo.solve(fo.Problem(Worth(), sources, bandwidth, limits), WaterFilling())
    np.testing.assert_allclose(found.rates, expected, atol=EXACT)


def test_one_source_without_an_end_takes_all() -> None:
    sources = fo.Sources(np.ones(2), [3.0, 1.0], refresh_cost=[0.5, 1.0])
    found = fo.solve(fo.Problem(Worth(), sources, 1.3), WaterFilling())
    np.testing.assert_allclose(found.rates, [2.6, 0.0], rtol=EXACT)
    assert found.price == pytest.approx(6.0, rel=EXACT)
    assert present(found.certificate).relative_gap <= EXACT
    hosted = fo.Sources(np.ones(2), [3.0, 1.0], refresh_cost=[0.5, 1.0], host=["a", "b"])
    limited = fo.solve(fo.Problem(Worth(), hosted, 1.3, {"a": 0.4}), WaterFilling())
    np.testing.assert_allclose(limited.rates, [0.8, 0.9], rtol=EXACT)
    assert present(limited.certificate).relative_gap <= EXACT


def test_both_valleys_of_one_group_are_searched_though_the_other_has_one() -> None:
    """The valley that is deeper between the points of the grid looks the shallower one on it."""

    def bound(x: Floats) -> Floats:
        wide, narrow = 1.0 + 0.05 * (x[0] - 2.0) ** 2, 0.2 + 3.6 * (x[0] - 7.5) ** 2
        return np.array([min(wide, narrow), 1.0 + (x[1] - 5.5) ** 2])

    best, smallest = minimise(bound, np.tile(np.linspace(0.0, 10.0, 11), (2, 1)))
    np.testing.assert_allclose(best, [7.5, 5.5], rtol=1e-6)
    np.testing.assert_allclose(smallest, [0.2, 1.0], rtol=EXACT)


@pytest.mark.parametrize("seed", range(6))
def test_a_price_at_a_kink_of_the_bound_is_found(seed: int) -> None:
    """Between the worths of two sources the bound is linear in λ: its minimum is one of them, or 0."""
    rng = np.random.default_rng(seed)
    worth, cost, most = rng.uniform(1.0, 9.0, (3, 7))
    rates = most * rng.uniform(0.0, 1.0, 7)
    bandwidth = float(np.sum(cost * rates)) * (1.0 if seed % 2 else 1.3)
    sources = fo.Sources(np.ones(7), worth, max_rate=most, refresh_cost=cost)

    def bound(price: float) -> float:
        margin = worth - price * cost
        gains = np.where(margin > 0.0, most - rates, -rates) * margin
        return price * (bandwidth - float(np.sum(cost * rates))) + float(np.sum(gains))

    proof = fo.certify(fo.Problem(Worth(), sources, bandwidth), rates)
    assert proof.gap == pytest.approx(min(map(bound, [0.0, *(worth / cost)])), rel=SCALAR)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("seed", "budget"), [(13, 0.8), (14, 4.0), (15, 9.0)])
def test_no_other_price_makes_the_bound_of_unused_bandwidth_smaller(
    seed: int, budget: float, unit: float
) -> None:
    problem = market(seed, limits=(50.0, 50.0, 50.0), budget=budget, unit=unit)
    rates, _ = repair(problem, problem.sources.min_rate * np.random.default_rng(seed).uniform(1.0, 1.5, 9))
    free = fo.Problem(problem.objective, problem.sources, problem.bandwidth)
    tried = [bound_by_hand(free, rates, float(x) / unit, {}) for x in np.logspace(-3.0, 4.0, 281)]
    assert fo.certify(free, rates).gap <= (1.0 + 1e-9) * min(tried)


@pytest.mark.parametrize("left", [0.2, 1.5])
def test_a_host_that_min_rate_uses_up_gives_nothing_to_who_would_pay_any_price(left: float) -> None:
    sources = fo.Sources(np.ones(3), host=["a", "a", "b"], min_rate=[0.5, 0.0, 0.0])
    found = fo.solve(fo.Problem(Root(), sources, 0.5 + left, {"a": 0.5}), WaterFilling(), throw=False)
    np.testing.assert_allclose(found.rates, [0.5, 0.0, left], rtol=EXACT)  # no finite price proves it


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


def likelihood(pseudo: float = 0.0, *, weighted: bool = True) -> tuple[CrawlLikelihood, list[list[float]]]:
    """Draw sources with gaps of unknown changes, counted ones and quiet time, weighted."""
    rng = np.random.default_rng(12)
    sizes = [3, 1, 6, 2, 4]
    gaps = [rng.uniform(0.2, 3.0, size) for size in sizes]
    weight = [rng.uniform(0.2, 1.0, size) if weighted else np.ones(size) for size in sizes]
    counted, quiet = np.array([0.0, 2.0, 0.0, 1.5, 0.0]), np.array([2.0, 1.0, 0.3, 4.0, 9.0])
    made = CrawlLikelihood(
        Intervals(np.concatenate(gaps), np.cumsum([0, *sizes]), np.concatenate(weight) if weighted else None),
        counted=counted,
        exposure=quiet,
    ).smoothed(pseudo)
    return made, [[k, counted[k], quiet[k] + pseudo] for k in range(len(sizes))]


def value_by_hand(made: CrawlLikelihood, k: int, rate: float, pseudo: float = 0.0) -> float:
    length, offsets, weight = made.rows
    # A pseudo-observation is the last of a source's, and weighs 1 whatever was given.
    part = slice(int(offsets[k]), int(offsets[k + 1]) - (pseudo > 0.0))
    weight = np.ones(len(length)) if weight is None else weight
    total = float(np.sum(weight[part] * np.log(1.0 - np.exp(-length[part] * rate))))
    if pseudo > 0.0:
        total += math.log(1.0 - math.exp(-pseudo * rate))
    return total + float(made.counted[k]) * math.log(rate) - float(made.exposure[k]) * rate


@matrix(pseudo=[0.0, 0.7], weighted=[True, False])
def test_likelihood_maximum_and_ends_in_a_few_steps(
    monkeypatch: pytest.MonkeyPatch, pseudo: float, weighted: bool
) -> None:
    """Against differences and bisection of the printed sum; the starts are near."""
    monkeypatch.setattr(crawl_likelihood, "STEPS", 7)
    made, rows = likelihood(pseudo, weighted=weighted)
    rate, n, h = made.maximum(), len(rows), 1e-5
    lower, upper = made.profile(rate, 1.9)
    at = np.linspace(0.3, 2.0, n)
    for k in range(n):
        here, up, down = (value_by_hand(made, k, float(at[k]) + x, pseudo) for x in (0.0, h, -h))
        assert float(made.value(at)[k]) == pytest.approx(here, rel=EXACT)
        total, curve = made.slope(at)
        assert float(total[k] - made.exposure[k]) == pytest.approx(
            (up - down) / (2.0 * h), rel=1e-6, abs=1e-6
        )
        assert float(curve[k]) == pytest.approx((2.0 * here - up - down) / h**2, rel=1e-4)
        best = float(rate[k])
        top = value_by_hand(made, k, best, pseudo)
        assert all(value_by_hand(made, k, best * x, pseudo) < top for x in (0.999, 1.001))
        for end in (float(lower[k]), float(upper[k])):
            assert value_by_hand(made, k, end, pseudo) == pytest.approx(top - 1.9, rel=SCALAR)
        assert lower[k] < best < upper[k]


def test_ends_where_every_gap_changed_or_none_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl_likelihood, "STEPS", 7)
    made = CrawlLikelihood(
        Intervals(np.array([0.5, 2.0, 1.0]), np.array([0, 3, 3, 3]), np.array([0.3, 1.0, 0.6])),
        counted=np.zeros(3),
        exposure=np.array([0.0, 4.0, 0.0]),
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


def test_counted_changes_alone_are_divided_by_the_time() -> None:
    made = CrawlLikelihood(
        Intervals(np.zeros(0), np.zeros(3, int)),
        counted=np.array([1.0, 5.0]),
        exposure=np.array([1e3, 2.0]),
    )
    np.testing.assert_allclose(made.maximum(), [1e-3, 2.5], rtol=EXACT)
    np.testing.assert_allclose(made.counting(1.0, 2.0).maximum(), [2.0 / 1002.0, 1.5], rtol=EXACT)
