"""A text of one's own for each source: a template with placeholders.

``{source}``; ``{host}``, the host of its URL; ``{rate}``, refreshes per day; ``{seconds}`` and ``{minutes}``,
its interval, rounded up to whole ones; ``{cron}``, the five time fields of cron: a source that needs several
lines of a crontab has the template once for each. A template that ends in no newline gets one.

A placeholder is a lower-case word in braces, and ``!`` with a letter says how it is quoted: ``{source!q}``.
All other braces (JSON, YAML, SQL arrays, ``${HOME}``) are text. Commands of a shell and of SQL quote what
they are given by themselves, and a placeholder that stands within quotes is refused: what is quoted twice is
not quoted.

Cost: some microseconds a source.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import IntArray
from freshopt.scheduling.rate_table import RateTable
from freshopt.tools.cron_fields import cron_lines
from freshopt.tools.export import Exported, hosts_of, refuse, text_of, urls_of
from freshopt.tools.whole_seconds import (
    NEVER,
    IntervalFormat,
    Limits,
    exported,
    labels,
    require_clocked,
    whole_intervals,
)
from freshopt.units import SECONDS

PLACEHOLDERS = ("source", "host", "rate", "seconds", "minutes", "cron")
_WHAT = "the template"
# Control characters but tabs: a line of a text cannot hold them.
_CONTROL = r"[\x00-\x08\x0a-\x1f\x7f]"
_PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)(?:!([a-z]))?\}")
# Text in even places; (name, letter of the quoting) in odd ones.
Parts: TypeAlias = list[str | tuple[str, str]]


@dataclass(frozen=True, slots=True)
class TextTemplate(IntervalFormat):
    r"""A text file with a template's text for each source.

    Parameters
    ----------
    template : str
        With ``{source}``, as it is, or quoted: ``{source!q}`` for a shell, ``{source!j}`` as JSON,
        ``{source!s}`` as an SQL string, ``{source!i}`` as an SQL name, ``{source!u}`` percent-encoded.

    Examples
    --------
    >>> import tempfile
    >>> from freshopt.tools import export
    >>> path = Path(tempfile.mkdtemp()) / "jobs.txt"
    >>> done = export({"a b": 24.0, "never": 0.0}, TextTemplate("every {seconds} s: curl {source!q}"), path)
    >>> path.read_text()
    "every 3600 s: curl 'a b'\n"
    """

    template: str

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `ToolFormat.write`.

        Raises
        ------
        SourceDataError
            If the template has no ``{source}`` or an unknown placeholder, a name or an interval cannot be
            written, or a source waits for signals.
        """
        parts = parts_of(self.template, PLACEHOLDERS, _WHAT, strict=True)
        require_placeholder(parts, "source", _WHAT)
        used = {part[0] for part in parts if isinstance(part, tuple)}
        require_clocked(table, "a template")
        names = labels(table)
        text = text_of(names)
        refuse(
            names,
            text.str.contains(_CONTROL).arg_true(),
            "has a newline, another control character or a lone surrogate, which would end its line. Rename "
            "it.",
        )
        seconds = np.zeros(len(names), dtype=np.int64)
        if "cron" not in used or used & {"seconds", "minutes"}:
            step = 60 if "minutes" in used else 1
            seconds = whole_intervals(table, Limits(_WHAT, step=step, longest=10**15, shortest=step))
        if "cron" in used:
            lines, done = cron_lines(table, "cron")
        else:
            lines = [[""] if own != NEVER else [] for own in seconds]
            done = exported(table, seconds, "left out")
        hosts = hosts_of(urls_of(names, "{host} is that of what")).to_list() if "host" in used else names
        end = "" if self.template.endswith("\n") else "\n"
        with path.open("w", encoding="utf-8", newline="") as file:
            for values in _values(names, hosts, table, seconds, lines):
                file.write(filled(parts, values) + end)
        return done


def _values(
    names: list[str], hosts: list[str], table: RateTable, seconds: IntArray, lines: list[list[str]]
) -> Iterator[dict[str, str]]:
    """Yield what the placeholders stand for, once for each line."""
    per_day = table.rates * (SECONDS["day"] / SECONDS[table.time_unit])
    rows = zip(names, hosts, per_day.tolist(), seconds.tolist(), lines, strict=True)
    for name, host, rate, interval, own in rows:
        for fields in own:
            yield {
                "source": name,
                "host": host,
                "rate": f"{rate:.6g}",
                "seconds": str(interval),
                "minutes": str(interval // 60),
                "cron": fields,
            }


def sql_literal(text: str) -> str:
    r"""Return a string constant of PostgreSQL.

    It is read alike whatever ``standard_conforming_strings`` is.

    Examples
    --------
    >>> print(sql_literal("it's"), sql_literal("a\\b"))
    'it''s' E'a\\b'
    """
    doubled = text.replace("'", "''")
    escaped = doubled.replace("\\", "\\\\")
    return f"'{doubled}'" if escaped == doubled else f"E'{escaped}'"


def sql_identifier(text: str) -> str:
    """Return a name of SQL, each part between dots in quotes.

    Examples
    --------
    >>> print(sql_identifier('sales.daily "net" sum'))
    "sales"."daily ""net"" sum"
    """
    return ".".join('"{}"'.format(part.replace('"', '""')) for part in text.split("."))


QUOTINGS: Mapping[str, Callable[[str], str]] = {
    "": str,
    "q": shlex.quote,
    "j": lambda text: json.dumps(text, ensure_ascii=False),
    "s": sql_literal,
    "i": sql_identifier,
    "u": lambda text: quote(text, safe=""),
}
QUOTING_WORDS = "!q for a shell, !j as JSON, !s as an SQL string, !i as an SQL name, !u percent-encoded"


def parts_of(template: str, known: Collection[str], what: str, *, strict: bool) -> Parts:
    """Return a template as texts and placeholders, in turn.

    Examples
    --------
    >>> parts_of('{"url": {source!j}}', ["source"], "the template", strict=True)
    ['{"url": ', ('source', 'j'), '}']
    """
    found: Parts = []
    begin = 0
    for match in _PLACEHOLDER.finditer(template):
        name, letter = match[1], match[2] or ""
        if name not in known:
            if not strict:
                continue
            raise SourceDataError(
                f"{what} has the placeholder {match[0]}. Known are "
                f"{', '.join(f'{{{own}}}' for own in known)}. Correct it."
            )
        if letter not in QUOTINGS:
            raise SourceDataError(f"{what} has {match[0]}. Quotings are {QUOTING_WORDS}. Correct it.")
        found += [template[begin : match.start()], (name, letter)]
        begin = match.end()
    return [*found, template[begin:]]


def require_placeholder(parts: Parts, name: str, what: str) -> None:
    """Raise SourceDataError if a placeholder is missing."""
    if not any(isinstance(part, tuple) and part[0] == name for part in parts):
        raise SourceDataError(
            f"{what} has no {{{name}}}, so that all sources would be written alike. Add {{{name}}} where the "
            "source's name belongs."
        )


def require_unquoted(parts: Parts, what: str, quotes: str) -> None:
    """Raise SourceDataError if a placeholder stands within quotes.

    Those of a shell are ``'``, ``"`` and a backtick, those of SQL the first two.

    Examples
    --------
    >>> require_unquoted(["curl '", ("source", ""), "'"], "the command", "'")
    Traceback (most recent call last):
    ...
    freshopt.errors.SourceDataError: the command has {source} within quotes. ... Leave the quotes out.
    """
    inside = ""
    for part in parts:
        if isinstance(part, tuple):
            if inside:
                raise SourceDataError(
                    f"{what} has {{{part[0]}}} within quotes. What stands there is quoted as it needs to be. "
                    "Leave the quotes out."
                )
            continue
        skip = False
        for letter in part:
            # In a shell a backslash takes the meaning off the next letter, but not within '...'.
            if skip:
                skip = False
            elif letter == "\\" and inside != "'" and "`" in quotes:
                skip = True
            elif inside:
                inside = "" if letter == inside else inside
            elif letter in quotes:
                inside = letter


def filled(parts: Parts, values: Mapping[str, str], quoting: str = "") -> str:
    """Return a template with its placeholders replaced.

    Examples
    --------
    >>> filled(["curl ", ("source", ""), ""], {"source": "http://a/?x=1&y=2"}, "q")
    "curl 'http://a/?x=1&y=2'"
    """
    return "".join(
        part if isinstance(part, str) else QUOTINGS[part[1] or quoting](values[part[0]]) for part in parts
    )
