"""What a package exports and its page does not name yet is added while the site is built.

A page of the reference says where by a comment, ``<!-- what else freshopt.problems exports -->``. The help of
the commands, which lists objectives and solvers, is printed anew.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PLACE = re.compile(r"^<!-- what else (freshopt\.\w+) exports -->\n", re.MULTILINE)


def others(package: str, page: str) -> list[str]:
    """Return the names that a package exports beside those in the tables of a page."""
    told = set(re.findall(r"^   (\w+)$", page, re.MULTILINE))
    return [name for name in importlib.import_module(package).__all__ if name not in told]


def filled(page: str) -> str:
    """Return a page with a table and the reference of what else is exported, where it asks for it."""

    def reference(found: re.Match[str]) -> str:
        package = found[1]
        names = others(package, page)
        if not names:
            return ""
        home = importlib.import_module(package)
        rows = [
            f"| {name} | {(getattr(home, name).__doc__ or '').strip().split(chr(10))[0]} |" for name in names
        ]
        classes = "\n".join(f".. autoclass:: {package}.{name}\n   :members:\n" for name in names)
        table = "\n".join(["| class | what it is |", "| --- | --- |", *rows])
        return f"## More\n\n{table}\n\n```{{eval-rst}}\n{classes}```\n"

    return PLACE.sub(reference, page)


def _fill(_app: Sphinx, name: str, source: list[str]) -> None:
    if name.startswith("api/"):
        source[0] = filled(source[0])
    elif name == "commands":
        source[0] = _pages().commands(source[0])


def _pages() -> ModuleType:
    """Return docs/pages.py, which writes what pages show."""
    path = Path(__file__).parents[1] / "pages.py"
    spec = importlib.util.spec_from_file_location("freshopt_docs_pages", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the additions."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True}
