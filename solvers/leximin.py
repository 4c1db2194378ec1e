"""Leximin: the worst group first, then the next worst.

Disjoint groups under one budget are brought to one level at the least cost; a group that its upper bounds
keep above it stays where they leave it. One search for the level that the budget pays is the whole of it.

In other cases the minimax problem is solved by the interior point method again and again: groups whose
multiplier is positive cannot do better, stay at their level from then on, and the others go on. What the
certificate proves is the first level, the worst group's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from freshopt.certificates.row_gap import least_level
from freshopt.certificates.solution import Answer, Solution, Status
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.dual_search.leximin import fill_leximin
from freshopt.formatting import count
from freshopt.interior_point.solve_rows import solve_rows
from freshopt.modelling.problem import Problem
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import Array
from freshopt.separable.program import Program

# A multiplier of at least this share of all belongs to a group that decides the level: those of an interior
# point at a gap of 1e-12 are either of the size of the whole or below.
DECIDES = 1e-6
# What is left above a level for groups that stay at it; without any the next problem has no interior.
KEPT = 1e-9


@dataclass(frozen=True, slots=True)
class Leximin:
    """Exact leximin of disjoint groups; successive minimax of others.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0, 4.0], max_rate=[0.5, 9.0, 9.0])
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> fairest = fo.Worst(objective, by=["eu", "us", "us"], then="next")
    >>> fo.solve(fo.Problem(fairest, sources, bandwidth=8.5), Leximin()).rates.round(9)
    array([0.5, 4. , 4. ])
    """

    declared_constraints: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:
        """Return why the objective is not the worst of groups, or None."""
        if problem.couplings:
            return problem.couplings[0].rstrip(".")
        return None if isinstance(problem.objective, Worst) else "the objective is not fo.Worst"

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Solve level by level and certify the worst one."""
        return certified_solution(self, problem, options, lambda own, _: _answer(own))


def _answer(problem: Problem) -> Answer:
    program = problem.program
    if program is None or not isinstance(problem.objective, Worst):
        raise ValueError("supports() refuses such a problem")
    found = fill_leximin(program)
    if found is not None:
        rates, multipliers, evaluations = found.rates, found.multipliers, found.evaluations
        groups = count(int(np.sum(np.isfinite(found.levels))), "group", "d")
        note = f"{groups} at one level, where bounds let them."
    else:
        rates, multipliers, evaluations, note = _successive(program, further=problem.objective.then == "next")
        if not len(multipliers):
            return Answer(None, iterations=evaluations, status=Status.FAILED, note=note)
    rates = rates if problem.bundles is None else problem.bundles.of_sources(rates)
    return Answer(rates, iterations=evaluations, multipliers=multipliers, note=note)


def _successive(program: Program, *, further: bool) -> tuple[Array, Array, int, str]:
    """Return rates of successive minimax problems, with the first one's multipliers."""
    first = solve_rows(program)
    if not np.isfinite(first.gap) or program.level is None:
        return first.rates, np.zeros(0), first.passes, first.why or ""
    best, passes, levels = first, first.passes, 1
    while further and program.level is not None:
        weights = program.level * best.multipliers
        decided = weights > DECIDES * float(np.sum(weights))
        level = least_level(program, program.rows.used(best.rates))
        open_rows = (program.level > 0.0) & ~decided
        if not bool(np.any(open_rows)):
            break
        at_level = program.rows.limits + program.level * level
        limits = np.where(
            decided, at_level + KEPT * np.maximum(np.abs(at_level), abs(level)), program.rows.limits
        )
        rows = replace(program.rows, limits=limits)
        program = replace(program, rows=rows, level=np.where(open_rows, program.level, 0.0))
        following = solve_rows(program)
        passes += following.passes
        if not np.isfinite(following.gap):
            break
        best, levels = following, levels + 1
    note = f"{count(levels, 'level', 'd')}, each by a minimax problem; only the first, the worst, is proved."
    return best.rates, first.multipliers, passes, note if further else ""
