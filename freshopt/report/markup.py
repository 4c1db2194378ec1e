"""`element`: HTML and SVG with text escaped by construction.

A `Markup` is text that is already HTML. Whatever is put into an element and is no `Markup` (a source's name,
a path, a sentence) is escaped, so that no page has to remember to do it. `data_block` does the same for JSON.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any, TypeAlias


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"
# HTML elements without an end tag.
_EMPTY = {"meta", "br", "input"}
# SVG attributes whose names have capitals.
_MIXED = ("viewBox", "preserveAspectRatio")
# SVG elements that are self-closing if they have no content.
_SHAPES = {"circle", "line", "path", "rect"}
_FORBIDDEN = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160), 0xFFFE, 0xFFFF], "\ufffd")


def element(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """Return an element with its content and attributes.

    Parameters
    ----------
    name : str
    *children : str, Markup, None, or an iterable of them
        What is in it; None is nothing.
    **attributes : str, float, bool or None
        A trailing underscore is dropped and others become hyphens (``class_``, ``aria_label``); None and
        False leave an attribute out, True gives it no value.

    Examples
    --------
    >>> element("p", "a < b", element("br"), class_="note")
    '<p class="note">a &lt; b<br></p>'
    """
    given = "".join(
        f" {_attribute(key)}" if value is True else f' {_attribute(key)}="{_text(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _EMPTY:
        return Markup(f"<{name}{given}>")
    content = join(children)
    if not content and name in _SHAPES:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{content}</{name}>")


def join(children: Child, between: str = "") -> Markup:
    """Return the concatenated children, escaped unless they are `Markup`."""
    return Markup(between.join(_pieces(children)))


def data_block(anchor: str, value: Any) -> Markup:  # noqa: ANN401 - whatever JSON has
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
    return Markup(f'<script type="application/json" id="{_text(anchor)}">{plain_text(text)}</script>')


def plain_text(text: str) -> str:
    """Return text in which U+FFFD stands for what HTML forbids.

    These are control characters and halves of surrogate pairs.
    """
    return text.translate(_FORBIDDEN).encode("utf-8", "replace").decode("utf-8")


def _pieces(child: Child) -> Iterable[str]:
    if child is None:
        return
    if isinstance(child, str):
        yield child if isinstance(child, Markup) else _text(child)
    else:
        for each in child:
            yield from _pieces(each)


def _text(text: str) -> str:
    return html.escape(plain_text(text))


def _attribute(key: str) -> str:
    return key if key in _MIXED else key.rstrip("_").replace("_", "-")
