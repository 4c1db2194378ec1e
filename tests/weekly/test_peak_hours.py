"""The peak in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshopt.weekly import WeeklyProfile
from freshopt.weekly.peak_hours import peak_hours
from tests.weekly.simulated import DAILY, OFFICE


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
