"""Auto: pick a solver, and say why."""

from __future__ import annotations

from dataclasses import dataclass, replace

from freshopt.kernel import Kernel, MixedNumerics, Numerics
from freshopt.model import Problem
from freshopt.result import Solution, Status
from freshopt.solvers.separable_newton import SeparableNewton
from freshopt.solvers.water_filling import WaterFilling
from freshopt.verdict import DEFAULT, Solver, Terms


@dataclass(frozen=True, slots=True)
class Auto:
    """Water-filling with hand-written kernels, Newton's method with derived ones; a conic solver otherwise.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem).note
    'Auto chose WaterFilling(): the marginals are known, so the one-price dual is exact.'
    """

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Every problem has a solver."""
        return None

    def solve(self, problem: Problem, terms: Terms = DEFAULT) -> Solution:
        """Hand the problem to the chosen solver."""
        solver, why = self.choice(problem)
        solution = solver.solve(problem, terms)
        if isinstance(solver, SeparableNewton) and solution.status is Status.INACCURATE:
            water = WaterFilling()
            second = water.solve(problem, terms)
            if second.status is Status.OPTIMAL:
                why = f"what {solver} found was not proved optimal"
                solver, solution = water, second
        note = f"Auto chose {solver}: {why}." + (f" {solution.note}" if solution.note else "")
        return replace(solution, note=note)

    def choice(self, problem: Problem) -> tuple[Solver, str]:
        """Return the solver and the reason."""
        newton = SeparableNewton()
        derived = problem.numerics is not None and not _kernels(problem.numerics)
        if derived and newton.supports(problem) is None:
            return newton, "the marginals are derived from the declaration"
        if problem.numerics is not None:
            return WaterFilling(), "the marginals are known, so the one-price dual is exact"
        from freshopt.solvers.conic import Conic  # noqa: PLC0415 - CVXPY loads only if needed

        return Conic(), "the objective has an atom without derivative rules"


def _kernels(numerics: Numerics) -> bool:
    """Tell whether numerics are hand-written throughout, so that their inverse marginals cost one look."""
    if isinstance(numerics, MixedNumerics):
        return _kernels(numerics.silent_sources) and _kernels(numerics.signalled_sources)
    return isinstance(numerics, Kernel)
