"""Write what the pages show and nobody types: printed output.

    python docs/pages.py

rewrites `PRINTED` in place. The tests compare the pages with what is written.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from freshopt.cli import main

DOCS = Path(__file__).resolve().parent
# Those with blocks of Python but one, which docs/formulations.py fills in.
PRINTED = tuple(
    path.relative_to(DOCS).as_posix()
    for folder in ("start", "guides")
    for path in sorted((DOCS / folder).glob("*.md"))
    if path.stem != "objectives-and-limits"
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What a command prints stands below a mark that names it, after those that it needs.
PRINTS = re.compile(r"(<!-- prints: (.+?) -->\n```text\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)


def printed(page: str) -> str:
    """Return a page with what its Python blocks and its marked commands print, run in an empty folder."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return PRINTS.sub(lambda found: found[1] + said(found[2]), with_output(page))


def said(lines: str) -> str:
    """Return what the last of some command lines prints."""
    text = ""
    for line in lines.split(" && "):
        result = CliRunner().invoke(main, shlex.split(line)[1:], catch_exceptions=False)
        if result.exit_code:
            raise SystemExit(f"{line}\n{result.output}")
        text = result.stdout.strip("\n") + "\n"
    return text


def with_output(page: str) -> str:
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

    written = BLOCK.sub(filled, page)
    if output:
        raise SystemExit(f"this is printed and not shown:\n{output}")
    return written


def rewrite() -> None:
    """Rewrite the pages."""
    for name in PRINTED:
        path = DOCS / name
        path.write_text(printed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
