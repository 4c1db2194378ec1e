"""Beliefs carried on: batch by batch as all at once, by time ahead, for new sources and hosts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.estimators import Beliefs, GammaPrior, HostPriors, MaximumLikelihood
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.resetting_sources import resetting_log
from tests.ground_truth.tolerances import EXACT

PRIOR = GammaPrior(0.6, 20.0)


def between(log: CrawlLog, begin: float, end: float) -> CrawlLog:
    """Return the rows of a log at begin <= time < end, with their crawl intervals."""
    rows = np.flatnonzero((log.time >= begin) & (log.time < end))
    columns = {
        "source": log.source_index[rows],
        "time": log.time[rows],
        "elapsed": log.interval[rows],
        "changed": log.changed[rows],
    }
    return CrawlLog.from_columns(columns)


@pytest.mark.parametrize("reset", [0.0, 1 / 60.0, 5.0])
def test_batches_are_as_the_whole_log_at_once(reset: float) -> None:
    log, _ = resetting_log(40, 200.0, 5.0, 1 / 60.0, 0.6, 20.0, seed=1)
    room = {"time": 300.0, "changes": 100.0}
    whole = Beliefs.from_log(between(log, 0.0, 1e9), PRIOR, reset, **room)
    parts = Beliefs.from_log(between(log, 0.0, 30.0), PRIOR, reset, **room)
    for begin in range(30, 210, 30):
        parts = parts.after(between(log, begin, begin + 30.0))
    np.testing.assert_allclose(parts.belief, whole.belief, rtol=EXACT, atol=1e-280)
    np.testing.assert_allclose(parts.expected_rate(), whole.expected_rate(), rtol=EXACT)
    assert (parts.now, parts.sources_.tolist()) == (whole.now, whole.sources_.tolist())
    levels = np.repeat([[0.05], [0.5], [0.95]], 40, axis=1)
    own, other = (each.distribution(3.0).quantiles(levels) for each in (parts, whole))
    np.testing.assert_allclose(own, other, rtol=EXACT)


def test_they_are_those_of_the_estimator() -> None:
    log, _ = resetting_log(40, 200.0, 5.0, 1 / 60.0, 0.6, 20.0, seed=2)
    model = MaximumLikelihood(prior=PRIOR, reset=1 / 60.0).fit(log)
    np.testing.assert_allclose(model.beliefs().expected_rate(), model.change_rate_, rtol=1e-4)
    early = MaximumLikelihood(prior=PRIOR, reset=1 / 60.0).fit(between(log, 0.0, 100.0)).beliefs()
    carried = early.after(between(log, 100.0, 1e9)).expected_rate()
    np.testing.assert_allclose(carried, model.change_rate_, rtol=1e-4)
    assert repr(early) == f"Beliefs(40 sources, 0.01667 resets per day, prior={PRIOR})"


def test_in_time_they_return_to_the_prior() -> None:
    log = CrawlLog([0] * 3, [0.0, 1.0, 2.0], [0, 1, 1])
    beliefs = Beliefs.from_log(log, GammaPrior(1.0, 4.0), 0.1)
    now, later, much_later = (float(beliefs.expected_rate(ahead)[0]) for ahead in (0.0, 7.0, 1e4))
    assert later == pytest.approx(0.25 + (now - 0.25) * math.exp(-0.7), rel=1e-6)
    assert much_later == pytest.approx(0.25, rel=1e-6)


def test_batches_may_have_dates_for_times_and_names_for_sources() -> None:
    first = CrawlLog(["b", "a", "a"], ["2026-01-01", "2026-01-01", "2026-01-03"], [0, 0, 1])
    later = CrawlLog.from_columns(
        {
            "source": ["a", "c"],
            "time": ["2026-01-08", "2026-01-08"],
            "elapsed": [5.0, math.nan],
            "changed": [0, 0],
        }
    )
    after = Beliefs.from_log(first, PRIOR, 0.05).after(later)
    whole = CrawlLog(
        ["b", "a", "a", "a", "c"],
        ["2026-01-01", "2026-01-01", "2026-01-03", "2026-01-08", "2026-01-08"],
        [0, 0, 1, 0, 0],
    )
    expected = MaximumLikelihood(prior=PRIOR, reset=0.05).fit(whole)
    assert after.sources_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(after.expected_rate(), expected.change_rate_, rtol=1e-4)


def test_hosts_of_new_sources_have_priors_of_their_own() -> None:
    rng = np.random.default_rng(3)
    host = np.repeat(["fast", "slow"], 20)
    changed = rng.random((40, 12)) < np.where(host == "fast", 0.6, 0.05)[:, None]
    log = CrawlLog(np.repeat(np.arange(40), 12), np.tile(np.arange(12.0), 40), changed.ravel())
    priors = HostPriors.from_log(log, host)
    some = np.flatnonzero(log.source_index < 20)
    early = CrawlLog(log.source_index[some], log.time[some], log.changed[some])
    others = np.flatnonzero(log.source_index >= 20)
    late = CrawlLog(log.source_index[others], log.time[others], log.changed[others])
    beliefs = Beliefs.from_log(early, priors, 0.01).after(late)
    expected = MaximumLikelihood(prior=priors, reset=0.01).fit(log).change_rate_
    np.testing.assert_allclose(beliefs.expected_rate(), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (CrawlLog([0], [1.0], [0]), "crawls of '0' that are not later than the last one"),
        (CrawlLog([0], [9.0], [0], time_unit="hour"), "counts hours but the beliefs days"),
        (CrawlLog(["a"], [9.0], [0]), "sources are integers here and text there"),
        (CrawlLog.from_columns({"source": [0], "elapsed": [1.0], "changed": [0]}), "gaps between them only"),
    ],
)
def test_wrong_batches_are_refused(batch: CrawlLog, message: str) -> None:
    beliefs = Beliefs.from_log(CrawlLog([0, 0], [0.0, 1.0], [0, 1]), PRIOR, 0.1)
    with pytest.raises(SourceDataError, match=message):
        beliefs.after(batch)


def test_wrong_settings_are_refused() -> None:
    log = CrawlLog([0, 0], [0.0, 1.0], [0, 1])
    with pytest.raises(SourceDataError, match=r"reset is -1\.0\. Pass resets per time unit"):
        Beliefs.from_log(log, PRIOR, -1.0)
    with pytest.raises(SourceDataError, match=r"ahead is -2\.0\. Pass a length in time units"):
        Beliefs.from_log(log, PRIOR, 0.1).expected_rate(-2.0)
    with pytest.raises(SourceDataError, match="beliefs are carried on under resets, and reset is None"):
        MaximumLikelihood(prior=PRIOR).fit(log).beliefs()
    with pytest.raises(FreshoptError, match="has not seen a log yet"):
        MaximumLikelihood(prior=PRIOR, reset=0.1).beliefs()
