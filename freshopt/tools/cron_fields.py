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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import IntArray
from freshopt.scheduling.rate_table import RateTable
from freshopt.tools.export import Exported
from freshopt.tools.whole_seconds import ROUNDING, labels, report, require_clocked
from freshopt.units import SECONDS

_DAY = SECONDS["day"]
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
# Positions within a month are counted in thousandths of a step.
_FINE = 1000


@dataclass(frozen=True, slots=True)
class Repetition:
    """Refreshes that a crontab can repeat, per cycle of days.

    The cycle is `WEEK` or `YEAR`; `leap` says whether there is one more on 29 February.
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
    week, best_days = [0] * WEEK, dict[tuple[int, tuple[int, ...]], tuple[int, ...]]()
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
            state = rest, tuple([load - least for load in week])
            if state not in best_days:
                tries = [_evenly(rest, WEEK, begin).positions for begin in range(WEEK)]
                best_days[state] = min(tries, key=lambda days: sum(week[day] for day in days))
            days = best_days[state]
            for day in days:
                week[day] += 1
            lines.append(f"{minute} {hour} * * {_several(days)}")
        elif repeated.cycle == YEAR:
            months = next(dates)
            if repeated.leap:
                months[1] |= 1 << 29
            shared: dict[int, int] = {}
            for month, own in enumerate(months, start=1):
                shared[own] = shared.get(own, 0) | 1 << month
            shared.pop(0, None)
            lines += [f"{minute} {hour} {_bits(own)} {_bits(those)} *" for own, those in shared.items()]
        yield lines


def _yearly_dates(repetitions: list[Repetition | None]) -> Iterator[list[int]]:
    """Yield the dates of each yearly source, month by month.

    A month's dates are the bits of a number. Of `_TRIES` ways to lay them each source takes the one on whose
    days the fewest refreshes are so far.
    """
    yearly = [(k, own.count % YEAR) for k, own in enumerate(repetitions) if own and own.cycle == YEAR]
    load = np.zeros(YEAR, dtype=np.int64)
    for begin in range(0, len(yearly), _TOGETHER):
        part = yearly[begin : begin + _TOGETHER]
        counts = np.array([count for _, count in part])
        number = _TRIES * np.array([k for k, _ in part])[:, None] + np.arange(_TRIES)
        months, places = _dates(np.repeat(counts, _TRIES), number.reshape(-1))
        end, chosen = 0, []
        for at, count in enumerate(counts.tolist()):
            tries = places[end : end + _TRIES * count].reshape(_TRIES, count)
            end += _TRIES * count
            best = int(load[tries].sum(axis=1).argmin())
            load[tries[best]] += 1
            chosen.append(_TRIES * at + best)
        yield from months[chosen].tolist()


def _phases(number: int) -> tuple[float, float]:
    return math.fmod((number + 1) * _STEP, 1.0), math.fmod((number + 1) * _OTHER, 1.0)


def _every_day(count: int, minute: int, hour: int) -> tuple[list[str], int, int]:
    """Return minutes and hours of daily refreshes, and a free time."""
    often, extra = divmod(count, 24)
    if often == 0:
        hours = _evenly(count, 24, hour)
        return [f"{minute} {hours.text}"] if count else [], minute, hours.free
    minutes, hours = _evenly(often, 60, minute), _evenly(extra, 24, hour)
    lines = [f"{minutes.text} *", *([f"{minutes.free} {hours.text}"] if extra else [])]
    return lines, minutes.free, hours.free


def _dates(counts: IntArray, number: IntArray) -> tuple[IntArray, IntArray]:
    """Return dates of years, as bits by month and as days.

    There are ``counts`` dates each, < 365, one after the other; integers keep each of them a date. Days are
    those of a common year, from 0. The numbers tell their phases.
    """
    first, second = (np.fmod((number + 1) * step, 1.0) for step in (_STEP, _OTHER))
    begin, offset = (YEAR * first).astype(np.int64), (_FINE * second).astype(np.int64)
    ends = (np.append(_BEFORE, YEAR) * counts[:, None] + begin[:, None]) // YEAR
    each = np.diff(ends, axis=1).reshape(-1)
    start = np.cumsum(each) - each
    length, before = (np.tile(np.array(own), len(counts)) for own in (_MONTHS, _BEFORE))
    # A day is (_FINE·ordinal + offset)·length // (_FINE·each). Division of floats is faster, and quotients of
    # integers of so few digits are not rounded up to an integer.
    step = _FINE * length.astype(np.float64)
    least = np.repeat(offset, len(_MONTHS)) * length - step * start
    upper = np.arange(int(np.sum(each))) * np.repeat(step, each) + np.repeat(least, each)
    day = (upper / np.repeat(_FINE * each.astype(np.float64), each)).astype(np.int64)
    months, filled = np.zeros(len(each), dtype=np.int64), np.flatnonzero(each)
    if len(filled):
        months[filled] = np.bitwise_or.reduceat(np.int64(2) << day, start[filled])
    return months.reshape(-1, len(_MONTHS)), np.repeat(before, each) + day


class _Even(NamedTuple):
    """Positions of a cycle that are evenly spaced, with cron's text.

    `free` is a position in the middle of the longest stretch without any.
    """

    positions: tuple[int, ...]
    text: str
    free: int


# There are 24·24 + 60·60 + 7·7 of them at most.
@cache
def _evenly(count: int, cycle: int, begin: int) -> _Even:
    """Return positions of a cycle, as even as they can be.

    Where `count` is 0 `begin` is free.
    """
    taken = tuple(sorted((begin + k * cycle // count) % cycle for k in range(count)))
    if not taken:
        return _Even(taken, "", begin)
    gaps = [(taken[(k + 1) % len(taken)] - at - 1) % cycle + 1 for k, at in enumerate(taken)]
    longest = gaps.index(max(gaps))
    return _Even(taken, _several(taken), (taken[longest] + gaps[longest] // 2) % cycle)


# Sources of similar rates share their dates: a crontab of 10 000 lines has some thousands.
@lru_cache(maxsize=10_000)
def _bits(values: int) -> str:
    """Return dates or months, bits of a number, as cron's text."""
    return _several([value for value in range(1, 32) if values >> value & 1])


def _several(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def cron_lines(table: RateTable, tool: str, *, seconds: bool = False) -> tuple[list[list[str]], Exported]:
    """Return the cron lines of each source, and the report on them.

    Examples
    --------
    >>> from freshopt.scheduling.rate_table import read_rates
    >>> cron_lines(read_rates({"a": 8000.0, "b": 2.0, "c": 0.0}), "a tool", seconds=True)[0]
    [['11 seconds'], ['30 3,15 * * *'], []]
    """
    require_clocked(table, tool)
    names = labels(table)
    rates = (table.rates * (_DAY / SECONDS[table.time_unit])).tolist()
    fast = [_whole_seconds(rate) if seconds else None for rate in rates]
    repeated = [
        _repetition(name, rate, tool, seconds) if own is None else None
        for name, rate, own in zip(names, rates, fast, strict=True)
    ]
    lines = [
        fields if own is None else [f"{own} seconds"]
        for own, fields in zip(fast, time_fields(repeated), strict=True)
    ]
    per_day = [
        _DAY / own if own is not None else 0.0 if each is None else each.per_day
        for own, each in zip(fast, repeated, strict=True)
    ]
    realised = np.array(per_day) * (SECONDS[table.time_unit] / _DAY)
    return lines, report(table.rates, realised, table.rates > 0.0, "left out", table.time_unit)


def _whole_seconds(rate: float) -> int | None:
    """Return the whole seconds of an interval below a minute, else None."""
    if not MOST * (1.0 + ROUNDING) < rate <= _DAY * (1.0 + ROUNDING):
        return None
    return math.ceil(_DAY / rate * (1.0 - ROUNDING))


def _repetition(name: str, rate: float, tool: str, seconds: bool) -> Repetition | None:
    """Return what a rate per day becomes; None for 0."""
    repeated = repetition(rate) if rate else None
    if repeated is None and rate:
        raise SourceDataError(
            f"source {name!r} is to be refreshed {rate:.4g} times a day. {tool} goes from once in 365 days "
            f"to once a {'second' if seconds else 'minute'}. "
            f"{'Lower its max_rate' if rate > 1.0 else 'Raise its min_rate'}, or leave it out."
        )
    return repeated
