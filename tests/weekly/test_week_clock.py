"""Local clocks against the calendar."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from freshopt.weekly.week_clock import from_local, seconds_of, to_local, utc_moment

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
