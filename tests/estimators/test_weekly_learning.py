"""Learnt profiles: against a table of spans and bins, an optimiser, simulated sources and placebos."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from scipy.optimize import minimize

import freshopt as fo
from freshopt.estimators import MaximumLikelihood, WeeklyProfile
from freshopt.estimators.weekly_learning import ROUNDS, ObservedSpans, ShapeLikelihood, daily_shape
from tests.estimators.simulated import DAILY, FLAT, OFFICE, log_of, waits
from tests.ground_truth.refusals import present

WEEK = 604_800.0


def small_log(seed: int) -> tuple[fo.CrawlLog, np.ndarray]:
    """A log with unknown, counted and dated changes."""
    log = log_of(np.random.default_rng(seed), OFFICE, 60, 15, 2.5, dated=True)
    rng = np.random.default_rng(seed + 1)
    dates = np.where(rng.uniform(size=len(log)) < 0.5, present(log.last_modified), np.nan)
    counts = np.where(
        np.isnan(dates) & (rng.uniform(size=len(log)) < 0.4), 1.0 + rng.poisson(0.5, len(log)), np.nan
    )
    counts = np.where(log.changed, counts, np.nan)
    mixed = fo.CrawlLog(log.source_index, log.time, log.changed, changes=counts, last_modified=dates)
    assert mixed.last_modified is not None
    assert mixed.changes is not None
    return mixed, np.linspace(0.02, 0.2, 60)


def table_of(log: fo.CrawlLog, rate: np.ndarray, bins: int) -> tuple[np.ndarray, ...]:
    """Time of each row's span in each bin of the week, rates, outcomes and dates: row by row."""
    times, rates, outcomes, dates = [], [], [], []
    for row in np.flatnonzero(~np.isnan(log.interval)).tolist():
        end, begin = log.time[row], log.time[row] - log.interval[row]
        date = np.nan if log.last_modified is None else log.last_modified[row]
        count = np.nan if log.changes is None else log.changes[row]
        begin = begin if np.isnan(date) else date
        fine = (np.arange(4000) + 0.5) / 4000.0 * (end - begin) + begin
        each = np.bincount((fine % 7.0 / 7.0 * bins).astype(int), minlength=bins) / 4000.0 * (end - begin)
        times.append(each)
        rates.append(rate[log.source_index[row]])
        dates.append(date)
        outcomes.append(0.0 if not np.isnan(date) or not log.changed[row] else count)
    return np.array(times), np.array(rates), np.array(outcomes), np.array(dates)


def test_learning_and_evidence_are_those_of_a_table() -> None:
    log, rate = small_log(2)
    bins = 14
    time, rates, outcome, date = table_of(log, rate, bins)
    dated = np.bincount((date[~np.isnan(date)] % 7.0 / 7.0 * bins).astype(int), minlength=bins)
    g = np.ones(bins)
    for _ in range(ROUNDS):
        expected = dated.astype(float)
        for t, r, k in zip(time, rates, outcome, strict=True):
            here = r * t * g
            number = here.sum() / (1.0 - np.exp(-here.sum())) if np.isnan(k) else k
            expected += number * here / here.sum()
        g = expected / (rates @ time)
        g = 0.5 * g + 0.25 * np.roll(g, 1) + 0.25 * np.roll(g, -1)
        g /= g.mean()
    likelihood = ShapeLikelihood.of(ObservedSpans.of(log, rate, None), WEEK, bins)
    np.testing.assert_allclose(likelihood.maximising(), g, atol=5e-3)
    found = np.sum(dated * np.log(g))
    for t, r, k in zip(time, rates, outcome, strict=True):
        many, even = r * (t @ g), r * t.sum()
        if np.isnan(k):
            found += np.log(1.0 - np.exp(-many)) - np.log(1.0 - np.exp(-even))
        else:
            found += k * np.log(many / even) - many + even
    assert likelihood.gain(likelihood.maximising()) == pytest.approx(found, abs=0.05)
    assert likelihood.gain(np.ones(bins)) == pytest.approx(0.0, abs=1e-9)


def test_the_shape_of_the_day_is_most_likely() -> None:
    log, rate = small_log(5)
    wave = 2.0 * np.pi * np.array([1.0, 2.0])
    rows = np.flatnonzero(~np.isnan(log.interval))
    date, end, r = present(log.last_modified)[rows], log.time[rows], rate[log.source_index[rows]]
    dated = ~np.isnan(date)
    begin = np.where(dated, date, end - log.interval[rows])
    count = np.where(log.changed[rows] & ~dated, present(log.changes)[rows], 0.0)
    assert dated.sum() > 10
    assert np.isnan(count).sum() > 10
    assert (count > 0.0).sum() > 10

    def waves(x: np.ndarray) -> np.ndarray:
        return np.concatenate([np.cos(x[:, None] * wave), np.sin(x[:, None] * wave)], axis=1)

    def upper(x: np.ndarray) -> np.ndarray:
        return np.concatenate([np.sin(x[:, None] * wave) / wave, -np.cos(x[:, None] * wave) / wave], axis=1)

    spans, levels = upper(end) - upper(begin), waves(begin[dated])

    def loss(theta: Any) -> float:  # noqa: ANN401
        many, level = r * (end - begin + spans @ theta), 1.0 + levels @ theta
        some = np.isnan(count)
        if min(many[some | (count > 0.0)].min(), level.min()) <= 0.0:
            return 1e9
        known = np.where(count > 0.0, count, 0.0) * np.log(np.where(count > 0.0, many, 1.0)) - many
        gain = np.sum(np.log(1.0 - np.exp(-many[some]))) + np.sum(known[~some]) + np.sum(np.log(level))
        return 0.5 * float(theta @ theta) - float(gain)

    best = minimize(loss, np.zeros(4), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-11})
    fine = waves((np.arange(8000) + 0.5) / 8000.0) @ best.x + 1.0
    expected = np.maximum(fine.reshape(8, 1000).mean(axis=1), 0.0)
    found = daily_shape(ObservedSpans.of(log, rate, None), 8)
    np.testing.assert_allclose(found, expected / expected.mean(), atol=1e-4)


def realised(profile: WeeklyProfile, truth: np.ndarray, gap: float) -> float:
    """The share of the true saving that the phases chosen by a profile bring, at a load of two."""
    phase = np.linspace(0.0, min(gap, 7.0), 505)[:-1] + 0.5 * min(gap, 7.0) / 504.0
    waited = waits(truth, gap, phase, fine=5)
    chosen = np.argsort(profile.waiting(gap, phase), kind="stable")[:252]
    return float((waited.mean() - waited[chosen].mean()) / (waited.mean() - np.sort(waited)[:252].mean()))


def test_a_known_shape_is_learnt_from_a_log() -> None:
    log = log_of(np.random.default_rng(0), OFFICE, 300, 40, 7.0)
    profile = WeeklyProfile.from_log(log, MaximumLikelihood())
    assert profile.active
    assert realised(profile, OFFICE, 7.0) > 0.85
    days = profile.g.reshape(7, 8).mean(axis=1)
    assert days[:5].min() > 1.5 * days[5:].max()
    assert profile.saving([7.0], 2.0)[0] == pytest.approx(
        WeeklyProfile(OFFICE).saving([7.0], 2.0)[0], rel=0.35
    )


def test_dates_tell_the_hours_of_the_day() -> None:
    log = log_of(np.random.default_rng(1), DAILY, 150, 40, 7.0, dated=True)
    profile = WeeklyProfile.from_log(log, MaximumLikelihood())
    truth = WeeklyProfile(DAILY)
    assert profile.daily_evidence > 50.0
    assert realised(profile, DAILY, 1.0) > 0.95
    assert profile.saving([1.0], 2.0)[0] == pytest.approx(truth.saving([1.0], 2.0)[0], rel=0.2)
    plain = fo.CrawlLog(log.source_index, log.time, log.changed)
    assert WeeklyProfile.from_log(plain, MaximumLikelihood()).saving([1.0], 2.0)[0] == 0.0


@pytest.mark.exhaustive
def test_placebos_have_no_evidence() -> None:
    found = [
        WeeklyProfile.from_log(log_of(np.random.default_rng(seed), FLAT, 100, 20, 7.0), MaximumLikelihood())
        for seed in range(20)
    ]
    assert max(profile.evidence for profile in found) < 8.0
    assert max(profile.daily_evidence for profile in found) < 10.0
    # Crawls hours apart with few changes fit noise; it does not hold in other weeks.
    short = [
        WeeklyProfile.from_log(log_of(np.random.default_rng(seed), FLAT, 60, 60, 0.3), MaximumLikelihood())
        for seed in range(10)
    ]
    assert sum(profile.active for profile in short) <= 2
    assert sum(profile.uses(np.array([-7]))[0] for profile in short) == 0


def test_what_happens_once_is_no_cycle() -> None:
    """A sweep over all sources on one Wednesday gains in-sample, and nothing in other weeks."""
    rng = np.random.default_rng(4)
    source, time, changed = [], [], []
    for k in range(200):
        own = np.cumsum(rng.exponential(2.0, 40))
        sweep = int(np.searchsorted(own, 30.4))
        found = rng.uniform(size=40) < 0.05
        found[min(sweep, 39)] |= True
        source.append(np.full(40, k))
        time.append(own)
        changed.append(found)
    log = fo.CrawlLog(np.concatenate(source), np.concatenate(time), np.concatenate(changed))
    rows = ObservedSpans.of(log, MaximumLikelihood().fit(log).change_rate_, None)
    week = ShapeLikelihood.of(rows, WEEK, 56)
    assert week.gain(week.maximising()) > 8.0
    assert not WeeklyProfile.from_log(log, MaximumLikelihood()).active


def test_a_single_week_shows_no_cycle() -> None:
    log = fo.CrawlLog([1] * 40, np.arange(40) / 8.0, [False, True] * 20)
    assert not WeeklyProfile.from_log(log, MaximumLikelihood()).active


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_local_hours_stay_in_one_bin_when_the_clock_changes(zone: str) -> None:
    """Changes at 9:30 local, each day for three months around a switch, dated by crawls every three hours."""
    days = [datetime(2026, 2, 9) + timedelta(days=k) for k in range(96)]
    dates = [day.replace(hour=9, minute=30, tzinfo=ZoneInfo(zone)) for day in days]
    crawls = [datetime(2026, 2, 9, tzinfo=UTC) + timedelta(hours=3 * k) for k in range(8 * 96)]
    changed = [any(crawl - timedelta(hours=3) < date <= crawl for date in dates) for crawl in crawls]
    told = [max((date for date in dates if date <= crawl), default=None) for crawl in crawls]
    log = fo.CrawlLog(["a"] * len(crawls), crawls, changed, last_modified=told)
    local = WeeklyProfile.from_log(log, MaximumLikelihood(), bins=168, time_zone=zone)
    fixed = WeeklyProfile.from_log(log, MaximumLikelihood(), bins=168)
    assert local.evidence > fixed.evidence + 10.0
    hours = local.g.reshape(7, 24).mean(axis=0)
    # Smoothing leaves half of the changes in their hour, and a quarter in its neighbours.
    np.testing.assert_allclose(hours[[8, 9, 10]] / hours.sum(), [0.25, 0.5, 0.25], atol=0.02)
    assert fixed.g.reshape(7, 24).mean(axis=0).max() < 0.95 * hours.max()


@pytest.mark.parametrize("unit", ["hour", "day", "week"])
def test_times_units_and_dates_only_rename(unit: str) -> None:
    rng = np.random.default_rng(8)
    days = log_of(rng, OFFICE, 40, 30, 3.0)
    scale = {"hour": 24.0, "day": 1.0, "week": 1.0 / 7.0}[unit]
    scaled = fo.CrawlLog(days.source_index, days.time * scale, days.changed, time_unit=unit)
    dated = fo.CrawlLog(
        days.source_index,
        np.datetime64("2026-03-02") + (days.time * 86_400e6).astype("timedelta64[us]"),
        days.changed,
    )
    one, other, third = (WeeklyProfile.from_log(log, MaximumLikelihood()) for log in (days, scaled, dated))
    np.testing.assert_allclose(other.g, one.g, rtol=1e-6)
    np.testing.assert_allclose(third.g, one.g, rtol=1e-5)
    assert other.evidence == pytest.approx(one.evidence, rel=1e-5)
    assert other.time_unit == unit
    assert third.origin == datetime(2026, 3, 2, tzinfo=UTC)


@pytest.mark.parametrize("rate", [1e-6, 1e4])
def test_ill_scaled_rates_and_a_single_source(rate: float) -> None:
    log = fo.CrawlLog([1, 1, 1], [0.0, 3.0, 20.0], [False, True, False])
    rows = ObservedSpans.of(log, np.array([rate]), None)
    for bins in (1, 2, 56):
        likelihood = ShapeLikelihood.of(rows, WEEK, bins)
        g = likelihood.maximising()
        assert np.all(np.isfinite(g))
        assert g.mean() == pytest.approx(1.0)
        assert np.isfinite(likelihood.gain(g))
    assert np.all(np.isfinite(daily_shape(rows, 8)))
    nothing = fo.CrawlLog([1, 2], [0.0, 3.0], [False, False])
    assert WeeklyProfile.from_log(nothing, MaximumLikelihood()).evidence == pytest.approx(0.0, abs=1e-9)
