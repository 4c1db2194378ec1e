"""Placeholders of templates and commands, such as ``{source}``.

A placeholder is a lower-case word in braces, and ``!`` with a letter says how it is quoted: ``{source!q}``.
All other braces (JSON, YAML, SQL arrays, ``${HOME}``) are text. Commands of a shell and of SQL quote what
they are given by themselves, and a placeholder that stands within quotes is refused: what is quoted twice is
not quoted.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias
from urllib.parse import quote

from freshopt.errors import SourceDataError

_PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)(?:!([a-z]))?\}")
# Text in even places; (name, letter of the quoting) in odd ones.
Parts: TypeAlias = list[str | tuple[str, str]]


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

    Parameters
    ----------
    template : str
    known : collection of str
        The names of placeholders.
    what : str
        Names the template in an error.
    strict : bool
        Whether a word in braces that is none of them is an error, or text.

    Raises
    ------
    SourceDataError
        If a placeholder, or the letter of its quoting, is unknown.

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

    Parameters
    ----------
    parts : list
        From `parts_of`.
    values : mapping of str to str
    quoting : str
        The letter of the quoting of placeholders that name none.

    Examples
    --------
    >>> filled(["curl ", ("source", ""), ""], {"source": "http://a/?x=1&y=2"}, "q")
    "curl 'http://a/?x=1&y=2'"
    """
    return "".join(
        part if isinstance(part, str) else QUOTINGS[part[1] or quoting](values[part[0]]) for part in parts
    )
