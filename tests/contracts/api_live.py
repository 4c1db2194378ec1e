"""Calls of the live planner, of schedules and for failing fetches, beside `tests.contracts.api_calls`."""

from __future__ import annotations

import tempfile
from typing import Any

import freshopt as fo
from freshopt import estimators, problems, scheduling
from tests.contracts.api_fixtures import PROBLEM, SCHEDULE, SOURCES, Call


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
            "objective": problems.HarmonicStaleness(fo.Refresh.PERIODIC),
            "host_limits": {"x": 1.0},
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
