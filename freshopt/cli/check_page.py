"""Self-contained HTML page of the results of `freshopt check`."""

from __future__ import annotations

from freshopt import __version__
from freshopt.agreement_cells import COLUMNS
from freshopt.cli.check_summary import HEAD, Checked, Digest
from freshopt.crosscheck import Agreement
from freshopt.report.components import Column, Section, paragraph, table
from freshopt.report.document import document
from freshopt.report.markup import Child, Markup, element
from freshopt.sampled_gap import DISAGREES

_WORDS = {"proved optimal": "good-word", "NOT optimal": "failed", "NO ANSWER": "failed", DISAGREES: "failed"}


def page(digest: Digest, *, about: list[str]) -> str:
    """Return the page: outcome, solvers, problems, skipped problems.

    Each problem is a part that opens.

    Parameters
    ----------
    digest : Digest
    about : list of str
        What was run, a paragraph each.
    """
    mark = "good" if digest.passed() else "bad"
    idle, skipped = digest.idle(), digest.skips()
    sections = [
        Section.of(
            "solvers",
            "Solvers",
            _solvers(digest),
            paragraph(f"Applied to none of these problems: {', '.join(idle)}.", kind="faint")
            if idle
            else None,
        ),
        Section.of("problems", "Problems", [_problem(checked) for checked in digest.checked]),
    ]
    if skipped:
        listed = element("ul", [element("li", line) for line in skipped])
        sections.append(Section.of("skipped", "Problems that do not exist", listed))
    return document(
        "freshopt check",
        element(
            "header",
            element("h1", "freshopt check"),
            paragraph(digest.outcome(), kind=f"outcome {mark}"),
            [paragraph(line) for line in about],
        ),
        element("main", [section.body for section in sections]),
        element(
            "footer",
            paragraph(
                f"freshopt {__version__}. A certified gap is the duality gap relative to cost + shadow "
                f"price × "
                "bandwidth; it is computed from the rates alone, whichever solver found them.",
                kind="small",
            ),
        ),
    )


def _solvers(digest: Digest) -> Markup:
    """Return the table with a row per solver."""
    columns = [Column(head, "number" if 0 < k < len(HEAD) - 1 else "") for k, head in enumerate(HEAD)]
    return table("Each solver over all problems that it applies to", columns, digest.solvers())


def _problem(checked: Checked) -> Markup:
    """Return a problem's table, open where a solver falls short."""
    agreement = checked.agreement
    short, proved = agreement.short(), agreement.proved
    mark = "failed" if not proved else "short" if short else "faint"
    columns = [Column(head, "number" if 2 <= k < len(COLUMNS) - 1 else "") for k, head in enumerate(COLUMNS)]
    rows: list[list[Child]] = [
        [*cells, element("span", verdict, class_=_WORDS.get(verdict, "faint"))]
        for *cells, verdict in agreement.cells()
    ]
    below = [
        paragraph("not applicable: ", _refused(agreement), kind="small") if agreement.refused() else None,
        paragraph(agreement.closing(), kind="small"),
        [
            paragraph(f"{agreement.names[k]}: {agreement.solutions[k].note}", kind="small faint")
            for k in short
        ],
    ]
    return element(
        "details",
        element("summary", checked.label, " ", element("span", f"({checked.cells()[-1]})", class_=mark)),
        element("div", table(repr(agreement.problem), columns, rows), below),
        open=bool(short),
    )


def _refused(agreement: Agreement) -> list[Child]:
    """Return the solvers that do not apply.

    The reason is shown on hovering.
    """
    named: list[Child] = []
    for name, why in agreement.refused():
        named += [", "] if named else []
        named.append(element("span", name, title=why))
    return named
