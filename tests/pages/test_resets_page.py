"""The page of estimators shows what beliefs that reset found, and what was saved keeps the bands."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "benchmarks" / "results" / "resets.json"
PAGE = ROOT / "docs" / "estimators.md"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "accuracy"))
    yield importlib.import_module("resets")
    sys.modules.pop("resets")


def test_the_page_shows_what_was_saved(benchmark: ModuleType) -> None:
    found, text = json.loads(SAVED.read_text(encoding="utf-8")), PAGE.read_text(encoding="utf-8")
    assert benchmark.page(text, found) == text


def test_estimates_keep_their_bands() -> None:
    rows = json.loads(SAVED.read_text(encoding="utf-8"))["estimates"]
    assert len(rows) == 12
    for row in rows:
        ratio = row["rmse learnt"][0] / row["rmse lasting averaged"][0]
        if row["reset"] == 0.0:
            assert ratio < 1.01
            continue
        for true, learnt, six in row["every"]:
            assert 0.5 < true / row["reset"] < 2.0
            assert 0.5 < learnt / row["reset"] < 2.0
            assert row["reset"] != 1 / 150 or six == pytest.approx(1 / 150)
        assert ratio < (0.8 if row["reset"] == 1 / 150 else 1.0)
    document = next(row for row in rows if (row["shape"], row["reset"]) == (1.5, 1 / 150))
    assert document["rmse learnt"][0] == pytest.approx(0.045, abs=0.005)
    assert document["rmse lasting averaged"][0] == pytest.approx(0.065, abs=0.01)


def test_plans_keep_their_bands() -> None:
    found = json.loads(SAVED.read_text(encoding="utf-8"))
    assert found["worlds"] == 10
    for row in found["plans"]:
        gain, error = row["with resets"]
        if row["reset"] == 0.0:
            assert abs(gain) < 1.0
        else:
            assert gain > 2.0 * error


@pytest.mark.exhaustive
def test_the_example_prints_what_it_shows() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Beliefs that reset")[1]
    block = re.search(r"```python\n(.*?)```\n```\n(.*?)```", section, re.DOTALL)
    assert block is not None
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(compile(block[1], "estimators.md", "exec"), {})
    assert shown.getvalue() == block[2]
