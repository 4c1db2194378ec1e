"""All policies of a back-test side by side in one window.

The weekly profile of the plan at good phases is learnt from the crawls before a window alone, with the plan's
own change rates. Sources whose gaps fit the week are replayed at their phases; the others keep a random
phase, and cost what static rates cost on average over all phases.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.estimators.estimator import Estimator
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.planning import static_policies as policies
from freshopt.planning.failing_window import Statuses, with_failures
from freshopt.planning.good_phases import at_good_phases, good_phases, phased_method, phased_problem
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.plan_steps import TOLERANCE, estimated_sources
from freshopt.planning.policy_replay import (
    Nodes,
    PolicyReplay,
    hindsight_rates,
    nodes_of,
    predicted_cost,
    replay_crawls,
    replay_own_crawls,
    replay_partly,
    replay_rates,
    used_rate,
)
from freshopt.planning.replanning import replanned_crawls
from freshopt.planning.request import PlanRequest
from freshopt.planning.static_policies import PHASED, problem_of, simple_rates
from freshopt.scheduling.schedule import schedule
from freshopt.simulation.static_costs import has_static_cost
from freshopt.solving import solve

# Passes that match a plan's refreshes to those of the log's crawls, and how closely.
PASSES, MATCHED = 5, 1e-6


def replay_policies(
    window: HeldOutWindow,
    request: PlanRequest,
    bandwidths: Sequence[float],
    every: float | None = None,
    log: CrawlLog | None = None,
    statuses: Statuses | None = None,
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
    statuses : Statuses, optional
        The fetches behind the log, of which some failed.
    """
    window, request = with_failures(window, request, statuses)
    estimate, sources = estimated_sources(window.past, request)
    nodes = nodes_of(estimate)
    found: list[PolicyReplay] = []
    for bandwidth in bandwidths:
        problem = problem_of(request, sources, bandwidth)
        solution = solve(problem, tolerance=TOLERANCE)
        refined = []
        if has_static_cost(request.objective):
            phased = phased_plan(window, request, solution, estimate, bandwidth)
            refined += [] if phased is None else [phased]
        if every is not None:
            # What is hidden of their cost is that of the same crawls: those of the first sample.
            worlds = window.drawn or (window,)
            own = [replanned_crawls(one, request, solution, estimate, every) for one in worlds]
            crawls = [*own[: len(window.drawn[:1])], *own]
            weight, name = sources.importance, policies.REPLANNED
            refined.append(replay_crawls(name, window, request.objective, weight, crawls, bandwidth))
        past = None if log is None else window.past
        found += _at_bandwidth(window, request, solution, bandwidth, refined, past, nodes)
    if log is None:
        return found
    return found + _at_own_bandwidth(window, request, sources, log, statuses, nodes)


def _at_bandwidth(
    window: HeldOutWindow,
    request: PlanRequest,
    solution: Solution,
    bandwidth: float,
    refined: Sequence[PolicyReplay],
    in_force: CrawlLog | None,
    nodes: Nodes,
) -> list[PolicyReplay]:
    """Measure the policies of one bandwidth, the plan first."""
    problem = solution.problem

    def measure(name: str, rates: Array, *, predicted: bool = True) -> PolicyReplay:
        return replay_rates(
            name, window, request, problem, rates, bandwidth, nodes=nodes, predicted=predicted
        )

    found = [measure(policies.PLAN, solution.rates), *refined]
    found += [measure(name, rates) for name, rates in simple_rates(problem, in_force).items()]
    if has_static_cost(request.objective) and window.outcomes is None and _costs_alike(problem):
        spent = used_rate(window, solution.rates)
        if spent > 0.0:
            best = hindsight_rates(window, request.objective, problem, spent)
            found.append(measure(policies.HINDSIGHT, best, predicted=False))
    return found


def _costs_alike(problem: Problem) -> bool:
    """Return whether refreshes are all that uses bandwidth, one like another."""
    return problem.per_bandwidth is None and bool(np.all(problem.sources.refresh_cost == 1.0))


def _at_own_bandwidth(
    window: HeldOutWindow,
    request: PlanRequest,
    sources: Sources,
    log: CrawlLog,
    statuses: Statuses | None,
    nodes: Nodes,
) -> list[PolicyReplay]:
    """Measure the log's own crawls, and a plan that uses as much."""
    current = replay_own_crawls(policies.CURRENT, window, request, sources, log, statuses)
    if not current.bandwidth > 0.0 or np.any(sources.min_rate > 0.0):
        return [current]
    rates = _of_as_many(window, request, sources, current.bandwidth)
    problem = problem_of(request, sources, current.bandwidth)
    name, used = policies.PLAN_AT_CURRENT, current.bandwidth
    return [current, replay_rates(name, window, request, problem, rates, used, nodes=nodes)]


def _of_as_many(window: HeldOutWindow, request: PlanRequest, sources: Sources, needed: float) -> Array:
    """Return planned rates that use as much as a log's crawls did.

    Where some sources leave early, the bandwidth is chosen so that what is used while they are there is as
    much.
    """
    bandwidth = needed
    for _ in range(PASSES):
        problem = problem_of(request, sources, bandwidth)
        rates = solve(problem, tolerance=TOLERANCE).rates
        used = used_rate(window, problem.used_by_source(rates))
        if not used > 0.0 or abs(used / needed - 1.0) <= MATCHED:
            break
        bandwidth *= needed / used
    return rates


def phased_plan(
    window: HeldOutWindow, request: PlanRequest, without: Solution, estimate: Estimator, bandwidth: float
) -> PolicyReplay | None:
    """Measure the plan at good phases, or None without evidence.

    Parameters
    ----------
    window : HeldOutWindow
    request : PlanRequest
    without : Solution
        The plan at random phases.
    estimate : Estimator
        The one that it was made with.
    bandwidth : float
    """
    log = window.past
    phased = phased_problem(log, estimate, without.problem, request.load_limit)
    if phased is None:
        return None
    solution = solve(phased, tolerance=TOLERANCE)
    phases = good_phases(solution, without)
    if phases is None:
        return None
    placed = at_good_phases(phased, solution.rates)
    longest = float(np.max(1.0 / solution.rates[placed])) if np.any(placed) else 0.0
    origin = window.begin - 2.0 * longest
    start = log.clock.date(origin)
    times = schedule(
        solution, window.end - origin, phased_method(phases), start=origin if start is None else start
    )
    own = np.flatnonzero(placed[times.source])
    order = own[np.lexsort((times.time[own], times.source[own]))]
    crawls = (times.source[order], origin + times.time[order])
    predicted = predicted_cost(window, phased, solution.rates, nodes_of(estimate))
    return replay_partly(
        PHASED, window, without.problem, solution.rates, placed, crawls, bandwidth, predicted
    )
