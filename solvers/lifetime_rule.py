"""Lifetime baseline: one for all, or proportional to a power of 1/Δ.

What caches are given by hand: one TTL for everything, or a TTL in proportion to the time between changes. The
rates are the optimum of a problem of their own: its best response at the dual variable (price) λ is the
lifetime T = λ·s, that is ρ = 1/(λs + 1/ζ), with the marginal value (1/ρ − 1/ζ)/s. So bounds, host limits and
the bandwidth are met exactly as by water-filling, and the duality gap tells what the rule loses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from freshopt.certificates.solution import Answer, Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.errors import SourceDataError, expect_settings
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.request_cell import lifetimes
from freshopt.numerics.arrays import Array
from freshopt.separable.kernel import Kernel
from freshopt.solvers.water_filling import fill


@dataclass(frozen=True, slots=True)
class LifetimeRule:
    """Lifetime baseline: T in proportion to Δ^−power, within the constraints.

    Parameters
    ----------
    power : float
        0 for one lifetime for all, 1 for lifetimes in proportion to the time between changes.

    Examples
    --------
    >>> import freshopt as fo
    >>> fresh = fo.problems.BinaryFreshness(fo.Refresh.ON_REQUEST)
    >>> problem = fo.Problem(fresh, fo.Sources([1.0, 4.0], request_rate=[2.0, 6.0]), bandwidth=3.0)
    >>> fo.solve(problem, LifetimeRule()).lifetimes.round(6)
    array([0.372678, 0.372678])
    """

    power: float = 0.0
    baseline: ClassVar[bool] = True

    def __post_init__(self) -> None:
        expect_settings(self)
        if not np.isfinite(self.power):
            raise SourceDataError(f"power is {self.power!r}, not a finite number. Pass 0 or 1.")

    def supports(self, problem: Problem) -> str | None:
        """Return why a problem has no lifetimes, or None."""
        if problem.objective.refresh is not Refresh.ON_REQUEST:
            return "lifetimes are of copies that are refreshed on request (Refresh.ON_REQUEST)"
        return None

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Choose the lifetimes that use the bandwidth and certify the rates."""
        return certified_solution(self, problem, options, lambda problem, _: self._rates(problem))

    def _rates(self, problem: Problem) -> Answer:
        sources = problem.sources
        # In units of the slowest of them, so that its powers stay within floating point.
        shape = (np.min(sources.change_rate) / sources.change_rate) ** self.power
        per_bandwidth = sources.refresh_cost / shape
        rule = Kernel(per_bandwidth, (np.array(sources.asked),), _cost, _marginal, _inverse)
        return replace(fill(problem, rule), price=None, host_prices=None)


def _cost(rate: Array, asked: Array) -> Array:
    return rate / asked - np.log(rate)


def _marginal(rate: Array, asked: Array) -> Array:
    return lifetimes(rate, asked)


def _inverse(price: Array, asked: Array) -> Array:
    return asked / (1.0 + asked * price)
