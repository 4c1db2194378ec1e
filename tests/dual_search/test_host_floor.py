"""How often sources are evaluated before a price is known: floors of hosts' prices, samples, brackets."""

import math
from collections.abc import Callable

import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.columns import Columns
from freshopt.dual_search.compiled_water_filling import FEWEST, SPARSE
from freshopt.dual_search.jump_search import crossing, jump_search
from freshopt.dual_search.sampled_search import root
from freshopt.numerics.arrays import Array
from freshopt.problems import HarmonicStaleness, PiecewiseLinearCost, PowerCost, SynchronizationCost
from tests.dual_search.test_jump_search import columns_of
from tests.ground_truth.named import AGE, BINARY, present
from tests.ground_truth.routes import compile_all

HOSTS, EACH = 2 * FEWEST * SPARSE, 4
N = HOSTS * EACH


def limited(share: float) -> fo.Problem:
    """Return sources on request, which are the ceilings of rates, of hosts that all have limits."""
    rng = np.random.default_rng(5)
    d, w = rng.lognormal(0.0, 2.0, (2, N))
    limits = EACH * rng.lognormal(0.0, 1.0, HOSTS)
    host = np.repeat(np.arange(HOSTS), EACH)
    asked = d * rng.lognormal(1.0, 1.0, N)
    used = np.minimum(limits, np.bincount(host, asked))
    sources = fo.Sources(change_rate=d, importance=w, host=host, request_rate=asked)
    return fo.Problem(
        HarmonicStaleness(fo.Refresh.ON_REQUEST),
        sources,
        share * float(np.sum(used)),
        dict(enumerate(limits.tolist())),
    )


def noted(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[int]:
    """Note how many sources are in a pass of these kinds."""
    asked = []

    def note(name: str) -> None:
        original = getattr(Columns, name)

        def called(columns: Columns, *given: object) -> Array:
            asked.append(columns.n)
            found: Array = original(columns, *given)
            return found

        monkeypatch.setattr(Columns, name, called)

    for name in names:
        note(name)
    return asked


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many sources are asked for their hosts' sums, and for their hosts' prices."""
    compile_all(monkeypatch)
    return noted(monkeypatch, "by_host", "settle_hosts")


@pytest.mark.parametrize("share", [0.8, 0.95, 2.0])
def test_sources_at_their_hosts_limits_are_not_evaluated_again(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = limited(share)
    plain = fo.solve(problem)
    compile_all(monkeypatch)
    asked = noted(monkeypatch, "demand", "fill")
    solution = fo.solve(problem)
    assert present(solution.certificate).relative_gap < 1e-12
    assert solution.rates == pytest.approx(plain.rates, rel=1e-9)
    assert solution.price == pytest.approx(plain.price, rel=1e-9)
    assert max(asked) <= N / 2


@pytest.mark.parametrize("share", [0.3, 0.99, 1.01, 2.0])
def test_hosts_are_searched_once_from_a_floor_below_the_price(share: float, evaluated: list[int]) -> None:
    problem = limited(share)
    solution = fo.solve(problem)
    assert present(solution.certificate).relative_gap < 1e-12
    assert (solution.price == 0.0) == (share > 1.0)
    whole = [n for n in evaluated if n == N]
    # Once to search prices, before it at most four times to find where; and a sample three times.
    assert 2 <= len(whole) <= (2 if share in {0.3, 2.0} else 5)
    assert sum(evaluated) <= len(whole) * N + 3 * N / SPARSE + 100


def test_a_crossing_beyond_an_end_is_found_at_once() -> None:
    prices: list[float] = []

    def demand(price: float) -> float:
        prices.append(price)
        return 2.0 - price

    assert crossing(demand, 0.5, 0.3, 0.3, 0.4) == pytest.approx(0.4, rel=1e-15)
    assert len(prices) <= 12
    prices.clear()
    assert crossing(demand, 0.5, 1.8, 1.6, 1.9) == pytest.approx(1.6, rel=1e-15)
    assert len(prices) <= 12


def plateau() -> tuple[Columns, float]:
    """Return sources of which half ask for all, and the others for nothing, at any price from 1e-6 to 1."""
    n = 20_000
    w = np.where(np.arange(n) % 2 == 0, 1.0, 1e-6)
    task = fo.Problem(BINARY, fo.Sources(np.ones(n), w, signalled=np.ones(n, dtype=bool)), n / 2)
    return columns_of(task), n / 2


def alike() -> tuple[Columns, float]:
    n = 20_000
    return columns_of(fo.Problem(BINARY, fo.Sources(np.ones(n), np.full(n, 5.0)), 0.1 * n)), 0.1 * n


def powers() -> tuple[Columns, float]:
    d = np.random.default_rng(3).lognormal(0.0, 1.0, 20_000)
    return columns_of(fo.Problem(AGE, fo.Sources(d), 0.3 * float(np.sum(d)))), 0.3 * float(np.sum(d))


@pytest.mark.parametrize("case", [plateau, alike, powers])
def test_a_search_without_a_start_takes_few_passes(case: Callable[[], tuple[Columns, float]]) -> None:
    columns, bandwidth = case()
    found = present(jump_search(columns, bandwidth))
    assert found.passes <= 12
    assert columns.demand(found.price) <= bandwidth * (1.0 + 1e-12)
    assert columns.demand(found.price * (1.0 - 1e-9)) > bandwidth


def test_a_root_is_found_beside_prices_without_demand() -> None:
    values: list[float] = []

    def excess(x: float) -> float:
        rate = math.sqrt(5.0 * math.exp(-x)) - 1.0
        values.append(math.log(rate / 0.1) if rate > 0.0 else -1e3)
        return values[-1]

    for start in (-3.0, 0.0, 1.0, 3.0):
        assert root(excess, start) == pytest.approx(math.log(5.0 / 1.21), abs=1e-13)


def test_a_root_that_rounding_hides_ends_soon() -> None:
    values: list[float] = []

    def excess(x: float) -> float:
        values.append(math.log(math.exp(-0.5 * x) / 7.0) + 3e-15 * math.sin(1e9 * x))
        return values[-1]

    root(excess, 0.0)
    assert abs(values[-1]) <= 1e-14
    assert len(values) <= 20


def test_a_root_at_a_jump_is_found_to_a_millionth_by_halves() -> None:
    values: list[float] = []

    def excess(x: float) -> float:
        values.append(2e-4 - 1e-3 * x - (1e-2 if x > 0.1234 else 0.0))
        return values[-1]

    assert root(excess, 0.0) == pytest.approx(0.1234, abs=1.1e-6)
    assert len(values) <= 36


def test_a_crossing_may_end_where_demand_is_near_enough() -> None:
    prices: list[float] = []

    def demand(price: float) -> float:
        prices.append(price)
        return math.exp(-price)

    assert crossing(demand, 0.5, 0.3, 1e-3, 3.0, 1e-6) == pytest.approx(math.log(2.0), rel=2e-6)
    few = len(prices)
    prices.clear()
    assert crossing(demand, 0.5, 0.3, 1e-3, 3.0) == pytest.approx(math.log(2.0), rel=1e-15)
    assert few < len(prices)


@pytest.mark.parametrize("extra", [0.0, 1e-9, 1e-3, 1e-2])
def test_cheap_hosts_without_demand_where_the_others_are_at_their_limits(
    extra: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Costs with a cap: demand jumps from nothing, at the hosts' own prices.
    compile_all(monkeypatch)
    cheap, dear = 64, 200
    w = np.concatenate((np.linspace(1e-6, 2e-6, cheap), np.full(dear, 1e3)))
    limits = dict(enumerate([0.05] * cheap + [1.0] * dear))
    sources = fo.Sources(np.ones(len(w)), w, host=np.arange(len(w)))
    cost = SynchronizationCost(PowerCost(1.0, 0.5, 2.0))
    solution = fo.solve(fo.Problem(cost, sources, dear * (1.0 + extra), limits))
    assert present(solution.certificate).relative_gap < 1e-12
    assert np.sum(solution.rates[cheap:]) == pytest.approx(dear, rel=1e-12)


def test_a_host_that_no_sample_has_seen_may_ask_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all(monkeypatch)
    hosts, each = FEWEST * SPARSE + 400, 10
    host = np.repeat(np.arange(hosts), each)
    w = np.random.default_rng(0).lognormal(0.0, 1.0, len(host))
    w[host == 3] *= 1e70
    limits = dict.fromkeys(range(hosts), 1.0) | {3: 1e35}
    sources = fo.Sources(np.ones(len(host)), w, host=host)
    solution = fo.solve(fo.Problem(SynchronizationCost(PowerCost(1.0, 0.5)), sources, hosts - 1.0, limits))
    assert present(solution.certificate).relative_gap < 1e-12


def test_hosts_that_max_rate_keeps_below_their_limits_have_unimportant_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compile_all(monkeypatch)
    hosts, each, below = 4000, 5, 100
    host = np.repeat(np.arange(hosts), each)
    w = np.random.default_rng(0).lognormal(0.0, 1.0, len(host))
    bound = np.where(host < below, 0.1, np.inf)
    w[: below * each : 7] = 0.0
    sources = fo.Sources(np.ones(len(host)), w, host=host, max_rate=bound)
    asked = noted(monkeypatch, "demand", "fill")
    problem = fo.Problem(HarmonicStaleness(), sources, 0.97 * hosts, dict.fromkeys(range(hosts), 1.0))
    assert present(fo.solve(problem).certificate).relative_gap < 1e-12
    assert max(asked) <= len(host) / 2


@pytest.mark.parametrize("seed", [0, 5, 10, 41])
def test_small_steps_of_demand_are_no_slope(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Beside a source at max_rate that takes nearly all of the limit, the others' steps are 1e-7 of demand.
    compile_all(monkeypatch)
    rng, n = np.random.default_rng(seed), 40
    w, d = np.append(rng.lognormal(0.0, 2.0, n), 1e6), np.append(rng.lognormal(0.0, 1.0, n), 1.0)
    sources = fo.Sources(
        d,
        w,
        success=np.append(rng.uniform(0.5, 0.9, n), 0.9),
        refresh_cost=np.append(np.ones(n), 1e8),
        max_rate=np.append(np.full(n, np.inf), 0.4),
        host=np.zeros(n + 1, dtype=int),
    )
    cost = SynchronizationCost(PiecewiseLinearCost([0.0, 1.0, 3.0], [0.0, -1.0, -9.0]))
    solution = fo.solve(fo.Problem(cost, sources, 1e9, {0: 4e7 + rng.uniform(20.0, 150.0)}))
    assert present(solution.certificate).relative_gap < 1e-13
