"""What learners are held against on recorded histories: the best static rates, by brute force; the page."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import freshopt as fo
from freshopt.simulation import missed_costs
from tests.ground_truth.tolerances import SCALAR

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "accuracy"))
    yield importlib.import_module("real_histories")
    sys.modules.pop("real_histories")


def world(seed: int = 0) -> fo.World:
    """Return two sources with bursts of changes and one that never changes."""
    rng = np.random.default_rng(seed)
    times = np.sort(
        np.concatenate([rng.uniform(0, 100, 5), rng.uniform(40, 45, 20), rng.uniform(0, 100, 60)])
    )
    events = {"source": rng.integers(0, 2, len(times)), "time": times}
    return fo.World.from_events(events, names=[0, 1, 2], start=10.0, horizon=100.0)


@pytest.mark.parametrize("kind", ["poisson", "periodic"])
def test_expected_freshness_is_what_visits_measure(bench: ModuleType, kind: str) -> None:
    recorded, rates = world(), np.array([0.3, 0.05, 0.2])
    rng, span, measured = np.random.default_rng(1), 90.0, []
    for _ in range(400):
        if kind == "poisson":
            count = rng.poisson(rates * span)
            source = np.repeat(np.arange(3), count)
            time = 10.0 + rng.uniform(0, span, len(source))
        else:
            visits = [np.arange(10.0 + rng.random() / rate, 100.0, 1.0 / rate) for rate in rates]
            source, time = np.repeat(np.arange(3), list(map(len, visits))), np.concatenate(visits)
        measured.append(1.0 - missed_costs(recorded, source, time, 100.0, begin=10.0).stale / span)
    stale = bench.stale_poisson if kind == "poisson" else bench.stale_periodic
    for k in range(3):
        weight = np.eye(3)[k]
        expected = bench.expected_freshness(recorded, weight, rates, stale)
        found = np.array(measured)[:, k]
        assert abs(found.mean() - expected) <= 4.0 * found.std() / 20.0 + SCALAR


@pytest.mark.parametrize("kind", ["poisson", "periodic"])
def test_no_static_rates_are_better_than_the_best(bench: ModuleType, kind: str) -> None:
    recorded, weight = world(2), np.array([1.0, 3.0, 5.0])
    stale = bench.stale_poisson if kind == "poisson" else bench.stale_periodic
    best = bench.best_static(recorded, weight, 0.6, stale)
    assert best.sum() == pytest.approx(0.6)
    assert best[2] < 1e-6  # never changes
    top = bench.expected_freshness(recorded, weight, best, stale)
    tried = [
        bench.expected_freshness(recorded, weight, np.array([x, 0.6 - x, 0.0]), stale)
        for x in np.linspace(0.001, 0.599, 500)
    ]
    assert max(tried) <= top + 1e-9
    assert max(tried) == pytest.approx(top, abs=1e-5)


def test_the_page_is_what_is_saved(bench: ModuleType) -> None:
    record = json.loads(bench.SAVED.read_text(encoding="utf-8"))
    assert bench.PAGE.read_text(encoding="utf-8") == bench.page(record)
    for row in record["rows"]:
        assert row["runs"] == record["runs"]
        assert row["share_of_the_way"][0] <= 1.0
    assert {row["policy"] for row in record["rows"] if row["learns"]} == set(bench.LEARNERS)
