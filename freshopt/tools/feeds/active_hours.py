"""Active hours: what intervals come to where checks pause at night.

changedetection.io checks a watch when its interval is over since the last check, if that is within the hours
of the day [1]_; else with the beginning of the next. The mean time between checks is counted over some weeks
of that, and grows with the interval. Weeks are those of the watch's time zone, without changes of the clocks.

Cost: a step for each day of some weeks, some thousand to find an interval.

References
----------
.. [1] https://github.com/dgtlmoon/changedetection.io, 0.55.8, ``time_handler.py`` (``is_within_schedule``),
   ``flask_app.py`` (``ticker_thread_check_time_launch_checks``)
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, TypedDict

from freshopt.errors import SourceDataError
from freshopt.tools.records import typed
from freshopt.units import SECONDS

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY, _WEEK = SECONDS["day"], SECONDS["week"]
# Weeks over which checks are counted, and intervals that they are long at least.
_WEEKS, _INTERVALS = 4, 12


class _Duration(TypedDict):
    hours: str | int
    minutes: str | int


class _Day(TypedDict):
    enabled: bool
    start_time: str
    duration: _Duration


class ActiveHours(NamedTuple):
    """Times of the week, in seconds, of checks; None for always."""

    times: tuple[tuple[float, float], ...] | None = None

    @classmethod
    def of(cls, told: dict[str, Any] | None, what: str) -> ActiveHours:
        """Return the hours that a ``time_schedule_limit`` tells."""
        if not told or not told.get("enabled"):
            return cls()
        found = []
        for number, name in enumerate(_DAYS):
            if not (told.get(name) or {}).get("enabled"):
                continue
            day = typed(told[name], _Day, f"{what}, {name}", "Correct its hours.")
            clock = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", day["start_time"])
            length = [str(day["duration"]["hours"]), str(day["duration"]["minutes"])]
            if clock is None or not all(re.fullmatch(r"\d{1,4}", each) for each in length):
                raise SourceDataError(f"{what}, {name}, has no hours such as 08:00 and 10 h. Correct them.")
            begin = 3600.0 * int(clock[1]) + 60.0 * int(clock[2])
            # Midnight is another day's.
            end = min(begin + 3600.0 * int(length[0]) + 60.0 * int(length[1]), _DAY - 1.0)
            found.append((number * _DAY + begin, number * _DAY + end))
        always = len(found) == len(_DAYS) and all(end - begin >= _DAY - 1.0 for begin, end in found)
        return cls(None if always else tuple(found))

    def mean(self, interval: float) -> float:
        """Return the mean time between checks at an interval.

        Examples
        --------
        >>> mondays = ActiveHours(((32_400.0, 61_200.0),))
        >>> ActiveHours().mean(3600.0), mondays.mean(3600.0) / 604_800.0 * 9  # checks from 9 to 17 o'clock
        (3600.0, 1.0)
        """
        if self.times is None:
            return interval
        if not self.times:
            return math.inf
        last, many = -math.inf, 0
        # From the first check to the first one of the last week that has one, and how many are between.
        told: list[tuple[float, int]] = []
        for week in range(1 + max(_WEEKS, math.ceil(_INTERVALS * interval / _WEEK))):
            before = many
            for begin, end in self.times:
                first, close = max(week * _WEEK + begin, last + interval), week * _WEEK + end
                if first <= close:
                    told += [(first, many)] if many == before else []
                    checks = math.floor((close - first) / interval)
                    last, many = first + checks * interval, many + checks + 1
        return (told[-1][0] - told[0][0]) / told[-1][1]

    def interval(self, mean: float, least: int) -> int:
        """Return the shortest interval with this mean time between checks, or more."""
        low, high = least - 1, max(least, math.ceil(mean))
        if self.times is None:
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.mean(middle) >= mean * (1.0 - 1e-9) else (middle, high)
        return high
