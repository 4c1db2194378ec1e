"""`Appointments`: moments of the week by which copies are fetched.

"At 7:00 on workdays younger than 2h" is a window of two hours before each of these moments, or since the
moment before it if that is later. Each copy is fetched in each window, several times at equal intervals where
attempts fail. Sources that come first in some order are fetched last, evenly spaced over the window.

What a rate allows beyond its appointments lies between them. A gap of length L with e fetches in it has
intervals L/(1 + e), and their cost is convex: the longest of them is as short as it can be (`spare_fetches`).
Week by week the e are rounded so that their sums stay within one of the exact ones.

A planner that learns makes no schedule: a fetch tells when the next is due (`AppointmentsOnClock`). What is
left until the next appointment is divided into intervals no longer than the longest by its rate, rounded by
one number for each appointment, a multiple of the golden ratio modulo 1: they stay equal, and are as many as
the rate in the mean.

Cost: one evaluation for each window and fetch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from freshopt.errors import InfeasibleProblemError
from freshopt.estimators.week_clock import FIRST_MONDAY, WEEK, from_local, to_local
from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.refresh_order import GOLDEN, ordinals, spread_phases
from freshopt.scheduling.schedule import Method
from freshopt.units import SECONDS

# Relative rounding of a gap that is as long as allowed.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Appointments:
    """Moments of the week, and the age that copies may have there.

    - `moments`: In seconds since Monday 00:00 on the clock of the zone, ascending, in [0, week).
    - `age`: In seconds.
    """

    moments: tuple[float, ...]
    age: float
    zone: str | None = None

    def rate(self, attempts: IntArray) -> Array:
        """Return the least rates of attempts a second, shape (n,)."""
        return len(self.moments) * attempts / WEEK

    def windows(self) -> tuple[Array, Array]:
        """Return their ends, in seconds since Monday, and their lengths."""
        end = np.array(self.moments)
        return end, np.minimum(self.age, np.diff(end, prepend=end[-1] - WEEK))

    def offsets(self, place: Array, attempts: int) -> Array:
        """Return seconds since Monday of attempts, shape (n, moments·attempts).

        `place` in 0..1 is where in its part of the window each of them is, 1 at the end.
        """
        end, length = self.windows()
        part = (np.arange(attempts) + place[:, None]) / attempts
        found: Array = (end - length)[None, :, None] + length[None, :, None] * part[:, None, :]
        return found.reshape(len(place), -1)


@dataclass(frozen=True, slots=True)
class AppointmentsOnClock:
    """Appointments on a clock that counts units from `zero`.

    That is in seconds since 1970. Who asks what is due may be as late as `slack`: fetches are due so much
    before a moment, in the first half of its window at the latest.
    """

    appointments: Appointments
    zero: float
    unit: float
    slack: float

    def due(
        self,
        number: IntArray,
        place: Array,
        rate: Array,
        base: Array,
        last: Array,
        now: Array,
        shortest: Array,
    ) -> tuple[Array, Array, Array, Array]:
        """Return when sources are due after their last fetches, shape (n,).

        And the appointment by which they are, the opening of its window and the moment: the first to come
        whose window has opened since. Intervals begin at `base`, when the last fetch was due.
        """
        opens, latest, moment, index = self._windows(float(np.min(last)), float(np.max(now)))
        k = np.maximum(np.searchsorted(opens, last, side="right"), np.searchsorted(moment, now))
        slot = opens[k] + place * (latest - opens)[k]
        left = slot - base
        end, length = self.appointments.windows()
        offset = end - length + place[:, None] * (length - self._early(length))
        gap = np.diff(offset, append=offset[:, :1] + WEEK) / self.unit
        longest = longest_interval(gap, rate * WEEK / self.unit)
        many = np.floor(np.maximum(left / longest, 1.0) + (GOLDEN * (number + index[k])) % 1.0)
        with np.errstate(divide="ignore"):
            many = np.minimum(many, np.maximum(np.floor(left * (1.0 + ROUNDING) / shortest), 1.0))
        return np.maximum(base + left / many, last + shortest), slot, opens[k], moment[k]

    def _windows(self, begin: float, end: float) -> tuple[Array, Array, Array, IntArray]:
        """Return openings, latest fetches and moments of windows, ascending, and their numbers."""
        zone = self.appointments.zone
        local = to_local(self.zero + self.unit * np.array([begin, end]), zone) - FIRST_MONDAY
        weeks = np.arange(local[0] // WEEK - 1.0, local[1] // WEEK + 3.0)
        ends, length = self.appointments.windows()
        each = np.stack([ends - length, ends - self._early(length), ends])
        clock = FIRST_MONDAY + weeks[:, None] * WEEK + each[:, None, :]
        found = (from_local(clock.reshape(-1), zone).reshape(3, -1) - self.zero) / self.unit
        index = np.int64(weeks[0]) * len(ends) + np.arange(found.shape[1])
        return found[0], found[1], found[2], index

    def _early(self, length: Array) -> Array:
        """Return how long before its end a window has its last fetches."""
        return np.minimum(self.slack, 0.5 * length)


class Appointed(NamedTuple):
    """Sources that keep appointments, and how often each attempts in a window."""

    appointments: Appointments
    source: IntArray
    attempts: IntArray

    def check(self, max_rate: Array, time_unit: str, what: str) -> None:
        """Raise if windows are closer to each other than fetches may be."""
        offset = self.appointments.offsets(np.array([0.0, 1.0]), int(np.max(self.attempts, initial=1)))
        least = float(np.min(np.diff(offset, append=offset[:, :1] + WEEK)))
        if bool(np.any(SECONDS[time_unit] > max_rate * least * (1.0 + ROUNDING))):
            raise InfeasibleProblemError(
                f"{what} has fetches that are closer to each other than the least interval of some sources. "
                "Promise less, or shorten the least interval."
            )


@dataclass(frozen=True, slots=True, eq=False)
class WithAppointments:
    """Method of schedules in which some sources keep appointments.

    Those of others are another's. Time 0 is at `second` since 1970.

    - `urgency` (n,): Sources of greater urgency are fetched later in a window.
    - `max_rate` (n,): No interval is shorter than 1/max_rate.
    """

    method: Method
    appointed: Sequence[Appointed]
    urgency: Array = field(repr=False)
    max_rate: Array = field(repr=False)
    second: float
    time_unit: str

    def __repr__(self) -> str:
        return f"{self.method!r} with {sum(len(each.source) for each in self.appointed)} appointed"

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        unit, others = SECONDS[self.time_unit], np.array(rates, dtype=np.float64)
        for each in self.appointed:
            others[each.source] = 0.0
        found = [self.method.times(others, horizon)]
        for each in self.appointed:
            for source, second in self._kept(each, np.asarray(rates) / unit, horizon * unit):
                time = (second - self.second) / unit
                inside = (time >= 0.0) & (time < horizon)
                found.append((source[inside], time[inside]))
        source, time = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((source, time))
        return source[order], time[order]

    def _kept(self, appointed: Appointed, rates: Array, length: float) -> Iterator[tuple[IntArray, Array]]:
        """Yield sources and their seconds since 1970, of as many attempts each."""
        kept, zone = appointed.appointments, appointed.appointments.zone
        begin, end = to_local(np.array([self.second, self.second + length]), zone)
        weeks = np.arange((begin - FIRST_MONDAY) // WEEK - 1.0, (end - FIRST_MONDAY) // WEEK + 2.0)
        place = np.empty(len(appointed.source))
        order = np.argsort(self.urgency[appointed.source], kind="stable")
        place[order] = (np.arange(len(order)) + 0.5) / len(order)
        for attempts in np.unique(appointed.attempts).tolist():
            own = appointed.attempts == attempts
            source = appointed.source[own]
            offset = kept.offsets(place[own], attempts)
            gap = np.diff(offset, append=offset[:, :1] + WEEK)
            spare = spare_fetches(gap, rates[source] * WEEK)
            many = _whole(np.tile(spare, len(weeks)), spread_phases(rates[source]))
            local = FIRST_MONDAY + weeks[:, None] * WEEK + offset[:, None, :]
            moment = np.sort(from_local(local.reshape(-1), zone).reshape(len(source), -1), axis=1)
            gap = np.diff(moment, append=moment[:, -1:] + gap[:, -1:])
            with np.errstate(divide="ignore"):
                shortest = (SECONDS[self.time_unit] / self.max_rate[source])[:, None] * (1.0 - ROUNDING)
                most = np.floor(gap / shortest) - 1.0
            many = np.minimum(many, np.maximum(most, 0.0)).astype(np.int64).reshape(-1)
            row, turn = ordinals(1 + many)
            step = gap.reshape(-1) / (1.0 + many)
            yield source[row // moment.shape[1]], moment.reshape(-1)[row] + turn * step[row]


def spare_fetches(gap: Array, fetches: Array) -> Array:
    """Return the fetches within gaps that leave the longest interval shortest.

    - `gap` (n, m): > 0.
    - `fetches` (n,): Those within gaps and one for each gap in all, ≥ m up to rounding.
    - returns (n, m): e ≥ 0 that sum to fetches − m.

    Examples
    --------
    >>> spare_fetches(np.array([[1.0, 1.0, 3.0]]), np.array([4.0])).tolist()
    [[0.0, 0.0, 1.0]]
    """
    return np.maximum(gap / longest_interval(gap, fetches)[:, None], 1.0) - 1.0


def longest_interval(gap: Array, fetches: Array) -> Array:
    """Return the longest interval of so many fetches, shape (n,).

    With intervals up to g there are Σ_j max(L_j/g, 1) fetches, the largest over p of those that take L_j/g
    for the p longest gaps. So the g of a number N of fetches is max_p S_p/(N − m + p), S_p the sum of the p
    longest.
    """
    m = gap.shape[1]
    longest = np.cumsum(-np.sort(-gap, axis=1), axis=1)
    count = np.maximum(fetches, float(m))[:, None] - m + np.arange(1, m + 1)
    found: Array = np.max(longest / count, axis=1)
    return found


def _whole(number: Array, phase: Array) -> Array:
    """Return whole numbers whose sums are within one of those of numbers."""
    reached = np.floor(np.cumsum(number, axis=1) + phase[:, None])
    found: Array = np.diff(reached, prepend=np.zeros((len(reached), 1)))
    return found
