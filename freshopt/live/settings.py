"""`PlannerSettings`: what a planner was told, kept beside its sources.

All quantities are on the planner's clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from freshopt.errors import ObjectiveError, SourceDataError, expect, list_offenders
from freshopt.logs import clock as clock_of
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.objective import NAME_OR_INSTANCE, Objective, Refresh, require_discipline
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.naming import PLANNED, objective_named
from freshopt.numerics.arrays import as_number
from freshopt.planning.request import Clock, as_is, limits_of, objective_from, objective_record
from freshopt.planning.wishes import Wish, wish, wishes_of
from freshopt.problems.harmonic_staleness import HarmonicStaleness
from freshopt.questions.promises import PROMISE_HELP, Promise, promised_rates, promises_of
from freshopt.scheduling.appointments import AppointmentsOnClock
from freshopt.scheduling.host_gap import JITTER
from freshopt.scheduling.hours import HOURS_HELP, Hours, HoursOnClock
from freshopt.units import SECONDS, Time, check_time_unit, convert_time, duration_of, gap_of, rate_of

# Share of the bandwidth that is left for others at least; that it is met but for rounding.
ROUNDING = 1e-9
# What is told of a setting that sources have of their own.
BY_SOURCE = "by source"


class PlannerWishes(TypedDict, total=False):
    """What `Planner` takes; None goes on with what was told before."""

    objective: Objective | str | None
    host_limits: Any
    replan: Time | None
    update: Time | None
    gap_limit: float | None
    half_life: Time | None
    lease: Time | None
    burst: Time | None
    host_gap: Time | None
    explore: float | None
    hours: Any
    promise: Any
    changed_cost: Any
    source_columns: Any
    features: Any
    time_unit: str | None


def _bandwidth(name: str, given: float | str, clock: CrawlLog | Clock) -> float:
    value = rate_of(name, given, clock.time_unit)
    return _within(name, value, 0.0 < value < math.inf, 'Pass a rate > 0, such as "200/day".')


def _time(name: str, given: Time, clock: CrawlLog | Clock) -> float:
    remedy = f'Pass a duration > 0, such as "1d"; numbers are in units of a {clock.time_unit}.'
    if isinstance(given, str | timedelta):
        return duration_of(name, given, clock.time_unit)
    value = as_number(given, name, remedy)
    return _within(name, value, value > 0.0 and (value < math.inf or name == "half_life"), remedy)


def _gap(name: str, given: Time, clock: CrawlLog | Clock) -> float:
    value = gap_of(name, given, clock.time_unit)
    remedy = f'Pass a duration ≥ 0, such as "1d"; numbers are in units of a {clock.time_unit}.'
    return _within(name, value, value < math.inf, remedy)


def _share(name: str, given: float, _clock: CrawlLog | Clock) -> float:
    remedy = "Pass a share from 0 to 1."
    share = as_number(given, name, remedy)
    if isinstance(given, bool) or not 0.0 <= share <= 1.0:
        raise SourceDataError(f"{name} is {given!r}. {remedy}")
    return share


def _promises(name: str, given: Any, clock: CrawlLog | Clock) -> tuple[Promise, ...]:  # noqa: ANN401 - words
    return () if isinstance(given, str) and not given else promises_of(name, given, clock)


def _changed_cost(name: str, given: float | str, _clock: CrawlLog | Clock) -> float:
    if isinstance(given, str) and given == BY_SOURCE:
        return math.nan
    remedy = "Pass a number of 0 or more, such as 20, or one for each source."
    cost = as_number(given, name, remedy)
    return _within(name, cost, 0.0 <= cost < math.inf, remedy)


def _limits(_name: str, given: Mapping[str, float | str], clock: CrawlLog | Clock) -> dict[str, float]:
    limits = limits_of(given, clock.time_unit)
    odd = [repr(host) for host in limits if not isinstance(host, str)]
    if odd:
        raise SourceDataError(f"host_limits name {list_offenders(odd)}. Hosts are text.")
    return limits


def _within(name: str, value: float, good: bool, remedy: str) -> float:
    if not good:
        raise SourceDataError(f"{name} is {value:g}. {remedy}")
    return value


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """Settings of a planner, in its time unit.

    `replan` and `update` are the times between full re-solves, and between updates of the estimates; others
    are as `Planner` takes them.
    """

    time_unit: str
    bandwidth: float = field(
        metadata={
            "wish": Wish(
                _bandwidth,
                metavar="RATE",
                help="Refreshes per day, or with a unit such as 10/hour. Needed to begin a planner; later it "
                "changes it.",
            )
        }
    )
    objective: Objective = field(metadata={"wish": Wish(as_is)})
    replan: float = wish(math.nan, _time, usual="1d")
    update: float = wish(math.nan, _time, usual="1h")
    gap_limit: float = wish(0.01, _share, usual=0.01)
    half_life: float = wish(math.inf, _time, usual=math.inf)
    lease: float = wish(math.nan, _time, usual="1h")
    burst: float = wish(
        math.nan,
        _time,
        usual="10min",
        metavar="TIME",
        help="With --once: time between two runs, such as 1h for cron every hour, whose bandwidth is "
        "used at once (at first 10min; kept).",
    )
    host_gap: float = wish(
        0.0,
        _gap,
        usual=0.0,
        metavar="TIME",
        help="Shortest time between two fetches of one host, such as 2s; up to half of it is added at "
        "random. 0 for none. It is kept.",
    )
    explore: float = wish(0.02, _share, usual=0.02)
    hours: Hours | None = wish(
        None, Hours.read, usual="", metavar="WORDS", help=f"{HOURS_HELP} It is kept; '' ends it."
    )
    promise: tuple[Promise, ...] = wish(
        (),
        _promises,
        usual=(),
        metavar="WORDS",
        help=f"{PROMISE_HELP} Kept, until a later start says others.",
    )
    # NaN where the sources' own are kept beside them, as columns of one's own are.
    changed_cost: float = wish(
        0.0,
        _changed_cost,
        usual=0.0,
        kind=float,
        metavar="NUMBER",
        help="Extra cost of a fetch that finds a change, relative to one that finds none (a 304), such as "
        "20. --bandwidth and --host-limits are then in that unit. Kept; 0 ends it.",
    )
    host_limits: Mapping[str, float] = wish(
        None,
        _limits,
        usual={},
        kind=Path,
        metavar="FILE",
        help="Table with columns host, limit: refreshes per day that a host may take at most.",
    )
    # Hand-outs per time unit of hosts whose answers ask for fewer; they are not kept with the settings.
    host_paces: Mapping[str, float] = field(default_factory=dict)
    # Bandwidth of appointments, which are handed out beside all others; it is kept with these.
    appointed: float = 0.0

    @property
    def periodic(self) -> bool:
        """Whether gaps are equal; of Poisson crawls they are exponential."""
        return self.objective.refresh is Refresh.PERIODIC

    @property
    def host_turns(self) -> float:
        """Hand-outs of a host per time unit that its gap allows."""
        return 1.0 / ((1.0 + 0.5 * JITTER) * self.host_gap) if self.host_gap > 0.0 else math.inf

    @property
    def hand_out_rate(self) -> float:
        """Bandwidth while fetches are allowed, but for appointments."""
        rate = max(self.bandwidth - self.appointed, ROUNDING * self.bandwidth)
        return rate if self.hours is None else rate / self.hours.share

    @property
    def has_appointments(self) -> bool:
        """Whether a promise is of moments."""
        return any(each.appointments for each in self.promise)

    def kept_promises(self) -> Iterator[Promise]:
        """Yield promises as rates keep them.

        Who asks what is due may be late by a burst: what holds always is due so much before it is late.
        """
        for each in self.promise:
            always = each.share == 1.0 and each.appointments is None
            yield replace(each, age=each.age - min(self.burst, 0.5 * each.age)) if always else each

    @property
    def in_open_hours(self) -> PlannerSettings:
        """Settings whose host limits hold on average if at open hours."""
        if self.hours is None:
            return self
        limits = {host: limit * self.hours.share for host, limit in self.host_limits.items()}
        return replace(self, host_limits=limits)

    def appointments_on(self, clock: clock_of.Clock) -> list[AppointmentsOnClock | None]:
        """Return the appointments of each promise on a planner's clock."""
        if clock.origin is None:
            raise SourceDataError(
                "promises at moments are of the clock, and this planner counts numbers. Pass dates."
            )
        unit = SECONDS[clock.unit]
        given = clock.origin.timestamp(), unit, unit * self.burst
        moments = [each.appointments for each in self.promise]
        return [None if each is None else AppointmentsOnClock(each, *given) for each in moments]

    def hours_on(self, clock: clock_of.Clock) -> HoursOnClock | None:
        """Return the hours on a planner's clock of dates, if any."""
        if self.hours is None:
            return None
        if clock.origin is None:
            raise SourceDataError("hours are of the clock, and this planner counts numbers. Pass dates.")
        return HoursOnClock(self.hours, clock.origin.timestamp(), SECONDS[clock.unit])

    def to_text(self) -> str:
        """Return the settings as JSON; of an objective without a record, null."""
        own = {key: getattr(self, key) for key in ("time_unit", *SETTINGS)}
        own |= {"host_limits": dict(self.host_limits), "objective": objective_record(self.objective)}
        own["hours"] = None if self.hours is None else self.hours.words
        own["promise"] = [each.text for each in self.promise]
        return json.dumps(own)


# Settings that are kept as they were written.
IN_WORDS = ("hours", "promise")
# Of a planner, by name; its objective is kept in words of its own.
SETTINGS = {name: one for name, one in wishes_of(PlannerSettings).items() if name != "objective"}


def settings_from(text: str | None, given: Mapping[str, Any], place: str) -> PlannerSettings:
    """Return the settings kept, with those given in their place.

    `text` is what `PlannerSettings.to_text` returned, None of a planner that is about to begin; `place` is
    for messages.
    """
    kept: dict[str, Any] = {} if text is None else json.loads(text)
    told = {key: value for key, value in given.items() if value is not None}
    unit = check_time_unit(told.pop("time_unit", kept.get("time_unit", "day")))
    if unit != kept.get("time_unit", unit):
        raise SourceDataError(
            f"time_unit is {unit!r}, but the planner in {place} counts {kept['time_unit']}s. Leave it out."
        )
    objective = told.pop("objective", None)
    if objective is None:
        objective = _kept_objective(kept, place)
    elif isinstance(objective, str):
        objective = objective_named(objective, unit, among=PLANNED)
    expect(objective, Objective, "objective", NAME_OR_INSTANCE)
    require_discipline(objective)
    if objective.refresh is Refresh.ON_REQUEST:
        raise ObjectiveError(
            f"{objective!r} is of copies that are refreshed on request, which are never due: the first "
            "request after a lifetime fetches. Use freshopt.plan_lifetimes."
        )
    if "bandwidth" not in told and not kept:
        raise SourceDataError('bandwidth is missing. Pass a rate, such as "200/day", to begin a planner.')

    own: dict[str, Any] = {}
    for key, one in SETTINGS.items():
        own[key] = one.read(key, told[key], Clock(unit)) if key in told else kept.get(key)
        if key in IN_WORDS and key not in told and own[key] is not None:
            own[key] = one.read(key, own[key], Clock(unit))
        if own[key] is None:
            own[key] = one.read(key, one.usual, Clock(unit))
    if text is None and "update" not in told:
        # An update costs little beside a re-solve: 24 of them, hourly ones between daily re-solves.
        own["update"] = own["replan"] / 24.0
    # What no source could have is refused at once.
    kind = objective.refresh, own["hours"], unit
    for each in own["promise"]:
        promised_rates([replace(each, who=None)], np.array([""]), np.ones(1), None, math.inf, kind)
    if own["changed_cost"]:
        Problem(objective, Sources([1.0], changed_cost=1.0, time_unit=unit), 1.0)
    return PlannerSettings(time_unit=unit, objective=objective, **own)


def with_burst(settings: PlannerSettings, burst: Time) -> PlannerSettings:
    """Return settings with a burst that is no longer than theirs."""
    return replace(settings, burst=min(settings.burst, _time("burst", burst, Clock(settings.time_unit))))


def _kept_objective(kept: Mapping[str, Any], place: str) -> Objective:
    """Return the objective kept, the usual one of a new planner."""
    if not kept:
        return HarmonicStaleness(Refresh.PERIODIC)
    if kept["objective"] is None:
        raise SourceDataError(
            f"the objective of the planner in {place} is one of your own, which is not kept. Pass "
            "objective=..., or --objective, each time that you open it."
        )
    return objective_from(kept["objective"])


def half_life_in_days(settings: PlannerSettings) -> float | None:
    """Return the half-life as estimators take it."""
    if math.isinf(settings.half_life):
        return None
    return convert_time(settings.half_life, settings.time_unit, "day")
