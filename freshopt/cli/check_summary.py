"""Results of `freshopt check` in words, and as a page of HTML.

A line per problem, a row per solver, and an outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from freshopt.agreement_cells import COLUMNS, aligned, gap_text
from freshopt.certificates.solution import Status
from freshopt.certificates.solver_protocol import gap_is_expected
from freshopt.crosscheck import Agreement
from freshopt.report.document import Page, render
from freshopt.report.finding import Column, Table
from freshopt.report.markup import Html, escaped
from freshopt.sampled_gap import DISAGREES
from freshopt.terminal.console import count

HEAD = ("solver", "problems", "proved", "short", "largest relative gap", "seconds", "falls short most on")


class Checked(NamedTuple):
    """A problem and the agreement of the solvers on it."""

    objective: str
    refresh: str
    case: str
    agreement: Agreement

    @property
    def label(self) -> str:
        """Objective, discipline and case."""
        return f"{self.objective} {self.refresh}, {self.case}"

    def cells(self) -> tuple[str, ...]:
        """Return the problem, its proved answers and its shortfalls."""
        agreement = self.agreement
        judged, short = agreement.judged(), agreement.short()
        text = (
            f"{len(judged) - len(short)} of {len(judged)} proved"
            if judged
            else "only baselines, which do not aim at the optimum"
        )
        if short:
            text += "; " + ", ".join(f"{agreement.names[k]} {shortfall(agreement, k)}" for k in short)
        if agreement.contradictions():
            text += "; CONTRADICTION"
        sources = str(len(agreement.problem.sources))
        return self.objective, self.refresh, self.case, sources, text


class Skipped(NamedTuple):
    """A problem that does not exist, and why."""

    objective: str
    refresh: str
    case: str
    reason: str


@dataclass(frozen=True, slots=True)
class Digest:
    """All that a run found.

    - `named`: The solvers that the user asked for by name; each of them must prove what it applies to.
    """

    named: tuple[str, ...]
    checked: list[Checked] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def passed(self) -> bool:
        """Return whether every optimum is proved, without contradiction.

        Solvers that were asked for by name must each prove it, or agree with it if they learn from samples.
        """
        if self.named:
            judged = any(
                checked.agreement.judged() or any(checked.agreement.samples) for checked in self.checked
            )
            useless = [name for name in self.named if name in self.idle()] or not judged
            short = any(
                checked.agreement.short() or checked.agreement.unconfirmed() for checked in self.checked
            )
            contradictory = any(checked.agreement.contradictions() for checked in self.checked)
            return not (useless or short or contradictory)
        return all(checked.agreement.proved for checked in self.checked)

    def solvers(self) -> list[tuple[str, ...]]:
        """Return a row per applicable solver, baselines left out."""
        names = dict.fromkeys(name for checked in self.checked for name in checked.agreement.names)
        rows: list[tuple[str, ...]] = []
        for name in names:
            runs = self._runs(name)
            if not runs:
                continue
            short = [(checked, k) for checked, k in runs if k in checked.agreement.short()]
            worst = max(short, key=lambda run: _gap(run[0].agreement, run[1]), default=None)
            gaps = [_gap(checked.agreement, k) for checked, k in runs]
            seconds = sum(checked.agreement.solutions[k].seconds for checked, k in runs)
            rows.append(
                (
                    name,
                    str(len(runs)),
                    str(len(runs) - len(short)),
                    str(len(short)),
                    "–" if max(gaps) == math.inf else gap_text(max(gaps)),
                    f"{seconds:.1f}",
                    worst[0].label if worst else "",
                )
            )
        return rows

    def summary(self) -> list[str]:
        """Return the rows per solver as aligned lines."""
        rows = self.solvers()
        return aligned([HEAD, *rows], numbers=range(1, 6)) if rows else []

    def idle(self) -> list[str]:
        """Return the solvers that did not apply to any problem."""
        names = dict.fromkeys(name for checked in self.checked for name in checked.agreement.names)
        return [name for name in names if not self._runs(name) and not self._is_exempt(name)]

    def skips(self) -> list[str]:
        """Return the skipped problems, a line per reason."""
        reasons: dict[str, list[str]] = {}
        for objective, refresh, case, reason in self.skipped:
            reasons.setdefault(reason, []).append(f"{objective} {refresh}, {case}")
        return [f"{'; '.join(labels)}: {reason}" for reason, labels in reasons.items()]

    def outcome(self) -> str:
        """Return the outcome in two or three sentences."""
        problems = count(len(self.checked), "problem")
        contradictions = [text for checked in self.checked for text in checked.agreement.contradictions()]
        if contradictions:
            return f"The solvers CONTRADICT each other on {problems}: {contradictions[0]}"
        open_ones = [checked.label for checked in self.checked if not checked.agreement.proved]
        proved = len(self.checked) - len(open_ones)
        fell = [checked.agreement.solutions[k] for checked in self.checked for k in checked.agreement.short()]
        short = sum(solution.certificate is not None for solution in fell)
        silent = len(fell) - short
        every = f"all {problems}" if proved > 1 else "the problem"
        text = f"The optimum of {f'{proved:,} of {problems}' if open_ones else every} is proved"
        if open_ones:
            text += f", but not of {open_ones[0]}"
            text += f" and {len(open_ones) - 1} more" if len(open_ones) > 1 else ""
        else:
            text += ", and no solver contradicts another"
        if short and not self.named:
            text += f". {count(short, 'answer')} fell short of it, as a certified relative gap shows"
        elif short:
            text += f". {count(short, 'answer')} fell short of it"
        if silent:
            text += f". {count(silent, 'solver')} gave no answer"
        missing = [name for name in self.named if name in self.idle()]
        if missing:
            text += f". Not applicable to any of them: {', '.join(missing)}"
        return f"{text}."

    def _runs(self, name: str) -> list[tuple[Checked, int]]:
        """Return the problems that a solver should answer, and its position there."""
        return [
            (checked, k)
            for checked in self.checked
            for k in checked.agreement.judged()
            if checked.agreement.names[k] == name
        ]

    def _is_exempt(self, name: str) -> bool:
        for checked in self.checked:
            for k, solution in enumerate(checked.agreement.solutions):
                if checked.agreement.names[k] == name:
                    return bool(gap_is_expected(solution.solver))
        return False


def shortfall(agreement: Agreement, k: int) -> str:
    """Return a solver's relative duality gap, status or time limit."""
    solution = agreement.solutions[k]
    if solution.status is Status.TIME_LIMIT:
        return solution.note
    return gap_text(solution.certificate.relative_gap) if solution.certificate else solution.status.value


def _gap(agreement: Agreement, k: int) -> float:
    certificate = agreement.solutions[k].certificate
    return math.inf if certificate is None else certificate.beyond_rounding


_WORDS = {"proved optimal": "good-word", "NOT optimal": "failed", "NO ANSWER": "failed", DISAGREES: "failed"}


def page(digest: Digest, *, about: list[str]) -> Page:
    """Return the page: outcome, solvers, problems, skipped problems."""
    columns = [Column(head, "number" if 0 < k < len(HEAD) - 1 else "") for k, head in enumerate(HEAD)]
    caption = "Each solver over all problems that it applies to"
    return render(
        "check",
        "freshopt check",
        digest=digest,
        about=about,
        solvers=Table(caption, columns, digest.solvers()),
        problems=[_problem(checked) for checked in digest.checked],
    )


def _problem(checked: Checked) -> dict[str, Any]:
    """Return a problem's table and outcome."""
    agreement = checked.agreement
    short = agreement.short()
    columns = [Column(head, "number" if 2 <= k < len(COLUMNS) - 1 else "") for k, head in enumerate(COLUMNS)]
    rows = [
        [*cells, Html(f'<span class="{_WORDS.get(verdict, "faint")}">{escaped(verdict)}</span>')]
        for *cells, verdict in agreement.cells()
    ]
    return {
        "agreement": agreement,
        "label": checked.label,
        "outcome": checked.cells()[-1],
        "mark": "failed" if not agreement.proved else "short" if short else "faint",
        "table": Table(repr(agreement.problem), columns, rows),
        "short": [f"{agreement.names[k]}: {agreement.solutions[k].note}" for k in short],
    }
