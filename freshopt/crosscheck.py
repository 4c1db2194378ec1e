"""`cross_check`: several solvers on one problem, each certified.

A certificate's dual bound holds for all feasible rates, so the solvers also check each other: a primal value
that is better than another solver's dual bound means that one of the two is wrong (weak duality).

A plain function from a problem to rates stands beside solvers; its rates alone count.

A solver that learns from samples proves nothing to six digits. It is run with other seeds and fewer samples,
and judged by where its gap tends to: `freshopt.sampled_gap` has the rule.
"""

from __future__ import annotations

import html
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from freshopt.agreement_cells import COLUMNS, aligned, gap_text, html_cell, verdict
from freshopt.certificates.certificate import Certificate, certify
from freshopt.certificates.solution import UNPROVED, Solution, Status
from freshopt.certificates.solver_protocol import SolveOptions, Solver, gap_is_expected, run_solver
from freshopt.errors import FreshoptError, SolverRefusedError, expect
from freshopt.heavy import polars
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.renamed import keywords
from freshopt.sampled_gap import AGREES, SampledGap, SampledSolver, sampled_gap

# Returns rates, or anything with `.rates`, which are certified and not trusted.
Function: TypeAlias = Callable[[Problem], Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Agreement:
    """Solutions of one problem by several solvers, compared.

    Attributes
    ----------
    problem : Problem
    solutions : tuple of Solution
        In the order of the solvers.
    tolerance : float
        Relative duality gap up to which a solution counts as optimal.
    names : tuple of str
        What the solvers are called in the table.
    samples : tuple of SampledGap or None
        Of the solvers that learn from samples, the gaps of their repeated runs. Status, value and seconds in
        the table are those of the first of them.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.5, 2.0], names=["a", "b"])
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(), sources, bandwidth=3.0)
    >>> found = fo.cross_check(problem, [fo.solvers.WaterFilling(), fo.solvers.SeparableNewton()])
    >>> found.agrees
    True
    """

    problem: Problem
    solutions: tuple[Solution, ...]
    tolerance: float
    names: tuple[str, ...]
    samples: tuple[SampledGap | None, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether all judged solvers are proved optimal without contradiction.

        There must be one that is judged by its certificate.
        Refusals and baselines do not count against it; failures do, and so do solvers that learn from samples
        unless these show that they tend to the optimum.
        """
        judged = self.judged()
        optimal = all(self.solutions[k].status is Status.OPTIMAL for k in judged)
        return bool(judged) and optimal and not self.contradictions() and not self.unconfirmed()

    @property
    def proved(self) -> bool:
        """Whether some solver is proved optimal, and none contradict."""
        return any(s.status is Status.OPTIMAL for s in self.solutions) and not self.contradictions()

    def judged(self) -> list[int]:
        """Return the positions of solvers that aim at the optimum.

        Those that do not apply are left out.
        """
        return [
            k
            for k, s in enumerate(self.solutions)
            if s.status is not Status.REFUSED and not gap_is_expected(s.solver)
        ]

    def unconfirmed(self) -> list[int]:
        """Return the positions of sampled solvers not shown to agree."""
        return [k for k, found in enumerate(self.samples) if found is not None and found.verdict != AGREES]

    def short(self) -> list[int]:
        """Return the positions of judged solvers that are not proved optimal."""
        return [k for k in self.judged() if self.solutions[k].status is not Status.OPTIMAL]

    def contradictions(self) -> list[str]:
        """Return the violations of weak duality between solvers.

        One sentence for each value that is better than another solver's dual bound.
        There are none unless a certificate, or the objective behind it, is wrong.
        """
        sign = 1.0 if self.problem.objective.sense == "minimise" else -1.0
        proofs = [(name, s.certificate) for name, s in zip(self.names, self.solutions, strict=True)]
        found = []
        for one, proof in proofs:
            for other, bound in proofs:
                if proof is None or bound is None or not math.isfinite(bound.bound):
                    continue
                scale = abs(proof.value) + abs(bound.bound) + _paid(bound, self.problem)
                rounding = FEW_ULP * (abs(bound.value) + abs(bound.gap))  # of their difference, the bound
                if sign * (bound.bound - proof.value) > self.tolerance * scale + rounding:
                    found.append(
                        f"{one} has the value {proof.value:.9g}, better than the bound {bound.bound:.9g} "
                        f"that {other} proves."
                    )
        return found

    @property
    def best(self) -> Solution | None:
        """Solution with the smallest certified duality gap, or None."""
        answered = [s for s in self.solutions if s.certificate is not None]
        return min(answered, key=lambda s: s.certificate.gap if s.certificate else math.inf, default=None)

    def rate_differences(self) -> list[float]:
        """Return each solution's largest relative difference from the best rates.

        It is the largest ``|rate − best rate|/max(best rate, B/n)``; without a bandwidth the mean rate stands
        for B/n.
        """
        best = self.best
        if best is None:
            return [math.nan] * len(self.solutions)
        even = self.problem.bandwidth / len(best.rates)
        if not math.isfinite(even):
            even = float(np.mean(best.rates))
        scale = np.maximum(best.rates, max(even, np.finfo(np.float64).tiny))
        return [
            float(np.max(np.abs(s.rates - best.rates) / scale)) if s.certificate else math.nan
            for s in self.solutions
        ]

    def to_frame(self) -> polars.DataFrame:
        """Return a polars table of the solutions.

        It has the columns of `COLUMNS` and "note"; null where there is no answer.
        """
        rows = [
            {
                "solver": name,
                "status": solution.status.value,
                "value": None if math.isnan(solution.value) else solution.value,
                "relative gap": solution.certificate.relative_gap if solution.certificate else None,
                "largest rate difference": None if math.isnan(difference) else difference,
                "seconds": solution.seconds,
                "verdict": verdict(solution, sample),
                "note": solution.note if sample is None else f"{solution.note} {sample}.",
            }
            for name, solution, difference, sample in self._rows()
        ]
        kinds = dict.fromkeys(COLUMNS[2:6], polars.Float64)
        return polars.DataFrame(rows, schema_overrides=kinds)

    def closing(self) -> str:
        """Return the outcome in one line."""
        judged, short = self.judged(), self.short()
        if self.contradictions():
            return f"The solvers CONTRADICT each other: {' '.join(self.contradictions())}"
        sampled = self._sampled()
        if not judged:
            none = (
                "No solver is judged by its certificate."
                if sampled
                else "No solver that aims at the optimum applies."
            )
            return " ".join([none, *sampled])
        if not short:
            many = f"{len(judged)} of {len(judged)} prove" if len(judged) > 1 else "one proves"
            agree = "The solvers agree: " if self.agrees else ""
            proved = f"{agree}{many} the optimum to a relative gap of {self.tolerance:g}."
            return " ".join([proved[0].upper() + proved[1:], *sampled])
        names = ", ".join(self.names[k] for k in short)
        proved = (
            f"The solvers do NOT agree: {len(judged) - len(short)} of {len(judged)} prove the optimum to a "
            f"relative gap of {self.tolerance:g}; not so {names}."
        )
        return " ".join([proved, *sampled])

    def _sampled(self) -> list[str]:
        """Return a sentence on each solver that learns from samples."""
        pairs = zip(self.names, self.samples, strict=False)
        return [f"{name}: {found.verdict} ({found})." for name, found in pairs if found is not None]

    def _rows(self) -> list[tuple[str, Solution, float, SampledGap | None]]:
        """Return names, solutions, rate differences and samples, by solver."""
        samples = self.samples or (None,) * len(self.solutions)
        return list(zip(self.names, self.solutions, self.rate_differences(), samples, strict=True))

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table as text, a row per answer or failure."""
        cells: list[tuple[str, ...]] = []
        for name, solution, difference, sample in self._rows():
            if solution.status is Status.REFUSED:
                continue
            proof = solution.certificate
            cells.append(
                (
                    name,
                    solution.status.value,
                    "–" if math.isnan(solution.value) else f"{solution.value:.9g}",
                    "–" if proof is None else gap_text(proof.relative_gap),
                    "–" if math.isnan(difference) else gap_text(difference),
                    f"{solution.seconds:.3f}",
                    verdict(solution, sample),
                )
            )
        return cells

    def refused(self) -> list[tuple[str, str]]:
        """Return the solvers that do not apply, with their reasons."""
        pairs = zip(self.names, self.solutions, strict=True)
        return [(name, s.note) for name, s in pairs if s.status is Status.REFUSED]

    def unanswered(self) -> list[tuple[str, str]]:
        """Return the solvers ended at a time limit, with their notes."""
        pairs = zip(self.names, self.solutions, strict=True)
        return [(name, s.note) for name, s in pairs if s.status is Status.TIME_LIMIT]

    def __repr__(self) -> str:
        refused = ", ".join(name for name, _ in self.refused())
        lines = [repr(self.problem), *aligned([COLUMNS, *self.cells()], numbers=range(2, 6))]
        lines += [f"{name}: {why}" for name, why in self.unanswered()]
        return "\n".join([*lines, *([f"not applicable: {refused}"] if refused else []), self.closing()])

    def _repr_html_(self) -> str:
        """Return the table as HTML, reasons on hovering."""
        head = "".join(html_cell("th", name, k) for k, name in enumerate(COLUMNS))
        body = "".join(
            "<tr>" + "".join(html_cell("td", cell, k) for k, cell in enumerate(row)) + "</tr>"
            for row in self.cells()
        )
        caption = f'<caption style="text-align:left">{html.escape(repr(self.problem))}</caption>'
        refused = ", ".join(
            f'<span title="{html.escape(why)}">{html.escape(name)}</span>' for name, why in self.refused()
        )
        below = f"<div>not applicable: {refused}</div>" if refused else ""
        table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div>{table}{below}<div>{html.escape(self.closing())}</div></div>"


@keywords()
def cross_check(
    problem: Problem,
    solvers: Iterable[Solver | Function] | Mapping[str, Solver | Function],
    *,
    tolerance: float = 1e-6,
    announce: Callable[[str], None] = lambda _: None,
) -> Agreement:
    """Solve a problem with each solver and compare the certificates.

    Parameters
    ----------
    problem : Problem
    solvers : iterable of Solver or function, or mapping of names to them
        A function is ``solve(problem) -> rates``, array_like of shape (n,), or anything with ``.rates``. It
        declines a problem by raising `SolverRefusedError`. What is infeasible by more than `tolerance` is not
        optimal; errors that are not freshopt's pass.
    tolerance : float
        Relative duality gap up to which an answer counts as optimal. A solver that learns from samples is run
        eight times, and judged by where its gaps tend to.
    announce : callable, optional
        Called with the name of each solver before it runs.

    Returns
    -------
    Agreement
        ``.agrees``, a table by ``repr`` or in a notebook, and ``.to_frame()``.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.cross_check(problem, [fo.solvers.WaterFilling(), fo.solvers.ClosedForm()]).agrees
    True

    >>> def even(problem):
    ...     return [problem.bandwidth / len(problem.sources)] * len(problem.sources)
    >>> fo.cross_check(problem, [fo.solvers.WaterFilling(), even]).short()
    [1]
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    options = SolveOptions(tolerance=tolerance)
    pairs = list(solvers.items()) if isinstance(solvers, Mapping) else [(_name(s), s) for s in solvers]
    for name, solver in pairs:
        if isinstance(solver, type) or not (isinstance(solver, Solver) or callable(solver)):
            raise SolverRefusedError(
                f"{name} is not a solver instance. Pass one, such as freshopt.solvers.WaterFilling(), or a "
                "function from a problem to rates."
            )
    solutions: list[Solution] = []
    samples: list[SampledGap | None] = []
    for name, solver in pairs:
        announce(name)
        solutions.append(_solve(solver, problem, options))
        samples.append(_sample(solver, solutions[-1], options))
    names = tuple(name for name, _ in pairs)
    return Agreement(problem, tuple(solutions), tolerance, names, tuple(samples))


def _name(solver: Solver | Function) -> str:
    """Return a function's name, or a solver's settings."""
    return str(solver if isinstance(solver, Solver) else getattr(solver, "__name__", solver))


def _sample(solver: Solver | Function, solution: Solution, options: SolveOptions) -> SampledGap | None:
    """Return gaps of a sampled solver's runs, or None where superfluous."""
    sampled = solution.certificate is not None and gap_is_expected(solution.solver) == "sampled"
    if not sampled or solution.status is Status.OPTIMAL or not isinstance(solver, SampledSolver):
        return None
    return sampled_gap(solver, solution, solution.problem, options)


def _solve(solver: Solver | Function, problem: Problem, options: SolveOptions) -> Solution:
    """Return the solver's solution; an error of freshopt becomes FAILED."""
    begun = time.perf_counter()
    try:
        if isinstance(solver, Solver):
            return run_solver(solver, problem, options)
        return _called(solver, problem, options)
    except FreshoptError as error:
        declined = isinstance(error, SolverRefusedError) and not isinstance(solver, Solver)
        return Solution(
            problem=problem,
            status=Status.REFUSED if declined else Status.FAILED,
            rates=np.full(len(problem.sources), np.nan),
            value=math.nan,
            price=math.nan,
            host_prices=problem.hosts.named(np.full(len(problem.hosts), math.nan)),
            certificate=UNPROVED,
            iterations=0,
            seconds=time.perf_counter() - begun,
            solver=solver,
            note=str(error),
        )


def _called(function: Function, problem: Problem, options: SolveOptions) -> Solution:
    """Return a function's rates, certified."""
    begun = time.perf_counter()
    answer = function(problem)
    seconds = time.perf_counter() - begun
    rates: Any = getattr(answer, "rates", answer)
    proof, note = certify(problem, rates), ""
    if proof.infeasibility > options.tolerance:
        note = f"the rates are infeasible by {proof.infeasibility:.2g}, relative to a bound or limit."
    elif not proof.confirms(options.tolerance):
        gap = proof.relative_gap
        note = f"the certified relative gap {gap:.2g} exceeds the tolerance {options.tolerance:g}."
    return Solution(
        problem=problem,
        status=Status.INACCURATE if note else Status.OPTIMAL,
        rates=proof.rates,
        value=proof.value,
        price=proof.price,
        host_prices=proof.host_prices,
        certificate=proof,
        iterations=1,
        seconds=seconds,
        solver=function,
        note=" ".join(part for part in (note, proof.reason) if part),
        multipliers=proof.multipliers,
    )


def _paid(bound: Certificate, problem: Problem) -> float:
    """Return what the limits cost at a certificate's prices, Σ y·|b|."""
    rows = bound.rows
    if rows is not None:
        return float(np.sum(rows.price * np.abs(rows.limit), where=rows.price > 0.0))
    return bound.price * problem.bandwidth
