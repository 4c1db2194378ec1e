"""`solve`: solve a problem and certify it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import numpy as np

from freshopt.certificates.solution import Solution, Status
from freshopt.certificates.solver_protocol import SolveOptions, Solver, gap_is_expected
from freshopt.errors import (
    CertificateError,
    InfeasibleProblemError,
    SolverRefusedError,
    expect,
)
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, as_number

if TYPE_CHECKING:
    pass


def solve(
    problem: Problem,
    solver: Solver | None = None,
    *,
    tolerance: float = 1e-6,
    throw: bool = True,
    certify: bool = True,
    warm_start: float | Solution | None = None,
) -> Solution:
    """Solve a problem and certify the result.

    Parameters
    ----------
    problem : Problem
    solver : Solver, optional
        An instance such as ``solvers.WaterFilling()``; None means ``solvers.Auto()``.
    tolerance : float
        Relative duality gap above which the status is inaccurate.
    throw : bool
        Raise on refusal, failure or inaccuracy; False returns them as a status. Baselines never raise for a
        duality gap.
    certify : bool
        False skips the certificate, which costs a few passes over the sources.
    warm_start : float or Solution, optional
        A price (dual variable of the bandwidth), or an earlier solution, to start from: after a change of the
        bandwidth (`Problem.with_bandwidth`) or of a few sources, two or three passes over the sources
        suffice.

    Returns
    -------
    Solution

    Raises
    ------
    SolverRefusedError
        If the solver does not apply to the problem.
    InfeasibleProblemError
        If no rates have a finite cost.
    CertificateError
        If the answer is not proved optimal to the tolerance; carries ``.solution``.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 100.0])
    >>> solution = fo.solve(fo.Problem(fo.problems.HarmonicStaleness(), sources, bandwidth=2.0))
    >>> solution.status.value, solution.certificate.relative_gap < 1e-12
    ('optimal', True)
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    for what, flag in (("throw", throw), ("certify", certify)):
        expect(flag, (int, np.bool_), what, "Pass True or False")
    chosen = solver if solver is not None else importlib.import_module("freshopt.solvers.auto").Auto()
    if isinstance(chosen, type) or not isinstance(chosen, Solver):
        raise SolverRefusedError(
            f"{solver!r} is not a solver instance. Pass one, such as freshopt.solvers.WaterFilling()."
        )
    price: float | None
    used: float | None
    if isinstance(warm_start, Solution):
        price, used = warm_start.price, _bandwidth_used(warm_start, problem)
    else:
        remedy = "Pass a price, an earlier solution, or None."
        price, used = None if warm_start is None else as_number(warm_start, "warm_start", remedy), None
    if price is not None and not SMALLEST <= price <= LARGEST:
        # A price of 0, say, of a bandwidth that did not bind (complementary slackness), is no start.
        price, used = None, None
    multipliers = _multipliers(warm_start, problem) if isinstance(warm_start, Solution) else None
    solution = chosen.solve(problem, SolveOptions(tolerance, certify, price, used, multipliers))
    if throw:
        _raise_unless_good(solution)
    return solution


def _bandwidth_used(earlier: Solution, problem: Problem) -> float | None:
    """Return the bandwidth used at an earlier solution's price.

    None unless the sources, their numerics and their bounds are the same.
    """
    before = earlier.problem
    same = before.numerics is problem.numerics and before.lower is problem.lower and not len(problem.hosts)
    return before.bandwidth if same and earlier.price > 0.0 and before.upper is problem.upper else None


def _multipliers(earlier: Solution, problem: Problem) -> Array | None:
    """Return an earlier solution's multipliers, if its rows have the same labels."""
    before, now = earlier.problem.program, problem.program
    same = before is not None and now is not None and before.rows.labels == now.rows.labels
    return earlier.multipliers if same else None


def _raise_unless_good(solution: Solution) -> None:
    if solution.status is Status.OPTIMAL:
        return
    if solution.status is Status.REFUSED:
        raise SolverRefusedError(solution.note)
    if solution.status is Status.INFEASIBLE:
        reason = solution.note if solution.conflict is None else str(solution.conflict)
        raise InfeasibleProblemError(reason, solution.conflict)
    if solution.status is Status.INACCURATE and gap_is_expected(solution.solver):
        return
    raise CertificateError(
        f"{solution.solver} ended {solution.status.value}. {solution.note} Solve with another solver, or "
        f"pass throw=False to have the solution as it is.",
        solution,
    )
