"""The benchmark of slow inputs runs, its inputs are what they are called, and its table has the worst."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
N = 600


@pytest.fixture
def cliffs(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "speed"))
    yield importlib.import_module("cliffs")
    for name in ("cliffs", "speed", "speed_parts", "speed_rivals", "speed_scaling"):
        sys.modules.pop(name)


def test_every_family_is_a_problem_of_its_budget(cliffs: ModuleType) -> None:
    for family in cliffs.FAMILIES:
        for cell in (cliffs.cells()["harmonic"], cliffs.cells()["binary, signals"]):
            task = cliffs.problem(cell, family, 0.3, N)
            sources = task.sources
            assert task.bandwidth == pytest.approx(0.3 * float(np.sum(sources.change_rate)))
            assert (len(task.hosts) > 0) == (family == "hosts")
            assert 0.3 * N < np.sum(np.broadcast_to(sources.signalled, N)) < 0.7 * N or not cell.signals
    halves = cliffs.problem(cliffs.cells()["delay"], "max_rate on half", 0.3, N)
    assert np.sum(np.isfinite(halves.upper)) == N // 2
    assert len(set(cliffs.problem(cliffs.cells()["delay"], "all alike", 0.3, N).sources.change_rate)) == 1


def test_what_is_compiled_is_told_from_what_is_not(cliffs: ModuleType) -> None:
    found = {name for name, cell in cliffs.cells().items() if not cliffs.is_compiled(cell)}
    assert found <= {"expected penalty, root"}


def test_a_row_has_the_solve_and_its_proof(cliffs: ModuleType) -> None:
    row = cliffs.measure("harmonic", cliffs.cells()["harmonic"], "ties", 0.3, N, 1e-6)
    assert row["held"]
    assert row["gap"] < cliffs.PROVED
    assert row["over"] < 1e-13
    assert row["add"] == pytest.approx(row["seconds"] / 1e-6)
    assert (row["family"], row["budget"], row["n"]) == ("ties", 0.3, N)


def test_the_table_has_the_worst_of_each_cell_and_size(cliffs: ModuleType) -> None:
    base = {"cell": "x", "budget": 0.3, "passes": 3, "gap": 1e-16, "over": 0.0, "held": True}
    rows = [
        {**base, "family": family, "n": n, "seconds": add * 1e-3, "add": add}
        for n in (10**4, 10**7)
        for family, add in (("ties", 3.0), ("hosts", 70.0), ("w = d", 5.0))
    ]
    rows[0] = {**rows[0], "gap": 1e-5, "held": False}
    assert cliffs.worst(rows)["family"] == "hosts"
    assert not cliffs.worst(rows)["held"]
    page = f"before\n{cliffs.BEGIN}old\n{cliffs.END}after\n"
    filled = cliffs.filled(page, {"rows": rows})
    assert filled.startswith("before\n")
    assert filled.endswith("after\n")
    assert "| x | 70 ms | 70 ADD | hosts, budget 0.3 | 1e-05 |" in filled
    assert cliffs.filled(filled, {"rows": rows}) == filled


@pytest.mark.exhaustive
def test_a_quick_run_saves_what_it_prints(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "speed" / "cliffs.py"),
        "--quick",
        "--save",
        str(tmp_path),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    record = json.loads((tmp_path / "benchmarks" / "results" / "cliffs.json").read_text())
    assert record["quick"] is True
    assert all(row["gap"] is None or row["gap"] < 1e-9 for row in record["rows"])
    assert "| harmonic |" in (tmp_path / "docs" / "speed.md").read_text()
