"""Automatic choice of a solver, with its reason."""

from __future__ import annotations

from dataclasses import dataclass, replace

from freshopt.certificates.solution import Solution, Status
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, Solver
from freshopt.modelling.kernel import Kernel, MixedNumerics, Numerics
from freshopt.modelling.problem import Problem
from freshopt.solvers.separable_newton import SeparableNewton
from freshopt.solvers.water_filling import WaterFilling


@dataclass(frozen=True, slots=True)
class Auto:
    """Automatic choice between water-filling, Newton and a cone solver.

    Water-filling with hand-written kernels, Newton's method with derived ones; a cone solver otherwise.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem).note
    'Auto chose WaterFilling(): the marginals are known, so the one-price dual is exact.'
    """

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Return None: every problem has a solver."""
        return None

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Solve the problem with the chosen solver."""
        solver, why = self.choice(problem)
        solution = solver.solve(problem, options)
        if isinstance(solver, SeparableNewton) and solution.status is Status.INACCURATE:
            water = WaterFilling()
            second = water.solve(problem, options)
            if second.status is Status.OPTIMAL:
                why = f"what {solver} found was not proved optimal"
                solver, solution = water, second
        note = f"Auto chose {solver}: {why}." + (f" {solution.note}" if solution.note else "")
        return replace(solution, note=note)

    def choice(self, problem: Problem) -> tuple[Solver, str]:
        """Return the chosen solver and the reason."""
        newton = SeparableNewton()
        derived = problem.numerics is not None and not _kernels(problem.numerics)
        if derived and newton.supports(problem) is None:
            return newton, "the marginals are derived from the declaration"
        if problem.numerics is not None:
            return WaterFilling(), "the marginals are known, so the one-price dual is exact"
        from freshopt.solvers.conic import Conic  # noqa: PLC0415 - CVXPY loads only if needed

        return Conic(), "the objective has an atom without derivative rules"


def _kernels(numerics: Numerics) -> bool:
    """Return whether numerics are hand-written kernels throughout.

    Their inverse marginals then cost one evaluation.
    """
    if isinstance(numerics, MixedNumerics):
        return _kernels(numerics.silent_sources) and _kernels(numerics.signalled_sources)
    return isinstance(numerics, Kernel)
