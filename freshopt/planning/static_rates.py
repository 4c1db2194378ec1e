"""Static rates in a held-out window: their cost, and the best.

Their cost is exact where it is a function of missed changes. Where it is not, schedules are replayed over
several beginnings, each after a run-in as long as the window, or as the record reaches back; so are attempts
of which some fail, from where the record begins.

The best in hindsight are found by water-filling on empirical cost curves. The exact cost of a static rate in
known changes is convex in the rate: with c(s) the mean cost of a copy of age s, non-decreasing in s, equal
gaps cost ρ∫₀^{1/ρ} c, the perspective of a convex function, and Poisson refreshes a completely monotone
function of ρ. The best rates under a bandwidth therefore take the steepest segments of all curves first, on a
grid that is refined around what was taken, in some seventy evaluations of the curves. No plan can know them:
they use the changes of the very window in which they are measured, and leave host limits out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.estimators.estimator import Estimator
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.phased_objective import PhasedObjective
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, ROUNDED, SMALLEST, Array, IntArray
from freshopt.planning.good_phases import phase_savings
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.measured import Conduct
from freshopt.planning.plan_steps import method_of
from freshopt.planning.wishes import Wishes
from freshopt.scheduling.poisson_arrivals import PoissonArrivals
from freshopt.scheduling.refresh_order import points, points_before
from freshopt.simulation.staleness_integrals import Refreshes
from freshopt.simulation.static_costs import has_static_cost, static_costs

# Gauss nodes of the sources' posteriors and their weights.
Nodes = tuple[Array, Array]
# Beginnings of a replayed schedule, shared among a window's worlds; with more refreshes its gaps are short,
# and one is enough.
BEGINNINGS, MOST_REFRESHES = 9, 2_000_000

# First grid, relative to the mean rate, and the passes that refine it: rates are then within 1 % of the best,
# and costs, which are flat there, within 1e-4.
POINTS, LEAST = 26, 1e-3
PASSES, FINER, REACH = 3, 13, 2


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
    if window.expected is not None and window.outcomes is None:
        return conduct
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
    shared = beginnings(window)
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
    horizon, shared = window.end - begin, beginnings(window)
    source, time = method_of(request).times(rates, 2.0 * horizon)
    many = shared if len(time) * shared <= MOST_REFRESHES else 1
    runs = []
    for k in range(many):
        first = k / many * horizon
        kept = np.flatnonzero((time >= first) & (time < first + horizon))
        kept = kept[np.lexsort((time[kept], source[kept]))]
        runs.append((source[kept], begin + np.minimum(time[kept] - first, np.nextafter(horizon, 0.0))))
    return begin, runs


def beginnings(window: HeldOutWindow) -> int:
    """Return at how many phases schedules begin in each world."""
    return -(-BEGINNINGS // len(window.worlds))


def hindsight_rates(
    window: HeldOutWindow, objective: Objective, problem: Problem, refreshes: float | None = None
) -> Array:
    """Return the best static rates for the changes of the window itself.

    `refreshes` are per time unit, of the sources that are there; by default the problem's bandwidth.
    """
    weight, there, span = problem.sources.importance, window.there, window.span
    bandwidth = float(problem.bandwidth) if refreshes is None else refreshes
    # Refreshes of a source that leaves early take a smaller part of the bandwidth, those of one gone none.
    part = np.where(there, span / np.mean(span[there]), 1.0)
    known = window.drawn or (window,)
    taken = best_rates(
        lambda used: (
            weight * np.mean([static_costs(one.changes, used / part, objective) for one in known], axis=0)
        ),
        bandwidth,
        np.where(there, problem.lower * part, 0.0),
        np.where(there, problem.upper * part, 0.0),
    )
    return taken / part


def best_rates(cost: Callable[[Array], Array], bandwidth: float, lower: Array, upper: Array) -> Array:
    """Return the rates of least total cost under a bandwidth and bounds.

    The cost is convex and decreasing in each rate; the least rates fit into the bandwidth.

    Examples
    --------
    >>> weight = np.array([1.0, 4.0])
    >>> best_rates(lambda rate: weight / np.maximum(rate, 1e-9), 3.0, np.zeros(2), np.full(2, 9.0)).round(1)
    array([1., 2.])
    """
    n = len(lower)
    grid = np.geomspace(LEAST * bandwidth / n, bandwidth, POINTS)
    rates = np.clip(np.concatenate([[0.0], grid])[:, None], lower, np.minimum(upper, bandwidth))
    chosen, at = _filled(rates, np.array([cost(each) for each in rates]), bandwidth)
    for _ in range(PASSES):
        top = len(rates) - 1
        low, high = (rates[np.clip(at + step, 0, top), np.arange(n)] for step in (-REACH, REACH))
        low = np.where(at <= REACH, lower, low)
        rates = np.sort(
            np.vstack([low + (high - low) * np.linspace(0.0, 1.0, FINER)[:, None], lower]), axis=0
        )
        chosen, at = _filled(rates, np.array([cost(each) for each in rates]), bandwidth)
    return chosen


def _filled(rates: Array, costs: Array, bandwidth: float) -> tuple[Array, IntArray]:
    """Return the best rates on piecewise linear curves, with their vertices.

    `rates` and `costs` are of shape (points, n), rates ascending. What rounding has left of concavity is
    flattened.
    """
    step = np.diff(rates, axis=0)
    with np.errstate(all="ignore"):
        slope = np.where(step > 0.0, -np.diff(costs, axis=0) / step, np.inf)
    slope = np.minimum.accumulate(np.maximum(slope, 0.0), axis=0)
    order = np.argsort(-slope, axis=None, kind="stable")
    length = step.ravel()[order] * (slope.ravel()[order] > 0.0)
    left = max(bandwidth - float(np.sum(rates[0])), 0.0)
    taken = np.clip(left - (np.cumsum(length) - length), 0.0, length)
    share = np.zeros(step.size)
    share[order] = taken
    chosen = rates[0] + share.reshape(step.shape).sum(axis=0)
    return chosen, np.count_nonzero(rates <= chosen * (1.0 + ROUNDED), axis=0) - 1
