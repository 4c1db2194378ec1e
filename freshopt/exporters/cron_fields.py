"""Time fields of cron for rates: lines that repeat weekly or yearly.

cron knows minutes, hours, days of the month, months and days of the week, and no intervals. A rate becomes a
whole number of refreshes per week, or, where that loses more than `LOSS` of it, per year of 365 days. They
are spread as evenly as the fields allow: on every day as many as there are in all, at the same times; and
what is left over, less than one a day, on days of the week or on dates. Dates are counted month by month in
proportion to the month's days, and are evenly spaced within it, so that every day of every month has its
share, the 31st too. Months of equal length mostly have equal dates and share a line.

Among `_TRIES` ways to lay its dates each source takes the one on whose days the fewest refreshes are so far;
days of the week likewise. Minutes and hours of the sources fill the day evenly.

What cron cannot express: in a week or in 365 days a source has at most its rate, and less of it by under
max(`LOSS`, 1/(n + 1)), n its refreshes a year. The gap between two of its refreshes is at most about twice
the mean. There are no leap years: 29 February is one more date of those sources whose rate has room for one
more refresh in 366 days, and of no other source that refreshes on dates.

Cost: at most six lines, and `_TRIES` passes over the dates, per source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from freshopt.exporters.whole_intervals import ROUNDING

_T = TypeVar("_T")
# Share of a rate that may be lost for the fewer lines of a week.
LOSS = 0.01
# Refreshes per day: cron acts once a minute.
MOST = 1440.0
WEEK, YEAR = 7, 365
# Days of the Gregorian year, and the share of the years that are leap years.
_MEAN_YEAR, _LEAP = 365.2425, 0.2425
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_BEFORE = tuple(sum(_MONTHS[:month]) for month in range(12))
# Multiples of 1/g and 1/g², g³ = g + 1, fill the unit square evenly.
_STEP, _OTHER = 1.324717957244746**-1, 1.324717957244746**-2
# With 8, the busiest day of 1500 random rates below one a day is 2 % above the mean; with 1, 12 %.
_TRIES = 8
# Positions within a month are counted in thousandths of a step.
_FINE = 1000


@dataclass(frozen=True, slots=True)
class Repetition:
    """Refreshes that a crontab can repeat.

    Attributes
    ----------
    count : int
        Refreshes per cycle.
    cycle : int
        In days: `WEEK`, or `YEAR`.
    leap : bool
        Whether there is one more on 29 February.
    """

    count: int
    cycle: int
    leap: bool

    @property
    def per_day(self) -> float:
        """The mean refreshes per day over all years."""
        if self.cycle == WEEK:
            return self.count / WEEK
        daily, dates = divmod(self.count, YEAR)
        return daily + (dates + _LEAP * self.leap) / _MEAN_YEAR


def repetition(rate: float) -> Repetition | None:
    """Return a rate per day, rounded down to what repeats.

    None above one a minute and below one in 365 days.

    Examples
    --------
    >>> repetition(100.5), repetition(2 / 7)
    (Repetition(count=703, cycle=7, leap=False), Repetition(count=2, cycle=7, leap=False))
    >>> repetition(1.1), repetition(1.9999 / 365), repetition(0.99 / 365)
    (Repetition(count=401, cycle=365, leap=False), Repetition(count=1, cycle=365, leap=True), None)
    """
    most = rate * (1.0 + ROUNDING)
    if YEAR * most < 1.0 or rate > MOST * (1.0 + ROUNDING):
        return None
    weekly = min(int(WEEK * most), WEEK * int(MOST))
    if weekly >= WEEK * rate * (1.0 - LOSS):
        return Repetition(weekly, WEEK, False)
    yearly = int(YEAR * most)
    return Repetition(yearly, YEAR, int((YEAR + 1) * most) > yearly + yearly // YEAR)


def time_fields(repetitions: Iterable[Repetition | None]) -> Iterator[list[str]]:
    """Yield each source's lines, as their five time fields.

    None for a source without lines.

    Examples
    --------
    >>> for lines in time_fields([Repetition(9, WEEK, False), None, Repetition(3, YEAR, True)]):
    ...     print(lines)
    ['45 13 * * *', '45 1 * * 0,3']
    []
    ['15 17 22 1,5 *', '15 17 29 2 *', '15 17 21 9 *']
    """
    week, year = [0] * WEEK, [0] * YEAR
    for number, repeated in enumerate(repetitions):
        if repeated is None:
            yield []
            continue
        first, second = _phases(number)
        daily, rest = divmod(repeated.count, repeated.cycle)
        times, minute, hour = _every_day(daily, int(60.0 * first), int(24.0 * second))
        lines = [f"{time} * * *" for time in times]
        if repeated.cycle == WEEK and rest:
            tries = [_spread(rest, WEEK, begin) for begin in range(WEEK)]
            days = _least(tries, tries, week)
            lines.append(f"{minute} {hour} * * {_several(days)}")
        elif repeated.cycle == YEAR:
            grids = [_dates(rest, *_phases(_TRIES * number + k)) for k in range(_TRIES)]
            months = _least(grids, [_positions(grid) for grid in grids], year)
            if repeated.leap:
                months[1].append(29)
            shared: dict[str, list[int]] = {}
            for month, dates in enumerate(months, start=1):
                shared.setdefault(_several(dates), []).append(month)
            lines += [
                f"{minute} {hour} {dates} {_several(those)} *" for dates, those in shared.items() if dates
            ]
        yield lines


def _phases(number: int) -> tuple[float, float]:
    return math.fmod((number + 1) * _STEP, 1.0), math.fmod((number + 1) * _OTHER, 1.0)


def _least(choices: list[_T], places: list[list[int]], load: list[int]) -> _T:
    """Return the choice whose places are loaded least, and load them."""
    best = min(range(len(choices)), key=lambda k: sum(load[place] for place in places[k]))
    for place in places[best]:
        load[place] += 1
    return choices[best]


def _every_day(count: int, minute: int, hour: int) -> tuple[list[str], int, int]:
    """Return minutes and hours of every day's refreshes, and a free time.

    That is a minute and an hour far from the others.
    """
    often, extra = divmod(count, 24)
    if often == 0:
        hours = _spread(count, 24, hour)
        return [f"{minute} {_several(hours)}"] if count else [], minute, _between(hours, 24, hour)
    minutes = _spread(often, 60, minute)
    free, hours = _between(minutes, 60, minute), _spread(extra, 24, hour)
    lines = [f"{_several(minutes)} *", *([f"{free} {_several(hours)}"] if extra else [])]
    return lines, free, _between(hours, 24, hour)


def _dates(count: int, first: float, second: float) -> list[list[int]]:
    """Return the days of each month that are among `count` dates.

    They are < 365 dates of a common year; integers keep each of them a date.
    """
    begin, offset, passed = int(YEAR * first), int(_FINE * second), 0
    months = []
    for length in _MONTHS:
        many = ((passed + length) * count + begin) // YEAR - (passed * count + begin) // YEAR
        months.append([1 + (_FINE * k + offset) * length // (_FINE * many) for k in range(many)])
        passed += length
    return months


def _positions(months: list[list[int]]) -> list[int]:
    """Return the days of the year, from 0, of dates."""
    return [before + day - 1 for before, days in zip(_BEFORE, months, strict=True) for day in days]


def _spread(count: int, cycle: int, begin: int) -> list[int]:
    """Return `count` distinct positions of a cycle, evenly spaced.

    As even as they can be.
    """
    return sorted((begin + k * cycle // count) % cycle for k in range(count))


def _between(taken: list[int], cycle: int, default: int) -> int:
    """Return a free position in the longest free stretch.

    It is in the middle between those that are taken; `default` if none is.
    """
    if not taken:
        return default
    gaps = [(taken[(k + 1) % len(taken)] - at - 1) % cycle + 1 for k, at in enumerate(taken)]
    longest = int(np.argmax(gaps))
    return (taken[longest] + gaps[longest] // 2) % cycle


def _several(values: list[int]) -> str:
    return ",".join(map(str, values))
