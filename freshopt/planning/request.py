"""How logs, and what is asked of a plan, are read.

Objectives are read from text, too: those of `freshopt.problems` with their settings, and no code. A file may
come from elsewhere: what it says about the objective is looked up by name, never executed. One of the user's
own, or with a value per source, has no such text.

Importances and hosts may be given in every way that names sources: a number, a mapping or a table by source,
a function of the names, or an array in the order of the log's sources. No closure, so that plans pickle.
"""

from __future__ import annotations

import copy
import importlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt import problems
from freshopt.errors import SourceDataError, expect, list_offenders
from freshopt.estimators.default_prior import default_prior
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.known_crawl_rate import KnownCrawlRate
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.read_log import read_log
from freshopt.logs.tables import frame_columns
from freshopt.modelling.objective import Objective, Refresh
from freshopt.numerics.arrays import as_number, shape_of
from freshopt.scheduling.rate_table import RateTable, read_rates
from freshopt.units import check_time_unit, convert_time, duration_of, gap_of, rate_of

# Rows of the daily log that a change history becomes; a longer one is crawled less often than daily.
MOST_ROWS = 2_000_000
PerSource: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
Log: TypeAlias = CrawlLog | ChangeHistory | str | os.PathLike[str] | Any


def default_estimate(log: CrawlLog) -> Estimator:
    """Return the default estimator, fitted, with the log's own prior."""
    return MaximumLikelihood(prior=default_prior(log)).fit(log)


def as_crawl_log(log: Log, time_unit: str | None) -> tuple[CrawlLog, ChangeHistory | None]:
    """Return any log as a `CrawlLog`, with its history if known.

    A history, which has all changes, becomes a log of daily crawls that count them.
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


class Clock(NamedTuple):
    """A time unit, of what no sources are known of yet."""

    time_unit: str
    sources_: npt.NDArray[Any] = np.empty(0)


def per_source(given: Any, what: str, log: CrawlLog | Clock) -> PerSource:  # noqa: ANN401 - whatever names sources
    """Return a function from source names to their values.

    A dataframe has the columns source and `what`; an array is in the order of ``log.sources_``.
    """
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


Read: TypeAlias = Callable[[str, Any, CrawlLog | Clock], Any]


def as_is(_name: str, given: Any, _log: CrawlLog | Clock) -> Any:  # noqa: ANN401 - anything
    """Return what was given."""
    return given


def a_rate(name: str, given: float | str, log: CrawlLog | Clock) -> float:
    """Return a rate on the clock of a log."""
    return rate_of(name, given, log.time_unit)


def a_duration(name: str, given: float | str, log: CrawlLog | Clock) -> float:
    """Return a duration on the clock of a log."""
    return duration_of(name, given, log.time_unit)


def a_gap(name: str, given: float | str, log: CrawlLog | Clock) -> float:
    """Return a duration, or 0, on the clock of a log."""
    return gap_of(name, given, log.time_unit)


def a_flag(name: str, given: Any, _log: CrawlLog | Clock) -> bool:  # noqa: ANN401 - anything
    """Return a flag."""
    expect(given, bool, name, "Pass True or False")
    return bool(given)


def values_of(what: str) -> Read:
    """Return the reader of values by source, in tables' column `what`."""
    return lambda _name, given, log: per_source(given, what, log)


def windows_of(name: str, given: Any, log: CrawlLog | Clock) -> PerSource:  # noqa: ANN401 - whatever names sources
    """Return windows by source; text is a duration for all."""
    known = duration_of(name, given, log.time_unit) if isinstance(given, str) else given
    return per_source(known, "stale_while_revalidate", log)


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


def limits_of(given: Any, time_unit: str) -> dict[Any, float]:  # noqa: ANN401 - a mapping of hosts to rates
    """Return host limits per `time_unit`."""
    expect(given, Mapping, "host_limits", "Pass a mapping of hosts to rates")
    return {host: rate_of(f"the limit of host {host!r}", rate, time_unit) for host, rate in given.items()}


def rates_in_force(given: Any) -> RateTable:  # noqa: ANN401 - whatever has rates
    """Return the rates of a plan, solution, mapping or table."""
    return given if isinstance(given, RateTable) else read_rates(getattr(given, "solution", given))


class _Fittable(Protocol):
    """An estimator with `fit`."""

    def fit(self, log: CrawlLog) -> Estimator:
        """Fit to a log, and return itself."""


def fit_of(estimator: Estimator | Callable[[CrawlLog], Estimator]) -> Callable[[CrawlLog], Estimator]:
    """Return a function from a log to a fitted estimator.

    An instance is fitted by its `fit`; a function returns a fitted estimator itself.
    """
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


def objective_record(objective: Objective) -> dict[str, Any] | None:
    """Return an objective's name and settings; None where they cannot be written.

    Examples
    --------
    >>> objective_record(problems.BinaryFreshness(Refresh.PERIODIC))
    {'name': 'BinaryFreshness', 'refresh': 'periodic'}
    """
    found: dict[str, Any] | None = _record(objective)
    return found


def objective_from(record: dict[str, Any]) -> Objective:
    """Return the objective of a record.

    Examples
    --------
    >>> objective_from({"name": "BinaryFreshness", "refresh": "periodic"})
    BinaryFreshness(refresh=Refresh.PERIODIC)
    """
    made = _made(record)
    if not isinstance(made, Objective):
        raise SourceDataError(f"{record!r} is no objective. Pass objective=... in its place.")
    return made


def _record(value: object) -> Any:  # noqa: ANN401 - JSON
    kind = type(value)
    if getattr(problems, kind.__name__, None) is not kind or not is_dataclass(value):
        return None
    found: dict[str, Any] = {"name": kind.__name__}
    for each in fields(value):
        if not each.init:
            continue
        own = getattr(value, each.name)
        if isinstance(own, Refresh):
            own = own.value
        elif isinstance(own, np.ndarray) and own.ndim == 0:
            own = own.item()
        elif is_dataclass(own):
            own = _record(own)
            if own is None:
                return None
        if not isinstance(own, str | int | float | dict | None):
            return None
        found[each.name] = own
    return found


def _made(record: dict[str, Any]) -> object:
    name = record.get("name")
    if not isinstance(name, str) or name not in problems.__all__:
        raise SourceDataError(
            f"the objective is named {name!r}, which this freshopt does not have. Pass objective=..."
        )
    own: dict[str, Any] = {}
    for key, value in record.items():
        if key == "refresh":
            own[key] = Refresh(value)
        elif key != "name":
            own[key] = _made(value) if isinstance(value, dict) else value
    return getattr(problems, name)(**own)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the class
    """Return `Wishes` by its earlier name."""
    if name != "PlanRequest":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    told = "freshopt.planning.request.PlanRequest is freshopt.planning.wishes.Wishes. Use that."
    warnings.warn(told, DeprecationWarning, stacklevel=2)
    return importlib.import_module(f"{__package__}.wishes").Wishes
