"""Alarms of a live plan: conditions in words, for cron and CI.

``fresh < 90%`` compares a number of the planner's state; ``5% older than 2h`` says that at least such a share
of the sources was last crawled longer ago. What is not known yet is an alarm, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import NamedTuple

from freshopt.errors import SourceDataError, shown
from freshopt.formatting import number, percent
from freshopt.live.planner import Planner
from freshopt.live.status import PlannerStatus
from freshopt.units import duration, parse_duration, share_of

# Numbers of a planner's state by name: shares, counts, and below the seconds since the latest crawl.
SHARES: dict[str, Callable[[PlannerStatus], float]] = {
    "fresh": lambda status: status.freshness,
    "unused": lambda status: status.unused,
    "gap": lambda status: status.relative_gap,
}
COUNTS: dict[str, Callable[[PlannerStatus], float]] = {
    "sources": lambda status: status.sources,
    "due": lambda status: status.due,
    "down": lambda status: status.down,
    "never": lambda status: status.never_crawled,
}
IDLE = "idle"
_NAMES = ", ".join([*SHARES, *COUNTS, IDLE])
GRAMMAR = f"Write such as 'fresh < 90%', 'idle > 2h' or '5% older than 2h', of {_NAMES}"
_COMPARED = re.compile(r"(?P<name>[a-z]+)\s*(?P<side>[<>])\s*(?P<limit>[^<>]+)")
_OLDER = re.compile(r"(?:(?P<who>.+?)\s*:\s+)?(?P<share>[\d.]+\s*%)\s+older\s+than\s+(?P<age>.+)")


class Alarm(NamedTuple):
    """A number beyond a limit, or a share of old copies."""

    text: str
    name: str
    above: bool
    limit: float
    age: float = math.nan
    who: str = "*"

    @classmethod
    def of(cls, text: str) -> Alarm:
        """Return the alarm that words tell.

        Examples
        --------
        >>> Alarm.of("idle > 2h").limit, Alarm.of("news/*: 5% older than 1d").who
        (7200.0, 'news/*')
        """
        option, plain = f"--fail-if {shown(text)}:", text.strip()
        older, compared = _OLDER.fullmatch(plain), _COMPARED.fullmatch(plain)
        try:
            if older is not None:
                age = parse_duration(older["age"], "second")
                return cls(
                    text, "older", True, share_of("the share", older["share"]), age, older["who"] or "*"
                )
            if compared is not None and compared["name"] in {*SHARES, *COUNTS, IDLE}:
                name, limit = compared["name"], compared["limit"].strip()
                value = (
                    parse_duration(limit, "second")
                    if name == IDLE
                    else share_of(name, limit)
                    if name in SHARES
                    else float(limit)
                )
                if not math.isnan(value):
                    return cls(text, name, compared["side"] == ">", value)
        except (SourceDataError, ValueError) as error:
            raise SourceDataError(f"{option} {str(error).rstrip('.')}. {GRAMMAR}.") from None
        raise SourceDataError(f"{option} is no condition. {GRAMMAR}.")

    def raised(self, planner: Planner, status: PlannerStatus) -> str | None:
        """Return why it is raised, in words; None where it is not."""
        if self.name in SHARES or self.name in COUNTS:
            value = (SHARES | COUNTS)[self.name](status)
            told = percent(value, space=" ") if self.name in SHARES and value == value else number(value)
        else:
            ages = _ages(planner, self.who)
            if self.name == IDLE:
                value = min(ages, default=math.inf)
                told = "no crawl yet" if value == math.inf else duration(value, "second")
            else:
                value = sum(age > self.age for age in ages) / len(ages) if ages else math.nan
                told = percent(value, space=" ") if ages else f"no source {shown(self.who)}"
        beyond = value > self.limit if self.above else value < self.limit
        if self.name == "older":
            beyond = value >= self.limit and value > 0.0
        if value == value and not beyond:
            return None
        return f"{self.text} ({'not known yet' if value != value and self.name != 'older' else told})"


def _ages(planner: Planner, who: str) -> list[float]:
    """Return seconds since the last crawls of sources, inf without any."""
    frame, now = planner.to_frame(), datetime.now(UTC)
    found = []
    for name, last in zip(frame["source"].to_list(), frame["last_crawl"].to_list(), strict=True):
        if fnmatchcase(name, who):
            if last is not None and not isinstance(last, datetime):
                raise SourceDataError("this planner counts numbers, and ages need dates. Leave them out.")
            found.append(math.inf if last is None else (now - last).total_seconds())
    return found
