"""Back-tests of logs some of whose sources are crawled no more."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.planning.held_out_window import held_out_windows
from freshopt.planning.measured import measure
from freshopt.planning.plan_steps import problem_of
from freshopt.planning.policy_cost import PolicyCost, mean_row
from freshopt.planning.static_rates import at_rates
from freshopt.planning.wishes import Wishes
from freshopt.problems import BinaryFreshness, HarmonicStaleness

PERIODIC = fo.Refresh.PERIODIC
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


@pytest.mark.parametrize("regular", [True, False])
@pytest.mark.parametrize("sources", [60, 10])
@pytest.mark.sampled(3)
def test_equal_sources_are_crawled_as_a_plan_would(regular: bool, sources: int) -> None:
    """Equal gaps of equal sources are the plan; exponential ones cost what Poisson refreshes do."""
    objective = BinaryFreshness(PERIODIC if regular else fo.Refresh.POISSON)
    rows = rows_of(
        fo.backtest(ending_log(regular=regular, sources=sources), f"{sources / 2}/day", objective=objective)
    )
    current, plan = rows["current"], rows["plan at current"]
    assert current.saving is not None
    assert current.saving_error is not None
    assert abs(current.saving) < 2.0 * current.saving_error < 0.2
    assert plan.refreshes == pytest.approx(current.refreshes, rel=1e-5)
    # Daily crawls: of all sources in the first window, of half of them in the last two.
    assert current.refreshes == pytest.approx((1.0 + 0.5 + 0.5) / 3.0 * sources, rel=0.02)


@pytest.mark.parametrize("objective", [BinaryFreshness(PERIODIC), HarmonicStaleness(PERIODIC)])
@pytest.mark.sampled(2)
def test_predicted_and_realised_are_of_the_sources_that_are_there(objective: fo.Objective) -> None:
    rows = rows_of(fo.backtest(ending_log(), "30/day", objective=objective))
    for name in ("plan", "uniform", "proportional", "plan at current"):
        assert rows[name].predicted == pytest.approx(rows[name].realised, rel=0.15), name
    if isinstance(objective, BinaryFreshness):  # a refresh every two days, then every day
        fresh = [-np.expm1(-RATE * gap) / (RATE * gap) for gap in (2.0, 1.0)]
        assert rows["uniform"].predicted == pytest.approx((60.0 * fresh[0] + 60.0 * fresh[1]) / 3.0, rel=0.02)


def test_one_definition_of_refreshes() -> None:
    """Half the sources are there in two of three windows, and have the bandwidth; in hindsight too."""
    rows = rows_of(fo.backtest(ending_log(), "30/day", objective=HarmonicStaleness(PERIODIC), every="10d"))
    for name in ("plan", "uniform", "best static in hindsight", "rates in force"):
        assert rows[name].refreshes == pytest.approx(30.0, rel=0.02), name
    assert rows["re-planned"].refreshes == pytest.approx(30.0, rel=0.02)
    assert rows["best static in hindsight"].realised < rows["plan"].realised


def test_a_prediction_is_the_integral_over_the_windows() -> None:
    """Against the formula summed source by source, with importances and windows of unequal lengths."""
    log = ending_log(sources=20)
    weight = np.geomspace(1e-6, 1e6, 20)
    request = Wishes(BinaryFreshness(PERIODIC), 10.0, 1.0, importance=lambda names: weight[names])
    for window in held_out_windows(log, None):
        n = len(window.span)
        delta, own = np.linspace(0.1, 0.5, n), weight[window.past.sources_]
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
