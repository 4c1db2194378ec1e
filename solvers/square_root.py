"""Square-root baseline: rates ∝ √(importance × change rate / refresh cost).

The rule of economic order quantities. Where copies are refreshed often, ρ ≫ Δ, at equal intervals staleness,
delay and the stale share all cost about w·Δ/2ρ, and Σ w·Δ/ρ under a bandwidth has its optimum at these rates.
The age of a copy costs w·Δ/6ρ² there, and wants cube roots. `Proportional` tells how bounds, host limits and
the bandwidth are met.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.modelling.fetches.conditional_fetches import own_sources
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.solvers.proportional import share


@dataclass(frozen=True, slots=True)
class SquareRoot:
    """Square-root baseline: rates ∝ √(w·Δ/cost), within the constraints.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem, SquareRoot()).rates.round(9)
    array([1., 2.])
    """

    baseline: ClassVar[bool] = True
    conditional_fetches: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Return None: every problem has rates by the square-root rule."""
        return None

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Share the bandwidth and certify the rates."""
        return certified_solution(
            self, problem, options, lambda problem, _: share(problem, square_root_shape(own_sources(problem)))
        )


def square_root_shape(sources: Sources) -> Array:
    """Return √(w·Δ/cost) of each source, to which the rates are proportional.

    Where fetches cost what they bring, the cost is that of asking.
    """
    # Two roots, because a product of extreme columns may overflow.
    shape: Array = np.sqrt(sources.importance / sources.refresh_cost) * np.sqrt(sources.change_rate)
    return shape
