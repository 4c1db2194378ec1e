"""Noisy change signals: cycles against simulation, the cells at both ends, and what thresholds bring."""

from __future__ import annotations

import math

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import BinaryFreshness
from freshopt.scheduling import NoisySignalFreshness
from freshopt.signal_cycle import cycle, threshold_of_index, threshold_of_length
from freshopt.solvers import Conic
from tests.tolerances import EXACT, SCALAR

QUALITIES = [(0.5, 0.5), (0.8, 0.3), (0.3, 0.95), (0.6, 1.0), (0.9, 0.2), (0.0, 1.0), (0.2, 0.02)]


def crawl(
    threshold: float, bonus: float, d: float, recall: float, precision: float, cycles: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Simulate cycles of one source, change by change; return their lengths and fresh times."""
    rng = np.random.default_rng(seed)
    length, fresh = np.empty(cycles), np.empty(cycles)
    signals = recall * d / precision
    for k in range(cycles):
        time, effective, stale = 0.0, 0.0, rng.exponential(1 / ((1 - recall) * d))  # the first silent change
        while True:
            gap = rng.exponential(1 / signals) if signals else math.inf
            if effective + gap >= threshold:
                time += threshold - effective
                break
            time, effective = time + gap, effective + gap + bonus
            if rng.random() < precision:
                stale = min(stale, time)
            if effective >= threshold:
                break
        length[k], fresh[k] = time, min(time, stale)
    return length, fresh


def within(sample: np.ndarray, expected: float) -> bool:
    """Four standard errors."""
    return bool(abs(np.mean(sample) - expected) <= 4.0 * np.std(sample) / math.sqrt(len(sample)) + EXACT)


@pytest.mark.parametrize(("recall", "precision"), QUALITIES)
@pytest.mark.parametrize("threshold", [0.4, 2.5])
def test_cycles_are_as_simulated(threshold: float, recall: float, precision: float) -> None:
    bonus = -math.log1p(-precision) / (1 - recall) if precision < 1 and recall else math.inf
    length, fresh = crawl(threshold, bonus, 1.0, recall, precision, 4000, seed=7)
    one = cycle(*(np.array([value]) for value in (threshold, recall, precision)))
    assert within(length, one.length[0])
    assert within(fresh, one.length[0] - one.stale[0])
    at_end = math.exp(-(1 - recall) * threshold)
    assert one.worth[0] == pytest.approx(one.length[0] - one.stale[0] - at_end * one.length[0], abs=SCALAR)


@pytest.mark.parametrize(("recall", "precision"), QUALITIES)
def test_thresholds_are_inverted(recall: float, precision: float) -> None:
    i = np.geomspace(1e-6, 20.0, 60) / (1 - recall)
    share = np.full(60, recall), np.full(60, precision)
    there = cycle(i, *share)
    usable = there.worth < 1 - 1e-6
    own = share[0][usable], share[1][usable]
    back = threshold_of_index(there.worth[usable], *own)
    assert np.allclose(cycle(back, *own).worth, there.worth[usable], rtol=SCALAR)
    far = (there.length * recall / precision < 1 - 1e-6) | (precision < 1)
    back = threshold_of_length(there.length[far], share[0][far], share[1][far])
    assert np.allclose(back, i[far], rtol=1e-7)


def sources(n: int, seed: int = 1) -> fo.Sources:
    rng = np.random.default_rng(seed)
    return fo.Sources(rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n))


def test_no_signals_are_periodic_refreshes() -> None:
    many = sources(300)
    quiet = fo.solve(fo.Problem(NoisySignalFreshness(0.0, 0.5), many, 80.0))
    known = fo.solve(fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), many, 80.0))
    assert np.allclose(quiet.rates, known.rates, rtol=SCALAR, atol=EXACT)
    assert quiet.value == pytest.approx(known.value, rel=EXACT)


def test_signals_of_all_changes_and_nothing_else_are_refreshes_on_signal() -> None:
    many = sources(300)
    announced = fo.Sources(many.change_rate, many.importance, signalled=True)
    noisy = fo.solve(fo.Problem(NoisySignalFreshness(1.0, 1.0), many, 80.0))
    known = fo.solve(fo.Problem(BinaryFreshness(), announced, 80.0))
    assert noisy.value == pytest.approx(known.value, rel=EXACT)


@pytest.mark.parametrize("share", [0.05, 0.5, 3.0])
def test_mixed_qualities_are_solved_and_proved(share: float) -> None:
    n, rng = 200, np.random.default_rng(2)
    recall, precision = rng.uniform(0.0, 1.0, n), rng.uniform(0.1, 1.0, n)
    recall[:20], recall[20:40], precision[40:60] = 0.0, 1.0, 1.0
    many = sources(n)
    problem = fo.Problem(
        NoisySignalFreshness(recall, precision), many, share * float(np.sum(many.change_rate))
    )
    found = fo.solve(problem, tolerance=EXACT)
    assert found.status is fo.Status.OPTIMAL
    worse = fo.solve(fo.Problem(NoisySignalFreshness(0.5 * recall, precision), many, problem.bandwidth))
    assert worse.value < found.value  # better signals help
    # The certificate trusts the marginals: they are the slopes of the costs.
    numerics = problem.numerics
    assert numerics is not None
    rate = many.change_rate * 10 ** rng.uniform(-2, 1, n)
    step = 1e-5 * rate
    slope = (numerics.cost(rate - step) - numerics.cost(rate + step)) / (2 * step)
    away = numerics.marginal(rate - step) - numerics.marginal(rate + step) < 1e-3 * many.importance
    assert np.sum(away) > 150
    assert np.allclose(slope[away], numerics.marginal(rate)[away], rtol=1e-4, atol=1e-6)


def test_thresholds_spend_the_rates_and_bring_the_freshness() -> None:
    few = fo.Sources([0.5, 2.0, 1.0, 3.0], [1.0, 2.0, 3.0, 1.0])
    recall, precision = np.array([0.4, 0.7, 0.0, 0.5]), np.array([0.6, 0.3, 1.0, 1.0])
    objective = NoisySignalFreshness(recall, precision)
    found = fo.solve(fo.Problem(objective, few, 4.0))
    threshold, bonus = objective.thresholds(found.rates, few)
    total = 0.0
    for k in range(4):
        if not np.isfinite(threshold[k]):
            continue
        jump = bonus[k] if recall[k] else math.inf
        length, fresh = crawl(threshold[k], jump, few.change_rate[k], recall[k], precision[k], 6000, seed=k)
        assert (
            abs(1 / np.mean(length) - found.rates[k])
            <= 4 * np.std(length) / np.mean(length) ** 2 / 77 + EXACT
        )
        total += few.importance[k] * float(np.sum(fresh) / np.sum(length))
    assert total == pytest.approx(found.value, rel=0.02)


def test_signals_to_wait_for_where_all_changes_are_announced() -> None:
    objective = NoisySignalFreshness(1.0, 0.5)
    one = fo.Sources([1.0])
    # g = 2: a crawl after each 3rd signal, fresh for Σ_{k<3} ½^k of the first three gaps of mean ½.
    found = fo.solve(fo.Problem(objective, one, 2.0 / 3.0))
    assert found.value == pytest.approx((1 + 0.5 + 0.25) / 3, rel=EXACT)
    assert objective.thresholds(found.rates, one)[0].tolist() == [3.0]


@pytest.mark.parametrize(
    ("recall", "precision", "words"),
    [
        (1.5, 0.5, "recall is 1.5"),
        (-0.1, 0.5, "recall is -0.1"),
        (0.5, 0.0, "precision is 0"),
        (np.nan, 1.0, "recall is nan"),
    ],
)
def test_shares_out_of_range_are_refused(recall: float, precision: float, words: str) -> None:
    with pytest.raises(fo.ObjectiveError, match=words):
        NoisySignalFreshness(recall, precision)


def test_other_lengths_and_cone_solvers_are_refused() -> None:
    with pytest.raises(fo.ObjectiveError, match="each of 3 sources"):
        fo.Problem(NoisySignalFreshness([0.5, 0.5], 0.5), fo.Sources([1.0, 1.0, 1.0]), 1.0)
    with pytest.raises(fo.SolverRefusedError, match="declares no expression"):
        fo.solve(fo.Problem(NoisySignalFreshness(0.5, 0.5), fo.Sources([1.0]), 1.0), Conic())
