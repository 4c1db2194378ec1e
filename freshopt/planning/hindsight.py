"""Best static rates in hindsight: water-filling on empirical cost curves.

The exact cost of a static rate in known changes is convex in the rate: with c(s) the mean cost of a copy of
age s, non-decreasing in s, equal gaps cost ρ∫₀^{1/ρ} c, the perspective of a convex function, and Poisson
refreshes a completely monotone function of ρ. The best rates under a bandwidth therefore take the steepest
segments of all curves first, on a grid that is refined around what was taken. No plan can know them: they use
the changes of the very window in which they are measured, and leave host limits out.
Cost: some seventy evaluations of the curves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import ROUNDED, Array, IntArray
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.simulation.static_costs import static_costs

# First grid, relative to the mean rate, and the passes that refine it: rates are then within 1 % of the best,
# and costs, which are flat there, within 1e-4.
POINTS, LEAST = 26, 1e-3
PASSES, FINER, REACH = 3, 13, 2


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
