"""Refreshes right after the parents: the certified optimum, and the rules that people use, replayed."""

import math

import cvxpy as cp
import numpy as np
import pytest

import freshopt as fo
from freshopt.datasets import example_events
from tests.ground_truth.refusals import present

ROOTS = ("vaapi/gst/vaapi", "good/gst/isomp4", "good/sys/v4l2")
BELOW = [
    *(("orders", "baskets"), ("items", "baskets"), ("baskets", "revenue"), ("customers", "revenue")),
    *(("customers", "churn"), ("orders", "churn"), ("revenue", "board"), ("churn", "letters")),
]
COST = {"orders": 60.0, "items": 20.0, "customers": 20.0, "baskets": 300.0, "revenue": 120.0, "churn": 600.0}
PERIODIC = fo.Refresh.PERIODIC


def shop(rates: dict[str, float]) -> fo.Pipeline:
    edges = [*zip(rates, ("orders", "items", "customers"), strict=True), *BELOW]
    return fo.pipeline(edges, rates, {"board": 10.0, "letters": 1.0}, COST, views=["board", "letters"])


def replayed(
    line: fo.Pipeline, world: fo.World, horizon: float, rates: np.ndarray, method: object
) -> fo.pipelines.PipelineReplay:
    named = dict(zip(line.source_names, rates.tolist(), strict=True))
    plan = fo.schedule(named, horizon, method)  # type: ignore[arg-type]
    return fo.pipelines.replay_pipeline(line, plan, world, skip=5.0)


def test_the_optimum_is_that_of_a_program_of_periods() -> None:
    """The missed changes Σ w·D·T/2, periods of children no shorter than those of parents, by CVXPY."""
    line = shop({"a": 24.0, "b": 4.0, "c": 1.0})
    problem = fo.pipelines.aligned_problem(line, fo.problems.AccumulatedDelay(PERIODIC), 14_400.0)
    solution = fo.solve(problem)
    assert present(solution.certificate).relative_gap < 1e-9
    rate = {name: cp.Variable(pos=True) for name in COST}
    chain = [rate[down] <= rate[up] for up, down in BELOW if down in COST]
    used = cp.sum([COST[name] * rate[name] for name in COST])
    changes = {"revenue": 29.0, "churn": 25.0}
    weight = {"revenue": 10.0, "churn": 1.0}
    missed = cp.sum([0.5 * weight[name] * changes[name] * cp.inv_pos(rate[name]) for name in changes])
    value = cp.Problem(cp.Minimize(missed), [*chain, used <= 14_400.0]).solve(solver=cp.CLARABEL)
    assert solution.value == pytest.approx(value, rel=1e-6)


@pytest.mark.exhaustive
def test_the_replay_has_the_predicted_freshness() -> None:
    """All periods equal need no rounding: the declared value itself, within the error of the replay."""
    line = fo.pipeline([("r", "a"), ("r", "b"), ("a", "c"), ("b", "c")], {"r": 2.0})
    problem = fo.pipelines.aligned_problem(line, fo.problems.BinaryFreshness(PERIODIC), 9.0)
    solution = fo.solve(problem)
    assert solution.rates == pytest.approx(3.0, rel=1e-6)
    world = fo.World.poisson(line.roots, seed=4)
    found = replayed(line, world, 3000.0, line.rates_of(solution), fo.pipelines.AfterParents(line)).fresh
    assert abs(found.z(solution.value)) < 4.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("recorded", [False, True])
def test_the_plan_beats_the_rules_that_people_use(recorded: bool) -> None:
    """One cron for all, everything nightly, and the optimum at independent phases, at the same bandwidth.

    Changes are simulated, or those of three plugins of GStreamer, learnt in two years and replayed in two.
    """
    if recorded:
        events = example_events("gstreamer-plugins")
        time = events["time"].dt.replace_time_zone(None).to_numpy() - np.datetime64("2016-09-05")
        day, name = time / np.timedelta64(1, "D"), np.array(events["source"].to_list())
        half, end = 728.0, 1456.0
        line = shop({root: float(np.sum((name == root) & (day < half))) / half for root in ROOTS})
        later = np.isin(name, ROOTS) & (day >= half)
        changes = {"source": name[later], "time": day[later]}
        world = fo.World.from_events(changes, names=line.roots.names, start=half, horizon=end)
        budget, horizon = sum(COST.values()), end - half  # each table once a day
    else:
        line = shop({"a": 24.0, "b": 4.0, "c": 1.0})
        world, budget, horizon = fo.World.poisson(line.roots, seed=2), 14_400.0, 200.0
    cost = line.sources.refresh_cost
    phases = fo.solve(
        fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), line.sources, budget)
    ).rates
    own = fo.solve(fo.pipelines.aligned_problem(line, fo.problems.HarmonicStaleness(PERIODIC), budget))
    best = replayed(line, world, horizon, line.rates_of(own), fo.pipelines.AfterParents(line))
    assert best.cost <= budget
    same = np.full(len(cost), budget / float(cost.sum()))
    for rates, method in (
        (same, fo.pipelines.AfterParents(line)),
        (np.ones(len(cost)), fo.pipelines.AfterParents(line)),
        (phases, fo.pipelines.IndependentPhases(seed=1)),
    ):
        fresher, staler = best.against(replayed(line, world, horizon, rates, method))
        assert fresher.value > 2.5 * fresher.error > 0.0
        assert staler.value < -2.5 * staler.error < 0.0


def test_views_of_several_tables_are_as_old_as_the_oldest() -> None:
    line = fo.pipeline(
        [("r", "a"), ("s", "b"), ("a", "v"), ("b", "v"), ("v", "w")],
        {"r": 1.0, "s": 5.0},
        {"w": 1.0},
        views=["v", "w"],
    )
    problem = fo.pipelines.aligned_problem(line, fo.problems.AccumulatedDelay(PERIODIC), 6.0)
    assert present(problem.sources.names).tolist() == ["a", "b", "w"]
    assert fo.solve(problem).rates == pytest.approx(3.0, rel=1e-6)


def test_aligned_freshness_is_that_of_the_slowest_input() -> None:
    """On a diamond with a view: by hand, starved nodes and roots that never change included."""
    edges = [("r", "a"), ("r", "b"), ("q", "b"), ("a", "v"), ("b", "v"), ("v", "c"), ("still", "c")]
    line = fo.pipeline(edges, {"r": 2.0, "q": 1.0, "still": 0.0}, views=["v"])
    found = dict(
        zip(
            line.names.tolist(),
            fo.pipelines.aligned_freshness(line, {"a": 4.0, "b": 2.0, "c": 1.0}).tolist(),
            strict=True,
        )
    )

    def share(changes: float) -> float:
        return -math.expm1(-changes) / changes

    assert found == pytest.approx(
        {
            **{"r": 1.0, "q": 1.0, "still": 1.0},
            **{"a": share(0.5), "b": share(1.5), "v": share(1.5), "c": share(3.0)},
        },
        rel=1e-12,
    )
    starved = fo.pipelines.aligned_freshness(line, {"a": 0.0, "b": 2.0, "c": 1.0})
    assert starved[line.names == "c"].tolist() == [0.0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("budget", [1e3, 30_000.0, 31_623.0, 421_697.0, 1e6])
def test_views_do_not_spoil_the_proof(budget: float) -> None:
    """Their rows cost next to nothing: with less still, these budgets were not proved."""
    line = shop({"x": 24.0, "y": 4.0, "z": 1.0})
    solution = fo.solve(fo.pipelines.aligned_problem(line, fo.problems.LogFreshness(PERIODIC), budget))
    assert present(solution.certificate).relative_gap < 1e-9
    assert float(line.sources.refresh_cost @ line.rates_of(solution)) >= budget * (1.0 - 1e-6)


@pytest.mark.exhaustive
def test_aligned_freshness_is_replayed() -> None:
    """Rounded to the ladder, on a graph with shared roots."""
    line = shop({"x": 24.0, "y": 4.0, "z": 1.0})
    problem = fo.pipelines.aligned_problem(line, fo.problems.LogFreshness(PERIODIC), 30_000.0)
    method = fo.pipelines.AfterParents(line)
    rates = method.rates(line.rates_of(fo.solve(problem)))
    measured = replayed(line, fo.World.poisson(line.roots, seed=5), 2000.0, rates, method)
    off = np.abs(measured.per_node - fo.pipelines.aligned_freshness(line, rates))
    assert np.all(off <= 4.0 * measured.error + 1e-3)


@pytest.mark.filterwarnings("error")
def test_nodes_that_serve_nothing_are_never_refreshed() -> None:
    """Exactly never, not once in a billion years; by both kinds of ladder, and without a warning."""
    edges = [("r", "a"), ("s", "b"), ("a", "c"), ("b", "c"), ("a", "d")]
    line = fo.pipeline(edges, {"r": 24.0, "s": 2.0}, {"d": 1.0})
    for objective in (fo.problems.LogFreshness(PERIODIC), fo.problems.BinaryFreshness(PERIODIC)):
        solution = fo.solve(fo.pipelines.aligned_problem(line, objective, 60.0))
        assert present(solution.certificate).relative_gap < 1e-9
        rates = dict(zip(line.source_names, line.rates_of(solution).tolist(), strict=True))
        assert (rates["b"], rates["c"]) == (0.0, 0.0)
        assert rates["a"] == pytest.approx(30.0)
        for periods in (None, (1.0 / 48.0, 1.0 / 24.0, 1.0)):
            found = fo.pipelines.AfterParents(line, periods).rates(line.rates_of(solution))
            assert [rate > 0.0 for rate in found.tolist()] == [name in "ad" for name in line.source_names]
