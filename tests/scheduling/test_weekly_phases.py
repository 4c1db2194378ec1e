"""Schedules by a weekly profile: their load, their hours and what they save on simulated changes."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.scheduling import Carousel, Periodic, SlotAssignment
from tests.estimators.simulated import OFFICE, changes, waits
from tests.ground_truth.refusals import refused

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
GAPS = np.array([7.0, 14.0, 28.0, 3.5, 1.0])


def rates_of(n: int, seed: int = 0) -> np.ndarray:
    return 1.0 / np.random.default_rng(seed).choice(GAPS, n)


@pytest.mark.parametrize("limit", [1.5, 2.0, 4.0])
def test_the_load_of_every_hour_is_within_the_limit(limit: float) -> None:
    rates, horizon = rates_of(20_000), 28.0
    source, time = Periodic(fo.WeeklyProfile(OFFICE), limit).times(rates, horizon)
    np.testing.assert_array_equal(np.bincount(source, minlength=len(rates)), np.rint(rates * horizon))
    load = np.bincount((time * 24.0).astype(int), minlength=672)
    # One refresh of each kind of gap may be more than a share of the hour.
    assert load.max() <= limit * load.mean() + 2.0 * len(GAPS)
    assert load.max() >= 0.9 * limit * load.mean()
    first = np.full(len(rates), np.inf)
    np.minimum.at(first, source, time)
    order = np.lexsort((time, source))
    gap = np.diff(time[order])[np.diff(source[order]) == 0]
    np.testing.assert_allclose(gap, (1.0 / rates)[source[order][1:][np.diff(source[order]) == 0]], rtol=1e-9)


def test_few_sources_share_the_best_hours() -> None:
    source, time = Periodic(fo.WeeklyProfile(OFFICE)).times(np.full(10, 1.0 / 7.0), 7.0)
    best = np.argsort(waits(OFFICE, 7.0, np.arange(0.5, 168.0) / 24.0), kind="stable")[:84]
    assert set((time * 24.0).astype(int)) <= set(best.tolist())
    assert len(np.unique((time * 24.0).astype(int))) == 10
    assert sorted(source.tolist()) == list(range(10))


def test_the_heaviest_go_first() -> None:
    rng = np.random.default_rng(1)
    importance, change = rng.pareto(1.5, 400) + 1.0, rng.gamma(1.0, 1.0, 400)
    profile = fo.WeeklyProfile(OFFICE)
    table = {
        "source": np.arange(400),
        "rate": np.full(400, 1.0 / 7.0),
        "importance": importance,
        "change_rate": change,
    }
    plan = fo.schedule(pl.DataFrame(table), 7.0, Periodic(profile), start=MONDAY)
    waited = np.empty(400)
    waited[plan.source] = profile.waiting(7.0, (np.floor(plan.time * 24.0) + 0.5) / 24.0)
    order = np.argsort(-importance * change)
    assert np.all(np.diff(waited[order]) >= -1e-12)


@pytest.mark.parametrize(
    "profile",
    [
        fo.WeeklyProfile(np.ones(56)),
        fo.WeeklyProfile(OFFICE, evidence=7.0),
        fo.WeeklyProfile(OFFICE, daily_evidence=1.0),
    ],
)
@pytest.mark.sampled(3)
def test_without_a_profile_that_counts_schedules_are_the_same(profile: fo.WeeklyProfile) -> None:
    daily = np.random.default_rng(2).choice([1.0, 2.0, 24.0, 0.13], 300)
    rates = np.append(daily if profile.daily_evidence < 10.0 else rates_of(300), 0.0)
    for one, other in zip(Periodic(profile).times(rates, 9.0), Periodic().times(rates, 9.0), strict=True):
        np.testing.assert_array_equal(one, other)
    flat = Periodic(fo.WeeklyProfile(OFFICE), load_limit=1.0).times(rates_of(300), 9.0)
    np.testing.assert_array_equal(flat[1], Periodic().times(rates_of(300), 9.0)[1])


def test_other_gaps_keep_their_flat_phases() -> None:
    rates = np.random.default_rng(3).uniform(0.11, 0.14, 200)
    mixed = np.concatenate((rates, np.full(50, 1.0 / 7.0)))
    source, time = Periodic(fo.WeeklyProfile(OFFICE)).times(mixed, 60.0)
    alone = Periodic().times(np.concatenate((rates, np.zeros(50))), 60.0)
    np.testing.assert_array_equal(source[source < 200], alone[0])
    np.testing.assert_array_equal(time[source < 200], alone[1])


@pytest.mark.parametrize("gap", [7.0, 14.0, 3.5, 1.0])
def test_simulated_changes_wait_as_much_less_as_promised(gap: float) -> None:
    """Changes of sources refreshed by schedule, a fresh Poisson process each, wait for their next refresh."""
    rng, weeks, n = np.random.default_rng(int(gap * 2)), 60, 120
    profile = fo.WeeklyProfile(OFFICE)
    saved = profile.saving([gap], 2.0)[0]
    waited = []
    for method in (Periodic(profile), Periodic()):
        plan = fo.schedule(
            {f"{k:03}": 1.0 / gap for k in range(n)}, 7.0 * weeks + 3.0 * gap, method, start=MONDAY
        )
        delays = []
        for k in range(n):
            own = changes(rng, 1.0, OFFICE, 7.0 * weeks)
            refresh = plan.time[plan.source == k]
            delays.append(refresh[np.searchsorted(refresh, own)] - own)
        waited.append(np.array([each.mean() for each in delays]))
    error = np.hypot(*(each.std() / np.sqrt(n) for each in waited))
    assert waited[1].mean() - waited[0].mean() == pytest.approx(saved, abs=4.0 * error + 0.002 * gap)
    assert error < 0.2 * saved


def test_hours_of_the_week_do_not_depend_on_when_a_schedule_begins() -> None:
    names = {f"{k:02}": 1.0 / 7.0 for k in range(40)}
    method = Periodic(fo.WeeklyProfile(OFFICE, origin=MONDAY - timedelta(days=70)))
    found = []
    for shift in (0.0, 2.3, 12.7):
        begin = MONDAY + timedelta(days=shift)
        plan = fo.schedule(names, 7.0, method, start=begin)
        assert plan.start == np.datetime64(begin.replace(tzinfo=None))
        stamps = plan.to_frame()["timestamp"].to_list()
        hours = {
            plan.to_frame()["source"][k]: round((stamp - MONDAY) / timedelta(hours=1), 4) % 168
            for k, stamp in enumerate(stamps)
        }
        found.append(hours)
    assert found[0] == pytest.approx(found[1], abs=1e-3)
    assert found[0] == pytest.approx(found[2], abs=1e-3)
    number = fo.schedule(names, 7.0, method, start=72.3)
    again = fo.schedule(names, 7.0, method, start=MONDAY + timedelta(days=2.3))
    np.testing.assert_allclose(number.time, again.time, atol=1e-9)
    assert number.start == again.start


def test_plain_clocks_begin_on_a_monday() -> None:
    names, method = {"a": 1.0 / 7.0, "b": 1.0 / 14.0}, Periodic(fo.WeeklyProfile(OFFICE))
    begin, later = fo.schedule(names, 14.0, method), fo.schedule(names, 14.0, method, start=7.0)
    np.testing.assert_allclose(begin.time, later.time, atol=1e-9)
    assert later.start is None
    dated = fo.schedule(names, 14.0, method, start=MONDAY)
    np.testing.assert_allclose(begin.time, dated.time, atol=1e-9)


@pytest.mark.parametrize("begin", [datetime(2026, 3, 23, tzinfo=UTC), datetime(2026, 10, 19, 12, tzinfo=UTC)])
def test_local_hours_stay_when_the_clock_changes(begin: datetime) -> None:
    profile = fo.WeeklyProfile(OFFICE, origin=begin, time_zone="Europe/Berlin")
    rates = {f"{k:02}": 1.0 / 7.0 if k < 20 else 1.0 for k in range(40)}
    plan = fo.schedule({**rates, "zz": 0.13}, 21.0, Periodic(profile), start=begin)
    table = plan.to_frame()
    local: dict[str, set[tuple[int, ...]]] = {}
    for name, stamp in zip(table["source"].to_list(), table["timestamp"].to_list(), strict=True):
        clock = stamp.astimezone(ZoneInfo("Europe/Berlin"))
        day = clock.weekday() if rates.get(name, 1.0) < 1.0 else 0
        local.setdefault(name, set()).add((day, clock.hour, clock.minute))
    assert all(len(found) == 1 for name, found in local.items() if name != "zz")
    assert set(plan.counts[:20]) == {3}
    assert set(plan.counts[20:40]) <= {20, 21, 22}


def test_slots_prefer_the_hours_of_a_profile() -> None:
    profile = fo.WeeklyProfile(OFFICE, origin=MONDAY)
    slots = SlotAssignment(slot=1.0 / 24.0, capacity=1, preferred=Periodic(profile))
    names, begin = {f"{k:02}": 1.0 / 7.0 for k in range(20)}, MONDAY + timedelta(days=3)
    plan, wanted = (fo.schedule(names, 7.0, method, start=begin) for method in (slots, Periodic(profile)))
    np.testing.assert_array_equal(np.floor(plan.time * 24.0 + 1e-9), np.floor(wanted.time * 24.0))
    other = fo.schedule(names, 7.0, SlotAssignment(1.0, 9, preferred=Carousel()), start=begin)
    assert other.start == np.datetime64(begin.replace(tzinfo=None))


def test_ill_scaled_and_degenerate_rates() -> None:
    method = Periodic(fo.WeeklyProfile(OFFICE, time_unit="hour"))
    rates = np.array([0.0, 1e-6, 1e4, 1.0 / 7.0, 1.0 / 7.0 * (1.0 + 1e-9), 1e-300])
    source, time = method.times(rates, 10.0)
    assert np.all((time >= 0.0) & (time < 10.0))
    assert np.all(np.diff(time) >= 0.0)
    assert np.count_nonzero(source == 2) in (100_000, 99_999)
    assert Periodic(fo.WeeklyProfile(OFFICE), np.inf).times(np.array([1.0 / 7.0] * 5), 7.0)[1].size == 5
    assert method.times(np.array([0.0]), 5.0)[1].size == 0


def test_what_is_refused() -> None:
    dated = Periodic(fo.WeeklyProfile(OFFICE, origin=MONDAY))
    refused("does not know when it begins", fo.schedule, {"a": 1.0}, 7.0, dated)
    refused(r"load_limit is 0\.5", Periodic, fo.WeeklyProfile(OFFICE), 0.5)
    refused("profile is of type list", Periodic, [1.0], error=TypeError)
    refused("start is of type float", fo.schedule, {"a": 1.0}, 7.0, start=3.0, error=TypeError)
    assert repr(dated) == "Periodic(WeeklyProfile(168 bins of a week), 2)"
    assert repr(Periodic()) == "Periodic()"
