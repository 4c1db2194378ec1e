"""Waiting times and savings of weekly profiles against brute force."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import freshopt as fo
from freshopt.weekly import WeeklyProfile
from freshopt.weekly.best_phases import mean_of_best
from tests.weekly.simulated import DAILY, OFFICE, waits

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
    with pytest.raises(fo.SourceDataError, match=r"a gap of 5, 6\.99 days is no week"):
        WeeklyProfile([1.0]).saving([7.0, 5.0, 6.99], 2.0)


def test_phases_on_a_local_clock() -> None:
    berlin = WeeklyProfile(OFFICE, origin=datetime(2026, 3, 23), time_zone="Europe/Berlin")
    # 9:00 local is 8:00 UTC before 29 March 2026, and 7:00 after.
    before, after = datetime(2026, 3, 25, 8, tzinfo=UTC), datetime(2026, 4, 1, 7, tzinfo=UTC)
    assert berlin.phase(before) == berlin.phase(after) == pytest.approx(2.0 + 9.0 / 24.0)
    assert berlin.phase([2.0 + 8.0 / 24.0])[0] == pytest.approx(2.0 + 9.0 / 24.0)
    assert WeeklyProfile([1.0]).phase([0.0, 8.5, -1.0]).tolist() == [0.0, 1.5, 6.0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"g": []}, "g has shape"),
        ({"g": [1.0, -1.0]}, "negative or infinite"),
        ({"g": [0.0, 0.0]}, "none above 0"),
        ({"g": [np.inf, 1.0]}, "negative or infinite"),
        ({"g": ["x"]}, "g must be numbers"),
        ({"evidence": math.nan}, "evidence is nan"),
        ({"time_zone": "Europe/Nowhere"}, "time_zone 'Europe/Nowhere' is not known"),
        ({"time_zone": "Europe/Berlin"}, "needs dates"),
        ({"time_unit": "fortnight"}, "time_unit 'fortnight'"),
    ],
)
def test_what_is_refused(wrong: dict[str, object], words: str) -> None:
    arguments: dict[str, object] = {"g": [1.0, 2.0], **wrong}
    with pytest.raises(fo.SourceDataError, match=words):
        WeeklyProfile(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0.99, math.nan, -math.inf])
def test_a_load_below_the_mean_is_refused(limit: float) -> None:
    with pytest.raises(fo.SourceDataError, match="load_limit is"):
        WeeklyProfile([1.0, 2.0]).saving([7.0], limit)
