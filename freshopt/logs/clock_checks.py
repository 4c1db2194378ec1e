"""Warnings about times that can be read but can hardly be meant.

A clock that was never set starts in 1970, one that was set wrongly is off by decades, and a number in another
unit by a factor of thousands. Change rates that are learnt across such a jump are wrong by as much. Nothing
here depends on the present day: equal logs give equal warnings.

Cost: the least and the greatest time; a sort where they are more than ten years apart.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np

from freshopt.errors import SHOWN, list_offenders, warn
from freshopt.formatting import count, number
from freshopt.numerics.arrays import Array, IntArray
from freshopt.units import SECONDS

# Years in which computers observe sources; 1970 is that of clocks that were never set.
YEARS = (1971, 2100)
# A gap is a jump of the clock if it is longer than ten years, and ten times as long as the median interval of
# a source and as all other gaps together: a pause of the crawler is shorter, or the log around it longer.
LONG, TIMES = 10.0 * 365.25 * SECONDS["day"], 10.0

Label = Callable[[int], str]


def warn_of_clock(
    time: Array, intervals: Array, label: Label, time_unit: str, origin: datetime | None
) -> None:
    """Warn of implausible years, or else of jumps of the clock.

    Parameters
    ----------
    time : ndarray of float, shape (rows,)
        On one clock for all sources.
    intervals : ndarray of float, shape (rows,)
        Time since the previous row of the same source; NaN where there is none.
    label : callable
        How messages call the row at a position.
    time_unit : str
    origin : datetime or None
        The moment of time 0, if there are dates.
    """
    outside = np.empty(0, dtype=np.int64) if origin is None else _outside(time, origin, time_unit)
    if len(outside):
        where = _listed(outside, lambda k: f"{label(k)}: {_said(float(time[k]), time_unit, origin)}")
        warn(
            f"time is not in the years {YEARS[0]} to {YEARS[1]} in {where}. It is used as it stands. If a "
            "clock or a unit was wrong, correct or drop these rows.",
            of_rates=True,
        )
    elif (np.max(time) - np.min(time)) * SECONDS[time_unit] > LONG:
        _warn_of_jumps(time, intervals, label, time_unit, origin)


def _warn_of_jumps(
    time: Array, intervals: Array, label: Label, time_unit: str, origin: datetime | None
) -> None:
    """Warn of gaps between all rows that are no pauses."""
    known = intervals[~np.isnan(intervals)]
    moments = np.sort(time)
    gaps = np.diff(moments)
    if len(known) == 0 or np.max(gaps) * SECONDS[time_unit] <= LONG:
        return
    is_long = (gaps * SECONDS[time_unit] > LONG) & (gaps > TIMES * np.median(known))
    ordinary = float(np.sum(gaps[~is_long]))
    jumps = np.flatnonzero(is_long & (gaps > TIMES * ordinary))
    if len(jumps) == 0:
        return

    def said(k: int) -> str:
        ends = " to ".join(_said(float(at), time_unit, origin) for at in moments[k : k + 2])
        return f"from {ends} in {label(int(np.argmax(time == moments[k + 1])))}"

    warn(
        f"time jumps {_listed(jumps, said)}, and all other gaps add up to {count(ordinary, time_unit)}. "
        "It is used as it stands. If a clock or a unit was wrong, correct or drop these rows.",
        of_rates=True,
    )


def _outside(time: Array, origin: datetime, time_unit: str) -> IntArray:
    """Return the rows whose years are implausible."""
    ends = (datetime(year, 1, 1, tzinfo=UTC) for year in (YEARS[0], YEARS[1] + 1))
    first, last = ((end - origin).total_seconds() / SECONDS[time_unit] for end in ends)
    if np.min(time) >= first and np.max(time) < last:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero((time < first) | (time >= last))


def _said(time: float, time_unit: str, origin: datetime | None) -> str:
    """Return a time as messages have it."""
    if origin is None:
        return f"{time_unit} {number(time)}"
    return f"{origin + timedelta(seconds=time * SECONDS[time_unit]):%Y-%m-%d %H:%M}"


def _listed(rows: IntArray, said: Callable[[int], str]) -> str:
    """Return the first rows in words, and how many more."""
    shown = [said(int(k)) for k in rows[:SHOWN]]
    return list_offenders([*shown, *[""] * (len(rows) - len(shown))])
