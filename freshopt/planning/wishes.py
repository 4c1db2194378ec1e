"""`Wishes`: what is asked of a plan, in one table.

A field is a wish: how what is given for it is read, what it means, how the command line has it. From the
table come the arguments of `plan`, `backtest` and `plan_lifetimes`, with their checks, options of the command
line, and the settings that a summary and a page tell. A new wish is a field of `Wishes`, a
line in the typed dictionary of the functions that take it, and the step that heeds it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, cast

import numpy as np

from freshopt.errors import ObjectiveError, SourceDataError, check_seed, expect, one_of, refuse_unknown
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.features.source_features import SourceFeatures
from freshopt.estimators.weekly_profile import check_load_limit
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.source_index import hosts_of_urls
from freshopt.modelling.declared_constraints import as_constraints
from freshopt.modelling.objective import NAME_OR_INSTANCE, Objective, Refresh
from freshopt.naming import PLANNED, objective_named
from freshopt.noisy_signals.signal_table import SignalTable
from freshopt.numerics.arrays import as_whole
from freshopt.planning.clashes import DISCIPLINES, LEARNT, ON_REQUEST, refuse_clashes
from freshopt.planning.declared import Constraints
from freshopt.planning.request import (
    Clock,
    PerSource,
    Read,
    SourceLimits,
    a_flag,
    a_limit,
    as_is,
    as_told,
    columns_of,
    features_of,
    fit_of,
    limits_of,
    on_clock,
    own_rules,
    per_source,
    rates_in_force,
    source_limits,
    values_of,
    windows_of,
)
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.harmonic_staleness import HarmonicStaleness
from freshopt.questions.bandwidth_for import AS_TODAY
from freshopt.questions.promises import PROMISE_HELP, Promise, promises_of
from freshopt.questions.todays_crawls import freshness_of
from freshopt.scheduling.hours import HOURS_HELP, Hours
from freshopt.scheduling.rate_table import RateTable
from freshopt.simulation.rules import RULES, Rule
from freshopt.units import Time, bounds_as_intervals, duration_of, gap_of, rate_of, share_of

CHANGE_MODELS = ("poisson", "learnt")
# Posterior samples that a plan may ask for: the relative error of their mean is then 1 %.
MOST_DRAWS = 10_000

# Fields of `PlanRequest`, in the order of its pickles.
_PLAN_REQUEST = (
    *("objective", "bandwidth", "horizon", "importance", "min_rate", "max_rate", "hosts", "host_limits"),
    *("host_gap", "estimator", "confidence", "seed", "draws", "constraints", "load_limit", "freshness"),
    *("compare", "max_churn", "success", "retry_at_once", "requests", "stale_while_revalidate"),
    "changed_cost",
)
F = TypeVar("F", bound=Callable[..., Any])


class Wish(NamedTuple):
    """One wish: how it is read, and its option.

    `read` takes its name as the caller has it, what was given, and the log; `usual` is what it is unless
    given. `kind`, `metavar`, `least`, `group` and `help` are of its option, which a wish without help has
    not; `told` says whether summaries have it among their settings.
    """

    read: Read
    usual: Any = None
    kind: type = str
    metavar: str | None = None
    least: float | None = None
    group: str = ""
    help: str = ""
    told: bool = False


def wish(default: Any, read: Read, **more: Any) -> Any:  # noqa: ANN401 - the field's type
    """Return a field of a table of wishes with its default."""
    return field(default=default, metadata={"wish": Wish(read, **more)})


def wishes_of(table: type) -> dict[str, Wish]:
    """Return the wishes of a table, by name."""
    return {each.name: each.metadata["wish"] for each in fields(table) if "wish" in each.metadata}


@dataclass(frozen=True, eq=False)  # with slots Python 3.11.2 puts states of its own in place of ours
class Wishes:
    """What is asked of a plan, on the clock of its log.

    Attributes
    ----------
    objective : Objective
        Its discipline decides the method of the schedule: periodic gaps, or Poisson arrivals.
    bandwidth : float
        Refreshes per time unit; inf until freshness, constraints or the log's own crawls tell; nan where it
        is that of the log's own crawls whatever limits it besides.
    horizon : float
        Length of the schedule in time units.
    estimator : callable or None
        Fits an estimator to a log; None is `freshopt.planning.request.default_estimate`.
    importance, hosts, success, requests, stale_while_revalidate, changed_cost : callable or None
        Map an array of names to the values of these sources.
    limits : SourceLimits or None
        Bounds of single sources, beside those of all.
    """

    objective: Objective = field(metadata={"wish": Wish(as_is, told=True)})
    bandwidth: float = wish(
        np.inf,
        a_limit,
        metavar="RATE",
        group="bandwidth",
        help="Total refresh rate, such as 200/day or 4/h. A plan's default: as many as the log's own crawls.",
    )
    horizon: float = wish(
        1.0,
        on_clock(duration_of),
        metavar="TIME",
        group="horizon",
        help="Length of the schedule, such as 7d or 12h (default: 7d).",
    )
    importance: PerSource | None = wish(
        None,
        values_of("importance"),
        kind=Path,
        metavar="FILE",
        group="sources",
        help="Table with columns source, importance: weight of each source, >= 0 (default 1).",
    )
    hosts: PerSource | None = wish(
        None,
        values_of("host"),
        kind=Path,
        metavar="FILE",
        group="sources",
        help="Table with columns source, host (default: the log's column host, or the host of the URL).",
    )
    host_limits: Mapping[Any, float] | None = wish(
        None,
        lambda _name, given, log: limits_of(given, log.time_unit),
        kind=Path,
        metavar="FILE",
        group="sources",
        help="Table with columns host, limit: refreshes that each host may take, such as 2/s or 500/day.",
    )
    host_gap: float = wish(
        0.0,
        on_clock(gap_of),
        usual=0.0,
        metavar="TIME",
        group="sources",
        help="Shortest time between two refreshes of one host in the schedule, such as 2s; up to half "
        "of it is added at random.",
    )
    min_rate: float = wish(
        0.0,
        on_clock(rate_of),
        metavar="RATE",
        group="bounds",
        help="Refresh every source at least so often, such as 1/30d.",
        told=True,
    )
    max_rate: float = wish(
        np.inf,
        on_clock(rate_of),
        metavar="RATE",
        group="bounds",
        help="Refresh no source more often, such as 48/day.",
        told=True,
    )
    min_interval: float | None = wish(
        None,
        on_clock(duration_of),
        metavar="TIME",
        group="bounds",
        help="Shortest time between two refreshes of a source, such as 30m.",
    )
    max_interval: float | None = wish(
        None,
        on_clock(duration_of),
        metavar="TIME",
        group="bounds",
        help="Longest time between two refreshes of a source, such as 30d.",
    )
    limits: SourceLimits | None = wish(
        None,
        source_limits,
        kind=Path,
        metavar="FILE",
        group="bounds",
        help="Table with columns source, min_interval, max_interval (or min_rate, max_rate): limits of "
        "single sources.",
    )
    estimator: Callable[[CrawlLog], Estimator] | None = wish(None, lambda _name, given, _log: fit_of(given))
    signals: SignalTable | None = wish(
        None,
        lambda _name, given, log: SignalTable.of(log, given),
        kind=Path,
        metavar="FILE",
        group="estimates",
        help="Table of signals of change, as a sitemap's or feed's dates: source, time, kind if several.",
    )
    features: SourceFeatures | None = wish(
        None,
        features_of,
        kind=Path,
        metavar="FILE",
        group="estimates",
        help="Table with a row a source, new ones too, and columns that may tell its change rate; or url.",
    )
    confidence: float = wish(
        0.95,
        as_is,
        usual=0.95,
        kind=float,
        group="estimates",
        help="Level of the change rates' intervals.",
        told=True,
    )
    seed: int = wish(
        0,
        lambda _name, given, _log: check_seed(given),
        usual=0,
        kind=int,
        least=0,
        group="estimates",
        help="Random seed.",
        told=True,
    )
    draws: int = wish(
        0,
        lambda name, given, _log: as_whole(given, name, 0, MOST_DRAWS),
        usual=20,
        kind=int,
        least=0,
        group="estimates",
        help="Samples of the change rates, to estimate what their uncertainty costs; 0 for none.",
        told=True,
    )
    constraints: Constraints | None = wish(
        None, lambda _name, given, _log: given if callable(given) else as_constraints(given)
    )
    load_limit: float = wish(
        2.0,
        lambda _name, given, _log: check_load_limit(given),
        usual=2.0,
        kind=float,
        least=1.0,
        group="estimates",
        help="Where changes peak at some hours of the week, crawl after the peaks, at up to so many "
        "times the mean load; 1 keeps it flat.",
        told=True,
    )
    freshness: float | str | None = wish(
        None,
        lambda name, given, _log: freshness_of(given, name),
        metavar="SHARE",
        group="bandwidth",
        help="Find the least bandwidth for this freshness: 99%, or today for that of your log. Implies"
        " --objective binary.",
    )
    compare: RateTable | None = wish(
        None,
        lambda _name, given, _log: rates_in_force(given),
        kind=Path,
        metavar="OLD",
        group="changes",
        help="Show what changes against an earlier plan: its folder, or a table with columns source, "
        "rate (or interval).",
    )
    max_churn: float | None = wish(
        None,
        lambda name, given, _log: share_of(name, given),
        metavar="SHARE",
        group="changes",
        help="With --compare: change at most this share of the intervals, such as 10%: those whose "
        "change brings most.",
    )
    promise: tuple[Promise, ...] | None = wish(None, promises_of, metavar="WORDS", help=PROMISE_HELP)
    hours: Hours | None = wish(None, Hours.read, metavar="WORDS", group="hours", help=HOURS_HELP)
    success: PerSource | None = wish(None, values_of("success"))
    retry_at_once: bool = wish(
        False,
        a_flag,
        usual=False,
        kind=bool,
        group="failures",
        help="The crawler retries a failed fetch at once: rates are then of successes, and all "
        "attempts keep to the bandwidth.",
    )
    requests: PerSource | None = wish(None, values_of("request_rate"))
    stale_while_revalidate: PerSource | None = wish(
        None,
        windows_of,
        metavar="TIME",
        group="requests",
        help="Serve an expired copy for up to such a time, 30s, while it is fetched.",
    )
    changed_cost: PerSource | None = wish(
        None,
        values_of("changed_cost"),
        kind=float,
        metavar="NUMBER",
        group="cost",
        help="Extra cost of a fetch that finds a change, relative to one that finds none (a 304), such"
        " as 20. --bandwidth and --host-limits are then in that unit.",
    )
    source_columns: Mapping[str, PerSource] | None = wish(None, columns_of)
    change_model: str = wish(
        "poisson",
        lambda name, given, _log: one_of(given, CHANGE_MODELS, name, SourceDataError),
        usual="poisson",
        metavar="MODEL",
        group="estimates",
        help="How sources change: poisson, or learnt from the log, for --objective binary and age.",
        told=True,
    )
    compare_rule: Mapping[str, Rule] | None = wish(
        None,
        own_rules,
        metavar="RULE",
        group="rules",
        help="Test the plan on your history as --replay does, beside a rule that crawlers run (repeatable): "
        f"{', '.join(RULES)}, or an interval such as 6h.",
    )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle has, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __setstate__(self, state: Mapping[str, Any] | Sequence[Any]) -> None:
        """Take what a pickle has; those of `PlanRequest` have no names."""
        by_name = state if isinstance(state, Mapping) else zip(_PLAN_REQUEST, state, strict=True)
        # What an earlier version did not know is as usual.
        usual = {each.name: each.default for each in fields(self)}
        for name, value in {**usual, **dict(by_name)}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, log: CrawlLog | Clock, given: Mapping[str, Any], takes: type) -> Wishes:
        """Return the wishes of `takes` read and checked; None is not given."""
        usual = {name: WISHES[name].usual for name in takes.__annotations__}
        asked = {**usual, **given}.items()
        # A schedule has a length; of all others None is not given.
        told = {
            name: value
            for name, value in asked
            if value is not None or name == "horizon" or WISHES[name].usual is not None
        }
        on_request = takes is LifetimeWishes
        if isinstance(told.get("objective"), str):
            discipline = Refresh.ON_REQUEST if on_request else None
            told["objective"] = objective_named(told["objective"], log.time_unit, discipline, PLANNED)
        kind = BinaryFreshness if "freshness" in told else HarmonicStaleness
        goal = told.setdefault("objective", kind(Refresh.ON_REQUEST if on_request else Refresh.PERIODIC))
        expect(goal, Objective, "objective", NAME_OR_INSTANCE)
        if on_request != (goal.refresh is Refresh.ON_REQUEST):
            raise ObjectiveError(f"{goal!r} is of {DISCIPLINES[on_request].format(goal.refresh.value)}")
        made = {name: WISHES[name].read(name, value, log) for name, value in told.items() if name in WISHES}
        other = {} if isinstance(goal, BinaryFreshness) else {"other objective": type(goal).__name__}
        today = {"freshness as today"} if made.get("freshness") == AS_TODAY else set()
        kinds = {ON_REQUEST: on_request, LEARNT: made.get("change_model") == "learnt"}
        there = {kind for kind, it_is in kinds.items() if it_is}
        refuse_clashes({*told, *other, *today, *there}, lambda name: other.get(name, name))
        for rate, interval in (("max_rate", "min_interval"), ("min_rate", "max_interval")):
            if interval in made:
                made[rate] = 1.0 / made[interval]
        if "hosts" not in made and ("host_limits" in made or made.get("host_gap", 0.0) > 0.0):
            made["hosts"] = per_source(hosts_of_urls, "host", log)
        return cls(**made)

    def bounded(self) -> AbstractContextManager[None]:
        """Return a context whose messages tell bounds as they were given."""
        given = self.min_interval is not None or self.max_interval is not None
        by_interval = given or (self.limits is not None and self.limits.by_interval)
        only = self.limits is None and not self.min_rate
        return bounds_as_intervals(by_interval, promised=self.promise is not None and only)

    def told(self, takes: Collection[str] | None = None) -> dict[str, Any]:
        """Return settings, among `takes`, that nothing else in a summary tells."""
        names = [name for name, one in WISHES.items() if one.told and (takes is None or name in takes)]
        found = {name: getattr(self, name) for name in names}
        return {name: as_told(value) for name, value in found.items()}


WISHES = wishes_of(Wishes)


class _EveryWish(TypedDict, total=False):
    """What every plan may be asked for besides its bandwidth."""

    objective: Objective | str | None
    importance: Any
    hosts: Any
    host_limits: Any
    min_interval: float | str | None
    max_interval: float | str | None
    limits: Any
    min_rate: float | str | None
    max_rate: float | str | None
    estimator: Estimator | Callable[[CrawlLog], Estimator] | None


class _PredictedWishes(TypedDict, total=False):
    confidence: float
    freshness: float | str | None


class LifetimeWishes(_EveryWish, _PredictedWishes, total=False):
    """What `plan_lifetimes` takes."""

    stale_while_revalidate: Any


class _TimedWishes(_EveryWish, total=False):
    """What plans of times and their back-tests may be asked for."""

    seed: int
    load_limit: float
    success: Any
    retry_at_once: bool
    changed_cost: Any
    signals: Any
    features: Any
    source_columns: Any
    promise: Any
    change_model: str


class BackTestWishes(_TimedWishes, total=False):
    """What `backtest` takes."""

    compare_rule: Any


class PlanWishes(_TimedWishes, _PredictedWishes, total=False):
    """What `plan` takes."""

    host_gap: Time
    hours: Any
    draws: int
    constraints: Constraints | None
    compare: Any
    max_churn: float | str | None


def taking(takes: type, usual: Mapping[str, Any] | None = None) -> Callable[[F], F]:
    """Return the decorator that spells wishes out in a function's signature.

    Others are refused. `usual` has their defaults, in order; None for those of `WISHES`.
    """
    defaults = {name: one.usual for name, one in WISHES.items()} if usual is None else usual
    hints = takes.__annotations__

    def spelled_out(function: F) -> F:
        own = inspect.signature(function)
        named = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        alone = inspect.Parameter.KEYWORD_ONLY
        named += [
            inspect.Parameter(name, alone, default=default, annotation=hints[name].__forward_arg__)
            for name, default in defaults.items()
            if name in hints
        ]
        # Those that may be passed by position, then wishes, then the function's own.
        named.sort(key=lambda each: (each.kind is alone) + (each.kind is alone and each.name not in hints))
        known = {each.name for each in named}
        name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @wraps(function)
        def checked(*positional: Any, **given: Any) -> Any:  # noqa: ANN401 - as the function
            refuse_unknown(name, given, known)
            return function(*positional, **given)

        checked.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]
        return cast(F, checked)

    return spelled_out
