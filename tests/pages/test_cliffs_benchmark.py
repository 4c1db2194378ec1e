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
    for name in ("cliffs", "cliff_inputs", "speed", "speed_parts", "speed_rivals", "speed_scaling"):
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


def test_every_cell_and_budget_has_the_same_data(cliffs: ModuleType) -> None:
    one = cliffs.problem(cliffs.cells()["delay"], "hosts", 0.3, N)
    other = cliffs.problem(cliffs.cells()["age, signals"], "hosts", 0.9, N)
    assert np.array_equal(one.sources.change_rate, other.sources.change_rate)
    assert np.allclose(other.hosts.limits, 3.0 * one.hosts.limits, rtol=1e-12)
    assert 0.3 * 0.5 * N < len(one.hosts) * 30 < 3.0 * 0.5 * N


def test_what_is_compiled_is_told_from_what_is_not(cliffs: ModuleType) -> None:
    found = {name for name, cell in cliffs.cells().items() if not cliffs.is_compiled(cell)}
    assert found <= {"expected penalty, root"}


def test_a_row_has_the_solve_and_its_proof(cliffs: ModuleType) -> None:
    row = cliffs.measure(cliffs.cells()["harmonic"], cliffs.Input("harmonic", "ties", 0.3, N), 1e-6)
    assert row["held"]
    assert row["gap"] < cliffs.PROVED
    assert row["over"] < 1e-13
    assert row["add"] == pytest.approx(row["seconds"] / 1e-6)
    assert (row["family"], row["budget"], row["n"]) == ("ties", 0.3, N)


def rows_of(times: dict[str, float], n: int) -> list[dict[str, object]]:
    base = {"cell": "x", "budget": 0.3, "passes": 3, "gap": 1e-16, "over": 0.0, "held": True, "n": n}
    return [{**base, "family": family, "seconds": add * 1e-3, "add": add} for family, add in times.items()]


def test_the_slowest_inputs_are_measured_with_more_sources(
    cliffs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {family: float(place) for place, family in enumerate(cliffs.FAMILIES)}
    asked = []

    def measured(_cell: object, which: tuple[str, str, float, int], _add: float) -> dict[str, object]:
        asked.append(which)
        row = rows_of({which[1]: times[which[1]] + which[2]}, which[3])[0]
        return {**row, "cell": which[0], "budget": which[2]}

    monkeypatch.setattr(cliffs, "measure", measured)
    sizes = cliffs.Sizes((10, 20), ((30, 3), (40, 1)), (0.1, 0.2))
    cliffs.walk({"delay": cliffs.cells()["delay"]}, sizes, dict.fromkeys((10, 20, 30, 40), 1.0))
    by_size = {n: [(family, budget) for _, family, budget, size in asked if size == n] for n in (10, 30, 40)}
    assert len(by_size[10]) == 2 * len(cliffs.FAMILIES)
    last = list(cliffs.FAMILIES)[-3:]
    assert by_size[30] == [(family, 0.2) for family in (cliffs.ALIKE, *last)]
    assert by_size[40] == [(family, 0.2) for family in (cliffs.ALIKE, last[-1])]


def test_verdicts_are_of_the_largest_size_and_name_what_is_not_proved(cliffs: ModuleType) -> None:
    rows = rows_of({"hosts": 900.0}, 10) + rows_of({"hosts": 70.0, cliffs.ALIKE: 26.0}, 1000)
    rows[0]["held"] = False
    told = cliffs.verdicts(rows)
    assert told[0] == "any input, 1,000 sources: 70.0 ADD, to hold 80: met"
    assert told[1] == "all alike, 1,000 sources: 26.0 ADD, to hold 25: NOT MET"
    assert told[2:] == ["NOT PROVED: x, hosts, budget 0.3, 10 sources"]


def test_the_table_has_the_worst_of_each_cell_and_size(cliffs: ModuleType) -> None:
    rows = [row for n in (10**4, 10**7) for row in rows_of({"ties": 3.0, "hosts": 70.0, "w = d": 5.0}, n)]
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
