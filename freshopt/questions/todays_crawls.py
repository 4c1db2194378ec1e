"""What the log's own crawls keep fresh, at what cost.

The rates in force are the log's crawl rates, source by source. They are evaluated as rates of a plan are: by
the same formula, at equal intervals (or Poisson times) and under the same estimated change rates. Real crawls
at unequal intervals keep copies less fresh than that; a source that was crawled once has no rate,
uses nothing and counts as never fresh. So what better rates alone save is told, and not what regular
intervals save on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from freshopt.errors import InfeasibleProblemError, SourceDataError
from freshopt.formatting import percent
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.curves.change_shape import ChangeShape
from freshopt.modelling.matched_rates import match
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, Array, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.problems.binary_freshness import mean_freshness
from freshopt.questions.bandwidth_for import (
    AS_TODAY,
    BandwidthFor,
    bandwidth_for,
    difference,
    freshness_objective,
)
from freshopt.questions.rate_changes import Crawled, cut_to_limits, rates_of
from freshopt.units import convert_time, rate_text, share_of

# Difference of shares of time from which on it is told that crawls came at unequal intervals.
UNEQUAL = 0.005
# Of more crawls their own intervals would take longer than the rest of the plan: 3 s and 1.3 GB for 10⁷.
MOST_CRAWLS = 1_000_000
# Beyond so many sources a target's problem takes longer than the rest of the plan: 2 s for 10⁵.
MOST = 100_000


@frozen_value(repr=False)
class TodaysCrawls:
    """Rates in force, their freshness, and the least bandwidth for it.

    - `rates` (n,): Of each source, per time unit.
    - `bandwidth`: What they use.
    - `fresh`: Share of time that copies are fresh by them, by importance.
    - `needed`: The least bandwidth for that, or for what is left of it within the plan's limits; None where
      bounds exclude it.
    - `reason`: Why there is none, or empty.
    - `no_cycle`: Whether it stands beside a weekly cycle that it does not have: the sentence then says so.
    - `as_crawled`: Share of time that the log's crawls keep copies fresh at the intervals at which they came;
      None of Poisson times, of a log without times, and of more than `MOST_CRAWLS`.
    - `cut`: Bandwidth and freshness of these rates cut to maximum rates and host limits of the plan, where
      they exceed them: it is these that the plan is compared with.
    """

    rates: Array
    bandwidth: float
    fresh: float
    needed: BandwidthFor | None
    reason: str = ""
    no_cycle: bool = False
    cut: tuple[float, float] | None = None
    as_crawled: float | None = None

    @property
    def sentence(self) -> str:
        """What the same freshness needs, in words."""
        share, at = (
            f"{percent(self.fresh, space=' ')} of the time",
            "at equal intervals " if self.no_cycle else "",
        )
        if self.as_crawled is not None and self.fresh - self.as_crawled >= UNEQUAL:
            share += f" if at equal intervals, {percent(self.as_crawled, space=' ')} as they came"
        if self.needed is None:
            return f"{at}the log's own crawls keep copies fresh {share}. {self.reason}"
        unit = self.needed.solution.problem.sources.time_unit
        saved, needed = difference(self.needed.saving or 0.0), rate_text(self.needed.bandwidth, unit)
        if self.cut is not None:
            used, kept = self.cut
            return (
                f"{at}the log's own crawls, {rate_text(self.bandwidth, unit)} and fresh {share}, "
                f"exceed maximum rates or host limits; cut to them they are {rate_text(used, unit)} and "
                f"{percent(kept, space=' ')} fresh, for which {saved} are needed: {needed}"
            )
        return (
            f"{at}the same freshness as the log's own crawls ({share}) needs {saved}: {needed}, "
            f"not {rate_text(self.bandwidth, unit)}"
        )

    @property
    def compared(self) -> tuple[float, ...]:
        """The bandwidth compared with, and the least for its freshness."""
        own = self.bandwidth if self.cut is None else self.cut[0]
        return (own,) if self.needed is None else (own, self.needed.bandwidth)

    def facts(self) -> dict[str, Any]:
        """Return it in numbers, as `summary.json` has it."""
        found = self.needed
        return {
            "bandwidth": self.bandwidth,
            "fresh": self.fresh,
            "as_crawled": self.as_crawled,
            "needed": None if found is None else found.bandwidth,
            "at_least": None if found is None else found.at_least,
            "saving": None if found is None else found.saving,
            **({} if self.cut is None else {"cut": dict(zip(("bandwidth", "fresh"), self.cut, strict=True))}),
            "sentence": self.sentence,
        }

    def __repr__(self) -> str:
        return f"TodaysCrawls({self.sentence})"


def todays_crawls(problem: Problem, log: CrawlLog) -> TodaysCrawls | None:
    """Return what a log's own crawls keep fresh, and what that needs.

    None where the question has no answer: no source was crawled twice, or nothing matters, or there are more
    than `MOST` sources.
    """
    sources, own = problem.sources, freshness_objective(problem)
    refresh, changes = own.refresh, getattr(own, "changes", None)
    none_known = not bool(np.any(log.crawl_rate > 0.0))
    weightless = not total(sources.column("importance")) > 0.0
    if len(sources) > MOST or none_known or weightless or bool(np.any(sources.signalled)):
        return None
    rates = rates_of(sources, log)
    used, fresh = total(sources.refresh_cost * rates), mean_freshness(sources, rates, refresh, changes)
    # At shares that float64 does not tell from 0 or 1 there is nothing to plan.
    if not 0.0 < fresh < 1.0:
        return None
    told = refresh is Refresh.PERIODIC and log.timed and len(log) <= MOST_CRAWLS
    came = _as_crawled(sources, log, changes) if told else None
    within = cut_to_limits(problem, rates)
    cut, needed, reason = None, None, ""
    if within is not None:
        cut = total(sources.refresh_cost * within), mean_freshness(sources, within, refresh, changes)
    if cut is not None and not cut[1] > 0.0:
        reason = "They exceed maximum rates or host limits, cut to which nothing is kept fresh"
    else:
        try:
            needed = bandwidth_for(problem, freshness=AS_TODAY, today=rates if within is None else within)
        except InfeasibleProblemError as error:
            text = str(error)
            reason = f"{text[:1].upper()}{text[1:]}"
    return TodaysCrawls(rates, used, fresh, needed, reason, cut=cut, as_crawled=came)


def needed_bandwidth(
    objective: Objective,
    sources: Sources,
    host_limits: Mapping[Any, float] | None,
    freshness: float | str,
    log: CrawlLog | None,
) -> BandwidthFor:
    """Return the least bandwidth for a freshness within bounds and host limits."""
    if freshness == AS_TODAY and log is None:
        raise SourceDataError(
            f'freshness "{AS_TODAY}" is that of the crawls in a log, and here changes are known without any. '
            "Pass such as 0.99."
        )
    # Nothing but bounds and host limits: the bandwidth is what is asked for.
    unlimited = Problem(objective, sources, LARGEST, host_limits)
    return bandwidth_for(unlimited, freshness=freshness, today=log if freshness == AS_TODAY else None)


def _as_crawled(sources: Sources, log: CrawlLog, changes: ChangeShape | None) -> float:
    """Return how fresh crawls keep copies, over the intervals between them."""
    length = np.nan_to_num(log.interval)
    of = np.repeat(np.arange(len(log.names)), np.diff(log.offsets))
    spans, place = np.bincount(of, length, len(log.names)), np.full(len(log.names), -1)
    place[match(sources, Crawled(log))] = np.arange(len(sources))
    known = (length > 0.0) & (place[of] >= 0)
    of, length = of[known], length[known]
    weight = sources.importance[place[of]] * length / spans[of]
    unit = convert_time(1.0, sources.time_unit, log.time_unit)
    gaps = Sources(sources.change_rate[place[of]], weight, time_unit=sources.time_unit)
    fresh = mean_freshness(gaps, unit / length, Refresh.PERIODIC, changes)
    return fresh * total(weight) / total(sources.column("importance"))


def own_bandwidth(
    objective: Objective, sources: Sources, host_limits: Mapping[Any, float] | None, log: CrawlLog | None
) -> float:
    """Return what the log's own crawls use, a plan's default."""
    remedy = 'Pass a bandwidth such as "200/day", or a freshness such as 0.99.'
    if log is None:
        raise SourceDataError(f"a history of changes tells no crawls, and so no bandwidth. {remedy}")
    if not bool(np.any(log.crawl_rate > 0.0)):
        raise SourceDataError(f"no source of the log was crawled twice, which would tell its rate. {remedy}")
    unlimited = Problem(objective, sources, LARGEST, host_limits)
    return total(unlimited.used_by_source(rates_of(sources, log)))


def needed_facts(found: BandwidthFor) -> dict[str, Any]:
    """Return the least bandwidth for a freshness in numbers."""
    return {
        "freshness": found.target,
        "bandwidth": found.bandwidth,
        "at_least": found.at_least,
        "sentence": found.sentence,
    }


def freshness_of(given: float | str, what: str = "freshness") -> float | str:
    """Return a share of time in (0, 1), or "as today".

    Examples
    --------
    >>> freshness_of("99%"), freshness_of(0.5), freshness_of("today")
    (0.99, 0.5, 'as today')
    """
    if isinstance(given, str) and given.strip().lower() in (AS_TODAY, "today"):
        return AS_TODAY
    share = share_of(what, given)
    if not 0.0 < share < 1.0:
        raise SourceDataError(
            f"{what} {given} is not between 0 and 100 %, at neither of which there is anything to plan. "
            f"Write such as 99%, 0.99 or {'today' if what.startswith('--') else AS_TODAY!r}."
        )
    return share
