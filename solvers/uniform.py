"""Uniform: the baseline that refreshes every source at the same rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from freshopt.model import Problem
from freshopt.result import Solution
from freshopt.solvers.proportional import share
from freshopt.verdict import DEFAULT, Terms, conclude


@dataclass(frozen=True, slots=True)
class Uniform:
    """Baseline: one rate for all, within the constraints.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem, Uniform()).rates.round(9)
    array([1.5, 1.5])
    """

    baseline: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Every problem has a uniform rate."""
        return None

    def solve(self, problem: Problem, terms: Terms = DEFAULT) -> Solution:
        """Share the bandwidth equally and certify what that is worth."""
        return conclude(
            self, problem, terms, lambda problem, _: share(problem, np.ones(len(problem.sources)))
        )
