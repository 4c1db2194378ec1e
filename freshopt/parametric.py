"""`frontier`: solutions along one limit, each started from its neighbour's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freshopt.certificates.solution import Solution, Status
from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import FreshoptError, InfeasibleProblemError, SourceDataError, expect, shortened, shown
from freshopt.heavy import polars
from freshopt.many import solve_many
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import as_number, total
from freshopt.plots import GREY, Plotted, curve
from freshopt.problems.binary_freshness import mean_freshness
from freshopt.questions.bandwidth_for import freshness_objective
from freshopt.renamed import keywords
from freshopt.units import rate_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What the bandwidth is called in tables, whatever its label.
BANDWIDTH = "bandwidth"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Frontier(Plotted):
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

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.5, 2.0], names=["a", "b"])
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(), sources, bandwidth=3.0)
    >>> fo.frontier(problem, [1.0, 2.0, 4.0]).to_frame()["value"].round(3).to_list()
    [0.879, 1.23, 1.539]
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

    def _draw(self, axes: Axes) -> None:
        """Draw the value over the limit; grey lines are infeasible."""
        known = zip(self.limits, self.solutions, strict=True)
        solved = sorted([(at, each) for at, each in known if each is not None], key=lambda pair: pair[0])
        if not solved:
            raise FreshoptError("no limit is feasible, so there is nothing to draw. Raise the limits.")
        problem = solved[0][1].problem
        limits = np.array([limit for limit, _ in solved])
        values = np.array([each.value for _, each in solved])
        curve(axes, limits, values, "optimal value")
        for limit in set(self.limits).difference(limits.tolist()):
            axes.axvline(limit, color=GREY, linestyle=":", linewidth=1.0)
        along = f"bandwidth, refreshes per {problem.sources.time_unit}"
        axes.set(xlabel=along if self.constraint == BANDWIDTH else shortened(self.constraint))
        axes.set(ylabel=f"{type(problem.objective).__name__} ({problem.objective.sense}d)")

    def __repr__(self) -> str:
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


@keywords()
def frontier(
    problem: Problem,
    limits: Iterable[float | str],
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
    limits : iterable of float or str
        Bandwidths, perhaps with their unit such as "200/day", or limits of `constraint`.
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
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
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
    unit = problem.sources.time_unit
    given = tuple(
        rate_of(what, limit, unit)
        if isinstance(limit, str) and constraint is None
        else as_number(limit, what, remedy)
        for limit in limits
    )
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
