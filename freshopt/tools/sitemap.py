"""Sitemaps: snapshots of a site's files as a crawl log.

A sitemap tells for each page when it was last modified [1]_; one of news when an article was published [2]_.
Copies of the files, kept from day to day, are a crawl log: a page has changed if its date is another than in
the copy before. When a copy was taken, its name tells, or that of its folder (sitemap-2026-05-01.xml,
20260501T0600/pages.xml.gz), else when the file was written. Pages without a date are left out. An index only
lists sitemaps; where copies of nothing else are kept, the sitemaps that it lists are the sources.

The standard library's parser reads them: expat ends entity bombs by itself since 2.4.1, and no external
entity is read. (defusedxml refuses them earlier, at twice the time.)

That the dates are true is the site's word: those of the moment of each request, and those that stand still,
are found out where the log is read.

References
----------
.. [1] https://www.sitemaps.org/protocol.html
.. [2] https://developers.google.com/search/docs/crawling-indexing/sitemaps/news-sitemap
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from freshopt.errors import SourceDataError, warn
from freshopt.formatting import count
from freshopt.logs.crawl_log import CrawlLog
from freshopt.tools.records import (
    Paths,
    Snapshot,
    files_of,
    log_of,
    moment_of_copy,
    moment_told,
    octets_of,
    unreadable,
)
from freshopt.units import check_time_unit

_DATES = ("lastmod", "publication_date")
# Their namespaces' elements are named as those of pages.
_MEDIA = ("sitemap-image", "sitemap-video")


class _Entry(NamedTuple):
    """A listed page or sitemap, with its date as written."""

    url: str
    written: str
    is_page: bool
    file: Path

    @property
    def state(self) -> datetime | str:
        """What tells of a change: the date, however written."""
        return moment_told(self.written) or self.written


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
    dated = dated_pages(path)
    looks = (
        Snapshot(url, moment, entry.state, str(entry.file), moment_told(entry.written))
        for (url, moment), entry in dated.items()
    )
    return log_of(looks, "dates of {source}", "there is no page", time_unit)


def dated_pages(path: Paths) -> dict[tuple[str, datetime], _Entry]:
    """Return what copies tell of pages, by page and moment."""
    files = files_of(
        path,
        lambda file: file.name.lower().endswith((".xml", ".xml.gz")),
        "file *.xml or *.xml.gz. Keep copies.",
    )
    moments = {file: moment_of_copy(file) for file in files}
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
    for entry in sorted((entry for entry in pages if entry.written), key=lambda entry: str(entry.state)):
        dated[entry.url, moments[entry.file]] = entry
    silent = {entry.url for entry in pages if not entry.written}
    if not dated:
        raise SourceDataError(
            f"no page in {files[0]} has lastmod. Without it a sitemap does not tell what changed."
        )
    if silent:
        warn(f"{count(len(silent), 'page')} without lastmod left out, such as {min(silent)}.")
    return dated


def _entries(file: Path) -> Iterator[_Entry]:
    """Yield what a file lists."""
    told: dict[str, str] = {}
    # Blanks before the declaration, which XML does not have, are common.
    content = io.BytesIO(octets_of(file, "a sitemap").lstrip())
    try:
        for _, element in ElementTree.iterparse(content):
            space, _, name = element.tag.rpartition("}")
            if name == "loc" or name in _DATES:
                if not any(word in space for word in _MEDIA):
                    told.setdefault(name, (element.text or "").strip())
            elif name in ("url", "sitemap"):
                written = next(filter(None, map(told.get, _DATES)), "")
                if told.get("loc"):
                    yield _Entry(told["loc"], written, name == "url", file)
                told = {}
                element.clear()
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the latter of an unknown encoding
        raise unreadable(file, "a sitemap", str(error)) from error
