"""One run of a foreign solver on one problem, judged.

The solver gets a problem built for it alone. Nothing that it says about its answer counts: its rates are
certified, and what it did to its input is compared with what the input was.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.certificates.certificate import Certificate
from freshopt.certificates.solution import Status
from freshopt.certificates.solver_protocol import SolveOptions, Solver, refusal, run_solver
from freshopt.errors import SolverRefusedError, guarded, list_offenders
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.testing.optimality import judge
from freshopt.testing.recipe import Recipe

Foreign: TypeAlias = Callable[[Problem], Any]  # what it returns is judged, not trusted


class Verdict(enum.Enum):
    """Verdict on one run as the report's word, from good to bad."""

    PROVED = "proved optimal"
    DECLINED = "declined"
    NOT_OPTIMAL = "not optimal"
    INFEASIBLE = "infeasible"
    NOT_FINITE = "not finite"
    WRONG_SHAPE = "wrong shape"
    NO_RATES = "no rates"
    NO_ANSWER = "no answer"
    CHANGED_INPUT = "changed its input"
    RAISED = "raised"

    @property
    def is_shortfall(self) -> bool:
        """Whether the solver is at fault."""
        return self not in (Verdict.PROVED, Verdict.DECLINED)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Outcome of one run.

    - `detail`: A sentence, or an exception's type and message; empty if the rates are proved optimal.
    - `certificate`: Of the repaired rates; None if there were none that could be certified.
    - `seconds`: Time in the solver.
    - `exception`: The type of the exception raised, or empty.
    """

    verdict: Verdict
    detail: str
    certificate: Certificate | None
    seconds: float
    exception: str = ""

    @property
    def kind(self) -> str:
        """Verdict, with the exception's type: ``"raised ValueError"``."""
        return f"{self.verdict.value} {self.exception}".strip()


def as_function(solver: object) -> Foreign:
    """Return a solver as a function from problem to rates.

    - raises SolverRefusedError if it is none of these.
    """
    made: object = solver() if isinstance(solver, type) else solver
    if isinstance(made, Solver):
        return partial(_solve, made)
    if callable(made):
        return partial(made)
    raise SolverRefusedError(
        f"{solver!r} is no solver. Pass a function solve(problem) that returns rates, or a freshopt solver."
    )


def attempt(solve: Foreign, recipe: Recipe, tolerance: float) -> Outcome:
    """Run a foreign solver on a fresh problem; judge it.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([1.0, 4.0])
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> recipe = Recipe.from_problem(fo.Problem(objective, sources, bandwidth=3.0))
    >>> attempt(lambda problem: [1.0, 2.0], recipe, 1e-6).kind
    'proved optimal'
    >>> attempt(lambda problem: 1 / 0, recipe, 1e-6).kind
    'raised ZeroDivisionError'
    """
    problem = recipe.problem()
    begun = time.perf_counter()
    answer = guarded(lambda: _answer(solve, problem))
    seconds = time.perf_counter() - begun
    if isinstance(answer, SolverRefusedError):
        return Outcome(Verdict.DECLINED, str(answer), None, seconds)
    if isinstance(answer, BaseException):
        name = type(answer).__name__
        return Outcome(Verdict.RAISED, f"{name}: {_told(lambda: str(answer), '')}", None, seconds, name)
    whole, rates = answer
    changed = recipe.changes_in(problem)
    verdict, detail, proof = _judged(recipe, whole, rates, tolerance)
    if changed:
        detail = f"it changed {list_offenders(changed)} of its input. {detail}".strip()
        verdict = Verdict.CHANGED_INPUT
    return Outcome(verdict, detail, proof, seconds)


def _answer(solve: Foreign, problem: Problem) -> tuple[object, npt.NDArray[Any]]:
    """Return a solver's raw answer and its rates."""
    answer = solve(problem)
    return answer, np.asarray(getattr(answer, "rates", answer))


def _judged(
    recipe: Recipe, answer: object, rates: npt.NDArray[Any], tolerance: float
) -> tuple[Verdict, str, Certificate | None]:
    """Return verdict, sentence and certificate of a raw answer."""
    n, note = len(recipe), _told(lambda: str(getattr(answer, "note", "")), "")
    if rates.dtype.kind not in "fiu":
        return Verdict.NO_RATES, f"it returned {_short(answer)}, not an array of numbers.", None
    if rates.shape != (n,):
        return Verdict.WRONG_SHAPE, f"the rates have shape {rates.shape}; there are {n} sources.", None
    given: Array = rates.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(given))
    if len(bad):
        status = getattr(answer, "status", None)
        word = f" (status {status.value}: {note})" if isinstance(status, Status) else ""
        where = list_offenders(f"{given[k]} at source {k}" for k in bad)
        return Verdict.NOT_FINITE, f"the rates are {where}{word}.", None
    judgement = judge(recipe.problem(), given, tolerance)
    if not judgement.feasible:
        return Verdict.INFEASIBLE, judgement.sentence, judgement.certificate
    verdict = Verdict.PROVED if judgement.optimal else Verdict.NOT_OPTIMAL
    return verdict, judgement.sentence, judgement.certificate


def _solve(solver: Solver, problem: Problem) -> object:
    """Run a freshopt solver; a refusal is raised."""
    reason = refusal(solver, problem)
    if reason is not None:
        raise SolverRefusedError(reason)
    solution = run_solver(solver, problem, SolveOptions())
    if solution.status is Status.REFUSED:
        raise SolverRefusedError(solution.note)
    return solution


def _told(say: Callable[[], str], otherwise: str) -> str:
    """Return a foreign object's own words; they may raise, too."""
    text = guarded(say)
    return text if isinstance(text, str) else otherwise


def _short(answer: object) -> str:
    text = _told(lambda: repr(answer), type(answer).__name__)
    return text if len(text) <= 60 else text[:57] + "..."
