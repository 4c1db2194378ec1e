"""Learning in batches, logs that say little or nothing, and settings and rates that are refused."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from freshopt.estimators import (
    FullObservation,
    LawOfLargeNumbers,
    MaximumLikelihood,
    MomentMatching,
    MomentumStochasticApproximation,
    Naive,
    StochasticApproximation,
)
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR

Make = Callable[..., Any]  # the estimators share method names, not a class
AT_KNOWN_RATE: list[type[Any]] = [LawOfLargeNumbers, StochasticApproximation, MomentumStochasticApproximation]
ONLINE: list[Make] = [*AT_KNOWN_RATE, Naive]


def crawls(rng: np.random.Generator, rows: int = 600) -> dict[str, Any]:
    """Rows in order of time of sources that come and go, a rate for each."""
    source = np.array(["d", "b", "c", "a", "e"])[np.minimum(rng.geometric(0.4, rows) - 1, 4)]
    source[rows // 2 :][source[rows // 2 :] == "b"] = "A"  # sorts first
    changed = rng.random(rows) < 0.6
    return {
        "source": source,
        "time": np.cumsum(rng.exponential(0.1, rows)),
        "changed": changed,
        "changes": changed * rng.integers(1, 4, rows),
        "rate": np.exp(rng.normal(0, 1, rows)),
    }


def batch(columns: dict[str, Any], part: slice) -> tuple[CrawlLog, Any]:
    """A batch that knows when each of its sources was crawled before, and its rates in the log's order."""
    rows = {key: column[part] for key, column in columns.items()}
    names, times = columns["source"][: part.start], columns["time"][: part.start]
    start = [max(times[names == name], default=math.nan) for name in np.unique(rows["source"])]
    log = CrawlLog(rows["source"], rows["time"], rows["changed"], rows["changes"], start=start)
    return log, rows["rate"][np.lexsort((rows["time"], rows["source"]))]


@pytest.mark.parametrize("make", [*ONLINE, FullObservation])
@pytest.mark.parametrize("cuts", [[], [300], [1, 2, 50, 301, 599]])
def test_batches_teach_what_the_whole_log_does(make: Make, cuts: list[int]) -> None:
    columns = crawls(np.random.default_rng(31))
    whole, rates = batch(columns, slice(0, 600))
    rated = make is not FullObservation
    expected = make().fit(whole, *[rates] * rated)
    model = make().fit(whole, *[rates] * rated)  # what came before a fit is forgotten
    edges = [0, *cuts, 600]
    for k, (first, last) in enumerate(itertools.pairwise(edges)):
        log, part = batch(columns, slice(first, last))
        learn = model.fit if k == 0 else model.partial_fit
        assert learn(log, *[part] * rated) is model
    assert model.sources_.tolist() == ["A", "a", "b", "c", "d", "e"]
    assert model.flag_.tolist() == expected.flag_.tolist() == ["ok"] * 6
    np.testing.assert_allclose(model.change_rate_, expected.change_rate_, rtol=EXACT)


@pytest.mark.parametrize("make", ONLINE)
def test_a_rate_for_all_for_each_source_and_for_each_crawl(make: Make) -> None:
    log, _ = batch(crawls(np.random.default_rng(32), 80), slice(0, 80))
    per_source = np.arange(1.0, len(log.names) + 1)
    per_crawl = per_source[log.source_index]
    per_crawl[np.isnan(log.interval)] = math.nan  # nothing is read from a baseline
    rates = [make().fit(log, p).change_rate_ for p in (per_source, list(per_source), per_crawl)]
    np.testing.assert_array_equal(rates[0], rates[1])
    np.testing.assert_array_equal(rates[0], rates[2])
    np.testing.assert_array_equal(
        make().fit(log, 2.0).change_rate_, make().fit(log, np.full(len(log), 2.0)).change_rate_
    )


def test_rates_that_change_between_batches_count_as_they_were() -> None:
    first = CrawlLog(["a", "a", "a"], [0, 1, 2], [0, 1, 0])
    second = CrawlLog(["a", "a"], [3, 4], [1, 0], start=first.last_crawl)
    model = LawOfLargeNumbers(alpha=1).fit(first, crawl_rate=0.5).partial_fit(second, crawl_rate=2.0)
    np.testing.assert_allclose(model.change_rate_, (0.5 + 2.0) / (4 + 1 - 2), rtol=EXACT)
    fast = StochasticApproximation(1.0).fit(first, crawl_rate=0.5).partial_fit(second, crawl_rate=2.0)
    y = 0.5 / 2  # after steps 1 and 1/2
    np.testing.assert_allclose(fast.change_rate_, (y + 2 / 3) * (1 - 1 / 4), rtol=EXACT)


EDGES = CrawlLog(
    source=["always", "always", "baseline", "never", "never"],
    time=[0, 2, 0, 0, 4],
    changed=[0, 1, 1, 0, 0],
    changes=[0, math.nan, 1, 0, 0],
)


@pytest.mark.parametrize("make", [*ONLINE, MomentMatching])
def test_sources_that_say_little_are_finite_and_flagged(make: Make) -> None:
    model = make().fit(EDGES, *[3.0] * (make is not MomentMatching))
    assert model.flag_.tolist() == MaximumLikelihood().fit(EDGES).flag_.tolist()
    always, baseline, never = model.change_rate_
    assert never < always < math.inf
    assert baseline == (always + never) / 2  # the median of the others
    changes = chi2.median(1) / 2  # of a source that never changed, by its posterior median
    expected = -math.log1p(-changes) / 4.0 if make is MomentMatching else changes * 3.0
    assert never == pytest.approx(expected, rel=SCALAR)


def test_the_floor_is_per_day_and_can_be_taken_away() -> None:
    hours = CrawlLog([1, 1], [0, 4], [0, 0], time_unit="hour")
    np.testing.assert_allclose(Naive(floor=2.4).fit(hours).change_rate_, 0.1, rtol=EXACT)
    np.testing.assert_array_equal(Naive(floor=0).fit(EDGES).change_rate_, [0.5, math.nan, 0.0])
    for make in AT_KNOWN_RATE:
        model = make(floor=0).fit(EDGES, 3.0)
        np.testing.assert_array_equal(model.change_rate_[1:], 0.0)
    loose = MomentMatching(bounds=(0, math.inf)).fit(EDGES)
    np.testing.assert_array_equal(loose.change_rate_, [math.inf, math.nan, 0.0])


def test_the_floor_does_not_enter_the_state() -> None:
    """A heavy ball that has swung below 0 is shown at the floor, and swings on from where it is."""
    outcomes, p = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1], 1.0
    for floor in (0.0, 0.5):
        model = MomentumStochasticApproximation(1.2, 0.6, 0.1, floor=floor)
        path = []
        for k, found in enumerate(outcomes):
            log = CrawlLog.from_columns({"source": [7], "time": [k], "elapsed": [1.0], "changed": [found]})
            path.append(model.partial_fit(log, p).change_rate_[0])
        if floor == 0:
            free = np.array(path)
    assert free.min() < -0.1
    np.testing.assert_allclose(path, np.maximum(free, 0.5), rtol=EXACT)


@pytest.mark.parametrize("make", ONLINE)
def test_magnitudes_stay_finite(make: Make) -> None:
    gaps = [1e-100, 1e-12, 1.0, 1e90]
    log = CrawlLog.from_columns({"source": [1] * 4, "elapsed": gaps, "changed": [1, 0, 1, 1]})
    for rate in (1e-100, 1.0, 1e100):
        (estimate,) = make().fit(log, rate).change_rate_
        assert 0 < estimate < math.inf


BAD_RATES = [
    (0.0, "crawl_rate of source always at time 2 is 0"),
    (-1.0, "crawl_rate of source always at time 2 is -1"),
    ([1.0, 1.0, math.nan], "crawl_rate of source never at time 4 is nan"),
    ([1.0, math.inf, 1.0, 1.0, 1.0], "crawl_rate of source always at time 2 is inf"),
    ([1.0, 2.0], r"crawl_rate has shape \(2,\)"),
    ("fast", "crawl_rate must be numbers"),
]


@pytest.mark.parametrize("make", ONLINE)
@pytest.mark.parametrize(("rate", "words"), BAD_RATES)
def test_unusable_crawl_rates_are_refused_by_name(make: Make, rate: Any, words: str) -> None:  # noqa: ANN401
    refused(words, make().fit, EDGES, rate)


@pytest.mark.parametrize("make", ONLINE)
def test_a_refused_batch_leaves_no_trace(make: Make) -> None:
    model = make().fit(EDGES, 3.0)
    before = model.change_rate_.copy()
    again = make().fit(EDGES, 3.0)
    other = CrawlLog(["never", "never"], [5, 6], [0, 1], time_unit="hour")
    refused(r"time_unit of this batch is 'hour'.*'day'", model.partial_fit, other, 3.0)
    refused("not of one kind", model.partial_fit, CrawlLog([1, 1], [5, 6], [0, 1]), 3.0)
    refused("crawl_rate", model.fit, EDGES, math.nan)
    np.testing.assert_array_equal(model.change_rate_, before)
    more = CrawlLog(["never", "new", "never"], [5, 6, 7], [0, 0, 1])
    model.partial_fit(more, 3.0)
    np.testing.assert_array_equal(model.change_rate_, again.partial_fit(more, 3.0).change_rate_)
    assert model.flag_.tolist() == ["always changed", "baseline only", "ok", "baseline only"]
