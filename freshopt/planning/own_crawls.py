"""A log's own crawls as a policy of a back-test.

Its crawls are those that were answered. What they used of the bandwidth is counted as that of a plan is:
with the attempts that failed, as recorded or as the chances of success tell, and with what was brought where
fetches cost that.
"""

from __future__ import annotations

import numpy as np

from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.fetches.conditional_fetches import changed_costs
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray
from freshopt.planning.failing_window import Statuses, recorded_attempts
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.policy_replay import PolicyReplay, crawl_costs, mean_rate, measured
from freshopt.planning.request import PlanRequest
from freshopt.simulation.replay_window import Refreshes


def replay_own_crawls(
    policy: str,
    window: HeldOutWindow,
    request: PlanRequest,
    sources: Sources,
    log: CrawlLog,
    statuses: Statuses | None = None,
) -> PolicyReplay:
    """Return the cost of a log's own crawls; what they use is the bandwidth.

    Parameters
    ----------
    policy : str
    window : HeldOutWindow
    request : PlanRequest
    sources : Sources
        Of the window.
    log : CrawlLog
    statuses : Statuses, optional
        The fetches behind the log, with those that failed.
    """
    rows, (source, moment) = own_crawls(log, window)
    inside = (moment >= window.changes.first[source]) & (moment <= window.changes.until[source])
    n = len(window.span)
    answered = np.bincount(source[inside], minlength=n).astype(np.float64)
    asked = answered
    if statuses is not None:
        asked = recorded_attempts(window, statuses).astype(np.float64)
    elif request.success is not None:
        asked = answered / request.success(window.past.sources_)
    found = np.bincount(source[inside], weights=log.changed[rows][inside], minlength=n)
    time = window.span + _unseen(log, window)
    refreshes = mean_rate(window, answered if request.retry_at_once else asked, time)
    used = mean_rate(window, asked + changed_costs(sources) * found, time)
    costs = crawl_costs(window, request.objective, (source, moment))
    return measured(policy, window, sources.importance, used, refreshes, None, costs)


def own_crawls(log: CrawlLog, window: HeldOutWindow) -> tuple[IntArray, Refreshes]:
    """Return a log's crawls of a window's sources, and their rows in the log."""
    place = np.full(len(log.sources_), -1)
    place[window.index] = np.arange(len(window.index))
    source = place[log.source_index]
    rows = np.flatnonzero(source >= 0)
    return rows, (source[rows], log.time[rows])


def _unseen(log: CrawlLog, window: HeldOutWindow) -> Array:
    """Return the time that a source was there after its last crawl.

    Where its window ends with its last crawl, crawls over its length are too many: a record that is cut at
    random ends Σ gap²/2Σ gap after a crawl on average.
    """
    gap = np.nan_to_num(log.interval)
    whole, squares = (np.bincount(log.source_index, each, len(log.sources_)) for each in (gap, gap**2))
    rest = np.divide(squares, 2.0 * whole, out=np.zeros(len(whole)), where=whole > 0.0)
    return np.where(window.changes.until == log.last_crawl[window.index], rest[window.index], 0.0)
