"""Sitemaps: snapshots of a site's files as a crawl log.

A sitemap tells for each page when it was last modified [1]_; one of news when an article was published [2]_.
Copies of the files, kept from day to day, are a crawl log: a page has changed if its date is another than in
the copy before. When a copy was taken, its name tells, or that of its folder (sitemap-2026-05-01.xml,
20260501T0600/pages.xml.gz), else when the file was written. Pages without a date are left out. An index only
lists sitemaps; where copies of nothing else are kept, the sitemaps that it lists are the sources.

That the dates are true is the site's word: those of the moment of each request, and those that stand still,
are found out where the log is read.

References
----------
.. [1] https://www.sitemaps.org/protocol.html
.. [2] https://developers.google.com/search/docs/crawling-indexing/sitemaps/news-sitemap
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from freshopt.errors import SourceDataError, warn
from freshopt.formatting import count
from freshopt.logs.crawl_log import CrawlLog
from freshopt.tools.records import Paths, Snapshot, files_of, log_of
from freshopt.units import check_time_unit

_GZIP = b"\x1f\x8b"
# A date in a name, with or without a time of day.
_STAMP = re.compile(
    r"(?<!\d)(\d{4})[-_.]?(\d\d)[-_.]?(\d\d)(?:[T_ .-]*(\d\d)[-_.:h]?(\d\d)(?:[-_.:m]?(\d\d))?)?(?!\d)"
)


class _Entry(NamedTuple):
    """A listed page or sitemap, with its date as written."""

    url: str
    written: str
    is_page: bool
    file: Path


def read_sitemap(path: Paths, time_unit: str = "day") -> CrawlLog:
    """Read kept copies of sitemaps as a crawl log.

    Parameters
    ----------
    path : path, or sequence of paths
        A folder with copies of several days, in which files ``*.xml`` and ``*.xml.gz`` are read, at any
        depth; or such files.
    time_unit : str
        "second", "minute", "hour", "day" or "week".

    Returns
    -------
    CrawlLog
        Sources are the URLs of pages. Crawls are the copies, with the date of last change.

    Raises
    ------
    SourceDataError
        If there are no copies of two moments with dates, or a file cannot be read; names the file.

    Warns
    -----
    SourceDataWarning
        Of pages without a date, which are left out.
    """
    check_time_unit(time_unit)
    files = files_of(
        path,
        lambda file: file.name.lower().endswith((".xml", ".xml.gz")),
        "file *.xml or *.xml.gz. Keep copies.",
    )
    moments = {file: _moment(file) for file in files}
    if len(set(moments.values())) < 2:
        when = f"{next(iter(moments.values())):%Y-%m-%d %H:%M}"
        raise SourceDataError(
            f"{files[0]} is the only copy of its sitemap, or all are of {when}. Keep a copy of each day, "
            "with its date in the name, such as sitemap-2026-05-01.xml."
        )
    entries = [entry for file in files for entry in _entries(file)]
    pages = [entry for entry in entries if entry.is_page] or entries
    dated = {}
    # The latest date of a page that a copy lists twice.
    for entry in sorted((entry for entry in pages if entry.written), key=lambda entry: entry.written):
        dated[entry.url, moments[entry.file]] = entry
    nothing = f"no page in {files[0]} has lastmod. Without it a sitemap does not tell what changed."
    silent = {entry.url for entry in pages if not entry.written}
    if silent and dated:
        warn(f"{count(len(silent), 'page')} without lastmod left out, such as {min(silent)}.")
    looks = (
        Snapshot(url, moment, entry.written, str(entry.file), _date(entry.written))
        for (url, moment), entry in dated.items()
    )
    return log_of(looks, "dates of {source}", nothing, time_unit)


def _entries(file: Path) -> Iterator[_Entry]:
    """Yield what a file lists."""
    told: dict[str, str] = {}
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else nullcontext(raw) as content:
                for _, element in ElementTree.iterparse(content):
                    name = element.tag.rpartition("}")[2]
                    if name in ("loc", "lastmod", "publication_date"):
                        told.setdefault(name, (element.text or "").strip())
                    elif name in ("url", "sitemap"):
                        written = told.get("lastmod") or told.get("publication_date") or ""
                        if told.get("loc"):
                            yield _Entry(told["loc"], written, name == "url", file)
                        told = {}
                        element.clear()
    except (ElementTree.ParseError, OSError, EOFError, zlib.error) as error:
        raise SourceDataError(
            f"{file} cannot be read as a sitemap: {error}. Remove this copy, or mend it."
        ) from error


def _moment(file: Path) -> datetime:
    """Return when a copy was taken."""
    for name in (file.name, *(folder.name for folder in file.parents)):
        for found in _STAMP.finditer(name):
            year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
            try:
                return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
            except ValueError:  # digits that are no date
                continue
    return datetime.fromtimestamp(int(file.stat().st_mtime), UTC)


def _date(written: str) -> datetime | None:
    """Return a date of last change; None if it is none."""
    try:
        date = datetime.fromisoformat(written)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
