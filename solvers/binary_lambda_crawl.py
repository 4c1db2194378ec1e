"""BinaryLambdaCrawl: binary freshness under Poisson refreshes, exactly, by one sort.

The marginal of a silent source at rate ρ is wΔ/(Δ+ρ)². At price λ = σ² it therefore buys ρ = Δ(s/σ − 1)
where s = √(w/Δ) exceeds σ, and nothing otherwise. In order of falling s, the bandwidth bought at σ = s_m is
G_m/s_m with G_m = Σ_{j≤m} Δ_j(s_j − s_m), a sum of terms ≥ 0: the last m with G_m < R·s_m tells who is
refreshed, and σ = (Σ_{j≤m} s_jΔ_j)/(R + Σ_{j≤m} Δ_j). Cost: a sort and a few passes.

A lower bound lo only shifts the picture: with ρ = lo + x the same formulas hold for x, with Δ+lo in the
place of Δ, s = √(wΔ)/(Δ+lo), and the bandwidth that the bounds leave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.arrays import Array, total
from freshopt.errors import SolverRefusedError, expect_settings
from freshopt.model import FEW_ULP, Problem
from freshopt.objective import Refresh
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.result import Answer, Solution
from freshopt.solvers.lambda_crawl import refuse_constraints
from freshopt.verdict import DEFAULT, Terms, conclude


@dataclass(frozen=True, slots=True)
class BinaryLambdaCrawl:
    """The exact O(n log n) optimum of binary freshness under Poisson refreshes, optionally with a floor.

    Parameters
    ----------
    floor : float
        Share of the mean rate R/n that every source gets at least, 0..1.

    Attributes
    ----------
    baseline : bool
        Whether it does not aim at the problem's optimum: a floor is a constraint of its own.

    Notes
    -----
    The algorithm of [2]_, which [1]_ section 7 calls BLC; with a floor, which [1]_ adds because the optimum
    leaves fast sources stale for ever, it is the optimum under min_rate = floor·R/n. The certificate is of
    the problem as given: beside min_rate in the problem a floor at or below it loses nothing. Signals are
    not used, and refused rather than ignored.

    Instead of removing sources from running sums, which lose digits when the removed part is large, the sums
    here add terms of one sign.

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019.
    .. [2] Azar et al., "Tractable near-optimal policies for crawling", PNAS 115(32), 2018,
       doi:10.1073/pnas.1801519115.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(), fo.Sources([1.0, 4.0, 50.0]), bandwidth=4.0)
    >>> fo.solve(problem, BinaryLambdaCrawl()).rates
    array([2., 2., 0.])
    >>> fo.solve(problem, BinaryLambdaCrawl(floor=0.75)).rates.round(6)
    array([1.666667, 1.333333, 1.      ])
    """

    floor: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a floor beyond the mean rate."""
        expect_settings(self)
        if not 0.0 <= self.floor <= 1.0:
            raise SolverRefusedError(f"floor is {self.floor!r}. Pass a share of the mean rate in 0..1.")

    @property
    def baseline(self) -> bool:
        """Whether a floor keeps it from aiming at the problem's optimum."""
        return self.floor > 0.0

    def supports(self, problem: Problem) -> str | None:
        """Return None for binary freshness, Poisson refreshes, silent sources, and bounds from below only."""
        objective = problem.objective
        if not isinstance(objective, BinaryFreshness):
            return f"it maximises BinaryFreshness, not {type(objective).__name__}"
        if objective.refresh is not Refresh.POISSON:
            return f"its rates are of {Refresh.POISSON!r}, not {objective.refresh!r}"
        if bool(np.any(problem.sources.signalled)):
            return "it makes no use of signals; pass signalled=False to have them ignored"
        constraint = refuse_constraints(problem, lower_bounds=True)
        if constraint is None and self.floor > 0.0:
            bandwidth = problem.bandwidth / float(problem.sources.cost[0])
            needed = total(self._lower(problem, bandwidth))
            if needed > bandwidth * (1.0 + FEW_ULP):
                return f"min_rate and the floor together need {needed:g} of {bandwidth:g} refreshes"
        return constraint

    def solve(self, problem: Problem, terms: Terms = DEFAULT) -> Solution:
        """Sort, share and certify."""
        return conclude(self, problem, terms, lambda problem, _: self._crawl(problem))

    def _crawl(self, problem: Problem) -> Answer:
        sources = problem.sources
        unit = float(sources.cost[0])
        bandwidth = problem.bandwidth / unit  # in refreshes
        lower = self._lower(problem, bandwidth)
        rates, price = share_above(sources.importance, sources.change_rate, lower, bandwidth)
        own = np.array_equal(lower, problem.lower)
        return Answer(rates, price / unit if own else None, iterations=1)

    def _lower(self, problem: Problem, bandwidth: float) -> Array:
        return np.maximum(problem.lower, self.floor * (bandwidth / len(problem.sources)))


def share_above(importance: Array, change_rate: Array, lower: Array, bandwidth: float) -> tuple[Array, float]:
    """Return the rates ≥ lower of greatest freshness that spend a bandwidth, and their price.

    Parameters
    ----------
    importance, change_rate, lower : ndarray, shape (n,)
    bandwidth : float
        In refreshes, at least Σ lower but for rounding.

    Notes
    -----
    With t = s_m − σ ≥ 0 the rates are lo + (Δ+lo)·((s − s_m) + t)/σ: neither t nor σ nor a rate is a
    difference of large sums, so tiny bandwidths keep their digits. Rates above `lower` are scaled to spend
    the bandwidth to rounding.
    """
    width = change_rate + lower  # the paper's Δ, moved by the bound
    s = np.sqrt(importance) * (np.sqrt(change_rate) / width)
    spare = bandwidth - total(lower)
    rates = np.array(lower)
    if spare <= FEW_ULP * bandwidth:
        return rates, float(np.max(s) ** 2)
    order = np.argsort(-s, kind="stable")
    sorted_s = s[order]
    bought = np.zeros(len(s))  # G
    np.cumsum(np.cumsum(width[order])[:-1] * -np.diff(sorted_s), out=bought[1:])
    active = order[: int(np.searchsorted(bought - spare * sorted_s, 0.0))]  # rises with m: G does, s falls
    if not len(active):  # no source is of any importance
        return rates, 0.0
    least = float(s[active[-1]])
    above, breadth = s[active] - least, width[active]
    base, weight = total(breadth * above), total(breadth)
    t = max(0.0, (spare * least - base) / (weight + spare))
    sigma = least * (weight / (weight + spare)) + base / (weight + spare)
    extra = breadth * ((above + t) / sigma)
    rates[active] += extra * (spare / total(extra))
    return rates, sigma * sigma
