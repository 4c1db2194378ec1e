"""Ratios of realised to predicted cost, in windows inside a log."""

from __future__ import annotations

import numpy as np

from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array
from freshopt.planning.held_out_window import SHARE, held_out_windows
from freshopt.planning.plan import TOLERANCE, estimated_sources
from freshopt.planning.policy_replay import replay_rates
from freshopt.planning.request import PlanRequest
from freshopt.planning.static_policies import PLAN, problem_of, require_static
from freshopt.solving import solve


def realised_ratios(log: CrawlLog, request: PlanRequest, splits: int = 4, share: float = SHARE) -> Array:
    """Return realised over predicted cost of a log's plans.

    Parameters
    ----------
    log : CrawlLog
    request : PlanRequest
    splits : int
    share : float
        Of the log's time that is held out.

    Returns
    -------
    ndarray, shape (windows,)
        1 where costs were as predicted; of a maximised objective too it is costs that are compared. There are
        fewer windows than `splits` where nothing can be learnt before the first of them.

    Raises
    ------
    SourceDataError
        If the log is too short for a window.
    """
    require_static(request)
    ratios = []
    for window in held_out_windows(log, None, share, splits):
        _, sources = estimated_sources(window.past, request)
        problem = problem_of(request, sources, request.bandwidth)
        rates = solve(problem, tolerance=TOLERANCE).rates
        plan = replay_rates(PLAN, window, request, problem, rates, request.bandwidth)
        if plan.predicted:
            ratios.append(plan.cost.value / plan.predicted)
    return np.asarray(ratios, dtype=np.float64)
