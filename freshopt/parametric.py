"""`frontier`: solutions along one limit, each started from its neighbour's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freshopt.certificates.solution import Solution, Status
from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import InfeasibleProblemError, SourceDataError, expect, shortened, shown
from freshopt.many import solve_many
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import as_number, total
from freshopt.problems.binary_freshness import mean_freshness
from freshopt.questions.bandwidth_for import freshness_objective

if TYPE_CHECKING:
    import polars

# What the bandwidth is called in tables, whatever its label.
BANDWIDTH = "bandwidth"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Frontier:
    """Value and shadow price along one limit: a parametric solution.

    Attributes
    ----------
    limits : tuple of float
    solutions : tuple of Solution or None
        None where the limit is infeasible.
    reasons : tuple of str
        Why there is no solution, or empty.
    constraint : str
        Label of the limit; "bandwidth" unless another was asked for.
    """

    limits: tuple[float, ...]
    solutions: tuple[Solution | None, ...]
    reasons: tuple[str, ...]
    constraint: str = BANDWIDTH

    @property
    def prices(self) -> tuple[float | None, ...]:
        """Shadow price of the limit at each point, None where infeasible."""
        return tuple(None if each is None else self._price(each) for each in self.solutions)

    def to_frame(self) -> polars.DataFrame:
        """Return a polars table of the solutions, nulls where infeasible.

        Columns are bandwidth (or limit, of another constraint), status, value, price, relative_gap, fresh
        (share of time that copies are fresh, by importance) and cost (bandwidth used per time unit).
        """
        import polars

        column = BANDWIDTH if self.constraint == BANDWIDTH else "limit"
        rows = []
        for limit, solution, price in zip(self.limits, self.solutions, self.prices, strict=True):
            proof = solution.certificate if solution else None
            rows.append(
                {
                    column: limit,
                    "status": (solution.status if solution else Status.INFEASIBLE).value,
                    "value": solution.value if solution else None,
                    "price": price,
                    "relative_gap": proof.relative_gap if proof else None,
                    "fresh": None if solution is None else _fresh(solution),
                    "cost": None if solution is None else _cost(solution),
                }
            )
        columns = (column, "value", "price", "relative_gap", "fresh", "cost")
        numbers = dict.fromkeys(columns, polars.Float64)
        return polars.DataFrame(rows, schema_overrides=numbers)

    def __repr__(self) -> str:
        """Return one line: how many limits, and their range."""
        low, high = min(self.limits), max(self.limits)
        what = "bandwidths" if self.constraint == BANDWIDTH else f"limits of {shortened(self.constraint)!r}"
        return f"Frontier({len(self.limits)} {what}, {low:g}..{high:g})"

    def _price(self, solution: Solution) -> float:
        """Return the limit's price, or the sum over its groups."""
        if self.constraint == BANDWIDTH and BANDWIDTH not in solution.prices:
            return solution.price
        if self.constraint in solution.prices:
            return solution.prices[self.constraint]
        groups = f"{self.constraint}["
        return math.fsum(price for label, price in solution.prices.items() if label.startswith(groups))


def _fresh(solution: Solution) -> float | None:
    """Return the share of time fresh; None where nothing tells."""
    sources = solution.problem.sources
    if not total(sources.column("importance")) > 0.0 or not bool(np.all(np.isfinite(solution.rates))):
        return None
    objective = freshness_objective(solution.problem)
    if bool(np.any(sources.signalled)) and objective.refuses_signals() is not None:
        return None
    return mean_freshness(sources, solution.rates, objective.refresh)


def _cost(solution: Solution) -> float:
    """Return what the refreshes cost per time unit."""
    return total(solution.problem.used_by_source(solution.rates))


def frontier(
    problem: Problem,
    limits: Iterable[float],
    solver: Solver | None = None,
    *,
    constraint: str | None = None,
    tolerance: float = 1e-6,
) -> Frontier:
    """Solve a problem at several limits, by `solve_many`.

    Each solve starts from the last one's prices. An infeasible limit stays as a row with that status, and the
    reason: the constraints that conflict with it.

    Parameters
    ----------
    problem : Problem
    limits : iterable of float
        Bandwidths, or limits of `constraint`.
    solver : Solver, optional
    constraint : str, optional
        Label of a constraint, as in ``solution.prices``; see `Problem.with_limit`. The bandwidth by default.
    tolerance : float
        Relative duality gap above which a status is inaccurate.

    Returns
    -------
    Frontier
        Its price is the slope of the value along the limit.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> [solution.value for solution in fo.frontier(problem, [1.5, 3.0, 9.0]).solutions]
    [6.0, 3.0, 1.0]
    >>> size = fo.Budget(20.0, cost=[1.0, 9.0], name="kB")
    >>> limited = fo.Problem(problem.objective, problem.sources, 3.0, constraints=[size])
    >>> [round(price, 4) for price in fo.frontier(limited, [10.0, 30.0], constraint="kB").prices]
    [0.49, 0.0]
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    if constraint is not None:
        expect(constraint, str, "constraint", "Pass the label of a constraint, or None for the bandwidth")
    along = BANDWIDTH if constraint is None else constraint
    what = "a bandwidth" if constraint is None else f"a limit of {shortened(along)}"
    remedy = (
        "Pass refreshes per time unit, a list of them." if constraint is None else "Pass a list of numbers."
    )
    if isinstance(limits, str) or not isinstance(limits, Iterable):
        raise SourceDataError(f"limits are {shown(limits)}, not a list. {remedy}")
    given = tuple(as_number(limit, what, remedy) for limit in limits)
    if not given:
        raise SourceDataError("there are no limits. Pass at least one.")
    problems: dict[int, Problem] = {}
    reasons = [""] * len(given)
    for k, limit in enumerate(given):
        try:
            problems[k] = problem.with_limit(along, limit) if constraint else problem.with_bandwidth(limit)
        except InfeasibleProblemError as error:
            reasons[k] = str(error)
    solutions: list[Solution | None] = [None] * len(given)
    if problems:
        found = solve_many(problems.values(), solver=solver, tolerance=tolerance, throw=False)
        for k, solution in zip(problems, found, strict=True):
            solutions[k] = None if solution.status is Status.INFEASIBLE else solution
            reasons[k] = solution.note
    return Frontier(given, tuple(solutions), tuple(reasons), along)
