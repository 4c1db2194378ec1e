"""`Periodic`: equally spaced refreshes.

The discipline behind every PERIODIC cost.

A copy's cost rate c does not fall with its age, so the cost of a refresh interval, ∫₀^I c, is convex in its
length I: by Jensen's inequality, equal intervals minimise the cost of a given number of refreshes. The free
variable is the phase of each source. Few refreshes get the golden-ratio sequence in order of the rates
(`spread_phases`), many the phases for which the load is flat in each short slot of the horizon
(`freshopt.scheduling.phases`). With a weekly profile the sources whose gaps fit the week are refreshed after
the peaks of changes (`freshopt.scheduling.phases`).
Cost: one sort of the sources, one of the refreshes, eight more moments each where they are many.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from types import NoneType

import numpy as np

from freshopt.errors import SourceDataError, expect
from freshopt.estimators.week_clock import FIRST_MONDAY, seconds_of, utc_moment
from freshopt.estimators.weekly_profile import WeeklyProfile, check_load_limit
from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.phases import WeeklyStart, flat_phases, on_local_clock, weekly_phases
from freshopt.scheduling.refresh_order import order_refreshes, points, points_before
from freshopt.units import SECONDS

# Daylight saving time moves a clock by no more, in seconds.
SWITCH = 7200.0


@dataclass(frozen=True, slots=True, repr=False)
class Periodic:
    """Equally spaced refreshes, with phases that spread the load.

    Intervals are 1/ρ; the first refresh is after a fraction of one.

    Parameters
    ----------
    profile : WeeklyProfile, optional
        When in the week sources change. Sources whose gap is a week times or over a whole number are
        refreshed at the hours that save most, those with the greatest product of importance and change rate
        first; the others keep phases that spread the load, as do all for a profile without evidence.
    load_limit : float
        ≥ 1. Greatest load of an hour over the mean, of the sources that the profile places.

    Raises
    ------
    SourceDataError
        If the load limit is below 1.

    Notes
    -----
    Refresh j = 0, 1, ... of a source falls on (φ + j)/ρ with its phase φ in [0, 1), as long as that is below
    the horizon: ρ·horizon refreshes, rounded up or down. Sources of rate 0 are absent.

    With a profile phases depend on when time 0 is: ``fo.schedule(..., start=)`` tells. Called by itself,
    `times` begins on a Monday 00:00 UTC, and greater rates go first. On the clock of a profile with a time
    zone hours stay the same when daylight saving time begins or ends.

    Examples
    --------
    >>> import numpy as np
    >>> source, time = Periodic().times(np.array([1.0, 0.0, 2.0]), 2.0)
    >>> source
    array([0, 2, 2, 0, 2, 2])
    >>> np.diff(time[source == 2])
    array([0.5, 0.5, 0.5])

    Changes from 9 to 17 are fetched in the afternoon and evening, at a load of twice the mean.

    >>> from freshopt.estimators import WeeklyProfile
    >>> hours = np.zeros((7, 24))
    >>> hours[:5, 9:17] = 1.0
    >>> method = Periodic(WeeklyProfile(hours.reshape(-1)))
    >>> np.sort(method.times(np.ones(6), 1.0)[1] * 24.0).round(1)
    array([13.5, 15.5, 17.5, 18.5, 21.5, 22.5])
    """

    profile: WeeklyProfile | None = None
    load_limit: float = 2.0
    _start: WeeklyStart = field(default=WeeklyStart(), init=False, compare=False)

    def __post_init__(self) -> None:
        expect(self.profile, (WeeklyProfile, NoneType), "profile", "Pass a WeeklyProfile or None")
        object.__setattr__(self, "load_limit", check_load_limit(self.load_limit))

    def __repr__(self) -> str:
        return "Periodic()" if self.profile is None else f"Periodic({self.profile}, {self.load_limit:g})"

    def starting(
        self, start: float | datetime | np.datetime64 | None, weight: Array | None, time_unit: str
    ) -> tuple[Periodic, np.datetime64 | None]:
        """Return the method for a beginning, and its moment.

        Parameters
        ----------
        start : number, datetime or datetime64, or None
            Numbers are on the clock of the log that the profile was learnt from.
        weight : ndarray of float, shape (n,), or None
            Which sources go first.
        time_unit : str
            Of the schedule.

        Raises
        ------
        SourceDataError
            If the start is no moment; or missing, and the profile is of a log with dates.
        """
        profile = self.profile
        if profile is None or isinstance(start, datetime | np.datetime64):
            moment = None if start is None else utc_moment(start)
            second = FIRST_MONDAY if moment is None else seconds_of(moment)
        elif start is None and profile.origin is not None:
            raise SourceDataError(
                "the profile tells hours of the week, and the schedule does not know when it begins. Pass "
                "start=, the moment of time 0."
            )
        else:
            second = float(profile.seconds(0.0 if start is None else start))
            dated = profile.origin is not None
            moment = np.datetime64(round(second * 1e6), "us") if dated else None
        found = replace(self)
        object.__setattr__(found, "_start", WeeklyStart(second, weight, time_unit))
        return found, moment

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        if self.profile is None:
            return _refreshes(rates, horizon, flat_phases(rates, horizon))
        placed, phase = weekly_phases(rates, self.profile, self.load_limit, self._start)
        phase = np.where(placed, phase, flat_phases(np.where(placed, 0.0, rates), horizon))
        if self.profile.time_zone is None or not placed.any():
            return _refreshes(rates, horizon, phase)
        profile, start = self.profile, self._start

        count = points_before(horizon + SWITCH / SECONDS[start.time_unit], rates, phase)
        time = points(count, phase, rates)
        time = np.where(np.repeat(placed, count), on_local_clock(time, profile, start), time)
        source, time = order_refreshes(count, time)
        inside = (time >= 0.0) & (time < horizon)
        return source[inside], time[inside]


def _refreshes(rates: Array, horizon: float, phase: Array) -> tuple[IntArray, Array]:
    """Return the refreshes of sources at their phases, in order."""
    count = points_before(horizon, rates, phase)
    return order_refreshes(count, points(count, phase, rates))
