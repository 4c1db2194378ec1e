"""The value of a maximised objective keeps its digits where nearly nothing, or nearly all, is gained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.modelling.objective import value_at
from freshopt.problems import BinaryFreshness, PollingKnapsack
from freshopt.scheduling.expected_cost import expected_value
from tests.ground_truth.partitioned import write

mp = mpmath.MPContext()
mp.dps = 60
PERIODIC = fo.Refresh.PERIODIC
EXACT = 1e-13


def fresh_in_a_period(u: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    return (1 - mp.exp(-u)) / u


# What a source of weight 1 gains at Δ/ρ = u, and Δ.
GAINS: list[tuple[fo.Objective, bool, Callable[[Any, Any], Any]]] = [
    (BinaryFreshness(), False, lambda u, _: 1 / (1 + u)),
    (BinaryFreshness(PERIODIC), False, lambda u, _: fresh_in_a_period(u)),
    (BinaryFreshness(), True, lambda u, _: min(1, 1 / u)),
    (BinaryFreshness(PERIODIC), True, lambda u, _: min(1, 1 / u)),
    (PollingKnapsack("polls"), False, lambda u, d: d * fresh_in_a_period(u)),
    (PollingKnapsack("materials"), False, lambda u, d: d / u * (1 - mp.expint(2, u))),
]
RATIOS = 10.0 ** np.arange(-18, 18.5, 4.5)


@pytest.mark.parametrize(("objective", "signalled", "gain"), GAINS)
@pytest.mark.sampled(3)
def test_gains_over_36_decades(
    objective: fo.Objective, signalled: bool, gain: Callable[[Any, Any], Any]
) -> None:
    for d in (1.0, 3e7):
        for ratio in RATIOS[RATIOS >= 1.0] if signalled else RATIOS:
            rate = d / ratio
            problem = fo.Problem(objective, fo.Sources([d], [0.7], signalled=signalled), rate)
            exact = 0.7 * gain(mp.mpf(d) / mp.mpf(rate), mp.mpf(d))
            certificate = fo.certify(problem, [rate])
            assert abs(certificate.value - exact) <= EXACT * exact
            # The source takes all bandwidth: the bound is the value but for what proves it.
            solution = fo.solve(problem)
            assert solution.certificate is not None
            assert abs(solution.value - exact) <= EXACT * exact
            assert exact * (1 - EXACT) <= solution.certificate.bound <= exact * (1 + 1e-11)
            assert f"{float(exact):.9g}" in repr(solution)
            plain = fo.solve(problem, certify=False)
            assert abs(plain.value - exact) <= EXACT * exact


def test_all_kinds_of_sources_together() -> None:
    d, w = 10.0 ** np.linspace(0, 18, 20), np.linspace(0.0, 2.0, 20)
    signalled = np.arange(20) % 2 == 0
    rates = np.ones(20)
    problem = fo.Problem(BinaryFreshness(), fo.Sources(d, w, signalled=signalled), 20.0)
    each = [
        mp.mpf(x) / (mp.mpf(y) + (0 if known else 1)) for x, y, known in zip(w, d, signalled, strict=True)
    ]
    assert abs(fo.certify(problem, rates).value - sum(each)) <= EXACT * sum(each)
    part = fo.Problem(BinaryFreshness(), problem.sources.take(np.arange(15, 20)), 5.0)
    assert abs(fo.certify(part, rates[15:]).value - sum(each[15:])) <= EXACT * sum(each[15:])


@pytest.mark.parametrize("refresh", [fo.Refresh.POISSON, PERIODIC])
@pytest.mark.sampled(2)
def test_partitions(tmp_path: Path, refresh: fo.Refresh) -> None:
    files = write(tmp_path, pl.DataFrame({"change_rate": np.full(100, 1e18)}), 2)
    found = fo.distributed.solve(BinaryFreshness(refresh), files, 100.0)
    assert found.value == pytest.approx(1e-16, rel=EXACT)
    assert found.bound == pytest.approx(1e-16, rel=1e-11)


def test_a_schedule_of_fast_sources() -> None:
    sources = fo.Sources([1e18])
    schedule = fo.Schedule(source=[0, 0], time=[0.0, 0.5], horizon=1.0, rates=[2.0])
    assert expected_value(schedule, BinaryFreshness(), sources) == pytest.approx(2e-18, rel=EXACT)


def test_a_minimised_stale_share_stays_one() -> None:
    objective = fo.problems.SynchronizationCost(fo.problems.BinaryCost())
    problem = fo.Problem(objective, fo.Sources([1e18]), 1.0)
    assert problem.numerics is not None
    assert value_at(objective, problem.numerics, problem.sources, np.ones(1), 0.25) == 0.25
    assert fo.solve(problem).value == 1.0
