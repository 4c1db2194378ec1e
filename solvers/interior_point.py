"""Interior point method over the multipliers of declared constraints.

Every source's rate is its best response to what its rows charge, so that the KKT conditions are a
complementarity problem in as many unknowns as there are rows, whatever the number of sources. Each Newton
step takes one pass over the sources and one linear system of the rows' size; limits on many disjoint groups
beside a few other rows are eliminated. Rates on the path are strictly feasible, and the last ones come with
multipliers that prove them.

Sources without curvature (fresh shares of signalled sources, piecewise linear costs, bandwidth itself) have
best responses that jump. Then rates are unknowns beside the multipliers, kept inside their bounds by a
barrier, and the linear system stays the same. Sources with more kinks than can be told apart, such as
piecewise linear costs of fetches that fail, are seen through a window around their rates, which follows them.

Infeasible constraints end in a proof of that: multipliers of an irreducible set of rows that conflict.

References
----------
S. Mehrotra, "On the implementation of a primal-dual interior point method", SIAM J. Optim. 2(4), 1992,
doi:10.1137/0802028.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.solution import Answer, Solution, Status
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution, check_search
from freshopt.certificates.strict_interior import row_sizes
from freshopt.errors import InfeasibleProblemError, expect_settings
from freshopt.interior_point.barrier_rows import solve_barrier
from freshopt.interior_point.infeasibility import explain
from freshopt.interior_point.kink_windows import solve_windows
from freshopt.interior_point.linear_pieces import jumps, sampled_pieces
from freshopt.interior_point.newton_systems import arrow_of
from freshopt.interior_point.priced_sums import priced_alone, solve_priced
from freshopt.interior_point.solve_rows import CONFLICT, RowAnswer, solve_rows
from freshopt.modelling.constraints.usages import rates_of, without_variables
from freshopt.modelling.general_program import general_program
from freshopt.modelling.problem import Problem
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array
from freshopt.separable.program import Program

# Relative slack of a row that does not bind: at a gap of 1e-12 the slack of one that does is far smaller.
LOOSE = 1e-9
# Relative gap beyond which prices of sums are searched for together, as where marginals have long flat ends.
ALONE = 1e-9
# Newton steps over the multipliers before rates become unknowns too; a million sources need some 40 at most.
PATIENCE = 60
# Cells of Newton's matrix at most: 2 GB, of which a factor and two blocks' sums are held at once.
CELLS = 2.5e8


@dataclass(frozen=True, slots=True)
class InteriorPoint:
    """Interior point method over multipliers, for any declared constraints.

    Parameters
    ----------
    tolerance : float
        Duality gap at which it ends, relative to the cost and the price of the limits.
    limit : int
        Newton steps at most.

    Examples
    --------
    >>> import freshopt as fo
    >>> kilobytes = fo.Budget(10.0, cost=[1.0, 9.0], name="kB")
    >>> sources = fo.Sources(change_rate=[1.0, 1.0])
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, sources, bandwidth=4.0, constraints=[kilobytes])
    >>> solution = fo.solve(problem, InteriorPoint())
    >>> solution.rates.round(6), solution.certificate.relative_gap < 1e-10
    (array([2.5     , 0.833333]), True)
    """

    tolerance: float = 1e-12
    limit: int = 100
    declared_constraints: ClassVar[bool] = True

    def __post_init__(self) -> None:
        expect_settings(self)
        check_search(self.tolerance, self.limit)

    def supports(self, problem: Problem) -> str | None:
        """Return why rows or derivatives are unknown, or None."""
        if problem.couplings:
            return problem.couplings[0].rstrip(".")
        if isinstance(problem.objective, Worst):
            further = problem.objective.then == "next"
            return "it ends at the worst group; use Leximin for the next" if further else None
        program = problem.program
        if problem.unknown_atom or program is None:
            return problem.unknown_atom.rstrip(".") or None
        many = _too_many(program)
        return None if many is None or priced_alone(program) else many

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Solve the dual and certify the rates."""
        start = options.multipliers
        return certified_solution(self, problem, options, lambda own, _: self._answer(own, start))

    def _answer(self, problem: Problem, start: Array | None) -> Answer:
        program = problem.program
        if program is None:
            program = general_program(problem, (), None, once=False)
        try:
            alone = solve_priced(program)
            many = _too_many(program)
            if alone is not None and (alone.gap <= ALONE or many):
                found, note = alone, "The search was over the price of each sum alone."
            elif many:
                return Answer(None, status=Status.FAILED, note=f"The search over prices stalled, and {many}.")
            else:
                found, note = self._found(program, start)
        except np.linalg.LinAlgError:
            note = "Newton's matrix of the rows is singular: limits or costs are too far apart."
            return Answer(None, status=Status.FAILED, note=note)
        if found.why is not None and not np.isfinite(found.gap):
            bare, kept = without_variables(program, problem.usages)
            conflict = explain(bare, found.multipliers[kept], upper=_declared_upper(problem))
            if conflict is not None:
                raise InfeasibleProblemError(str(conflict), conflict)
        found = replace(found, multipliers=_without_slack_rows(program, found))
        rates = rates_of(problem, found.rates)
        if problem.program is None:
            return _short_form(problem, found, rates, note)
        status = Status.ITERATION_LIMIT if found.why is not None and found.iterations >= self.limit else None
        return Answer(
            rates,
            iterations=found.passes,
            status=status,
            note=note,
            multipliers=found.multipliers,
            path=found.path,
        )

    def _found(self, program: Program, start: Array | None) -> tuple[RowAnswer, str]:
        """Return the answer of the search that suits, and a note."""
        first, why = None, "sources without curvature have best responses that jump"
        looked = sampled_pieces(program)
        if bool(np.any(looked.crowded)):
            near = solve_windows(program, self.tolerance, iterations=self.limit)
            if near.why is None:
                return (
                    near,
                    "The search was over windows of the rates: sources have too many kinks to see all.",
                )
        if not jumps(looked):
            most = min(self.limit, PATIENCE)
            first = solve_rows(program, self.tolerance, iterations=most, start=start)
            if first.why is None or first.why.startswith(CONFLICT):
                return first, first.why or ""
            why = f"over the multipliers alone {first.why}"
        second = solve_barrier(program, self.tolerance, iterations=self.limit)
        proved = second.why is None or second.why.startswith(CONFLICT)
        if first is not None and first.gap <= second.gap and not proved:
            return first, first.why or ""
        end = f" {second.why}." if second.why else ""
        return second, f"The search was over rates and multipliers: {why}.{end}"


def _too_many(program: Program) -> str | None:
    """Return that Newton's matrix of the rows would not fit, or None."""
    m = len(program.rows)
    if m * m <= CELLS:
        return None
    arrow = arrow_of(program.rows)
    if arrow is not None and len(arrow.others) * m <= CELLS:
        return None
    return (
        f"{m:,} rows that share sources need a matrix of {8e-9 * m * m:.1f} GB; it takes "
        f"{int(CELLS**0.5):,} such rows, and any number of nested or disjoint ones beside a few others"
    )


def _declared_upper(problem: Problem) -> Array:
    """Return the upper bounds without those that rows imply."""
    upper, bundles = problem.upper, problem.bundles
    if bundles is not None:
        upper = -bundles.largest(-upper)
    return upper


def _without_slack_rows(program: Program, found: RowAnswer) -> Array:
    """Return the multipliers with 0 of rows that do not bind."""
    y, gap = found.multipliers, RowGap.of(program, found.rates)
    limits = np.abs(program.rows.limits)
    with np.errstate(all="ignore"):
        size = limits if bool(np.all(limits)) else row_sizes(program, found.rates)
        kept = np.where(gap.slack > LOOSE * size, 0.0, y)
        if np.array_equal(kept, y):
            return y
    return kept if gap.at(kept) <= gap.at(y) else y


def _short_form(problem: Problem, found: RowAnswer, rates: Array, note: str) -> Answer:
    """Return the answer to a problem of bandwidth and host limits alone."""
    price, extra = float(found.multipliers[0]), found.multipliers[1:]
    return Answer(rates, price, problem.hosts.named(extra), found.passes, note=note)
