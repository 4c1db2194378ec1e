"""`export`: rates or lifetimes as an atomic file or folder.

`ToolFormat` is what it asks of a format. Names of sources are columns of text: polars checks them and puts
lines together, for all sources at once. What a regular expression does not settle, such as a URL with a host
in another alphabet, is looked at name by name, by Python.

Cost: 1-2 μs a source, some milliseconds of it for a million names.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from urllib.parse import urlsplit

from freshopt.errors import SourceDataError, expect, list_offenders
from freshopt.heavy import polars
from freshopt.logs.atomic_output import complete_file, complete_folder
from freshopt.scheduling.rate_table import LifetimeTable, RateTable

if TYPE_CHECKING:
    from freshopt.certificates.solution import Solution

Table = TypeVar("Table", RateTable, LifetimeTable)
# Lines that are in memory at once: more do not stay in the caches until they are written.
TOGETHER = 2**14
# Letters of a name in a refusal.
NAMED = 80
# URLs that are certain to be some: `urlsplit` finds a host and a port in them, and all their letters are
# printable in every version of Unicode that Python has had. Other names are looked at one by one.
_PLAIN_URL = (
    r"^(?i:https?)://([A-Za-z0-9._~-]+)(?::[0-9]{1,4})?"
    r"(?:[/?#][!-~\x{A1}-\x{AC}\x{AE}-\x{24F}\x{400}-\x{44F}\x{4E00}-\x{9FCC}]*)?$"
)
_SCHEMES = "http", "https"


@dataclass(frozen=True, slots=True)
class Exported:
    """Summary of what was written.

    Attributes
    ----------
    sources : int
        With an interval.
    never : int
        Sources that are never refreshed.
    never_words : str
        What was written of those.
    planned, realised : float
        Total refreshes per `time_unit`: by the rates, and by what was written. Realised is never more.
    largest_loss : float
        Largest relative shortfall of the rate of one source.
    time_unit : str
    """

    sources: int
    never: int
    never_words: str
    planned: float
    realised: float
    largest_loss: float
    time_unit: str


class ToolFormat(ABC, Generic[Table]):
    """Format of a tool, a frozen record of its settings.

    Attributes
    ----------
    files : tuple of str
        Files of the folder; none for a single file.
    """

    __slots__ = ()
    files: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def read(self, given: Any, time_unit: str | None) -> Table:  # noqa: ANN401 - any dataframe library's frame
        """Return what the format is made of, as a checked table."""

    @abstractmethod
    def write(self, table: Table, path: Path) -> Exported:
        """Write to a file, or into an empty folder.

        Raises
        ------
        SourceDataError
            If the tool cannot hold a name or an interval, or a source waits for signals.
        """


def export(
    rates: Solution | Mapping[Any, float] | Any,  # noqa: ANN401 - any dataframe library's frame
    target: ToolFormat[Any],
    path: str | os.PathLike[str],
    *,
    time_unit: str | None = None,
    overwrite: bool = False,
    retry_at_once: bool = False,
) -> Exported:
    r"""Write each source's interval or lifetime for a tool.

    Parameters
    ----------
    rates : Solution, mapping or dataframe
        As `fo.schedule` takes them. For a cache, a solution of copies that are refreshed on request,
        lifetimes by name, or a table with columns source and lifetime.
    target : ToolFormat
        For example ``Nutch()``, or ``CacheControl()``.
    path : path
        A file; a folder if the format has several files.
    time_unit : str, optional
        The unit of the rates. A solution brings its own; otherwise the default is "day".
    overwrite : bool
        Whether an earlier result may be replaced.
    retry_at_once : bool
        Of rates of attempts, which may fail: whether the tool repeats a failed fetch at once. The intervals
        are then those of successes, for as many attempts. Rates that are optimal for such a tool are those of
        `freshopt.scheduling.retried_at_once`, which need no such option.

    Returns
    -------
    Exported
        With the total rate that comes of intervals in whole seconds or minutes.

    Raises
    ------
    SourceDataError
        If a source has a name or an interval that the format cannot hold, or waits for signals; or the path
        cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from freshopt.tools import StormCrawler
    >>> path = Path(tempfile.mkdtemp()) / "seeds.txt"
    >>> done = export({"https://example.org/": 7.0}, StormCrawler(), path)
    >>> path.read_text(), round(done.realised, 3)
    ('https://example.org/\tscheduler.delay.mins=206\n', 6.99)
    """
    if not isinstance(target, ToolFormat):
        kind = type(target).__name__
        raise TypeError(f"target is of type {kind}. Pass an instance, such as freshopt.tools.Crontab().")
    expect(overwrite, bool, "overwrite", "Pass True or False")
    expect(retry_at_once, bool, "retry_at_once", "Pass True or False")
    table = target.read(rates, time_unit)
    if retry_at_once:
        table = table.of_successes()
    if not target.files:
        with complete_file(path, overwrite) as file:
            return target.write(table, file)
    with complete_folder(path, overwrite, marker=target.files[0], files=target.files) as folder:
        return target.write(table, folder)


def text_of(names: list[str]) -> polars.Series:
    """Return names as a column of text.

    Text in UTF-8 has no lone surrogates: a name that has one becomes a zero byte, which no format takes.
    """
    try:
        return polars.Series("name", names, dtype=polars.String)
    except UnicodeEncodeError:
        return polars.Series("name", ["\0" if has_surrogate(name) else name for name in names])


def refuse(names: Sequence[str], wrong: Iterable[int], words: str) -> None:
    """Raise if sources have names that cannot be written."""
    offenders = [repr(names[k][:NAMED]) for k in wrong]
    if offenders:
        raise SourceDataError(f"source {list_offenders(offenders)} {words}")


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
