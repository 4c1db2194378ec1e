"""The closed loop: plan, crawl, learn from the outcomes alone, plan again."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import freshopt as fo
from freshopt.estimators import MaximumLikelihood
from freshopt.estimators.estimator import Estimator
from freshopt.logs.crawl_log import CrawlLog
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.measured import measure
from freshopt.planning.plan import estimated_sources
from freshopt.planning.plan_steps import problem_of
from freshopt.planning.policies import crawls_that
from freshopt.planning.policy_cost import mean_row
from freshopt.planning.replanning import replanned_crawls
from freshopt.planning.request import default_estimate
from freshopt.planning.wishes import Wishes
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.tolerances import EXACT, SCALAR

PERIODIC, POISSON = fo.Refresh.PERIODIC, fo.Refresh.POISSON


def window_of(log: CrawlLog, changes: list[list[float]], begin: float, end: float) -> HeldOutWindow:
    source = np.repeat(np.arange(len(changes)), [len(times) for times in changes])
    world = fo.World.from_events(
        {"source": source, "time": np.concatenate([np.array(times) for times in changes])},
        names=np.arange(len(changes)),
        start=0.0,
        horizon=end,
    )
    return HeldOutWindow.of(log, world, begin, end)


def crawled(window: HeldOutWindow, request: Wishes, every: float) -> tuple[np.ndarray, np.ndarray]:
    estimate, sources = estimated_sources(window.past, request)
    solution = fo.solve(problem_of(request, sources, request.bandwidth))
    return replanned_crawls(window, request, solution, estimate, every)


def test_a_single_source_by_hand() -> None:
    """Alone it has all the bandwidth: crawls once a day from a random phase, whatever is learnt."""
    log = CrawlLog([0, 0, 0], [0.0, 2.0, 3.5], [0, 1, 0])
    changes = [1.0, 3.75, 5.5, 5.6, 8.25]
    window, seen = window_of(log, [changes], 4.0, 10.0), []

    def estimate(part: CrawlLog) -> MaximumLikelihood:
        seen.append(part)
        return MaximumLikelihood().fit(part)

    request = Wishes(BinaryFreshness(PERIODIC), 1.0, 1.0, estimator=estimate)
    source, time = crawled(window, request, 2.0)
    assert source.tolist() == [0] * len(time)
    assert 3.0 < time[0] <= 4.0 < time[1]
    np.testing.assert_allclose(np.diff(time), 1.0, rtol=EXACT)
    assert len(time) == 7
    # The log grows by the crawls of each of the first two periods; the third ends the window.
    assert [len(part) for part in seen] == [3, 5, 7]
    grown = seen[-1]
    assert grown.time.tolist() == pytest.approx([0.0, 2.0, 3.5, *time[1:5]], rel=EXACT)
    before = [3.5, *time[1:4]]
    assert grown.interval[3:].tolist() == pytest.approx((time[1:5] - before).tolist(), rel=EXACT)
    found = [any(a < t <= b for t in changes) for a, b in zip(before, time[1:5], strict=True)]
    assert grown.changed.tolist() == [False, True, False, *found]
    # Costs: stale from each first change after a crawl to the next crawl, between 4 and 10.
    stale = 0.0
    for a, b in zip(time, [*time[1:], 10.0], strict=True):
        missed = [t for t in changes if a < t <= b]
        stale += max(min(b, 10.0) - max(min(missed), 4.0), 0.0) if missed else 0.0
    conduct = crawls_that(window, [(source, time)], 1.0)
    measured = measure("re-planned", window, request.objective, np.ones(1), conduct)
    row = mean_row([measured], None, maximised=False)
    assert row.realised == pytest.approx(stale / 6.0, rel=SCALAR)
    assert row.refreshes == pytest.approx(1.0, rel=EXACT)


@pytest.mark.exhaustive
@pytest.mark.parametrize("refresh", [PERIODIC, POISSON])
def test_rates_follow_what_the_crawls_find(refresh: fo.Refresh) -> None:
    """One half of the sources changed every other day and no longer does; the other half has begun to."""
    rng = np.random.default_rng(0)
    n, begin, end = 40, 30.0, 90.0
    late = np.arange(n) >= n // 2
    changes = [
        np.sort(rng.uniform(begin if k else 0.0, end if k else begin, 30 if k else 15)).tolist() for k in late
    ]
    rows = [
        (k, day, any(day - 3.0 < t <= day for t in changes[k]))
        for k in range(n)
        for day in np.arange(21.0, 30.0, 3.0)
    ]
    window = window_of(CrawlLog(*zip(*rows, strict=True)), changes, begin, end)
    request = Wishes(AccumulatedDelay(refresh), n / 4.0, 1.0)
    source, time = crawled(window, request, 7.0)
    share = [np.mean(late[source[(time > a) & (time <= a + 14.0)]]) for a in (30.0, 76.0)]
    assert share[0] < 0.4
    assert share[1] > share[0] + 0.15
    many = np.sum(time > begin)
    spread = 4.0 * np.sqrt(n * 15.0) if refresh is POISSON else n
    assert abs(many - n / 4.0 * 60.0) <= spread
    assert np.all(np.diff(time)[source[1:] == source[:-1]] > 0.0)


def test_nothing_of_the_future_is_known() -> None:
    rng = np.random.default_rng(1)
    changes = [np.sort(rng.uniform(0.0, 60.0, 30)).tolist() for _ in range(35)]
    rows = [
        (k, day, any(day - 2.0 < t <= day for t in changes[k]))
        for k in range(35)
        for day in np.arange(0.0, 21.0, 2.0)
    ]
    log = CrawlLog(*zip(*rows, strict=True))
    twisted = [[t for t in times if t < 41.0] + [42.0, 43.0, 44.0] for times in changes]
    request = Wishes(HarmonicStaleness(PERIODIC), 10.0, 1.0)
    (one, at), (other, then) = (
        crawled(window_of(log, each, 20.0, 60.0), request, 7.0) for each in (changes, twisted)
    )
    # The period that begins at 41 is planned from what was found before.
    early, also = at <= 41.0, then <= 41.0
    np.testing.assert_array_equal(one[early], other[also])
    np.testing.assert_array_equal(at[early], then[also])
    assert not np.array_equal(at[at > 48.0][:50], then[then > 48.0][:50])


def test_the_prior_is_learnt_again_when_the_log_has_grown() -> None:
    rng = np.random.default_rng(2)
    rows = [(k, float(day), rng.random() < 0.3) for k in range(40) for day in range(4)]
    source, time, changed = zip(*rows, strict=True)
    always = [[float(t) + 0.5 for t in range(20)]] * 40
    window = window_of(CrawlLog(source, time, changed), always, 4.0, 20.0)
    sizes: list[int] = []

    def counted(log: CrawlLog) -> Estimator:
        sizes.append(len(log))
        return default_estimate(log)

    crawled(window, Wishes(HarmonicStaleness(PERIODIC), 20.0, 1.0, estimator=counted), 1.0)
    assert sizes[0] == 160
    assert 1 < len(sizes) < 8
    assert all(later >= 1.5 * one for one, later in pairwise(sizes))
