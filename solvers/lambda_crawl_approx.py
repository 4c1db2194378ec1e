"""LambdaCrawlApprox: harmonic staleness by shares of importance.

Where importance is proportional to change rate, w = cΔ, the optimal rates of harmonic staleness solve
cΔ²/(ρ(ρ+Δ)) = λ, with λ the dual variable (price) of the bandwidth, hence ρ ∝ Δ ∝ w: no change rate is needed
to know them. Elsewhere this is an approximation, useful where change rates are unknown or still being learnt;
the certificate tells what it loses. One pass over the silent sources, and in a mixture about 70.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from freshopt.certificates.solution import Answer, Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, total
from freshopt.solvers.lambda_crawl import (
    Share,
    split_bandwidth,
    unsupported_constraint,
    unsupported_objective,
)

# Relative accuracy of the split, as LambdaCrawl's.
WIDTH = 1e-12


@dataclass(frozen=True, slots=True)
class LambdaCrawlApprox:
    """Harmonic staleness by shares of importance, a baseline.

    It is optimal where w/Δ is constant.

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
    >>> problem = fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), sources, bandwidth=1.5)
    >>> solution = fo.solve(problem, LambdaCrawlApprox())
    >>> solution.rates, solution.status.value
    (array([0.5, 1. ]), 'optimal')
    """

    baseline: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:
        """Return why the problem is unsupported, or None.

        Supported is harmonic staleness under Poisson refreshes without bounds and limits.
        """
        return unsupported_objective(problem) or unsupported_constraint(problem)

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Share the bandwidth and certify the rates."""
        return certified_solution(self, problem, options, _crawl)


def _crawl(problem: Problem, _: float | None) -> Answer:
    answer = split_bandwidth(problem, _share_by_importance, WIDTH)
    return replace(answer, price=None)  # these rates have no price; the certificate searches for one


def _share_by_importance(w: Array, _: Array, bandwidth: float) -> Share:
    return Share(w * (bandwidth / total(w)), 0.0, 1)
