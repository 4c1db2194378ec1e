"""The page of dates of last change shows what was saved, and what was saved keeps what the page claims."""

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
SAVED = ROOT / "benchmarks" / "results" / "last_modified.json"
PAGE = ROOT / "docs" / "last-modified.md"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "accuracy"))
    yield importlib.import_module("last_modified")
    sys.modules.pop("last_modified")


def test_the_page_shows_what_was_saved(benchmark: ModuleType) -> None:
    found, text = json.loads(SAVED.read_text(encoding="utf-8")), PAGE.read_text(encoding="utf-8")
    assert benchmark.page(text, found) == text
    for row in found["simulated"]:
        assert 0.95 < row["sum"] < 1.05
        assert row["birth_rate"] == pytest.approx(row["births"], rel=0.1, abs=1e-5)
    least = {"scoop_packages": (30.0, 25.0, 10.0), "eol_releases": (22.0, 13.0, 6.0)}
    for name, gains in least.items():
        rows = [row for row in found["histories"] if row["history"] == name]
        assert [row["crawls"] for row in rows] == [2, 5, 20]
        for row, gain in zip(rows, gains, strict=True):
            assert row["last_modified, record's begin"]["gain"] >= gain
            assert row["last_modified"]["gain"] > 0.0


def test_the_replay_is_the_mean_over_phases(benchmark: ModuleType) -> None:
    times = [np.array([1.0, 1.5, 4.0, 9.0]), np.array([]), np.array([2.0, 2.25])]
    window = benchmark.Window(times, 0.0, 10.0)
    for interval in (0.7, 3.0, 25.0):
        x = (np.arange(20_000) + 0.5) / 2000.0
        for k, changes in enumerate(times):
            expected = np.zeros(2)
            for phase in (np.arange(200) + 0.5) / 200.0:
                crawl = np.floor(x / interval + phase) * interval - phase * interval
                missed = np.searchsorted(changes, x, side="right") - np.searchsorted(
                    changes, crawl, side="right"
                )
                harmonic = np.cumsum(np.concatenate([[0.0], 1.0 / np.arange(1.0, 6.0)]))
                expected += [np.mean(missed > 0) / 200.0, np.mean(harmonic[missed]) / 200.0]
            for which in (0, 1):
                found = window.cost(np.full(3, interval), bool(which))[k]
                assert found == pytest.approx(expected[which], abs=2e-3)


def test_a_simulated_run_learns(benchmark: ModuleType) -> None:
    row = benchmark.simulated(0.01, 3, n=800)
    assert row["birth_rate"] == pytest.approx(0.01, rel=0.3)
    assert row["rms"] < row["rms without dates"]
