"""Phases of periodic sources by a weekly profile.

A source whose gap is a week times or over a whole number is refreshed at the same hours of the week for ever.
Sources in the order of their weighted change rates, heaviest first, fill the hours in which changes wait
least: each hour takes the load limit times its share, so that the best 1/limit of the hours are used, evenly.
Gaps of whole weeks have the same good hours and fill them together; which of its weeks a source takes goes
round. Gaps of a week over k have hours of their own, in a cycle of that length.

Cost: one sort of the sources.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.scheduling.refresh_order import GOLDEN
from freshopt.units import SECONDS
from freshopt.weekly.profile import WeeklyProfile
from freshopt.weekly.week_clock import FIRST_MONDAY, WEEK, from_local, to_local

HOURS = 168


@dataclass(frozen=True, slots=True, eq=False)
class WeeklyStart:
    """Where in the week a schedule begins, and which sources go first.

    Attributes
    ----------
    second : float
        Of time 0, since 1970 in UTC.
    weight : ndarray of float, shape (n,), or None
        The sources of greatest weight take the best hours; None for those of greatest rate.
    time_unit : str
        Of rates and times.
    """

    second: float = FIRST_MONDAY
    weight: Array | None = None
    time_unit: str = "day"


def weekly_phases(
    rates: Array, profile: WeeklyProfile, load_limit: float, start: WeeklyStart
) -> tuple[BoolArray, Array]:
    """Return which sources a profile places, and their phases in [0, 1).

    Parameters
    ----------
    rates : ndarray of float, shape (n,)
        Refreshes per time unit of the schedule.
    profile : WeeklyProfile
    load_limit : float
        Greatest load of an hour over the mean, of the sources that are placed.
    start : WeeklyStart

    Returns
    -------
    placed : ndarray of bool, shape (n,)
        Sources for which `WeeklyProfile.saving` is positive.
    phase : ndarray of float, shape (n,)
        The time of the first refresh over the gap; 0 for the others.
    """
    unit = SECONDS[start.time_unit]
    with np.errstate(divide="ignore"):
        cycle = profile.cycles(unit / SECONDS[profile.time_unit] / rates)
    placed, phase = np.zeros(len(rates), dtype=np.bool_), np.zeros(len(rates))
    weight = rates if start.weight is None else start.weight
    begin = (float(to_local(np.array([start.second]), profile.time_zone)[0]) - FIRST_MONDAY) % WEEK
    for parts in np.unique(np.where(cycle > 0, 1, -cycle)).tolist():
        mine = np.flatnonzero(cycle > 0 if parts == 1 else cycle == -parts)
        period = WEEK / max(parts, 1)
        if parts == 0 or not profile.saving([period / SECONDS[profile.time_unit]], load_limit)[0] > 0.0:
            continue
        mine = mine[np.argsort(-weight[mine], kind="stable")]
        weeks = np.maximum(cycle[mine], 1)
        second = _seconds(profile, period, load_limit, 1.0 / weeks)
        first = (second - begin) % period + _week_of(weeks, second) * WEEK
        placed[mine] = True
        phase[mine] = np.minimum(first / unit * rates[mine], np.nextafter(1.0, 0.0))
    return placed, phase


def on_local_clock(time: Array, profile: WeeklyProfile, start: WeeklyStart) -> Array:
    """Return times of a local clock, moved by its switches.

    At them the profile's clock shows what it would without daylight saving time. In time units since the
    start.
    """
    unit = SECONDS[start.time_unit]
    begin = to_local(np.array([start.second]), profile.time_zone)
    moved: Array = (from_local(begin + time * unit, profile.time_zone) - start.second) / unit
    return moved


def _seconds(profile: WeeklyProfile, period: float, load_limit: float, load: Array) -> Array:
    """Return where in a period sources refresh, those that come first best.

    `load` is that of each source, in refreshes per period.
    """
    hours = max(1, round(HOURS * period / WEEK))
    unit = SECONDS[profile.time_unit]
    middle = (np.arange(hours) + 0.5) * (period / hours)
    best = np.argsort(profile.waiting(period / unit, middle / unit), kind="stable")
    per_load = hours / min(load_limit, hours) / float(np.sum(load))
    hour = (np.cumsum(load) - load) * per_load
    whole = np.minimum(hour.astype(np.int64), hours - 1)
    # Within its hour a source stands in the middle of its own share, or of what is left.
    inside = hour - whole
    inside += 0.5 * np.minimum(load * per_load, 1.0 - inside)
    return (best[whole] + inside) * (period / hours)


def _week_of(weeks: IntArray, second: Array) -> IntArray:
    """Return which of its weeks each source takes, in turn."""
    found = np.zeros(len(weeks), dtype=np.int64)
    for many in np.unique(weeks).tolist():
        mine = np.flatnonzero(weeks == many)
        turn = np.arange(len(mine)) + int(GOLDEN * many)
        found[mine[np.argsort(second[mine], kind="stable")]] = turn % many
    return found
