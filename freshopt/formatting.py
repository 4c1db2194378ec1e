"""Formatting of numbers and counts for terminal and pages."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence

# Columns that a terminal has at least.
WIDTH = 100
# Percentages that are nearer to 100 are 100: so much is lost in sums of float64.
NEAR = 1e-9
# Columns that the first column of a table keeps, however narrow the terminal.
LABEL = 16


def number(value: float) -> str:
    """Format a number for people.

    Examples
    --------
    >>> number(82.6371), number(2160.0), number(12345.67), number(1e12)
    ('82.64', '2,160', '12,345.7', '1e+12')
    """
    if 1e3 <= abs(value) < 1e9:
        return f"{value:,.1f}".removesuffix(".0")
    return f"{value:.4g}"


def count(value: float, noun: str, form: str = "") -> str:
    """Format a number with its noun, in the plural unless 1.

    - `form`: Format of the number; by default as people read it.

    Examples
    --------
    >>> count(1, "crawl"), count(2, "fetch"), count(0.5, "day"), count(1306, "refresh", "d")
    ('1 crawl', '2 fetches', '0.5 days', '1306 refreshes')
    """
    text = f"{value:{form}}" if form else f"{value:,}" if isinstance(value, int) else number(value)
    ending = "" if value == 1 else "es" if noun.endswith(("sh", "ch", "ss")) else "s"
    return f"{text} {noun}{ending}"


def percent(share: float, *, even: bool = False, space: str = "\xa0") -> str:
    r"""Format a share in percent, by default with a non-breaking space.

    It is never 0 or 100 for what is only near.

    - `even`: Keep a final 0, as in a column of a table.
    - `space`: What stands before the sign: a terminal may have no letter for the non-breaking one.

    Examples
    --------
    >>> percent(0.12759), percent(0.0003), percent(0.99999), percent(0.4), percent(19.1133)
    ('12.8\xa0%', '0.03\xa0%', '99.999\xa0%', '40\xa0%', '1,911\xa0%')
    >>> percent(0.4, even=True), percent(0.00944, even=True), percent(0.9999999)
    ('40.0\xa0%', '0.9\xa0%', '99.99999\xa0%')
    """
    value = 100.0 * share
    if abs(value) >= 1000.0:
        return f"{value:,.0f}{space}%"
    digits = 1 if (0.1 if even else 1.0) <= abs(value) <= 99.9 or abs(value) >= 100.0 else 3
    missing = 100.0 - abs(value)
    if NEAR < missing < 5e-4:
        digits = math.ceil(-math.log10(missing) + 0.3)
    text = f"{value:.{digits}f}" if abs(value) >= 0.001 or value == 0.0 else f"{value:.1g}"
    text = (
        text.rstrip("0").rstrip(".")
        if "." in text and "e" not in text and not (even and digits == 1)
        else text
    )
    return f"{text}{space}%"


def aligned(rows: Sequence[tuple[str, str]], width: int = WIDTH) -> Iterator[tuple[str, str]]:
    """Yield lines of labelled rows, texts wrapped.

    A text that is too long goes on in the next line, under itself; no word is broken.

    Examples
    --------
    >>> for label, text in aligned([("a", "one two three"), ("long", "four")], width=14):
    ...     print(f"{label}  {text}")
    a     one two
          three
    long  four
    """
    column = max((len(label) for label, _ in rows), default=0)
    for label, text in rows:
        room = max(width - column - 2, 1)
        for k, line in enumerate(_wrap(text, room) or [""]):
            yield ("" if k else label).ljust(column), line.replace("\xa0%", " %")


def table(rows: Sequence[Sequence[str]], width: int = WIDTH, *, text: int = 0) -> str:
    """Return rows of cells as lines, the first row the heads.

    Where that is too wide, heads and then first cells go on in the next line; no word is broken.

    - `text`: The column that is aligned to the left; the others, numbers, are to the right.

    Examples
    --------
    >>> print(table([("", "time fresh", "cost"), ("all at once", "95 %", "2")], width=21))
                  time
                 fresh  cost
    all at once   95 %     2
    """
    # Heads take as few lines as make the table fit.
    head, *body = rows
    least = [max((len(row[k]) for row in body), default=0) for k in range(len(head))]
    deepest = max(len(cell.split()) for cell in head)
    for depth in range(1, deepest + 1):
        widths = [_head_width(cell, size, depth) for cell, size in zip(head, least, strict=True)]
        room = width - sum(widths[1:]) - 2 * (len(head) - 1)
        if widths[0] <= room:
            break
    widths[0] = min(widths[0], max(room, LABEL))
    lines = []
    for row in rows:
        cells = [_wrap(cell, size) for cell, size in zip(row, widths, strict=True)]
        deep = max(1, *map(len, cells))
        for line in range(-deep, 0):
            parts = [cell[line] if line >= -len(cell) else "" for cell in cells]
            put = [
                part.ljust(size) if k == text else part.rjust(size)
                for k, (part, size) in enumerate(zip(parts, widths, strict=True))
            ]
            lines.append("  ".join(put).rstrip().replace("\xa0%", " %"))
    return "\n".join(lines)


def _head_width(head: str, least: int, depth: int) -> int:
    """Return the width of a column whose head takes `depth` lines."""
    least = max([least, *map(len, head.split())])
    return next(
        (size for size in range(least, len(head)) if len(_wrap(head, size)) <= depth), max(least, len(head))
    )


def _wrap(text: str, width: int) -> list[str]:
    """Return a text's lines; a number stays with its sign."""
    kept = text.replace(" %", "\xa0%")
    return textwrap.wrap(kept, max(width, 1), break_long_words=False, break_on_hyphens=False)


def fitted(text: str) -> str:
    """Return a text with lines of at most `WIDTH` characters.

    A line that is longer goes on below, indented by two more.

    Examples
    --------
    >>> [len(line) for line in fitted("word " * 30).splitlines()]
    [99, 51]
    """
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        parts = textwrap.wrap(
            line.strip(),
            WIDTH,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += parts if len(line) > WIDTH else [line]
    return "\n".join(lines)


def finite(value: float | None) -> float | None:
    """Return a number as JSON has it; None where it is none."""
    return float(value) if value is not None and math.isfinite(value) else None


def plain_name(name: object) -> str | int:
    """Return a source's or host's name as JSON has it."""
    plain = name.item() if hasattr(name, "item") else name
    return plain if isinstance(plain, int) else str(plain)
