"""Automatic choice of a solver, with its reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from freshopt import solvers
from freshopt.autodiff.tape_description import describe
from freshopt.certificates.solution import Solution, Status
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, Solver
from freshopt.compiled.columns import spread
from freshopt.formatting import count
from freshopt.modelling.problem import Problem
from freshopt.modelling.worst import Worst
from freshopt.numerics.arrays import total
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.hull_numerics import HullNumerics
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics
from freshopt.separable.program import Program
from freshopt.solvers.water_filling import WaterFilling

# Where the interior point method may end: rates of sources of linear cost jump with the prices.
_SHORT = (Status.INACCURATE, Status.ITERATION_LIMIT, Status.FAILED)
# A cone solver takes seconds for so many sources, and is tried after the interior point method.
_CONIC = 10_000
# Marginals have a logarithm that crosses 0. At 10⁴ sources Newton's method then takes .3 to 1.4 s and
# water-filling .1 to .9, but where the bandwidth is short and other terms decide.
_SLOW_ATOMS = frozenset(["entr", "kl_div", "rel_entr"])
# Evaluations within which Newton's method settles, or takes 37 to 153 (18 objectives, 4 to 15); of entropies
# 6 to 8. Until then it has taken at most 1.7 times as long as water-filling will.
_SETTLED, _SETTLED_SLOW = 16, 10


_DERIVED = "the marginals are derived from the declaration"
_SLACK = "at rates that use the bandwidth up, less would cost less"
# Sources of which that is asked.
_ASKED = 32


@dataclass(frozen=True, slots=True)
class Auto:
    """Automatic choice between water-filling, Newton and a cone solver.

    Water-filling with hand-written kernels, and with declarations whose bandwidth does not bind or where
    Newton's method does not settle soon; Newton's method with others; a cone solver where an atom is unknown.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem).note
    'Auto chose WaterFilling(): the marginals are known, so the one-price dual is exact.'
    """

    conditional_fetches: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Return None: every problem has a solver."""
        return None

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Solve the problem with the chosen solver."""
        solver, why = self.choice(problem)
        declared, slow_atom = _takes_newton(problem), _slow_atom(problem.numerics)
        solution = None
        if declared and why != _SLACK:
            steps = _SETTLED_SLOW if slow_atom else _SETTLED
            newton = solvers.SeparableNewton(limit=steps).solve(problem, options)
            if newton.iterations < steps and newton.status is not Status.INACCURATE:
                solver, why, solution = (
                    solvers.SeparableNewton(),
                    _DERIVED,
                    replace(newton, solver=solvers.SeparableNewton()),
                )
            elif not slow_atom:
                solver, why = WaterFilling(), "Newton's steps did not settle"
        solution = solver.solve(problem, options) if solution is None else solution
        if solution.status is Status.INACCURATE and declared:
            second = solvers.SeparableNewton().solve(problem, options)
            if second.status is Status.OPTIMAL:
                why = f"what {solver} found was not proved optimal"
                solver, solution = solvers.SeparableNewton(), second
        if (
            solution.status in _SHORT
            and len(problem.sources) <= _CONIC
            and isinstance(solver, solvers.InteriorPoint)
        ):
            conic = solvers.Conic()
            second = conic.solve(problem, options)
            if second.status is Status.OPTIMAL:
                why = f"what {solver} found was not proved optimal"
                solver, solution = conic, second
        note = f"Auto chose {solver}: {why}." + (f" {solution.note}" if solution.note else "")
        return replace(solution, note=note)

    def choice(self, problem: Problem) -> tuple[Solver, str]:
        """Return the chosen solver and the reason."""
        if problem.program is not None and not problem.couplings:
            return _of_rows(problem, problem.program)
        if _takes_newton(problem):
            if _slack(problem):
                return WaterFilling(), _SLACK
            slow_atom = _slow_atom(problem.numerics)
            if slow_atom:
                return (
                    WaterFilling(),
                    f"the marginals of {slow_atom} are searched, Newton's steps would not settle",
                )
            return solvers.SeparableNewton(), _DERIVED
        if problem.program is None and problem.numerics is not None:
            return WaterFilling(), "the marginals are known, so the one-price dual is exact"
        if problem.couplings:
            return solvers.Conic(), f"nothing is proved, for {problem.couplings[0].rstrip('.')}"
        return solvers.Conic(), "the objective has an atom without derivative rules"


def _takes_newton(problem: Problem) -> bool:
    """Return whether Newton's method takes a problem that has no kernel."""
    derived = problem.program is None and problem.numerics is not None and not _hand_written(problem.numerics)
    return derived and solvers.SeparableNewton().supports(problem) is None


def _slack(problem: Problem) -> bool:
    """Return whether no sampled source gains beyond its share of bandwidth.

    Costs that rise with the rate have their least below it, and Newton's method no price to step to.
    """
    if problem.numerics is None:
        return False
    sources = problem.sources
    some = spread(len(sources), _ASKED)
    share = problem.bandwidth / total(sources.refresh_cost * sources.scale)
    rates = np.clip(share * sources.scale[some], problem.lower[some], problem.upper[some])
    with np.errstate(all="ignore"):
        return bool(np.all(problem.numerics.take(some).marginal(rates) <= 0.0))


def _slow_atom(numerics: Numerics | None) -> str:
    """Return an atom on which Newton's steps get stuck, or nothing."""
    if isinstance(numerics, MixedNumerics):
        return _slow_atom(numerics.silent_sources) or _slow_atom(numerics.signalled_sources)
    steps = None if not isinstance(numerics, DerivedNumerics) else describe(numerics.node)
    names = [] if steps is None else [name for kind, name, *_ in steps[0] if kind == "atom"]
    return next((name for name in names if name in _SLOW_ATOMS), "")


def _hand_written(numerics: Numerics) -> bool:
    """Return whether numerics are hand-written kernels throughout."""
    if isinstance(numerics, MixedNumerics):
        return _hand_written(numerics.silent_sources) and _hand_written(numerics.signalled_sources)
    return isinstance(numerics, Kernel | HullNumerics)


def _of_rows(problem: Problem, program: Program) -> tuple[Solver, str]:
    """Return the solver for declared constraints, by the structure of their rows."""
    rows = count(len(program.rows), "row", "d")
    if isinstance(problem.objective, Worst) and problem.objective.then == "next":
        return solvers.Leximin(), "the worst group comes first, then the next"
    if solvers.NestedWaterFilling().supports(problem) is None:
        return solvers.NestedWaterFilling(), f"the constraints, {rows}, are a tree in one unit"
    if solvers.RatioWaterFilling().supports(problem) is None:
        return (
            solvers.RatioWaterFilling(),
            f"the constraints, {rows}, are ratios on a forest under one budget",
        )
    refused = solvers.InteriorPoint().supports(problem)
    if refused is None or (not problem.unknown_atom and len(problem.sources) > _CONIC):
        return solvers.InteriorPoint(), f"the constraints are {rows}, each with a multiplier"
    known = "the objective has an atom without derivative rules" if problem.unknown_atom else refused
    return solvers.Conic(), known
