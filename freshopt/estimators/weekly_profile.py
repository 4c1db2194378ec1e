"""`WeeklyProfile`: the shape of the change rate over the week.

Sources change at the rate Δ·g(t), with one g of period a week and mean 1 for all of them. A source that is
refreshed once a week at the phase p leaves its changes waiting for W(p) = ∫ g(x)((p − x) mod T) dx/T on
average: half a week in the mean over all phases, and W' = 1 − g(p), so that the best phase is where g falls
through its mean, after the peak of changes. With A' = g − 1 and Ā the mean of A over the week,

    T/2 − W(p) = A(p) − Ā.

A gap of k weeks waits (k − 1)T/2 longer, at every phase. A gap T/k meets k phases in turn: its waiting falls
short of T/2k by the mean of A(p + jT/k) − Ā over j, that is by what g folded to the period T/k saves.

The mean of a height D over the share α of the cycle where it is highest is min_t t + E(D − t)⁺/α: a convex
function of the level t, least where D exceeds t on a share α. Both the share and the expectation have a
closed form on each linear piece, so that bisection of t gives the mean to rounding.

Changes peak in a range of days and a range of hours, both cyclic: the rectangle of the table of days and
hours with the greatest sum of g − 1 (`peak_hours`).

Cost: 60 passes over as many pieces as bins for each distinct gap; 49 ranges of days and 576 of hours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, shortened
from freshopt.estimators.week_clock import (
    FIRST_MONDAY,
    MOST_PARTS,
    WEEK,
    check_time_zone,
    known_cycles,
    seconds_of,
    to_local,
    utc_moment,
    week_cycles,
)
from freshopt.estimators.weekly_learning import ENOUGH_OF_DAY, learnt_shape
from freshopt.logs.clock import Clock, as_datetime
from freshopt.logs.crawl_log import CrawlLog, as_log
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_number, as_numbers, as_whole, read_only
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.units import SECONDS, check_time_unit

if TYPE_CHECKING:
    from freshopt.estimators.estimator import Estimator


# In-sample evidence in nats below which a profile is not used: placebos reach 0.5 to 4.
ENOUGH = 8.0
# Most parts of a week that need no evidence of the hours of the day. On simulated sources with a weekly cycle
# weeks and half weeks saved 8 to 11 and 4 to 6 %, where 8 to 11 and 2 to 8 % were promised; thirds and
# quarters of a week saved 0 to 3 % of 1 to 7 %.
FEW_PARTS = 2


@frozen_value(init=False, repr=False)
class WeeklyProfile:
    """Relative change rate over the week, common to all sources.

    Parameters
    ----------
    g : array_like of float, shape (bins,)
        Relative rate in equal bins of the week, ≥ 0; the first begins on Monday 00:00. It is divided by its
        mean.
    evidence : float
        Log-likelihood in nats that the profile gained over a constant rate on the log that it was learnt
        from. Below 8 it is not used. Infinite by default: a profile that is given needs no evidence.
    daily_evidence : float
        The same of hours of the day alone. Below 10 gaps shorter than half a week are not phased.
    time_unit : str
        Of gaps, savings and times.
    origin : datetime or datetime64, optional
        The moment of time 0 of the log; without it day 0 is a Monday 00:00 UTC.
    time_zone : str, optional
        The clock of the week, such as "Europe/Berlin"; by default UTC. It needs an origin.

    Attributes
    ----------
    g : ndarray of float, shape (bins,)
        With mean 1.

    Raises
    ------
    SourceDataError
        If the rates are no finite numbers ≥ 0 with a mean > 0, or another value cannot be used.

    Examples
    --------
    Two changes in three fall in the first half of the week.

    >>> profile = WeeklyProfile([2.0, 1.0])
    >>> profile
    WeeklyProfile(2 bins of a week)
    >>> profile.waiting(7.0).round(4)  # of a crawl on Monday 00:00, and half a week later
    array([4.0833, 2.9167])
    >>> profile.saving([7.0, 14.0], load_limit=2.0).round(4)
    array([0.2917, 0.2917])
    """

    g: Array
    evidence: float
    daily_evidence: float
    time_unit: str
    origin: datetime | None
    time_zone: str | None

    def __init__(
        self,
        g: npt.ArrayLike,
        evidence: float = math.inf,
        daily_evidence: float = math.inf,
        time_unit: str = "day",
        origin: datetime | np.datetime64 | None = None,
        time_zone: str | None = None,
    ) -> None:
        store: Callable[[str, object], None] = lambda key, value: object.__setattr__(self, key, value)  # noqa: E731
        store("time_unit", check_time_unit(time_unit))
        rates = as_numbers(g, "g")
        if rates.ndim != 1 or len(rates) == 0:
            raise SourceDataError(f"g has shape {rates.shape}. Pass one relative rate per bin of the week.")
        if not (np.all(np.isfinite(rates)) and np.all(rates >= 0.0) and np.max(rates) > 0.0):
            raise SourceDataError(
                "g has a negative or infinite rate, or none above 0. Pass rates >= 0, not all 0."
            )
        rates = rates / float(np.max(rates))
        store("g", read_only(rates / float(np.mean(rates))))
        for name, value in (("evidence", evidence), ("daily_evidence", daily_evidence)):
            nats = as_number(value, name, "Pass a number of nats.")
            if math.isnan(nats):
                raise SourceDataError(f"{name} is nan. Pass a number of nats.")
            store(name, nats)
        store("origin", None if origin is None else as_datetime(utc_moment(origin, "origin")))
        store("time_zone", None if time_zone is None else check_time_zone(time_zone))
        if time_zone is not None and origin is None:
            raise SourceDataError(
                "time_zone needs dates, and the profile has no origin. Pass origin=, or learn from dates."
            )

    @classmethod
    def from_log(
        cls, log: CrawlLog, estimator: Estimator, bins: int = 56, time_zone: str | None = None
    ) -> WeeklyProfile:
        """Learn the profile from a crawl log.

        Parameters
        ----------
        log : CrawlLog
            With the times of its crawls; plain numbers count from a Monday 00:00 UTC. Counted changes and
            dates of last change are used.
        estimator : Estimator
            Of the change rates at a constant rate, such as ``MaximumLikelihood()``; it is fitted to the log.
        bins : int
            Of the week; 56 are of three hours each.
        time_zone : str, optional
            The clock by which hours count, such as "Europe/Berlin", also when daylight saving time begins or
            ends; by default UTC. It needs a log with dates.

        Raises
        ------
        SourceDataError
            If the log has no times, or a setting cannot be used.

        Notes
        -----
        Expectation maximisation, smoothed: `freshopt.estimators.weekly_learning`. The evidence is in-sample,
        unless shapes of every other week do not hold in the weeks between: then it is what they gain there.

        Examples
        --------
        A source that is crawled twice a day, and changes from Monday to Friday.

        >>> import freshopt as fo
        >>> time = np.arange(0.0, 70.0, 0.5)
        >>> log = fo.CrawlLog(["a"] * 140, time, (time % 7 > 0) & (time % 7 <= 5))
        >>> profile = WeeklyProfile.from_log(log, fo.estimators.MaximumLikelihood())
        >>> profile.g.reshape(7, 8).mean(axis=1).round(1)
        array([1.4, 1.4, 1.4, 1.4, 1.4, 0. , 0. ])
        """
        log = as_log(log)
        bins = as_whole(bins, "bins", 1, MOST_PARTS)
        if time_zone is not None:
            check_time_zone(time_zone)
            if log.origin is None:
                raise SourceDataError(
                    "time_zone needs dates, and the log counts its times in plain numbers. Leave time_zone "
                    "out, or make the log with dates."
                )
        if isinstance(estimator, type) or not hasattr(estimator, "fit"):
            raise SourceDataError(
                f"estimator is {shortened(repr(estimator))}. Pass an instance, such as MaximumLikelihood()."
            )
        learnt = learnt_shape(log, estimator.fit(log).change_rate_, bins, time_zone)
        return cls(*learnt, log.time_unit, log.origin, time_zone)

    def __repr__(self) -> str:
        zone = "" if self.time_zone is None else f" in {self.time_zone}"
        nats = "" if math.isinf(self.evidence) else f", {self.evidence:.3g} nats"
        return f"WeeklyProfile({len(self.g)} bins of a week{zone}{nats})"

    @property
    def week(self) -> float:
        """The length of a week in the time unit."""
        return WEEK / SECONDS[self.time_unit]

    @property
    def active(self) -> bool:
        """Whether the evidence suffices to crawl by the profile: 8 nats."""
        return self.evidence >= ENOUGH

    def uses(self, cycles: IntArray) -> BoolArray:
        """Return whether the evidence suffices for gaps, as `cycles` counts them."""
        daily = self.daily_evidence >= ENOUGH_OF_DAY
        used: BoolArray = (cycles != 0) & ((cycles >= -FEW_PARTS) | daily)
        return used & self.active

    def cycles(self, gaps: npt.ArrayLike) -> IntArray:
        """Return which multiple or part of a week each gap is.

        Parameters
        ----------
        gaps : array_like of float, shape (m,)
            In the time unit.

        Returns
        -------
        ndarray of int, shape (m,)
            k ≥ 1 for k weeks, −k ≤ −2 for a week over k, 0 for other gaps. Relative differences of 1e-6 are
            rounding.

        Examples
        --------
        >>> WeeklyProfile([1.0]).cycles([7.0, 14.0, 3.5, 1.0, 5.0])
        array([ 1,  2, -2, -7,  0])
        """
        return week_cycles(gaps, self.week)

    def waiting(self, gap: float, phase: npt.ArrayLike | None = None) -> Array:
        """Return how long changes wait for the next refresh.

        Parameters
        ----------
        gap : float
            Between refreshes, in the time unit: a week times or over a whole number.
        phase : array_like of float, shape (m,), optional
            Of a refresh in the week, in time units since Monday 00:00. By default where the bins begin.

        Returns
        -------
        ndarray of float, shape (m,) or (bins,)
            Mean waiting time in the time unit, over changes as the profile has them. Linear between the
            beginnings of bins for gaps of whole weeks.

        Raises
        ------
        SourceDataError
            If the gap is neither a multiple nor a part of a week.
        """
        cycle = known_cycles(gap, self.week, self.time_unit)[0]
        begin = np.arange(len(self.g), dtype=np.float64) * (self.week / len(self.g))
        at = begin if phase is None else as_numbers(phase, "phase").reshape(-1)
        parts = max(1, -int(cycle))
        mean = 0.5 * (self.week * cycle if cycle > 0 else self.week / parts)
        return mean - self._ahead(at / self.week, parts)

    def saving(self, gaps: npt.ArrayLike, load_limit: float) -> Array:
        """Return how much less changes wait at good phases, in the mean.

        Parameters
        ----------
        gaps : array_like of float, shape (m,)
            In the time unit, each a week times or over a whole number.
        load_limit : float
            ≥ 1. Refreshes are spread over the best 1/load_limit of the phases, where the load is so many
            times the mean.

        Returns
        -------
        ndarray of float, shape (m,)
            δ ≥ 0 in the time unit: the mean over these phases of the waiting time at a random phase less that
            at the phase. 0 at a load limit of 1, for a profile without evidence, and without daily evidence
            for gaps shorter than half a week.

        Raises
        ------
        SourceDataError
            If a gap is neither a multiple nor a part of a week, or the load limit is below 1.
        """
        share = 1.0 / check_load_limit(load_limit)
        cycle = known_cycles(gaps, self.week, self.time_unit)
        distinct, which = np.unique(np.minimum(cycle, 1), return_inverse=True)
        uses = self.uses(distinct)
        each = [
            self._saving(max(1, -int(k)), share) if use else 0.0
            for k, use in zip(distinct, uses, strict=True)
        ]
        return np.array(each)[which]

    def phase(self, time: npt.ArrayLike | datetime | np.datetime64) -> Array:
        """Return where in the week a time falls.

        Parameters
        ----------
        time : array_like of float, or datetime or datetime64
            On the clock of the log, in time units since its origin; or one moment.

        Returns
        -------
        ndarray of float
            In [0, week), since Monday 00:00 on the clock of the profile.

        Examples
        --------
        >>> profile = WeeklyProfile([1.0], origin=datetime(2026, 3, 25), time_zone="Europe/Berlin")
        >>> profile.phase([0.5, 7.5]).round(4)  # Wednesdays at noon UTC, before and after the clock changed
        array([2.5417, 2.5833])
        """
        second = to_local(self.seconds(time), self.time_zone)
        phase: Array = (second - FIRST_MONDAY) % WEEK
        return phase / SECONDS[self.time_unit]

    def seconds(self, time: npt.ArrayLike | datetime | np.datetime64) -> Array:
        """Return seconds since 1970 of times or of a moment.

        Times are on the log's clock.

        Day 0 of plain numbers is taken for the first Monday.
        """
        if isinstance(time, datetime | np.datetime64):
            return np.array(seconds_of(utc_moment(time, "time")))
        return (
            Clock(self.time_unit, self.origin).epoch(FIRST_MONDAY)
            + as_numbers(time, "time") * SECONDS[self.time_unit]
        )

    def _ahead(self, phase: Array, parts: int) -> Array:
        """Return the mean waiting less that at phases in [0, 1)."""
        bins = len(self.g)
        height = np.concatenate(([0.0], np.cumsum(self.g - 1.0))) / bins  # A at the edges of bins
        height[-1] = 0.0
        mean = float(np.mean(height[:-1]))  # of a cyclic piecewise linear function
        turned = (phase[:, None] + np.arange(parts) / parts) % 1.0 * bins
        ahead: Array = np.mean(np.interp(turned, np.arange(bins + 1), height), axis=1) - mean
        return ahead * self.week

    def _saving(self, parts: int, share: float) -> float:
        """Return the saving of a week over `parts`."""
        if len(self.g) == 1:
            return 0.0
        pieces = len(self.g) // math.gcd(len(self.g), parts)
        corners = np.arange(pieces) / (pieces * parts)
        return max(0.0, mean_of_best(self._ahead(corners, parts), share)) if share < 1.0 else 0.0


# Halvings of the range of heights: all the bits of a float.
HALVINGS = 60


def mean_of_best(height: Array, share: float) -> float:
    """Return the mean height over the best share of a cycle.

    Heights are those at equally spaced phases, linear in between; the last is followed by the first. A share
    of 0 has the greatest height.

    Examples
    --------
    >>> float(round(mean_of_best(np.array([0.0, 1.0]), 0.5), 12))
    0.75
    """
    level = level_of_best(height, share)
    if share == 0.0:
        return level
    begin, end = height - level, np.roll(height, -1) - level
    high, low = np.maximum(begin, end), np.minimum(begin, end)
    # ∫(D − t)⁺ over a piece that falls to the level inside it is a triangle.
    triangle = np.divide(high * high, 2.0 * (high - low), out=np.zeros(len(high)), where=high > low)
    above = np.where(low >= 0.0, 0.5 * (high + low), np.where(high > 0.0, triangle, 0.0))
    return level + float(np.mean(above)) / share


def level_of_best(height: Array, share: float) -> float:
    """Return the level that a share of the cycle exceeds; see `mean_of_best`."""
    begin, end = height, np.roll(height, -1)
    high, low = np.maximum(begin, end), np.minimum(begin, end)
    width = np.where(high > low, high - low, 1.0)
    below, beyond = float(np.min(height)), float(np.max(height))
    if share == 0.0:
        return beyond
    for _ in range(HALVINGS):
        level = 0.5 * (below + beyond)
        exceeds = np.where(high > low, np.clip((high - level) / width, 0.0, 1.0), low > level)
        below, beyond = (level, beyond) if float(np.mean(exceeds)) > share else (below, level)
    return beyond


def check_load_limit(load_limit: float) -> float:
    """Return the load limit, or raise if it is below 1.

    Examples
    --------
    >>> check_load_limit(0.5)
    Traceback (most recent call last):
    ...
    freshopt.errors.SourceDataError: load_limit is 0.5. Pass a multiple of the mean load, 1 or more.
    """
    limit = as_number(load_limit, "load_limit", "Pass a multiple of the mean load, 1 or more.")
    if not limit >= 1.0:
        raise SourceDataError(f"load_limit is {limit:g}. Pass a multiple of the mean load, 1 or more.")
    return limit


DAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def peak_hours(profile: WeeklyProfile) -> str:
    """Describe when changes peak, with the evidence.

    Hours are left out where the day has no evidence of its own.

    Examples
    --------
    >>> g = np.ones((7, 24))
    >>> g[1:5, 9:17] = 3.0
    >>> peak_hours(WeeklyProfile(g.reshape(-1), evidence=58.0))
    'Changes peak Tue-Fri 9-17 UTC (58 nats)'
    >>> peak_hours(WeeklyProfile(g.reshape(-1), evidence=3.0))
    'Changes have no weekly peak (3 nats, below 8)'
    """
    if not profile.active:
        found = f"{profile.evidence:.0f} nats, below {ENOUGH:g}" if profile.evidence > 0.0 else "no evidence"
        return f"Changes have no weekly peak ({found})"
    nats = "given" if np.isinf(profile.evidence) else f"{profile.evidence:.0f} nats"
    hourly = _hourly(profile.g)
    days, hours, excess = _peak(hourly, alone=profile.daily_evidence < ENOUGH_OF_DAY)
    if not excess > 0.0:
        return f"Changes have no weekly peak ({nats})"
    zone = profile.time_zone or "UTC"
    words = [_days(*days), f"{hours[0]}-{(hours[0] + hours[1] - 1) % 24 + 1}" if hours[1] < 24 else "", zone]
    return f"Changes peak {' '.join(filter(None, words))} ({nats})"


def _hourly(g: Array) -> Array:
    """Return hourly means of a shape, shape (7, 24)."""
    edges = np.concatenate(([0.0], np.cumsum(g))) / len(g)
    at = np.interp(np.arange(169) / 168.0, np.arange(len(g) + 1) / len(g), edges)
    return np.diff(at).reshape(7, 24) * 168.0


def _peak(hourly: Array, *, alone: bool) -> tuple[tuple[int, int], tuple[int, int], float]:
    """Return the ranges of days and hours, and the excess.

    A range is where it begins and how long it is. The shorter ranges are taken among equals.
    """
    best = ((0, 7), (0, 24), 1e-9)
    over = hourly - 1.0
    for many in range(1, 8):
        for day in range(7):
            by_hour = over[(day + np.arange(many)) % 7].sum(axis=0)
            for hours in (24,) if alone else range(1, 25):
                for hour in range(24 if hours < 24 else 1):
                    total = float(by_hour[(hour + np.arange(hours)) % 24].sum())
                    if total > best[2] * (1.0 + 1e-9):
                        best = ((day, many), (hour, hours), total)
    return best if best[2] > 1e-9 else (best[0], best[1], 0.0)


def _days(first: int, many: int) -> str:
    """Return a range of days in words."""
    if many == 7:
        return "daily"
    last = DAY_NAMES[(first + many - 1) % 7]
    return DAY_NAMES[first] if many == 1 else f"{DAY_NAMES[first]}-{last}"
