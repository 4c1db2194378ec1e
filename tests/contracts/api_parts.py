"""Calls of the public API: constraints, automata, pipelines and the live planner."""

import tempfile
from typing import Any

import freshopt as fo
from freshopt import automata, estimators, pipelines, problems, scheduling
from tests.contracts.api_fixtures import (
    LOG,
    PROBLEM,
    SCHEDULE,
    SOURCES,
    Call,
    constrained,
    declared,
    scheduled,
)
from tests.ground_truth.named import BINARY_ON_REQUEST, BINARY_PERIODIC, HARMONIC, HARMONIC_PERIODIC

CONSTRAINTS: dict[str, Call] = {
    "freshopt.Budget": constrained(
        fo.Budget,
        limit={"x": 1.0, "y": 0.8},
        cost=[1.0, 2.0, 1.0],
        by=["x", "x", "y"],
        name="bytes",
        at_least={"x": 0.5},
    ),
    "freshopt.Curve": Call(
        lambda **given: fo.solve(fo.Problem(fo.Curve(**given), SOURCES, 2.0)),
        {
            "cost": ([0.0, 1.0, 2.0], [3.0, 1.0, 0.5]),
            "slope": [-2.5, -1.0, -0.2],
            "refresh": fo.Refresh.POISSON,
            "per_change": True,
            "between": (0.1, 10.0),
        },
    ),
    "freshopt.Expected": Call(
        lambda **given: fo.solve(fo.Problem(fo.Expected(**given), SOURCES, 2.0)),
        {
            "objective": HARMONIC,
            "nodes": [[0.5, 1.0], [1.0, 2.0], [0.1, 9.0]],
            "weights": [0.5, 0.5],
        },
    ),
    "freshopt.Nested": constrained(
        fo.Nested,
        levels=[["a", "b", "c"], ["x", "x", "y"]],
        at_most={"x": 1.0},
        at_least={"c": 0.5},
        name="nested",
    ),
    "freshopt.Priced": constrained(
        fo.Priced, budget=fo.Budget(by=["x", "x", "y"]), cost={0.0: 0.1, 1.0: 0.5}, name="tariff"
    ),
    "freshopt.Ratio": constrained(fo.Ratio, of=[-1, 0, 0], at_most=[1.0, 2.0, 0.5], name="ratio"),
    "freshopt.Spend": Call(
        lambda **given: fo.solve(
            fo.Problem(
                fo.Spend(**given),
                SOURCES,
                constraints=[fo.Target(problems.LaterThan(3.0, refresh=fo.Refresh.POISSON), at_most=0.5)],
            )
        ),
        {},
    ),
    "freshopt.Target": constrained(
        fo.Target,
        objective=HARMONIC,
        at_least=None,
        at_most={"x": 3.0, "y": 2.0},
        by=["x", "x", "y"],
        name="stale",
    ),
    "freshopt.Tied": constrained(fo.Tied, bundle=["a", "a", None], cost="once", name="tied"),
    "freshopt.Worst": Call(
        lambda **given: fo.solve(fo.Problem(fo.Worst(**given), SOURCES, 2.0)),
        {"objective": HARMONIC, "by": ["x", "x", "y"], "then": "stop", "weights": {"x": 2.0, "y": 1.0}},
    ),
}


AUTOMATA: dict[str, Call] = {
    "automata.AutomataTree": Call(
        automata.AutomataTree,
        {
            "n": 3,
            "resolution": 50,
            "polling": automata.Polling.CREDIT,
            "update": automata.Update.REWARD_PENALTY,
            "seed": 0,
        },
    ),
    "automata.SimulatedSources": Call(
        automata.SimulatedSources,
        {"hazard": [0.1, 0.2], "importance": 1.0, "cost": automata.Cost.AGE, "curve": None},
    ),
    "automata.ShareBounds": Call(
        automata.ShareBounds,
        {"floor": [0.1, 0.0], "ceiling": [1.0, 0.5], "group": [0, 0], "group_ceiling": [0.9]},
    ),
    "automata.TwofoldAutomaton": Call(
        automata.TwofoldAutomaton, {"resolution": 50, "update": automata.Update.REWARD_PENALTY}
    ),
    "automata.detection": Call(automata.detection, {"hazard": 0.5}),
    "automata.doubled": Call(automata.doubled, {"n": 5, "resolution": 50}),
}


EDGES = [("r", "a"), ("r", "b"), ("a", "c"), ("b", "c")]
LINE = fo.pipeline(EDGES, {"r": 1.0})
RATES = {"a": 1.0, "b": 2.0, "c": 0.5}
PLAN = fo.schedule(RATES, 9.0)

PIPELINES: dict[str, Call] = {
    "freshopt.pipeline": Call(
        fo.pipeline,
        {
            "graph": EDGES,
            "change_rate": {"r": 1.0},
            "importance": {"c": 2.0},
            "cost": {"a": 3.0},
            "views": (),
            "time_unit": "day",
        },
    ),
    "freshopt.plan_lifetimes": Call(
        fo.plan_lifetimes,
        {
            "log": LOG,
            "requests": {"a": 3.0, "b": 2.0, "c": 1.0},
            "bandwidth": 2.0,
            "objective": BINARY_ON_REQUEST,
            "importance": 1.0,
            "hosts": {"a": "x", "b": "x", "c": "y"},
            "host_limits": {"x": "1/day"},
            "min_rate": 0.1,
            "max_rate": 4.0,
            "estimator": fo.estimators.MaximumLikelihood(),
            "confidence": 0.9,
            "time_unit": "day",
        },
    ),
    "pipelines.AfterParents": Call(
        lambda **given: fo.schedule(RATES, 9.0, pipelines.AfterParents(**given)),
        {"pipeline": LINE, "periods": (0.5, 1.0, 4.0), "lag": 0.0},
    ),
    "pipelines.IndependentPhases": scheduled(pipelines.IndependentPhases, seed=0),
    "pipelines.aligned_freshness": Call(pipelines.aligned_freshness, {"pipeline": LINE, "rates": RATES}),
    "pipelines.aligned_problem": Call(
        pipelines.aligned_problem, {"pipeline": LINE, "objective": BINARY_PERIODIC, "bandwidth": 5.0}
    ),
    "pipelines.node_freshness": Call(
        pipelines.node_freshness,
        {"pipeline": LINE, "rates": RATES, "refresh": fo.Refresh.POISSON, "samples": 10, "seed": 0},
    ),
    "problems.LogFreshness": declared(fo.problems.LogFreshness, refresh=fo.Refresh.PERIODIC),
    "pipelines.replay_pipeline": Call(
        pipelines.replay_pipeline,
        {
            "pipeline": LINE,
            "schedule": PLAN,
            "world": fo.World.poisson(LINE.roots, 0),
            "skip": 0.0,
            "batches": 4,
        },
    ),
}


def two_days(place: Any, **settings: Any) -> fo.Solution:  # noqa: ANN401
    """Two days of a live planner, by default in a folder that is gone afterwards."""
    with (
        tempfile.TemporaryDirectory() as folder,
        fo.Planner(folder if place is None else place, **settings) as planner,
    ):
        planner.add_many(["a", "b"], host="x", importance=[1.0, 3.0])
        for day in (0.0, 1.0, 2.0):
            for visit in planner.due(day):
                planner.observed(visit.source, day, changed=day > 1.0)
        return planner.solution()


LIVE = {
    "freshopt.Planner": Call(
        two_days,
        {
            "place": None,
            "bandwidth": "2/day",
            "objective": HARMONIC_PERIODIC,
            "source_columns": {"size": {"a": 1.0, "b": 2.0}},
            "features": "url",
            "promise": "50% younger than 2d",
            "changed_cost": 0.5,
            "host_limits": {"x": "1/day"},
            "replan": "1d",
            "update": 0.1,
            "gap_limit": 0.02,
            "half_life": "30d",
            "lease": "1h",
            "burst": 2.0,
            "host_gap": 0.01,
            "explore": 0.05,
            "time_unit": "day",
            "durable": False,
        },
    ),
    "scheduling.crawl_counts": Call(
        scheduling.crawl_counts, {"problem": PROBLEM, "horizon": 3.0, "refreshes": None, "repeats": True}
    ),
    "scheduling.with_host_gap": Call(
        scheduling.with_host_gap,
        {"schedule": SCHEDULE, "host": ["x", "x", "y"], "gap": 0.01, "max_rate": 9.0, "seed": 0},
    ),
    "scheduling.retried_at_once": Call(scheduling.retried_at_once, {"sources": SOURCES}),
    "estimators.SuccessRates": Call(
        estimators.SuccessRates.from_statuses,
        {"source": ["a", "b", "a"], "status": [200.0, 503.0, 304.0], "time": [0.0, 0.0, 1.0]},
    ),
}
