"""Sources of a log with estimated change rates, for a plan."""

from __future__ import annotations

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.estimators.estimator import Estimator
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.sources import Sources
from freshopt.planning.request import PlanRequest, default_estimate

# Relative duality gap that a plan must reach; the dual search reaches 1e-14.
TOLERANCE = 1e-9


def estimated_sources(log: CrawlLog, request: PlanRequest) -> tuple[Estimator, Sources]:
    """Estimate change rates; return the estimator and the sources to plan for."""
    estimate = (request.estimate or default_estimate)(log)
    return estimate, sources_of(estimate, log, request)


def sources_of(estimate: Estimator, log: CrawlLog, request: PlanRequest) -> Sources:
    """Return the sources to plan for, by a fitted estimator."""
    _require_known(estimate)
    return Sources(
        estimate.change_rate_,
        1.0 if request.importance is None else request.importance(log.sources_),
        name=log.sources_,
        host=None if request.hosts is None else request.hosts(log.sources_),
        min_rate=request.min_rate,
        max_rate=request.max_rate,
        time_unit=log.time_unit,
    )


def _require_known(estimate: Estimator) -> None:
    """Raise if a source's change rate is no positive number."""
    rate = estimate.change_rate_
    unknown = np.flatnonzero(~((rate > 0) & (rate < np.inf))).tolist()
    if unknown:
        where = list_offenders(f"'{estimate.sources_[k]}' ({estimate.flag_[k]})" for k in unknown)
        smoothed = getattr(estimate, "smoothing", None) is not None
        remedy = "Leave smoothing out, or give" if smoothed else "Give"
        raise SourceDataError(
            f"the log alone does not tell the change rate of {where}. {remedy} more crawls of them."
        )
