"""All policies of a back-test side by side in one window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.planning import static_policies as policies
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.phased_policy import phased_plan
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
from freshopt.planning.static_policies import problem_of, simple_rates
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
    estimate, sources = estimated_sources(window.past, request)
    found: list[PolicyReplay] = []
    for bandwidth in bandwidths:
        problem = problem_of(request, sources, bandwidth)
        solution = solve(problem, tolerance=TOLERANCE)
        refined = []
        if has_static_cost(request.objective):
            phased = phased_plan(window, request, solution, estimate, bandwidth)
            refined += [] if phased is None else [phased]
        if every is not None:
            crawls = replanned_crawls(window, request, solution, estimate, every)
            weight, name = sources.importance, policies.REPLANNED
            refined.append(replay_crawls(name, window, request.objective, weight, crawls, bandwidth))
        past = None if log is None else window.past
        found += _at_bandwidth(window, request, solution, bandwidth, refined, past)
    return found if log is None else found + _at_own_bandwidth(window, request, sources, log)


def _at_bandwidth(
    window: HeldOutWindow,
    request: PlanRequest,
    solution: Solution,
    bandwidth: float,
    refined: Sequence[PolicyReplay],
    in_force: CrawlLog | None,
) -> list[PolicyReplay]:
    """Measure the policies of one bandwidth, the plan first."""
    problem = solution.problem

    def measure(name: str, rates: Array, *, predicted: bool = True) -> PolicyReplay:
        return replay_rates(name, window, request, problem, rates, bandwidth, predicted=predicted)

    found = [measure(policies.PLAN, solution.rates), *refined]
    found += [measure(name, rates) for name, rates in simple_rates(problem, in_force).items()]
    if has_static_cost(request.objective):
        best = hindsight_rates(window, request.objective, problem)
        found.append(measure(policies.HINDSIGHT, best, predicted=False))
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
