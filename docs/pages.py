"""Write what the pages show and nobody types: printed output, help of the commands, verdicts of saved runs.

    python docs/pages.py

rewrites docs/tutorial.md, docs/commands.md and docs/papers.md in place. The tests compare them with what is
written.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import click

from freshopt.cli import COMMANDS, main

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "benchmarks" / "results"
TUTORIAL, REFERENCE, PAPERS = DOCS / "tutorial.md", DOCS / "commands.md", DOCS / "papers.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BEGIN = "<!-- help -->\n"
SHOWN = re.compile(r"(<!-- shown by (\w+) \| ([^|]+?) -->\n)(?:> .*\n)?")
FOUR_DIGITS = 1e4
WIDTH = 80  # of the help: what fits a page


def printed(page: str) -> str:
    """Return a page with the output of each Python block in the unmarked block that follows it."""
    names: dict[str, Any] = {"__name__": "page"}
    output = ""

    def filled(found: re.Match[str]) -> str:
        nonlocal output
        kind, text = found.groups()
        if kind == "python":
            if output:
                raise SystemExit(f"this is printed and not shown:\n{output}")
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(compile(text, "page", "exec", dont_inherit=True), names)
            output = stream.getvalue()
        elif not kind:
            shown, output = output, ""
            return f"```\n{shown}```"
        return found.group()

    return BLOCK.sub(filled, page)


def commands(page: str) -> str:
    """Return the page of the command line with the help of every command as it is now."""
    parts = [page.split(BEGIN)[0] + BEGIN]
    settings: dict[str, Any] = {**main.context_settings, "terminal_width": WIDTH}
    context = click.Context(main, info_name="freshopt", **settings)
    parts.append(f"\n```text\n{main.get_help(context)}\n```\n")
    for name in COMMANDS:
        command = main.get_command(context, name)
        if command is None:
            raise SystemExit(f"there is no command {name}")
        inner = click.Context(command, info_name=name, parent=context, **settings)
        parts.append(f"\n## freshopt {name}\n\n```text\n{command.get_help(inner)}\n```\n")
    return "".join(parts)


def findings(paper: str) -> list[dict[str, Any]]:
    """Return what seeded runs have decided of a paper."""
    saved = json.loads((RESULTS / f"reproduce_{paper}.json").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = saved["findings"]
    return found


def papers(page: str) -> str:
    """Return the page of the papers with the finding of each claim that it names."""

    def measured(found: re.Match[str]) -> str:
        marker, paper, name = found.groups()
        (one,) = (each for each in findings(paper) if each["id"] == name)
        return f"{marker}> {one['place']}: {one['claim']}: {one['statistic']}. {_numbers(one)}\n"

    return SHOWN.sub(measured, page)


def _numbers(one: dict[str, Any]) -> str:
    return f"Decided by {_band(one)}; found {_ours(one)}."


def _band(one: dict[str, Any]) -> str:
    low, high = one["at_least"], one["at_most"]
    if one["kind"] == "always":
        return "always"
    if low is None:
        return f"≤ {high:g}"
    return f"≥ {low:g}" if high is None else f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _ours(one: dict[str, Any]) -> str:
    runs = "" if one["runs"] == 1 else f" in {one['runs']:,} runs"
    low, high = one["low"], one["high"]
    interval = "" if low is None or low == high else f" ({_short(low)} to {_short(high)})"
    return f"{_short(one['estimate'])}{interval}{runs}, **{one['verdict']}**"


def _short(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= FOUR_DIGITS else f"{x:.4g}"


def rewrite() -> None:
    """Rewrite the pages."""
    for path, written in ((TUTORIAL, printed), (REFERENCE, commands), (PAPERS, papers)):
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
