"""Write what the pages show but nobody types: printed output, and the help of the command line.

    python docs/pages.py

rewrites docs/tutorial.md and docs/commands.md in place. The tests compare both with what is written.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import click

from freshopt.cli import COMMANDS, main

DOCS = Path(__file__).resolve().parent
TUTORIAL, REFERENCE = DOCS / "tutorial.md", DOCS / "commands.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BEGIN = "<!-- help -->\n"
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


def rewrite() -> None:
    """Rewrite both pages."""
    for path, written in ((TUTORIAL, printed), (REFERENCE, commands)):
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
