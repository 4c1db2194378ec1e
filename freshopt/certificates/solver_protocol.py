"""Wrap a solver's raw answer into a certified Solution.

Every result leaves the library through here. No solver's own status counts as evidence. The rates are
repaired if they are infeasible by more than rounding, certified from rates and prices alone, and called
optimal only if the duality gap says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from freshopt.certificates.certificate import Certificate, certify, certify_in_one_pass, certify_rows
from freshopt.certificates.proof_pass import ProvedGap, Prover, proved_gap
from freshopt.certificates.row_certificate import short_form
from freshopt.certificates.row_repair import repair
from freshopt.certificates.solution import UNPROVED, Answer, Solution, Status
from freshopt.errors import (
    CertificateError,
    InfeasibleProblemError,
    SolverRefusedError,
    SourceDataError,
    shortened,
)
from freshopt.modelling.constraints.usages import usage_value
from freshopt.modelling.fetches.arc_rounding import NOT_CONVEX, problems_on_arcs
from freshopt.modelling.fetches.conditional_fetches import UNKNOWN, PerBandwidth, rates_of_bandwidth
from freshopt.modelling.objective import value_at
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import (
    LARGEST,
    SMALLEST,
    Array,
    all_finite,
    as_number,
    as_whole,
    chunks,
    exact_sum,
    read_only,
    total,
)
from freshopt.separable.conditional_hull import ConditionalHull


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """Tolerance, certificate and warm start of one solve.

    - `tolerance`: Relative duality gap above which the status is inaccurate.
    - `certify`: False leaves the certificate out and computes the value alone.
    - `warm_start`: A dual variable (price) of the bandwidth to start from.
    - `bandwidth_used`: The bandwidth that the same sources use at that price, if that is known.
    - `multipliers` (m,): Dual variables of the rows of declared constraints to start from.
    - `absolute_tolerance`: Duality gap, in the objective's units, that is as good as `tolerance`; 0 for none.
    """

    tolerance: float = 1e-6
    certify: bool = True
    warm_start: float | None = None
    bandwidth_used: float | None = None
    multipliers: Array | None = None
    absolute_tolerance: float = 0.0

    def __post_init__(self) -> None:
        for name, remedy in (
            ("tolerance", "Pass a relative gap >= 0, such as 1e-6."),
            ("absolute_tolerance", "Pass a gap >= 0 in the objective's units, or 0 for none."),
        ):
            given = getattr(self, name)
            if not as_number(given, name, remedy) >= 0.0:
                raise SourceDataError(f"{name} is {given}. {remedy}")

    def met_by(self, proof: Certificate) -> bool:
        """Return whether a certificate proves optimality to either tolerance."""
        return proof.confirms(self.tolerance, self.absolute_tolerance)


DEFAULT = SolveOptions()
LONGEST_SEARCH = 10**12  # iterations; no computer makes more
Method: TypeAlias = Callable[[Problem, float | None], Answer]


@runtime_checkable
class Solver(Protocol):
    """Protocol of solvers: a frozen record of an algorithm's settings.

    A solver of problems with constraints besides bandwidth, bounds and host limits carries
    ``declared_constraints = True``, one of problems whose fetches cost what they bring (a function of the
    bandwidth used, by its numerics alone) ``conditional_fetches = True``.
    A solver may also carry ``baseline = True``: it does not aim at the optimum; or ``sampled = True``: it
    learns from a finite number of samples. Then a gap is its result and not its failure; for `cross_check` to
    judge it by repeated runs it needs `replica` and `enough` as well (`freshopt.sampled_gap.SampledSolver`).
    """

    def supports(self, problem: Problem) -> str | None:
        """Return None, or why this solver does not apply."""

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Return a certified solution; failures and refusals are a status."""


def check_solver(solver: Solver | None) -> None:
    """Raise SolverRefusedError unless a setting is a solver instance, or None.

    Examples
    --------
    >>> check_solver(None)
    """
    if solver is not None and (isinstance(solver, type) or not isinstance(solver, Solver)):
        raise SolverRefusedError(
            f"{shortened(repr(solver))} is not a solver instance. "
            "Pass one, such as freshopt.solvers.WaterFilling()."
        )


def check_search(tolerance: float, limit: int) -> None:
    """Raise SourceDataError unless tolerance and iteration limit are valid.

    Examples
    --------
    >>> check_search(1e-6, 0)
    Traceback (most recent call last):
    freshopt.errors.SourceDataError: limit is 0. Pass a whole number from 1 to 1000000000000.
    """
    if not 0.0 <= tolerance < math.inf:
        raise SourceDataError(f"tolerance is {tolerance!r}. Pass a number >= 0, such as 1e-6.")
    as_whole(limit, "limit", 1, LONGEST_SEARCH)


_EXEMPT = {
    "": "",
    "baseline": "A baseline, not meant to be optimal: ",
    "sampled": "Learnt from a finite number of samples: ",
}


def gap_is_expected(solver: object) -> str:
    """Return why a duality gap is not a solver's failure.

    A "baseline" does not aim at the optimum, a "sampled" solver learns from a finite number of samples; ""
    for all others.
    """
    return next((kind for kind in _EXEMPT if kind and getattr(solver, kind, False)), "")


def certified_solution(
    solver: Solver, problem: Problem, options: SolveOptions, method: Method, prove: Prover | None = None
) -> Solution:
    """Run a solver's method, certify its answer and set its status.

    The method is called as ``method(problem, start)`` and timed.

    What overflows on the way warns of nothing: it ends in the certificate, or in a status.

    - `method`: Returns an `Answer`; may raise InfeasibleProblemError.
    - `prove`: Makes the sums of the method's rates at a price where these are, on a device. Without it, or
      where they prove too little, the certificate is made here.
    """
    begun = time.perf_counter()
    reason = refusal(solver, problem)
    if reason is not None:
        answer = Answer(
            None, status=Status.REFUSED, note=f"{type(solver).__name__} does not apply: {reason}."
        )
    else:
        try:
            with np.errstate(all="ignore"):
                answer = method(problem, options.warm_start)
        except InfeasibleProblemError as error:
            answer = Answer(None, status=Status.INFEASIBLE, note=str(error), conflict=error.conflict)
    seconds = time.perf_counter() - begun
    # One compiled pass needs no check of the rates before.
    proof, evaluated = None, None
    if problem.program is None and answer.rates is not None and not options.certify:
        with np.errstate(all="ignore"):
            evaluated = proved_gap(problem, answer.rates, 0.0, np.zeros(len(problem.hosts)), prove)
    elif problem.program is None and answer.rates is not None and answer.price is not None:
        proof = certify_in_one_pass(problem, answer.rates, answer.price, answer.host_prices, prove)
    checked = proof is not None or evaluated is not None
    if not checked and answer.rates is not None and not all_finite(answer.rates):
        note = f"{type(solver).__name__} returned rates that are not finite."
        answer = Answer(None, iterations=answer.iterations, status=Status.FAILED, note=note)
    if answer.rates is None:
        return _uncertified(solver, problem, answer, seconds)
    if not options.certify:
        return _uncertified(solver, problem, answer, seconds, evaluated)
    if problem.program is not None:
        with np.errstate(all="ignore"):
            proof = certify_rows(problem, problem.program, answer.rates, answer.multipliers, answer.path)
    elif proof is None:
        proof = certify(problem, answer.rates, answer.price, answer.host_prices)
    if problem.program is None and proof.reason and math.isfinite(proof.gap) and not options.met_by(proof):
        # A price for a limit and rounding is a poor one where rounding is much of what min_rate leaves free.
        searched = certify(problem, answer.rates)
        proof = min(proof, searched, key=lambda one: one.beyond_rounding)
    status, note = _status(solver, answer, proof, options)
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
        multipliers=proof.multipliers,
    )


def run_solver(solver: Solver, problem: Problem, options: SolveOptions) -> Solution:
    """Return a solver's certified solution.

    Where fetches cost what they bring, the problem is solved and proved over the bandwidth that each source
    uses. Prices and duality gap are the same; what is left is to say which rates use so much, to a few ulp.
    """
    twin = problem.per_bandwidth
    if twin is None:
        return solver.solve(problem, options)
    solution = solver.solve(twin, options)
    if isinstance(twin.numerics, ConditionalHull) and all_finite(solution.rates):
        solution = _off_segments(solver, solution, twin.numerics, options)
    rates, certificate = solution.rates, solution.certificate
    if all_finite(rates):
        rates = read_only(rates_of_bandwidth(problem, rates))
    certificate = None if certificate is None else replace(certificate, rates=rates)
    return replace(solution, problem=problem, rates=rates, certificate=certificate)


def _off_segments(
    solver: Solver, solution: Solution, hull: ConditionalHull, options: SolveOptions
) -> Solution:
    """Return a solution of a hull's problem, rounded off its segments."""
    problem, found, spent = solution.problem, [solution.rates], solution.seconds
    for arcs in problems_on_arcs(problem, hull, solution.rates, solution.host_prices):
        tried = solver.solve(arcs, replace(options, certify=False, warm_start=None, bandwidth_used=None))
        spent += tried.seconds
        if all_finite(tried.rates):
            found.append(tried.rates)
    if len(found) == 1:
        return solution
    best = min(found, key=lambda used: total(hull.curve.cost(used)))
    value = problem.objective.value_from_cost(total(hull.curve.cost(best)), problem.sources)
    chosen = replace(solution, rates=best, value=value, seconds=spent)
    if not options.certify:
        return chosen
    proof = certify(problem, best, solution.price, solution.host_prices)
    note = "" if options.met_by(proof) else NOT_CONVEX
    answer = Answer(best, status=None if solution.status is Status.INACCURATE else solution.status, note=note)
    status, note = _status(solver, answer, proof, options)
    return replace(chosen, rates=proof.rates, value=proof.value, certificate=proof, status=status, note=note)


def refusal(solver: Solver, problem: Problem) -> str | None:
    """Return why a solver does not apply, or None.

    Whether it carries declared constraints, and fetches that cost what they bring, is asked first: without
    them in mind, it may misread the problem.
    """
    if problem.per_bandwidth is not None:
        return UNKNOWN
    if isinstance(problem.objective, PerBandwidth) and not getattr(solver, "conditional_fetches", False):
        return "it knows no fetches that cost more where the source has changed; use WaterFilling"
    if problem.program is None or getattr(solver, "declared_constraints", False):
        return solver.supports(problem)
    return (
        "it carries bandwidth, bounds and host limits, and no other constraints; use InteriorPoint or Conic"
    )


def _status(solver: Solver, answer: Answer, proof: Certificate, options: SolveOptions) -> tuple[Status, str]:
    """Return the status that the certificate supports, and a sentence."""
    # That something is optimal is for the proof to say, also where a solver stopped short of its own aim.
    unsettled = (None, Status.OPTIMAL, Status.ITERATION_LIMIT)
    if answer.status not in unsettled or (answer.status in unsettled[2:] and not options.met_by(proof)):
        return answer.status, answer.note
    if options.met_by(proof):
        return Status.OPTIMAL, " ".join(part for part in (proof.reason, answer.note) if part)
    if not math.isfinite(proof.gap):
        return Status.INACCURATE, f"Nothing is proved: {proof.reason}"
    why = _EXEMPT[gap_is_expected(solver)]
    gap, most = proof.relative_gap, options.tolerance
    shortfall = f"{why}the certified relative gap {gap:.2g} exceeds the tolerance {most:g}."
    return Status.INACCURATE, " ".join(part for part in (shortfall, proof.reason, answer.note) if part)


def _uncertified(
    solver: Solver, problem: Problem, answer: Answer, seconds: float, evaluated: ProvedGap | None = None
) -> Solution:
    """Return an answer, if there is one, without a certificate.

    A missing value costs one pass.
    """
    given, known, status = answer.rates, answer.multipliers, Status.OPTIMAL
    prices: tuple[float, Mapping[Any, float]]
    prices = math.nan, problem.hosts.named(np.full(len(problem.hosts), math.nan))
    if given is None:
        rates, value, status = np.full(len(problem.sources), np.nan), math.nan, Status.FAILED
    elif problem.program is None:
        rates, value = _evaluated(problem, given, evaluated)
        status = Status.INACCURATE if gap_is_expected(solver) else Status.OPTIMAL
        price = math.nan if answer.price is None else answer.price
        prices = price, answer.host_prices or problem.hosts.named(np.zeros(len(problem.hosts)))
    else:
        rates, value = given, math.nan
        if problem.numerics is not None:
            cost = total(problem.numerics.cost(rates))
            value = value_at(problem.objective, problem.numerics, problem.sources, rates, cost)
            value += usage_value(problem, rates)
        if known is None:
            status = Status.INACCURATE
        else:
            prices = short_form(problem, known)
    return Solution(
        problem=problem,
        status=answer.status or status,
        rates=rates,
        value=value,
        price=prices[0],
        host_prices=prices[1],
        certificate=UNPROVED,
        iterations=answer.iterations,
        seconds=seconds,
        solver=solver,
        note=answer.note,
        multipliers=None if problem.program is None else known,
        conflict=answer.conflict,
    )


def _evaluated(problem: Problem, given: Array, evaluated: ProvedGap | None) -> tuple[Array, float]:
    """Return feasible rates, and their value if it is known."""
    if evaluated is not None:
        return given, evaluated.gap.value
    with np.errstate(over="ignore"):
        rates, numerics = repair(problem, given)[0], problem.numerics
    if numerics is None:
        return rates, math.nan
    cost = exact_sum(float(np.sum(numerics.take(part).cost(rates[part]))) for part in chunks(len(rates)))
    return rates, value_at(problem.objective, numerics, problem.sources, rates, cost)


def options_from(
    problem: Problem,
    warm_start: float | Solution | None,
    tolerance: float,
    *,
    certify: bool = True,
    absolute_tolerance: float = 0.0,
) -> SolveOptions:
    """Return options with a price or an earlier solution to start from."""
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
    return SolveOptions(tolerance, certify, price, used, multipliers, absolute_tolerance)


def _bandwidth_used(earlier: Solution, problem: Problem) -> float | None:
    """Return the bandwidth used at the price of the same problem's solution."""
    before = earlier.problem.per_bandwidth or earlier.problem
    problem = problem.per_bandwidth or problem
    same = before.numerics is problem.numerics and before.lower is problem.lower and not len(problem.hosts)
    return before.bandwidth if same and earlier.price > 0.0 and before.upper is problem.upper else None


def _multipliers(earlier: Solution, problem: Problem) -> Array | None:
    """Return an earlier solution's multipliers, if its rows have the same labels."""
    before, now = earlier.problem.program, problem.program
    same = before is not None and now is not None and before.rows.labels == now.rows.labels
    return earlier.multipliers if same else None


class Outcome(Protocol):
    """How a solve ended, wherever its rates lie."""

    @property
    def status(self) -> Status:
        """Of the solve."""
        ...

    @property
    def note(self) -> str:
        """What a user should know."""
        ...

    @property
    def conflict(self) -> object:
        """Constraints that exclude each other, if any."""
        ...

    @property
    def solver(self) -> object:
        """Its settings."""
        ...


def raise_unless_good(solution: Outcome, where: str = "") -> None:
    """Raise the error, after `where`, of a solution that is not optimal."""
    if solution.status is Status.OPTIMAL:
        return
    if solution.status is Status.REFUSED:
        raise SolverRefusedError(f"{where}{solution.note}")
    if solution.status is Status.INFEASIBLE:
        reason = solution.note if solution.conflict is None else str(solution.conflict)
        raise InfeasibleProblemError(f"{where}{reason}", solution.conflict)
    if solution.status is Status.INACCURATE and gap_is_expected(solution.solver):
        return
    raise CertificateError(
        f"{where}{solution.solver} ended {solution.status.value}. {solution.note} Solve with another solver, "
        f"or pass throw=False to have the solution as it is.",
        solution,
    )
