"""Weekly profiles: waiting and savings by brute force, the peak in words, the calendar, sums over a cycle."""

import math
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshopt.estimators import WeeklyProfile
from freshopt.estimators.week_clock import from_local, seconds_of, to_local, utc_moment
from freshopt.estimators.weekly_learning import CycleSpans
from freshopt.estimators.weekly_profile import mean_of_best, peak_hours
from tests.estimators.simulated import DAILY, OFFICE, waits

GAPS = (7.0, 14.0, 3.5, 7.0 / 3.0, 1.0, 7.0 / 11.0)


@pytest.fixture(scope="module")
def rough() -> np.ndarray:
    return np.repeat(np.random.default_rng(3).gamma(0.7, 1.0, 56), 3)


@pytest.mark.parametrize("gap", GAPS)
def test_waiting_is_the_mean_over_changes(gap: float, rough: np.ndarray) -> None:
    rough = rough / rough.mean()
    profile, phase = WeeklyProfile(rough[::3]), np.array([0.0, 0.31, 2.2, 5.77])
    np.testing.assert_allclose(
        profile.waiting(gap, phase), waits(rough, gap, phase), atol=2e-3 * min(gap, 1.0)
    )


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("limit", [1.25, 2.0, 5.0])
def test_saving_is_the_mean_over_the_best_phases(gap: float, limit: float, rough: np.ndarray) -> None:
    cycle, many = min(gap, 7.0), 1200
    waited = np.sort(waits(rough / rough.mean(), gap, (np.arange(many) + 0.5) / many * cycle, fine=4))
    expected = waited.mean() - waited[: round(many / limit)].mean()
    assert WeeklyProfile(rough).saving([gap], limit)[0] == pytest.approx(expected, abs=1e-3 * cycle)


def test_waiting_falls_where_more_than_the_mean_changes() -> None:
    profile = WeeklyProfile(OFFICE)
    middle = (np.arange(168) + 0.5) / 24.0
    slope = (profile.waiting(7.0, middle + 1e-3) - profile.waiting(7.0, middle - 1e-3)) / 2e-3
    np.testing.assert_allclose(slope, 1.0 - OFFICE, atol=1e-9)
    assert np.mean(profile.waiting(7.0)) == pytest.approx(3.5, abs=1e-12)
    np.testing.assert_allclose(profile.waiting(7.0), profile.waiting(7.0, np.arange(168) / 24.0), rtol=1e-14)
    np.testing.assert_allclose(profile.waiting(21.0), profile.waiting(7.0) + 7.0, rtol=1e-14)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=40), st.floats(0.0, 1.0))
def test_mean_of_best_is_what_sampling_says(heights: list[float], share: float) -> None:
    height = np.array(heights)
    fine = np.interp(
        (np.arange(4000) + 0.5) / 4000.0 * len(height), np.arange(len(height) + 1), [*height, height[0]]
    )
    best = np.sort(fine)[::-1][: max(1, round(4000 * share))].mean()
    assert mean_of_best(height, share) == pytest.approx(best, abs=3e-2 * float(np.ptp(height)) + 1e-9)


def test_savings_that_are_none() -> None:
    every = [7.0, 14.0, 3.5, 7.0 / 3.0, 1.0, 7.0 / 168.0]
    assert not WeeklyProfile(np.ones(56)).saving(every, 2.0).any()
    assert not WeeklyProfile([1.0]).saving(every, math.inf).any()
    assert not WeeklyProfile(OFFICE).saving(every, 1.0).any()
    assert not WeeklyProfile(OFFICE, evidence=7.9).saving(every, 2.0).any()
    assert (WeeklyProfile(OFFICE).saving(every[:5], 2.0) > 0.0).all()
    weekly = WeeklyProfile(OFFICE, evidence=8.0, daily_evidence=9.9).saving(every, 2.0)
    np.testing.assert_array_equal(weekly > 0.0, [True, True, True, False, False, False])
    # What a day saves is all that the hours of a day repeat; gaps of whole weeks save the same.
    assert weekly[0] == weekly[1]
    assert WeeklyProfile(DAILY).saving([1.0], 2.0)[0] == pytest.approx(0.5 * 0.187, abs=1e-3)


def test_more_load_saves_more_up_to_the_best_hour() -> None:
    savings = [
        WeeklyProfile(OFFICE).saving([7.0], limit)[0] for limit in (1.0, 1.5, 2.0, 10.0, 1e9, math.inf)
    ]
    assert savings == sorted(savings)
    assert savings[-1] == pytest.approx(
        3.5 - waits(OFFICE, 7.0, np.array([4.75]))[0], abs=1e-3
    )  # Friday 18:00


@pytest.mark.parametrize(("unit", "scale"), [("second", 86400.0), ("hour", 24.0), ("week", 1.0 / 7.0)])
def test_time_units_only_scale(unit: str, scale: float) -> None:
    days, other = WeeklyProfile(OFFICE), WeeklyProfile(OFFICE * 1e-90, time_unit=unit)
    gaps = np.array([7.0, 1.0, 21.0])
    np.testing.assert_allclose(other.saving(gaps * scale, 2.0), days.saving(gaps, 2.0) * scale, rtol=1e-9)
    np.testing.assert_array_equal(other.cycles(gaps * scale), [1, -7, 3])


def test_cycles() -> None:
    gaps = [
        7.0 * (1 + 1e-7),
        7.0 * (1 + 1e-5),
        3.5,
        7.0 / 11,
        70_000.0,
        70_007.0,
        1e300,
        5e-324,
        0.0,
        -7.0,
        np.inf,
    ]
    found = WeeklyProfile([1.0]).cycles([*gaps, np.nan])
    assert found.tolist() == [1, 0, -2, -11, 10_000, 0, 0, 0, 0, 0, 0, 0]


def test_phases_on_a_local_clock() -> None:
    berlin = WeeklyProfile(OFFICE, origin=datetime(2026, 3, 23), time_zone="Europe/Berlin")
    # 9:00 local is 8:00 UTC before 29 March 2026, and 7:00 after.
    before, after = datetime(2026, 3, 25, 8, tzinfo=UTC), datetime(2026, 4, 1, 7, tzinfo=UTC)
    assert berlin.phase(before) == berlin.phase(after) == pytest.approx(2.0 + 9.0 / 24.0)
    assert berlin.phase([2.0 + 8.0 / 24.0])[0] == pytest.approx(2.0 + 9.0 / 24.0)
    assert WeeklyProfile([1.0]).phase([0.0, 8.5, -1.0]).tolist() == [0.0, 1.5, 6.0]


@pytest.mark.parametrize(
    ("hourly", "settings", "words"),
    [
        (OFFICE, {"evidence": 58.2}, "Changes peak Mon-Fri 9-18 UTC (58 nats)"),
        (OFFICE, {"evidence": 58.2, "daily_evidence": 9.0}, "Changes peak Mon-Fri UTC (58 nats)"),
        (DAILY, {}, "Changes peak daily 9-18 UTC (given)"),
        (np.roll(OFFICE, -24 * 2 + 8), {"evidence": 9.0}, "Changes peak Sat-Wed 17-2 UTC (9 nats)"),
        (OFFICE, {"evidence": 7.4}, "Changes have no weekly peak (7 nats, below 8)"),
        (OFFICE, {"evidence": -np.inf}, "Changes have no weekly peak (no evidence)"),
        (np.ones(168), {"evidence": 9.0}, "Changes have no weekly peak (9 nats)"),
        (np.eye(7)[2], {"evidence": 30.0}, "Changes peak Wed UTC (30 nats)"),
    ],
)
def test_the_peak_in_words(hourly: np.ndarray, settings: dict[str, Any], words: str) -> None:
    assert peak_hours(WeeklyProfile(hourly, **settings)) == words


ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Casablanca",
    "UTC",
)


@pytest.mark.parametrize("zone", ZONES)
def test_local_clocks_show_what_the_calendar_says(zone: str) -> None:
    rng = np.random.default_rng(5)
    seconds = np.floor(rng.uniform(1.2e9, 1.8e9, 400))
    shown = to_local(seconds, zone)
    for second, local in zip(seconds.tolist(), shown.tolist(), strict=True):
        clock = datetime.fromtimestamp(second, ZoneInfo(zone)).replace(tzinfo=UTC)
        assert local == clock.timestamp()
    np.testing.assert_array_equal(from_local(shown, zone), seconds)


def test_the_hour_that_is_skipped_and_the_hour_that_comes_twice() -> None:
    spring, autumn = (datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC))
    for switch, shift in ((spring.timestamp(), 3600.0), (autumn.timestamp(), -3600.0)):
        around = to_local(np.array([switch - 1.0, switch]), "Europe/Berlin")
        assert around[1] - around[0] == 1.0 + shift
    # 2:30 in spring does not exist, 2:30 in autumn does twice: both are read at summer's end of the hour.
    skipped = seconds_of(np.datetime64("2026-03-29T02:30"))
    assert from_local(np.array([skipped]), "Europe/Berlin")[0] == spring.timestamp() + 1800.0
    twice = seconds_of(np.datetime64("2026-10-25T02:30"))
    assert from_local(np.array([twice]), "Europe/Berlin")[0] == autumn.timestamp() - 1800.0


def test_times_beyond_the_calendar_have_an_offset() -> None:
    for far in (-1e15, 1e15):
        assert to_local(np.array([far]), "Asia/Tokyo")[0] == pytest.approx(far, abs=40_000.0)
    assert to_local(np.empty(0), "Asia/Tokyo").size == 0


def test_moments() -> None:
    zoned = datetime(2026, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert utc_moment(zoned) == utc_moment(datetime(2026, 1, 1)) == np.datetime64("2026-01-01")
    with pytest.raises(TypeError, match="start is of type float"):
        utc_moment(1.0)


@pytest.mark.parametrize("bins", [1, 2, 7, 56])
def test_sums_are_those_of_a_table(bins: int) -> None:
    rng = np.random.default_rng(bins)
    begin = np.concatenate((rng.uniform(-3.0, 9.0, 60), [0.0, 0.999999999, 1.0, 0.5, 0.25]))
    length = np.concatenate((rng.gamma(0.5, 2.0, 60), [1.0, 2.0, 1e-9, 0.5, 3.75]))
    g, weight = rng.gamma(1.0, 1.0, bins), rng.gamma(1.0, 1.0, len(begin))
    g /= g.mean()
    table = np.zeros((len(begin), bins))
    for row, (first, long) in enumerate(zip(begin.tolist(), length.tolist(), strict=True)):
        for cycle in range(int(np.floor(first)), int(np.floor(first + long)) + 1):
            left = cycle + np.arange(bins) / bins
            inside = np.minimum(left + 1.0 / bins, first + long) - np.maximum(left, first)
            table[row] += np.maximum(inside, 0.0)
    spans = CycleSpans.of(begin, length, bins)
    np.testing.assert_allclose(spans.integral(g), table @ g, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(spans.spread(weight), weight @ table, rtol=1e-9, atol=1e-9)
    assert spans.spread(weight).sum() == pytest.approx(float(weight @ length), rel=1e-12)
