"""Learning from observed costs: unbiased slopes, exact steps, intervals as promised, cost that falls."""

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.online import AsyncMirrorSync, AsyncProjectedGradientSync, MirrorSync, RunHistory
from freshopt.online.gradient_probes import Synchronization, with_exploration
from freshopt.problems import BinaryCost, BinaryFreshness, PowerCost, SynchronizationCost
from freshopt.simulation import AgeCosts, Crawler, SimulatedCrawler
from freshopt.solvers.mirror_descent import MirrorDescent
from freshopt.solvers.projected_gradient import ProjectedGradient
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.online.sync_truth import cycles_by_hand, rounds_by_hand

Floats: TypeAlias = npt.NDArray[np.float64]
Learner: TypeAlias = MirrorSync | AsyncMirrorSync | AsyncProjectedGradientSync

K, BANDWIDTH = 100, 40.0  # of the published experiments, here with fewer rounds
LEARNERS: dict[str, tuple[Learner, Learner]] = {  # for power and for binary costs
    "mirror": (MirrorSync(2.7, seed=1), MirrorSync(5.0, seed=1)),
    "async": (AsyncMirrorSync(1.6, 20.0, seed=1), AsyncMirrorSync(1.3, 8.0, seed=1)),
    "gradient": (
        AsyncProjectedGradientSync(0.08, 20.0, seed=1),
        AsyncProjectedGradientSync(0.5, 40.0, seed=1),
    ),
}


def power_problem(seed: int = 0) -> tuple[fo.Problem, PowerCost]:
    rng = np.random.default_rng(seed)
    cost = PowerCost(rng.random(K), 1.0 / (1.0 + np.exp(-5.0 * rng.random(K))))
    sources = fo.Sources(np.ones(K), importance=1.0 / K, min_rate=0.025, max_rate=3.0)
    return fo.Problem(SynchronizationCost(cost), sources, BANDWIDTH), cost


def binary_problem(seed: int = 0, **columns: Any) -> fo.Problem:  # noqa: ANN401
    rates = np.random.default_rng(seed).uniform(0.005, 5.0, K)
    settings: dict[str, Any] = {"importance": 1.0 / K, "min_rate": 0.025, "max_rate": 6.0, **columns}
    return fo.Problem(SynchronizationCost(BinaryCost()), fo.Sources(rates, **settings), BANDWIDTH)


def power_run(name: str, horizon: float) -> RunHistory:
    problem, cost = power_problem()
    world = AgeCosts(cost.curve(problem.sources), K, noise=0.1, seed=7)
    return LEARNERS[name][0].run(world, problem, horizon, truth=problem)


def binary_run(name: str, horizon: float) -> RunHistory:
    problem = binary_problem()
    return LEARNERS[name][1].run(fo.World.poisson(problem.sources, seed=7), problem, horizon)


def slope(curve: str, change_rate: Floats, rate: Floats) -> Floats:
    """J'(r) of one source: power costs 2·√s (J = 4/3·r^{−1/2}) or the stale share 1 − (1−e^{−u})/u."""
    if curve == "power":
        return -2.0 / 3.0 * rate**-1.5
    u = change_rate / rate
    share_slope: Floats = (-np.expm1(-u) / u - np.exp(-u)) / u
    return -share_slope * u / rate


@pytest.mark.parametrize("curve", ["power", "binary"])
def test_slopes_are_unbiased(curve: str) -> None:
    """[MS] Lemma 2, by many intervals of sources at four rates."""
    n, intervals, exploration = 2000, 100, 0.2
    rate, change_rate = np.tile([0.2, 0.7, 1.5, 4.0], n // 4), np.full(n, 1.3)
    sources = fo.Sources(change_rate, min_rate=0.01)
    crawler: Crawler = SimulatedCrawler(fo.World.poisson(sources, seed=5))
    if curve == "power":
        crawler = AgeCosts(PowerCost(2.0, 0.5).curve(sources), n, noise=0.3, seed=5)
    problem = fo.Problem(SynchronizationCost(BinaryCost()), sources, bandwidth=n)
    terms = Synchronization.of(problem, "Test", exploration, seed=3)
    source = np.repeat(np.arange(n), intervals)
    number = np.tile(np.arange(intervals), n)
    gap = 1.0 / rate[source]
    probe = np.where(
        terms.is_probed(source, number), (number + terms.probe_point(source, number)) * gap, np.nan
    )
    polled = terms.play(crawler, source, probe, (number + 1) * gap)
    samples = terms.samples(polled, gap).reshape(n, intervals)
    assert abs(np.mean(~np.isnan(probe)) - exploration) < 4.0 * math.sqrt(0.16 / probe.size)
    for k in range(4):
        mean, error = samples[k::4].mean(), samples[k::4].std() / math.sqrt(samples[k::4].size)
        assert abs(mean - slope(curve, change_rate[k], rate[k])) < 4.0 * error
        assert error < 0.03 * abs(mean)


@matrix(euclid=[False, True], every=2)
def test_a_step_solves_its_own_problem(euclid: bool) -> None:
    """Of some sources, which keep the sum of their rates, whatever the signs: by bisection."""
    rng = np.random.default_rng(4)
    terms = Synchronization.of(power_problem()[0], "Test", 0.05, seed=0)
    for _ in range(50):
        rates = terms.first_rates() * rng.uniform(0.2, 2.0, K)
        rates *= BANDWIDTH / 1.05 / rates.sum()
        gradient = rng.normal(size=K) * rng.choice([0.01, 0.5])
        chosen = rng.random(K) < rng.choice([0.1, 0.6, 1.1])
        chosen[0] = True
        step = terms.step(ProjectedGradient() if euclid else MirrorDescent(), rates, gradient, 0.7, chosen)
        q, g = rates[chosen].astype(np.longdouble), gradient[chosen].astype(np.longdouble)

        def at(multiplier: np.longdouble, q: Any = q, g: Any = g) -> Any:  # noqa: ANN401
            if euclid:
                return np.clip(q - 0.7 * g - multiplier, 0.025, 3.0 / 1.05)
            inverse = 1.0 / q + 0.7 * g + multiplier
            return np.clip(1.0 / np.where(inverse > 0, inverse, np.nan_to_num(np.inf)), 0.025, 3.0 / 1.05) * (
                inverse > 0
            ) + (3.0 / 1.05) * (inverse <= 0)

        low, high = np.longdouble(-1e3), np.longdouble(1e3)
        for _ in range(120):
            middle = (low + high) / 2
            low, high = (middle, high) if at(middle).sum() > q.sum() else (low, middle)
        assert step[chosen] == pytest.approx(at(high).astype(np.float64), abs=SCALAR)
        assert step[chosen].sum() == pytest.approx(float(q.sum()), rel=EXACT)
        assert np.array_equal(step[~chosen], rates[~chosen])


def test_the_exploration_gap_is_small_and_exact() -> None:
    """[MS] Lemma 3; the power optimum by bisection on λ: r = (w a e/((e+1)λ))^{1/(e+1)}."""
    problem, cost = power_problem()
    a, e = np.asarray(cost.scale), np.asarray(cost.exponent)

    def best(bandwidth: float, largest: float) -> float:
        low, high = -30.0, 30.0
        for _ in range(200):
            price = math.exp((low + high) / 2)
            rates = np.clip((a * e / (K * (e + 1) * price)) ** (1 / (e + 1)), 0.025, largest)
            low, high = ((low + high) / 2, high) if rates.sum() > bandwidth else (low, (low + high) / 2)
        return float(np.mean(a * rates**-e / (e + 1)))

    explored, plain = fo.solve(with_exploration(problem, 0.05)).value, fo.solve(problem).value
    assert explored == pytest.approx(best(BANDWIDTH / 1.05, 3.0 / 1.05), rel=SCALAR)
    assert plain == pytest.approx(best(BANDWIDTH, 3.0), rel=SCALAR)
    assert 0.0 < explored - plain < 0.1 * (2 * 0.05 * 40.0**0.99)


@matrix(name=list(LEARNERS), every=4)
@pytest.mark.parametrize(("run", "share"), [(power_run, 0.45), (binary_run, 0.15)])
def test_cost_falls_towards_the_optimum(name: str, run: Any, share: float) -> None:  # noqa: ANN401
    history: RunHistory = run(name, 60 * 40.0)
    problem = power_problem()[0] if run is power_run else binary_problem()
    assert history.exact
    floor = fo.solve(with_exploration(problem, 0.05)).value
    assert present(history.best) == pytest.approx(np.full(len(history), fo.solve(problem).value), rel=EXACT)
    closed = (history.value[0] - history.value[-1]) / (history.value[0] - floor)
    assert share < closed < 1.0
    assert (history.value > floor).all()
    sums = history.rates.sum(axis=1)
    assert sums == pytest.approx(np.full(len(history), BANDWIDTH / 1.05), rel=EXACT)
    assert history.rates.min() >= 0.025
    assert history.rates.max() <= problem.upper[0] / 1.05
    assert history.rates[0] == pytest.approx(np.full(K, 40.0 / 105.0), rel=EXACT)
    spent = history.spent.sum() / history.allowed.sum()
    # Probes are random: BT/1.05 of 5 % each. Whole intervals only leave some of a round unused.
    assert (0.94 if name == "mirror" else 0.99) < spent < 1.005


class Diary:
    """A crawler of the user's own that writes down what it is asked; a probe costs 3, a refresh 5."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, int, bool]] = []

    def refresh(self, source: npt.NDArray[np.int64], time: Floats) -> Floats:
        self.rows += [(t, k, False) for t, k in zip(time.tolist(), source.tolist(), strict=True)]
        return np.full(len(source), 5.0)

    def probe(self, source: npt.NDArray[np.int64], time: Floats) -> Floats:
        self.rows += [(t, k, True) for t, k in zip(time.tolist(), source.tolist(), strict=True)]
        return np.full(len(source), 3.0)


@matrix(name=["mirror", "async"], every=2)
def test_polls_and_rates_are_those_of_the_algorithm(name: str) -> None:
    diary, learner, problem = Diary(), LEARNERS[name][1], binary_problem()
    history = learner.run(diary, problem, 400.0)
    if isinstance(learner, MirrorSync):
        polls, rates = rounds_by_hand(learner.seed, learner.learning_rate, 10)
    else:
        assert isinstance(learner, AsyncMirrorSync)
        polls, rates = cycles_by_hand(learner.seed, learner.learning_rate, learner.cycle, 50)
    times = [row[0] for row in diary.rows]
    assert times == sorted(times)
    asked = sorted(diary.rows)
    assert [row[0] for row in asked] == pytest.approx([row[0] for row in polls], abs=SCALAR)
    assert [row[1:] for row in sorted(asked, key=lambda row: (row[1], round(row[0], 6), not row[2]))] == [
        row[1:] for row in sorted(polls, key=lambda row: (row[1], round(row[0], 6), not row[2]))
    ]
    assert history.final == pytest.approx(rates, rel=SCALAR)
    probes = sum(row[2] for row in diary.rows)
    assert history.extra["probes"].sum() == probes
    free = K * len(history) if name == "mirror" else 0
    assert history.spent.sum() == len(diary.rows) - free
    # Values are estimated from the probes, which all cost 3, and there is no regret.
    assert not history.exact
    assert history.best is None
    assert history.value[-1] == pytest.approx(3.0, rel=EXACT)


def test_more_important_sources_are_refreshed_more() -> None:
    weight = np.where(np.arange(K) % 2, 1.0, 4.0)
    histories = []
    for factor in (1.0, 8.0):
        problem = binary_problem(importance=weight * factor, max_rate=6.0)
        world = fo.World.poisson(fo.Sources(np.full(K, 1.0)), seed=2)
        histories.append(MirrorSync(5.0, seed=1).run(world, problem, 60 * 40.0))
    one, other = histories
    assert one.final == pytest.approx(other.final, rel=SCALAR)  # only the shares of importance count
    assert one.final[::2].mean() > 1.15 * one.final[1::2].mean()
    assert other.value[-1] == pytest.approx(8.0 * one.value[-1], rel=SCALAR)


def test_freshness_is_maximised_as_staleness_is_minimised() -> None:
    problem = binary_problem()
    fresh = fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), problem.sources, BANDWIDTH)
    world = fo.World.poisson(problem.sources, seed=7)
    one, other = (MirrorSync(5.0, seed=1).run(world, given, 800.0) for given in (problem, fresh))
    assert np.array_equal(one.final, other.final)
    assert other.value == pytest.approx(1.0 - one.value, rel=EXACT)
    assert other.regret == pytest.approx(one.regret, rel=SCALAR)
    estimated = MirrorSync(5.0, seed=1).run(Diary(), fresh, 400.0)
    assert estimated.value[-1] == pytest.approx(1.0 - 3.0, rel=EXACT)


@pytest.mark.parametrize("name", list(LEARNERS))
def test_a_run_begins_where_its_world_does(name: str) -> None:
    problem = binary_problem()
    offsets, time = fo.World.poisson(problem.sources, 3).events(0.0, 400.0)
    source = np.repeat(np.arange(K), np.diff(offsets))
    # A power of two: times are moved without rounding, or hardly.
    early, late = (
        fo.World.from_events(
            {"source": source, "time": time + moved}, names=np.arange(K), start=moved, horizon=400.0 + moved
        )
        for moved in (0.0, 512.0)
    )
    one, other = (LEARNERS[name][1].run(of, problem, 400.0) for of in (early, late))
    assert other.final == pytest.approx(one.final, rel=SCALAR)
    assert other.time == pytest.approx(one.time, rel=EXACT)
    assert other.spent.tolist() == one.spent.tolist()
    assert not one.exact


def test_the_truth_moves_with_the_world() -> None:
    problem = binary_problem()
    rates = np.asarray(problem.sources.change_rate)
    world = fo.World.poisson(problem.sources, 3, times=[200.0], change_rate=[rates[::-1] / 2])
    history = AsyncMirrorSync(1.3, 40.0).run(world, problem, 400.0)
    assert history.best is not None
    early, late = (
        fo.solve(
            fo.Problem(problem.objective, fo.Sources(r, importance=1 / K, min_rate=0.025, max_rate=6.0), 40.0)
        )
        for r in (rates, rates[::-1] / 2)
    )
    assert history.best[:5] == pytest.approx(np.full(5, early.value), rel=SCALAR)
    assert history.best[5:] == pytest.approx(np.full(5, late.value), rel=SCALAR)
    stopping = fo.World.poisson(
        problem.sources, 3, times=[40.0], change_rate=[np.where(rates > 1.0, 0.0, rates)]
    )
    stopped = AsyncMirrorSync(1.3, 40.0).run(stopping, problem, 80.0)
    # Those that have stopped cost nothing at min_rate, and the others share the rest.
    moving = rates <= 1.0
    left = fo.Sources(rates[moving], importance=1 / K, min_rate=0.025, max_rate=6.0)
    rest = fo.solve(fo.Problem(problem.objective, left, BANDWIDTH - 0.025 * np.sum(~moving)))
    assert present(stopped.best)[1] == pytest.approx(rest.value, rel=SCALAR)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"min_rate": 0.0}, "has sources without a min_rate"),
        ({"refresh_cost": 2.0}, "has refresh costs other than 1"),
        ({"min_rate": 0.39}, "min_rate leaves no room for a share of 0.05 of probes"),
    ],
)
def test_problems_that_are_not_of_this_kind(columns: dict[str, Any], message: str) -> None:
    problem = binary_problem(**columns)
    refused(message, MirrorSync(1.0).run, Diary(), problem, 400.0)


def test_problems_and_horizons_out_of_range() -> None:
    problem = binary_problem()
    random = fo.Problem(BinaryFreshness(fo.Refresh.POISSON), problem.sources, 40.0)
    announcing = fo.Sources(np.full(K, 3.0), min_rate=0.025, signalled=True)
    signalled = fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), announcing, 40.0)
    for learner, given, horizon, message in (
        (MirrorSync(1.0), random, 400.0, "predicts the cost of poisson refreshes"),
        (MirrorSync(1.0), signalled, 400.0, "has signalled sources"),
        (MirrorSync(1.0), problem, 39.0, "horizon is 39, shorter than a round. Pass at least 40"),
        (AsyncMirrorSync(1.0, cycle=9.0), problem, 5.0, "horizon is 5, shorter than a cycle"),
    ):
        refused(message, learner.run, Diary(), given, horizon)
