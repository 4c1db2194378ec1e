"""LambdaCrawlApprox: silent sources in proportion to importance, whatever their change rates.

Where importance is proportional to change rate, w = cΔ, the optimal rates of harmonic staleness solve
cΔ²/(ρ(ρ+Δ)) = λ, hence ρ ∝ Δ ∝ w: no change rate is needed to know them. Elsewhere this is an approximation,
worth having where change rates are unknown or still being learnt; the certificate tells what it loses. One
pass over the silent sources, and in a mixture about 70.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from freshopt.arrays import Array, total
from freshopt.model import Problem
from freshopt.result import Answer, Solution
from freshopt.solvers.lambda_crawl import (
    Share,
    refuse_constraints,
    refuse_other_than_harmonic,
    split_bandwidth,
)
from freshopt.verdict import DEFAULT, Terms, conclude

WIDTH = 1e-12  # relative accuracy of the split, as LambdaCrawl's


@dataclass(frozen=True, slots=True)
class LambdaCrawlApprox:
    """Harmonic staleness by shares of importance: a baseline, and optimal where w/Δ is constant.

    Notes
    -----
    [1]_ Proposition 9 gives ρ = w·R⁻/Σw for the silent sources; the proposition says nothing about a
    mixture. There the split is searched as in [1]_ Algorithm 3 with this rule in the place of Algorithm 1,
    so it is the best one *for these shares*; the cost that decides it does depend on the silent sources'
    change rates. Giving every source its share of importance, at most Δ on signal, needs none of them and
    costs 0.4 % more on the stand-in of the paper's data (the mean of ten instances of 2000 sources, 4 %
    signalled).

    As a baseline it never raises for its gap; its status is optimal where the certificate shows it to be.

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019, Proposition 9.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 2.0], importance=[3.0, 6.0])
    >>> problem = fo.Problem(fo.problems.HarmonicStaleness(), sources, bandwidth=1.5)
    >>> solution = fo.solve(problem, LambdaCrawlApprox())
    >>> solution.rates, solution.status.value
    (array([0.5, 1. ]), 'optimal')
    """

    baseline: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:
        """Return None for harmonic staleness under Poisson refreshes without bounds and limits."""
        return refuse_other_than_harmonic(problem) or refuse_constraints(problem)

    def solve(self, problem: Problem, terms: Terms = DEFAULT) -> Solution:
        """Share the bandwidth and certify what that is worth."""
        return conclude(self, problem, terms, _crawl)


def _crawl(problem: Problem, _: float | None) -> Answer:
    answer = split_bandwidth(problem, _share_by_importance, WIDTH)
    return replace(answer, price=None)  # these rates have no price; the certificate searches for one


def _share_by_importance(w: Array, _: Array, bandwidth: float) -> Share:
    return Share(w * (bandwidth / total(w)), 0.0, 1)
