"""Bounds of shares: floors, ceilings and groups with a subtree each."""

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.automata import (
    AutomataTree,
    Cost,
    Feedback,
    Polling,
    ShareBounds,
    SimulatedSources,
    Update,
    to_networkx,
)
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT


def bounds(
    floor: npt.ArrayLike, ceiling: npt.ArrayLike = np.inf, group: npt.ArrayLike = 0, most: npt.ArrayLike = ()
) -> ShareBounds:
    floors = np.array(floor, dtype=np.float64)
    ceilings = np.broadcast_to(np.array(ceiling, dtype=np.float64), floors.shape).copy()
    codes = np.broadcast_to(np.array(group, dtype=np.int64), floors.shape).copy()
    return ShareBounds(floors, ceilings, codes, np.array(most, dtype=np.float64))


@pytest.mark.exhaustive
@pytest.mark.parametrize("polling", [Polling.EARLIEST_DEADLINE, Polling.RANDOM])
def test_floors_are_polled_whatever_is_learnt(polling: Polling) -> None:
    floor = np.array([0.3, 0.0, 0.1, 0.0, 0.05])
    tree = AutomataTree(5, polling=polling, update=Update.REWARD_INACTION, seed=2, bounds=bounds(floor))
    sources = SimulatedSources([0.001, 0.5, 0.001, 0.5, 0.001])  # those with floors find nothing
    tree.simulate(sources, 40_000)
    assert np.all(tree.shares() >= floor)
    assert abs(tree.shares().sum() - 1.0) <= EXACT
    count = 20_000
    polled = np.bincount(tree.choose(count), minlength=5)
    shares = tree.shares()
    slack = 1.0 if polling is Polling.EARLIEST_DEADLINE else 4.5
    assert np.all(np.abs(polled - count * shares) <= slack * np.maximum(np.sqrt(count * shares), 5.0))


@pytest.mark.exhaustive
def test_a_share_at_its_ceiling_stays_there() -> None:
    ceiling = np.array([0.2, np.inf, np.inf, np.inf])
    bound = bounds(np.zeros(4), ceiling)
    tree = AutomataTree(4, polling=Polling.RANDOM, update=Update.REWARD_INACTION, seed=1, bounds=bound)
    tree.simulate(SimulatedSources([5.0, 0.05, 0.05, 0.05]), 60_000)
    mean = np.zeros(4)
    for _ in range(50):
        tree.simulate(SimulatedSources([5.0, 0.05, 0.05, 0.05]), 400)
        mean += tree.shares() / 50
    assert abs(mean[0] - 0.2) < 0.02
    free = AutomataTree(4, polling=Polling.RANDOM, update=Update.REWARD_INACTION, seed=1)
    free.simulate(SimulatedSources([5.0, 0.05, 0.05, 0.05]), 60_000)
    assert free.shares()[0] > 0.5


def test_groups_have_a_subtree_each_and_stay_at_their_limit() -> None:
    group = np.array([0, 2, 1, 0, 2, 0, 1, 2, 2, 0, 0])
    hazard = np.where(group == 0, 2.0, 0.02)
    bound = bounds(np.zeros(11), np.inf, group, [0.3, 0.6])
    tree = AutomataTree(11, polling=Polling.RANDOM, update=Update.REWARD_INACTION, seed=3, bounds=bound)
    assert np.all(np.abs(tree.shares() * 11 - 1.0) <= 0.02)
    assert len(tree.automata()) == 10
    leaves = [tree.source_at(leaf) for leaf in range(2**tree.depth)]
    assert sorted(each for each in leaves if each >= 0) == list(range(11))
    position = np.array([leaves.index(k) for k in range(11)])
    for k in range(3):
        own = np.sort(position[group == k])
        width = 1 << int(len(own) - 1).bit_length()
        assert own[0] % width == 0
        assert own.tolist() == list(range(own[0], own[0] + len(own)))
    sources, total = SimulatedSources(hazard), 0.0
    tree.simulate(sources, 60_000)
    for _ in range(50):
        tree.simulate(sources, 400)
        total += tree.shares()[group == 0].sum() / 50
    assert abs(total - 0.3) < 0.02
    graph = to_networkx(tree)
    assert [graph.nodes["source", k]["share"] for k in range(11)] == tree.shares().tolist()


@pytest.mark.parametrize("polling", [Polling.EARLIEST_DEADLINE, Polling.RANDOM])
@pytest.mark.parametrize("cost", [cost for cost in Cost if cost not in (Cost.POWER, Cost.PIECES)])
def test_compiled_or_not_the_same_polls(
    polling: Polling, cost: Cost, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for compiled in ("1", "0"):
        monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
        bound = bounds([0.1, 0.0, 0.0, 0.2, 0.0], [1.0, 0.2, 1.0, 1.0, 0.1], [0, 1, 0, 1, 0], [0.4])
        tree = AutomataTree(5, 40, polling=polling, update=Update.REWARD_INACTION, seed=11, bounds=bound)
        sources = SimulatedSources([0.05, 40.0, 0.2, 0.4, 0.3], [1.0, 4.0, 2.0, 0.0, 3.0], cost=cost)
        tree.simulate(sources, 400, Feedback.COST)
        runs.append((tree.checkpoint(), sources.polls, *tree.observe(sources, 50, Feedback.COST)))
    (state, *other), (again, *rest) = runs
    assert all(np.array_equal(state[key], again[key]) for key in state)
    assert all(np.array_equal(one, two) for one, two in zip(other, rest, strict=True))


def test_refusals_name_the_culprit() -> None:
    refused("a floor is negative or above its ceiling", bounds, [0.5, 0.1], 0.3)
    refused("floors take 1 of the polls", bounds, [0.5, 0.5])
    with pytest.raises(fo.SourceDataError, match=r"bounds are given with Polling\.CREDIT"):
        AutomataTree(2, update=Update.REWARD_INACTION, bounds=bounds([0.1, 0.1]))
    with pytest.raises(fo.SourceDataError, match="2 bounds for 3 sources"):
        AutomataTree(3, polling=Polling.RANDOM, update=Update.REWARD_INACTION, bounds=bounds([0.1, 0.1]))
    refused(r"the curve of Cost\.POWER does not fit 2 sources", SimulatedSources, [1.0, 1.0], cost=Cost.POWER)
