"""Water-filling on a forest of ratios under one budget.

A source's rate is at most a multiple of its parent's. At a price of the budget a source that would have more
than its parent allows is pooled with it: the two are as one source whose rate is the parent's. From the
leaves upwards every source finds the rate that it would have as a root, with whoever is pooled with it; the
price is found by a search in one dimension.

References
----------
R. E. Barlow, D. J. Bartholomew, J. M. Bremner, H. D. Brunk, "Statistical Inference under Order Restrictions",
Wiley, 1972, chapter 2, has the pooling on trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.dual_search.ratio_forest import fill_forest, forest_of
from freshopt.dual_search.row_structure import RowStructure
from freshopt.modelling.problem import Problem


@dataclass(frozen=True, slots=True)
class RatioWaterFilling:
    """Exact dual solver for ratios of rates on a forest.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0, 9.0])
    >>> calm = fo.Ratio(of=[-1, 0, 1], at_most=[1.0, 1.0, 2.0])
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, sources, bandwidth=6.0, constraints=[calm])
    >>> fo.solve(problem, RatioWaterFilling()).rates.round(6)
    array([1.539501, 1.539501, 2.920998])
    """

    declared_constraints: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:
        """Return why the constraints are no such forest, or None."""
        return FOREST.refusal(problem)

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Solve the dual on the forest and certify the rates."""
        return certified_solution(self, problem, options, FOREST.answer)


FOREST = RowStructure(forest_of, fill_forest, "its rows are no forest of ratios under one budget")
