"""Replays of pipelines: equal to events taken one by one; the gain of refreshing after the parents."""

import math

import numpy as np
import pytest

import freshopt as fo
from freshopt.pipelines import AfterParents, IndependentPhases, replay_pipeline
from tests.ground_truth.pipeline_truth import drawn_events, exact_freshness, replayed
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT as TIGHT
from tests.pipelines.graphs import GRAPHS, grid, random_graph, rates_of


@pytest.mark.parametrize("seed", range(6))
def test_a_replay_is_what_events_bring_one_by_one(seed: int) -> None:
    edges, views = random_graph(12, seed + 50)
    change, rate = rates_of(edges, seed)
    line = fo.pipeline(edges, change, views=views)
    rate = {name: rate[name] for name in line.source_names}
    events = drawn_events(change, rate, 40.0, seed)
    truth, _ = replayed(edges, events, 40.0, views)
    at = {name: k for k, name in enumerate(line.source_names)}
    own = [(time, at[name]) for time, name in events if name in at]
    plan = fo.Schedule([k for _, k in own], [t for t, _ in own], 40.0, np.ones(len(at)), line.source_names)
    changes = {
        "source": [name for _, name in events if name in change],
        "time": [time for time, name in events if name in change],
    }
    world = fo.World.from_events(changes, names=line.roots.names, horizon=40.0)
    found = replay_pipeline(line, plan, world, batches=8)
    assert found.share.shape == (8, len(line))
    for name, share in truth.items():
        assert found.per_node[line.names.tolist().index(name)] == pytest.approx(share, abs=TIGHT), name
    assert found.cost == pytest.approx(len(own) / 40.0)


@pytest.mark.parametrize("case", ["in-tree", "shortcut", "diamond", "grid"])
def test_formulas_hold_in_replay(case: str) -> None:
    """Poisson refreshes against the exact recursion, phases against the product where it is exact."""
    edges, node = GRAPHS[case]
    change, rate = rates_of(edges, seed=6)
    line = fo.pipeline(edges, change)
    world = fo.World.poisson(line.roots, seed=2)
    ordered = {name: rate[name] for name in line.source_names}
    plan = fo.schedule(ordered, 4000.0, fo.scheduling.PoissonArrivals(seed=1))
    found = replay_pipeline(line, plan, world, skip=20.0)
    k = line.names.tolist().index(node)
    truth = exact_freshness(node, edges, change, rate)
    assert abs(found.per_node[k] - truth) < 4.0 * found.error[k]


def test_offsets_beat_independent_phases_at_the_same_bandwidth() -> None:
    edges = [("r", "a"), ("a", "b"), ("b", "c"), ("s", "d"), ("d", "c"), ("a", "e")]
    line = fo.pipeline(edges, {"r": 3.0, "s": 0.4}, {"c": 2.0, "e": 1.0}, {"a": 0.5, "b": 2.0})
    solution = fo.solve(
        fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), line.sources, bandwidth=25.0)
    )
    world = fo.World.poisson(line.roots, seed=3)
    method = AfterParents(line)
    found = replay_pipeline(line, fo.schedule(solution, 1000.0, method), world, skip=10.0)
    before = replay_pipeline(line, fo.schedule(solution, 1000.0, IndependentPhases(seed=5)), world, skip=10.0)
    fresher, staler = found.against(before)
    assert fresher.value > 5.0 * fresher.error > 0.0
    assert staler.value < -5.0 * staler.error < 0.0
    rates = method.rates(solution.rates)
    used = float(line.sources.refresh_cost @ rates)
    assert used == pytest.approx(25.0, rel=TIGHT)
    assert found.cost <= 25.0
    steps = np.log2(rates / rates.max())
    assert np.allclose(steps, np.rint(steps), atol=1e-9)


def test_a_chain_refreshed_after_its_parents_is_as_fresh_as_one_copy() -> None:
    """All at one period T: fresh (1 − e^{−ΔT})/(ΔT) at every depth, where independent phases have powers."""
    edges = [("r", "0"), *((str(k), str(k + 1)) for k in range(5))]
    line = fo.pipeline(edges, {"r": 1.0})
    plan = fo.schedule(dict.fromkeys(line.source_names, 2.0), 4000.0, AfterParents(line))
    found = replay_pipeline(line, plan, fo.World.poisson(line.roots, seed=1), skip=5.0)
    cell = -math.expm1(-0.5) / 0.5
    assert np.all(np.abs(found.per_node[1:] - cell) < 4.0 * found.error[1:])
    assert np.ptp(found.per_node[1:]) < 1e-9
    # A lag between parent and child ages each copy by as much, and the order of refreshes stays.
    late = fo.schedule(dict.fromkeys(line.source_names, 2.0), 4000.0, AfterParents(line, lag=0.01))
    assert late.source[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert np.diff(late.time[:6]) == pytest.approx(0.01)
    again = replay_pipeline(line, late, fo.World.poisson(line.roots, seed=1), skip=5.0)
    assert np.all(np.diff(again.per_node[1:]) < 0.0)


def test_a_given_ladder_is_kept_and_so_is_the_bandwidth() -> None:
    line = fo.pipeline(grid(6), {"r": 5.0}, {"5,5": 1.0, "2,3": 3.0})
    solution = fo.solve(
        fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), line.sources, bandwidth=200.0)
    )
    ladder = (1 / 24, 1 / 12, 1 / 6, 0.5, 1.0, 7.0)
    rates = AfterParents(line, ladder).rates(solution.rates)
    live = rates > 0.0
    assert set(np.round(1.0 / rates[live], 9)) <= set(np.round(ladder, 9))
    assert 0.5 * 200.0 < float(rates.sum()) <= 200.0 * (1.0 + TIGHT)
    # No node is refreshed more often than the most frequent of its inputs.
    position = dict(zip(line.position.tolist(), rates.tolist(), strict=True))
    for k, rate in position.items():
        inputs = [position.get(p, math.inf) for p in line.graph.parents(k).tolist()]
        assert rate <= max(inputs) * (1.0 + TIGHT)
    with pytest.raises(fo.SourceDataError, match=r"refreshing each node once in 0\.1 days needs a bandwidth"):
        AfterParents(line, (0.1,)).rates(solution.rates)
    refused("period 3 is no multiple of 2 before it", AfterParents, line, (1.0, 2.0, 3.0))
    refused("lag is -1", AfterParents, line, lag=-1.0)


def test_replays_of_other_sources_are_refused() -> None:
    line = fo.pipeline([("r", "a"), ("s", "b"), ("a", "b")], {"r": 1.0, "s": 1.0})
    plan, world = fo.schedule({"a": 1.0, "b": 1.0}, 10.0), fo.World.poisson(line.roots, seed=1)
    assert replay_pipeline(line, plan, world, batches=4).share.shape == (4, 4)
    with pytest.raises(fo.SourceDataError, match="the schedule is of other sources"):
        replay_pipeline(line, fo.schedule({"b": 1.0, "a": 1.0}, 10.0), world)
    with pytest.raises(fo.SourceDataError, match="the world is of other sources"):
        replay_pipeline(line, plan, fo.World.poisson(line.sources, seed=1))
    refused("nothing is left to count from 10 to 10", replay_pipeline, line, plan, world, skip=10.0)
    short = replay_pipeline(line, plan, world, batches=5)
    with pytest.raises(fo.SourceDataError, match="different nodes, windows or batches"):
        short.against(replay_pipeline(line, plan, world, batches=4))
