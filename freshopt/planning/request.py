"""Validated arguments of `plan` and `backtest`.

Quantities are on the clock of a log.

Importances and hosts may be given in every way that names sources: a number, a mapping or a table by source,
a function of the names, or an array in the order of the log's sources.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError, SourceDataError, expect, list_offenders
from freshopt.estimators.default_prior import default_prior
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.known_crawl_rate import KnownCrawlRate
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.read_log import read_log
from freshopt.logs.source_index import hosts_of_urls
from freshopt.logs.tables import frame_columns
from freshopt.modelling.declared_constraints import as_constraints
from freshopt.modelling.objective import Objective, Refresh
from freshopt.numerics.arrays import as_number, as_whole, shape_of
from freshopt.planning.declared import Constraints
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.harmonic_staleness import HarmonicStaleness
from freshopt.questions.todays_crawls import freshness_of, share_of
from freshopt.scheduling.rate_table import RateTable, read_rates
from freshopt.units import check_time_unit, convert_time, parse_duration, parse_rate
from freshopt.weekly.best_phases import check_load_limit

# Rows of the daily log that a change history becomes; a longer one is crawled less often than daily.
MOST_ROWS = 2_000_000
# Posterior samples that a plan may ask for: the relative error of their mean is then 1 %.
MOST_DRAWS = 10_000

PerSource: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
Log: TypeAlias = CrawlLog | ChangeHistory | str | os.PathLike[str] | Any


@dataclass(frozen=True, slots=True, eq=False)
class PlanRequest:
    """The settings of a plan, on the clock of its log.

    Parameters
    ----------
    objective : Objective
        Its discipline decides the method of the schedule: periodic gaps, or Poisson arrivals.
    bandwidth : float
        Refreshes per time unit; inf where constraints alone limit them, or freshness is asked for.
    horizon : float
        Length of the schedule in time units.
    importance : callable or None
        Maps an array of names to weights; None weighs all alike.
    min_rate, max_rate : float
        Bounds on each source's refresh rate.
    hosts : callable or None
        Maps an array of names to the hosts that they are on.
    host_limits : mapping of host to float, or None
        Bandwidth that a host may take.
    host_gap : float
        Least time between two refreshes of a host in the schedule.
    estimate : callable or None
        Fits an estimator to a log; None is `default_estimate`.
    confidence : float
        Of the change rates' intervals.
    seed : int
        Random seed of Poisson arrivals and of posterior samples.
    draws : int
        Posterior samples of the change rates, see `plan_uncertainty`; 0 disables. A log with more than
        30 000 sources or a million crawls goes without.
    constraints : sequence or callable, optional
        Declared constraints on the log's sources, or a function from `Sources` to them. Over partitions a
        sequence that names columns.
    load_limit : float
        Largest load of an hour over the mean, where a weekly profile pays; 1 for none. Not over partitions.
    freshness : float or "as today", optional
        Share of time that copies are to be fresh, with the least bandwidth that does it. Not over partitions.
    compare : RateTable, optional
        Rates in force, to compare with. Not over partitions.
    max_churn : float, optional
        Share of the sources with such a rate that may get another.
    success : callable or None
        Maps an array of names to the chances that a fetch succeeds; rates are then attempts. Not over
        partitions.
    retry_at_once : bool
        Whether a fetch that fails is repeated at once; rates are then of successes.
    requests : callable or None
        Maps an array of names to the rates of requests, of copies that are refreshed on request.
    windows : callable or None
        Maps an array of names to their windows of stale-while-revalidate, of such copies.
    changed_cost : callable or None
        Maps an array of names to what a fetch uses besides where the source has changed, in what asking uses.
        Not over partitions.
    """

    objective: Objective
    bandwidth: float
    horizon: float
    importance: PerSource | None = None
    min_rate: float = 0.0
    max_rate: float = np.inf
    hosts: PerSource | None = None
    host_limits: Mapping[Any, float] | None = None
    host_gap: float = 0.0
    estimate: Callable[[CrawlLog], Estimator] | None = None
    confidence: float = 0.95
    seed: int = 0
    draws: int = 0
    constraints: Constraints | None = None
    load_limit: float = 2.0
    freshness: float | str | None = None
    compare: RateTable | None = None
    max_churn: float | None = None
    success: PerSource | None = None
    retry_at_once: bool = False
    requests: PerSource | None = None
    windows: PerSource | None = None
    changed_cost: PerSource | None = None


def default_estimate(log: CrawlLog) -> Estimator:
    """Return the default estimator, fitted, with the log's own prior."""
    return MaximumLikelihood(prior=default_prior(log)).fit(log)


def as_crawl_log(log: Log, time_unit: str | None) -> tuple[CrawlLog, ChangeHistory | None]:
    """Return any log as a `CrawlLog`, with its history if known.

    A history has all changes.

    Parameters
    ----------
    log : CrawlLog, ChangeHistory, path or dataframe
        A history becomes a log of daily crawls which count changes.
    time_unit : str or None
        The clock of a path's or dataframe's times; by default "day".

    Raises
    ------
    SourceDataError
        If it is none of these, cannot be read, or is on another clock.
    """
    if isinstance(log, CrawlLog | ChangeHistory):
        if time_unit is not None and check_time_unit(time_unit) != log.time_unit:
            raise SourceDataError(
                f"time_unit is {time_unit!r}, but the log is in {log.time_unit}s. Leave it out."
            )
        if isinstance(log, CrawlLog):
            return log, None
        day = convert_time(1.0, "day", log.time_unit)
        return log.to_log(max(day, float(np.sum(log.end - log.start)) / MOST_ROWS)), log
    unit = "day" if time_unit is None else check_time_unit(time_unit)
    if isinstance(log, str | os.PathLike):
        return read_log(log, unit), None
    return CrawlLog.from_frame(log, time_unit=unit), None


def request_of(
    log: CrawlLog,
    bandwidth: float | str | None,
    horizon: float | str,
    *,
    objective: Objective | None,
    importance: Any,  # noqa: ANN401 - whatever names sources
    hosts: Any,  # noqa: ANN401
    host_limits: Mapping[Any, float | str] | None,
    host_gap: float | str = 0.0,
    min_rate: float | str,
    max_rate: float | str | None,
    estimator: Estimator | Callable[[CrawlLog], Estimator] | None,
    confidence: float,
    seed: int,
    draws: int,
    constraints: Constraints | None = None,
    load_limit: float = 2.0,
    freshness: float | str | None = None,
    compare: Any = None,  # noqa: ANN401 - whatever `read_rates` takes, or a plan
    max_churn: float | str | None = None,
    success: Any = None,  # noqa: ANN401 - whatever names sources
    retry_at_once: bool = False,
    requests: Any = None,  # noqa: ANN401 - whatever names sources
    windows: Any = None,  # noqa: ANN401
    changed_cost: Any = None,  # noqa: ANN401
) -> PlanRequest:
    """Return the arguments of `plan` as a validated request.

    Quantities are in the log's time unit.
    """
    usual = HarmonicStaleness(Refresh.PERIODIC) if freshness is None else BinaryFreshness(Refresh.PERIODIC)
    goal = usual if objective is None else objective
    expect(goal, Objective, "objective", "Pass an instance, such as freshopt.problems.BinaryFreshness()")
    if goal.refresh is Refresh.ON_REQUEST and requests is None:
        raise ObjectiveError(
            f"{goal!r} is of copies that are refreshed on request, which have lifetimes and no schedule. Use "
            "freshopt.plan_lifetimes with a log of the requests."
        )
    expect(retry_at_once, bool, "retry_at_once", "Pass True or False")
    unit = log.time_unit
    limits = None
    if changed_cost is not None:
        _require_plain_limits(constraints, freshness, max_churn)
    if freshness is not None:
        _require_freshness_alone(goal, bandwidth, constraints)
    elif bandwidth is None and constraints is None:
        raise SourceDataError(
            'bandwidth is None, not a number. Pass a rate such as "200/day", or constraints=[...] that limit '
            "it, or freshness=0.99."
        )
    gap = _duration_of("host_gap", host_gap, unit)
    if (host_limits is not None or gap > 0.0) and hosts is None:
        hosts = hosts_of_urls
    if host_limits is not None:
        expect(host_limits, Mapping, "host_limits", "Pass a mapping of hosts to rates")
        limits = {
            host: rate_of(f"the limit of host {host!r}", given, unit) for host, given in host_limits.items()
        }
    return PlanRequest(
        objective=goal,
        bandwidth=np.inf if bandwidth is None else rate_of("bandwidth", bandwidth, unit),
        horizon=_duration_of("horizon", horizon, unit),
        importance=per_source(importance, "importance", log),
        hosts=per_source(hosts, "host", log),
        host_limits=limits,
        host_gap=gap,
        min_rate=rate_of("min_rate", min_rate, unit),
        max_rate=np.inf if max_rate is None else rate_of("max_rate", max_rate, unit),
        estimate=_fit_of(estimator),
        confidence=confidence,
        seed=seed,
        draws=as_whole(draws, "draws", 0, MOST_DRAWS),
        constraints=constraints
        if constraints is None or callable(constraints)
        else as_constraints(constraints),
        load_limit=check_load_limit(load_limit),
        freshness=None if freshness is None else freshness_of(freshness),
        compare=_earlier(compare, max_churn),
        max_churn=None if max_churn is None else share_of("max_churn", max_churn),
        success=per_source(success, "success", log),
        retry_at_once=retry_at_once,
        requests=per_source(requests, "request_rate", log),
        windows=per_source(
            _duration_of("stale_while_revalidate", windows, unit) if isinstance(windows, str) else windows,
            "stale_while_revalidate",
            log,
        ),
        changed_cost=per_source(changed_cost, "changed_cost", log),
    )


def _require_plain_limits(constraints: object, freshness: object, max_churn: object) -> None:
    """Raise unless bandwidth, bounds and host limits are all that limits fetches."""
    given = {"constraints": constraints, "freshness": freshness, "max_churn": max_churn}
    for name, value in given.items():
        if value is not None:
            raise SourceDataError(
                f"{name} does not go with changed_cost, which is planned for under bandwidth, bounds and "
                "host limits alone. Leave one of them out."
            )


def _earlier(compare: Any, max_churn: object) -> RateTable | None:  # noqa: ANN401
    """Return the rates in force that a plan is compared with."""
    if compare is None:
        if max_churn is not None:
            raise SourceDataError("max_churn limits what changes of earlier rates. Pass compare=... too.")
        return None
    return compare if isinstance(compare, RateTable) else read_rates(getattr(compare, "solution", compare))


def _require_freshness_alone(
    objective: Objective, bandwidth: float | str | None, constraints: Constraints | None
) -> None:
    """Raise unless freshness stands in place of bandwidth and constraints."""
    if bandwidth is not None:
        raise SourceDataError("freshness stands in place of the bandwidth, which it finds. Leave one out.")
    if constraints is not None:
        raise SourceDataError(
            "freshness alone finds the bandwidth. Beside other constraints pass Target(BinaryFreshness(), "
            "at_least=...) among them, and Spend() as objective."
        )
    if not isinstance(objective, BinaryFreshness):
        raise SourceDataError(
            f"the least bandwidth for a freshness is found by planning for freshness, and the objective is "
            f"{type(objective).__name__}. Leave it out, or pass a bandwidth."
        )


def rate_of(what: str, given: float | str, time_unit: str) -> float:
    """Return a rate per `time_unit`, parsed if it is text.

    Text is such as "200/day".

    Examples
    --------
    >>> rate_of("bandwidth", "48/day", "hour"), rate_of("bandwidth", 3, "hour")
    (2.0, 3.0)
    """
    return _quantity(what, given, time_unit, parse_rate, 'a rate such as "200/day" or 200.0')


def per_source(given: Any, what: str, log: CrawlLog) -> PerSource | None:  # noqa: ANN401 - whatever names sources
    """Return a function from source names to their values.

    It takes an array of names and returns an array of as many values. No closure, so that plans pickle.

    Parameters
    ----------
    given : None, callable, number, mapping, dataframe or array_like of shape (n,)
        A dataframe has the columns ``source`` and `what`; an array is in the order of ``log.sources_``.
    what : str
        "importance", "host", "success", "request_rate", "stale_while_revalidate" or "changed_cost".
    log : CrawlLog

    Raises
    ------
    SourceDataError
        If a source has no value or two, or an array does not fit.
    """
    if given is None:
        return None
    if callable(given):
        return partial(_asked, given, what)
    if isinstance(given, Real) and what != "host":
        return partial(_alike, as_number(given, what, "Pass numbers of 0 or more."))
    if isinstance(given, Mapping):
        table = dict(given)
    elif hasattr(given, "columns"):
        table = _by_source(given, what)
    else:
        shape = shape_of(given, what)
        if shape != log.sources_.shape:
            raise SourceDataError(
                f"{what} has shape {shape} but the log has {len(log.sources_)} sources. Pass "
                "one value each, in the order of log.sources_, or a mapping of names."
            )
        table = dict(zip(log.sources_.tolist(), np.asarray(given).tolist(), strict=True))

    return partial(_looked_up, table, what)


def _asked(given: PerSource, what: str, names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values = given(names)
    if shape_of(values, what) != names.shape:
        raise SourceDataError(
            f"{what} of {len(names)} names has shape {shape_of(values, what)}. Return one value each."
        )
    return np.asarray(values)


def _alike(weight: float, names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.full(len(names), weight)


def _looked_up(table: dict[Any, Any], what: str, names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    missing = [repr(name) for name in names.tolist() if name not in table]
    if missing:
        raise SourceDataError(f"there is no {what} for {list_offenders(missing)}. Give one for each source.")
    return np.asarray([table[name] for name in names.tolist()])


def _by_source(frame: Any, what: str) -> dict[Any, Any]:  # noqa: ANN401 - any dataframe library's frame
    columns = frame_columns(frame, f"the table of each source's {what}", ("source", what), ())
    names, values = (np.asarray(columns[key]).tolist() for key in ("source", what))
    table = dict(zip(names, values, strict=True))
    if len(table) < len(names):
        twice = [repr(name) for name, times in Counter(names).items() if times > 1]
        raise SourceDataError(f"more than one {what} for {list_offenders(twice)}. Give one row per source.")
    return table


def _duration_of(what: str, given: float | str, time_unit: str) -> float:
    return _quantity(what, given, time_unit, parse_duration, 'a duration such as "7d" or 7.0')


def _quantity(
    what: str, given: float | str, time_unit: str, parse: Callable[[str, str], float], example: str
) -> float:
    if isinstance(given, str):
        try:
            return parse(given, time_unit)
        except SourceDataError as error:
            raise SourceDataError(f"{what}: {error}") from None
    remedy = f"Pass {example}; numbers are in units of a {time_unit}."
    number = as_number(given, what, remedy)
    if isinstance(given, bool) or not number >= 0.0:
        raise SourceDataError(f"{what} is {given!r}. {remedy}")
    return number


class _Fittable(Protocol):
    """An estimator with `fit`."""

    def fit(self, log: CrawlLog) -> Estimator:
        """Fit to a log, and return itself."""


def _fit_of(
    estimator: Estimator | Callable[[CrawlLog], Estimator] | None,
) -> Callable[[CrawlLog], Estimator] | None:
    """Return a function from a log to a fitted estimator.

    An instance is fitted by its `fit`; a function returns a fitted estimator itself.
    """
    if estimator is None:
        return None
    if callable(estimator) and not isinstance(estimator, type):
        return partial(_fitted_by, estimator)
    if isinstance(estimator, type) or not hasattr(estimator, "fit"):
        raise SourceDataError(
            f"estimator is {estimator!r}. Pass an instance, such as MaximumLikelihood(), or a function of "
            "the log that returns a fitted one."
        )
    if isinstance(estimator, KnownCrawlRate):
        return partial(_fitted_to_known, estimator)
    return partial(_copy_fitted, estimator)


def _fitted_by(function: Callable[[CrawlLog], Estimator], log: CrawlLog) -> Estimator:
    found = function(log)
    expect(found, Estimator, "what the function of the log returns", "Return a fitted estimator")
    return found


def _fitted_to_known(estimator: KnownCrawlRate, log: CrawlLog) -> Estimator:
    return copy.copy(estimator).fit(log, log.crawl_rate)


def _copy_fitted(estimator: _Fittable, log: CrawlLog) -> Estimator:
    """Return a copy of an estimator fitted to a log.

    Back-tests fit it to parts of the log too: each result keeps its own.
    """
    return copy.copy(estimator).fit(log)
