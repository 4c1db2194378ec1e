"""All policies of a back-test side by side in one window, each bandwidth's plan first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.planning import static_policies as policies
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.plan import TOLERANCE, estimated_sources
from freshopt.planning.policy_replay import (
    PolicyReplay,
    hindsight_rates,
    own_crawls,
    replay_crawls,
    replay_rates,
)
from freshopt.planning.replanning import replanned_crawls
from freshopt.planning.request import PlanRequest
from freshopt.planning.static_policies import problem_of, static_rates
from freshopt.simulation.static_costs import has_static_cost
from freshopt.solving import solve


def replay_policies(
    window: HeldOutWindow,
    request: PlanRequest,
    bandwidths: Sequence[float],
    every: float | None = None,
    log: CrawlLog | None = None,
) -> list[PolicyReplay]:
    """Measure all policies in one window.

    Parameters
    ----------
    window : HeldOutWindow
    request : PlanRequest
    bandwidths : sequence of float
    every : float, optional
        Period of the re-planned policy.
    log : CrawlLog, optional
        Whose own crawls are a policy: the rates in force, and in the window the crawls themselves.
    """
    _, sources = estimated_sources(window.past, request)
    found: list[PolicyReplay] = []
    for bandwidth in bandwidths:
        problem = problem_of(request, sources, bandwidth)
        found += _at_bandwidth(
            window, request, problem, bandwidth, every, None if log is None else window.past
        )
    return found if log is None else found + _at_own_bandwidth(window, request, sources, log)


def _at_bandwidth(
    window: HeldOutWindow,
    request: PlanRequest,
    problem: Problem,
    bandwidth: float,
    every: float | None,
    in_force: CrawlLog | None,
) -> list[PolicyReplay]:
    """Measure the policies of one bandwidth, the plan first."""
    rates = static_rates(problem, in_force)
    found = [replay_rates(name, window, request, problem, own, bandwidth) for name, own in rates.items()]
    if every is not None:
        crawls = replanned_crawls(window, request, bandwidth, every)
        weight = problem.sources.importance
        again = replay_crawls(policies.REPLANNED, window, request.objective, weight, crawls, bandwidth)
        found.insert(1, again)
    if has_static_cost(request.objective):
        best = hindsight_rates(window, request.objective, problem)
        name = policies.HINDSIGHT
        found.append(replay_rates(name, window, request, problem, best, bandwidth, predicted=False))
    return found


def _at_own_bandwidth(
    window: HeldOutWindow, request: PlanRequest, sources: Sources, log: CrawlLog
) -> list[PolicyReplay]:
    """Measure the log's own crawls, and a plan of as many."""
    crawls = own_crawls(log, window)
    current = replay_crawls(policies.CURRENT, window, request.objective, sources.importance, crawls, None)
    if not current.refreshes > 0.0 or np.any(sources.min_rate > 0.0):
        return [current]
    problem = problem_of(request, sources, current.refreshes)
    rates = solve(problem, tolerance=TOLERANCE).rates
    name, used = policies.PLAN_AT_CURRENT, current.refreshes
    return [current, replay_rates(name, window, request, problem, rates, used)]
