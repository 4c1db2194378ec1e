"""Cells of the table of `freshopt.cross_check`: verdicts, gaps, aligned and coloured."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from freshopt.certificates.solution import Solution, Status
from freshopt.certificates.solver_protocol import gap_is_expected
from freshopt.formatting import WIDTH
from freshopt.sampled_gap import AGREES, DISAGREES, SampledGap

COLUMNS = ("solver", "status", "value", "relative gap", "largest rate difference", "seconds", "verdict")
# Relative differences below this are lost in the rounding of a sum of float64.
RESOLVED = 1e-15
# Characters below which the last column of a table is not wrapped.
LEAST = 14
_GREEN, _RED, _GREY = "#1a7f37", "#c62828", "#6e7781"
_COLOURS = {"proved optimal": _GREEN, "NOT optimal": _RED, "NO ANSWER": _RED, AGREES: _GREEN, DISAGREES: _RED}


def verdict(solution: Solution, sample: SampledGap | None = None) -> str:
    """Return a verdict of a few words on a solution."""
    if sample is not None:
        return sample.verdict
    if solution.status is Status.OPTIMAL:
        return "proved optimal"
    if solution.status is Status.REFUSED:
        return "does not apply"
    if solution.certificate and gap_is_expected(solution.solver):
        return gap_is_expected(solution.solver)
    return "NOT optimal" if solution.certificate else "NO ANSWER"


def gap_text(relative: float) -> str:
    """Format a relative gap or difference, down to rounding.

    Examples
    --------
    >>> gap_text(3.04e-8), gap_text(1e-31), gap_text(0.0)
    ('3.0e-08', '< 1e-15', '0')
    """
    if 0.0 < relative < RESOLVED:
        return f"< {RESOLVED:.0e}"
    return "0" if relative == 0.0 else f"{relative:.1e}"


def aligned(rows: Sequence[Sequence[str]], numbers: Iterable[int] = ()) -> list[str]:
    """Return a head and rows as lines of aligned columns.

    Columns at the positions `numbers` are aligned to the right. What is too wide for a line gets a head of
    more lines, then a last column of more lines; rows of long names stay wide.

    Examples
    --------
    >>> aligned([("solver", "seconds"), ("scs", "0.1")], numbers=[1])
    ['solver  seconds', 'scs         0.1']
    """
    right = set(numbers)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gaps = 2 * (len(widths) - 1)
    if sum(widths) + gaps > WIDTH:
        body = [max(map(len, column)) for column in zip(*rows[1:], strict=True)]
        words = [max(map(len, head.split())) for head in rows[0]]
        narrow = [max(pair) for pair in zip(body, words, strict=True)]
        room = WIDTH - gaps - sum(narrow[:-1])
        if room >= LEAST:
            widths = [*narrow[:-1], min(narrow[-1], room)]
    lines = []
    for row in rows:
        cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for part in zip_longest(*cells, fillvalue=""):
            put = (
                text.rjust(width) if k in right else text.ljust(width)
                for k, (text, width) in enumerate(zip(part, widths, strict=True))
            )
            lines.append("  ".join(put).rstrip())
    return lines


def _wrapped(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width, break_on_hyphens=False) if len(cell) > width else [cell]


def html_cell(tag: str, text: str, column: int) -> str:
    """Return a cell of the HTML table, verdicts in colour."""
    style = f"text-align:{'right' if 2 <= column < 6 else 'left'}"
    if tag == "td" and column == len(COLUMNS) - 1:
        style += f";color:{_COLOURS.get(text, _GREY)}"
    return f'<{tag} style="{style}">{html.escape(text)}</{tag}>'
