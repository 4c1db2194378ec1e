"""Calls of what caches and pipelines offer."""

from __future__ import annotations

import freshopt as fo
from freshopt import pipelines
from tests.contracts.api_fixtures import LOG, Call, declared, scheduled

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
            "objective": fo.problems.BinaryFreshness(fo.Refresh.ON_REQUEST),
            "importance": 1.0,
            "hosts": {"a": "x", "b": "x", "c": "y"},
            "host_limits": {"x": 1.0},
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
        pipelines.aligned_problem,
        {
            "pipeline": LINE,
            "objective": fo.problems.BinaryFreshness(fo.Refresh.PERIODIC),
            "bandwidth": 5.0,
        },
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
