"""BinaryLambdaCrawl: exact optimum of binary freshness under Poisson refreshes.

The marginal value of a silent source at rate ρ is wΔ/(Δ+ρ)². At the dual variable (price) λ = σ² of the
bandwidth its best response is therefore ρ = Δ(s/σ − 1) where s = √(w/Δ) exceeds σ, and 0 otherwise. In order
of falling s, the bandwidth used at σ = s_m is G_m/s_m with G_m = Σ_{j≤m} Δ_j(s_j − s_m), a sum of terms ≥ 0:
the last m with G_m < R·s_m tells who is refreshed, and σ = (Σ_{j≤m} s_jΔ_j)/(R + Σ_{j≤m} Δ_j). Cost: a sort
and a few passes.

A lower bound lo only shifts the picture: with ρ = lo + x the same formulas hold for x, with Δ+lo in the
place of Δ, s = √(wΔ)/(Δ+lo), and the bandwidth that the bounds leave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.certificates.solution import Answer, Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.errors import SolverRefusedError, expect_settings
from freshopt.modelling.cost_curve import NOT_POISSON
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import Array, total
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.solvers.lambda_crawl import unsupported_constraint


@dataclass(frozen=True, slots=True)
class BinaryLambdaCrawl:
    """Exact O(n log n) solver of binary freshness under Poisson refreshes.

    Optionally every source gets at least a floor.

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
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0, 50.0]), bandwidth=4.0)
    >>> fo.solve(problem, BinaryLambdaCrawl()).rates
    array([2., 2., 0.])
    >>> fo.solve(problem, BinaryLambdaCrawl(floor=0.75)).rates.round(6)
    array([1.666667, 1.333333, 1.      ])
    """

    floor: float = 0.0

    def __post_init__(self) -> None:
        expect_settings(self)
        if not 0.0 <= self.floor <= 1.0:
            raise SolverRefusedError(f"floor is {self.floor!r}. Pass a share of the mean rate in 0..1.")

    @property
    def baseline(self) -> bool:
        """Whether a floor makes it a baseline, not an optimum."""
        return self.floor > 0.0

    def supports(self, problem: Problem) -> str | None:
        """Return why the problem is unsupported, or None.

        Supported are binary freshness, Poisson refreshes, silent sources, and bounds from below only.
        """
        objective = problem.objective
        if not isinstance(objective, BinaryFreshness):
            return f"it maximises BinaryFreshness, not {type(objective).__name__}"
        if objective.changes is not None:
            return NOT_POISSON
        if objective.refresh is not Refresh.POISSON:
            return f"its rates are of {Refresh.POISSON!r}, not {objective.refresh!r}"
        if problem.sources.failing is not None:
            return "its formula is for fetches that succeed"
        if bool(np.any(problem.sources.signalled)):
            return "it makes no use of signals; pass signalled=False to have them ignored"
        constraint = unsupported_constraint(problem, lower_bounds=True)
        if constraint is None and self.floor > 0.0:
            bandwidth = problem.bandwidth / float(problem.sources.refresh_cost[0])
            needed = total(self._lower(problem, bandwidth))
            if needed > bandwidth * (1.0 + FEW_ULP):
                return f"min_rate and the floor together need {needed:g} of {bandwidth:g} refreshes"
        return constraint

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Solve by one sort and certify."""
        return certified_solution(self, problem, options, lambda problem, _: self._crawl(problem))

    def _crawl(self, problem: Problem) -> Answer:
        sources = problem.sources
        unit = float(sources.refresh_cost[0])
        bandwidth = problem.bandwidth / unit  # in refreshes
        lower = self._lower(problem, bandwidth)
        rates, price = share_above(sources.importance, sources.change_rate, lower, bandwidth)
        own = np.array_equal(lower, problem.lower)
        return Answer(rates, price / unit if own else None, iterations=1)

    def _lower(self, problem: Problem, bandwidth: float) -> Array:
        return np.maximum(problem.lower, self.floor * (bandwidth / len(problem.sources)))


def share_above(importance: Array, change_rate: Array, lower: Array, bandwidth: float) -> tuple[Array, float]:
    """Return the optimal rates >= lower and their dual variable.

    - `importance`, `change_rate`, `lower` (n,)
    - `bandwidth`: Bandwidth to use up, in refreshes; at least Σ lower but for rounding.

    Notes
    -----
    With t = s_m − σ ≥ 0 the rates are lo + (Δ+lo)·((s − s_m) + t)/σ: neither t nor σ nor a rate is a
    difference of large sums, so tiny bandwidths keep their digits. Rates above `lower` are scaled to use
    up the bandwidth to rounding.
    """
    width = change_rate + lower  # the paper's Δ, moved by the bound
    s = np.sqrt(importance) * (np.sqrt(change_rate) / width)
    spare = bandwidth - total(lower)
    rates = np.array(lower)
    if spare <= FEW_ULP * bandwidth:
        return rates, float(np.max(s) ** 2)
    order = np.argsort(-s, kind="stable")
    sorted_s = s[order]
    scaled_demand = np.zeros(len(s))  # G, the demand at s_m times s_m
    np.cumsum(np.cumsum(width[order])[:-1] * -np.diff(sorted_s), out=scaled_demand[1:])
    # The difference rises with m: G does, and s falls.
    active = order[: int(np.searchsorted(scaled_demand - spare * sorted_s, 0.0))]
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
