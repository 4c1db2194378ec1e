"""Static policies of a back-test: rules from a log to rates.

Each uses the same bandwidth, under the same bounds and host limits, and knows the same estimates.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.fetches.conditional_fetches import rates_of_bandwidth
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.planning.wishes import Wishes
from freshopt.solvers.proportional import share
from freshopt.solvers.square_root import square_root_shape

PLAN, IN_FORCE, UNIFORM, PROPORTIONAL = "plan", "rates in force", "uniform", "proportional"
SQUARE_ROOT, HINDSIGHT = "∝ √(w·Δ)", "best static in hindsight"
CURRENT, PLAN_AT_CURRENT, REPLANNED = "current", "plan at current", "re-planned"
PHASED = "plan, phased"
# Policies that a verdict judges against the plan of the same bandwidth.
JUDGED = (PHASED, REPLANNED, IN_FORCE, UNIFORM, PROPORTIONAL, SQUARE_ROOT, CURRENT)


def require_static(request: Wishes) -> None:
    """Raise SourceDataError if a request declares constraints.

    Bandwidth, bounds and limits of hosts are none of them.
    """
    if request.constraints is not None or not math.isfinite(request.bandwidth):
        raise SourceDataError(
            "a backtest compares rates under a bandwidth and host limits, and no declared constraints. Leave "
            "them out."
        )


def problem_of(request: Wishes, sources: Sources, bandwidth: float) -> Problem:
    """Return the problem of a request for other sources, at a bandwidth.

    Limits of hosts without a source are left out.
    """
    limits: dict[Any, float] | None = None
    if request.host_limits is not None and sources.host is not None:
        there = set(np.asarray(sources.host).tolist())
        limits = {host: limit for host, limit in request.host_limits.items() if host in there} or None
    return Problem(request.objective, sources, bandwidth, limits)


def simple_rates(problem: Problem, past: CrawlLog | None) -> dict[str, Array]:
    """Return the rates of each rule that needs no plan.

    Parameters
    ----------
    problem : Problem
    past : CrawlLog or None
        Whose crawls are the rates in force, scaled to the bandwidth; None where nobody crawled.
    """
    sources = problem.sources
    shapes = {
        UNIFORM: np.ones(len(sources)),
        PROPORTIONAL: sources.change_rate,
        SQUARE_ROOT: square_root_shape(sources),
    }
    if past is not None:
        rate = past.crawl_rate
        if sources.success is not None:
            # Crawls in a log are those that were answered.
            rate = rate / sources.success
        known = np.isfinite(rate) & (rate > 0.0)
        if np.any(known):
            shapes = {IN_FORCE: np.where(known, rate, np.mean(rate[known])), **shapes}
    found = {}
    for name, shape in shapes.items():
        rates = share(problem.per_bandwidth or problem, shape).rates
        if rates is not None:
            found[name] = rates if problem.per_bandwidth is None else rates_of_bandwidth(problem, rates)
    return found
