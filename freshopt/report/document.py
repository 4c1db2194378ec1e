"""`render`: templates as HTML pages of one file.

A page needs nothing else: no network, no font that is not there; its security policy says so to the browser.
Its style is ``assets/page.css`` and its script, if it has one, the files `SCRIPTS`, which are copied into it.
The policy names the script by its hash, so that nothing else is executed, whatever a name may hold; without
script the page says the same, and only what answers to a reader's hand is not there.

Templates escape what they are given; what is missing is an error, and no number is written unless it was
made a text before.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from freshopt.formatting import count, number, percent
from freshopt.report.markup import Html, amount, data_block, escaped, name, plain_text

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
SCRIPTS = ("words.js", "marks.js", "sources.js", "bandwidth.js", "glossary.js")


class Page(str):
    """HTML text of a whole page, framed in notebooks."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the frame, in which the page's style cannot reach the notebook's."""
        given = 'width="100%" height="720" title="freshopt" style="border:0"'
        return f'<iframe srcdoc="{escaped(self)}" {given}></iframe>'


def stylesheet() -> str:
    """Return the stylesheet, ``page.css``, without its comments."""
    return re.sub(r"/\*.*?\*/\s*", "", _file("assets", "page.css"), flags=re.DOTALL).strip()


def script() -> str:
    """Return a page's script, without comments and indentation."""
    lines = (line.strip() for name in SCRIPTS for line in _file("assets", name).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def render(template: str, title: str, *, scripted: bool = False, **facts: Any) -> Page:  # noqa: ANN401
    """Return the page of a template, with a script or without."""
    body = environment().get_template(f"{template}.html.j2").render(title=title, **facts)
    return framed(title, body, scripted=scripted)


def framed(title: str, body: str, *, scripted: bool = False) -> Page:
    """Return a whole page, with style, script and security policy."""
    code = f"\n{script()}\n" if scripted else ""
    policy = POLICY
    if scripted:
        digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")
        policy = f"{POLICY}; script-src 'sha256-{digest}'"
    # Templates have lines of a readable length: a break between two elements is nothing, elsewhere a space.
    joined = Html(re.sub(r"[ \t]*\n[ \t\n]*", " ", re.sub(r">[ \t]*\n[ \t\n]*<", "><", body)).strip())
    frame = environment().get_template("frame.html.j2")
    style, code = Html(stylesheet()), Html(code)
    return Page(frame.render(title=title, policy=policy, style=style, body=joined, script=code))


@functools.cache
def environment() -> Environment:
    """Return the environment of the templates."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        loader=FunctionLoader(lambda file: _file("templates", file)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    made.filters |= {
        "number": number,
        "percent": percent,
        "count": count,
        "amount": amount,
        "name": name,
        "whole": "{:,}".format,
        "share": lambda share: amount(share, percent(share)),
        "whole_amount": lambda value: amount(value, f"{value:,}"),
        "capitalised": str.capitalize,
        "sentence": sentence,
        "unbroken": unbroken,
    }
    made.globals |= {"data_block": data_block, "version": version("freshopt")}
    return made


def sentence(text: str) -> str:
    """Return what a row of the terminal says as a sentence."""
    whole = unbroken(f"{text[:1].upper()}{text[1:]}")
    return whole if whole.endswith((".", "!", "?")) else f"{whole}."


def unbroken(text: str) -> str:
    """Return a text whose lines do not break before a percent sign."""
    return text.replace(" %", "\xa0%")


def _shown(value: object) -> object:
    """Return what may be written: text, HTML and whole numbers."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value if hasattr(value, "__html__") else plain_text(value)
    if hasattr(value, "__html__") or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TypeError(f"{value!r} is no text")


def _file(folder: str, name: str) -> str:
    return resources.files("freshopt.report").joinpath(folder, name).read_text(encoding="utf-8")
