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
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt import problems
from freshopt.errors import SourceDataError, expect, list_offenders
from freshopt.estimators.default_prior import default_prior
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.features.source_features import SourceFeatures, with_new_sources
from freshopt.estimators.known_crawl_rate import KnownCrawlRate
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.file_kinds import Frame
from freshopt.logs.read_crawls import read_log
from freshopt.logs.schema import HOST_LIMITS, SOURCE_LIMITS, Schema, Table
from freshopt.logs.tables import UNIT
from freshopt.modelling.objective import Objective, Refresh
from freshopt.numerics.arrays import Array, as_number, read_only, shape_of
from freshopt.questions.bandwidth_for import AS_TODAY
from freshopt.report.held_out import is_plan, policy_words
from freshopt.scheduling.rate_table import RateTable, read_rates
from freshopt.simulation.rules import Rule, rules_of
from freshopt.units import check_time_unit, convert_time, duration_of, gap_of, rate_of

# Rows of the daily log that a change history becomes; a longer one is crawled less often than daily.
MOST_ROWS = 2_000_000
# Flag of a source that the log has not.
NEVER_CRAWLED = "never crawled"
PerSource: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
Log: TypeAlias = CrawlLog | ChangeHistory | str | os.PathLike[str] | Any


def default_estimate(log: CrawlLog) -> Estimator:
    """Return the default estimator, fitted, with the log's own prior."""
    return MaximumLikelihood(prior=default_prior(log)).fit(log)


def as_crawl_log(
    log: Log, time_unit: str | None, columns: Mapping[str, str] | None = None
) -> tuple[CrawlLog, ChangeHistory | None]:
    """Return any log as a `CrawlLog`, with its history if known.

    A history, which has all changes, becomes a log of daily crawls that count them.
    """
    if isinstance(log, CrawlLog | ChangeHistory):
        if time_unit is not None and check_time_unit(time_unit) != log.time_unit:
            raise SourceDataError(
                f"time_unit is {time_unit!r}, but the log is in {log.time_unit}s. Leave it out."
            )
        if columns is not None:
            raise SourceDataError("columns names those of a file or a dataframe. Leave it out.")
        if isinstance(log, CrawlLog):
            return log, None
        day = convert_time(1.0, "day", log.time_unit)
        return log.to_log(max(day, float(np.sum(log.end - log.start)) / MOST_ROWS)), log
    unit = "day" if time_unit is None else check_time_unit(time_unit)
    return read_log(log, unit, columns=columns), None


def featured(made: Estimator, log: CrawlLog, features: SourceFeatures) -> Estimator:
    """Return a fitted estimator that flags sources known by features alone."""
    new = np.isin(log.names, features.new)
    made.flag_ = read_only(np.where(new, NEVER_CRAWLED, made.flag_))
    return made


class Clock(NamedTuple):
    """A time unit, of what no sources are known of yet."""

    time_unit: str
    names: npt.NDArray[Any] = np.empty(0)


def per_source(given: Any, what: str, log: CrawlLog | Clock) -> PerSource:  # noqa: ANN401 - whatever names sources
    """Return a function from source names to their values.

    A dataframe has the columns source and `what`; an array is in the order of ``log.names``.
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
        if shape != log.names.shape:
            raise SourceDataError(
                f"{what} has shape {shape} but the log has {len(log.names)} sources. Pass "
                "one value each, in the order of log.names, or a mapping of names."
            )
        table = dict(zip(log.names.tolist(), np.asarray(given).tolist(), strict=True))

    return partial(_looked_up, table, what)


Read: TypeAlias = Callable[[str, Any, CrawlLog | Clock], Any]


def as_is(_name: str, given: Any, _log: CrawlLog | Clock) -> Any:  # noqa: ANN401 - anything
    """Return what was given."""
    return given


def on_clock(read: Callable[[str, Any, str], float]) -> Read:
    """Return the reader of a quantity on the clock of a log."""
    return lambda name, given, log: read(name, given, log.time_unit)


def a_limit(name: str, given: float | str, log: CrawlLog | Clock) -> float:
    """Return a finite rate on a log's clock; nan for today's."""
    if isinstance(given, str) and given.strip().lower() in (AS_TODAY, "today"):
        return np.nan
    rate = rate_of(name, given, log.time_unit)
    if not np.isfinite(rate):
        raise SourceDataError(f'{name} is {given!r}. Pass a finite rate, such as "200/day", or None.')
    return rate


def a_flag(name: str, given: Any, _log: CrawlLog | Clock) -> bool:  # noqa: ANN401 - anything
    """Return a flag."""
    expect(given, bool, name, "Pass True or False")
    return bool(given)


def values_of(what: str) -> Read:
    """Return the reader of values by source, in tables' column `what`."""
    return lambda _name, given, log: per_source(given, what, log)


def features_of(_name: str, given: Any, log: CrawlLog | Clock) -> SourceFeatures:  # noqa: ANN401 - a table
    """Return the features of a log's sources, and of new ones."""
    return SourceFeatures.of(log.names, given)


def with_featured_sources(log: CrawlLog, given: Any) -> tuple[CrawlLog, SourceFeatures | None]:  # noqa: ANN401
    """Return a log with new sources of a table of features."""
    if given is None:
        return log, None
    told = SourceFeatures.of(log.names, given)
    return with_new_sources(log, told.new), told


def columns_of(name: str, given: Any, log: CrawlLog | Clock) -> dict[str, PerSource]:  # noqa: ANN401
    """Return columns of one's own, of a mapping or a dataframe."""
    if isinstance(given, Mapping):
        return {str(each): per_source(values, str(each), log) for each, values in given.items()}
    if not hasattr(given, "columns"):
        raise SourceDataError(
            f"{name} is {type(given).__name__}. Pass a dataframe with the column source and your own, or a "
            "mapping of names to one value for each source."
        )
    own = [str(each) for each in given.columns if each != "source"]
    return {each: per_source(given, each, log) for each in own}


def windows_of(name: str, given: Any, log: CrawlLog | Clock) -> PerSource:  # noqa: ANN401 - whatever names sources
    """Return windows by source; text is a duration for all."""
    known = duration_of(name, given, log.time_unit) if isinstance(given, str | timedelta) else given
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
    given = Frame.of(frame, f"the table of each source's {what}")
    table = Table.read(given, Schema("A table", ("source", what))).frame
    return dict(zip(table["source"].to_list(), table[what].to_list(), strict=True))


def limits_of(given: Any, time_unit: str) -> dict[Any, float]:  # noqa: ANN401 - a mapping or a dataframe
    """Return host limits per `time_unit`."""
    if hasattr(given, "columns"):
        return limits_in(Table.read(Frame.of(given, "the table of host limits"), HOST_LIMITS), time_unit)
    expect(given, Mapping, "host_limits", "Pass a mapping of hosts to rates, or a dataframe")
    return {host: rate_of(f"the limit of host {host!r}", rate, time_unit) for host, rate in given.items()}


def limits_in(table: Table, time_unit: str) -> dict[Any, float]:
    """Return the host limits of a table, per `time_unit`."""
    given = zip(table.rates("limit", time_unit), table.rates("min_interval", time_unit), strict=True)
    both = [[rate for rate in pair if rate is not None] for pair in given]
    hosts = table.frame["host"].to_list()
    missing = [f"'{host}'" for host, pair in zip(hosts, both, strict=True) if not pair]
    if missing:
        raise SourceDataError(
            f"{table.cells.path} has no limit of {list_offenders(missing)}. Fill it in, or drop the row."
        )
    return dict(zip(hosts, map(min, both), strict=True))


class SourceLimits(NamedTuple):
    """Least and largest refresh rates of single sources, by name as text."""

    lower: dict[str, float]
    upper: dict[str, float]
    by_interval: bool = False

    @classmethod
    def of_rows(
        cls, columns: Mapping[str, Sequence[Any]], time_unit: str, where: str = "limits"
    ) -> SourceLimits:
        """Return the limits that columns of a table give."""
        intervals = any(is_interval and name in columns for name, (_, _, is_interval) in _LIMITS.items())
        names, made = [*map(str, columns["source"])], cls({}, {}, intervals)
        for column, (read, side, is_interval) in _LIMITS.items():
            for name, cell in zip(names, columns.get(column, ()), strict=False):
                if cell is None or cell == "" or cell != cell:
                    continue
                told = math.inf if cell == "inf" else cell
                value = read(f"{column} of {name!r} in {where}", told, time_unit)
                own = getattr(made, side)
                bound = 1.0 / value if is_interval and value > 0.0 else math.inf if is_interval else value
                own[name] = (max if side == "lower" else min)(bound, own.get(name, bound))
        return made

    @classmethod
    def of_table(cls, table: Table, time_unit: str) -> SourceLimits:
        """Return a table's limits; bare numbers are in its unit."""
        columns = {name: table.frame[name].to_list() for name in table.frame.columns}
        unit = table.unit(None) if UNIT in columns else time_unit
        per = convert_time(1.0, time_unit, unit)
        own = cls.of_rows(columns, unit, str(table.cells.path))
        lower, upper = ({name: per * rate for name, rate in side.items()} for side in own[:2])
        return cls(lower, upper, own.by_interval)

    def around(self, names: npt.NDArray[Any], lower: float, upper: float) -> tuple[Array, Array]:
        """Return bounds of sources that are no looser than those of all."""
        known = [*map(str, names.tolist())]
        named = {*self.lower, *self.upper}
        if named and named.isdisjoint(known):
            few = list_offenders(map(repr, sorted(named)))
            raise SourceDataError(f"limits are of {few}, none of which is in the log. Correct the names.")
        least = np.array([max(lower, self.lower.get(name, 0.0)) for name in known])
        return least, np.array([min(upper, self.upper.get(name, math.inf)) for name in known])


# How each column of limits is read, and which bound it is.
_LIMITS: dict[str, tuple[Callable[[str, Any, str], float], str, bool]] = {
    "min_interval": (gap_of, "upper", True),
    "max_interval": (duration_of, "lower", True),
    "min_rate": (rate_of, "lower", False),
    "max_rate": (rate_of, "upper", False),
}


def source_limits(_name: str, given: Any, log: CrawlLog | Clock) -> SourceLimits:  # noqa: ANN401 - table or mapping
    """Return limits of a dataframe, or a mapping of sources."""
    if isinstance(given, SourceLimits):
        return given
    if isinstance(given, Mapping):
        first, last = zip(*given.values(), strict=True) if given else ((), ())
        told = {"source": [*given], "min_interval": first, "max_interval": last}
        return SourceLimits.of_rows(told, log.time_unit)
    if not hasattr(given, "columns"):
        raise SourceDataError(
            f"limits are {type(given).__name__}. Pass a mapping of sources to (min_interval, max_interval), "
            "or a dataframe with columns source, min_interval, max_interval."
        )
    table = Table.read(Frame.of(given, "the table of limits"), SOURCE_LIMITS)
    return SourceLimits.of_table(table, log.time_unit)


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
        own = getattr(value, each.name)
        if not each.init or own is None:
            continue
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


def own_rules(name: str, given: object, _log: CrawlLog | Clock) -> dict[str, Rule]:
    """Return rules under names that no policy has."""
    found = rules_of(name, given)
    for each in found:
        if is_plan(each) or each != policy_words(each):
            raise SourceDataError(f"{name} has the name {each!r}, which a policy has. Pass another.")
    return found


def as_told(value: Any) -> Any:  # noqa: ANN401 - a setting
    """Return a setting as JSON has it."""
    if isinstance(value, Objective):
        return repr(value)
    return None if value == np.inf else value


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
