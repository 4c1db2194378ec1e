"""Rates in force: how often sources are crawled today."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.matched_rates import match
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray, as_vector
from freshopt.scheduling.rate_table import RateTable
from freshopt.units import convert_time

# A limit that is exceeded by less is met.
ROUNDING = 1e-9


def rates_in_force(log: CrawlLog) -> Array:
    """Return how often a log crawls each source, shape (n,).

    A source of a single crawl has no rate in the log, and counts with none.
    """
    rate = log.crawl_rate
    known = np.isfinite(rate) & (rate > 0.0)
    if not np.any(known):
        raise SourceDataError("no source of the log was crawled twice, which would tell the rates in force.")
    return np.where(known, rate, 0.0)


def attempted(crawled: Array, log: CrawlLog, success: Array | None, place: IntArray | slice) -> Array:
    """Return rates of attempts for those of a log's crawls.

    A log's crawls are fetches that tell something. Its other rows tell all attempts; without them each crawl
    took as many as the chance of success says.
    """
    expected: Array = crawled if success is None else crawled / success
    if log.attempt_rate is None:
        return expected
    recorded = log.attempt_rate[place]
    return np.where(np.isnan(recorded) | ~(crawled > 0.0), expected, recorded)


def rates_of(sources: Sources, today: CrawlLog | npt.ArrayLike) -> Array:
    """Return the rates in force of a problem's sources, shape (n,)."""
    if not isinstance(today, CrawlLog):
        rates = as_vector(today, len(sources), "today")
        if not bool(np.all(np.isfinite(rates) & (rates >= 0.0))):
            raise SourceDataError("today has a rate that is no number >= 0. Pass refreshes per time unit.")
    else:
        own = _Crawled(today)
        unit = convert_time(1.0, sources.time_unit, today.time_unit)
        place = match(sources, own)
        rates = attempted(rates_in_force(today)[place], today, sources.failing, place) * unit
    # A source that announces its changes is refreshed no more often than it changes.
    return np.where(sources.signalled, np.minimum(rates, sources.change_rate), rates)


def cut_to_limits(problem: Problem, rates: Array) -> Array | None:
    """Return rates cut to max_rate and host limits, None if within."""
    cut, hosts = np.minimum(rates, problem.upper), problem.hosts
    if len(hosts):
        used = hosts.totals(problem.used_by_source(cut))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(used > hosts.limits * (1.0 + ROUNDING), hosts.limits / used, 1.0)
        cut = cut * hosts.broadcast_to_sources(share, 1.0)
    return cut if bool(np.any(cut < rates * (1.0 - ROUNDING))) else None


def old_rates(sources: Sources, table: RateTable) -> tuple[Array, int]:
    """Return earlier rates of the sources, and how many are gone.

    Examples
    --------
    >>> from freshopt.scheduling.rate_table import read_rates
    >>> old_rates(Sources([1.0, 2.0], names=["a", "b"]), read_rates({"b": 3.0, "x": 1.0}))
    (array([nan,  3.]), 1)
    """
    unit = convert_time(1.0, sources.time_unit, table.time_unit)
    names = np.arange(len(sources)) if sources.names is None else np.asarray(sources.names)
    if table.names is None:
        return as_vector(table.rates, len(sources), "the earlier rates") * unit, 0
    known = dict(zip(np.asarray(table.names).tolist(), table.rates.tolist(), strict=True))
    found = np.array([known.get(name, np.nan) for name in names.tolist()]) * unit
    there = int(np.count_nonzero(~np.isnan(found)))
    if not there:
        some = [", ".join(repr(name) for name in each[:2]) for each in (list(known), names.tolist())]
        raise SourceDataError(
            f"no source has an earlier rate: they are of such as {some[0]}, and the sources are such as "
            f"{some[1]}. Pass rates of the same sources."
        )
    return found, len(known) - there


class _Crawled:
    """A log's sources, in the words of estimates."""

    def __init__(self, log: CrawlLog) -> None:
        self.sources_, self.change_rate_, self.time_unit_ = log.names, log.crawl_rate, log.time_unit
