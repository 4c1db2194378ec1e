"""Time units, durations (``7d``) and rates (``200/day``).

Rates are counts by time, ``4 per day`` or ``1/30d``. Months are twelfths of a year of 365.25 days.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import TypeAlias

from freshopt.errors import SourceDataError, list_offenders, shown, suggestion
from freshopt.formatting import count, number
from freshopt.numerics.arrays import LARGEST, SMALLEST, as_number

SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0}
_STEPS = (("second", 1.0), ("minute", 60.0), ("hour", 3600.0), ("day", 86400.0))  # as people measure gaps
_YEAR = 365.25 * 86400.0
# What else people write, and what it is in seconds; results are told in `SECONDS` alone.
_WRITTEN = SECONDS | {"month": _YEAR / 12.0, "year": _YEAR}
_SHORT = {"s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "hr": "hour"}
_SHORT |= {"d": "day", "w": "week", "y": "year"}
_REGULAR = {"hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month", "yearly": "year"}
_NUMBER = r"[0-9.]+(?:e[-+]?[0-9]+)?"
# A number with a unit, or a number per number of units: 7d, 200/day, 1/30d, 4 per day, 1/month, /h.
_QUANTITY = re.compile(
    rf"\s*([-+]?{_NUMBER})?\s*(/|per\b|an?\b)?\s*({_NUMBER})?\s*([a-z]*)\s*", re.IGNORECASE
)
_TIMES, _RATES = "a duration such as 7d, 12h or 2w", "a rate such as 200/day, 4 per hour or 1/30d"
# A time as it is given: a number in units of the clock, or with its unit.
Time: TypeAlias = float | str | timedelta


# Whether bounds were given as intervals, and least rates as promises, and are told so.
_AS_INTERVALS: ContextVar[bool] = ContextVar("bounds as intervals", default=False)
_AS_PROMISES: ContextVar[bool] = ContextVar("least rates as promises", default=False)


@contextmanager
def bounds_as_intervals(they_are: bool = True, promised: bool = False) -> Iterator[None]:
    """Tell bounds of refresh rates as intervals, in messages from within.

    Least rates are those of promises instead, where they were `promised`.
    """
    before = _AS_INTERVALS.set(they_are), _AS_PROMISES.set(promised)
    try:
        yield
    finally:
        _AS_INTERVALS.reset(before[0])
        _AS_PROMISES.reset(before[1])


def crossed_bounds(crossed: Iterable[tuple[str, float, float]], time_unit: str) -> str:
    """Return what is said of sources whose least rate exceeds their largest.

    Examples
    --------
    >>> crossed_bounds([("'a'", 0.2, 0.1)], "day")
    "min_rate exceeds max_rate for 'a': 0.2 > 0.1. Swap or widen them."
    >>> with bounds_as_intervals():
    ...     crossed_bounds([("'a'", 0.2, 0.1)], "day")
    "min_interval exceeds max_interval for 'a': 10 days > 5 days. Swap or widen them."
    """
    what, shown = "min_rate exceeds max_rate", (f"{who}: {low:g} > {high:g}" for who, low, high in crossed)
    if _AS_INTERVALS.get():
        what = "min_interval exceeds max_interval"
        shown = (f"{who}: {_gap(high, time_unit)} > {_gap(low, time_unit)}" for who, low, high in crossed)
    return f"{what} for {list_offenders(shown)}. Swap or widen them."


def least_rates_need() -> str:
    """Return what needs bandwidth: lower bounds, as they were given."""
    if _AS_PROMISES.get():
        return "what is promised needs"
    return "max_interval asks for" if _AS_INTERVALS.get() else "lower bounds need"


def looser_bound(source: str, rate: float, time_unit: str) -> str:
    """Return how to loosen least rates, with a source's.

    Examples
    --------
    >>> looser_bound("'a'", 24.0, "day")
    "lower min_rate (largest: 'a' 24)"
    >>> with bounds_as_intervals():
    ...     looser_bound("'a'", 24.0, "day")
    "raise max_interval (shortest: 'a', 1 hour)"
    >>> with bounds_as_intervals(promised=True):
    ...     looser_bound("'a'", 24.0, "day")
    "promise less (most often: 'a', each 1 hour)"
    """
    if _AS_PROMISES.get():
        return f"promise less (most often: {source}, each {_gap(rate, time_unit)})"
    if _AS_INTERVALS.get():
        return f"raise max_interval (shortest: {source}, {_gap(rate, time_unit)})"
    return f"lower min_rate (largest: {source} {rate:g})"


def _gap(rate: float, time_unit: str) -> str:
    return duration(1.0 / rate, time_unit) if rate > 0.0 else "forever"


def check_time_unit(unit: str) -> str:
    """Return the unit if it is one of `SECONDS`; raise otherwise."""
    if not isinstance(unit, str) or unit not in SECONDS:
        meant = suggestion(unit, SECONDS) if isinstance(unit, str) else ""
        raise SourceDataError(f"time_unit {unit!r} is not known.{meant} Use one of {', '.join(SECONDS)}.")
    return unit


def convert_time(value: float, unit: str, into: str) -> float:
    """Convert a duration between units.

    Examples
    --------
    >>> convert_time(2.0, "day", "hour")
    48.0
    """
    return value * (SECONDS[unit] / SECONDS[into])


def duration(value: float, time_unit: str) -> str:
    """Return a time in the unit in which people would say it.

    Examples
    --------
    >>> duration(92.57, "day"), duration(0.25, "day"), duration(0.01, "hour"), duration(3000.0, "day")
    ('92.6 days', '6 hours', '36 seconds', '8.21 years')
    """
    seconds = value * SECONDS[time_unit]
    # What is shown as 24 hours is a day.
    near = float(f"{seconds:.3g}")
    unit, size = next(((name, size) for name, size in reversed(_STEPS) if near >= size), ("second", 1.0))
    if seconds >= 2.0 * _YEAR:
        unit, size = "year", _YEAR
    amount = float(f"{seconds / size:.3g}")
    return count(int(amount) if amount.is_integer() and amount < 1e9 else amount, unit)


def rate_unit(rate: float, time_unit: str) -> str:
    """Return the unit in which people would say a rate.

    It is `time_unit` unless the rate is below 0.1 or from a million on in it.

    Examples
    --------
    >>> rate_unit(4.0, "day"), rate_unit(0.0011, "second"), rate_unit(0.006, "day"), rate_unit(1e9, "day")
    ('day', 'hour', 'year', 'second')
    """
    if rate == 0.0 or 0.1 <= rate < 1e6:
        return time_unit
    per_second = rate / SECONDS[time_unit]
    return next((name for name, size in _STEPS if per_second * size >= 1.0), "year")


def per_unit(rate: float, time_unit: str, into: str) -> float:
    """Convert a rate per `time_unit` into one per another, or per "year".

    Examples
    --------
    >>> per_unit(0.5, "second", "hour")
    1800.0
    """
    return rate * ((_YEAR if into == "year" else SECONDS[into]) / SECONDS[time_unit])


def rate_text(rate: float, time_unit: str, noun: str = "") -> str:
    """Return a rate in the unit in which people would say it.

    Examples
    --------
    >>> rate_text(4.0, "day"), rate_text(0.0011111, "second", "refresh"), rate_text(0.5, "day", "change")
    ('4 per day', '4 refreshes per hour', '0.5 changes per day')
    """
    unit = rate_unit(rate, time_unit)
    amount = per_unit(rate, time_unit, unit)
    return f"{count(amount, noun) if noun else number(amount)} per {unit}"


def parse_duration(text: str, time_unit: str) -> float:
    """Parse a duration such as ``90d``, in `time_unit`.

    ``12 h``, ``2 weeks``, ``30m``, ``daily`` and a bare number (in `time_unit`) are durations too; a month is
    a twelfth of a year of 365.25 days.

    - raises SourceDataError if the text is not a positive duration.

    Examples
    --------
    >>> parse_duration("2w", "day"), parse_duration("daily", "hour"), parse_duration("every 30 min", "minute")
    (14.0, 24.0, 30.0)
    """
    value, is_rate, _, unit = _split(text, _TIMES)
    if is_rate:
        raise SourceDataError(f"{shown(text)} is a rate, not a duration. Write it such as 7d, 12h or 2w.")
    duration = value * _WRITTEN[unit or time_unit] / SECONDS[time_unit]
    if not 0.0 < duration < math.inf:
        raise SourceDataError(
            f"{shown(text)} is no time > 0 that can be counted. Write it such as 7d, 12h or 2w."
        )
    return duration


def parse_rate(text: str, time_unit: str) -> float:
    """Parse a non-negative rate such as ``200/day``, per `time_unit`.

    ``4/h``, ``4 per day``, ``1/30d``, ``daily``, ``every 2 weeks`` and a bare number (per `time_unit`) are
    rates too.

    - raises SourceDataError if the text is not a rate.

    Examples
    --------
    >>> parse_rate("1/hour", "day"), parse_rate("4 per day", "week"), parse_rate("1/20d", "day")
    (24.0, 28.0, 0.05)
    >>> parse_rate("daily", "day"), parse_rate("every 2 days", "day")
    (1.0, 0.5)
    """
    value, is_rate, per, unit = _split(text, _RATES)
    size = _WRITTEN[unit or time_unit] / SECONDS[time_unit]
    if text.lower().split()[:1] == ["every"] or text.strip().lower() in _REGULAR:
        if not value > 0.0:
            raise SourceDataError(f"{shown(text)} is no time > 0. Write a rate such as 200/day or 4/h.")
        return 1.0 / (value * size)
    if unit and not is_rate:
        raise SourceDataError(f"{shown(text)} is a duration, not a rate. Write it such as 200/day or 4/h.")
    return value / (per * size)


def rate_of(what: str, given: Time, time_unit: str) -> float:
    """Return a rate per `time_unit`, parsed if it is text.

    Errors name `what`.

    Examples
    --------
    >>> rate_of("bandwidth", "48/day", "hour"), rate_of("bandwidth", 3, "hour")
    (2.0, 3.0)
    """
    if isinstance(given, timedelta):
        raise SourceDataError(f"{what} is {shown(given)}, a time. Pass a rate such as 200/day or 1/30d.")
    return _quantity(what, given, time_unit, parse_rate, 'a rate such as "200/day" or 200.0')


def duration_of(what: str, given: Time, time_unit: str) -> float:
    """Return a duration in `time_unit`, parsed if it is text.

    Examples
    --------
    >>> duration_of("horizon", "12h", "day"), duration_of("horizon", timedelta(days=2), "hour")
    (0.5, 48.0)
    """
    if isinstance(given, timedelta):
        given = given.total_seconds() / SECONDS[time_unit]
    return _quantity(what, given, time_unit, parse_duration, 'a duration such as "7d" or 7.0')


def gap_of(what: str, given: Time, time_unit: str) -> float:
    """Return a duration that may be 0, the text "0" too."""
    return duration_of(what, 0.0 if isinstance(given, str) and given.strip() == "0" else given, time_unit)


def share_of(what: str, given: float | str) -> float:
    """Return a share in [0, 1], perhaps given in percent.

    Examples
    --------
    >>> share_of("max_churn", "10 %"), share_of("max_churn", 0.1)
    (0.1, 0.1)
    """
    remedy = "Write such as 99% or 0.99."
    if isinstance(given, str):
        whole = 100.0 if given.strip().endswith("%") else 1.0
        try:
            share = float(given.strip().removesuffix("%")) / whole
        except ValueError:
            raise SourceDataError(f"{what} {shown(given)} cannot be read. {remedy}") from None
    else:
        share = as_number(given, what, remedy)
    if not 0.0 <= share <= 1.0:
        if 1.0 < share <= 100.0 and not str(given).strip().endswith("%"):
            raise SourceDataError(f"{what} {share:g} has no %. Write {share:g}% or {share / 100.0:g}.")
        raise SourceDataError(f"{what} {given} is not between 0 and 100 %. {remedy}")
    return share


def _quantity(
    what: str, given: Time, time_unit: str, parse: Callable[[str, str], float], example: str
) -> float:
    if isinstance(given, str):
        try:
            return parse(given, time_unit)
        except SourceDataError as error:
            raise SourceDataError(f"{what}: {error}") from None
    remedy = f"Pass {example}; numbers are in units of a {time_unit}."
    value = as_number(given, what, remedy)
    if isinstance(given, bool) or not value >= 0.0:
        raise SourceDataError(f"{what} is {shown(given)}. {remedy}")
    return value


def _split(text: str, expected: str) -> tuple[float, bool, float, str]:
    """Split a quantity into number, kind, count and unit."""
    plain = text.strip().lower()
    words = "1 " + _REGULAR[plain] if plain in _REGULAR else plain.removeprefix("every ")
    match = _QUANTITY.fullmatch(words)
    unit = match[4].lower() if match else ""
    unit = _SHORT.get(unit, unit if unit in _WRITTEN else unit.removesuffix("s"))
    unit = _SHORT.get(unit, unit)
    try:
        # A unit alone is one of it after `every` and `per`, and no quantity elsewhere.
        alone = "1" if match and (match[2] or words != plain) else "nan"
        value = float(match[1] or alone) if match else math.nan
        per = float(match[3] or 1.0) if match else math.nan
    except ValueError:
        value = per = math.nan
    if match is None or not abs(value) < math.inf or not 0.0 < per < math.inf or (match[3] and not match[2]):
        raise SourceDataError(f"{shown(text)} cannot be read. Write {expected}.")
    if unit and unit not in _WRITTEN:
        raise SourceDataError(
            f"{shown(text)} has the unit {shown(match[4])}, which is not known. "
            f"Use {', '.join(_WRITTEN)}, {', '.join(_SHORT)}."
        )
    if math.copysign(1.0, value) < 0.0:
        raise SourceDataError(f"{shown(text)} is negative. Write {expected}.")
    if match[2] and not unit:
        raise SourceDataError(f"{shown(text)} has no unit of time. Write {expected}.")
    return value, match[2] is not None, per, unit


def bandwidth_of(given: float | str, time_unit: str) -> float:
    """Return a bandwidth > 0 per `time_unit`, parsed if it is text.

    Examples
    --------
    >>> bandwidth_of("1/day", "week")
    7.0
    """
    if isinstance(given, str | timedelta):
        bandwidth = rate_of("bandwidth", given, time_unit)
    else:
        remedy = 'Pass refreshes per time unit, or a rate such as "200/day".'
        bandwidth = as_number(given, "bandwidth", remedy)
    if not SMALLEST <= bandwidth <= LARGEST:
        raise SourceDataError(f"bandwidth is {bandwidth:g}. It must be > 0 (at most {LARGEST:g}).")
    return bandwidth


def check_horizon(horizon: Time, time_unit: str | None = None) -> float:
    """Return the horizon; raise unless it is a finite time > 0.

    Where the time unit is known, it may be text or a timedelta.

    Examples
    --------
    >>> check_horizon(float("inf"))
    Traceback (most recent call last):
    freshopt.errors.SourceDataError: horizon is inf. Pass a finite time > 0.
    """
    if time_unit is not None and isinstance(horizon, str | timedelta):
        horizon = duration_of("horizon", horizon, time_unit)
    remedy = "Pass a finite time > 0" + ("." if time_unit is None else f', in {time_unit}s or such as "7d".')
    number = as_number(horizon, "horizon", remedy)
    if not 0.0 < number < math.inf:
        raise SourceDataError(f"horizon is {number}. {remedy}")
    return number
