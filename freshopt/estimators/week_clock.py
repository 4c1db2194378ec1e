"""Moments, local clocks, Mondays, and gaps that fit the week.

A week begins on Monday 00:00, in UTC or on the clock of a time zone. On a local clock the hours of the day
stay what they are when daylight saving time begins or ends; an hour is skipped or happens twice then, and a
local time in it is taken at the offset that holds before the switch.

Cost: one offset of the time zone a week of the span, some twenty at each switch; then one search per moment.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.numerics.arrays import Array, IntArray, as_numbers

WEEK = 604_800.0
# The first Monday after 1970-01-01, in seconds.
FIRST_MONDAY = 345_600.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Moments at which a time zone can be asked, with room for its offsets: the years 2 to 9998.
_EARLIEST, _LATEST = -62_104_060_800.0, 253_339_142_400.0


def utc_moment(time: float | datetime | np.datetime64, what: str = "start") -> np.datetime64:
    """Return a moment in UTC, also without a zone, to the microsecond."""
    if isinstance(time, datetime):
        time = np.datetime64(time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time)
    elif not isinstance(time, np.datetime64):
        raise TypeError(f"{what} is of type {type(time).__name__}. Pass a datetime or datetime64.")
    moment: np.datetime64 = time.astype("datetime64[us]")
    if np.isnat(moment):
        raise SourceDataError("a moment is NaT, no time. Pass a date.")
    return moment


def seconds_of(moment: np.datetime64) -> float:
    """Return seconds since 1970 of a moment in UTC."""
    return float(moment.astype("datetime64[us]").astype(np.int64)) / 1e6


def check_time_zone(zone: str) -> str:
    """Return the name of a time zone that is known.

    Examples
    --------
    >>> check_time_zone("Europe/Nowhere")
    Traceback (most recent call last):
    ...
    freshopt.errors.SourceDataError: time_zone 'Europe/Nowhere' is not known. Pass a name like 'Asia/Tokyo'.
    """
    try:
        return ZoneInfo(zone).key
    except (KeyError, ValueError, TypeError, AttributeError, OSError):
        raise SourceDataError(f"time_zone {zone!r} is not known. Pass a name like 'Asia/Tokyo'.") from None


def to_local(seconds: Array, zone: str | None) -> Array:
    """Return seconds since 1970 on the clock of a time zone.

    Examples
    --------
    >>> float(to_local(np.array([0.0]), "Europe/Berlin")[0])
    3600.0
    """
    if zone is None or seconds.size == 0:
        return seconds
    switch, offset = _switches(zone, float(np.min(seconds)), float(np.max(seconds)))
    local: Array = seconds + offset[np.searchsorted(switch, seconds, side="right")]
    return local


def from_local(local: Array, zone: str | None) -> Array:
    """Return seconds since 1970 in UTC of what a local clock shows.

    Examples
    --------
    >>> float(from_local(np.array([3600.0]), "Europe/Berlin")[0])
    0.0
    """
    if zone is None or local.size == 0:
        return local
    switch, offset = _switches(zone, float(np.min(local)) - 90_000.0, float(np.max(local)) + 90_000.0)
    # At a switch the clock shows what comes after once the later of both readings is reached.
    shown = switch + np.maximum(offset[:-1], offset[1:])
    utc: Array = local - offset[np.searchsorted(shown, local, side="right")]
    return utc


def _switches(zone: str, begin: float, end: float) -> tuple[Array, Array]:
    """Return switches of a clock, and the offsets between them."""
    first, last = (float(np.floor(np.clip(each, _EARLIEST, _LATEST) / WEEK)) for each in (begin, end))
    return _switches_of_weeks(zone, int(first), int(last) + 1)


@lru_cache(maxsize=64)
def _switches_of_weeks(zone: str, first: int, last: int) -> tuple[Array, Array]:
    clock = ZoneInfo(zone)

    def offset_at(second: float) -> float:
        shown = (_EPOCH + timedelta(seconds=second)).astimezone(clock).utcoffset()
        return 0.0 if shown is None else shown.total_seconds()

    weeks = [week * WEEK for week in range(first, last + 1)]
    known = [offset_at(week) for week in weeks]
    switch, offset = [], [known[0]]
    for k in range(len(weeks) - 1):
        if known[k] == known[k + 1]:
            continue
        before, after = weeks[k], weeks[k + 1]
        while after - before > 1.0:
            middle = (before + after) // 2.0
            before, after = (middle, after) if offset_at(middle) == known[k] else (before, middle)
        switch.append(after)
        offset.append(known[k + 1])
    return np.array(switch), np.array(offset)


# Relative rounding up to which a gap is taken for a week times, or over, a whole number.
ROUNDING = 1e-6
# Most parts of a week, minutes, and most weeks in a gap, a century and beyond.
MOST_PARTS, MOST_WEEKS = 10_080, 10_000


def week_cycles(gaps: npt.ArrayLike, week: float) -> IntArray:
    """Return which multiple or part of a week each gap is.

    k ≥ 1 for k weeks, −k ≤ −2 for a week over k, 0 for other gaps.

    Examples
    --------
    >>> week_cycles([7.0, 3.5, 5.0], 7.0)
    array([ 1, -2,  0])
    """
    gap = np.atleast_1d(as_numbers(gaps, "gaps"))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        weeks, parts = gap / week, week / gap
    usable = (gap > 0.0) & (weeks < MOST_WEEKS + 0.5) & (parts < MOST_PARTS + 0.5)
    weeks, parts = np.where(usable, weeks, 0.0), np.where(usable, parts, 0.0)
    up, down = np.rint(weeks), np.rint(parts)
    multiple = (up >= 1.0) & (np.abs(weeks - up) <= ROUNDING)
    part = (down >= 2.0) & (np.abs(parts - down) <= ROUNDING * down)
    return np.where(multiple, up, np.where(part, -down, 0.0)).astype(np.int64)


def known_cycles(gaps: npt.ArrayLike, week: float, time_unit: str) -> IntArray:
    """Return `week_cycles`, or raise for a gap that does not fit."""
    cycle = week_cycles(gaps, week)
    other = np.atleast_1d(as_numbers(gaps, "gaps"))[cycle == 0]
    if len(other):
        raise SourceDataError(
            f"a gap of {list_offenders([f'{gap:g}' for gap in other[:6]])} {time_unit}s is no week times or "
            f"over a whole number (up to {MOST_WEEKS} weeks, down to a minute). Pass gaps of the week."
        )
    return cycle
