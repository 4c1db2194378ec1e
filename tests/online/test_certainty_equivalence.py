"""Rates planned anew as data comes in: batch by batch, or in phases of which the first has equal rates."""

import math

import numpy as np
import pytest

import freshopt as fo
from freshopt import problems
from freshopt.estimators import LawOfLargeNumbers, MaximumLikelihood, Naive, StochasticApproximation
from freshopt.estimators.estimator import Estimator
from freshopt.online import AdaptiveRates, PhasedEpsilonGreedy
from freshopt.simulation import SimulatedCrawler
from tests.ground_truth.recorder import Recorder
from tests.ground_truth.tolerances import SCALAR

BINARY = problems.BinaryFreshness(fo.Refresh.POISSON)
FAST, SLOW = 4.5 / 7, 0.5 / 43
SOURCES = fo.Sources([FAST] * 7 + [SLOW] * 43, [2.0] * 7 + [1.0] * 43)
GUESS = fo.Problem(BINARY, fo.Sources(1.0, SOURCES.importance), bandwidth=5.0)
BEST = 41.18929  # Σw·freshness at .258915 and .0741302, by hand


@pytest.mark.parametrize(
    "estimator", [LawOfLargeNumbers(), StochasticApproximation(), MaximumLikelihood()], ids=repr
)
@pytest.mark.sampled(3)
def test_twenty_batches_of_the_published_instance(estimator: Estimator) -> None:
    learner = AdaptiveRates(batch=500.0, estimator=estimator)  # 50 crawls of each source at equal rates
    history = learner.run(fo.World.poisson(SOURCES, seed=7), GUESS, 1e4)
    assert history.best is not None
    assert history.best[0] == pytest.approx(BEST, abs=1e-5)
    assert history.rates[0] == pytest.approx(np.full(50, 0.1))
    assert history.value[-1] > BEST - 0.03  # prototypes, with 50 crawls of each source a batch, end so short
    assert history.value[-1] > history.value[1]
    assert history.rates.min() >= 1e-3


def test_what_the_naive_estimator_costs() -> None:
    """Naive rates of fast sources are too small, whatever the batches: the loss does not go away."""
    history = AdaptiveRates(batch=500.0, estimator=Naive()).run(fo.World.poisson(SOURCES, seed=7), GUESS, 1e4)
    assert history.value[-1] < BEST - 0.035


def test_batches_are_learnt_as_one_log() -> None:
    """The rates after batches fed one by one are those of the whole log of visits, refitted."""
    seen = Recorder(SimulatedCrawler(fo.World.poisson(SOURCES, seed=2)))
    history = AdaptiveRates(batch=100.0, estimator=Naive()).run(
        seen, GUESS, 301.0, truth=fo.Problem(BINARY, SOURCES, 5.0)
    )
    source, time, changed = (np.concatenate(parts) for parts in zip(*seen.visits[:3], strict=True))
    log = fo.CrawlLog(source, time, changed, start=0.0)
    estimate = np.ones(50)
    model = Naive().fit(log)
    estimate[model.sources_.astype(int)] = model.change_rate_
    lower = fo.Sources(estimate, SOURCES.importance, min_rate=1e-3)
    assert history.final == pytest.approx(
        fo.solve(fo.Problem(BINARY, lower, 5.0)).rates, rel=1e-6, abs=SCALAR
    )
    assert history.exact


def test_without_truth_values_are_what_estimates_promise() -> None:
    seen = Recorder(SimulatedCrawler(fo.World.poisson(SOURCES, seed=2)))
    history = AdaptiveRates(batch=100.0).run(seen, GUESS, 300.0)
    assert seen.visits
    assert not history.exact
    assert history.best is None
    assert history.value[0] == pytest.approx(50.0 * 0.1 / 1.1 * 57 / 50)  # equal rates, the guess of 1 a day


def test_the_floor_is_per_day() -> None:
    rare = fo.Sources([1e-3, 50.0], [1.0, 1e-9], time_unit="hour")
    guess = fo.Problem(BINARY, rare, bandwidth=1.0)
    history = AdaptiveRates(100.0, floor=2.4).run(fo.World.poisson(rare, seed=1), guess, 300.0)
    assert history.final[1] == pytest.approx(0.1)


def test_a_floor_beyond_the_bandwidth_is_refused() -> None:
    with pytest.raises(fo.InfeasibleProblemError):
        AdaptiveRates(100.0, floor=1.0).run(fo.World.poisson(SOURCES, seed=1), GUESS, 300.0)


FIVE = fo.Sources([0.1, 0.3, 0.9, 2.0, 30.0], [1.0, 2.0, 1.0, 3.0, 1.0])
GUESS_OF_FIVE = fo.Problem(BINARY, fo.Sources(1.0, FIVE.importance), bandwidth=4.0)


def test_mixture_of_best_and_equal_rates() -> None:
    learner = PhasedEpsilonGreedy(epsilon=0.25, phase=40.0)
    history = learner.run(fo.World.poisson(FIVE, seed=1), GUESS_OF_FIVE, 400.0)
    assert history.time.tolist() == [40.0 * (k + 1) for k in range(10)]
    assert history.rates[0] == pytest.approx(np.full(5, 0.8))
    assert history.rates.min() >= 0.25 * 0.8 * (1 - SCALAR)
    assert history.rates.sum(axis=1) == pytest.approx(np.full(10, 4.0), rel=SCALAR)
    best = fo.solve(fo.Problem(BINARY, FIVE, 4.0)).rates
    assert best[4] == 0.0  # what ε is for: the fastest source is left out by the best rates
    assert history.final == pytest.approx(0.75 * best + 0.25 * 0.8, abs=0.2)
    assert history.spent.tolist() == [160.0] * 10


def test_greedy_alone_never_looks_again() -> None:
    history = PhasedEpsilonGreedy(epsilon=0.0, phase=40.0, estimator=MaximumLikelihood()).run(
        fo.World.poisson(FIVE, seed=1), GUESS_OF_FIVE, 200.0
    )
    assert history.rates[1:, 4].tolist() == [0.0] * 4


def test_only_exploration() -> None:
    history = PhasedEpsilonGreedy(epsilon=1.0, phase=10.0).run(
        fo.World.poisson(FIVE, seed=1), GUESS_OF_FIVE, 25.0
    )
    assert history.time.tolist() == [10.0, 20.0, 25.0]
    assert history.rates == pytest.approx(np.full((3, 5), 0.8))


def test_default_phase_is_that_of_lemma_1() -> None:
    history = PhasedEpsilonGreedy().run(fo.World.poisson(FIVE, seed=1), GUESS_OF_FIVE, 6.0)
    assert history.time == pytest.approx([math.log(200.0), 6.0])
