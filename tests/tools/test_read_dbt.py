"""dbt's freshness artifacts: what is read as a crawl, and the one line that says what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.tools import read_dbt

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


def rows(log: CrawlLog) -> dict[str, list[tuple[float, bool]]]:
    return {
        name: [
            (round(log.time[k], 6), bool(log.changed[k])) for k in range(log.offsets[i], log.offsets[i + 1])
        ]
        for i, name in enumerate(log.sources_.tolist())
    }


def test_a_source_changed_if_what_was_loaded_last_is_new(folder: Path) -> None:
    log = read_dbt(folder)
    begin = round(0.25 + 0.508 / 86400, 6)
    assert rows(log) == {
        ORDERS: [(begin, False), (begin + 1, True), (begin + 2, False)],
        USERS: [(begin, False), (begin + 2, True)],  # emptied; the run that failed says nothing
    }
    assert log.origin is not None
    assert log.origin.isoformat() == "2024-07-01T00:00:00+00:00"
    assert log.last_modified is not None
    # Loaded at 23:00 of the day before the first run, and on the first day; users a month earlier.
    hour = 1.0 / 24.0
    expected = [-hour + 0.57 / 86400, 23 * hour, None, -30.0, None]
    assert [None if x != x else round(x, 6) for x in log.last_modified.tolist()] == [
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
    with pytest.raises(
        SourceDataError, match=r"sources-wrong.json and .*sources.json have different max_loaded_at"
    ):
        read_dbt(folder)
