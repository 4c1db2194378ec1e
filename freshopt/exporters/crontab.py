r"""crontab: one or two lines per source.

Its rate is rounded down to a whole number per day, week or longer.

cron knows minutes, hours, days of the month, months and days of the week [1]_, and no intervals. What its
five fields can say evenly are numbers of refreshes, the buckets: a number per day from 24 on (some an hour,
and one more in some of the hours), per week from one a day on (some a day, and one more on some days of the
week), per month (days 1 to 28, which every month has), and per year. Rates are rounded down to one of these,
so that the total is never exceeded; the intervals of a source differ by what the fields cannot express. The
moment in its cycle goes on by the golden ratio from source to source, so that the load of a bucket is spread.

A command is one line: a name with a newline is an error, quotes are quoted for the shell, and ``%``, which
cron would make a newline, is written ``\%``.

References
----------
.. [1] https://man7.org/linux/man-pages/man5/crontab.5.html
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.exporters.whole_intervals import ROUNDING, Exported, labels, require_clocked
from freshopt.numerics.arrays import total
from freshopt.scheduling.rate_table import RateTable
from freshopt.units import SECONDS

# Days of the Gregorian year.
YEAR = 365.2425
MONTH = YEAR / 12
# Refreshes per day: cron acts once a minute.
MOST = 1440.0
# Characters of a command: the first crons keep 1000 of it.
_LONGEST = 998
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, slots=True)
class Crontab:
    """A user's crontab, for ``crontab FILE``.

    Parameters
    ----------
    command : str
        What refreshes a source; its name is appended as one more argument.
    """

    command: str = "refresh"

    @property
    def files(self) -> tuple[str, ...]:
        """No folder: it is one file."""
        return ()

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `IntervalFormat.write`.

        Raises
        ------
        SourceDataError
            If a rate is above one a minute or below one a year, a name or the command cannot stand in a
            crontab, or a source waits for signals.
        """
        require_clocked(table, "cron")
        names = labels(table)
        commands = [self._line(name) for name in names]
        rates = table.rates * (SECONDS["day"] / SECONDS[table.time_unit])
        lines, per_day, never = [], [], 0
        for k, (name, command, rate) in enumerate(zip(names, commands, rates.tolist(), strict=True)):
            if rate == 0.0:
                never += 1
                continue
            bucket = _bucket(rate)
            if bucket is None:
                raise SourceDataError(
                    f"source {name!r} is to be refreshed {rate:.4g} times a day. cron goes from once a year "
                    f"to once a minute. {'Lower its max_rate' if rate > 1.0 else 'Raise its min_rate'}, or "
                    "leave it out."
                )
            phase = math.fmod((k + 1) * _GOLDEN, 1.0)
            lines += [f"{fields} {command}\n" for fields in _fields(*bucket, phase)]
            per_day.append(bucket[0] / _DAYS[bucket[1]])
        path.write_bytes("".join(["# minute hour day month weekday command\n", *lines]).encode())
        realised = total(np.array(per_day)) * (SECONDS[table.time_unit] / SECONDS["day"])
        return Exported(len(names) - never, never, "left out", total(table.rates), realised, table.time_unit)

    def _line(self, name: str) -> str:
        """Return the command for a source, as cron reads it."""
        text = f"{self.command} {shlex.quote(name)}"
        if any(ord(letter) < 32 and letter != "\t" for letter in text) or "\x7f" in text:
            raise SourceDataError(
                f"source {list_offenders([repr(name)])} or the command has a newline or another control "
                "character. A crontab has one command a line. Rename it."
            )
        line = text.replace("%", "\\%")
        if len(line.encode()) > _LONGEST or not self.command.strip():
            raise SourceDataError(
                f"the command for source {name[:80]!r} has {len(line.encode())} octets. cron keeps a command "
                f"of 1 to {_LONGEST}. Shorten the name or the command."
            )
        return line


_DAYS = {"day": 1.0, "week": 7.0, "month": MONTH, "year": YEAR}


def _bucket(rate: float) -> tuple[int, str] | None:
    """Return the count and period of a rounded-down rate.

    Examples
    --------
    >>> _bucket(100.5), _bucket(2.6), _bucket(1 / 7), _bucket(0.01), _bucket(0.001)
    ((100, 'day'), (18, 'week'), (4, 'month'), (3, 'year'), None)
    """
    slack = rate * (1.0 + ROUNDING)
    if slack < 1.0 / YEAR or rate > MOST * (1.0 + ROUNDING):
        return None
    if slack >= 24.0:
        return min(int(slack), int(MOST)), "day"
    if slack >= 1.0:
        return int(7.0 * slack), "week"
    if slack * MONTH >= 1.0:
        return min(int(slack * MONTH), 28), "month"
    return min(int(slack * YEAR), 11), "year"


def _fields(count: int, period: str, phase: float) -> Iterator[str]:
    """Yield the time fields of the lines.

    They make `count` refreshes a period; there are five of them.
    """
    minute = int(60.0 * phase)
    hour = int(24.0 * math.fmod(60.0 * phase, 1.0))
    if period == "day":
        often, extra = divmod(count, 24)
        minutes = _spread(often, 60, minute)
        yield f"{_several(minutes)} * * * *"
        if extra:
            yield f"{_between(minutes, 60)} {_several(_spread(extra, 24, hour))} * * *"
    elif period == "week":
        often, extra = divmod(count, 7)
        hours = _spread(often, 24, hour)
        yield f"{minute} {_several(hours)} * * *"
        if extra:
            yield f"{minute} {_between(hours, 24)} * * {_several(_spread(extra, 7, minute % 7))}"
    elif period == "month":
        days = [1 + day for day in _spread(count, 28, (minute * 24 + hour) % 28)]
        yield f"{minute} {hour} {_several(days)} * *"
    else:
        months = [1 + month for month in _spread(count, 12, minute % 12)]
        yield f"{minute} {hour} {1 + (minute + hour) % 28} {_several(months)} *"


def _spread(count: int, cycle: int, begin: int) -> list[int]:
    """Return `count` distinct positions of a cycle, evenly spaced.

    As even as they can be.
    """
    return sorted((begin + k * cycle // count) % cycle for k in range(count))


def _between(taken: list[int], cycle: int) -> int:
    """Return a free position in the longest free stretch.

    It is in the middle between those that are taken.
    """
    gaps = [(taken[(k + 1) % len(taken)] - at - 1) % cycle + 1 for k, at in enumerate(taken)]
    longest = int(np.argmax(gaps))
    return (taken[longest] + gaps[longest] // 2) % cycle


def _several(values: list[int]) -> str:
    return ",".join(map(str, values))
