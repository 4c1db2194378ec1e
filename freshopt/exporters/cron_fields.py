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
from itertools import pairwise

import numpy as np

from freshopt.exporters.whole_intervals import ROUNDING
from freshopt.numerics.arrays import IntArray

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
# Sources whose tries are laid at a time: at most 24 MB of days each.
_TOGETHER = 1000
# The day of the month of each day of the year.
_DAY = np.concatenate([np.arange(1, length + 1) for length in _MONTHS])
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
    found = list(repetitions)
    week, best_days = [0] * WEEK, dict[tuple[int, tuple[int, ...]], list[int]]()
    dates = _yearly_dates(found)
    for number, repeated in enumerate(found):
        if repeated is None:
            yield []
            continue
        first, second = _phases(number)
        daily, rest = divmod(repeated.count, repeated.cycle)
        times, minute, hour = _every_day(daily, int(60.0 * first), int(24.0 * second))
        lines = [f"{time} * * *" for time in times]
        if repeated.cycle == WEEK and rest:
            # Only by how much days are fuller than the emptiest matters: few such weeks come up, again and
            # again.
            least = min(week)
            state = rest, tuple(load - least for load in week)
            if state not in best_days:
                tries = [_spread(rest, WEEK, begin) for begin in range(WEEK)]
                best_days[state] = min(tries, key=lambda days: sum(week[day] for day in days))
            days = best_days[state]
            for day in days:
                week[day] += 1
            lines.append(f"{minute} {hour} * * {_several(days)}")
        elif repeated.cycle == YEAR:
            months = next(dates)
            if repeated.leap:
                months[1].append(29)
            shared: dict[str, list[int]] = {}
            for month, own in enumerate(months, start=1):
                shared.setdefault(_several(own), []).append(month)
            lines += [f"{minute} {hour} {own} {_several(those)} *" for own, those in shared.items() if own]
        yield lines


def _yearly_dates(repetitions: list[Repetition | None]) -> Iterator[list[list[int]]]:
    """Yield the dates of each yearly source, month by month.

    Of `_TRIES` ways each takes the one on whose days the fewest refreshes are so far.
    """
    yearly = [(k, own.count % YEAR) for k, own in enumerate(repetitions) if own and own.cycle == YEAR]
    load = np.zeros(YEAR, dtype=np.int64)
    for begin in range(0, len(yearly), _TOGETHER):
        part = yearly[begin : begin + _TOGETHER]
        counts = np.array([count for _, count in part])
        number = _TRIES * np.array([k for k, _ in part])[:, None] + np.arange(_TRIES)
        many, places = _dates(np.repeat(counts, _TRIES), number.reshape(-1))
        ends = np.cumsum(_TRIES * counts).tolist()
        for at, count in enumerate(counts.tolist()):
            tries = places[ends[at] - _TRIES * count : ends[at]].reshape(_TRIES, count)
            best = int(np.argmin(load[tries].sum(axis=1)))
            load[tries[best]] += 1
            days = (_DAY[tries[best]]).tolist()
            stops = np.cumsum(many[_TRIES * at + best]).tolist()
            yield [days[first:stop] for first, stop in pairwise([0, *stops])]


def _phases(number: int) -> tuple[float, float]:
    return math.fmod((number + 1) * _STEP, 1.0), math.fmod((number + 1) * _OTHER, 1.0)


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


def _dates(counts: IntArray, number: IntArray) -> tuple[IntArray, IntArray]:
    """Return how many dates each month has, and which.

    They are days of a common year, from 0. There are ``counts`` dates each, < 365, one after the other;
    integers keep each of them a date. The numbers tell their phases.
    """
    first, second = (np.fmod((number + 1) * step, 1.0) for step in (_STEP, _OTHER))
    begin, offset = (YEAR * first).astype(np.int64), (_FINE * second).astype(np.int64)
    ends = (np.append(_BEFORE, YEAR) * counts[:, None] + begin[:, None]) // YEAR
    many = np.diff(ends, axis=1)
    each = many.reshape(-1)
    group = np.repeat(np.arange(len(each)), each)
    ordinal = np.arange(len(group)) - (np.cumsum(each) - each)[group]
    month = group % len(_MONTHS)
    length = np.array(_MONTHS)[month]
    day = (_FINE * ordinal + offset[group // len(_MONTHS)]) * length // (_FINE * each[group])
    return many, np.array(_BEFORE)[month] + day


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
