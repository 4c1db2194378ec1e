"""Prices of foreign rates, and the dual function that they maximise."""

import math

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates import price_search
from freshopt.certificates.duality_gap import Gap
from freshopt.certificates.price_search import LOOSE
from freshopt.certificates.row_repair import repair
from freshopt.noisy_signals import NoisySignalFreshness
from freshopt.numerics.arrays import Array
from freshopt.problems import PollingKnapsack
from tests.ground_truth.named import AGE_PERIODIC, BINARY, BINARY_PERIODIC, DELAY, HARMONIC, chosen
from tests.ground_truth.routes import compile_all
from tests.ground_truth.strata import exhaustive, matrix, stratified
from tests.ground_truth.tolerances import EXACT

N = 2000
OBJECTIVES = [HARMONIC, BINARY, BINARY_PERIODIC, DELAY, AGE_PERIODIC]
# A bound at a price from here may exceed that of NumPy's search, and the distance to the optimum, by so much.
MOST, HARDLY = 2.5, 30.0


@pytest.fixture(autouse=True)
def _compiled_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all(monkeypatch)
    monkeypatch.setattr(price_search, "SAMPLE", 300)


def solved(task: fo.Problem) -> fo.Solution:
    """Solve in NumPy: what certifies is under test, and the loops of a search take long to compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRESHOPT_COMPILED", "0")
        return fo.solve(task)


def require_near_the_smallest(
    monkeypatch: pytest.MonkeyPatch, optimum: fo.Solution, rates: Array, *, convex: bool = True
) -> None:
    """Certify at a price that is searched for: the bound is valid, and near NumPy's and the distance."""
    task = optimum.problem
    mine = fo.certify(task, rates)
    with monkeypatch.context() as patch:
        patch.setenv("FRESHOPT_COMPILED", "0")
        theirs = fo.certify(task, rates)
    assert mine.gap <= MOST * theirs.gap + 1e-13 * abs(theirs.value)
    apart = abs(mine.value - optimum.value)
    assert not convex or mine.gap <= HARDLY * apart + 1e-12 * abs(optimum.value)
    better = -1.0 if task.objective.sense == "minimise" else 1.0
    assert better * (mine.bound - optimum.value) >= -1e-12 * abs(optimum.value)


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
    optimum = solved(task)
    for off in (1e-8, 1e-3, 0.5, 3.0):
        rates = np.minimum(upper, optimum.rates * np.exp(off * rng.uniform(-1.0, 1.0, N)))
        rates *= min(1.0, bandwidth / float(rates.sum()) * (1.0 - 1e-14))
        # Tangents are far from convex costs where rates are wrong by e³; NumPy's are too.
        require_near_the_smallest(monkeypatch, optimum, rates, convex=off <= 1.0)


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
    optimum = solved(task)
    exact = fo.certify(task, optimum.rates)
    assert exact.relative_gap < 1e-12
    assert 0.0 < sum(price > 0.0 for price in exact.host_prices.values()) < len(limits)
    for off in (1e-8, 1e-3, 0.5):
        rates = repair(task, optimum.rates * np.exp(off * rng.uniform(-1.0, 1.0, N)))[0]
        require_near_the_smallest(monkeypatch, optimum, rates)


@exhaustive
def test_rates_of_no_use_under_host_limits() -> None:
    """All sources at their bounds, idle hosts, limits that are not used."""
    sources = fo.Sources(np.linspace(1.0, 2.0, N), max_rate=1.0, host=np.arange(N) % 7)
    task = fo.Problem(BINARY, sources, 2.0 * N, {0: 2.0 * N, 3: float(N)})
    found = fo.certify(task, np.ones(N))
    assert (found.price, found.gap, dict(found.host_prices)) == (0.0, 0.0, {0: 0.0, 3: 0.0})
    none = fo.certify(task, np.zeros(N))
    assert np.isfinite(none.gap)
    assert none.gap >= solved(task).value - none.value


@pytest.mark.exhaustive
def test_prices_of_hosts_have_the_same_bits_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    d, host = rng.lognormal(0.0, 1.0, N), rng.integers(0, 90, N)
    task = fo.Problem(HARMONIC, fo.Sources(d, host=host), 0.3 * N, dict.fromkeys(range(90), 5.0))
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
    task = fo.Problem(BINARY, sources, bandwidth=2.0 * N)
    found = fo.certify(task, np.ones(N))
    assert found.price == 0.0
    assert found.gap == 0.0


CELLS: dict[str, fo.Objective] = {
    **chosen("harmonic", "harmonic periodic", "binary", "binary periodic", "delay", "age"),
    "polls": PollingKnapsack("polls"),
}
# What is asked of a bound, as a multiple of the true gap.
DUAL_MOST = 30.0


class OwnCost(fo.Objective):
    """A cost of either sign, whose sum is small beside its terms."""

    def per_source(self, rate, sources):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        from freshopt.cvx import cp  # noqa: PLC0415 - loads on use

        return cp.multiply(sources.importance, cp.inv_pos(rate + 0.1)) - sources.change_rate * 1e3


def task_of(objective: fo.Objective, seed: int, *, bounded: bool = False) -> fo.Problem:
    rng, n = np.random.default_rng(seed), 400
    d, w = rng.lognormal(size=n), rng.lognormal(size=n)
    lower = np.where(rng.random(n) < 0.3, 0.05 * d, 0.0) * bounded
    upper = np.where(rng.random(n) < 0.3, 0.6 * d, math.inf) if bounded else np.full(n, math.inf)
    sources = fo.Sources(d, w, min_rate=lower, max_rate=upper)
    return fo.Problem(objective, sources, 0.4 * float(np.sum(d)))


def disturbed(task: fo.Problem, best: fo.Solution, noise: float, seed: int) -> np.ndarray:
    """Return rates off by factors of e^noise, within all limits."""
    rng = np.random.default_rng(seed)
    rates = np.clip(best.rates * np.exp(noise * rng.normal(size=len(best.rates))), task.lower, task.upper)
    free = rates - task.lower
    return task.lower + free * min(1.0, (task.bandwidth - float(np.sum(task.lower))) / float(np.sum(free)))


@matrix(noise=[0.5, 1.0, 3.0, 5.0], every=2)
def test_the_gap_of_delays_is_the_true_one(noise: float) -> None:
    """The least delay is (Σ√(wΔ))² / B, by Cauchy's inequality."""
    task = task_of(DELAY, 1)
    rates = disturbed(task, solved(task), noise, 2)
    products = zip(task.sources.importance, task.sources.change_rate, strict=True)
    least = mpmath.fsum(mpmath.sqrt(mpmath.mpf(w) * mpmath.mpf(d)) for w, d in products) ** 2 / task.bandwidth
    found = fo.certify(task, rates)
    true = mpmath.mpf(found.value) - least
    assert true > LOOSE * least
    assert 1.0 - EXACT <= float(found.gap / true) <= 1.01
    assert found.bound <= float(least) * (1.0 + EXACT)


@pytest.mark.exhaustive
@matrix(bounded=[False, True], name=CELLS)
def test_the_gap_of_poor_rates_is_near_the_true_one(name: str, bounded: bool) -> None:
    task = task_of(CELLS[name], 3, bounded=bounded)
    best = solved(task)
    for seed, noise in enumerate((0.05, 0.3, 1.0, 3.0)):
        rates = disturbed(task, best, noise, seed)
        found = fo.certify(task, rates)
        true = abs(found.value - best.value)
        assert true * (1.0 - 1e-9) <= found.gap <= DUAL_MOST * true
        # Tangents at that price prove no more.
        assert fo.certify(task, rates, found.price).gap >= found.gap * (1.0 - 1e-9)


def test_rates_that_refresh_nothing_of_what_is_worth_most() -> None:
    """All bandwidth for the other half: the tangents at 0 are finite, and far above what is gained."""
    task = task_of(HARMONIC, 5)
    rates = np.where(np.arange(400) % 2 == 0, 2.0 * task.bandwidth / 400, 1e-9)
    rates *= task.bandwidth / float(np.sum(rates))
    found, best = fo.certify(task, rates), solved(task)
    assert found.value - best.value <= found.gap * (1.0 + EXACT)
    assert found.gap <= DUAL_MOST * (found.value - best.value)


def test_costs_of_either_sign_leave_room_for_their_rounding() -> None:
    task = task_of(OwnCost(), 7)
    best = solved(task)
    rates = disturbed(task, best, 2.0, 8)
    found = fo.certify(task, rates)
    assert found.value - best.value <= found.gap * (1.0 + EXACT)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the prices at which NumPy computes bounds from now on."""
    prices: list[float] = []
    bound = Gap.at

    def at(gap: Gap, price: float, host_prices: Array) -> float:
        prices.append(price)
        return bound(gap, price, host_prices)

    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    monkeypatch.setattr(Gap, "at", at)
    return prices


@pytest.mark.parametrize("objective", [BINARY, BINARY_PERIODIC, DELAY], ids=repr)
def test_prices_of_nearly_optimal_rates_take_few_bounds(asked: list[float], objective: fo.Objective) -> None:
    rng = np.random.default_rng(8)
    d, w = rng.lognormal(0.0, 2.0, 300), rng.lognormal(0.0, 2.0, 300)
    task = fo.Problem(objective, fo.Sources(d, w), 0.4 * float(d.sum()))
    optimum = fo.solve(task)
    rates = optimum.rates * np.exp(1e-5 * rng.uniform(-1.0, 1.0, 300))
    rates *= min(1.0, task.bandwidth / float(rates.sum()) * (1.0 - 1e-14))
    asked.clear()
    gap = fo.certify(task, rates).gap
    assert len(asked) <= 40
    around = optimum.price * np.exp(np.linspace(-1e-4, 1e-4, 401))
    assert gap <= 1.5 * min(fo.certify(task, rates, float(price)).gap for price in around)


def test_prices_of_rates_from_tables_take_one_bound_or_two(
    monkeypatch: pytest.MonkeyPatch, asked: list[float]
) -> None:
    """Each quality is another: no table is shared, and a bound takes a second at 10⁴ sources."""
    monkeypatch.delenv("FRESHOPT_COMPILED")
    monkeypatch.setattr(price_search, "SAMPLE", 30)
    rng, n = np.random.default_rng(2), 100
    d, w, recall = (rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n), rng.uniform(0.0, 1.0, n))
    recall = np.where(rng.random(n) < 0.5, 1.0 - 1e-3 * recall, recall)
    objective = NoisySignalFreshness(recall, 10.0 ** rng.uniform(-6.0, 0.0, n))
    task = fo.Problem(objective, fo.Sources(d, w), 0.3 * float(d.sum()))
    rates = fo.solve(task).rates
    asked.clear()
    assert fo.certify(task, rates).relative_gap <= 1e-9
    assert len(asked) <= 3
