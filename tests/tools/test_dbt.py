"""Jobs, selectors and freshness of dbt: written against the rates, read as crawls, and what is refused."""

import json
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

import freshopt as fo
from freshopt.pipelines import AfterParents
from freshopt.scheduling.rate_table import read_rates
from freshopt.tools import Dbt, DbtJobs, export, read_dbt
from freshopt.tools.dbt import RUNGS, dbt_freshness
from freshopt.tools.dbt_project import LADDER, cron_lines, read_run_times
from tests.ground_truth.command_lines import file_with
from tests.ground_truth.cron_rules import CRONIE, load
from tests.ground_truth.refusals import present, refused


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_a_rung_is_as_often_as_its_cron_times(rung: object) -> None:
    assert rung in RUNGS
    own = RUNGS[RUNGS.index(rung)]
    (job,) = load(f"{own.cron} x\n".encode(), CRONIE)
    minutes, hours, days, _, weekdays = job.fields
    per_day = len(minutes) * len(hours)
    share = len(weekdays - {7}) / 7 if not job.stars[4] else 1.0 if job.stars[2] else len(days) / 31
    assert 86_400 / own.seconds == pytest.approx(per_day * share, rel=0.04)
    # A source is late after its longest gap, which is the rung where cron's times are even.
    unit = {"minute": 60, "hour": 3600, "day": 86_400}[own.period]
    assert own.seconds <= own.amount * unit <= 1.15 * own.seconds


def test_sources_of_a_rung_share_a_selector(tmp_path: Path) -> None:
    rates = {
        f"source.shop.raw.{name}": rate for name, rate in (("a", 24.0), ("b", 20.0), ("c", 1.0), ("d", 0.0))
    }
    done = Dbt().write(read_rates(rates), tmp_path)
    assert (done.sources, done.never) == (3, 1)
    # b, 20 times a day, every 72 minutes, is refreshed every 2 hours: 24 + 12 + 1.
    assert done.realised == pytest.approx(37.0, rel=1e-12)
    assert (tmp_path / "crontab").read_text().splitlines() == [
        "7 */1 * * * dbt build --selector freshopt_1h",
        "7 */2 * * * dbt build --selector freshopt_2h",
        "7 3 * * * dbt build --selector freshopt_1d",
    ]
    text = (tmp_path / "sources.yml").read_text()
    assert 'name: "b"\n        config:\n          freshness: {warn_after: {count: 2, period: hour}' in text
    assert "error_after: {count: 4, period: hour}" in text
    assert '"d"' not in text
    assert 'value: "shop.raw.c"' in (tmp_path / "selectors.yml").read_text()


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
    path = file_with(folder / "manifest.json", json.dumps(document))
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
    assert line.source_names == ["model.shop.revenue", "model.shop.daily"]
    assert line.sources.change_rate.tolist() == [12.0, 12.0]
    assert line.sources.importance.tolist() == [4.0, 3.0]
    assert line.sources.refresh_cost.tolist() == [40.0, 0.001]
    assert line.exact.all()
    fresh = dict(zip(line.names.tolist(), line.freshness([12.0, 12.0]).tolist(), strict=True))
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
    solution = fo.solve(
        fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), line.sources, bandwidth=500.0)
    )
    method = AfterParents(line, DbtJobs.periods())
    rates = dict(zip(line.source_names, method.rates(solution.rates).tolist(), strict=True))
    done = export(rates, DbtJobs(path), tmp_path / "jobs")
    assert done.realised == pytest.approx(done.planned, rel=1e-9)
    used = sum(cost * rates[name] for name, cost in zip(rates, line.sources.refresh_cost, strict=True))
    assert 250.0 < used <= 500.0


ORDERS, USERS = "source.shop.raw.orders", "source.shop.raw.users"


def result(source: str, loaded: str | None, seen: str, status: str = "pass") -> dict[str, Any]:
    """One result as dbt 1.8 writes it (schema v3)."""
    return {
        "unique_id": source,
        "max_loaded_at": loaded,
        "snapshotted_at": seen,
        "max_loaded_at_time_ago_in_s": 300.938,
        "status": status,
        "criteria": {
            "warn_after": {"count": 12, "period": "hour"},
            "error_after": {"count": None, "period": None},
        },
        "adapter_response": {},
        "timing": [],
        "thread_id": "Thread-1",
        "execution_time": 0.2,
    }


def artifact(*results: object) -> dict[str, Any]:
    return {
        "metadata": {"dbt_schema_version": "https://schemas.getdbt.com/dbt/sources/v3.json", "env": {}},
        "results": list(results),
        "elapsed_time": 1.5,
    }


RUNS = {
    "sources-1.json": artifact(
        result(ORDERS, "2024-06-30T23:00:00.570000+00:00", "2024-07-01T06:00:00.508000+00:00"),
        result(USERS, "2024-06-01T00:00:00+00:00Z", "2024-07-01T06:00:00.508000+00:00", "warn"),
    ),
    "2024-07-02/sources.json": artifact(
        result(ORDERS, "2024-07-01T23:00:00Z", "2024-07-02T08:00:00.508+02:00"),
        {"unique_id": USERS, "error": "no permission", "status": "runtime error"},
    ),
    "2024-07-03/freshness.json": artifact(
        result(ORDERS, "2024-07-01T23:00:00", "2024-07-03T06:00:00.508"),
        result(USERS, None, "2024-07-03T06:00:00.508", "error"),
    ),
    "manifest.json": {"nodes": {}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, document in RUNS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(document))
    return tmp_path


def rows(log: fo.CrawlLog) -> dict[str, list[tuple[float, bool]]]:
    return {
        name: [
            (round(log.time[k], 6), bool(log.changed[k])) for k in range(log.offsets[i], log.offsets[i + 1])
        ]
        for i, name in enumerate(log.names.tolist())
    }


def test_a_source_changed_if_what_was_loaded_last_is_new(folder: Path) -> None:
    log = read_dbt(folder)
    begin = round(0.25 + 0.508 / 86400, 6)
    assert rows(log) == {
        ORDERS: [(begin, False), (begin + 1, True), (begin + 2, False)],
        USERS: [(begin, False), (begin + 2, True)],  # emptied; the run that failed says nothing
    }
    assert present(log.origin).isoformat() == "2024-07-01T00:00:00+00:00"
    # Loaded at 23:00 of the day before the first run, and on the first day; users a month earlier.
    hour = 1.0 / 24.0
    expected = [-hour + 0.57 / 86400, 23 * hour, None, -30.0, None]
    assert [None if x != x else round(x, 6) for x in present(log.last_modified).tolist()] == [
        None if x is None else round(x, 6) for x in expected
    ]


def test_files_in_any_order_and_twice(folder: Path) -> None:
    files = [folder / name for name in list(RUNS)[:3]]
    assert rows(read_dbt([*files[::-1], files[0]])) == rows(read_dbt(folder))
    ((time, changed),) = rows(read_dbt(files[0], time_unit="hour"))[ORDERS]
    assert (round(time, 5), changed) == (6.00014, False)


def test_contradictions_are_refused(folder: Path) -> None:
    document = artifact(result(ORDERS, "2024-07-01T23:00:01Z", "2024-07-02T06:00:00.508Z"))
    (folder / "sources-wrong.json").write_text(json.dumps(document))
    refused(r"sources-wrong.json and .*sources.json have different max_loaded_at", read_dbt, folder)


def test_the_freshness_of_sources_yml_becomes_limits(tmp_path: Path) -> None:
    late = {"warn_after": {"count": 6, "period": "hour"}, "error_after": {"count": 1, "period": "day"}}
    soon = {"warn_after": None, "error_after": {"count": 90, "period": "minute"}}
    first = [result(name, "2024-07-01T00:00:00Z", "2024-07-01T06:00:00Z") for name in (ORDERS, USERS)]
    second = [result(name, "2024-07-02T00:00:00Z", "2024-07-02T06:00:00Z") for name in (ORDERS, USERS)]
    second[0]["criteria"], second[1]["criteria"] = late, soon
    # The earlier run is read last.
    for name, rows in (("sources-2.json", first), ("sources-1.json", second)):
        (tmp_path / name).write_text(json.dumps(artifact(*rows)), encoding="utf-8")
    limits = dbt_freshness(tmp_path, "90%")
    assert limits.rows() == [(ORDERS, "0.9/6 hour", "1 day"), (USERS, None, "90 minute")]
    made = fo.plan(read_dbt(tmp_path), bandwidth="30/day", limits=limits, draws=0)
    least = dict(zip(made.log.names.tolist(), made.sources.min_rate.tolist(), strict=True))
    # 6 hours at 90 % need more than a day at most.
    assert least == pytest.approx({ORDERS: 3.6, USERS: 16.0})


@pytest.mark.parametrize(
    ("criteria", "words"),
    [
        (None, "has warn_after or error_after"),
        ({"warn_after": {"count": None, "period": None}}, "has warn_after or error_after"),
        ({"warn_after": {"count": 0, "period": "hour"}}, "has warn_after or error_after"),
        ({"warn_after": {"count": 3, "period": "eon"}}, "eon"),
        ({"error_after": {"count": "three", "period": "hour"}}, "expected int"),
    ],
)
def test_a_freshness_that_is_none_is_said(tmp_path: Path, criteria: object, words: str) -> None:
    told = result(ORDERS, "2024-07-01T00:00:00Z", "2024-07-01T06:00:00Z") | {"criteria": criteria}
    (tmp_path / "sources.json").write_text(json.dumps(artifact(told)), encoding="utf-8")
    refused(words, dbt_freshness, tmp_path)
