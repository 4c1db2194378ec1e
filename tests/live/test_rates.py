"""Least rates of a live planner that use up a limit: it plans, and leaves others something."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import freshopt as fo
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT

BEGIN = datetime(2026, 3, 19, tzinfo=UTC)
POISSON = fo.Refresh.POISSON
OBJECTIVES = {
    "harmonic": fo.problems.HarmonicStaleness(),
    "harmonic, at random": fo.problems.HarmonicStaleness(POISSON),
    "delay": fo.problems.AccumulatedDelay(),
    "age": fo.problems.Age(),
    "binary": fo.problems.BinaryFreshness(),
}


@matrix(
    objective=list(OBJECTIVES),
    limit=["bandwidth", "host", "slowed host", "promise"],
    explore=[0.0, 0.02, 1.0],
    short=[0.0, 1e-14, 1e-9, 3e-6, 0.03],
    every=23,
)
def test_least_rates_may_use_up_a_limit(
    tmp_path: Path, objective: str, limit: str, explore: float, short: float
) -> None:
    least = 2.5 * (1.0 - short)
    given: dict[str, Any] = {"burst": "1d", "explore": explore, "objective": OBJECTIVES[objective]}
    if limit == "promise":
        # Half of the time random gaps have lasted ln 2 / rate at most, equal ones half of 1 / rate.
        hours = 24.0 / least * (math.log(2.0) if "random" in objective else 0.5)
        given["promise"] = f"[ab]: 50% younger than {hours!r}h"
    if limit == "host":
        given["host_limits"] = {"h": 5.0}
    with fo.Planner(tmp_path, "5/day" if limit in ("bandwidth", "promise") else "12/day", **given) as planner:
        own = [0.0 if limit == "promise" else least] * 2 + [0.0] * 2
        planner.add_many(["a", "b", "c", "d"], min_rate=own, host=["h", "h", "h", "i"])
        if limit == "slowed host":
            planner.crawl_delay("h", "6h")
        for k in range(6):
            now = BEGIN + timedelta(hours=5 * k)
            for visit in planner.due(now, limit=None):
                planner.observed(visit.source, now, changed=k % 2 == 0)
        planner.replan(now)
        status, problem = planner.status(now), planner.solution().problem
        rates = dict(planner.to_frame().select("source", "rate").iter_rows())
    assert status.infeasibility < 1e-9
    assert status.relative_gap < 1e-6
    assert set(status.simple) == {"uniform", "proportional", "square-root"}
    assert min(rates.values()) > 0.0
    if limit == "slowed host":
        slowed = float(problem.hosts.limits[0])
        assert rates["c"] >= 0.01 * slowed * (1.0 - 1e-9)
        assert rates["a"] == pytest.approx(min(least, 0.495 * slowed), rel=1e-9)
    else:
        # What leaves others enough is kept, and something is left where it does not.
        kept = least if short > 1e-6 else 0.99 * least
        assert min(rates["a"], rates["b"]) >= kept * (1.0 - EXACT)
