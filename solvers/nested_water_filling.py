"""Water-filling on a tree of nested limits and reserves, or targets.

A group's own price is where its demand meets its limit; it depends on the group alone. What a source pays is
the price outside, clipped at each of its groups in turn to what that group's limit and reserve ask for, so
that one pass up the tree and one down find every price exactly. Nested targets are the mirror image: what a
source pays is given, and the weight of its cost is the largest that one of its groups' targets asks for.

References
----------
D. S. Hochbaum, "Lower and upper bounds for the allocation problem and other nonlinear optimization problems",
Math. Oper. Res. 19(2), 1994, doi:10.1287/moor.19.2.390, has the greedy counterpart in integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.dual_search.nested_prices import fill_nested
from freshopt.dual_search.nested_targets import fill_nested_targets
from freshopt.dual_search.row_structure import RowStructure
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE


@dataclass(frozen=True, slots=True)
class NestedWaterFilling:
    """Exact dual solver for nested limits and reserves, or nested targets.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 1.0, 1.0, 1.0])
    >>> tree = fo.Nested([["a", "b", "c", "c"], ["x", "x", "y", "y"]], at_most={"x": 1.0, "b": 0.25})
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, sources, 4.0, constraints=[tree])
    >>> fo.solve(problem, NestedWaterFilling()).rates.round(9)
    array([0.75, 0.25, 1.5 , 1.5 ])
    """

    declared_constraints: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:
        """Return why the constraints are no such tree, or None."""
        return TREE.refusal(problem)

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Solve the dual on the tree and certify the rates."""
        return certified_solution(self, problem, options, TREE.answer)


def tree_of(program: Program) -> LaminarTree | None:
    """Return the tree that a program's rows are, or None."""
    tree = LaminarTree.from_rows(program.rows)
    if tree is None or program.level is not None:
        return None
    linear = isinstance(program.numerics, LinearCost)
    return tree if linear == (tree.kind != RATE) else None


def _fill(program: Program, tree: LaminarTree) -> tuple[Array, Array, int]:
    return (fill_nested if tree.kind == RATE else fill_nested_targets)(program, tree)


TREE = RowStructure(tree_of, _fill, "its rows are no tree in one unit")
