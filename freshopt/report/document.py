"""`document`: the HTML frame of every page.

A page needs nothing else: no network, no script, no font that is not there; its security policy says so to
the browser. Its style is ``page.css``, which is copied into it.
"""

from __future__ import annotations

import re
from importlib import resources

from freshopt.report.markup import Child, Markup, element, join

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Page(str):
    """HTML text of a whole page.

    A notebook shows it in a frame of its own.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the frame, in which the page's style cannot reach the notebook's."""
        frame = element(
            "iframe", srcdoc=str(self), width="100%", height="720", title="freshopt", style="border:0"
        )
        return str(frame)


def stylesheet() -> str:
    """Return the stylesheet, ``page.css``, without its comments."""
    text = resources.files("freshopt.report").joinpath("page.css").read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/\s*", "", text, flags=re.DOTALL).strip()


def document(title: str, *body: Child) -> Markup:
    """Return a whole page.

    Parameters
    ----------
    title : str
    *body : str, Markup or iterables of them
        What the page holds, a header, a main part and a footer.

    Examples
    --------
    >>> document("a < b", element("main", "text")).splitlines()[5]
    '<title>a &lt; b</title>'
    """
    lines = [
        Markup("<!DOCTYPE html>"),
        Markup('<html lang="en"><head><meta charset="utf-8">'),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content="freshopt"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("title", title),
        Markup(f"<style>\n{stylesheet()}\n</style></head><body>"),
        *body,
        Markup("</body></html>\n"),
    ]
    return join(lines, "\n")
