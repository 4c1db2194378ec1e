"""`document`: the HTML frame of every page.

A page needs nothing else: no network, no font that is not there; its security policy says so to the browser.
Its style is ``assets/page.css`` and its script, if it has one, the files `SCRIPTS`, which are copied into it.
The policy names the script by its hash, so that nothing else is executed, whatever a name may hold; without
script the page says the same, and only what answers to a reader's hand is not there.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from importlib.metadata import version

from freshopt.report.components import Section
from freshopt.report.markup import Child, Markup, element, join

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
SCRIPTS = ("words.js", "marks.js", "sources.js", "bandwidth.js")


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
    return re.sub(r"/\*.*?\*/\s*", "", _asset("page.css"), flags=re.DOTALL).strip()


def script() -> str:
    """Return the script of a plan's page, without its comments.

    Comments have lines of their own.
    """
    lines = (line for name in SCRIPTS for line in _asset(name).splitlines())
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("//"))


def document(title: str, *body: Child, scripted: bool = False) -> Markup:
    """Return a whole page.

    Parameters
    ----------
    title : str
    *body : str, Markup or iterables of them
        What the page holds, a header, a main part and a footer.
    scripted : bool
        Whether it has the script of a plan's page.

    Examples
    --------
    >>> document("a < b", element("main", "text")).splitlines()[5]
    '<title>a &lt; b</title>'
    """
    code = Markup(f"\n{script()}\n") if scripted else None
    lines = [
        Markup("<!DOCTYPE html>"),
        Markup('<html lang="en"><head><meta charset="utf-8">'),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content="freshopt"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(code)),
        element("title", title),
        Markup(f"<style>\n{stylesheet()}\n</style></head><body>"),
        *body,
        *([] if code is None else [element("script", code)]),
        Markup("</body></html>\n"),
    ]
    return join(lines, "\n")


def assembled(
    title: str,
    lead: str,
    standing: str,
    tiles: Markup,
    sections: Sequence[Section | None],
    *,
    answers: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Markup:
    """Return the page of a plan, with its script.

    Parameters
    ----------
    title : str
    lead, standing : str
        What is expected in a sentence, and what is proved.
    tiles : Markup
        The key numbers.
    sections : sequence of Section or None
        Those that are there make the contents.
    answers : sequence of str
        To what was asked, a sentence each.
    warnings : sequence of str
        Of what may make all of that wrong, before what is proved.
    """
    there = [section for section in sections if section is not None]
    contents = [element("li", element("a", section.title, href=f"#{section.anchor}")) for section in there]
    header: list[Child] = [
        element("h1", title),
        element("p", lead, class_="lead"),
        [element("p", f"Warning: {text}", class_="answer") for text in warnings],
        element("p", standing),
        [element("p", text, class_="answer") for text in answers],
        tiles,
        element("nav", element("ul", contents), aria_label="Contents"),
    ]
    return document(
        title,
        element("header", header),
        element("main", [section.body for section in there]),
        element("footer", element("p", f"Written by freshopt {version('freshopt')}.", class_="small")),
        scripted=True,
    )


def _policy(code: str | None) -> str:
    """Return the security policy of a page with this script."""
    if code is None:
        return POLICY
    digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")
    return f"{POLICY}; script-src 'sha256-{digest}'"


def _asset(name: str) -> str:
    return resources.files("freshopt.report").joinpath("assets", name).read_text(encoding="utf-8")
