"""The benchmark of slow inputs runs, its inputs are what they are called, and its table has the worst."""

from __future__ import annotations

import numpy as np
import pytest

from tests.pages.measured import module

N = 600


cliffs = module("speed.cliffs")


def test_every_family_is_a_problem_of_its_budget() -> None:
    for family in cliffs.FAMILIES:
        for cell in (cliffs.CELLS["harmonic"], cliffs.CELLS["binary, signals"]):
            task = cliffs.problem(cell, family, 0.3, N)
            sources = task.sources
            assert task.bandwidth == pytest.approx(0.3 * float(np.sum(sources.change_rate)))
            assert (len(task.hosts) > 0) == (family == "hosts")
            assert 0.3 * N < np.sum(np.broadcast_to(sources.signalled, N)) < 0.7 * N or not cell.signals
    halves = cliffs.problem(cliffs.CELLS["delay"], "max_rate on half", 0.3, N)
    assert np.sum(np.isfinite(halves.upper)) == N // 2
    assert len(set(cliffs.problem(cliffs.CELLS["delay"], "all alike", 0.3, N).sources.change_rate)) == 1


def test_every_cell_and_budget_has_the_same_data() -> None:
    one = cliffs.problem(cliffs.CELLS["delay"], "hosts", 0.3, N)
    other = cliffs.problem(cliffs.CELLS["age, signals"], "hosts", 0.9, N)
    assert np.array_equal(one.sources.change_rate, other.sources.change_rate)
    assert np.allclose(other.hosts.limits, 3.0 * one.hosts.limits, rtol=1e-12)
    assert 0.3 * 0.5 * N < len(one.hosts) * 30 < 3.0 * 0.5 * N


def test_what_is_compiled_is_told_from_what_is_not() -> None:
    found = {name for name, cell in cliffs.CELLS.items() if not cliffs.is_compiled(cell)}
    assert found <= {"expected penalty, root"}


def test_a_row_has_the_solve_and_its_proof() -> None:
    row = cliffs.measure(cliffs.CELLS["harmonic"], cliffs.Input("harmonic", "ties", 0.3, N), 1e-6)
    assert row["held"]
    assert row["gap"] < cliffs.PROVED
    assert row["over"] < 1e-13
    assert row["add"] == pytest.approx(row["seconds"] / 1e-6)
    assert (row["family"], row["budget"], row["n"]) == ("ties", 0.3, N)


def rows_of(times: dict[str, float], n: int) -> list[dict[str, object]]:
    base = {"cell": "x", "budget": 0.3, "passes": 3, "gap": 1e-16, "over": 0.0, "held": True, "n": n}
    return [{**base, "family": family, "seconds": add * 1e-3, "add": add} for family, add in times.items()]


def test_the_slowest_inputs_are_measured_with_more_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {family: float(place) for place, family in enumerate(cliffs.FAMILIES)}
    asked = []

    def measured(_cell: object, which: tuple[str, str, float, int], _add: float) -> dict[str, object]:
        asked.append(which)
        row = rows_of({which[1]: times[which[1]] + which[2]}, which[3])[0]
        return {**row, "cell": which[0], "budget": which[2]}

    monkeypatch.setattr(cliffs, "measure", measured)
    sizes = cliffs.Sizes((10, 20), ((30, 3), (40, 1)), (0.1, 0.2))
    cliffs.walk({"delay": cliffs.CELLS["delay"]}, sizes, dict.fromkeys((10, 20, 30, 40), 1.0))
    by_size = {n: [(family, budget) for _, family, budget, size in asked if size == n] for n in (10, 30, 40)}
    assert len(by_size[10]) == 2 * len(cliffs.FAMILIES)
    last = list(cliffs.FAMILIES)[-3:]
    assert by_size[30] == [(family, 0.2) for family in (cliffs.ALIKE, *last)]
    assert by_size[40] == [(family, 0.2) for family in (cliffs.ALIKE, last[-1])]


def test_verdicts_are_of_the_largest_size_and_name_what_is_not_proved() -> None:
    rows = rows_of({"hosts": 900.0}, 10) + rows_of({"hosts": 70.0, cliffs.ALIKE: 26.0}, 1000)
    rows[0]["held"] = False
    told = cliffs.verdicts(rows)
    assert told[0] == "any input, 1,000 sources: 70.0 ADD, to hold 80: met"
    assert told[1] == "all alike, 1,000 sources: 26.0 ADD, to hold 25: NOT MET"
    assert told[2:] == ["NOT PROVED: x, hosts, budget 0.3, 10 sources"]


def test_the_table_has_the_worst_of_each_cell_and_size() -> None:
    rows = [row for n in (10**4, 10**7) for row in rows_of({"ties": 3.0, "hosts": 70.0, "w = d": 5.0}, n)]
    rows[0] = {**rows[0], "gap": 1e-5, "held": False}
    assert cliffs.worst(rows)["family"] == "hosts"
    assert not cliffs.worst(rows)["held"]
    (row,) = cliffs.table({"rows": rows})
    shown = {"10000": "70 ms", "100000": "", "1000000": "", "10000000": "70 ADD"}
    assert row == {"cell": "x", "where": "hosts, budget 0.3", "gap": 1e-5, **shown}
