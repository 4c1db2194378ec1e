"""`solve_with_kinks`: a problem whose targets may make it a linear program."""

from __future__ import annotations

from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import Solver, options_from, raise_unless_good, run_solver
from freshopt.errors import CertificateError
from freshopt.modelling.problem import Problem
from freshopt.modelling.spend import Spend
from freshopt.solvers.auto import Auto


def solve_with_kinks(problem: Problem, tolerance: float = 1e-6, loosest: float = 1e-6) -> Solution:
    """Solve a problem, by HiGHS where linear programs need it.

    Under targets with kinks alone, such as the share of copies older than an age at equal intervals,
    bandwidth is a linear program, whose best responses jump: Newton's method may stall there.
    """
    try:
        return _solved(problem, Auto(), tolerance)
    except CertificateError:
        if not isinstance(problem.objective, Spend):
            raise
        from freshopt.solvers.conic import Conic  # noqa: PLC0415 - CVXPY loads only if needed

        highs = Conic("HIGHS")
        if highs.supports(problem) is not None:
            raise
    return _solved(problem, highs, loosest)


def _solved(problem: Problem, solver: Solver, tolerance: float) -> Solution:
    """Return a solution that is proved, as `freshopt.solve` does."""
    solution = run_solver(solver, problem, options_from(problem, None, tolerance, certify=True))
    raise_unless_good(solution)
    return solution
