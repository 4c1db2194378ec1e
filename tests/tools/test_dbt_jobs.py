"""Jobs of dbt on a ladder: when each model is built, and with what."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

import freshopt as fo
from freshopt.pipelines import AfterParents
from freshopt.tools import DbtJobs, export
from freshopt.tools.dbt_project import LADDER, cron_lines, read_run_times
from tests.ground_truth.cron_rules import CRONIE, load

MODELS = {
    "stg_orders": ("view", ["source.shop.raw.orders"]),
    "stg_items": ("ephemeral", ["source.shop.raw.items"]),
    "revenue": ("table", ["model.shop.stg_orders", "model.shop.stg_items", "seed.shop.rates"]),
    "daily": ("incremental", ["model.shop.revenue", "macro.x", "model.shop.calendar"]),
    "calendar": ("table", []),
}


def manifest(folder: Path, **changes: Any) -> Path:  # noqa: ANN401
    """Write what dbt writes, with what is read of it."""
    nodes: dict[str, Any] = {
        f"model.shop.{name}": {
            "resource_type": "model",
            "config": {"materialized": kind},
            "fqn": ["shop", "marts", name],
            "depends_on": {"nodes": parents},
        }
        for name, (kind, parents) in MODELS.items()
    }
    nodes["seed.shop.rates"] = {"resource_type": "seed", "config": {"materialized": "seed"}}
    nodes["test.shop.t"] = {"resource_type": "test", "depends_on": {"nodes": ["model.shop.revenue"]}}
    board = {"depends_on": {"nodes": ["model.shop.daily"]}, "config": {"meta": {"importance": 3}}}
    mail = {"depends_on": {"nodes": ["model.shop.revenue"]}}
    document = {
        "nodes": nodes,
        "sources": {f"source.shop.raw.{name}": {} for name in ("orders", "items", "unused")},
        "exposures": {"exposure.shop.board": board, "exposure.shop.mail": mail},
        **changes,
    }
    path = folder / "manifest.json"
    path.write_text(json.dumps(document))
    return path


def test_a_project_is_a_pipeline(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    times = [
        {"unique_id": "model.shop.revenue", "status": "success", "execution_time": 40.0},
        {"unique_id": "model.shop.daily", "status": "success", "execution_time": 0.0},
        {"unique_id": "model.shop.calendar", "status": "error", "execution_time": 9.0},
    ]
    (tmp_path / "run_results.json").write_text(json.dumps({"results": times}))
    line = fo.pipeline(
        path, {"raw.orders": 10.0, "items": 2.0, "rates": 0.0}, cost=tmp_path / "run_results.json"
    )
    assert line.sources_name == ["model.shop.revenue", "model.shop.daily"]
    assert line.sources.change_rate.tolist() == [12.0, 12.0]
    assert line.sources.importance.tolist() == [4.0, 3.0]
    assert line.sources.refresh_cost.tolist() == [40.0, 0.001]
    assert line.exact.all()
    fresh = dict(zip(line.name.tolist(), line.freshness([12.0, 12.0]).tolist(), strict=True))
    assert fresh["exposure.shop.board"] == fresh["model.shop.daily"] == pytest.approx(0.25)
    assert fresh["model.shop.stg_orders"] == fresh["model.shop.calendar"] == 1.0
    assert read_run_times(tmp_path) == {"model.shop.revenue": 40.0, "model.shop.daily": 0.001}
    own = fo.pipeline(tmp_path, {"orders": 1.0, "items": 1.0, "rates": 0.0}, {"board": 1.0})
    assert own.sources.importance.tolist() == [1.0, 1.0]


def moments(lines: list[str], days: int = 28) -> Counter[int]:
    """Return how many of some lines are due in each minute from a Monday on."""
    found = Counter[int]()
    for job in load("".join(f"{line} x\n" for line in lines).encode(), CRONIE):
        minutes, hours = job.fields[:2]
        for day in range(days):
            if job.runs_on(date(2026, 3, 2) + timedelta(days=day)):
                found.update((day * 24 + hour) * 60 + minute for hour in hours for minute in minutes)
    return found


def test_moments_of_the_ladder_nest() -> None:
    """Each moment is of one period's own, and each period's are those with all longer ones' among them."""
    own = [moments(cron_lines([step])) for step in LADDER]
    assert max(sum(own, Counter[int]()).values()) == 1
    for k, step in enumerate(LADDER):
        for end in range(k + 1, len(LADDER) + 1):
            lines = cron_lines(LADDER[k:end])
            found = moments(lines)
            assert found == sum(own[k:end], Counter[int]()), lines
            assert len(lines) <= 3
        # All that are due at a period are one line.
        assert len(lines) == 1
        assert sorted(found) == list(range(0, 28 * 1440, step.seconds // 60)), step.name


def test_each_model_is_built_with_the_parents_that_are_due(tmp_path: Path) -> None:
    path, out = manifest(tmp_path), tmp_path / "jobs"
    rates = {"model.shop.revenue": 24.0, "model.shop.daily": 0.9, "model.shop.calendar": 0.0}
    done = export(rates, DbtJobs(path), out)
    assert (done.sources, done.never) == (2, 1)
    assert done.realised == pytest.approx(24.0 + 1.0 / 7.0)
    lines = (out / "crontab").read_text().splitlines()
    assert lines == [
        "0 1-23 * * * dbt build --selector freshopt_1h",
        "0 0 * * 0,2-6 dbt build --selector freshopt_1h",
        "0 0 * * 1 dbt build --selector freshopt_7d",
    ]
    text = (out / "selectors.yml").read_text()
    assert '{method: fqn, value: "shop.marts.revenue"}' in text
    assert text.index('{method: selector, value: "freshopt_1h"}') > text.index("name: freshopt_7d")
    nothing = export(dict.fromkeys(rates, 0.0), DbtJobs(path), out, overwrite=True)
    assert nothing.never == 3
    assert (out / "selectors.yml").read_text() == "selectors: []\n"


def test_a_plan_on_the_ladder_is_written_as_it_is(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    line = fo.pipeline(path, {"orders": 100.0, "items": 3.0, "rates": 0.01}, cost={"daily": 30.0})
    solution = fo.solve(fo.Problem(fo.problems.HarmonicStaleness(), line.sources, bandwidth=500.0))
    method = AfterParents(line, DbtJobs.periods())
    rates = dict(zip(line.sources_name, method.rates(solution.rates).tolist(), strict=True))
    done = export(rates, DbtJobs(path), tmp_path / "jobs")
    assert done.realised == pytest.approx(done.planned, rel=1e-9)
    used = sum(cost * rates[name] for name, cost in zip(rates, line.sources.refresh_cost, strict=True))
    assert 250.0 < used <= 500.0
