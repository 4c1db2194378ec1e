"""Changes that crawls hid: drawn given what was found, and counted with their uncertainty."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt.planning.held_out_window import held_out_windows
from freshopt.planning.known_changes import drawn_changes, known_changes
from freshopt.planning.policy_cost import Measurement
from freshopt.planning.verdict import PHASES, supported, verdict
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.tolerances import EXACT, SCALAR

Floats = npt.NDArray[np.float64]
PERIODIC = fo.Refresh.PERIODIC


def drawn(log: fo.CrawlLog, rate: float, seed: int = 1) -> tuple[npt.NDArray[np.int64], Floats]:
    """The interval of each change of a log of one source with crawls at 0, 1, ..., and its place there."""
    time = drawn_changes(log, np.array([rate]), seed).events(-np.inf, np.inf)[1]
    return np.floor(time).astype(np.int64), time % 1.0


@pytest.mark.parametrize("rate", [0.05, 0.7, 4.0])
def test_what_is_drawn_is_what_crawls_of_poisson_sources_hid(rate: float) -> None:
    """Against Poisson processes of which those without a change are thrown away."""
    days, rng = 6000, np.random.default_rng(3)
    found = np.arange(days + 1) % 2 == 1
    interval, place = drawn(fo.CrawlLog([0] * (days + 1), np.arange(days + 1.0), found), rate)
    assert np.all(interval % 2 == 0)  # the crawl at 1 found what happened from 0 on
    many = np.bincount(interval, minlength=days)[::2]
    assert many.min() >= 1
    true = rng.poisson(rate, 400_000)
    true = true[true > 0]
    assert np.mean(many) == pytest.approx(np.mean(true), abs=4.0 * np.std(true) / np.sqrt(len(many)))
    last = np.array([place[interval == k].max() for k in range(0, days, 2)])
    latest = rng.random((len(true), true.max()))
    latest[np.arange(true.max()) >= true[:, None]] = 0.0
    end = latest.max(axis=1)
    assert np.mean(last) == pytest.approx(np.mean(end), abs=4.0 * np.std(end) / np.sqrt(len(last)))
    assert np.mean(place) == pytest.approx(0.5, abs=4.0 * 0.3 / np.sqrt(len(many)))


def test_counts_and_dates_are_kept() -> None:
    days, rng = 4000, np.random.default_rng(5)
    counts = rng.poisson(1.5, days + 1)
    time = np.arange(days + 1.0)
    interval, place = drawn(fo.CrawlLog([0] * (days + 1), time, counts > 0, changes=counts), 9.0)
    np.testing.assert_array_equal(np.bincount(interval, minlength=days), counts[1:])
    assert np.mean(place) == pytest.approx(0.5, abs=0.02)
    back = rng.uniform(0.0, 1.0, days + 1)
    log = fo.CrawlLog([0] * (days + 1), time, np.ones(days + 1), last_modified=time - back)
    interval, place = drawn(log, 2.0)
    last = np.array([place[interval == k].max() for k in range(days)])
    np.testing.assert_allclose(last, 1.0 - back[1:], atol=1e-9)
    # Before the last change others come at the rate, whatever comes later.
    before = len(place) - days
    assert before == pytest.approx(2.0 * np.sum(1.0 - back[1:]), abs=4.0 * np.sqrt(before))


def test_extreme_rates_are_drawn_too() -> None:
    log = fo.CrawlLog([0] * 50, np.arange(50.0), np.ones(50))
    for rate in (0.0, 1e-300, 1e300):
        interval, _ = drawn(log, rate)
        assert np.bincount(interval).min() >= 1
        assert len(interval) < 50 * 200


def test_samples_differ_and_are_repeated_by_their_seed() -> None:
    log = fo.CrawlLog([0] * 50, np.arange(50.0), np.arange(50) % 3 == 0)
    windows = [held_out_windows(log, None, 0.5, 1, seed=seed)[0] for seed in (1, 1, 2)]
    one, same, other = (window.drawn[0].changes.time for window in windows)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one, windows[0].drawn[1].changes.time)
    # The crawls find in each sample what they found.
    found = known_changes(log).events(-np.inf, np.inf)[1]
    for world in windows[0].worlds:
        time = world.world.events(-np.inf, np.inf)[1]
        np.testing.assert_array_equal(np.unique(np.ceil(time)), np.ceil(found))


def poisson(n: int, days: float, gap: float, seed: int) -> tuple[fo.CrawlLog, fo.ChangeHistory]:
    """Sources with gamma rates, crawled at equal gaps, and all their changes."""
    rng = np.random.default_rng([7, seed])
    events = [np.sort(rng.uniform(0.0, days, rng.poisson(days * rate))) for rate in rng.gamma(0.8, 1.0, n)]
    time = np.arange(0.0, days + 1e-9, gap)
    found = [np.diff(np.searchsorted(own, time), prepend=0) > 0 for own in events]
    log = fo.CrawlLog(np.repeat(np.arange(n), len(time)), np.tile(time, n), np.concatenate(found))
    who = np.repeat(np.arange(n), [len(own) for own in events])
    return log, fo.ChangeHistory(who, np.concatenate(events), 0.0, days, sources=np.arange(n))


@pytest.mark.parametrize(
    "objective",
    [HarmonicStaleness(PERIODIC), BinaryFreshness(PERIODIC), AccumulatedDelay(), Age(PERIODIC)],
)
@pytest.mark.sampled(2)
def test_a_log_tells_of_every_policy_what_its_true_changes_do(objective: fo.Objective) -> None:
    """A third of the changes are hidden: costs are those of the history, and what was predicted."""
    ratios, hidden = [], []
    for seed in range(2):
        log, history = poisson(60, 80.0, 1.0, seed)
        mine, true = (
            fo.backtest(log, 30.0, objective=objective, history=known, splits=1) for known in (None, history)
        )
        for one, other in zip(mine.means, true.means, strict=False):
            assert one.policy == other.policy
            if one.policy in ("best static in hindsight", "current", "plan at current"):
                continue
            assert one.realised == pytest.approx(other.realised, rel=0.08), one.policy
            assert one.predicted == pytest.approx(other.predicted, rel=SCALAR)
        plan = mine.means[0]
        assert plan.predicted is not None
        assert abs(plan.realised - plan.predicted) < 3.0 * plan.error
        ratios.append(plan.realised / plan.predicted)
        hidden.append(plan.hidden)
        assert true.means[0].hidden == 0.0
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.06)
    assert np.mean(hidden) > 0.02


def measured(value: float, error: float, hidden: float = 0.0) -> Measurement:
    """A measurement of a hundred alike sources, of which crawls hid a part."""
    sign = np.where(np.arange(100) % 2, 1.0, -1.0)
    found = Measurement(value, sign, np.ones(100, dtype=bool))
    return Measurement(value, sign * error / found.error, found.there, hidden=hidden)


def test_half_of_what_crawls_hid_is_a_standard_error() -> None:
    assert measured(10.0, 0.3, hidden=0.8).error == pytest.approx(0.5, rel=EXACT)
    mean = Measurement.mean([measured(10.0, 0.3, hidden=0.8), measured(10.0, 0.3, hidden=0.0)])
    assert mean.error == pytest.approx(np.hypot(0.3, 0.2), rel=EXACT)
    plan, other = measured(10.0, 0.0, hidden=2.0), measured(12.0, 1e-6, hidden=3.0)
    saved = plan.saved_by(other)
    assert (saved.value, saved.error) == pytest.approx((-0.2, 0.05), rel=EXACT)
    # Both found and hidden changes are in the claim: of none or twice as many hidden ones it would hold.
    assert "The plan saves 17 ± 4 % of the cost of equal rates." in verdict({"uniform": saved})
    most = plan.saved_by(measured(12.0, 1e-6, hidden=4.8))
    assert "does not decide (the plan saves 17 ± 12 %)" in verdict({"uniform": most})


def test_a_log_that_hid_most_decides_nothing() -> None:
    plan, other = measured(10.0, 0.01, hidden=6.0), measured(20.0, 0.01, hidden=12.0)
    saved = plan.saved_by(other)
    assert not supported(saved)
    assert verdict({"uniform": saved}) == "Between the plan and equal rates this log does not decide."
    assert verdict({PHASES: saved}) == "Crawling at good phases of the week: not supported."
    log, _ = poisson(40, 200.0, 10.0, 1)
    found = fo.backtest(log, 20.0, objective=HarmonicStaleness(PERIODIC), splits=1)
    plan_row, *others = found.means
    assert plan_row.hidden > 0.5
    assert all(row.saving_error is None for row in others if row.policy == "uniform")
    assert "saves" not in found.verdict
