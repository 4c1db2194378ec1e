r"""Text for HTML: escaped, or marked as HTML already.

Templates escape all that has no ``__html__``, so that no page has to remember to do it.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any

from freshopt.formatting import number

_FORBIDDEN = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160), 0xFFFE, 0xFFFF], "\ufffd")


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the text as it is."""
        return str(self)


def plain_text(text: str) -> str:
    """Return text in which U+FFFD stands for what HTML forbids."""
    return text.translate(_FORBIDDEN).encode("utf-8", "replace").decode("utf-8")


def escaped(text: str) -> str:
    """Return a text as HTML."""
    return html.escape(plain_text(text))


def unmarked(cell: object) -> str:
    """Return a cell as a terminal shows it, in one line.

    Examples
    --------
    >>> unmarked(amount(0.5, "< 1")), unmarked(None)
    ('< 1', '')
    """
    text = "" if cell is None else str(cell)
    text = html.unescape(re.sub(r"<[^>]*>", "", text)) if isinstance(cell, Html) else text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in " ".join(text.split()))


def amount(value: float, text: str | None = None) -> Html:
    """Return a rounded number that carries all its digits.

    Examples
    --------
    >>> amount(104.94211091353432)
    '<data value="104.94211091353432">104.9</data>'
    """
    return Html(f'<data value="{value!r}">{escaped(number(value) if text is None else text)}</data>')


def name(text: str) -> Html:
    """Return a name isolated from the surrounding text direction."""
    return Html(f"<bdi>{escaped(text)}</bdi>")


def linked(text: str) -> Html:
    """Return a name, as a link if it is an address.

    Only of http and https: what stands in a log may come from strangers.

    Examples
    --------
    >>> linked("javascript:x"), linked("https://a.example/?q=1&r=<b>")[:55]
    ('<bdi>javascript:x</bdi>', '<a href="https://a.example/?q=1&amp;r=&lt;b&gt;" target')
    """
    if not re.fullmatch(r"https?://[^\s\x00-\x1f\x7f…]+", text):
        return name(text)
    given = 'target="_blank" rel="noopener noreferrer nofollow"'
    return Html(f'<a href="{escaped(text)}" {given}>{name(text)}</a>')


def data_block(anchor: str, value: Any) -> Html:  # noqa: ANN401 - whatever JSON has
    r"""Return JSON that scripts read and that no browser executes.

    Signs that could end the element or begin another are written as escapes of JSON, in which they mean the
    same.

    Examples
    --------
    >>> print(data_block("names", ["</script><b>"]))
    <script type="application/json" id="names">["\u003c/script\u003e\u003cb\u003e"]</script>
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(f'<script type="application/json" id="{escaped(anchor)}">{plain_text(text)}</script>')
