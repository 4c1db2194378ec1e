"""`solve`: solve a problem and certify it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, overload

import numpy as np

from freshopt import solvers
from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import (
    SolveOptions,
    Solver,
    check_solver,
    options_from,
    raise_unless_good,
    run_solver,
)
from freshopt.errors import SolverRefusedError, expect, shortened
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST, as_number
from freshopt.renamed import keywords
from freshopt.solvers.auto import Auto

if TYPE_CHECKING:
    from freshopt.cuda import DeviceProblem, DeviceSolution

_LOGGER = logging.getLogger(__name__)


@overload
def solve(
    problem: Problem,
    solver: Solver | None = None,
    *,
    tolerance: float = 1e-6,
    absolute_tolerance: float = 0.0,
    throw: bool = True,
    certify: bool = True,
    warm_start: float | Solution | None = None,
) -> Solution: ...


@overload
def solve(
    problem: DeviceProblem,
    solver: Solver | None = None,
    *,
    tolerance: float = 1e-6,
    absolute_tolerance: float = 0.0,
    throw: bool = True,
    certify: bool = True,
    warm_start: float | None = None,
) -> DeviceSolution: ...


@keywords()
def solve(
    problem: Problem | DeviceProblem,
    solver: Solver | None = None,
    *,
    tolerance: float = 1e-6,
    absolute_tolerance: float = 0.0,
    throw: bool = True,
    certify: bool = True,
    warm_start: float | Solution | None = None,
) -> Solution | DeviceSolution:
    """Solve a problem and certify the result.

    Parameters
    ----------
    problem : Problem or DeviceProblem
        Columns on the host, or on a CUDA device (``freshopt[cuda]``).
    solver : Solver, optional
        An instance such as ``solvers.WaterFilling()``; None means ``solvers.Auto()``, and
        ``solvers.WaterFillingCuda()`` for columns on a device.
    tolerance : float
        Relative duality gap above which the status is inaccurate.
    absolute_tolerance : float
        A duality gap, in the objective's units, that is good enough whatever the relative one: for costs
        whose optimum is 0 or tiny. 0 for none.
    throw : bool
        Raise on refusal, failure or inaccuracy; False returns them as a status. Baselines never raise for a
        duality gap.
    certify : bool
        False skips the certificate, which costs a few passes over the sources.
    warm_start : float or Solution, optional
        A price (dual variable of the bandwidth), or an earlier solution, to start from: after a change of the
        bandwidth (`Problem.with_bandwidth`) or of a few sources, two or three passes over the sources
        suffice. What is no price > 0 is no start, and is left aside.

    Returns
    -------
    Solution or DeviceSolution
        The latter for columns on a device, where its rates stay.

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
    >>> objective = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
    >>> solution = fo.solve(fo.Problem(objective, sources, bandwidth=2.0))
    >>> solution.status.value, solution.certificate.relative_gap < 1e-12
    ('optimal', True)

    Equal rates cost 0.29 more than the best, which may be good enough:

    >>> from freshopt.solvers import Uniform
    >>> fo.solve(solution.problem, Uniform(), absolute_tolerance=0.3).status.value
    'optimal'
    """
    for what, flag in (("throw", throw), ("certify", certify)):
        expect(flag, (int, np.bool_), what, "Pass True or False")
    if not isinstance(problem, Problem):
        options = SolveOptions(tolerance, certify, absolute_tolerance=absolute_tolerance)
        return _solve_on_device(problem, solver, warm_start, options, throw=throw)
    check_solver(solver)
    chosen: Solver = solver if solver is not None else Auto()
    options = options_from(
        problem, warm_start, tolerance, certify=certify, absolute_tolerance=absolute_tolerance
    )
    solution = run_solver(chosen, problem, options)
    if _LOGGER.isEnabledFor(logging.DEBUG):
        found = f"{solution.status.value}, value {solution.value:.9g}, price {solution.price:.6g}"
        effort = f"{solution.iterations} iterations, {solution.seconds:.3g} s"
        _LOGGER.debug("%s: %s; %s. %s", solution.solver, found, effort, solution.note)
    if throw:
        raise_unless_good(solution)
    return solution


def _solve_on_device(
    problem: DeviceProblem,
    solver: Solver | None,
    warm_start: float | Solution | None,
    options: SolveOptions,
    *,
    throw: bool,
) -> DeviceSolution:
    """Return the solution of a problem on a device."""
    from freshopt.cuda import DeviceProblem  # noqa: PLC0415 - what is for devices loads only if needed

    expect(problem, DeviceProblem, "problem", "Pass a freshopt.Problem")
    chosen = solvers.WaterFillingCuda() if solver is None else solver
    if not isinstance(chosen, solvers.WaterFillingCuda):
        raise SolverRefusedError(
            f"{shortened(repr(solver))} does not solve problems on a device. "
            "Pass freshopt.solvers.WaterFillingCuda()."
        )
    start = None if warm_start is None else as_number(warm_start, "warm_start", "Pass a price, or None.")
    usable = start is not None and SMALLEST <= start <= LARGEST
    solution = chosen.solve(problem, replace(options, warm_start=start if usable else None))
    if throw:
        raise_unless_good(solution)
    return solution
