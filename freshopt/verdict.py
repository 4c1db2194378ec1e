"""From a solver's answer to a certified `Solution`: the one road on which results leave the library.

No solver's own status counts as evidence. The rates are repaired if they break a constraint by more than
rounding, certified from rates and prices alone, and called optimal only if the certificate says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from freshopt.arrays import all_finite, as_number, chunks, exact_sum
from freshopt.certificate import Certificate, certify, repair
from freshopt.errors import InfeasibleProblemError, SourceDataError
from freshopt.model import Problem
from freshopt.result import Answer, Solution, Status


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one solve, the same for every solver.

    Parameters
    ----------
    tolerance : float
        Relative gap above which the status is inaccurate.
    certify : bool
        False leaves the certificate out and computes the value alone.
    start : float or None
        A price to start from.
    spent : float or None
        The bandwidth that the same sources use at that price, if that is known.
    """

    tolerance: float = 1e-6
    certify: bool = True
    start: float | None = None
    spent: float | None = None

    def __post_init__(self) -> None:
        """Refuse a tolerance that is not a number >= 0."""
        remedy = "Pass a relative gap >= 0, such as 1e-6."
        if not as_number(self.tolerance, "tolerance", remedy) >= 0.0:
            raise SourceDataError(f"tolerance is {self.tolerance}. {remedy}")


DEFAULT = Terms()
Method: TypeAlias = Callable[[Problem, float | None], Answer]


@runtime_checkable
class Solver(Protocol):
    """A frozen record of an algorithm's settings.

    A solver may also carry ``baseline = True``: it does not aim at the optimum; or ``sampled = True``: it
    learns from a finite number of samples. Then a gap is its result and not its failure.
    """

    def supports(self, problem: Problem) -> str | None:
        """Return None, or the reason why this solver does not apply."""

    def solve(self, problem: Problem, terms: Terms = DEFAULT) -> Solution:
        """Return a certified solution; failures and refusals are a status. Usually one call of `conclude`."""


_EXEMPT = {
    "": "",
    "baseline": "A baseline, not meant to be optimal: ",
    "sampled": "Learnt from a finite number of samples: ",
}


def exemption(solver: object) -> str:
    """Return why a gap is not a solver's failure: it is a "baseline", or "sampled"; "" if it is one."""
    return next((kind for kind in _EXEMPT if kind and getattr(solver, kind, False)), "")


def conclude(solver: Solver, problem: Problem, terms: Terms, method: Method) -> Solution:
    """Run ``method(problem, start)`` for a solver, time it, certify its answer and give it a status.

    What overflows on the way warns of nothing: it ends in the certificate, or in a status.

    Parameters
    ----------
    solver : Solver
    problem : Problem
    terms : Terms
    method : callable
        Returns an `Answer`; may raise InfeasibleProblemError.
    """
    begun = time.perf_counter()
    reason = solver.supports(problem)
    if reason is not None:
        answer = Answer(
            None, status=Status.REFUSED, note=f"{type(solver).__name__} does not apply: {reason}."
        )
    else:
        try:
            with np.errstate(all="ignore"):
                answer = method(problem, terms.start)
        except InfeasibleProblemError as error:
            answer = Answer(None, status=Status.INFEASIBLE, note=str(error))
    seconds = time.perf_counter() - begun
    if answer.rates is not None and not all_finite(answer.rates):
        note = f"{type(solver).__name__} returned rates that are not finite."
        answer = Answer(None, iterations=answer.iterations, status=Status.FAILED, note=note)
    if answer.rates is None:
        return _empty(solver, problem, answer, seconds)
    if not terms.certify:
        return _uncertified(solver, problem, answer, seconds)
    proof = certify(problem, answer.rates, answer.price, answer.host_prices)
    status, note = _status(solver, answer, proof, terms.tolerance)
    return Solution(
        problem=problem,
        status=status,
        rates=proof.rates,
        value=proof.value,
        price=proof.price,
        host_prices=proof.host_prices,
        certificate=proof,
        iterations=answer.iterations,
        seconds=seconds,
        solver=solver,
        note=note,
    )


def _status(solver: Solver, answer: Answer, proof: Certificate, tolerance: float) -> tuple[Status, str]:
    """Return the status that the certificate supports, and a sentence."""
    if answer.status not in (None, Status.OPTIMAL):  # that something is optimal is for the proof to say
        return answer.status, answer.note
    if proof.confirms(tolerance):
        return Status.OPTIMAL, answer.note
    if proof.reason:
        return Status.INACCURATE, f"Nothing is proved: {proof.reason}"
    why = _EXEMPT[exemption(solver)]
    shortfall = f"{why}the certified gap {proof.relative_gap:.2g} exceeds the tolerance {tolerance:g}."
    return Status.INACCURATE, " ".join(part for part in (shortfall, answer.note) if part)


def _empty(solver: Solver, problem: Problem, answer: Answer, seconds: float) -> Solution:
    return Solution(
        problem=problem,
        status=answer.status or Status.FAILED,
        rates=np.full(len(problem.sources), np.nan),
        value=math.nan,
        price=math.nan,
        host_prices=problem.hosts.named(np.full(len(problem.hosts), math.nan)),
        certificate=None,
        iterations=answer.iterations,
        seconds=seconds,
        solver=solver,
        note=answer.note,
    )


def _uncertified(solver: Solver, problem: Problem, answer: Answer, seconds: float) -> Solution:
    """Take the answer as it is; the value costs one pass."""
    given, numerics = answer.rates, problem.numerics
    with np.errstate(over="ignore"):
        rates = None if given is None else repair(problem, given)[0]
    value = math.nan
    if numerics is not None and rates is not None:
        parts = (float(np.sum(numerics.take(part).cost(rates[part]))) for part in chunks(len(rates)))
        value = problem.objective.value_from_cost(exact_sum(parts), problem.sources)
    return Solution(
        problem=problem,
        status=answer.status or (Status.INACCURATE if exemption(solver) else Status.OPTIMAL),
        rates=np.full(len(problem.sources), np.nan) if rates is None else rates,
        value=value,
        price=math.nan if answer.price is None else answer.price,
        host_prices=answer.host_prices or problem.hosts.named(np.zeros(len(problem.hosts))),
        certificate=None,
        iterations=answer.iterations,
        seconds=seconds,
        solver=solver,
        note=answer.note,
    )
