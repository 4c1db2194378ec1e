"""Rates adapted batch by batch: the paper's instance, and an online estimator that loses nothing."""

import numpy as np
import pytest

import freshopt as fo
from freshopt import problems
from freshopt.estimators import LawOfLargeNumbers, MaximumLikelihood, Naive, StochasticApproximation
from freshopt.estimators.estimator import Estimator
from freshopt.online import AdaptiveRates
from freshopt.simulation import SimulatedCrawler
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
    world, seen = fo.World.poisson(SOURCES, seed=2), Recorder()
    seen.crawler = SimulatedCrawler(world)
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


class Recorder:
    """A crawler of one's own: it only has to answer."""

    crawler: SimulatedCrawler

    def __init__(self) -> None:
        self.visits: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def refresh(self, source: np.ndarray, time: np.ndarray) -> np.ndarray:
        answers: np.ndarray = self.crawler.refresh(source, time)
        self.visits.append((source, time, answers))
        return answers

    def probe(self, source: np.ndarray, time: np.ndarray) -> np.ndarray:
        raise NotImplementedError


def test_without_truth_values_are_what_estimates_promise() -> None:
    seen = Recorder()
    seen.crawler = SimulatedCrawler(fo.World.poisson(SOURCES, seed=2))
    history = AdaptiveRates(batch=100.0).run(seen, GUESS, 300.0)
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
