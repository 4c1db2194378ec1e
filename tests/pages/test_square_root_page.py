"""The page of the square-root rule: its tables are the saved results, and these can be computed anew."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import freshopt as fo
from freshopt.problems import BinaryFreshness

ROOT = Path(__file__).parents[2]
SAVED: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / "sqrt_baseline.json").read_text())


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "accuracy"))
    yield importlib.import_module("sqrt_baseline")
    sys.modules.pop("sqrt_baseline")


def test_the_page_has_the_saved_results(benchmark: ModuleType) -> None:
    page = benchmark.PAGE.read_text(encoding="utf-8")
    assert benchmark.filled(page, SAVED) == page
    assert benchmark.PICTURE.exists()


def test_statements_were_judged_by_their_bands(benchmark: ModuleType) -> None:
    assert [row["family"] for row in SAVED["statements"]] == [one.family for one in benchmark.STATEMENTS]
    for row, one in zip(SAVED["statements"], benchmark.STATEMENTS, strict=True):
        assert row["band"] == [one.low, one.high if np.isfinite(one.high) else None]
        ends = (row["least"], row["largest"]) if one.of == "each" else (row["mean"], row["mean"])
        assert row["held"] == (ends[0] >= one.low - 1e-9 and ends[1] <= one.high)
        assert row["runs"] >= 4
    assert not all(row["held"] for row in SAVED["statements"])


def test_what_the_page_says_is_in_the_results() -> None:
    def largest(family: str, objective: str, multiple: float) -> float:
        excess: list[float] = [
            run["excess"]
            for run in SAVED["runs"]
            if (run["family"], run["objective"], run["bandwidth"]) == (family, objective, multiple)
        ]
        return max(excess)

    assert max(largest("plain", "harmonic", multiple) for multiple in (1.0, 2.0, 4.0)) < 0.0125
    assert 0.06 < largest("plain", "binary", 1.0) < 0.07
    assert largest("plain", "binary", 2.0) > 0.02 > largest("plain", "binary", 4.0)
    rows = {row["family"]: row for row in SAVED["statements"]}
    for family, low, high in (("scarce", 0.155, 0.325), ("age", 0.115, 0.485)):
        assert low < rows[family]["least"] <= rows[family]["largest"] < high
    assert 0.12 < rows["signals"]["largest"] < 0.13


def test_a_point_of_the_map_is_computed_anew(benchmark: ModuleType) -> None:
    panel = SAVED["map"]["panels"]["stale share, equal importances"]
    row, column = 6, 9
    rates = np.exp(SAVED["map"]["spreads"][row] * ndtri((np.arange(benchmark.N) + 0.5) / benchmark.N))
    bandwidth = SAVED["map"]["multiples"][column] * float(rates.sum())
    problem = fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), fo.Sources(rates), bandwidth)
    assert benchmark.excess(problem) == pytest.approx(panel[row][column], rel=1e-6)
    # The rule itself, and Cho & Garcia-Molina's freshness at equal intervals, written out.
    u = rates * np.sqrt(rates).sum() / (bandwidth * np.sqrt(rates))
    stale = float(np.sum(1.0 + np.expm1(-u) / u))
    best = len(rates) - fo.solve(problem).value
    assert stale / best - 1.0 == pytest.approx(panel[row][column], rel=1e-6)
