"""`RowStructure`: rows of one shape, with its exact dual solve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from freshopt.certificates.solution import Answer
from freshopt.modelling.constraints.usages import rates_of
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.separable.program import Program

Shape = TypeVar("Shape")


@dataclass(frozen=True, slots=True)
class RowStructure(Generic[Shape]):
    """A shape of rows, with its exact dual solve.

    - `find`: The shape of a program's rows, or None.
    - `fill`: Optimal rates, multipliers of the rows, and evaluations.
    - `otherwise`: Why a program without the shape is refused.
    """

    find: Callable[[Program], Shape | None]
    fill: Callable[[Program, Shape], tuple[Array, Array, int]]
    otherwise: str
    _found: WeakKeyDictionary[Program, Shape | None] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def of(self, program: Program) -> Shape | None:
        """Return the shape of a program's rows, found once."""
        if program not in self._found:
            self._found[program] = self.find(program)
        return self._found[program]

    def refusal(self, problem: Problem) -> str | None:
        """Return why a problem has no such rows, or None."""
        if problem.program is None:
            return "there are no constraints besides bandwidth, bounds and host limits; use WaterFilling"
        if problem.couplings:
            return problem.couplings[0].rstrip(".")
        if problem.program.level is not None:
            return "the objective is the worst of groups; use Leximin or InteriorPoint"
        if problem.unknown_atom:
            return problem.unknown_atom.rstrip(".")
        return None if self.of(problem.program) is not None else self.otherwise

    def answer(self, problem: Problem, start: float | None = None) -> Answer:  # noqa: ARG002 - as methods are
        """Return the answer to a problem that is not refused."""
        program = problem.program
        shape = None if program is None else self.of(program)
        if program is None or shape is None:
            raise ValueError("supports() refuses such a problem")
        rates, multipliers, evaluations = self.fill(program, shape)
        return Answer(rates_of(problem, rates), iterations=evaluations, multipliers=multipliers)
