"""`Finding`: one thing that a plan found, for terminal, summary and page.

Findings are functions of a plan's facts, in order of telling; each returns a finding, or None where there
is nothing to tell. A new one needs its function; on the page it is a section with its sentence, its charts
and its table, unless ``templates/sections.html.j2`` has a macro of its key that tells more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from freshopt.report.charts import Figure


class Column(NamedTuple):
    """A column of a table, of texts, numbers or bars."""

    head: str
    kind: str = ""


class Table(NamedTuple):
    """A table whose rows begin with their headings.

    The row in place `own` is set apart.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str | float | None]]
    own: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a plan found.

    Attributes
    ----------
    key : str
        Anchor of its section, and name of its macro.
    label : str
        Title of its section, and head of its row on the terminal.
    sentence : str
        What is found, in words.
    facts : mapping of str
        What it is told from.
    table : Table or None
    charts : tuple of Figure
    """

    key: str
    label: str
    sentence: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    table: Table | None = None
    charts: tuple[Figure, ...] = ()
