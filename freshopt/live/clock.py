"""`Clock`: moments of a planner as numbers on one scale.

Numbers are in the planner's time unit; dates are counted from midnight UTC of the first day that the planner
was told, as a `CrawlLog` counts them, with the same rounding: a moment told twice is the same number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError, shown
from freshopt.logs.timestamps import as_datetime, midnight_before, read_moments, refuse_epochs, time_since
from freshopt.numerics.arrays import Array
from freshopt.units import SECONDS

# A crawl may be dated so much later than the clock of this machine, in seconds.
AHEAD = 86_400.0
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Clock:
    """Scale of a planner's moments.

    Attributes
    ----------
    time_unit : str
    origin : datetime or None
        Midnight UTC of the first day; None where times are numbers.

    Examples
    --------
    >>> clock = Clock.beginning("day", "2026-01-31T06:00Z")
    >>> clock.number("2026-02-01T12:00Z", "time"), clock.moment(1.5).isoformat()
    (1.5, '2026-02-01T12:00:00+00:00')
    """

    time_unit: str
    origin: datetime | None

    @classmethod
    def beginning(cls, time_unit: str, times: Any) -> Clock:  # noqa: ANN401 - times as people write them
        """Return the clock of a planner whose first moments these are.

        Raises
        ------
        SourceDataError
            If they are no times, or numbers that look like Unix time in another unit.
        """
        moments = np.atleast_1d(read_moments(_listed(times), "time", str, time_unit))
        if moments.dtype.kind != "M":
            refuse_epochs(moments, time_unit, "time")
            return cls(time_unit, None)
        if np.isnat(moments).all():
            raise SourceDataError("time is NaT. Pass the moment of the crawl.")
        return cls(time_unit, as_datetime(midnight_before(moments)))

    def number(self, time: Any, what: str) -> float:  # noqa: ANN401 - a time as people write it
        """Return one moment as a number.

        Raises
        ------
        SourceDataError
            If it is no finite time, or a date where the planner's times are numbers, or the reverse.
        """
        if self.origin is None:
            if type(time) is float and math.isfinite(time):
                return time
        elif type(time) is datetime:
            aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            return ((aware - self.origin) // _MICROSECOND) / (SECONDS[self.time_unit] * 1e6)
        return float(self.numbers([time], what)[0])

    def numbers(self, times: Any, what: str) -> Array:  # noqa: ANN401
        """Return moments as numbers, shape (m,); raises as `number`."""
        known = self.origin is not None
        moments = np.atleast_1d(read_moments(_listed(times), what, lambda k: f"row {k}", dated=known))
        dated = moments.dtype.kind == "M"
        if dated is not (self.origin is not None):
            one, other = ("a date", "numbers") if dated else ("a number", "dates")
            raise SourceDataError(
                f"{what} is {one}, {shown(_first(times))}, but the planner's times are {other}. Write all "
                "the same way."
            )
        origin = None if self.origin is None else np.datetime64(self.origin.replace(tzinfo=None), "D")
        numbers = time_since(origin, moments, self.time_unit, what)
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            raise SourceDataError(f"{what} is {numbers[bad[0]]} in row {bad[0]}. Pass a finite time.")
        return numbers

    def moment(self, number: float) -> float | datetime:
        """Return a number as the planner's user writes moments.

        Dates beyond the calendar are its last one.
        """
        if self.origin is None:
            return number
        try:
            return self.origin + timedelta(microseconds=round(number * SECONDS[self.time_unit] * 1e6))
        except (OverflowError, ValueError):
            return datetime.max.replace(tzinfo=UTC)

    def wall(self) -> float:
        """Return the present moment of this machine; inf where times are numbers."""
        return math.inf if self.origin is None else self.number(datetime.now(UTC), "now")

    def is_ahead(self, number: float, than: float) -> bool:
        """Return whether a moment is more than a day later than another."""
        return number > than + AHEAD / SECONDS[self.time_unit]


def _listed(times: Any) -> Any:  # noqa: ANN401
    """Return one moment as a list of one, several as they are."""
    return [times] if isinstance(times, str | datetime) or np.ndim(times) == 0 else times


def _first(times: Any) -> object:  # noqa: ANN401
    return next(iter(times), None) if np.ndim(times) else times
