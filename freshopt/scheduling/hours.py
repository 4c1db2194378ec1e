"""`Hours`: times of the week at which fetches are allowed.

They repeat every week, on the clock of UTC or of a time zone. Time that counts only while fetches are allowed
is *open time*: a crawler that fetches at equal gaps of it keeps equal gaps by day and rests in blackouts. A
gap of open time I that begins at random takes I and all closed times that it crosses: it crosses a closing
at open time c of the week if it begins less than I before it, so that there are at most two lengths of gaps
for each closing, with known shares (`Hours.gaps`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError, expect, shown
from freshopt.estimators.week_clock import FIRST_MONDAY, WEEK, check_time_zone, from_local, to_local
from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.schedule import Method
from freshopt.units import SECONDS

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
SPANS = {"daily": range(7), "workdays": range(5), "weekends": range(5, 7)}
_DAY = SECONDS["day"]
_WINDOW = re.compile(
    r"(?P<never>not\s+)?(?P<days>[a-z][a-z,\- ]*?)?\s*"
    r"(?:(?P<h1>\d{1,2})(?::(?P<m1>\d\d))?\s*-\s*(?P<h2>\d{1,2})(?::(?P<m2>\d\d))?)?"
)
_ZONE = re.compile(r"\s+(UTC|[A-Z]\w+/[\w/+-]+)$")
GRAMMAR = (
    'Write such as "Mon-Fri 8:00-20:00", "not 22:00-6:00" or "workdays 9-17 Europe/Berlin", several with ; '
    "between"
)


HOURS_HELP = (
    "Fetch at these hours of the week alone: 'workdays 8:00-20:00; not 12-13', with a time zone at the end, "
    "or of UTC."
)


def days_of(text: str, what: str) -> list[int]:
    """Return days of the week, 0 for Monday, in words.

    Examples
    --------
    >>> days_of("Mon-Wed, Sun", "hours"), days_of("weekends", "hours")
    ([0, 1, 2, 6], [5, 6])
    """
    found: set[int] = set()
    for part in text.lower().split(","):
        word = part.strip()
        ends = [each.strip()[:3] for each in word.split("-")]
        if word in SPANS:
            found |= set(SPANS[word])
        elif 1 <= len(ends) <= 2 and all(end in DAYS for end in ends):
            first, last = DAYS.index(ends[0]), DAYS.index(ends[-1])
            found |= {(first + k) % 7 for k in range((last - first) % 7 + 1)}
        else:
            raise SourceDataError(
                f"{what}: {shown(word)} is no day. Write Mon to Sun, workdays, weekends or daily."
            )
    return sorted(found)


def second_of_day(hour: str, minute: str | None, what: str) -> float:
    """Return seconds since midnight, up to 24:00."""
    found = 3600.0 * int(hour) + 60.0 * int(minute or 0)
    if found > _DAY or int(minute or 0) > 59:
        raise SourceDataError(f"{what}: {hour}:{minute or '00'} is no time of day. Write 0:00 to 24:00.")
    return found


@dataclass(frozen=True, slots=True)
class Hours:
    """Times of the week at which fetches are allowed.

    - `windows` tuple of (float, float): In seconds since Monday 00:00, in order and apart, within a week.
    """

    windows: tuple[tuple[float, float], ...]
    zone: str | None = None
    words: str = ""

    @classmethod
    def of(cls, name: str, given: str | Sequence[str] | Hours) -> Hours:
        """Return hours that words tell.

        Windows without "not" are allowed, and nothing else; those with it are blackouts.

        Examples
        --------
        >>> Hours.of("hours", "workdays 8-20; not Wed 12:00-13:30").share * 7 * 24
        58.5
        """
        if isinstance(given, Hours):
            return given
        if not isinstance(given, str):
            expect(given, Sequence, name, GRAMMAR)
        texts = [
            part.strip()
            for each in ([given] if isinstance(given, str) else given)
            for part in str(each).split(";")
            if part.strip()
        ]
        zones, kinds = set(), {True: list[tuple[float, float]](), False: list[tuple[float, float]]()}
        for text in texts:
            zone = _ZONE.search(text)
            plain = text if zone is None else text[: zone.start()]
            zones |= set() if zone is None else {zone[1]}
            found = _WINDOW.fullmatch(plain.lower())
            if found is None or not (found["days"] or found["h1"]):
                raise SourceDataError(f"{name}: {shown(text)} is no time of the week. {GRAMMAR}.")
            begin = second_of_day(found["h1"] or "0", found["m1"], name)
            end = second_of_day(found["h2"] or "24", found["m2"], name)
            length = end - begin if end > begin else end - begin + _DAY
            kinds[found["never"] is None] += [
                (day * _DAY + begin, day * _DAY + begin + length)
                for day in days_of(found["days"] or "daily", name)
            ]
        if len(zones) > 1:
            raise SourceDataError(f"{name}: {' and '.join(sorted(zones))} are two clocks. Name one.")
        clock = None if not zones or zones == {"UTC"} else check_time_zone(zones.pop())
        open_at = _minus(_joined(kinds[True] or [(0.0, WEEK)]), _joined(kinds[False]))
        if not texts or not open_at:
            raise SourceDataError(f"{name} {shown(given)} leave no time at all. {GRAMMAR}.")
        return cls(tuple(open_at), clock, "; ".join(texts))

    @classmethod
    def read(cls, name: str, given: Any, _clock: object) -> Hours | None:  # noqa: ANN401 - words
        """Return hours that words tell; None for no words."""
        return None if given == "" else cls.of(name, given)

    @property
    def share(self) -> float:
        """Open share of the week."""
        return math.fsum(end - begin for begin, end in self.windows) / WEEK

    def opened(self, second: Array) -> Array:
        """Return the open time, in seconds, before moments since 1970."""
        local = to_local(np.asarray(second, dtype=np.float64), self.zone) - FIRST_MONDAY
        weeks = np.floor(local / WEEK)
        begin, end, before = self._table()
        inside = local - weeks * WEEK
        k = np.maximum(np.searchsorted(begin, inside, side="right") - 1, 0)
        own = before[k] + np.clip(inside - begin[k], 0.0, (end - begin)[k])
        found: Array = weeks * (self.share * WEEK) + own
        return found

    def moments(self, opened: Array) -> Array:
        """Return moments at open times; at closings the next opening."""
        begin, _, before = self._table()
        weeks = np.floor(opened / (self.share * WEEK))
        inside = opened - weeks * (self.share * WEEK)
        k = np.maximum(np.searchsorted(before, inside, side="right") - 1, 0)
        return from_local(FIRST_MONDAY + weeks * WEEK + begin[k] + inside - before[k], self.zone)

    def allow(self, second: float) -> bool:
        """Return whether a moment is open.

        Examples
        --------
        >>> nights = Hours.of("hours", "not 22-6")
        >>> nights.allow(0.0), nights.allow(7 * 3600.0)
        (False, True)
        """
        local = float((to_local(np.array([second]), self.zone)[0] - FIRST_MONDAY) % WEEK)
        return any(begin <= local < end for begin, end in self.windows)

    def following(self, second: float) -> float:
        """Return a moment, or the next opening if it is closed."""
        return second if self.allow(second) else float(self.moments(self.opened(np.array([second])))[0])

    def gaps(self, open_gap: Array) -> tuple[Array, Array]:
        """Return lengths of gaps of an open time, and their shares.

        - `open_gap` (n,): In seconds; a gap begins at a random open moment.
        - returns `length`, `share` (n, m)
        """
        begin, end, before = self._table()
        whole = self.share * WEEK
        closing = before + end - begin
        closed = np.append(begin[1:], begin[0] + WEEK) - end
        at, length = closing[closed > 0.0], closed[closed > 0.0]
        weeks = np.floor(open_gap / whole)
        rest = open_gap - weeks * whole
        if not len(at):
            return open_gap[:, None], np.ones((len(open_gap), 1))
        # Closings in (x, x + rest] change where x passes one of them, or a rest before it.
        ends = np.concatenate(
            [
                np.zeros((len(rest), 1)),
                np.broadcast_to(at, (len(rest), len(at))),
                (at - rest[:, None]) % whole,
                np.full((len(rest), 1), whole),
            ],
            axis=1,
        )
        ends.sort(axis=1)
        middle = 0.5 * (ends[:, 1:] + ends[:, :-1])
        crossed = (at - middle[:, :, None]) % whole <= rest[:, None, None]
        extra = np.sum(np.where(crossed, length, 0.0), axis=2) + (weeks * (WEEK - whole))[:, None]
        return open_gap[:, None] + extra, np.diff(ends, axis=1) / whole

    def _table(self) -> tuple[Array, Array, Array]:
        """Return beginnings and ends of windows, and the open time before each."""
        begin, end = np.array(self.windows).T
        return begin, end, np.concatenate([[0.0], np.cumsum(end - begin)[:-1]])


@dataclass(frozen=True, slots=True)
class HoursOnClock:
    """Hours on a clock that counts units from `zero`.

    That is in seconds since 1970. Spans are of open time over the open share, so that in the mean they are
    as long as by the clock.
    """

    hours: Hours
    zero: float
    unit: float

    def following(self, time: float) -> float:
        """Return a moment, or the next opening if it is closed."""
        second = self.zero + time * self.unit
        return time if self.hours.allow(second) else (self.hours.following(second) - self.zero) / self.unit

    def span(self, begin: float, end: float) -> float:
        """Return the open time between moments, over the open share."""
        first, last = self.hours.opened(self.zero + self.unit * np.array([begin, end]))
        return float(last - first) / (self.unit * self.hours.share)

    def later(self, time: float, span: float) -> float:
        """Return the moment that is a span later."""
        opened = self.hours.opened(np.array([self.zero + time * self.unit]))
        moment = self.hours.moments(opened + span * self.unit * self.hours.share)
        return (float(moment[0]) - self.zero) / self.unit


@dataclass(frozen=True, slots=True)
class WithinHours:
    """Method of schedules that rests in blackouts.

    Another's times in open time, from `second` since 1970 on.
    """

    method: Method
    hours: Hours
    second: float
    time_unit: str

    def __repr__(self) -> str:
        return f"{self.method!r} within {self.hours.words}"

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        unit, share = SECONDS[self.time_unit], self.hours.share
        edges = self.hours.opened(np.array([self.second, self.second + horizon * unit]))
        length = float(edges[1] - edges[0]) / unit
        if not length > 0.0:
            return np.empty(0, dtype=np.int64), np.empty(0)
        source, time = self.method.times(np.asarray(rates) / share, length)
        moment = (self.hours.moments(edges[0] + time * unit) - self.second) / unit
        inside = moment < horizon
        return source[inside], np.maximum(moment[inside], 0.0)


def _joined(windows: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return windows within a week, in order and apart."""
    cut = [piece for begin, end in windows for piece in ((begin, min(end, WEEK)), (0.0, end - WEEK))]
    found: list[tuple[float, float]] = []
    for begin, end in sorted(piece for piece in cut if piece[1] > piece[0]):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _minus(
    windows: Sequence[tuple[float, float]], never: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return windows without blackouts."""
    for begin, end in never:
        windows = [
            piece
            for a, b in windows
            for piece in ((a, min(b, begin)), (max(a, end), b))
            if piece[1] > piece[0]
        ]
    return list(windows)
