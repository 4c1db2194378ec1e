"""`solve`: solve a problem and certify it. `frontier`: solutions along the bandwidth."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freshopt.certificates.solution import Solution, Status
from freshopt.certificates.solver_protocol import SolveOptions, Solver, gap_is_expected
from freshopt.errors import (
    CertificateError,
    InfeasibleProblemError,
    SolverRefusedError,
    SourceDataError,
    expect,
)
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST, as_number

if TYPE_CHECKING:
    import polars


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
    solution = chosen.solve(problem, SolveOptions(tolerance, certify, price, used))
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


def _raise_unless_good(solution: Solution) -> None:
    if solution.status is Status.OPTIMAL:
        return
    if solution.status is Status.REFUSED:
        raise SolverRefusedError(solution.note)
    if solution.status is Status.INFEASIBLE:
        raise InfeasibleProblemError(solution.note)
    if solution.status is Status.INACCURATE and gap_is_expected(solution.solver):
        return
    raise CertificateError(
        f"{solution.solver} ended {solution.status.value}. {solution.note} Solve with another solver, or "
        f"pass throw=False to have the solution as it is.",
        solution,
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Frontier:
    """Value and shadow price along the bandwidth: a parametric solution.

    Attributes
    ----------
    bandwidths : tuple of float
    solutions : tuple of Solution or None
        None where the bandwidth is infeasible.
    reasons : tuple of str
        Why there is no solution, or empty.
    """

    bandwidths: tuple[float, ...]
    solutions: tuple[Solution | None, ...]
    reasons: tuple[str, ...]

    def to_frame(self) -> polars.DataFrame:
        """Return a polars table of the solutions, nulls where infeasible.

        Columns are bandwidth, status, value, price and relative_gap.
        """
        import polars

        rows = []
        for bandwidth, solution in zip(self.bandwidths, self.solutions, strict=True):
            proof = solution.certificate if solution else None
            rows.append(
                {
                    "bandwidth": bandwidth,
                    "status": (solution.status if solution else Status.INFEASIBLE).value,
                    "value": solution.value if solution else None,
                    "price": solution.price if solution else None,
                    "relative_gap": proof.relative_gap if proof else None,
                }
            )
        numbers = dict.fromkeys(("bandwidth", "value", "price", "relative_gap"), polars.Float64)
        return polars.DataFrame(rows, schema_overrides=numbers)

    def __repr__(self) -> str:
        """Return one line: how many bandwidths, and their range."""
        low, high = min(self.bandwidths), max(self.bandwidths)
        return f"Frontier({len(self.bandwidths)} bandwidths, {low:g}..{high:g})"


def frontier(
    problem: Problem, bandwidths: Iterable[float], solver: Solver | None = None, *, tolerance: float = 1e-6
) -> Frontier:
    """Solve a problem at several bandwidths, warm-started one after another.

    Each solve starts from the last one's price. An infeasible bandwidth stays as a row with that status.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> [solution.value for solution in fo.frontier(problem, [1.5, 3.0, 9.0]).solutions]
    [6.0, 3.0, 1.0]
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    solutions: list[Solution | None] = []
    reasons: list[str] = []
    remedy = "Pass refreshes per time unit, a list of them."
    if isinstance(bandwidths, str) or not isinstance(bandwidths, Iterable):
        raise SourceDataError(f"bandwidths are {bandwidths!r}, not a list. {remedy}")
    given = tuple(as_number(bandwidth, "a bandwidth", remedy) for bandwidth in bandwidths)
    if not given:
        raise SourceDataError("there are no bandwidths. Pass at least one.")
    start: Solution | None = None
    for bandwidth in given:
        try:
            solution = solve(
                problem.with_bandwidth(bandwidth), solver, tolerance=tolerance, throw=False, warm_start=start
            )
        except InfeasibleProblemError as error:
            solutions.append(None)
            reasons.append(str(error))
            continue
        solutions.append(solution)
        reasons.append(solution.note)
        start = solution if solution.price > 0.0 else start
    return Frontier(given, tuple(solutions), tuple(reasons))
