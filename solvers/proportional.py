"""Proportional baseline: rates in proportion to change rates.

What crawlers do without a model; `Uniform` shares the method. The rates are the optimum of a problem of their
own, which maximises Σ shape·log ρ: its best response at the dual variable (price) λ is shape/λ, and bounds,
host limits and the bandwidth are met exactly as by water-filling. The duality gap tells what they lose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from freshopt.certificates.solution import Answer, Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.separable.kernel import Kernel
from freshopt.solvers.water_filling import fill


@dataclass(frozen=True, slots=True)
class Proportional:
    """Proportional baseline: rates proportional to change rates, within the constraints.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem, Proportional()).rates.round(9)
    array([0.6, 2.4])
    """

    baseline: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Return None: every problem has proportional rates."""
        return None

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Share the bandwidth and certify the rates."""
        return certified_solution(
            self, problem, options, lambda problem, _: share(problem, problem.sources.change_rate)
        )


def share(problem: Problem, shape: Array) -> Answer:
    """Return feasible rates proportional to `shape` that use the bandwidth.

    They are clipped to the bounds and limits.
    """
    logarithmic = Kernel(problem.sources.refresh_cost * shape, (), _cost, _marginal, _inverse)
    answer = fill(problem, logarithmic)
    return replace(answer, price=None, host_prices=None)


def _cost(rate: Array) -> Array:
    return -np.log(rate)


def _marginal(rate: Array) -> Array:
    return 1.0 / rate


def _inverse(price: Array) -> Array:
    return 1.0 / price
