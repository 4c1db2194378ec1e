"""The replay benchmark runs, and its page shows what was saved."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "benchmarks" / "results" / "replay.json"
FOUR = 4.0  # standard errors


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "accuracy"))
    yield importlib.import_module("replay")
    sys.modules.pop("replay")


def check(record: dict[str, Any], benchmark: ModuleType) -> None:
    rows = record["disciplines"]
    assert len(rows) == len({(row["objective"], row["schedule"]) for row in rows}) == 4 * 9
    assert all(abs(row["z"]) < FOUR and row["error"] > 0.0 for row in rows)
    measured = record["loads"] + record["greedy"]
    assert {row["method"] for row in measured} == {*benchmark.METHODS, "replay"}
    assert all(row["peak_mb"] > 0 and math.isfinite(row["seconds"]) for row in measured)


@pytest.mark.exhaustive
def test_a_quick_run_measures_saves_and_draws_everything(tmp_path: Path, benchmark: ModuleType) -> None:
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "accuracy" / "replay.py"),
        "--quick",
        "--save",
        str(tmp_path),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    record = json.loads((tmp_path / "benchmarks" / "results" / "replay.json").read_text())
    assert record["quick"] is True
    check(record, benchmark)
    assert (tmp_path / "docs" / "schedules.md").read_text(encoding="utf-8") == benchmark.page(record)
    assert (tmp_path / "docs" / "load.png").read_bytes()[:4] == b"\x89PNG"


def test_the_page_shows_what_was_saved_and_that_shows_what_is_said(benchmark: ModuleType) -> None:
    record = json.loads(SAVED.read_text(encoding="utf-8"))
    assert record["quick"] is False
    check(record, benchmark)
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    assert page == benchmark.page(record)
    for row in record["disciplines"]:
        if row["schedule"].startswith(("Periodic", "Carousel")):
            assert abs(row["excess"]) < 0.01
        if row["schedule"].startswith("Poisson"):
            assert row["excess"] > 0.1
    busiest = {row["method"]: row["busiest_minute"] for row in record["loads"] if "busiest_minute" in row}
    assert busiest["Carousel"] < 1.002 < busiest["Periodic"] < 1.02 < busiest["PoissonArrivals"]
    assert {row["sources"] for row in record["loads"] + record["greedy"]} == {1_000_000}
    fresh = {
        (row["history"], row["rates"]): row["fresh"]
        for row in record["histories"]
        if row["schedule"] == "Periodic"
    }
    assert len(fresh) == 8
    for history, _ in fresh:
        assert (
            fresh[history, "optimal"]
            > fresh[history, "uniform"]
            > fresh[history, "proportional, not smoothed"]
        )
