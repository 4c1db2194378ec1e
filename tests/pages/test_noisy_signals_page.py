"""The benchmark of noisy signals runs, and its page shows what was saved."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "benchmarks" / "results" / "noisy_signals.json"
FOUR = 4.0  # standard errors


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "accuracy"))
    yield importlib.import_module("noisy_signals")
    sys.modules.pop("noisy_signals")


def check(record: dict[str, Any], benchmark: ModuleType) -> None:
    assert [row["family"] for row in record["exactness"]] == list(benchmark.FAMILIES)
    assert all(max(row["length"], row["stale"], row["worth"]) < 1e-13 for row in record["exactness"])
    assert [row["signals"] for row in record["replayed"]] == list(benchmark.KINDS)
    assert all(abs(row["z"]) < FOUR and row["thresholds_error"] > 0.0 for row in record["replayed"])
    assert all(row["relative_gap"] < 1e-9 for row in record["speed"])


@pytest.mark.exhaustive
def test_a_quick_run_measures_and_saves_everything(tmp_path: Path, benchmark: ModuleType) -> None:
    script = str(ROOT / "benchmarks" / "accuracy" / "noisy_signals.py")
    command = [sys.executable, script, "--quick", "--save", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    record = json.loads((tmp_path / "benchmarks" / "results" / "noisy_signals.json").read_text())
    assert record["quick"] is True
    check(record, benchmark)
    assert (tmp_path / "docs" / "noisy-signals.md").read_text(encoding="utf-8") == benchmark.page(record)


def test_what_the_page_says_of_bonus_and_threshold_keeps_to_the_rate() -> None:
    page = (ROOT / "docs" / "noisy-signals.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(page.split("```python\n")[1].split("```")[0], "noisy-signals.md", "exec"), names)
    (row,) = names["thresholds"].iter_rows(named=True)
    assert row["source"] == "page"
    # Signals come at the rate g, whenever: crawl once time + bonus * signals reaches the threshold.
    rng, g = np.random.default_rng(0), float(names["model"].recall_[0] * names["change_rate"][0])
    g /= float(names["precision"][0])
    gaps = []
    for _ in range(20_000):
        at, heard = 0.0, 0
        while True:
            due = row["threshold"] - row["bonus"] * heard
            at_next = at + rng.exponential(1.0 / g)
            if at_next >= due:
                gaps.append(max(at, due))
                break
            at, heard = at_next, heard + 1
    error = np.std(gaps) / np.sqrt(len(gaps))
    assert abs(np.mean(gaps) - 1.0 / 0.5) < FOUR * error


def test_the_page_shows_what_was_saved_and_that_shows_what_is_said(benchmark: ModuleType) -> None:
    record = json.loads(SAVED.read_text(encoding="utf-8"))
    assert record["quick"] is False
    check(record, benchmark)
    assert (ROOT / "docs" / "noisy-signals.md").read_text(encoding="utf-8") == benchmark.page(record)
    for row in record["replayed"]:
        assert abs(row["crawls"] - 1.0) < 0.02
        assert abs(row["greedy"] / row["predicted"] - 1.0) < 0.01
        assert row["predicted"] > row["no_signals"] - 1e-9
    assert max(row["sources"] for row in record["speed"]) == 100_000
    missing = [row["best"] - row["fresh"] for row in record["learning"]]
    assert missing == sorted(missing, reverse=True)  # more crawls, less is missing
