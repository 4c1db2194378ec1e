"""Run the blocks of docs/guides/objectives-and-limits.md, fill in what they find, and draw the pictures.

    python docs/formulations.py

rewrites the page and docs/formulations/*.png in place. The tests compare the page with what is written.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import freshopt as fo

DOCS = Path(__file__).resolve().parent
PAGE, PICTURES = DOCS / "guides" / "objectives-and-limits.md", DOCS / "formulations"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROWS = re.compile(r"(<!-- rows -->\n)(?:\|.*\n)*")
TOLD = re.compile(r"(<!-- told: (.+?) -->\n)(?:> .*\n)?")
NUMBER = re.compile(r"\{(.+?)(?::([^{}\]]+))?\}")
HEAD = re.compile(r"^(?=### \d)", re.MULTILINE)
PICTURE = re.compile(r"\]\(\.\./formulations/([\w-]+)\.png\)")
# Rows of a table; the dearest come first.
SHOWN = 6


def sections(page: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return each part of the page with the names its blocks leave behind."""
    names: dict[str, Any] = {"__name__": "formulations"}
    for part in HEAD.split(page):
        for text in BLOCK.findall(part):
            exec(compile(text, PAGE.name, "exec", dont_inherit=True), names)
        yield part, names


def filled(part: str, names: dict[str, Any]) -> str:
    """Return a part of the page with its rows and sentences."""
    part = ROWS.sub(lambda found: found[1] + table(names["solution"]), part)
    return TOLD.sub(lambda found: f"{found[1]}> {told(found[2], names)}\n", part)


def told(text: str, names: dict[str, Any]) -> str:
    """Return a sentence with the values of the expressions in braces."""
    return NUMBER.sub(lambda found: format(eval(found[1], names), found[2] or ""), text)


def table(solution: fo.Solution) -> str:
    """Return the rows of a certificate as a Markdown table, those of largest price×limit first."""
    rows = list(solution.certificate.rows)
    rows.sort(key=lambda row: (row.gap_share < 0.0, -row.price * max(abs(row.limit), abs(row.used), 1e-9)))
    lines = ["| row | used | limit | price |", "| --- | --- | --- | --- |"]
    for row in rows[:SHOWN]:
        loose = row.slack > 1e-6
        price = "0" if loose else f"{row.price:.4g}"
        lines.append(f"| {row.label} | {rounded(row.used)} | {rounded(row.limit)} | {price} |")
    if len(rows) > SHOWN:
        lines.append(f"| and {len(rows) - SHOWN} more | | | |")
    return "\n".join(lines) + "\n"


def rounded(number: float) -> str:
    """Return four digits; rounding below 1e-9 is 0."""
    return f"{number if abs(number) > 1e-9 else 0.0:.4g}"


def written(page: str, draw: bool = False) -> str:
    """Return the page as its blocks fill it, and draw its pictures if asked."""
    parts = []
    for part, names in sections(page):
        parts.append(filled(part, names))
        if draw:
            for name in PICTURE.findall(part):
                pictures().draw(name, names, PICTURES / f"{name}.png")
    return "".join(parts)


def pictures() -> Any:  # noqa: ANN401
    """Return the module that draws."""
    spec = importlib.util.spec_from_file_location("formulation_pictures", DOCS / "formulation_pictures.py")
    if spec is None or spec.loader is None:
        raise ImportError("docs/formulation_pictures.py cannot be loaded")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), draw=True), encoding="utf-8")
