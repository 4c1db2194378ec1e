"""`cross_check`: several solvers on one problem, side by side, each judged by its own certificate."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freshopt.model import Problem
from freshopt.result import Solution, Status
from freshopt.verdict import Solver, Terms

if TYPE_CHECKING:
    import polars

COLUMNS = ("solver", "status", "value", "relative gap", "rate difference", "seconds", "verdict")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Agreement:
    """A table of solutions of one problem.

    Attributes
    ----------
    problem : Problem
    solutions : tuple of Solution
        In the order of the solvers.
    tolerance : float
        Relative gap up to which a solution counts as optimal.
    """

    problem: Problem
    solutions: tuple[Solution, ...]
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether at least one solver answered and every one that claims the optimum is proved to have it.

        Refusals and baselines do not count against it; failures do.
        """
        judged = self._judged()
        return bool(judged) and all(s.status is Status.OPTIMAL for s in judged)

    def _judged(self) -> list[Solution]:
        """Return the solutions that aim at the optimum and were not refused."""
        return [s for s in self.solutions if s.status is not Status.REFUSED and not _is_baseline(s)]

    @property
    def best(self) -> Solution | None:
        """The solution with the smallest certified gap, or None if there is no rate at all."""
        answered = [s for s in self.solutions if s.certificate is not None]
        return min(answered, key=lambda s: s.certificate.gap if s.certificate else math.inf, default=None)

    def rate_differences(self) -> list[float]:
        """Return for each solution the largest |rate − best rate|/max(best rate, B/n): 0 for the best one."""
        best = self.best
        if best is None:
            return [math.nan] * len(self.solutions)
        scale = np.maximum(best.rates, self.problem.bandwidth / len(best.rates))
        return [
            float(np.max(np.abs(s.rates - best.rates) / scale)) if s.certificate else math.nan
            for s in self.solutions
        ]

    def to_frame(self) -> polars.DataFrame:
        """Return a polars table with the columns of `COLUMNS`; null where a solver did not answer."""
        import polars

        rows = [
            {
                "solver": str(solution.solver),
                "status": solution.status.value,
                "value": None if math.isnan(solution.value) else solution.value,
                "relative gap": solution.certificate.relative_gap if solution.certificate else None,
                "rate difference": None if math.isnan(difference) else difference,
                "seconds": solution.seconds,
                "verdict": _verdict(solution),
            }
            for solution, difference in zip(self.solutions, self.rate_differences(), strict=True)
        ]
        kinds = dict.fromkeys(COLUMNS[2:6], polars.Float64)
        return polars.DataFrame(rows, schema_overrides=kinds)

    def _cells(self) -> list[tuple[str, ...]]:
        """Return the table as text, a row per solver."""
        cells: list[tuple[str, ...]] = []
        for solution, difference in zip(self.solutions, self.rate_differences(), strict=True):
            proof = solution.certificate
            cells.append(
                (
                    str(solution.solver),
                    solution.status.value,
                    "–" if math.isnan(solution.value) else f"{solution.value:.9g}",
                    f"{proof.relative_gap:.1e}" if proof else "–",
                    "–" if math.isnan(difference) else f"{difference:.1e}",
                    f"{solution.seconds:.3f}",
                    _verdict(solution),
                )
            )
        return cells

    def __repr__(self) -> str:
        """Return the table in aligned columns, with a closing line."""
        rows = [COLUMNS, *self._cells()]
        widths = [max(len(row[k]) for row in rows) for k in range(len(COLUMNS))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        ]
        closing = "The solvers agree." if self.agrees else "The solvers do NOT agree."
        if not self._judged():
            closing = "No solver that aims at the optimum applies."
        return "\n".join([repr(self.problem), *(line.rstrip() for line in lines), closing])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self._cells()
        )
        caption = f"<caption>{html.escape(repr(self.problem))}</caption>"
        return f"<table>{caption}<tr>{head}</tr>{body}</table>"


def cross_check(problem: Problem, solvers: Iterable[Solver], *, tolerance: float = 1e-6) -> Agreement:
    """Solve a problem with each solver and compare what is proved.

    Parameters
    ----------
    problem : Problem
    solvers : iterable of Solver
    tolerance : float
        Relative gap up to which an answer counts as optimal.

    Returns
    -------
    Agreement
        ``.agrees``, a table by ``repr`` or in a notebook, and ``.to_frame()``.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.cross_check(problem, [fo.solvers.WaterFilling(), fo.solvers.ClosedForm()]).agrees
    True
    """
    terms = Terms(tolerance=tolerance)
    return Agreement(problem, tuple(solver.solve(problem, terms) for solver in solvers), tolerance)


def _is_baseline(solution: Solution) -> bool:
    return bool(getattr(solution.solver, "baseline", False))


def _verdict(solution: Solution) -> str:
    """Return one or two words on a solution."""
    if solution.status is Status.OPTIMAL:
        return "proved optimal"
    if solution.status is Status.REFUSED:
        return "does not apply"
    if _is_baseline(solution):
        return "baseline"
    return "NOT optimal" if solution.certificate else "NO ANSWER"
