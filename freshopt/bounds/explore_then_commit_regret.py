"""`etc_regret_bound`: regret bound of explore-then-commit.

Against the best rates, known from the start.

The regret of exploration is at most Σw per time unit. That of commitment is bounded by `sensitivity_bound`,
with errors of the change rates bounded by Hoeffding's inequality for all sources at once. Longer exploration
costs more and finds better rates; the bound is Aτ + B(T−τ)/τ, smallest near τ = √(BT/A), hence of order √T.

The bound shows the order. Its constant grows like e^{2 ξ_max n/R}: where sources change more than about once
between two visits of an even sweep it is no better than the trivial bound Σw·T. `best_exploration` finds a
good τ there, by computing the expected regret instead of bounding it.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.errors import ObjectiveError, SourceDataError, expect
from freshopt.inference.interval_methods import check_bounds, check_confidence
from freshopt.modelling.fetches.conditional_fetches import require_fixed_costs
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import as_number, total
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.units import check_horizon


def etc_regret_bound(
    problem: Problem,
    horizon: float,
    bounds: tuple[float, float],
    exploration: float | None = None,
    confidence: float = 0.95,
) -> float:
    """Bound the regret of `ExploreThenCommit`, with a probability.

    Parameters
    ----------
    problem : Problem
        Binary freshness under Poisson refreshes, bounded by the bandwidth R alone, with n sources of
        importances w. Its change rates are not used.
    horizon : float
        T, in time units.
    bounds : (float, float)
        0 < ξ_min < ξ_max between which all change rates are known to lie, per time unit; the estimates are
        clipped to them.
    exploration : float, optional
        τ, how long sources are visited in turn, in time units: at least one sweep, n/R, at most T. By
        default the whole number of sweeps for which the bound is smallest.
    confidence : float
        1 − δ, the probability with which the bound holds.

    Returns
    -------
    float
        Σw·(τ + (T−τ)/τ · e^{2ξ_max n/R} R ln(2n/δ) / (2 n ξ_min²)), at most Σw·T: a bound on the time
        integral of the freshness Σ w·(·) missed. In [1]_ it is divided by n.

    Raises
    ------
    ObjectiveError
        If the problem is another.
    SourceDataError
        If a number is out of range.

    Notes
    -----
    [1]_ Theorem 1, in which freshness after τ is counted as that of the committed rates from the first
    moment. The regret is against rates of Poisson refreshes; visits at equal intervals are better than those,
    so that it can be negative while exploring. A result of Σw·T says nothing: no policy loses more.

    References
    ----------
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6075, Theorem 1.

    Examples
    --------
    The bound of an easy instance, as a share of everything; and a hopeless one, with 10 times the sources.

    >>> import freshopt as fo
    >>> few = fo.Problem(fo.problems.BinaryFreshness(), fo.Sources([0.5] * 10), bandwidth=20.0)
    >>> round(etc_regret_bound(few, 1e6, (0.1, 1.0)) / (10 * 1e6), 3)
    0.079
    >>> many = fo.Problem(fo.problems.BinaryFreshness(), fo.Sources([0.5] * 100), bandwidth=20.0)
    >>> etc_regret_bound(many, 1e6, (0.1, 1.0)) / (100 * 1e6)
    1.0
    """
    require_plain_binary(problem)
    horizon = check_horizon(horizon)
    lowest, highest = check_bounds(bounds)
    delta = 1.0 - check_confidence(confidence)
    if not (lowest > 0.0 and math.isfinite(highest)):
        raise SourceDataError(f"bounds are {bounds}. The bound needs a positive and a finite one.")
    n = len(problem.sources)
    unit = float(problem.sources.refresh_cost[0])
    bandwidth = problem.bandwidth / unit
    sweep = n / bandwidth
    if not sweep <= horizon < math.inf:
        raise SourceDataError(f"horizon is {horizon}. Pass at least one sweep over all sources, {sweep:g}.")
    # In logarithms: the exponential of a hundred changes between visits would overflow.
    log_worst = 2.0 * highest * sweep + math.log(
        bandwidth * math.log(2.0 * n / delta) / (2.0 * n * lowest**2)
    )
    if exploration is None:
        wanted = math.exp(min(0.5 * (log_worst + math.log(horizon)), 700.0))
        most = math.floor(horizon / sweep)
        sweeps = [min(max(1, round_to(wanted / sweep)), most) for round_to in (math.floor, math.ceil)]
        return min(etc_regret_bound(problem, horizon, bounds, k * sweep, confidence) for k in sweeps)
    exploration = as_number(exploration, "exploration", "Pass a time, or None.")
    if not sweep * (1.0 - 1e-12) <= exploration <= horizon:
        raise SourceDataError(
            f"exploration is {exploration}. Pass a time between one sweep, {sweep:g}, and the horizon "
            f"{horizon:g}."
        )
    lost = exploration + (horizon / exploration - 1.0) * math.exp(min(log_worst, 700.0))
    return total(problem.sources.importance) * min(lost, horizon)


def require_plain_binary(problem: Problem) -> None:
    """Raise unless the problem is plain binary freshness.

    Under Poisson refreshes, constrained by the bandwidth alone.
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    objective, sources = problem.objective, problem.sources
    if not isinstance(objective, BinaryFreshness) or objective.refresh is not Refresh.POISSON:
        raise ObjectiveError(
            f"the regret bound is for BinaryFreshness under Poisson refreshes, not {objective!r}. Declare "
            "the problem with it."
        )
    require_fixed_costs(sources, "the regret bound")
    unequal = bool(np.any(sources.refresh_cost != sources.refresh_cost[0]))
    bounded = bool(np.any(problem.lower > 0.0) | np.any(np.isfinite(problem.upper)))
    if unequal or bounded or len(problem.hosts) or bool(np.any(sources.signalled)):
        raise ObjectiveError(
            "the regret bound is for sources that only the bandwidth bounds, all of one cost and without "
            "signals. Leave out the other constraints."
        )
