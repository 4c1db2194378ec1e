"""Statuses and hosts of a log: rows are read only where the columns are there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars
import pytest

from freshopt.logs import log_files
from freshopt.logs.log_files import log_hosts, may_have
from freshopt.logs.read_log import fetch_statuses

ROWS: dict[str, Any] = {"url": ["a", "b"], "time": [1.0, 2.0], "changed": [0, 1]}


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_rows_are_not_read_for_columns_that_are_not_there(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, frame = tmp_path / f"log.{ending}", polars.DataFrame(ROWS)
    getattr(frame, f"write_{ending.replace('jsonl', 'ndjson')}")(path)
    assert may_have(path, ("source", "time", "status"), {"url": "source"}) == {"source", "time"}

    def refuse(*_: object) -> None:
        raise AssertionError("the rows were read")

    monkeypatch.setattr(log_files, "log_frame", refuse)
    monkeypatch.setattr(sys.modules["freshopt.logs.read_log"], "read_rows", refuse)
    assert fetch_statuses(path, {"url": "source"}) is None
    assert log_hosts(path, {"url": "source"}) is None


def test_statuses_count_beside_changed_too(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    frame = polars.DataFrame({**ROWS, "status": [503, 304], "host": ["x", "y"]}).rename({"url": "source"})
    for one in (frame, frame.drop("changed")):
        one.write_parquet(path)
        told = fetch_statuses(path)
        assert told is not None
        assert told.status.tolist() == [503.0, 304.0]
    assert log_hosts(path) == {"a": "x", "b": "y"}
