"""Formulas as MathML, written while the site is built: they need no script and no network to be read.

docutils translates the TeX; what it cannot translate is a warning, and so ends a build with ``-W``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

LOG = logging.getLogger(__name__)


def _markup(node: nodes.math | nodes.math_block, *, block: bool) -> str:
    tex = node.astext().strip()
    try:
        return str(latex2mathml.tex2mathml(tex, as_block=block))
    except MathError as error:
        LOG.warning("cannot translate the formula %r: %s", tex, error, location=node)
        return ""


def inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(_markup(node, block=False))
    raise nodes.SkipNode


def display(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own; a wide one scrolls on a small screen."""
    self.body.append(f'<div class="formula">{_markup(node, block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer that conf.py chooses by ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
