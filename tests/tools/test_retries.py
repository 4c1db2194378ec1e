"""Failed fetches that a tool retries at once: intervals of successes, attempts within the bandwidth."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.problems import BinaryFreshness
from freshopt.scheduling import Periodic, retried_at_once
from freshopt.tools import CacheControl, StormCrawler, TextTemplate, export

PERIODIC = fo.Refresh.PERIODIC
DAY = 86_400.0
BANDWIDTH = 30.0


def failing(scale: float = 1.0) -> fo.Sources:
    rng = np.random.default_rng(8)
    return fo.Sources(
        scale * 10.0 ** rng.uniform(-1.0, 1.0, 12),
        importance=10.0 ** rng.uniform(-1.0, 1.0, 12),
        name=[f"p{k}" for k in range(12)],
        success=rng.uniform(0.15, 1.0, 12),
    )


def written(given: object, path: Path, *, retry_at_once: bool = False) -> dict[str, float]:
    """Return the intervals of a file, in days."""
    export(given, TextTemplate("{source} {seconds}"), path, retry_at_once=retry_at_once)
    lines = [line.split() for line in path.read_text().splitlines()]
    return {name: int(seconds) / DAY for name, seconds in lines}


def test_attempts_keep_to_the_bandwidth_and_copies_are_as_fresh_as_predicted(tmp_path: Path) -> None:
    """Event by event: at each interval of the file a fetch is tried until it succeeds."""
    sources = failing()
    assert sources.success is not None
    solution = fo.solve(fo.Problem(BinaryFreshness(PERIODIC), retried_at_once(sources), bandwidth=BANDWIDTH))
    waiting = fo.solve(fo.Problem(BinaryFreshness(PERIODIC), sources, bandwidth=BANDWIDTH))
    assert solution.value > waiting.value
    intervals = written(solution, tmp_path / "retried")
    rng = np.random.default_rng(5)
    fresh, variance, attempts, noise = 0.0, 0.0, 0.0, 0.0
    for k, (d, w, s) in enumerate(zip(sources.change_rate, sources.importance, sources.success, strict=True)):
        every = intervals.get(f"p{k}")
        if every is None:
            continue
        tries = rng.geometric(s, 40_000)
        share = np.minimum(rng.exponential(1.0 / d, 40_000), every) / every
        fresh += w * float(np.mean(share))
        variance += w**2 * float(np.var(share)) / 40_000
        attempts += float(np.mean(tries)) / every
        noise += float(np.var(tries)) / 40_000 / every**2
    assert attempts < BANDWIDTH + 3.0 * math.sqrt(noise)
    assert attempts > BANDWIDTH * 0.999 - 3.0 * math.sqrt(noise)
    assert abs(fresh - solution.value) < 3.0 * math.sqrt(variance)


def test_replay_of_successes_is_the_prediction() -> None:
    retried = retried_at_once(failing())
    solution = fo.solve(fo.Problem(BinaryFreshness(PERIODIC), retried, bandwidth=BANDWIDTH))
    found = fo.replay(fo.schedule(solution, 300.0, Periodic()), fo.World.poisson(retried, seed=2), skip=5.0)
    assert abs(found.of(BinaryFreshness(PERIODIC)).z(solution.value)) < 3.0


def test_attempts_are_written_as_intervals_of_successes(tmp_path: Path) -> None:
    sources = failing()
    assert sources.success is not None
    solution = fo.solve(fo.Problem(BinaryFreshness(PERIODIC), sources, bandwidth=BANDWIDTH))
    rates = dict(zip([f"p{k}" for k in range(12)], (solution.rates * sources.success).tolist(), strict=True))
    for name, given in (("solution", solution), ("table", solution.to_frame())):
        found = written(given, tmp_path / name, retry_at_once=True)
        assert found.keys() == {source for source, rate in rates.items() if rate > 0.0}
        for source, every in found.items():
            assert 1.0 / rates[source] <= every * (1.0 + 1e-9) < 1.0 / rates[source] + 1.0 / DAY + 1e-9
    plain = written(solution, tmp_path / "attempts")
    assert all(
        every > plain[source]
        for source, every in written(solution, tmp_path / "x", retry_at_once=True).items()
    )


@pytest.mark.parametrize("scale", [1e-6, 1e4])
@pytest.mark.parametrize("share", [1e-3, 20.0])
def test_ill_scaled_attempts_keep_to_the_bandwidth(scale: float, share: float) -> None:
    sources = failing(scale)
    assert sources.success is not None
    limit = share * float(np.sum(sources.change_rate))
    solution = fo.solve(fo.Problem(BinaryFreshness(PERIODIC), retried_at_once(sources), bandwidth=limit))
    assert float(np.sum(solution.rates / sources.success)) <= limit * (1.0 + 1e-12)
    assert solution.certificate is not None
    assert solution.certificate.relative_gap < 1e-9


def test_what_has_no_failures_or_no_intervals_is_refused(tmp_path: Path) -> None:
    target = StormCrawler()
    rates = {"https://a.org/": 1.0}
    with pytest.raises(fo.SourceDataError, match=r"have no column 'success'"):
        export(rates, target, tmp_path / "a", retry_at_once=True)
    with pytest.raises(fo.SourceDataError, match=r"lifetimes are of fetches that succeed"):
        export({"a": 1.0}, CacheControl(), tmp_path / "b", retry_at_once=True)
    wrong = pl.DataFrame({"source": ["https://a.org/"], "rate": [1.0], "success": [0.0]})
    with pytest.raises(fo.SourceDataError, match=r"success out of range for 'https://a.org/': 0"):
        export(wrong, target, tmp_path / "c", retry_at_once=True)
    assert not list(tmp_path.iterdir())


def test_what_a_changed_source_brings_is_paid_once() -> None:
    retried = retried_at_once(fo.Sources([1.0], success=0.5, changed_cost=3.0))
    assert retried.refresh_cost.tolist() == [2.0]
    assert retried.changed_cost is not None
    assert retried.changed_cost.tolist() == [3.0]
