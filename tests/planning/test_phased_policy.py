"""Good phases of the week in a back-test: claimed where changes peak, and not where they do not."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import BinaryFreshness

MONDAY = np.datetime64("2024-01-01")
WEEKS, SOURCES = 60, 80


def held(*, dated: bool, peaks: bool, load_limit: float = 2.0) -> fo.BackTest:
    """Sources that change on Tuesdays about ten, or at any hour; 130 crawls of each at random times."""
    rng = np.random.default_rng(4)
    share = rng.uniform(0.2, 0.9, SOURCES)
    source, week = np.nonzero(rng.random((SOURCES, WEEKS)) < share[:, None])
    hour = 1.0 + 10.0 / 24.0 + rng.normal(0.0, 0.1, len(week)) if peaks else rng.uniform(0.0, 7.0, len(week))
    time = np.minimum(7.0 * week + hour, 7.0 * WEEKS)
    crawls = np.sort(rng.uniform(0.0, 7.0 * WEEKS, (SOURCES, 130)), axis=1)
    found = np.zeros(crawls.shape, dtype=bool)
    for k in range(SOURCES):
        passed = np.searchsorted(np.sort(time[source == k]), crawls[k], side="right")
        found[k] = np.diff(passed, prepend=0) > 0

    def clock(days: np.ndarray) -> np.ndarray:
        return MONDAY + np.rint(days * 86_400e6).astype("m8[us]") if dated else days

    begin, end = clock(np.array([0.0, 7.0 * WEEKS]))
    history = fo.ChangeHistory(source, clock(time), begin, end, sources=np.arange(SOURCES))
    log = fo.CrawlLog(np.repeat(np.arange(SOURCES), 130), clock(crawls.ravel()), found.ravel())
    objective = BinaryFreshness(fo.Refresh.PERIODIC)
    return fo.backtest(
        log, SOURCES / 7.0, history=history, objective=objective, splits=2, load_limit=load_limit
    )


@pytest.mark.parametrize("dated", [True, False])
@pytest.mark.sampled(2)
def test_peaks_are_used_and_the_gain_is_claimed(dated: bool) -> None:
    found = held(dated=dated, peaks=True)
    row = next(row for row in found.means if row.policy == "plan, phased")
    assert row.saving is not None
    assert row.saving > 0.3
    assert row.predicted == pytest.approx(row.realised, rel=0.1)
    assert row.refreshes == pytest.approx(SOURCES / 7.0, rel=0.02)
    assert "crawling at good phases of the week saves" in found.verdict


def test_a_flat_load_has_no_such_row() -> None:
    found = held(dated=True, peaks=True, load_limit=1.0)
    assert "plan, phased" not in {row.policy for row in found.means}


def test_a_placebo_has_no_such_row() -> None:
    found = held(dated=True, peaks=False)
    assert "plan, phased" not in {row.policy for row in found.means}
    assert "phases" not in found.verdict
