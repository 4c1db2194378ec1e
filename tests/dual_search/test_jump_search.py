"""Prices where demand jumps or is nearly flat: against sorted jumps, bisection and closed forms."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import gammainc

import freshopt as fo
from freshopt.compiled.columns import Columns
from freshopt.compiled.price_pairs import at_two_prices, memory
from freshopt.dual_search.jump_search import crossing, jump_search
from freshopt.numerics.arrays import CACHED, ROUNDED, Array
from freshopt.problems import PollingKnapsack
from freshopt.separable.kernel_columns import kernel_columns
from freshopt.solvers import WaterFilling, water_filling
from tests.ground_truth.named import BINARY, BINARY_PERIODIC, present
from tests.ground_truth.routes import compile_all
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT

N = 3000


def columns_of(task: fo.Problem) -> Columns:
    found = present(
        kernel_columns(Columns, present(task.numerics), task.sources.refresh_cost, task.lower, task.upper)
    )
    return found


def sources(n: int, seed: int, *, ties: bool = False) -> dict[str, Any]:
    """Return columns over twelve decades, with bounds on some sources."""
    rng = np.random.default_rng(seed)
    d = rng.choice([0.5, 1.0, 3.0], n) if ties else 10.0 ** rng.uniform(-6.0, 4.0, n)
    w = rng.choice([1.0, 2.0], n) if ties else 10.0 ** rng.uniform(-6.0, 6.0, n)
    return {
        "change_rate": d,
        "importance": np.where(rng.random(n) < 0.05, 0.0, w),
        "min_rate": np.where(rng.random(n) < 0.2, 1e-3 * d, 0.0),
        "max_rate": np.where(rng.random(n) < 0.2, 0.5 * d, np.inf),
        "signalled": rng.random(n) < 0.5,
    }


def binary_rates(own: dict[str, Any], price: float) -> Array:
    """Return best responses: all or nothing on signals, else √(wΔ/λ) − Δ."""
    d, w = own["change_rate"], own["importance"]
    silent = np.maximum(0.0, np.sqrt(w * d / price) - d)
    free = np.where(own["signalled"], np.where(w >= price * d, d, 0.0), silent)
    return np.clip(free, own["min_rate"], own["max_rate"])


def bisected(demand: Callable[[float], float], target: float) -> float:
    """Return the least price at which a demand is within a target."""
    low, high = 1e-30, 1e30
    for _ in range(2000):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        low, high = (middle, high) if demand(middle) > target else (low, middle)
    return high


@matrix(known=[(), (8.0, 3.0), (4.0, 3.0, 1e-6), (1e-8,)], misled=[False, True], every=3)
def test_where_all_can_have_what_they_want_bandwidth_is_free(known: tuple[float, ...], misled: bool) -> None:
    """Whatever of the prices is known, and even if the sample asks for three times its share."""
    rng = np.random.default_rng(8)
    w, most = 10.0 ** rng.uniform(-3.0, 1.0, N), 10.0 ** rng.uniform(-3.0, 3.0, N)
    w[rng.random(N) < 1 / 3] = 0.0

    def columns() -> Columns:
        own = fo.Sources(np.ones(N), w, max_rate=np.where(w > 0.0, most, np.inf))
        return columns_of(fo.Problem(PollingKnapsack("materials"), own, 1.0))

    if misled:
        most[np.array(replace(columns(), upper=np.arange(float(N))).sample(1000).upper, dtype=int)] *= 1e3
    bandwidth = 1.0001 * math.fsum(most[w > 0.0])
    found = present(jump_search(columns(), bandwidth, known=[(at, columns().demand(at)) for at in known]))
    assert found.price == 0.0
    np.testing.assert_allclose(found.rates, np.where(w > 0.0, most, 0.0), rtol=EXACT)


@pytest.mark.parametrize("seed", range(40))
def test_a_crossing_is_the_least_price_within_the_target(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-200.0, 200.0)
    places = np.sort(scale * 10.0 ** rng.uniform(-1.0, 1.0, rng.integers(1, 9)))
    sizes = 10.0 ** rng.uniform(-8.0, 3.0, len(places))
    smooth = float(rng.choice([0.0, 1e-6, 1.0]))

    def demand(price: float) -> float:
        return float(np.sum(sizes[places > price]) + smooth * scale / price)

    target = float(rng.uniform(0.01, 0.99)) * demand(0.99 * places[0])
    start = scale * 10.0 ** rng.uniform(-40.0, 40.0)
    found = crossing(demand, target, float(start), 1e-290, 1e290)
    assert demand(found) <= target < demand(found * (1.0 - 1e-15))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("n", "budget", "ties"),
    [
        (N, 1e-3, False),
        (N, 0.5, True),
        (N, 0.9, False),
        (5, 0.4, False),
        (2, 0.7, True),
        pytest.param(1, 0.7, True, marks=pytest.mark.exhaustive),
    ],
)
def test_signals_that_are_followed_all_or_not_at_all(n: int, budget: float, ties: bool) -> None:
    own = sources(n, 7 * n, ties=ties)
    if n == 1:
        own = {**own, "signalled": np.array([True]), "importance": np.ones(1), "max_rate": np.full(1, np.inf)}
    d, least = own["change_rate"], own["min_rate"]
    bandwidth = float(np.sum(least)) + budget * float(np.sum(np.minimum(d, own["max_rate"]) - least))
    task = fo.Problem(BINARY, fo.Sources(**own), bandwidth)
    found = present(jump_search(columns_of(task), bandwidth))
    assert math.fsum(found.rates) == pytest.approx(bandwidth, rel=2e-13)
    price = bisected(lambda price: math.fsum(binary_rates(own, price)), bandwidth)
    assert found.price == pytest.approx(price, rel=1e-12)
    above, below = binary_rates(own, price * (1.0 - 1e-9)), binary_rates(own, price * (1.0 + 1e-9))
    assert np.all(found.rates <= above * (1.0 + EXACT))
    assert np.all(found.rates >= below * (1.0 - EXACT))
    assert np.all((found.rates >= least) & (found.rates <= own["max_rate"]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("budget", [1e-4, 0.02, 0.3, 0.999])
def test_sources_that_are_all_alike(budget: float) -> None:
    """By symmetry all have the mean rate, at its own marginal value, where that is above no price's rate."""
    d, w = np.full(N, 2.0), np.full(N, 3.0)
    task = fo.Problem(BINARY_PERIODIC, fo.Sources(d, w), budget * 2.0 * N)
    found = present(jump_search(columns_of(task), task.bandwidth))
    mean = task.bandwidth / N
    assert math.fsum(found.rates) == pytest.approx(task.bandwidth, rel=2e-13)
    assert found.price == pytest.approx(1.5 * float(gammainc(2.0, 2.0 / mean)), rel=1e-12)
    gain = 3.0 * found.rates * -np.expm1(-2.0 / found.rates) / 2.0
    assert math.fsum(gain) == pytest.approx(N * 3.0 * mean * -math.expm1(-2.0 / mean) / 2.0, rel=1e-12)


@pytest.mark.exhaustive
def test_where_any_price_of_an_interval_will_do_it_is_the_least() -> None:
    d, w = np.ones(N), np.where(np.arange(N) < N // 2, 10.0, 1.0)
    free, none = np.full(N, np.inf), np.zeros(N)
    own = fo.Sources(d, w, signalled=none == 0.0, max_rate=free, min_rate=none)
    task = fo.Problem(BINARY, own, N // 2)
    found = present(jump_search(columns_of(task), task.bandwidth))
    assert found.price == pytest.approx(1.0, rel=EXACT)
    assert found.rates.tolist() == [1.0] * (N // 2) + [0.0] * (N - N // 2)
    plenty = task.with_bandwidth(2.0 * N)
    most = present(jump_search(columns_of(plenty), plenty.bandwidth))
    assert (most.price, float(np.sum(most.rates))) == (0.0, N)


@pytest.mark.parametrize("off", [1e-4, 1e-7, 1e-9, 1e-12])
def test_a_few_that_are_below_their_upper_bounds_tell_the_price(off: float) -> None:
    """All others are at theirs, so beside the price demand falls by less than its rounding."""
    rng = np.random.default_rng(2)
    n = 20_000
    d, most, leaves = rng.lognormal(size=n), rng.lognormal(size=n), 1.0 + rng.random(n)
    leaves[:10] = np.linspace(1e-3, 2e-3, 10)
    # √(wΔ/λ) − Δ is the upper bound at the price where a source leaves it.
    own = {"change_rate": d, "importance": leaves * (most + d) ** 2 / d, "max_rate": most}
    own |= {"min_rate": np.zeros(n), "signalled": np.zeros(n, dtype=np.bool_)}
    few = {name: column[:10] for name, column in own.items()}
    bandwidth = (1.0 - off) * math.fsum(most)
    left = math.fsum([bandwidth, *-most[10:]])
    price = bisected(lambda price: math.fsum(binary_rates(few, price)), left)
    task = fo.Problem(BINARY, fo.Sources(d, own["importance"], max_rate=most), bandwidth)
    found = present(jump_search(columns_of(task), bandwidth))
    assert math.fsum(found.rates) == pytest.approx(bandwidth, rel=EXACT)
    assert found.price == pytest.approx(price, rel=1e-10)
    np.testing.assert_allclose(found.rates, binary_rates(own, price), rtol=1e-10)


@pytest.mark.exhaustive
def test_many_that_are_alike_among_others_are_told_by_a_sample() -> None:
    """A hundredth of the sources differ; the price of all others is found in two or three pairs of passes."""
    rng = np.random.default_rng(1)
    rare = rng.random(20_000) < 0.01
    own = fo.Sources(np.where(rare, 1e3, 1.0), np.where(rare, 1e-3, 1.0))
    task = fo.Problem(BINARY_PERIODIC, own, 0.01 * 20_000)
    # Near the plateau's edge a known demand is 30 times the bandwidth, a hair below the price.
    known = [(1.0 - 1.5e-10, 34.0 * task.bandwidth)]
    found = present(jump_search(columns_of(task), task.bandwidth, known=known))
    assert found.price == pytest.approx(1.0, rel=1e-12)
    assert math.fsum(found.rates) == pytest.approx(task.bandwidth, rel=2e-13)
    assert found.passes <= 7


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(6))
def test_demands_that_are_known_save_passes_and_change_no_answer(seed: int) -> None:
    own = sources(20_000, seed)
    task = fo.Problem(BINARY, fo.Sources(**own), 0.2 * float(np.sum(own["change_rate"])))
    columns = columns_of(task)
    alone = present(jump_search(columns, task.bandwidth))
    prices = [alone.price * factor for factor in (0.97, 1.00003, 0.99997)]
    known = [(price, math.fsum(binary_rates(own, price))) for price in prices]
    told = present(jump_search(columns, task.bandwidth, known=known))
    assert told.price == pytest.approx(alone.price, rel=1e-12)
    np.testing.assert_allclose(told.rates, alone.rates, rtol=1e-9, atol=1e-12)
    assert told.passes - len(known) <= alone.passes


def test_a_pass_at_two_prices_adds_up_and_mixes() -> None:
    own = sources(2 * CACHED + 77, 3)
    columns, into = (columns_of(fo.Problem(BINARY, fo.Sources(**own), 1e6)), memory(2 * CACHED + 77))
    low, high = 1.0, 1.3
    used = at_two_prices(columns, low, high, into, steep=0.4, share=0.25)
    generous, frugal = binary_rates(own, low), binary_rates(own, high)
    jumps = generous - frugal > 0.4 * generous
    assert into.jumps.tolist() == jumps.tolist()
    np.testing.assert_allclose(into.rates, frugal + 0.25 * (generous - frugal), rtol=1e-9, atol=1e-12)
    for sum_, rates in (
        (used.above, generous),
        (used.below, frugal),
        (used.smooth_above, generous[~jumps]),
        (used.smooth_below, frugal[~jumps]),
        (used.mixed, into.rates),
    ):
        assert sum_ == pytest.approx(math.fsum(rates), rel=1e-12)


def test_the_same_bits_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 40 * CACHED
    own = sources(n, 5)
    task = fo.Problem(BINARY, fo.Sources(**own), 0.1 * float(np.sum(own["change_rate"])))
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("FRESHOPT_THREADS", threads)
        found.append(jump_search(columns_of(task), task.bandwidth))
    one, three = found
    assert one is not None
    assert three is not None
    assert one.price == three.price
    assert np.array_equal(one.rates, three.rates)


@matrix(ties=[False, True], every=2)
def test_what_jumps_is_solved_and_proved(monkeypatch: pytest.MonkeyPatch, ties: bool) -> None:
    compile_all(monkeypatch)
    monkeypatch.setenv("FRESHOPT_COMPILED", "1")
    own = sources(N, 11, ties=ties)
    task = fo.Problem(BINARY, fo.Sources(**own), 0.3 * float(np.sum(own["change_rate"])))
    solution = fo.solve(task, WaterFilling(), tolerance=EXACT)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    plain = fo.solve(task, WaterFilling(), tolerance=EXACT)
    assert solution.value == pytest.approx(plain.value, rel=EXACT)


def test_samples_follow_no_order_of_the_sources() -> None:
    for period in (2, 3, 10, 64):
        place = np.arange(100_000) % period
        own = fo.Sources(np.where(place == 0, 2.0, 1.0))
        columns = columns_of(fo.Problem(BINARY, own, 1e4))
        drawn = np.asarray(columns.sample(5000).parameters[0])
        assert 4900 <= len(drawn) <= 5100
        assert np.mean(drawn == 2.0) == pytest.approx(1.0 / period, rel=0.1)


# The loops of each objective are compiled anew, which takes ten times as long as they run.
@matrix(share=[1.0 - 1e-12, 1.0 - 1e-9, 1.0 - 1e-3, 0.95], ties=[False, True])
def test_what_limits_leave_too_much_is_taken_from_the_cheapest_hosts(
    monkeypatch: pytest.MonkeyPatch, share: float, ties: bool
) -> None:
    """Demand of all is nearly flat: the price is that of Σ min(demand, limit) over hosts, by bisection."""
    compile_all(monkeypatch)
    hosts, each = 600, 5
    own = sources(hosts * each, 3, ties=ties)
    host = np.arange(hosts * each) % hosts
    wanted = np.bincount(host, np.minimum(own["change_rate"], own["max_rate"]))
    rng = np.random.default_rng(5)
    limits = np.bincount(host, own["min_rate"]) + wanted * 10.0 ** rng.uniform(-2.0, -0.5, hosts)
    bandwidth = share * math.fsum(limits)
    task = fo.Problem(BINARY, fo.Sources(**own, host=host), bandwidth, dict(enumerate(limits.tolist())))

    def demand(price: float) -> float:
        return math.fsum(np.minimum(np.bincount(host, binary_rates(own, price)), limits))

    found = fo.solve(task, WaterFilling())
    assert found.price == pytest.approx(bisected(demand, bandwidth * (1.0 + ROUNDED)), rel=1e-9)
    assert present(found.certificate).relative_gap <= EXACT
    assert math.fsum(found.rates) == pytest.approx(min(bandwidth, demand(1e-30)), rel=1e-14)


@pytest.mark.parametrize(
    "objective", [BINARY_PERIODIC, pytest.param(PollingKnapsack("materials"), marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("share", [1e-6, 0.5, 1.0 - 1e-9, 1.0])
@pytest.mark.sampled(3)
def test_a_host_whose_search_gives_up_is_solved_alone(
    monkeypatch: pytest.MonkeyPatch, objective: fo.Objective, share: float
) -> None:
    """A fifth of the hosts fail: their prices and rates are as before, and no other road is taken."""
    compile_all(monkeypatch)
    rng = np.random.default_rng(4)
    host, d = np.arange(N) // 10, 10.0 ** rng.uniform(-2.0, 2.0, N)
    limits = np.bincount(host, d) * 10.0 ** rng.uniform(-2.0, 0.5, N // 10)
    own = fo.Sources(d, 10.0 ** rng.uniform(-2.0, 2.0, N), host=host)
    task = fo.Problem(objective, own, share * math.fsum(limits), dict(enumerate(limits.tolist())))
    expected = fo.solve(task, WaterFilling())
    search = Columns.settle_hosts

    def failing(columns: Columns, *given: Any) -> Array:  # noqa: ANN401
        prices = search(columns, *given)
        lost = (prices > 0.0) & (np.arange(len(prices)) % 5 == 0)
        given[-1][np.isin(host, np.flatnonzero(lost))] = 1e6
        return np.where(lost, np.nan, prices)

    monkeypatch.setattr(Columns, "settle_hosts", failing)
    monkeypatch.setattr(water_filling, "_DualProblem", None)
    found = fo.solve(task, WaterFilling())
    np.testing.assert_allclose(found.rates, expected.rates, rtol=1e-9, atol=1e-12 * float(np.max(d)))
    assert found.price == pytest.approx(expected.price, rel=1e-9)
    assert present(found.certificate).relative_gap <= EXACT
