"""Names of sources as columns of text, and lines of them.

Names are checked and lines are put together by polars, for all sources at once. What a regular expression
does not settle, such as a URL with a host in another alphabet, is looked at name by name, by Python.

Cost: 1-2 μs a source, some milliseconds of it for a million names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from freshopt.errors import SourceDataError, list_offenders

if TYPE_CHECKING:
    import polars

# Lines that are in memory at once: more do not stay in the caches until they are written.
TOGETHER = 2**14
# URLs that are certain to be some: `urlsplit` finds a host and a port in them, and all their letters are
# printable in every version of Unicode that Python has had. Other names are looked at one by one.
_PLAIN_URL = (
    r"^(?i:https?)://([A-Za-z0-9._~-]+)(?::[0-9]{1,4})?"
    r"(?:[/?#][!-~\x{A1}-\x{AC}\x{AE}-\x{24F}\x{400}-\x{44F}\x{4E00}-\x{9FCC}]*)?$"
)
_SCHEMES = "http", "https"


def text_of(names: list[str]) -> polars.Series:
    """Return names as a column of text.

    Text in UTF-8 has no lone surrogates: a name that has one becomes a zero byte, which no format takes.
    """
    import polars

    try:
        return polars.Series("name", names, dtype=polars.String)
    except UnicodeEncodeError:
        return polars.Series("name", ["\0" if has_surrogate(name) else name for name in names])


def has_surrogate(name: str) -> bool:
    """Return whether a name has a lone surrogate, which UTF-8 has not."""
    return any("\ud800" <= letter <= "\udfff" for letter in name)


def urls_of(names: list[str], tool: str) -> polars.Series:
    """Return names as text; raise if they are no URLs.

    Examples
    --------
    >>> urls_of(["https://example.org/ü?q='1'"], "a tool").len()
    1
    >>> urls_of(["7"], "a tool")
    Traceback (most recent call last):
    ...
    freshopt.errors.SourceDataError: source '7' is no URL. a tool fetches http, https. Name it by its URL.
    """
    text = text_of(names)
    doubtful = (~text.str.contains(_PLAIN_URL)).arg_true()
    wrong = [repr(names[k]) for k in doubtful.to_list() if not _is_url(names[k])]
    if wrong:
        raise SourceDataError(
            f"source {list_offenders(wrong)} is no URL. {tool} fetches {', '.join(_SCHEMES)}. "
            f"Name {'it by its URL' if len(wrong) == 1 else 'them by their URLs'}."
        )
    return text


def hosts_of(urls: polars.Series) -> polars.Series:
    """Return the hosts of what `urls_of` returned.

    Examples
    --------
    >>> hosts_of(urls_of(["https://Example.org:80/a", "http://[::1]/"], "a tool")).to_list()
    ['example.org', '::1']
    """
    hosts = urls.str.extract(_PLAIN_URL, 1).str.to_lowercase()
    doubtful = hosts.is_null().arg_true()
    found = [urlsplit(url).hostname or "" for url in urls.gather(doubtful).to_list()]
    return hosts.scatter(doubtful, found) if found else hosts


def _is_url(name: str) -> bool:
    if any(letter.isspace() or not letter.isprintable() for letter in name):
        return False
    try:
        parts = urlsplit(name)
        _ = parts.port  # which is read, and may be wrong, only now
    except ValueError:
        return False
    return parts.scheme.lower() in _SCHEMES and bool(parts.hostname)


def write_lines(
    path: Path,
    table: polars.DataFrame,
    line: polars.Expr,
    *,
    head: str = "",
    between: str = "",
    end: str = "",
) -> None:
    """Write a text for each row of a table, in UTF-8."""
    with path.open("wb") as file:
        file.write(head.encode())
        for begin in range(0, table.height, TOGETHER):
            part = table.slice(begin, TOGETHER).select(line.str.join(between))
            file.write(f"{between if begin else ''}{part.item()}".encode())
        file.write(end.encode())
