"""The page of hours of the week shows what was saved, and that keeps what the benchmark expects."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "benchmarks" / "results" / "phases.json"
PAGE = ROOT / "docs" / "weekly-profile.md"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "accuracy"))
    yield importlib.import_module("phases")
    sys.modules.pop("phases")


def test_the_page_shows_what_was_saved(benchmark: ModuleType) -> None:
    found, text = json.loads(SAVED.read_text(encoding="utf-8")), PAGE.read_text(encoding="utf-8")
    assert benchmark.page(text, found) == text
    assert list(found["histories"]) == [benchmark.PLACEBO, benchmark.BUNDLED, *benchmark.HISTORIES]


def test_what_was_saved_is_what_was_expected(benchmark: ModuleType) -> None:
    found = json.loads(SAVED.read_text(encoding="utf-8"))["histories"]
    weekly = {name: next(one for one in row["gaps"] if one["gap"] == 7.0) for name, row in found.items()}
    for kind in ("all changes", "log", "dated log"):
        assert weekly["eol_releases"][kind] == pytest.approx(15.0, abs=2.0)
        assert weekly["scoop_packages"][kind] == pytest.approx(7.0, abs=1.0)
        assert weekly[benchmark.PLACEBO][kind] == pytest.approx(0.0, abs=1.5)
    for kind in ("log", "dated log"):
        assert all(one[f"{kind}, gated"] == 0.0 for one in found[benchmark.PLACEBO]["gaps"])
        assert max(found[benchmark.PLACEBO][f"{kind}, evidence"]) < 8.0
        assert min(found["eol_releases"][f"{kind}, evidence"]) > 30.0


def test_the_replay_is_that_of_refreshes_one_by_one(benchmark: ModuleType) -> None:
    changes = [np.array([0.5, 1.0, 3.2, 8.1]), np.empty(0), np.array([2.0, 5.0, 5.5])]
    record = benchmark.Record(changes, np.zeros(3), np.full(3, 10.0))
    record.split = 4.0
    phases, found = benchmark.phases_of(7.0), benchmark.costs_of(record, np.arange(3), 7.0)
    x = 4.0 + (np.arange(6000) + 0.5) / 1000.0
    for at in (0, 40, 100, 167):
        refresh = np.floor((x - phases[at]) / 7.0) * 7.0 + phases[at]
        for k, own in enumerate(changes):
            stale = np.searchsorted(own, x) > np.searchsorted(own, refresh, side="right")
            assert found[at, k] == pytest.approx(stale.mean(), abs=2e-3)
