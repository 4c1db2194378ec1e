"""Explore, then commit: repeated with independent code, bit by bit; how long to explore."""

import numpy as np
import pytest
from scipy.optimize import brentq

import freshopt as fo
from freshopt import problems
from freshopt.estimators import FullObservation, MaximumLikelihood, MomentMatching
from freshopt.online import ExploreThenCommit, best_exploration
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR

BINARY = problems.BinaryFreshness(fo.Refresh.POISSON)
N, BANDWIDTH = 12, 6.0


def instance(seed: int = 0) -> fo.Sources:
    rng = np.random.default_rng(seed)
    return fo.Sources(rng.uniform(0.1, 1.0, N), np.exp(rng.normal(0, 1, N)))


def guess(sources: fo.Sources) -> fo.Problem:
    return fo.Problem(BINARY, fo.Sources(1.0, sources.importance), BANDWIDTH)


def best_rates(w: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Return the optimum of binary freshness under Poisson refreshes."""

    def rates(log_price: float) -> np.ndarray:
        found: np.ndarray = np.maximum(np.sqrt(w * d / np.exp(log_price)) - d, 0.0)
        return found

    return rates(brentq(lambda x: rates(x).sum() - BANDWIDTH, -30, 30, xtol=1e-14))


def matched(gaps: np.ndarray, changed: np.ndarray, low: float, high: float) -> float:
    """Return the moment-matching estimate of one source."""
    missing = len(gaps) - changed.sum()
    if missing == len(gaps):
        return low
    if missing == 0:
        return high
    rate: float = brentq(lambda x: np.exp(-x * gaps).sum() - missing, 1e-9, 1e6, xtol=1e-14, rtol=1e-14)
    return min(max(rate, low), high)


def test_the_whole_run_by_hand() -> None:
    sources = instance()
    world = fo.World.poisson(sources, seed=5)
    learner = ExploreThenCommit(exploration=39.0, estimator=MomentMatching((0.05, 2.0)))
    history = learner.run(world, guess(sources), 200.0)
    gap = N / BANDWIDTH
    assert history.time.tolist() == [40.0, 200.0]  # 39 rounded up to sweeps of 2
    estimates = []
    offsets, events = world.events(0.0, 40.0)
    for k in range(N):
        visits = np.arange(20) * gap + (k + 0.5) / N * gap
        edges = np.concatenate([[0.0], visits])
        mine = events[offsets[k] : offsets[k + 1]]
        changed = np.histogram(mine, edges)[0] > 0
        estimates.append(matched(np.diff(edges), changed, 0.05, 2.0))
    planned = best_rates(sources.importance, np.array(estimates))
    assert history.rates[0] == pytest.approx(np.full(N, 0.5), rel=EXACT)
    assert history.rates[1] == pytest.approx(planned, rel=SCALAR, abs=SCALAR)
    d, w = sources.change_rate, sources.importance
    even = (w * -np.expm1(-d * gap) / (d * gap)).sum()
    later = (w * planned / (planned + d)).sum()
    best = best_rates(w, d)
    at_best = (w * best / (best + d)).sum()
    assert history.value == pytest.approx([even, later], rel=SCALAR)
    assert history.best == pytest.approx([at_best, at_best], rel=SCALAR)
    assert history.regret[-1] == pytest.approx((at_best - even) * 40 + (at_best - later) * 160, rel=1e-6)
    assert history.spent.tolist() == [240.0, 960.0] == history.allowed.tolist()


def test_counts_reach_an_estimator_that_needs_them() -> None:
    """After 20 sweeps a rate is the number of changes until the last visit over the time of that visit."""
    sources = instance(6)
    world = fo.World.poisson(sources, seed=6)
    learner = ExploreThenCommit(exploration=40.0, estimator=FullObservation(smoothing=0.0))
    history = learner.run(world, guess(sources), 200.0)
    offsets, events = world.events(0.0, 40.0)
    last = 38.0 + (np.arange(N) + 0.5) / N * (N / BANDWIDTH)
    counts = [np.count_nonzero(events[offsets[k] : offsets[k + 1]] <= last[k]) for k in range(N)]
    assert max(counts) > 20  # more than crawls
    planned = best_rates(sources.importance, np.array(counts) / last)
    assert history.rates[1] == pytest.approx(planned, rel=SCALAR, abs=SCALAR)


def test_a_crawler_without_counts_is_named() -> None:
    class Plain:
        def refresh(self, source: np.ndarray, time: np.ndarray) -> np.ndarray:  # noqa: ARG002
            return np.zeros(len(source), dtype=bool)

        probe = refresh

    learner = ExploreThenCommit(exploration=10.0, estimator=FullObservation())
    refused(r"Plain has no count\(source, time\)", learner.run, Plain(), guess(instance()), 100.0)


def test_doubling_explores_at_each_stretch() -> None:
    sources = instance(1)
    history = ExploreThenCommit(exploration=10.0, doubling=50.0).run(
        fo.World.poisson(sources, seed=1), guess(sources), 400.0
    )
    # τ·2^{j/2} at 0, 50, 100, 200, rounded up to sweeps of 2
    assert history.time.tolist() == [10.0, 50.0, 66.0, 100.0, 120.0, 200.0, 230.0, 400.0]
    assert history.rates[2] == pytest.approx(np.full(N, 0.5))
    short = history.shortfall[1::2]
    assert short[-1] < 0.5 * short[0]
    assert history.spent.sum() == history.allowed.sum()


@pytest.mark.exhaustive
def test_exploration_is_searched_on_the_guess() -> None:
    sources = instance(3)
    problem = fo.Problem(BINARY, sources, BANDWIDTH)
    wanted = best_exploration(problem, 500.0, seed=0).length
    history = ExploreThenCommit().run(fo.World.poisson(sources, seed=1), problem, 500.0)
    assert history.time[0] == pytest.approx(wanted)


@pytest.mark.exhaustive
def test_regret_of_exploration_is_what_simulation_gives() -> None:
    """Draws of what exploration finds, committed to with an own optimum: the mean regret agrees."""
    sources = instance(4)
    problem = fo.Problem(BINARY, sources, BANDWIDTH)
    found = best_exploration(problem, 1e3, sweeps=[5, 50], draws=200, bounds=(0.05, 2.0))
    rng, gap, d, w = np.random.default_rng(9), N / BANDWIDTH, sources.change_rate, sources.importance
    best = best_rates(w, d)
    at_best = (w * best / (best + d)).sum()
    even = (w * -np.expm1(-d * gap) / (d * gap)).sum()
    for k, sweeps in enumerate((5, 50)):
        regrets = []
        for _ in range(200):
            share = (rng.random((sweeps, N)) < -np.expm1(-d * gap)).mean(axis=0)
            with np.errstate(divide="ignore"):
                planned = best_rates(w, np.clip(-np.log1p(-share) / gap, 0.05, 2.0))
            later = (w * planned / (planned + d)).sum()
            length = sweeps * gap
            regrets.append((at_best - even) * length + (at_best - later) * (1e3 - length))
        error = np.hypot(np.std(regrets), np.std(found.regrets[:, k])) / np.sqrt(200)
        assert abs(np.mean(regrets) - found.regrets[:, k].mean()) < 4 * error
    assert found.length == found.lengths[np.argmin(found.regrets.mean(axis=0))]
    assert found.lengths.tolist() == [10.0, 100.0]


def test_longer_horizons_explore_longer() -> None:
    rng = np.random.default_rng(0)
    sources = fo.Sources(rng.uniform(0.1, 1.0, 100), np.exp(rng.normal(0, 1.5, 100)))
    problem = fo.Problem(BINARY, sources, 50.0)
    lengths = [best_exploration(problem, horizon, draws=4).length for horizon in (1e3, 1e6)]
    assert 3.0 < lengths[1] / lengths[0] < 200.0  # √1000 is 32; τ lies on a grid


def test_the_clock_changes_nothing() -> None:
    """Changes per second are far below those per day, and how long to explore is the same time."""
    d, w = instance(3).change_rate, instance(3).importance
    days = best_exploration(fo.Problem(BINARY, fo.Sources(d, w), BANDWIDTH), 500.0)
    slow = fo.Sources(d / 86400.0, w, time_unit="second")
    seconds = best_exploration(fo.Problem(BINARY, slow, BANDWIDTH / 86400.0), 500.0 * 86400.0)
    assert seconds.length == pytest.approx(86400.0 * days.length)
    assert seconds.regrets == pytest.approx(86400.0 * days.regrets)


def test_what_cannot_be_run_is_refused() -> None:
    sources = instance()
    world, problem = fo.World.poisson(sources, seed=0), guess(sources)
    refused(r"horizon is 1\.0", ExploreThenCommit().run, world, problem, 1.0)
    hourly = fo.Problem(BINARY, fo.Sources(1.0, sources.importance, time_unit="hour"), BANDWIDTH)
    refused("Give both one time_unit", ExploreThenCommit(4.0).run, world, hourly, 50.0)
    unbounded = ExploreThenCommit(4.0, estimator=MaximumLikelihood(smoothing=0))
    refused("Leave its smoothing", unbounded.run, world, problem, 50.0)
    with pytest.raises(fo.ObjectiveError, match="silent sources"):
        best_exploration(fo.Problem(BINARY, fo.Sources([1.0], signalled=True), 1.0), 10.0)
