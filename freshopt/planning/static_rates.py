"""Static rates in a held-out window: what they do there, and what they are expected to cost.

Their cost is exact where it is a function of missed changes. Where it is not, schedules are replayed over
several beginnings, each after a run-in as long as the window, or as the record reaches back; so are attempts
of which some fail, from where the record begins.
"""

from __future__ import annotations

import numpy as np

from freshopt.estimators.estimator import Estimator
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.phased_objective import PhasedObjective
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array
from freshopt.planning.good_phases import phase_savings
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.measured import Conduct
from freshopt.planning.plan_steps import method_of
from freshopt.planning.wishes import Wishes
from freshopt.scheduling.poisson_arrivals import PoissonArrivals
from freshopt.scheduling.refresh_order import points, points_before
from freshopt.simulation.replay_window import Refreshes
from freshopt.simulation.static_costs import has_static_cost

# Gauss nodes of the sources' posteriors and their weights.
Nodes = tuple[Array, Array]
# Beginnings of a replayed schedule, shared among a window's worlds; with more refreshes its gaps are short,
# and one is enough.
BEGINNINGS, MOST_REFRESHES = 9, 2_000_000


def at_rates(
    window: HeldOutWindow,
    request: Wishes,
    problem: Problem,
    rates: Array,
    bandwidth: float,
    nodes: Nodes | None = None,
) -> Conduct:
    """Return what static rates do in a window.

    Their cost is predicted under the posterior whose nodes are given.
    """
    expected = None if nodes is None else predicted_cost(window, problem, rates, nodes)
    conduct = Conduct(bandwidth, rates * window.span, rates, predicted=expected)
    if window.outcomes is not None:
        tried = _attempts(window, request.objective, rates, request.seed)
        return conduct._replace(runs=[tried] * len(window.worlds))
    if has_static_cost(request.objective):
        return conduct
    begin, shifted = _schedules(window, request, rates)
    # Replays of several beginnings for each part would take long.
    return conduct._replace(runs=[shifted] * len(window.worlds), begin=begin, in_parts=False)


def nodes_of(estimate: Estimator) -> Nodes:
    """Return the Gauss nodes of posteriors; the estimate without one."""
    nodes, weights = estimate.nodes()
    blank = ~np.isfinite(nodes)
    at = np.where(blank, estimate.change_rate_[:, None], nodes)
    return np.clip(at, SMALLEST, LARGEST), np.where(np.isnan(weights), 1.0 / weights.shape[1], weights)


def predicted_cost(window: HeldOutWindow, problem: Problem, rates: Array, nodes: Nodes) -> Array | None:
    """Return what rates are expected to cost each source.

    Over its window, by importance; None where there is no formula. Nodes are change rates and their
    probabilities, shape (n, number).
    """
    sources, phased = problem.sources, problem.objective
    objective = phased.objective if isinstance(phased, PhasedObjective) else phased
    amount = np.zeros(len(rates))
    for rate, weight in zip(nodes[0].T, nodes[1].T, strict=True):
        own = sources.with_change_rate(rate)
        numerics = numerics_of(objective, own)[0]
        if numerics is None:
            return None
        with np.errstate(all="ignore"):
            amount += weight * numerics.cost(rates)
        if objective is not phased:
            amount -= weight * phase_savings(problem, rates, own)
    with np.errstate(invalid="ignore"):
        return np.asarray(amount * window.span)


def _attempts(window: HeldOutWindow, objective: Objective, rates: Array, seed: int) -> list[Refreshes]:
    """Return attempts at static rates that succeed, in several runs.

    Equal gaps begin at several phases that divide a gap evenly, after a random one of each source.
    """
    assert window.outcomes is not None, "asked before"
    begin = float(np.min(window.world.start))
    length = window.end - begin
    shared = _beginnings(window)
    many = shared if shared * float(np.sum(rates)) * length <= MOST_REFRESHES else 1
    first = np.random.default_rng([seed, 23]).random(len(rates))
    runs = []
    for k in range(many):
        if objective.refresh is Refresh.PERIODIC:
            phase = (first + k / many) % 1.0
            count = points_before(length, rates, phase)
            source, time = np.repeat(np.arange(len(rates)), count), points(count, phase, rates)
        else:
            count, time = PoissonArrivals(seed + k).arrivals(rates, length)
            source = np.repeat(np.arange(len(rates)), count)
            time = time[np.lexsort((time, source))]
        succeed = window.outcomes.of(source, begin + time)
        runs.append((source[succeed], begin + time[succeed]))
    return runs


def _schedules(window: HeldOutWindow, request: Wishes, rates: Array) -> tuple[float, list[Refreshes]]:
    """Return parts of a schedule at several beginnings, and where all begin."""
    begin = max(2.0 * window.begin - window.end, float(np.min(window.world.start)))
    horizon, shared = window.end - begin, _beginnings(window)
    source, time = method_of(request).times(rates, 2.0 * horizon)
    many = shared if len(time) * shared <= MOST_REFRESHES else 1
    runs = []
    for k in range(many):
        first = k / many * horizon
        kept = np.flatnonzero((time >= first) & (time < first + horizon))
        kept = kept[np.lexsort((time[kept], source[kept]))]
        runs.append((source[kept], begin + np.minimum(time[kept] - first, np.nextafter(horizon, 0.0))))
    return begin, runs


def _beginnings(window: HeldOutWindow) -> int:
    """Return at how many phases schedules begin in each world."""
    return -(-BEGINNINGS // len(window.worlds))
