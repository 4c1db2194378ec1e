"""The page's section on pipelines prints what it shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "other-copies.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_section_prints_what_it_shows() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Pipelines of tables")[1].split("\n## ")[0]
    names: dict[str, Any] = {}
    printed, shown = "", []
    for kind, text in BLOCK.findall(section):
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(compile(text, "page", "exec", dont_inherit=True), names)
            printed += stream.getvalue()
        elif not kind:
            shown.append(text)
    assert printed == "".join(shown)
