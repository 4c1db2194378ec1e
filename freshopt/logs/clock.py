"""`Clock`: moments as numbers on one scale, and back.

Numbers are in a time unit; dates are counted from midnight UTC of the first day that was told, the origin.
Counted from 1970, float64 days resolve a third of a microsecond only; counted from the origin they resolve a
nanosecond for a century. Both ways round alike everywhere: a moment told twice is the same number.

Times that can be read but can hardly be meant are warned of. A clock that was never set starts in 1970, one
that was set wrongly is off by decades, and a number in another unit by a factor of thousands. Change rates
that are learnt across such a jump are wrong by as much. Rows of years that nobody has seen yet, beside others
of today, are refused. Neither depends on the present day: equal logs give equal warnings.

Cost: some passes over the times; for the warnings a sort where they are more than ten years apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shown, warn
from freshopt.formatting import count
from freshopt.formatting import number as written
from freshopt.logs.timestamps import TICKS, Moments, Times, read_moments, year_of
from freshopt.numerics.arrays import Array, BoolArray, chunks
from freshopt.units import SECONDS

# A crawl may be dated so much later than the clock of this machine, in seconds.
AHEAD = 86_400.0
_MICROSECOND = timedelta(microseconds=1)
# Years in which computers observe sources; 1970 is that of clocks that were never set.
YEARS = (1971, 2100)
# A gap is a jump of the clock if it is longer than ten years, and ten times as long as the median interval of
# a source and as all other gaps together: a pause of the crawler is shorter, or the log around it longer.
LONG, TIMES = 10.0 * 365.25 * SECONDS["day"], 10.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Scale of moments: a time unit, and the moment of time 0.

    - `origin`: In UTC; None where times are plain numbers.

    Examples
    --------
    >>> clock = Clock.beginning("day", "2026-01-31T06:00Z")
    >>> clock.number("2026-02-01T12:00Z", "time"), clock.moment(1.5).isoformat()
    (1.5, '2026-02-01T12:00:00+00:00')
    """

    unit: str
    origin: datetime | None = None

    @classmethod
    def of(cls, moments: Moments, unit: str) -> Clock:
        """Return the clock of moments: of dates from midnight before the first.

        NaT are passed over.

        Examples
        --------
        >>> Clock.of(np.array(["2026-01-02T12:00", "NaT"], "M8[s]"), "day").origin.isoformat()
        '2026-01-02T00:00:00+00:00'
        """
        if moments.dtype.kind != "M":
            return cls(unit)
        first = np.fmin.reduce(moments, axis=None).astype("datetime64[D]")
        return cls(unit, as_datetime(np.datetime64(0, "D") if np.isnat(first) else first))

    @classmethod
    def beginning(cls, unit: str, times: Times) -> Clock:
        """Return the clock of a planner whose first moments these are."""
        moments = np.atleast_1d(read_moments(_listed(times), "time", str, unit))
        if moments.dtype.kind == "M" and np.isnat(moments).all():
            raise SourceDataError("time is NaT. Pass the moment of the crawl.")
        return cls.of(moments, unit)

    @classmethod
    def from_text(cls, text: str) -> Clock:
        """Return the clock that `str` wrote.

        Examples
        --------
        >>> Clock.from_text("day 2026-01-31T00:00:00+00:00").origin.day, Clock.from_text("hour").origin
        (31, None)
        """
        unit, _, origin = text.partition(" ")
        return cls(unit, datetime.fromisoformat(origin) if origin else None)

    def __str__(self) -> str:
        return self.unit if self.origin is None else f"{self.unit} {self.origin.isoformat()}"

    @property
    def dated(self) -> bool:
        """Whether times are dates."""
        return self.origin is not None

    @property
    def zero(self) -> np.datetime64 | None:
        """The moment of time 0 to the microsecond, None of numbers."""
        return None if self.origin is None else np.datetime64(self.origin.replace(tzinfo=None), "us")

    def epoch(self, undated: float = 0.0) -> float:
        """Return the seconds since 1970 of time 0; `undated` of numbers."""
        return undated if self.origin is None else self.origin.timestamp()

    def shift(self, other: Clock) -> float:
        """Return what takes another's times to this clock, in the same unit.

        It is added to them; zero where one has no dates.

        Examples
        --------
        >>> one, other = (Clock.beginning("hour", day) for day in ("2026-01-01", "2026-01-02"))
        >>> one.shift(other), one.shift(Clock("hour"))
        (24.0, 0.0)
        """
        if self.origin is None or other.origin is None:
            return 0.0
        return (other.origin - self.origin).total_seconds() / SECONDS[self.unit]

    def offsets(self, moments: Moments, what: str) -> Array:
        """Return moments as numbers; NaT becomes NaN.

        Examples
        --------
        >>> Clock.beginning("day", "2026-01-01").offsets(np.array(["2026-01-02T12:00"], "M8[s]"), "time")
        array([1.5])
        """
        dated = moments.dtype.kind == "M"
        if dated is not self.dated:
            one, other = ("dates", "numbers") if dated else ("numbers", "dates")
            raise SourceDataError(
                f"{what} has {one} but the log's times are {other}. Write both the same way."
            )
        if self.zero is None:
            return moments.astype(np.float64, copy=False)
        unit = np.datetime_data(moments.dtype)[0]
        if unit == "ns" and not _countable_in_ns(self.zero, moments):
            moments, unit = moments.astype("datetime64[us]"), "us"
        # Both are integers: the difference is exact, and one division rounds once.
        begin, per_unit = self.zero.astype(moments.dtype), SECONDS[self.unit] * TICKS[unit]
        every, times = moments.reshape(-1), np.empty(moments.size)
        for part in chunks(len(every)):
            np.divide((every[part] - begin).astype(np.int64), per_unit, out=times[part])
            times[part][np.isnat(every[part])] = np.nan
        return times.reshape(moments.shape)

    def number(self, time: Any, what: str) -> float:  # noqa: ANN401 - a time as people write it
        """Return one moment, as people write it, as a number."""
        if self.origin is None:
            if type(time) is float and math.isfinite(time):
                return time
        elif type(time) is datetime:
            aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            return ((aware - self.origin) // _MICROSECOND) / (SECONDS[self.unit] * 1e6)
        return float(self.numbers([time], what)[0])

    def numbers(self, times: Any, what: str) -> Array:  # noqa: ANN401
        """Return moments, as people write them, as numbers; raises as `number`."""
        moments = np.atleast_1d(read_moments(_listed(times), what, lambda k: f"row {k}", dated=self.dated))
        dated = moments.dtype.kind == "M"
        if dated is not self.dated:
            one, other = ("a date", "numbers") if dated else ("a number", "dates")
            raise SourceDataError(
                f"{what} is {one}, {shown(_first(times))}, but the planner's times are {other}. Write all "
                "the same way."
            )
        numbers = self.offsets(moments, what)
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            raise SourceDataError(f"{what} is {numbers[bad[0]]} in row {bad[0]}. Pass a finite time.")
        return numbers

    def date(self, number: float) -> datetime | None:
        """Return a number as a date, None where times are numbers.

        Dates beyond the calendar are its last one.
        """
        if self.origin is None:
            return None
        try:
            return self.origin + timedelta(microseconds=round(number * SECONDS[self.unit] * 1e6))
        except (OverflowError, ValueError):
            return datetime.max.replace(tzinfo=UTC)

    def moment(self, number: float) -> float | datetime:
        """Return a number as whoever told the times writes moments."""
        date = self.date(number)
        return number if date is None else date

    def moments(self, numbers: Array) -> npt.NDArray[Any]:
        """Return numbers as moments in UTC to the microsecond; of numbers themselves."""
        if self.zero is None:
            return numbers
        return moments_after(self.zero, numbers, self.unit)

    def wall(self) -> float:
        """Return the present moment of this machine; inf where times are numbers."""
        return math.inf if self.origin is None else self.number(datetime.now(UTC), "now")

    def is_ahead(self, number: float, than: float) -> bool:
        """Return whether a moment is more than a day later than another."""
        return number > than + AHEAD / SECONDS[self.unit]


def on_own_clock(
    times: Times, what: str, row_name: Callable[[int], str], unit: str, *, numbers_count: bool = False
) -> tuple[Array, Clock]:
    """Return times in time units, and the clock that they define.

    Raises as `read_moments`. It may be known that numbers count time.

    Examples
    --------
    >>> times, clock = on_own_clock([20260101, 20260103], "time", str, "day")
    >>> times, str(clock)
    (array([0., 2.]), 'day 2026-01-01T00:00:00+00:00')
    """
    moments = read_moments(times, what, row_name, unit, dated=False if numbers_count else None)
    clock = Clock.of(moments, unit)
    return clock.offsets(moments, what), clock


def moments_after(zero: np.datetime64, numbers: Array, unit: str) -> npt.NDArray[np.datetime64]:
    """Return moments so many units after another, NaT for NaN.

    Examples
    --------
    >>> moments_after(np.datetime64("2026-01-01", "us"), np.array([0.5, np.nan]), "day").astype("M8[h]")
    array(['2026-01-01T12',           'NaT'], dtype='datetime64[h]')
    """
    known = ~np.isnan(numbers)
    moment = np.full(len(numbers), np.datetime64("NaT", "us"))
    moment[known] = zero + np.rint(numbers[known] * (SECONDS[unit] * 1e6)).astype("timedelta64[us]")
    return moment


def as_datetime(moment: np.datetime64) -> datetime:
    """Return a moment as a datetime in UTC."""
    when: datetime = moment.astype("datetime64[us]").item()
    return when.replace(tzinfo=UTC)


def check_clock(time: Array, intervals: Array, label: Callable[[int], str], clock: Clock) -> None:
    """Raise for years to come beside others; warn of implausible times.

    Implausible are other years than `YEARS`, or else jumps of the clock. Intervals are since the previous row
    of the same source, NaN where there is none.
    """
    first, last = _plausible(clock)
    low, high = float(np.min(time)), float(np.max(time))

    def where(rows: BoolArray) -> str:
        wrong = np.flatnonzero(rows)
        told = (f"{label(k)}: {_said(float(time[k]), clock)}" for k in wrong.tolist())
        return list_offenders(told, len(wrong))

    if low < last <= high:
        raise SourceDataError(
            f"time is later than the year {YEARS[1]} in {where(time >= last)}, and earlier in all others. "
            "Correct or drop these rows."
        )
    if low < first or high >= last:
        warn(
            f"time is not in the years {YEARS[0]} to {YEARS[1]} in {where((time < first) | (time >= last))}. "
            "It is used as it stands. If a clock or a unit was wrong, correct or drop these rows.",
            of_rates=True,
        )
    elif (high - low) * SECONDS[clock.unit] > LONG:
        _warn_of_jumps(time, intervals, label, clock)


def _warn_of_jumps(time: Array, intervals: Array, label: Callable[[int], str], clock: Clock) -> None:
    """Warn of gaps between all rows that are no pauses."""
    known = intervals[~np.isnan(intervals)]
    moments = np.sort(time)
    gaps = np.diff(moments)
    if len(known) == 0 or np.max(gaps) * SECONDS[clock.unit] <= LONG:
        return
    is_long = (gaps * SECONDS[clock.unit] > LONG) & (gaps > TIMES * np.median(known))
    ordinary = float(np.sum(gaps[~is_long]))
    jumps = np.flatnonzero(is_long & (gaps > TIMES * ordinary))
    if len(jumps) == 0:
        return

    def said(k: int) -> str:
        ends = " to ".join(_said(float(at), clock) for at in moments[k : k + 2])
        return f"from {ends} in {label(int(np.argmax(time == moments[k + 1])))}"

    where = list_offenders(map(said, jumps.tolist()), len(jumps))
    warn(
        f"time jumps {where}, and all other gaps add up to {count(ordinary, clock.unit)}. "
        "It is used as it stands. If a clock or a unit was wrong, correct or drop these rows.",
        of_rates=True,
    )


def _plausible(clock: Clock) -> tuple[float, float]:
    """Return when sources are observed: at any time for numbers."""
    if clock.origin is None:
        return -math.inf, math.inf
    ends = (datetime(year, 1, 1, tzinfo=UTC) for year in (YEARS[0], YEARS[1] + 1))
    first, last = ((end - clock.origin).total_seconds() / SECONDS[clock.unit] for end in ends)
    return first, last


def _said(time: float, clock: Clock) -> str:
    """Return a time as messages have it."""
    date = clock.date(time)
    return f"{clock.unit} {written(time)}" if date is None else f"{date:%Y-%m-%d %H:%M}"


def _countable_in_ns(origin: np.datetime64, moments: npt.NDArray[np.datetime64]) -> bool:
    """Return whether nanoseconds since the origin fit into 64 bits."""
    ends = (origin, np.fmin.reduce(moments, axis=None), np.fmax.reduce(moments, axis=None))
    years = [year_of(moment) for moment in ends if not np.isnat(moment)]
    return min(years) >= 1678 and max(years) <= 2261 and max(years) - min(years) <= 290


def _listed(times: Any) -> Any:  # noqa: ANN401
    """Return one moment as a list of one, several as they are."""
    return [times] if isinstance(times, str | datetime) or np.ndim(times) == 0 else times


def _first(times: Any) -> object:  # noqa: ANN401
    return next(iter(times), None) if np.ndim(times) else times
