"""Page components: sections, accessible tables, numbers as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from freshopt.formatting import number
from freshopt.report.markup import Child, Markup, element


class Column(NamedTuple):
    """A column of a table.

    Attributes
    ----------
    head : str or Markup
    kind : {"", "number", "bar"}
        How its cells are set; the cells of a bar are shares of the longest.
    """

    head: Child
    kind: str = ""


class Section(NamedTuple):
    """Section of a page with its entry in the contents."""

    anchor: str
    title: str
    body: Markup

    @classmethod
    def of(cls, anchor: str, title: str, *body: Child) -> Section:
        """Return the section with its heading."""
        heading = element("h2", title, id=f"{anchor}-title")
        return cls(
            anchor, title, element("section", heading, body, id=anchor, aria_labelledby=f"{anchor}-title")
        )


def amount(value: float, text: str | None = None) -> Markup:
    """Return a rounded number that carries all its digits.

    Examples
    --------
    >>> amount(104.94211091353432)
    '<data value="104.94211091353432">104.9</data>'
    """
    return element("data", number(value) if text is None else text, value=repr(value))


def name(text: str) -> Markup:
    """Return a name isolated from the surrounding text direction."""
    return element("bdi", text)


def paragraph(*children: Child, kind: str | None = None) -> Markup:
    """Return a paragraph."""
    return element("p", children, class_=kind)


def table(
    caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Child]], own: int | None = None
) -> Markup:
    """Return a table whose rows begin with their heading.

    Parameters
    ----------
    caption : str
    columns : sequence of Column
    rows : sequence of sequences of str or Markup
        A cell of a bar is a number between 0 and 1 as text.
    own : int, optional
        The row to be set apart.
    """
    head = [element("th", head, scope="col", class_=kind or None) for head, kind in columns]
    body = [
        element(
            "tr",
            [
                _cell(cell, column, first=k == 0)
                for k, (cell, column) in enumerate(zip(row, columns, strict=True))
            ],
            class_="own" if place == own else None,
        )
        for place, row in enumerate(rows)
    ]
    inner = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", head)),
        element("tbody", body),
    )
    return element("div", inner, class_="scroll", role="region", aria_label=caption, tabindex="0")


def facts_list(rows: Sequence[tuple[Child, Child]]) -> Markup:
    """Return a list of terms with their descriptions."""
    return element("dl", [[element("dt", term), element("dd", what)] for term, what in rows])


def _cell(cell: Child, column: Column, *, first: bool) -> Markup:
    head, kind = column
    if kind == "bar":
        width = f"{100.0 * float(str(cell)):.1f}"
        box = element("rect", x=0, y=0, width=width, height=10, rx=1)
        picture = element(
            "svg",
            box,
            viewBox="0 0 100 10",
            preserveAspectRatio="none",
            aria_hidden="true",
            focusable="false",
        )
        return element("td", picture, class_="bar")
    if first:
        return element("th", cell, scope="row")
    # A phone shows a row as a list, in which each cell has its head beside it.
    return element("td", cell, class_=kind or None, data_head=str(head) or None)
