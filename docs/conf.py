"""Settings of the documentation site: ``sphinx-build -W --keep-going -n docs DIR``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import freshopt

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "freshopt"
author = "The freshopt developers"
project_copyright = "The freshopt developers, Apache-2.0"
version = release = freshopt.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "mathml",
    "reference",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}  # reST is what autosummary writes
templates_path = ["_templates"]
exclude_patterns = ["_build"]
default_role = "py:obj"  # `Problem` in a docstring is a link where there is something to link to
nitpick_ignore_regex = [
    ("py:obj", r".*"),  # a parameter's name in backticks, or a module that is not public
    ("py:class", r"(?!freshopt\.).*"),  # types in words: "array_like, shape (n,)"
]

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]  # as code hosts write formulas
myst_heading_anchors = 3

highlight_language = "none"  # of output; code says what it is
autosummary_generate = True
autodoc_typehints = "none"  # docstrings state types, shapes and units
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_custom_sections = [("Attributes", "returns_style")]
napoleon_use_rtype = False

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"freshopt {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False


def _plain_references(
    _app: Sphinx, _what: str, _name: str, _obj: object, _options: object, lines: list[str]
) -> None:
    """Write references as text: a module and its class have a [1] each, and they share a page."""
    text = re.sub(r"(\[\d+\])_(?!\w)", r"\1", "\n".join(lines))
    text = re.sub(r"^( *)\.\. (\[\d+\])((?:.+\n?)(?:^\1 +\S.*\n?)*)", _paragraph, text, flags=re.MULTILINE)
    lines[:] = text.split("\n")


def _paragraph(found: re.Match[str]) -> str:
    indent, number, rest = found.groups()
    body = " ".join(line.strip() for line in rest.splitlines())
    return f"{indent}{number} {body}\n\n"


def setup(app: Sphinx) -> None:
    """Register what docstrings need."""
    app.connect("autodoc-process-docstring", _plain_references)
