"""The page on back-tests shows what was saved, and the stated bands are judged by it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from freshopt.planning import policies
from freshopt.problems import BinaryFreshness

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "benchmarks" / "results" / "policies.json"
PAGE = ROOT / "docs" / "backtest.md"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "accuracy"))
    yield importlib.import_module("policies")
    sys.modules.pop("policies")


def test_the_page_shows_what_was_saved(benchmark: ModuleType) -> None:
    found, text = json.loads(SAVED.read_text(encoding="utf-8")), PAGE.read_text(encoding="utf-8")
    for name, table in benchmark.tables(found).items():
        assert f"<!-- {name} -->\n{table}\n<!-- end of {name} -->" in text
    assert (ROOT / "docs" / "policies.png").is_file()
    assert found["bands"] == benchmark.bands(found["rows"])
    assert [each["holds"] for each in found["bands"]] == [True] * len(benchmark.BANDS)


def test_a_run_of_the_bundled_history(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of two crawls: changes are those of the history, and hindsight is the end of the way."""
    for name, value in {"MOST": 60, "TEST": 6, "OBJECTIVES": {"binary": BinaryFreshness()}}.items():
        monkeypatch.setattr(benchmark, name, value)
    history = benchmark.History("debian-uploads", None)
    rng = np.random.default_rng(0)
    made = benchmark.window_of(history, 800.0, 2, rng)
    assert made is not None
    window, weight = made
    assert len(weight) == len(window.past.sources_) <= benchmark.MOST
    assert window.past.time.max() == pytest.approx(800.0)
    assert np.bincount(window.past.source_index).tolist() == [3] * len(weight)
    assert (window.begin, window.end) == (800.0, 842.0)
    offsets, time = window.world.events(-np.inf, np.inf)
    for k in range(0, len(weight), 7):
        own, crawls = time[offsets[k] : offsets[k + 1]], window.past.time[3 * k : 3 * k + 3]
        found = [bool(np.any((own > a) & (own <= b))) for a, b in pairwise(crawls)]
        assert window.past.changed[3 * k + 1 : 3 * k + 3].tolist() == found
    cells = benchmark.run(window, weight, 0)["binary"]
    assert set(benchmark.SHOWN) <= set(cells)
    assert all(gap > 0.0 for gap in cells["gap"])
    assert max(cells[policies.UNIFORM]) < 100.0


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "accuracy"))
    yield importlib.import_module("hidden_changes")
    sys.modules.pop("hidden_changes")


def test_the_page_shows_what_was_measured_of_hidden_changes(hidden: ModuleType) -> None:
    found, text = json.loads(hidden.SAVED.read_text(encoding="utf-8")), PAGE.read_text(encoding="utf-8")
    assert hidden.page(text, found) == text
    assert found["origin"] == "our own"
    assert (found["seeds"], len(found["rows"])) == (200, len(hidden.RHYTHMS) * len(hidden.OBJECTIVES))
    for row in found["rows"]:
        assert row["holds"] == hidden.judged(row) == dict.fromkeys(row["holds"], True)


def test_a_small_run_of_six_rhythms(hidden: ModuleType) -> None:
    """The ratio is 1 within its errors where the log's own is not, and a placebo is seldom claimed."""
    found = [row for rhythm in hidden.RHYTHMS for row in hidden.measured(rhythm, 2, 30)]
    assert [row["rhythm"] for row in found[::2]] == list(hidden.RHYTHMS)
    ratio = [row["log"]["realised/predicted"] for row in found]
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.08)
    assert np.mean([row["as found"]["realised/predicted"] for row in found]) < 0.9
    assert np.mean([row["log"]["within two errors"] for row in found]) >= 0.9
    assert np.mean([row["log"]["placebos claimed"] for row in found]) <= 0.1
