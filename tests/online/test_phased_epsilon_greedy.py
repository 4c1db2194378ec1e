"""Phases: the first has equal rates, later ones mix them with the best rates known."""

import math

import numpy as np
import pytest

import freshopt as fo
from freshopt import problems
from freshopt.estimators import MaximumLikelihood
from freshopt.online import PhasedEpsilonGreedy
from tests.ground_truth.tolerances import SCALAR

BINARY = problems.BinaryFreshness(fo.Refresh.POISSON)
SOURCES = fo.Sources([0.1, 0.3, 0.9, 2.0, 30.0], [1.0, 2.0, 1.0, 3.0, 1.0])
GUESS = fo.Problem(BINARY, fo.Sources(1.0, SOURCES.importance), bandwidth=4.0)


def test_mixture_of_best_and_equal_rates() -> None:
    learner = PhasedEpsilonGreedy(epsilon=0.25, phase=40.0)
    history = learner.run(fo.World.poisson(SOURCES, seed=1), GUESS, 400.0)
    assert history.time.tolist() == [40.0 * (k + 1) for k in range(10)]
    assert history.rates[0] == pytest.approx(np.full(5, 0.8))
    assert history.rates.min() >= 0.25 * 0.8 * (1 - SCALAR)
    assert history.rates.sum(axis=1) == pytest.approx(np.full(10, 4.0), rel=SCALAR)
    best = fo.solve(fo.Problem(BINARY, SOURCES, 4.0)).rates
    assert best[4] == 0.0  # what ε is for: the fastest source is left out by the best rates
    assert history.final == pytest.approx(0.75 * best + 0.25 * 0.8, abs=0.2)
    assert history.spent.tolist() == [160.0] * 10


def test_greedy_alone_never_looks_again() -> None:
    history = PhasedEpsilonGreedy(epsilon=0.0, phase=40.0, estimator=MaximumLikelihood()).run(
        fo.World.poisson(SOURCES, seed=1), GUESS, 200.0
    )
    assert history.rates[1:, 4].tolist() == [0.0] * 4


def test_only_exploration() -> None:
    history = PhasedEpsilonGreedy(epsilon=1.0, phase=10.0).run(fo.World.poisson(SOURCES, seed=1), GUESS, 25.0)
    assert history.time.tolist() == [10.0, 20.0, 25.0]
    assert history.rates == pytest.approx(np.full((3, 5), 0.8))


def test_default_phase_is_that_of_lemma_1() -> None:
    history = PhasedEpsilonGreedy().run(fo.World.poisson(SOURCES, seed=1), GUESS, 6.0)
    assert history.time == pytest.approx([math.log(200.0), 6.0])
