"""When in the week changes peak, in words.

The peak is the range of days and the range of hours, both cyclic, that hold the most changes beyond their
share of the week: the rectangle of the table of days and hours with the greatest sum of g − 1.
Cost: 49 ranges of days, 576 of hours.
"""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import Array
from freshopt.weekly.profile import ENOUGH, WeeklyProfile
from freshopt.weekly.profile_learning import ENOUGH_OF_DAY

DAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def peak_hours(profile: WeeklyProfile) -> str:
    """Describe when changes peak, with the evidence.

    Hours are left out where the day has no evidence of its own.

    Examples
    --------
    >>> g = np.ones((7, 24))
    >>> g[1:5, 9:17] = 3.0
    >>> peak_hours(WeeklyProfile(g.reshape(-1), evidence=58.0))
    'Changes peak Tue-Fri 9-17 UTC (58 nats)'
    >>> peak_hours(WeeklyProfile(g.reshape(-1), evidence=3.0))
    'Changes have no weekly peak (3 nats, below 8)'
    """
    if not profile.active:
        found = f"{profile.evidence:.0f} nats, below {ENOUGH:g}" if profile.evidence > 0.0 else "no evidence"
        return f"Changes have no weekly peak ({found})"
    nats = "given" if np.isinf(profile.evidence) else f"{profile.evidence:.0f} nats"
    hourly = _hourly(profile.g)
    days, hours, excess = _peak(hourly, alone=profile.daily_evidence < ENOUGH_OF_DAY)
    if not excess > 0.0:
        return f"Changes have no weekly peak ({nats})"
    zone = profile.time_zone or "UTC"
    words = [_days(*days), f"{hours[0]}-{(hours[0] + hours[1] - 1) % 24 + 1}" if hours[1] < 24 else "", zone]
    return f"Changes peak {' '.join(filter(None, words))} ({nats})"


def _hourly(g: Array) -> Array:
    """Return hourly means of a shape, shape (7, 24)."""
    edges = np.concatenate(([0.0], np.cumsum(g))) / len(g)
    at = np.interp(np.arange(169) / 168.0, np.arange(len(g) + 1) / len(g), edges)
    return np.diff(at).reshape(7, 24) * 168.0


def _peak(hourly: Array, *, alone: bool) -> tuple[tuple[int, int], tuple[int, int], float]:
    """Return the ranges of days and hours, and the excess.

    A range is where it begins and how long it is. The shorter ranges are taken among equals.
    """
    best = ((0, 7), (0, 24), 1e-9)
    over = hourly - 1.0
    for many in range(1, 8):
        for day in range(7):
            by_hour = over[(day + np.arange(many)) % 7].sum(axis=0)
            for hours in (24,) if alone else range(1, 25):
                for hour in range(24 if hours < 24 else 1):
                    total = float(by_hour[(hour + np.arange(hours)) % 24].sum())
                    if total > best[2] * (1.0 + 1e-9):
                        best = ((day, many), (hour, hours), total)
    return best if best[2] > 1e-9 else (best[0], best[1], 0.0)


def _days(first: int, many: int) -> str:
    """Return a range of days in words."""
    if many == 7:
        return "daily"
    last = DAY_NAMES[(first + many - 1) % 7]
    return DAY_NAMES[first] if many == 1 else f"{DAY_NAMES[first]}-{last}"
