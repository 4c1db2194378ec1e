"""Half-lives: weighted equations solved source by source, batches against the whole, rates that drift."""

import itertools
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from freshopt.estimators import (
    Exact,
    FullObservation,
    Hoeffding,
    LawOfLargeNumbers,
    MaximumLikelihood,
    MomentMatching,
    Naive,
)
from freshopt.logs.crawl_log import CrawlLog
from tests.estimators.test_batches import batch, crawls
from tests.ground_truth.tolerances import EXACT, SCALAR

HALF_LIFE = 5.0


def columns_of(seed: int) -> dict[str, Any]:
    return crawls(np.random.default_rng(seed))


def weighted(log: CrawlLog, k: int) -> tuple[Any, Any, Any, Any]:
    """Weights, gaps, outcomes and counts of a source's crawls."""
    rows = slice(log.offsets[k], log.offsets[k + 1])
    seen = ~np.isnan(log.interval[rows])
    weights = 0.5 ** ((log.time.max() - log.time[rows][seen]) / HALF_LIFE)
    counts = np.zeros(seen.sum()) if log.changes is None else log.changes[rows][seen]
    return weights, log.interval[rows][seen], log.changed[rows][seen], counts


def test_estimates_solve_their_weighted_equations() -> None:
    columns = columns_of(71)
    log, rates = batch(columns, slice(0, 600))
    plain = CrawlLog(columns["source"], columns["time"], columns["changed"])
    likely = MaximumLikelihood(smoothing=0, half_life=HALF_LIFE).fit(plain).change_rate_
    matched = MomentMatching(half_life=HALF_LIFE).fit(plain).change_rate_
    naive = Naive(half_life=HALF_LIFE).fit(log).change_rate_
    counting = FullObservation(0.5, half_life=HALF_LIFE).fit(log).change_rate_
    law = LawOfLargeNumbers(alpha=1.0, half_life=HALF_LIFE).fit(log, rates).change_rate_
    for k in range(len(log.names)):
        w, a, found, changes = weighted(log, k)
        p = rates[log.offsets[k] : log.offsets[k + 1]][
            ~np.isnan(log.interval[log.offsets[k] : log.offsets[k + 1]])
        ]

        def score(x: float, w: Any = w, a: Any = a, found: Any = found) -> float:  # noqa: ANN401
            return float(np.sum(w * np.where(found, a / np.expm1(a * x), -a)))

        def excess(x: float, w: Any = w, a: Any = a, found: Any = found) -> float:  # noqa: ANN401
            return float(np.sum(w * (np.exp(-a * x) - ~found)))

        assert likely[k] == pytest.approx(brentq(score, 1e-3, 50.0, xtol=1e-14), rel=SCALAR)
        assert matched[k] == pytest.approx(brentq(excess, 1e-3, 50.0, xtol=1e-14), rel=SCALAR)
        assert naive[k] == pytest.approx(np.sum(w * found) / np.sum(w * a), rel=EXACT)
        assert counting[k] == pytest.approx((np.sum(w * changes) + 0.5) / (np.sum(w * a) + 0.5), rel=EXACT)
        assert law[k] == pytest.approx(np.sum(w * found * p) / (np.sum(w * ~found) + 1.0), rel=EXACT)


@pytest.mark.parametrize("make", [Naive, LawOfLargeNumbers, FullObservation])
@pytest.mark.parametrize("cuts", [[300], [1, 2, 50, 301, 599]])
def test_batches_are_forgotten_as_the_whole_log_is(make: Any, cuts: list[int]) -> None:  # noqa: ANN401
    columns = columns_of(72)
    columns["rate"][:] = 2.0  # the crawl intervals of each source are exponential
    whole, rates = batch(columns, slice(0, 600))
    rated = make is LawOfLargeNumbers
    expected = make(half_life=HALF_LIFE).fit(whole, *[rates] * rated)
    model = make(half_life=HALF_LIFE)
    for first, last in itertools.pairwise([0, *cuts, 600]):
        log, part = batch(columns, slice(first, last))
        model.partial_fit(log, *[part] * rated)
    np.testing.assert_allclose(model.change_rate_, expected.change_rate_, rtol=1e-10)
    np.testing.assert_allclose(model.interval(), expected.interval(), rtol=SCALAR)
    assert model.flag_.tolist() == expected.flag_.tolist()


def test_a_batch_that_comes_late_counts_by_its_age() -> None:
    log = CrawlLog(["a"] * 4, [0, 1, 2, 3], [0, 1, 0, 1])
    old, new = CrawlLog(["a"] * 2, [0, 1], [0, 1]), CrawlLog(["a"] * 2, [2, 3], [0, 1], start=1.0)
    expected = Naive(half_life=1.0).fit(log).change_rate_
    late = Naive(half_life=1.0).fit(new).partial_fit(old).change_rate_
    np.testing.assert_allclose(late, expected, rtol=EXACT)


def test_batches_with_dates_are_on_one_clock() -> None:
    begin = datetime(2026, 1, 1, 6, tzinfo=UTC)
    times = [begin + timedelta(days=3 * k) for k in range(6)]
    changed = [0, 1, 0, 0, 1, 1]
    whole = Naive(half_life=4.0).fit(CrawlLog(["a"] * 6, times, changed)).change_rate_
    model = Naive(half_life=4.0).fit(CrawlLog(["a"] * 3, times[:3], changed[:3]))
    model.partial_fit(CrawlLog(["a"] * 3, times[3:], changed[3:], start=times[2]))
    np.testing.assert_allclose(model.change_rate_, whole, rtol=EXACT)
    hours = CrawlLog(["a"] * 6, times, changed, time_unit="hour")
    np.testing.assert_allclose(24 * Naive(half_life=4.0).fit(hours).change_rate_, whole, rtol=EXACT)


def test_an_endless_half_life_forgets_nothing() -> None:
    columns = columns_of(73)
    columns["rate"][:] = 2.0
    log, rates = batch(columns, slice(0, 600))
    plain = CrawlLog(columns["source"], columns["time"], columns["changed"])
    for make, data in (
        (MaximumLikelihood, (plain,)),
        (MomentMatching, (plain,)),
        (Naive, (log,)),
        (FullObservation, (log,)),
        (LawOfLargeNumbers, (log, rates)),
    ):
        one: Any = make().fit(*data)
        other: Any = make(half_life=1e12).fit(*data)
        np.testing.assert_allclose(other.change_rate_, one.change_rate_, rtol=SCALAR)
        np.testing.assert_allclose(other.interval(), one.interval(), rtol=1e-6)


def test_what_was_long_ago_is_as_good_as_forgotten() -> None:
    """Weights stop at 2^-500: sums stay positive, what is flagged stays flagged, and rates stay finite."""
    log = CrawlLog(["a"] * 3 + ["b"] * 2, [0, 1, 2, 3_499, 3_500], [0, 1, 0, 0, 0])
    for make in (MaximumLikelihood, MomentMatching, Naive):
        model: Any = make(half_life=1.0).fit(log)
        assert model.flag_.tolist() == ["ok", "never changed"]
        assert np.all(np.isfinite(model.change_rate_))
        lower, upper = model.interval()
        assert np.all(lower <= upper)


def test_drifting_rates_are_followed() -> None:
    """A rate that falls from 2 to 0.2 in the middle: the half-life halves the error of what is left."""
    rng = np.random.default_rng(74)
    n, crawls_each = 200, 200
    rate = np.where(np.arange(crawls_each) < 100, 2.0, 0.2)
    counts = rng.poisson(rate, (n, crawls_each))
    columns = {
        "source": np.repeat(np.arange(n), crawls_each),
        "time": np.tile(np.arange(1.0, crawls_each + 1), n),
        "elapsed": np.ones(n * crawls_each),
        "changed": counts.ravel() > 0,
        "changes": counts.ravel(),
    }
    counted = CrawlLog.from_columns(columns)
    plain = CrawlLog.from_columns({key: columns[key] for key in columns if key != "changes"})
    cases: list[tuple[Any, tuple[Any, ...]]] = [
        (MaximumLikelihood, (plain,)),
        (MomentMatching, (plain,)),
        (FullObservation, (counted,)),
        (Naive, (plain,)),
    ]
    for make, data in cases:
        error = [
            np.sqrt(np.mean((m.fit(*data).change_rate_ - 0.2) ** 2)) for m in (make(), make(half_life=20.0))
        ]
        assert error[1] < 0.5 * error[0]


def test_other_intervals_know_the_weights() -> None:
    """Crawls of one age count as they are, whatever that age; Hoeffding's spread grows with √Σw²/Σw."""
    changed = [0, 1, 0, 1, 1, 0, 0, 1]
    columns = {"source": [1] * 8, "time": np.arange(8.0) * 1e-9, "elapsed": [1.0] * 8, "changed": changed}
    for make, method in ((MomentMatching, Hoeffding()), (FullObservation, Exact())):
        data = CrawlLog.from_columns({**columns, "changes": changed} if make is FullObservation else columns)
        one: Any = make().fit(data)
        other: Any = make(half_life=1.0).fit(data)
        np.testing.assert_allclose(other.interval(0.8, method), one.interval(0.8, method), rtol=1e-6)
    spaced = CrawlLog.from_columns({**columns, "time": np.arange(8.0)})
    lower, upper = MomentMatching((0, math.inf), half_life=2.0).fit(spaced).interval(0.5, Hoeffding())
    w = 0.5 ** (np.arange(7, -1, -1.0) / 2.0)
    spread = math.sqrt(0.5 * math.log(4.0) * np.sum(w**2)) / w.sum()
    share = np.sum(w * np.array(changed)) / w.sum()
    np.testing.assert_allclose(lower, -math.log1p(-(share - spread)), rtol=SCALAR)
    np.testing.assert_allclose(upper, -math.log1p(-(share + spread)) if share + spread < 1 else math.inf)
