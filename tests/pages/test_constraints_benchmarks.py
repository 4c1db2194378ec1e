"""The benchmarks of declared constraints run, and what they have saved is what they state."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FAMILIES = {
    "budgets": 186,
    "targets": 96,
    "ε-constraint": 48,
    "nested limits and reserves": 156,
    "nested targets": 156,
    "minimax": 112,
    "leximin": 20,
    "infeasible": 60,
    "linear programs": 180,
}


def ran(*command: str) -> str:
    found = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert found.returncode == 0, found.stderr
    return found.stdout


def read(path: Path) -> Any:  # noqa: ANN401 - whatever JSON holds
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.exhaustive
def test_quick_runs_of_accuracy_and_rivals_save_what_they_print(tmp_path: Path) -> None:
    saved = tmp_path / "constraints.json"
    told = ran("-m", "benchmarks.accuracy.constraints", "--quick", "--save", str(saved))
    assert "NOT MET" not in told
    record = read(saved)
    assert record["quick"] is True
    assert {row["family"] for row in record["rows"]} == {*FAMILIES, "certificate fuzz"}
    saved = tmp_path / "rivals.json"
    ran("-m", "benchmarks.accuracy.constraints_rivals", "--quick", "--save", str(saved))
    record = read(saved)
    assert all(row["met"] for row in record["agreement"] if not row["ill"])
    assert {row["kind"] for row in record["time"]} == {"budgets", "targets", "ε-constraint", "nested"}


@pytest.mark.exhaustive
def test_a_quick_run_of_speed_saves_every_work(tmp_path: Path) -> None:
    ran("benchmarks/speed/constraints_speed.py", "--quick", "--save", str(tmp_path))
    *solved, short = read(tmp_path / "benchmarks" / "results" / "constraints_speed.json")["rows"]
    assert short["same bits"] is True
    assert len(solved) == 8
    for row in solved:
        assert row["status"] == "optimal"
        assert row["gap"] <= 1e-12


def test_the_saved_accuracy_is_that_of_all_instances() -> None:
    record = read(RESULTS / "constraints.json")
    rows = {row["family"]: row for row in record["rows"]}
    assert record["quick"] is False
    assert {name: rows[name]["instances"] for name in FAMILIES} == FAMILIES
    fuzz = rows["certificate fuzz"]
    assert fuzz["checks"] >= 10_000
    assert fuzz["violations"] == 0
    assert fuzz["halved"] > 100
    assert rows["infeasible"]["false alarms"] == 0
    for row in rows.values():
        assert row["met"] == (not row.get("outside") and not row.get("errors")), row["family"]


def test_the_saved_comparison_agrees_where_data_are_benign() -> None:
    record = read(RESULTS / "constraints_rivals.json")
    benign = [row for row in record["agreement"] if not row["ill"]]
    assert len(benign) == 5
    assert all(row["met"] for row in benign)
    assert all(row["ratio"] > 0.0 for row in record["time"])
