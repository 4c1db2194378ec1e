r"""Text for HTML: escaped, or marked as HTML already.

Templates escape all that has no ``__html__``, so that no page has to remember to do it.
"""

from __future__ import annotations

import html
import json
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
    """Return text in which U+FFFD stands for what HTML forbids.

    These are control characters and halves of surrogate pairs.
    """
    return text.translate(_FORBIDDEN).encode("utf-8", "replace").decode("utf-8")


def escaped(text: str) -> str:
    """Return a text as HTML."""
    return html.escape(plain_text(text))


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
