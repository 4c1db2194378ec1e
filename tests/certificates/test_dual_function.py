"""Gaps of poor rates: never below the true one, and near it; against closed forms and proved optima."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.price_search import LOOSE
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness, PollingKnapsack
from tests.ground_truth.tolerances import EXACT

PERIODIC = fo.Refresh.PERIODIC
CELLS: dict[str, fo.Objective] = {
    "harmonic": HarmonicStaleness(),
    "harmonic periodic": HarmonicStaleness(PERIODIC),
    "binary": BinaryFreshness(),
    "binary periodic": BinaryFreshness(PERIODIC),
    "delay": AccumulatedDelay(),
    "age": Age(),
    "polls": PollingKnapsack("polls"),
}
# What is asked of a bound, as a multiple of the true gap.
MOST = 30.0


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


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0, 5.0])
def test_the_gap_of_delays_is_the_true_one(noise: float) -> None:
    """The least delay is (Σ√(wΔ))² / B, by Cauchy's inequality."""
    task = task_of(AccumulatedDelay(), 1)
    rates = disturbed(task, fo.solve(task), noise, 2)
    products = zip(task.sources.importance, task.sources.change_rate, strict=True)
    least = mpmath.fsum(mpmath.sqrt(mpmath.mpf(w) * mpmath.mpf(d)) for w, d in products) ** 2 / task.bandwidth
    found = fo.certify(task, rates)
    true = mpmath.mpf(found.value) - least
    assert true > LOOSE * least
    assert 1.0 - EXACT <= float(found.gap / true) <= 1.01
    assert found.bound <= float(least) * (1.0 + EXACT)


@pytest.mark.exhaustive
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_the_gap_of_poor_rates_is_near_the_true_one(name: str, bounded: bool) -> None:
    task = task_of(CELLS[name], 3, bounded=bounded)
    best = fo.solve(task)
    for seed, noise in enumerate((0.05, 0.3, 1.0, 3.0)):
        rates = disturbed(task, best, noise, seed)
        found = fo.certify(task, rates)
        true = abs(found.value - best.value)
        assert true * (1.0 - 1e-9) <= found.gap <= MOST * true
        # Tangents at that price prove no more.
        assert fo.certify(task, rates, found.price).gap >= found.gap * (1.0 - 1e-9)


def test_rates_that_refresh_nothing_of_what_is_worth_most() -> None:
    """All bandwidth for the other half: the tangents at 0 are finite, and far above what is gained."""
    task = task_of(HarmonicStaleness(), 5)
    rates = np.where(np.arange(400) % 2 == 0, 2.0 * task.bandwidth / 400, 1e-9)
    rates *= task.bandwidth / float(np.sum(rates))
    found, best = fo.certify(task, rates), fo.solve(task)
    assert found.value - best.value <= found.gap * (1.0 + EXACT)
    assert found.gap <= MOST * (found.value - best.value)


def test_costs_of_either_sign_leave_room_for_their_rounding() -> None:
    task = task_of(OwnCost(), 7)
    best = fo.solve(task)
    rates = disturbed(task, best, 2.0, 8)
    found = fo.certify(task, rates)
    assert found.value - best.value <= found.gap * (1.0 + EXACT)
