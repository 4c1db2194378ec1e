"""`price_bracket`: bounds on the optimal shadow price.

They are found without solving the problem.

Some source is refreshed at the mean rate R/n or less and some source at that or more. By complementary
slackness the marginal value of a refresh of a source equals the price unless its rate is 0. So the price is
at least the smallest and at most the largest of the marginals at the mean rate.

Cost: one pass over the sources.
"""

from __future__ import annotations

import numpy as np

from freshopt.errors import ObjectiveError, SourceDataError, expect
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import total


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
    >>> problem = fo.Problem(fo.problems.HarmonicStaleness(), fo.Sources([1.0, 3.0]), bandwidth=2.0)
    >>> low, high = price_bracket(problem)
    >>> low, round(fo.solve(problem).price, 6), high
    (0.5, 0.631476, 0.75)
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    if problem.numerics is None:
        raise ObjectiveError(problem.unknown_atom)
    bounded = bool(np.any(problem.lower > 0.0) | np.any(np.isfinite(problem.upper)))
    if bounded or len(problem.hosts):
        raise SourceDataError(
            "the bracket of the price needs rates that only the bandwidth bounds. Leave out min_rate, "
            "max_rate, host limits and signals, or solve the problem: its price is exact."
        )
    cost = problem.sources.refresh_cost
    mean = np.full(len(problem.sources), problem.bandwidth / total(cost))
    worth = problem.numerics.marginal(mean) / cost
    return float(np.min(worth)), float(np.max(worth))
