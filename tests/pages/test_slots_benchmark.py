"""The benchmark of slots runs, and what it has saved shows what is said of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "benchmarks" / "results" / "slots.json"


@pytest.mark.exhaustive
def test_a_quick_run_saves_what_it_prints(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "speed" / "slots.py"),
        "--quick",
        "--save",
        str(tmp_path),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    record = json.loads((tmp_path / "benchmarks" / "results" / "slots.json").read_text())
    (day,) = record["days"]
    assert record["quick"] is True
    assert day["crawls"] == 150
    assert 0 < day["bound"] <= day["moved"] + 1e-6


def test_what_was_saved_is_proved_and_took_less_than_a_minute() -> None:
    record = json.loads(SAVED.read_text(encoding="utf-8"))
    assert record["quick"] is False
    assert {(day["crawls"], day["hosts"]) for day in record["days"]} == {(10_000, 100)}
    assert any(day["hosts_with_pauses_of_two_slots_or_more"] >= 90 for day in record["days"])
    for day in record["days"]:
        assert day["bound"] - 1e-6 * day["moved"] <= day["moved"]
        assert day["relative_gap"] < 1e-3
        assert day["proof"] == "branch and bound" or day["moved"] - day["bound"] < 1.0
