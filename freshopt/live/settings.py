"""`PlannerSettings`: what a planner was told, kept beside its sources.

All quantities are on the planner's clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from freshopt.errors import ObjectiveError, SourceDataError, expect, list_offenders
from freshopt.live.objective_record import objective_from, objective_record
from freshopt.modelling.objective import Objective, Refresh, require_discipline
from freshopt.numerics.arrays import as_number
from freshopt.problems.harmonic_staleness import HarmonicStaleness
from freshopt.scheduling.host_gap import JITTER
from freshopt.units import check_time_unit, convert_time, parse_duration, rate_of

# Settings and what they are unless told; durations as their user would write them.
USUAL: dict[str, Any] = {
    "replan": "1d",
    "update": "1h",
    "gap_limit": 0.01,
    "half_life": math.inf,
    "lease": "1h",
    "burst": "10min",
    "host_gap": 0.0,
    "explore": 0.02,
    "host_limits": {},
}
_DURATIONS = ("replan", "update", "half_life", "lease", "burst", "host_gap")


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """Settings of a planner, in its time unit.

    Attributes
    ----------
    time_unit : str
    bandwidth : float
        Total refresh cost per time unit.
    objective : Objective
    replan, update : float
        Time between full re-solves, and between updates of the estimates.
    gap_limit : float
        Relative duality gap of the rates in force above which they are solved anew.
    half_life : float
        Age at which a crawl counts half; inf for never.
    lease : float
        How long a source that was handed out is nobody else's.
    burst : float
        Time of which the whole bandwidth may be handed out at once.
    host_gap : float
        Least time between two hand-outs of one host; 0 for none.
    explore : float
        Least rate of a source, as a share of equal rates.
    host_limits : mapping of str to float
    """

    time_unit: str
    bandwidth: float
    objective: Objective
    replan: float
    update: float
    gap_limit: float
    half_life: float
    lease: float
    burst: float
    host_gap: float
    explore: float
    host_limits: Mapping[str, float]

    @property
    def periodic(self) -> bool:
        """Whether gaps are equal; of Poisson crawls they are exponential."""
        return self.objective.refresh is Refresh.PERIODIC

    @property
    def host_turns(self) -> float:
        """Hand-outs of a host per time unit that its gap allows."""
        return 1.0 / ((1.0 + 0.5 * JITTER) * self.host_gap) if self.host_gap > 0.0 else math.inf

    def to_text(self) -> str:
        """Return the settings as JSON; of an objective without a record, null."""
        own = {key: getattr(self, key) for key in ("time_unit", "bandwidth", *USUAL)}
        own |= {"host_limits": dict(self.host_limits), "objective": objective_record(self.objective)}
        return json.dumps(own)


def settings_from(text: str | None, given: Mapping[str, Any], place: str) -> PlannerSettings:
    """Return the settings kept, with those given in their place.

    Parameters
    ----------
    text : str or None
        What `PlannerSettings.to_text` returned; None of a planner that is about to begin.
    given : mapping
        What the user passed; None for what was not.
    place : str
        Of the planner, for messages.

    Raises
    ------
    SourceDataError
        If a setting cannot be used, one that is needed is missing, or the time unit is another one.
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
    expect(objective, Objective, "objective", "Pass an instance, such as freshopt.problems.BinaryFreshness()")
    require_discipline(objective)
    if objective.refresh is Refresh.ON_REQUEST:
        raise ObjectiveError(
            f"{objective!r} is of copies that are refreshed on request, which are never due: the first "
            "request after a lifetime fetches. Use freshopt.plan_lifetimes."
        )
    if "bandwidth" not in told and not kept:
        raise SourceDataError('bandwidth is missing. Pass a rate, such as "200/day", to begin a planner.')

    own: dict[str, Any] = {}
    for key in ("bandwidth", *USUAL):
        own[key] = _read(key, told[key], unit) if key in told else kept.get(key)
        if own[key] is None:
            own[key] = _read(key, USUAL[key], unit)
    if text is None and "update" not in told:
        # An update costs little beside a re-solve: 24 of them, hourly ones between daily re-solves.
        own["update"] = own["replan"] / 24.0
    return PlannerSettings(time_unit=unit, objective=objective, **own)


def with_burst(settings: PlannerSettings, burst: float | str) -> PlannerSettings:
    """Return settings with a burst that is no longer than theirs."""
    return replace(settings, burst=min(settings.burst, _read("burst", burst, settings.time_unit)))


def _kept_objective(kept: Mapping[str, Any], place: str) -> Objective:
    """Return the objective kept, the usual one of a new planner."""
    if not kept:
        return HarmonicStaleness(Refresh.PERIODIC)
    if kept["objective"] is None:
        raise SourceDataError(
            f"the objective of the planner in {place} is one of your own, which is not kept. Pass "
            "objective=... each time that you open it."
        )
    return objective_from(kept["objective"])


def _read(key: str, given: Any, unit: str) -> Any:  # noqa: ANN401
    """Return one setting in the planner's time unit."""
    if key == "host_limits":
        return _host_limits(given, unit)
    if key == "bandwidth":
        return _positive(key, rate_of(key, given, unit), 'Pass a rate > 0, such as "200/day".')
    if key in _DURATIONS:
        if key == "host_gap" and str(given).strip() in ("0", "0.0"):
            return 0.0
        if isinstance(given, str):
            return _parsed(key, given, unit)
        least = "≥" if key == "host_gap" else ">"
        remedy = f'Pass a duration {least} 0, such as "1d"; numbers are in units of a {unit}.'
        return _positive(key, as_number(given, key, remedy), remedy, infinite=key == "half_life")
    remedy = "Pass a share from 0 to 1."
    share = as_number(given, key, remedy)
    if isinstance(given, bool) or not 0.0 <= share <= 1.0:
        raise SourceDataError(f"{key} is {given!r}. {remedy}")
    return share


def _parsed(key: str, given: str, unit: str) -> float:
    try:
        return parse_duration(given, unit)
    except SourceDataError as error:
        raise SourceDataError(f"{key}: {error}") from None


def _positive(key: str, number: float, remedy: str, *, infinite: bool = False) -> float:
    if not (0.0 < number < math.inf or (infinite and number == math.inf)):
        raise SourceDataError(f"{key} is {number:g}. {remedy}")
    return number


def _host_limits(given: Any, unit: str) -> dict[str, float]:  # noqa: ANN401
    expect(given, Mapping, "host_limits", "Pass a mapping of hosts to rates")
    odd = [repr(host) for host in given if not isinstance(host, str)]
    if odd:
        raise SourceDataError(f"host_limits name {list_offenders(odd)}. Hosts are text.")
    return {host: rate_of(f"the limit of host {host!r}", rate, unit) for host, rate in given.items()}


def half_life_in_days(settings: PlannerSettings) -> float | None:
    """Return the half-life as estimators take it."""
    if math.isinf(settings.half_life):
        return None
    return convert_time(settings.half_life, settings.time_unit, "day")
