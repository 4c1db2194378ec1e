"""Calls of declared constraints, for `tests.contracts.api_calls`."""

from __future__ import annotations

import freshopt as fo
from freshopt import problems
from tests.contracts.api_fixtures import SOURCES, Call, constrained

CONSTRAINTS: dict[str, Call] = {
    "freshopt.Budget": constrained(
        fo.Budget, limit={"x": 1.0, "y": 0.8}, cost=[1.0, 2.0, 1.0], by=["x", "x", "y"], name="bytes"
    ),
    "freshopt.Expected": Call(
        lambda **given: fo.solve(fo.Problem(fo.Expected(**given), SOURCES, 2.0)),
        {
            "objective": problems.HarmonicStaleness(),
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
    "freshopt.Ratio": constrained(fo.Ratio, of=[-1, 0, 0], at_most=[1.0, 2.0, 0.5], name="ratio"),
    "freshopt.Spend": Call(
        lambda **given: fo.solve(
            fo.Problem(
                fo.Spend(**given), SOURCES, constraints=[fo.Target(problems.LaterThan(3.0), at_most=0.5)]
            )
        ),
        {},
    ),
    "freshopt.Target": constrained(
        fo.Target,
        objective=problems.HarmonicStaleness(),
        at_least=None,
        at_most={"x": 3.0, "y": 2.0},
        by=["x", "x", "y"],
        name="stale",
    ),
    "freshopt.Tied": constrained(fo.Tied, bundle=["a", "a", None], cost="once", name="tied"),
    "freshopt.Worst": Call(
        lambda **given: fo.solve(fo.Problem(fo.Worst(**given), SOURCES, 2.0)),
        {"objective": problems.HarmonicStaleness(), "by": ["x", "x", "y"], "then": "stop"},
    ),
}
