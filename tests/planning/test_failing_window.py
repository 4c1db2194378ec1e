"""Back-tests of fetches that fail: outcomes, costs of attempts, and what plans may know."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.planning.backtest import backtest
from freshopt.planning.failing_window import Outcomes, Statuses, with_failures
from freshopt.planning.held_out_window import HeldOutWindow, held_out_windows
from freshopt.planning.measured import measure
from freshopt.planning.static_rates import at_rates
from freshopt.planning.wishes import BackTestWishes, Wishes
from freshopt.problems import BinaryFreshness

PERIODIC = fo.Refresh.PERIODIC
RATES = np.array([0.05, 0.3, 1.0, 2.0])


def fetches(days: int = 240) -> tuple[fo.CrawlLog, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return daily crawls that were answered, and all of them with their statuses."""
    rng = np.random.default_rng(4)
    source, time = np.repeat(np.arange(4), days), np.tile(np.arange(days, dtype=float), 4)
    # The last source is down in the second half.
    answered = rng.random(len(source)) < np.where((source == 3) & (time > days / 2), 0.1, 0.9)
    answered[time == 0.0] = True
    kept = source[answered], time[answered]
    gap = np.diff(kept[1], prepend=0.0)
    changed = rng.random(len(gap)) < -np.expm1(-RATES[kept[0]] * np.maximum(gap, 0.0))
    status = np.where(answered, 200.0, 503.0)
    return fo.CrawlLog(*kept, changed), (source, status, time)


def test_a_fetch_ends_as_the_nearest_recorded_one() -> None:
    rng = np.random.default_rng(1)
    recorded = np.sort(rng.integers(0, 3, 40))
    recorded[recorded == 1] = 2  # of the second source nothing is recorded
    time = np.concatenate([np.sort(rng.random(np.count_nonzero(recorded == k))) for k in (0, 2)])
    ended = rng.random(40) < 0.5
    known = Outcomes(np.array([0.0, 1.0, 0.0]), 7, recorded, time, ended)
    source, moment = rng.integers(0, 3, 500), rng.uniform(-0.2, 1.2, 500)
    found = known.of(source, moment)
    for k, at, one in zip(source, moment, found, strict=True):
        own = np.flatnonzero(recorded == k)
        assert one == (ended[own[np.argmin(np.abs(time[own] - at))]] if len(own) else True)


def test_coins_are_of_moments_and_have_the_chances() -> None:
    chance, n = np.array([0.2, 0.7, 1.0]), 30_000
    nothing = np.zeros(0, dtype=np.int64)
    coins = Outcomes(chance, 3, nothing, np.zeros(0), np.zeros(0, dtype=bool))
    source, moment = np.repeat(np.arange(3), n), np.random.default_rng(0).random(3 * n)
    found = coins.of(source, moment)
    np.testing.assert_array_equal(coins.of(source[::-1], moment[::-1]), found[::-1])
    share = np.bincount(source, found) / n
    assert np.all(np.abs(share - chance) <= 4.0 * np.sqrt(chance * (1.0 - chance) / n))


@pytest.mark.parametrize("refresh", [PERIODIC, fo.Refresh.POISSON])
def test_attempts_cost_what_their_cell_says(refresh: fo.Refresh) -> None:
    n, end = 400, 400.0
    chance = np.tile([0.3, 0.6, 0.9, 1.0], n // 4)
    rng = np.random.default_rng(2)
    source = np.repeat(np.arange(n), rng.poisson(end, n))
    time = rng.uniform(0.0, end, len(source))
    kept = fo.World.from_events({"source": source, "time": time}, names=np.arange(n), horizon=end)
    log = fo.CrawlLog(np.repeat(np.arange(n), 2), np.tile([0.0, 1.0], n), np.tile([0, 1], n))
    window = HeldOutWindow.of(log, kept, 100.0, end)
    asked = Wishes.of(
        log, {"bandwidth": 1.0, "objective": BinaryFreshness(refresh), "success": chance}, BackTestWishes
    )
    window, _ = with_failures(window, asked, None)
    objective = BinaryFreshness(refresh)
    problem = fo.Problem(objective, fo.Sources(np.ones(n)), 2.0 * n)
    conduct = at_rates(window, asked, problem, np.full(n, 2.0), 2.0 * n)
    found = measure("", window, objective, np.ones(n), conduct)
    cost = found.cost
    np.testing.assert_array_equal(cost, found.stale)
    u, s = 0.5, chance[:4]
    fresh = (s / u) * -np.expm1(-u) / (1.0 - (1.0 - s) * np.exp(-u))
    if refresh is not PERIODIC:
        fresh = 2.0 * s / (2.0 * s + 1.0)
    shares = 1.0 - cost.reshape(-1, 4) / (end - 100.0)
    error = shares.std(axis=0, ddof=1) / np.sqrt(n / 4)
    assert np.all(np.abs(shares.mean(axis=0) - fresh) <= 4.0 * error)


def test_a_window_knows_the_statuses_before_it_alone() -> None:
    log, told = fetches()
    window = held_out_windows(log, None, 0.5, 1)[0]
    asked = Wishes.of(log, {"bandwidth": 2.0, "objective": BinaryFreshness(PERIODIC)}, BackTestWishes)
    window, learnt = with_failures(window, asked, Statuses.of(*told))
    assert learnt.success is not None
    assert window.outcomes is not None
    assert learnt.success(log.sources_)[3] > 0.8  # it is down afterwards
    before = told[2] <= window.begin
    mine = Statuses.of(*(column[before] for column in told)).before(window.begin)
    np.testing.assert_array_equal(learnt.success(log.sources_), mine.success_of(log.sources_))


@pytest.mark.exhaustive
def test_policies_meet_the_failures_alike() -> None:
    log, told = fetches()
    fresh = BinaryFreshness(PERIODIC)
    rows = {row.policy: row for row in backtest(log, 4.0, objective=fresh, statuses=told).means}
    assert "best static in hindsight" not in rows
    # The log's own crawls are counted with those that failed: one a day of each source.
    assert rows["current"].refreshes == pytest.approx(4.0, rel=0.02)
    ideal = {row.policy: row for row in backtest(log, 4.0, objective=fresh).means}
    for name in ("plan", "uniform", "∝ √(w·Δ)"):
        assert rows[name].realised < ideal[name].realised
    # Equal rates are the log's own: what is recorded leaves both about as fresh.
    assert rows["uniform"].realised == pytest.approx(rows["current"].realised, abs=0.15)
    found = backtest(log, 4.0, objective=fresh, statuses=told, retry_at_once=True)
    assert "repeated at once" in found.failures
    assert found.means[0].realised > rows["plan"].realised


@pytest.mark.exhaustive
@pytest.mark.parametrize("refresh", [PERIODIC, fo.Refresh.POISSON])
def test_a_policy_that_plans_again_learns_from_answers_alone(refresh: fo.Refresh) -> None:
    log, _ = fetches(120)
    objective = BinaryFreshness(refresh)
    found = backtest(log, 4.0, objective=objective, success=0.5, every=20.0, splits=1)
    rows = {row.policy: row for row in found.means}
    assert "at random" in found.failures
    assert rows["re-planned"].refreshes == pytest.approx(4.0, rel=0.3)
    assert rows["re-planned"].realised == pytest.approx(rows["plan"].realised, abs=0.5)


@pytest.mark.exhaustive
def test_fetches_that_cost_what_they_bring_are_replayed_at_one_bandwidth() -> None:
    log, _ = fetches(120)
    objective = BinaryFreshness(PERIODIC)
    found = backtest(log, 20.0, objective=objective, changed_cost=[0.0, 5.0, 5.0, 50.0], splits=1)
    rows = {row.policy: row for row in found.means}
    assert rows["plan"].realised > rows["proportional"].realised
    # Asking four times a day uses 4, and more is brought.
    assert rows["current"].bandwidth > 10.0
    with pytest.raises(fo.SourceDataError, match="statuses stand in place of success"):
        backtest(log, 4.0, success=0.5, statuses=([0], [200.0], [0.0]))
    with pytest.raises(fo.SourceDataError, match=r"success is not in \(0, 1\] for '1' \(0\)"):
        backtest(log, 4.0, success=[0.5, 0.0, 1.0, 1.0])
