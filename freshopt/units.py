"""Time units, durations (``7d``) and rates (``200/day``)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from freshopt.errors import SourceDataError
from freshopt.formatting import count, number
from freshopt.numerics.arrays import as_number

SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0}
_STEPS = (("second", 1.0), ("minute", 60.0), ("hour", 3600.0), ("day", 86400.0))  # as people measure gaps
_YEAR = 365.25 * 86400.0
_SHORT = {"s": "second", "min": "minute", "h": "hour", "d": "day", "w": "week"}
_QUANTITY = re.compile(r"\s*([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)\s*(/?)\s*([a-z]*)\s*", re.IGNORECASE)


def check_time_unit(unit: str) -> str:
    """Return the unit if it is one of `SECONDS`; raise otherwise."""
    if not isinstance(unit, str) or unit not in SECONDS:
        raise SourceDataError(f"time_unit {unit!r} is not known. Use one of {', '.join(SECONDS)}.")
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
    unit, size = next(((name, size) for name, size in reversed(_STEPS) if seconds >= size), ("second", 1.0))
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

    ``12 h``, ``2 weeks`` and a bare number (in `time_unit`) are durations too.

    Raises
    ------
    SourceDataError
        If the text is not a positive duration.

    Examples
    --------
    >>> parse_duration("2w", "day")
    14.0
    """
    value, slash, unit = _split(text, "a duration such as 7d, 12h or 2w")
    if slash:
        raise SourceDataError(f"{text!r} is a rate, not a duration. Write it such as 7d, 12h or 2w.")
    duration = convert_time(value, unit or time_unit, time_unit)
    if not 0.0 < duration < math.inf:
        raise SourceDataError(f"{text!r} is no time > 0 that can be counted. Write it such as 7d, 12h or 2w.")
    return duration


def parse_rate(text: str, time_unit: str) -> float:
    """Parse a non-negative rate such as ``200/day``, per `time_unit`.

    ``4/h`` and a bare number (per `time_unit`) are rates too.

    Raises
    ------
    SourceDataError
        If the text is not a rate.

    Examples
    --------
    >>> parse_rate("1/hour", "day")
    24.0
    """
    value, slash, unit = _split(text, "a rate such as 200/day or 4/h")
    if unit and not slash:
        raise SourceDataError(f"{text!r} is a duration, not a rate. Write it such as 200/day or 4/h.")
    return value / convert_time(1.0, unit or time_unit, time_unit)


def rate_of(what: str, given: float | str, time_unit: str) -> float:
    """Return a rate per `time_unit`, parsed if it is text.

    Errors name `what`.

    Examples
    --------
    >>> rate_of("bandwidth", "48/day", "hour"), rate_of("bandwidth", 3, "hour")
    (2.0, 3.0)
    """
    return _quantity(what, given, time_unit, parse_rate, 'a rate such as "200/day" or 200.0')


def duration_of(what: str, given: float | str, time_unit: str) -> float:
    """Return a duration in `time_unit`, parsed if it is text."""
    return _quantity(what, given, time_unit, parse_duration, 'a duration such as "7d" or 7.0')


def gap_of(what: str, given: float | str, time_unit: str) -> float:
    """Return a duration that may be 0, the text "0" too."""
    return duration_of(what, 0.0 if isinstance(given, str) and given.strip() == "0" else given, time_unit)


def _quantity(
    what: str, given: float | str, time_unit: str, parse: Callable[[str, str], float], example: str
) -> float:
    if isinstance(given, str):
        try:
            return parse(given, time_unit)
        except SourceDataError as error:
            raise SourceDataError(f"{what}: {error}") from None
    remedy = f"Pass {example}; numbers are in units of a {time_unit}."
    value = as_number(given, what, remedy)
    if isinstance(given, bool) or not value >= 0.0:
        raise SourceDataError(f"{what} is {given!r}. {remedy}")
    return value


def _split(text: str, expected: str) -> tuple[float, str, str]:
    """Split a quantity into its number, slash and full unit name."""
    match = _QUANTITY.fullmatch(text)
    unit = match[3].lower() if match else ""
    unit = _SHORT.get(unit, unit if unit in SECONDS else unit.removesuffix("s"))
    try:
        value = float(match[1]) if match else math.nan
    except ValueError:
        value = math.nan
    if match is None or not abs(value) < math.inf:
        raise SourceDataError(f"{text!r} cannot be read. Write {expected}.")
    if unit and unit not in SECONDS:
        raise SourceDataError(
            f"{text!r} has the unit {match[3]!r}, which is not known. "
            f"Use {', '.join(SECONDS)}, {', '.join(_SHORT)}."
        )
    if math.copysign(1.0, value) < 0.0:
        raise SourceDataError(f"{text!r} is negative. Write {expected}.")
    return value, match[2], unit


def check_horizon(horizon: float) -> float:
    """Return the horizon; raise unless it is a finite time > 0.

    Examples
    --------
    >>> check_horizon(float("inf"))
    Traceback (most recent call last):
    freshopt.errors.SourceDataError: horizon is inf. Pass a finite time > 0.
    """
    number = as_number(horizon, "horizon", "Pass a finite time > 0.")
    if not 0.0 < number < math.inf:
        raise SourceDataError(f"horizon is {number}. Pass a finite time > 0.")
    return number
