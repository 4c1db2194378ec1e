"""Trees on Zipf-like pages: rewards in the intervals of earlier seeded runs, the optimum by formula."""

import numpy as np
import pytest
from numpy.typing import NDArray

import freshopt as fo
from freshopt.automata import AutomataTree, SimulatedSources, Update, doubled
from freshopt.problems import PollingKnapsack
from tests.ground_truth.tolerances import EXACT

Floats = NDArray[np.float64]
HARD = (0.9, 1.5)


def chances(alpha: float, beta: float, n: int = 512) -> Floats:
    return alpha / np.arange(1.0, n + 1.0) ** beta


def reward(u: Floats, shares: Floats) -> float:
    return float(np.sum(shares * (1.0 - (1.0 - u) ** (1.0 / shares))))


def learnt(u: Floats, polls: int, seed: int, **settings: object) -> float:
    tree = AutomataTree(len(u), seed=seed, **settings)  # type: ignore[arg-type]
    tree.simulate(SimulatedSources(-np.log1p(-u)), polls)
    return reward(u, tree.shares())


@pytest.mark.parametrize("case", [(0.3, 1.5), (0.3, 1.0), HARD])
def test_the_best_reward_is_the_chance_that_any_page_is_updated(case: tuple[float, float]) -> None:
    u = chances(*case)
    solution = fo.solve(fo.Problem(PollingKnapsack(), fo.Sources(-np.log1p(-u)), bandwidth=1.0))
    assert reward(u, solution.rates) == pytest.approx(1.0 - np.prod(1.0 - u), rel=1e3 * EXACT)


# Means of 12 runs and four of their standard errors; a tree that learns otherwise lies outside.
@pytest.mark.parametrize(
    ("case", "settings", "low", "high"),
    [
        ((0.3, 1.5), {}, 0.540, 0.556),
        ((0.3, 1.0), {}, 0.844, 0.865),
        (HARD, {}, 0.944, 0.970),
        (HARD, {"update": Update.INACTION_PENALTY}, 0.815, 0.845),
        (HARD, {"resolution": doubled(512)}, 0.23, 0.30),
    ],
)
def test_rewards_after_ten_thousand_polls(
    case: tuple[float, float], settings: dict[str, object], low: float, high: float
) -> None:
    u = chances(*case)
    assert low < np.mean([learnt(u, 10_000, seed, **settings) for seed in range(12)]) < high


def test_many_pages_are_learnt_in_few_polls() -> None:
    u = chances(*HARD, 32_768)
    best = 1.0 - np.prod(1.0 - u)
    assert np.mean([learnt(u, 11_000, seed) for seed in range(3)]) < 0.95 * best
    assert np.mean([learnt(u, 20_000, seed) for seed in range(3)]) > 0.95 * best


def test_a_swap_of_the_first_two_pages_is_followed() -> None:
    u = chances(*HARD)
    best = 1.0 - np.prod(1.0 - u)
    for seed in range(3):
        tree, sources = AutomataTree(512, seed=seed), SimulatedSources(-np.log1p(-u))
        tree.simulate(sources, 40_000)
        sources.swap(0, 1)
        turned = np.concatenate([u[1::-1], u[2:]])
        before = reward(turned, tree.shares())
        tree.simulate(sources, 10_000)
        assert before < 0.8 * best < 0.93 * best < reward(turned, tree.shares())
