"""Regret bounds of `ExploreThenCommit` and `MirrorSync`.

Explore, then commit, against the best rates, known from the start. The regret of exploration is at most Σw
per time unit. That of commitment is bounded by `sensitivity_bound`, with errors of the change rates bounded
by Hoeffding's inequality for all sources at once. Longer exploration costs more and finds better rates; the
bound is Aτ + B(T−τ)/τ, smallest near τ = √(BT/A), hence of order √T.

The bound shows the order. Its constant grows like e^{2 ξ_max n/R}: where sources change more than about once
between two visits of an even sweep it is no better than the trivial bound Σw·T. `best_exploration` finds a
good τ there, by computing the expected regret instead of bounding it.

What `MirrorSync` costs at most beyond the best schedule in hindsight: mirror descent with the log barrier
pays K·L/η for where it starts, η U² T/(εK) for the noise of its gradient estimates and 2εUT for the refreshes
used for them, L = ln(B/(K r_min)). The η and ε that balance the three make all of them proportional to U
T^{2/3} L^{1/3}.

`price_bracket`: bounds on the optimal shadow price. Some source is refreshed at the mean rate R/n or less and
some source at that or more. By complementary slackness the marginal value of a refresh of a source equals the
price unless its rate is 0. So the price is at least the smallest and at most the largest of the marginals at
the mean rate.

Cost: one pass over the sources.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.errors import ObjectiveError, SourceDataError, expect
from freshopt.estimators.estimator import check_bounds, check_confidence
from freshopt.modelling.fetches.conditional_fetches import require_fixed_costs
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST, as_number, total
from freshopt.online.rate_evaluation import is_bounded
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
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6067, Theorem 1.

    Examples
    --------
    The bound of an easy instance, as a share of everything; and a hopeless one, with 10 times the sources.

    >>> import freshopt as fo
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> few = fo.Problem(objective, fo.Sources([0.5] * 10), bandwidth=20.0)
    >>> round(etc_regret_bound(few, 1e6, (0.1, 1.0)) / (10 * 1e6), 3)
    0.079
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> many = fo.Problem(objective, fo.Sources([0.5] * 100), bandwidth=20.0)
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
    """Raise unless the problem is plain binary Poisson freshness under bandwidth."""
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    objective, sources = problem.objective, problem.sources
    if not isinstance(objective, BinaryFreshness) or objective.refresh is not Refresh.POISSON:
        raise ObjectiveError(
            f"the regret bound is for BinaryFreshness under Poisson refreshes, not {objective!r}. Declare "
            "the problem with it."
        )
    require_fixed_costs(sources, "the regret bound")
    unequal = bool(np.any(sources.refresh_cost != sources.refresh_cost[0]))
    if unequal or is_bounded(problem) or bool(np.any(sources.signalled)):
        raise ObjectiveError(
            "the regret bound is for sources that only the bandwidth bounds, all of one cost and without "
            "signals. Leave out the other constraints."
        )


def mirror_sync_regret_bound(problem: Problem, rounds: int, largest_cost: float) -> float:
    """Bound the expected regret of MirrorSync over some rounds.

    Parameters
    ----------
    problem : Problem
        Its K sources, importances w, bandwidth B and ``min_rate``, which must be positive.
    rounds : int
        T, the number of rounds of length 1/r_min.
    largest_cost : float
        U > 0, more than any copy ever costs per time unit (before importance).

    Returns
    -------
    float
        4·K·max(w)·U·T^{2/3}·L^{1/3}, L = ln(B/(K r_min)) and r_min the smallest min_rate: a bound on the sum
        over rounds of Σ w_k J_k(r_k) beyond that of the best fixed rates. With the w = 1/K of [1]_ the
        factor K·max(w) is 1.

    Raises
    ------
    SourceDataError
        If a source has no min_rate, the rates are not free to move (B ≤ K r_min), a number is out of range,
        or T ≤ 8L, where the bound does not hold.

    Notes
    -----
    It holds for the learning rate η = √(Lε/T)/(U·max(w)/Σw), which is (K/U)√(Lε/T) with equal importances,
    and the share ε = (L/T)^{1/3} of refreshes that explore, for cost functions that an adversary may change
    from round to round. [1]_ Corollary 1 prints 3 for the
    constant; its proof adds 2 of Theorem 5.1 and 2 of Lemma 3. The guarantee is informative where T is
    large: the regret of any rates at all is at most K·max(w)·U·T, which is smaller for T < 64 L.

    References
    ----------
    .. [1] Kolobov et al., "Online Learning for Active Cache Synchronization", ICML 2020, Corollary 1.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([1.0] * 100, importance=0.01, min_rate=0.025)
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(fo.Refresh.POISSON), sources, bandwidth=40.0)
    >>> round(mirror_sync_regret_bound(problem, rounds=240, largest_cost=1.0), 1)
    217.0
    """
    many = as_number(rounds, "rounds", "Pass a number of rounds.")
    spread, largest = _spread(problem, largest_cost)
    if not 8.0 * spread < many < math.inf:
        raise SourceDataError(
            f"rounds is {rounds}. The bound holds for more than {8.0 * spread:g} rounds. Pass more."
        )
    scale = len(problem.sources) * float(np.max(problem.sources.importance)) * largest
    return 4.0 * scale * math.cbrt(many) ** 2 * math.cbrt(spread)


def mirror_sync_in_policy_bound(
    problem: Problem, rounds: int, largest_cost: float, *, learning_rate: float, exploration: float
) -> float:
    """Bound the regret of MirrorSync against policies that explore alike.

    Parameters
    ----------
    problem : Problem
        As in `mirror_sync_regret_bound`.
    rounds : int
        T ≥ 1, the number of rounds of length 1/r_min.
    largest_cost : float
        U > 0, more than any copy ever costs per time unit (before importance).
    learning_rate : float
        η in 0..ε/(2U·max(w)/Σw), ends excluded: Kε/(2U) with equal importances.
    exploration : float
        ε in (0, 1], the share of refreshes that explore.

    Returns
    -------
    float
        Σw·(K·L/η + η·K·(U·max(w)/Σw)²·T/ε), L = ln(B/(K r_min)): a bound on the sum over rounds of
        Σ w_k J_k(r_k) beyond that of the best fixed rates under B/(1+ε) and max_rate/(1+ε). With the w = 1/K
        of [1]_ it is K·L/η + η·U²·T/(εK).

    Raises
    ------
    SourceDataError
        If a source has no min_rate, the rates are not free to move (B ≤ K r_min), or a number is out of
        range.

    Notes
    -----
    The best rates under the whole bandwidth cost up to 2εUT·Σw less ([1]_ Lemma 3). With equal importances
    the sum of both is `mirror_sync_regret_bound` at its η and ε.

    References
    ----------
    .. [1] Kolobov et al., "Online Learning for Active Cache Synchronization", ICML 2020, Theorem 5.1.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([1.0] * 100, importance=0.01, min_rate=0.025)
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(fo.Refresh.POISSON), sources, bandwidth=40.0)
    >>> round(mirror_sync_in_policy_bound(problem, 240, 1.0, learning_rate=2.4, exploration=0.05), 1)
    230.7
    """
    many = as_number(rounds, "rounds", "Pass a number of rounds.")
    rate = as_number(learning_rate, "learning_rate", "Pass a positive number.")
    share = as_number(exploration, "exploration", "Pass a share from 0 to 1.")
    spread, largest = _spread(problem, largest_cost)
    if not 1.0 <= many < math.inf:
        raise SourceDataError(f"rounds is {rounds}. Pass a number of rounds from 1.")
    if not 0.0 < share <= 1.0:
        raise SourceDataError(f"exploration is {exploration}. Pass a share > 0 and <= 1.")
    sources = problem.sources
    weight = total(sources.importance)
    if weight == 0.0:
        return 0.0
    heaviest = largest * float(np.max(sources.importance)) / weight
    largest_rate = share / (2.0 * heaviest)
    if not 0.0 < rate < largest_rate:
        raise SourceDataError(
            f"learning_rate is {learning_rate}. The bound holds above 0 and below {largest_rate:g} at this "
            "exploration. Pass one in between, or raise the exploration."
        )
    count = len(sources)
    return weight * (count * spread / rate + rate * count * heaviest**2 * many / share)


def _spread(problem: Problem, largest_cost: float) -> tuple[float, float]:
    """Return L and U of a checked problem."""
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    largest_cost = as_number(largest_cost, "largest_cost", "Pass a positive number.")
    sources = problem.sources
    require_fixed_costs(sources, "the regret bound")
    lowest = float(np.min(problem.lower))
    if lowest <= 0.0:
        k = int(np.argmin(problem.lower))
        raise SourceDataError(
            f"{sources.label(k)} has no min_rate. MirrorSync refreshes every source at a positive rate at "
            "least. Build the Sources with min_rate > 0."
        )
    if not SMALLEST <= largest_cost <= LARGEST:
        raise SourceDataError(
            f"largest_cost is {largest_cost}. Pass a number from {SMALLEST:g} to {LARGEST:g}."
        )
    mean = problem.bandwidth / total(sources.refresh_cost)
    if mean <= lowest:
        raise SourceDataError(
            f"min_rate {lowest:g} leaves no bandwidth to learn with (the mean rate is {mean:g}). Raise the "
            "bandwidth or lower min_rate."
        )
    return math.log(mean / lowest), largest_cost


def price_bracket(problem: Problem) -> tuple[float, float]:
    """Return bounds on the optimal price of the bandwidth.

    The price is the dual variable (shadow price) of the bandwidth constraint.

    Parameters
    ----------
    problem : Problem
        Without lower and upper bounds and host limits; costs of a refresh may differ. Signalled sources
        count as bounded above.

    Returns
    -------
    low, high : float
        low ≤ λ* ≤ high: the extremes over sources of −J'(R/Σcost)·w/cost.

    Raises
    ------
    SourceDataError
        If rates are bounded by anything but the bandwidth.
    ObjectiveError
        If the derivatives of the objective are unknown.

    Notes
    -----
    For harmonic staleness under Poisson refreshes the marginal at the mean rate is n²wΔ/(R² + nΔR). [1]_
    puts the extremes of w and Δ into it one by one (Algorithm 1, lines 1-2), which is the wider bracket.

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019, Algorithm 1 and Proposition 3.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 3.0]), bandwidth=2.0)
    >>> low, high = price_bracket(problem)
    >>> low, round(fo.solve(problem).price, 6), high
    (0.5, 0.631476, 0.75)
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    if problem.numerics is None:
        raise ObjectiveError(problem.unknown_atom)
    if is_bounded(problem):
        raise SourceDataError(
            "the bracket of the price needs rates that only the bandwidth bounds. Leave out min_rate, "
            "max_rate, host limits and signals, or solve the problem: its price is exact."
        )
    cost = problem.sources.refresh_cost
    mean = np.full(len(problem.sources), problem.bandwidth / total(cost))
    worth = problem.numerics.marginal(mean) / cost
    return float(np.min(worth)), float(np.max(worth))
