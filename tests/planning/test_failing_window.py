"""Back-tests of fetches that fail, of sources that end, and of policies that plan again."""

from itertools import pairwise

import numpy as np
import pytest

import freshopt as fo
from freshopt.estimators import MaximumLikelihood
from freshopt.estimators.estimator import Estimator
from freshopt.planning.failing_window import Outcomes, Statuses, with_failures
from freshopt.planning.held_out_window import HeldOutWindow, held_out_windows
from freshopt.planning.measured import measure
from freshopt.planning.plan import estimated_sources
from freshopt.planning.plan_steps import problem_of
from freshopt.planning.policies import crawls_that
from freshopt.planning.policy_cost import PolicyCost, mean_row
from freshopt.planning.replanning import replanned_crawls
from freshopt.planning.request import default_estimate
from freshopt.planning.static_rates import at_rates
from freshopt.planning.wishes import BackTestWishes, Wishes
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.crawl_logs import log_at, poisson_events
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR

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
    source, time = poisson_events(rng, 1.0, end, n)
    kept = fo.World.from_events({"source": source, "time": time}, names=np.arange(n), horizon=end)
    log = log_at([0.0, 1.0], [[0, 1]] * n)
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
    assert learnt.success(log.names)[3] > 0.8  # it is down afterwards
    before = told[2] <= window.begin
    mine = Statuses.of(*(column[before] for column in told)).before(window.begin)
    np.testing.assert_array_equal(learnt.success(log.names), mine.success_of(log.names))


@pytest.mark.exhaustive
def test_policies_meet_the_failures_alike() -> None:
    log, told = fetches()
    fresh = BinaryFreshness(PERIODIC)
    rows = {row.policy: row for row in fo.backtest(log, 4.0, objective=fresh, statuses=told).means}
    assert "best static in hindsight" not in rows
    # The log's own crawls are counted with those that failed: one a day of each source.
    assert rows["current"].refreshes == pytest.approx(4.0, rel=0.02)
    ideal = {row.policy: row for row in fo.backtest(log, 4.0, objective=fresh).means}
    for name in ("plan", "uniform", "∝ √(w·Δ)"):
        assert rows[name].realised < ideal[name].realised
    # Equal rates are the log's own: what is recorded leaves both about as fresh.
    assert rows["uniform"].realised == pytest.approx(rows["current"].realised, abs=0.15)
    found = fo.backtest(log, 4.0, objective=fresh, statuses=told, retry_at_once=True)
    assert "repeated at once" in found.failures
    assert found.means[0].realised > rows["plan"].realised


@pytest.mark.exhaustive
@pytest.mark.parametrize("refresh", [PERIODIC, fo.Refresh.POISSON])
def test_a_policy_that_plans_again_learns_from_answers_alone(refresh: fo.Refresh) -> None:
    log, _ = fetches(120)
    objective = BinaryFreshness(refresh)
    found = fo.backtest(log, 4.0, objective=objective, success=0.5, every=20.0, splits=1)
    rows = {row.policy: row for row in found.means}
    assert "at random" in found.failures
    assert rows["re-planned"].refreshes == pytest.approx(4.0, rel=0.3)
    assert rows["re-planned"].realised == pytest.approx(rows["plan"].realised, abs=0.5)


@pytest.mark.exhaustive
def test_fetches_that_cost_what_they_bring_are_replayed_at_one_bandwidth() -> None:
    log, _ = fetches(120)
    objective = BinaryFreshness(PERIODIC)
    found = fo.backtest(log, 20.0, objective=objective, changed_cost=[0.0, 5.0, 5.0, 50.0], splits=1)
    rows = {row.policy: row for row in found.means}
    assert rows["plan"].realised > rows["proportional"].realised
    # Asking four times a day uses 4, and more is brought.
    assert rows["current"].bandwidth > 10.0
    with pytest.raises(fo.SourceDataError, match="statuses stand in place of success"):
        fo.backtest(log, 4.0, success=0.5, statuses=([0], [200.0], [0.0]))
    refused(r"success is not in \(0, 1\] for '1' \(0\)", fo.backtest, log, 4.0, success=[0.5, 0.0, 1.0, 1.0])


RATE, DAYS, ENDED = 0.2, 200, 120.0


def ending_log(*, regular: bool = True, sources: int = 60, seed: int = 3) -> fo.CrawlLog:
    """Equal sources crawled about daily, half of which end after 120 of 200 days."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, float, bool]] = []
    for k in range(sources):
        time = rng.random() + np.arange(DAYS) if regular else np.sort(rng.uniform(0.0, DAYS, DAYS))
        time = time[time < (DAYS if k % 2 else ENDED)]
        changed = rng.random(len(time)) < -np.expm1(-RATE * np.diff(time, prepend=time[0]))
        rows += zip([k] * len(time), time.tolist(), changed.tolist(), strict=True)
    source, moment, found = zip(*rows, strict=True)
    return fo.CrawlLog(source, moment, found)


def rows_of(held: fo.BackTest) -> dict[str, PolicyCost]:
    return {row.policy: row for row in held.means}


@matrix(regular=[True, False], sources=[60, 10], every=3)
def test_equal_sources_are_crawled_as_a_plan_would(regular: bool, sources: int) -> None:
    """Equal gaps of equal sources are the plan; exponential ones cost what Poisson refreshes do."""
    objective = BinaryFreshness(PERIODIC if regular else fo.Refresh.POISSON)
    rows = rows_of(
        fo.backtest(ending_log(regular=regular, sources=sources), f"{sources / 2}/day", objective=objective)
    )
    current, plan = rows["current"], rows["plan at current"]
    assert abs(present(current.saving)) < 2.0 * present(current.saving_error) < 0.2
    assert plan.refreshes == pytest.approx(current.refreshes, rel=1e-5)
    # Daily crawls: of all sources in the first window, of half of them in the last two.
    assert current.refreshes == pytest.approx((1.0 + 0.5 + 0.5) / 3.0 * sources, rel=0.02)


@matrix(objective=[BinaryFreshness(PERIODIC), HarmonicStaleness(PERIODIC)], every=2)
def test_predicted_and_realised_are_of_the_sources_that_are_there(objective: fo.Objective) -> None:
    rows = rows_of(fo.backtest(ending_log(), "30/day", objective=objective))
    for name in ("plan", "uniform", "proportional", "plan at current"):
        assert rows[name].predicted == pytest.approx(rows[name].realised, rel=0.15), name
    if isinstance(objective, BinaryFreshness):  # a refresh every two days, then every day
        fresh = [-np.expm1(-RATE * gap) / (RATE * gap) for gap in (2.0, 1.0)]
        assert rows["uniform"].predicted == pytest.approx((60.0 * fresh[0] + 60.0 * fresh[1]) / 3.0, rel=0.02)


def test_one_definition_of_refreshes() -> None:
    """Half the sources are there in two of three windows, and have the bandwidth; in hindsight too."""
    log = ending_log(sources=20)
    rows = rows_of(fo.backtest(log, "10/day", objective=HarmonicStaleness(PERIODIC), every="10d"))
    for name in ("plan", "uniform", "best static in hindsight", "rates in force", "re-planned"):
        assert rows[name].refreshes == pytest.approx(10.0, rel=0.02), name
    assert rows["best static in hindsight"].realised < rows["plan"].realised


def test_a_prediction_is_the_integral_over_the_windows() -> None:
    """Against the formula summed source by source, with importances and windows of unequal lengths."""
    log = ending_log(sources=20)
    weight = np.geomspace(1e-6, 1e6, 20)
    request = Wishes(BinaryFreshness(PERIODIC), 10.0, 1.0, importance=lambda names: weight[names])
    for window in held_out_windows(log, None):
        n = len(window.span)
        delta, own = np.linspace(0.1, 0.5, n), weight[window.past.names]
        problem = problem_of(request, fo.Sources(delta, own), 10.0)
        rates = np.linspace(0.2, 1.0, n)
        known = delta[:, None], np.ones((n, 1))
        conduct = at_rates(window, request, problem, rates, 10.0, known)
        rows = [measure("", window, request.objective, own, conduct)]
        row = mean_row(rows, None, maximised=False)
        span = np.maximum(log.last_crawl[window.index], window.begin).clip(max=window.end) - window.begin
        u = delta / rates
        stale = 1.0 + np.expm1(-u) / u
        there = span > 0.0
        expected = np.sum((own * stale * span)[there]) * np.sum(own[there]) / np.sum((own * span)[there])
        assert row.predicted == pytest.approx(expected, rel=1e-9)
        assert row.refreshes == pytest.approx(
            np.sum((rates * span)[there]) * np.sum(there) / np.sum(span[there]), rel=1e-9
        )


POISSON = fo.Refresh.POISSON


def window_of(log: fo.CrawlLog, changes: list[list[float]], begin: float, end: float) -> HeldOutWindow:
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
    log = fo.CrawlLog([0, 0, 0], [0.0, 2.0, 3.5], [0, 1, 0])
    changes = [1.0, 3.75, 5.5, 5.6, 8.25]
    window, seen = window_of(log, [changes], 4.0, 10.0), []

    def estimate(part: fo.CrawlLog) -> MaximumLikelihood:
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
    window = window_of(fo.CrawlLog(*zip(*rows, strict=True)), changes, begin, end)
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
    log = fo.CrawlLog(*zip(*rows, strict=True))
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
    window = window_of(fo.CrawlLog(source, time, changed), always, 4.0, 20.0)
    sizes: list[int] = []

    def counted(log: fo.CrawlLog) -> Estimator:
        sizes.append(len(log))
        return default_estimate(log)

    crawled(window, Wishes(HarmonicStaleness(PERIODIC), 20.0, 1.0, estimator=counted), 1.0)
    assert sizes[0] == 160
    assert 1 < len(sizes) < 8
    assert all(later >= 1.5 * one for one, later in pairwise(sizes))
