"""Uniform baseline: every source at the same rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.modelling.problem import Problem
from freshopt.solvers.proportional import share


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform baseline: one rate for all, within the constraints.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem, Uniform()).rates.round(9)
    array([1.5, 1.5])
    """

    baseline: ClassVar[bool] = True
    conditional_fetches: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Return None: every problem has a uniform rate."""
        return None

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Share the bandwidth equally and certify the rates."""
        return certified_solution(
            self, problem, options, lambda problem, _: share(problem, np.ones(len(problem.sources)))
        )
