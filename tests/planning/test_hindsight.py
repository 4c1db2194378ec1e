"""Best rates in hindsight against rates found in other ways."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.planning.static_rates import best_rates
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from freshopt.simulation.static_costs import ChangeWindow, static_costs
from tests.ground_truth.tolerances import SCALAR

PERIODIC = fo.Refresh.PERIODIC


@pytest.mark.parametrize("objective", [HarmonicStaleness(PERIODIC), BinaryFreshness(fo.Refresh.POISSON)])
def test_the_optimum_of_a_formula(objective: fo.Objective) -> None:
    """On curves with a known optimum it is found, whatever the scale of rates and weights."""
    rng = np.random.default_rng(3)
    sources = fo.Sources(10.0 ** rng.uniform(-4, 3, 40), 10.0 ** rng.uniform(-3, 3, 40))
    for bandwidth in (1e-2, 3.0, 500.0):
        problem = fo.Problem(objective, sources, bandwidth)
        numerics = problem.numerics
        assert numerics is not None
        rates = best_rates(numerics.cost, bandwidth, np.zeros(40), np.full(40, np.inf))
        assert rates.sum() <= bandwidth * (1.0 + SCALAR)
        best = float(np.sum(numerics.cost(fo.solve(problem).rates)))
        assert best * (1.0 - SCALAR) <= float(np.sum(numerics.cost(rates))) <= 1.001 * best


def test_no_other_rates_do_better_in_recorded_changes() -> None:
    rng = np.random.default_rng(5)
    n = 6
    many = rng.poisson(20.0, n)
    world = fo.World.from_events(
        {"source": np.repeat(np.arange(n), many), "time": rng.uniform(0.0, 90.0, many.sum())},
        names=np.arange(n),
        start=0.0,
        horizon=90.0,
    )
    window, weight = ChangeWindow.of(world, 30.0, 90.0), rng.pareto(1.5, n) + 1.0
    lower, upper = np.full(n, 0.02), np.full(n, 0.9)

    def cost(rates: np.ndarray) -> np.ndarray:
        return weight * static_costs(window, rates, HarmonicStaleness(PERIODIC))

    found = best_rates(cost, 1.0, lower, upper)
    assert np.all((found >= lower - SCALAR) & (found <= upper + SCALAR))
    assert found.sum() == pytest.approx(1.0, rel=SCALAR)
    value = cost(found).sum()
    for _ in range(300):
        other = lower + rng.dirichlet(np.full(n, 1.0 + rng.exponential(3.0))) * (1.0 - lower.sum())
        if np.all(other <= upper):
            assert cost(other).sum() >= value * (1.0 - 1e-4)
    near = np.clip(found + rng.normal(0.0, 0.02, (200, n)), lower, upper)
    for each in near[near.sum(axis=1) <= 1.0]:
        assert cost(each).sum() >= value * (1.0 - 1e-4)


def test_one_source_takes_all() -> None:
    assert best_rates(lambda rate: 1.0 / (1.0 + rate), 2.0, np.zeros(1), np.full(1, np.inf)) == pytest.approx(
        [2.0]
    )
