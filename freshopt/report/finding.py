"""`Finding`: one thing that a plan found, for terminal, summary and page.

Findings are functions of a plan's facts, in order of telling; each returns a finding, or None where there
is nothing to tell. A new one needs its function; on the page it is a section with its sentence, its charts
and its table, unless ``templates/sections.html.j2`` has a macro of its key that tells more. The terminal
prints its sentence as a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from freshopt.report.markup import unmarked

if TYPE_CHECKING:
    from freshopt.report.charts import Figure


class Column(NamedTuple):
    """A column of a table, of texts, numbers or bars."""

    head: str
    kind: str = ""


class Table(NamedTuple):
    """A table of headed rows, that in place `own` set apart."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str | float | None]]
    own: int | None = None

    @classmethod
    def of(
        cls,
        caption: str,
        named: str,
        heads: Iterable[str],
        rows: Sequence[Sequence[str | float | None]],
        own: int | None = None,
    ) -> Table:
        """Return a table of numbers, whose first column has names."""
        return cls(caption, [Column(named), *(Column(head, "number") for head in heads)], rows, own)

    def texts(self) -> list[list[str]]:
        """Return heads and cells without markup; bars are left out."""
        kept = [k for k, column in enumerate(self.columns) if column.kind != "bar"]
        heads = [self.columns[k].head for k in kept]
        return [heads, *([unmarked(row[k]) for k in kept] for row in self.rows)]


def listed(what: str, shown: int, of: int) -> str:
    """Return a caption; it says where rows are left out."""
    return f"{what}: the first {shown:,} of {of:,}" if shown < of else what


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a plan found.

    - `key`: Anchor of its section, and name of its macro.
    - `label`: Head of its row on the terminal.
    - `sentence`: What is found, in words, a line or several; without it there is no row.
    - `facts`: What it is told from.
    - `title`: Of its section on the page; without it there is none.
    """

    key: str
    label: str
    sentence: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    table: Table | None = None
    charts: tuple[Figure, ...] = ()
    title: str = ""

    def section(
        self,
        title: str,
        facts: Mapping[str, Any] | None = None,
        table: Table | None = None,
        charts: tuple[Figure, ...] = (),
    ) -> Finding:
        """Return it with a section on the page."""
        return replace(self, title=title, facts={} if facts is None else facts, table=table, charts=charts)

    def rows(self) -> list[tuple[str, str]]:
        """Return its rows on the terminal."""
        lines = [line for line in self.sentence.split("\n") if line]
        return [("" if k else self.label, line) for k, line in enumerate(lines)]
