"""Self-contained HTML page of the results of `freshopt check`."""

from __future__ import annotations

from typing import Any

from freshopt.agreement_cells import COLUMNS
from freshopt.cli.check_summary import HEAD, Checked, Digest
from freshopt.report.document import Page, render
from freshopt.report.finding import Column, Table
from freshopt.report.markup import Html, escaped
from freshopt.sampled_gap import DISAGREES

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
