"""Miniflux: feeds with their entries as a change history; intervals as SQL.

Its programming interface tells feeds (``GET /v1/feeds``: ``feed_url``, ``checked_at``, ``disabled``) and
their entries (``GET /v1/feeds/ID/entries``: ``published_at``, ``created_at``, ``starred``), with a key [1]_.
Entries that were read are removed 60 days after they were found (``CLEANUP_ARCHIVE_READ_DAYS``), others
later: of feeds that it has had for longer the history begins then, unless told otherwise.

It has no interval for each feed, but the moment of the next look, ``next_check_at``. What is written sets
that to the interval after the last look, so that it may be run again and again: every few minutes, by cron
and ``psql``. Miniflux then looks as often as its ``POLLING_FREQUENCY`` (in minutes) allows. Where it does not
run, Miniflux's own schedule holds.

References
----------
.. [1] https://miniflux.app/docs/api.html; https://github.com/miniflux/v2, 2.3.3, ``internal/api/api.go``,
   ``internal/api/entry_handlers.go``, ``internal/storage/entry.go``, ``internal/storage/batch.go``
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from freshopt.errors import SourceDataError
from freshopt.logs.change_history import ChangeHistory
from freshopt.tools.changedetection_api import JsonApi
from freshopt.tools.feeds.freshrss import literals
from freshopt.tools.feeds.reader_history import Entry, KeptFeed, history_of, since_told
from freshopt.tools.whole_seconds import NEVER, IntervalFormat, Limits

if TYPE_CHECKING:
    import polars

_KEPT = 60 * 86_400.0
# Entries of one answer, and of a feed: older ones tell nothing of today.
_PAGE, _MOST = 1000, 10_000


@dataclass(frozen=True, slots=True)
class ToldFeed:
    """Feed as the interface tells it."""

    id: int
    feed_url: str
    checked_at: datetime
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class ToldEntry:
    """Entry as the interface tells it."""

    published_at: datetime
    created_at: datetime
    starred: bool = False


@dataclass(frozen=True, slots=True)
class ToldEntries:
    """Answer with entries."""

    total: int
    entries: list[ToldEntry]


@dataclass(frozen=True, slots=True)
class MinifluxApi(JsonApi):
    """A server of Miniflux."""

    tool: ClassVar[str] = "Miniflux"
    header: ClassVar[str] = "X-Auth-Token"
    prefix: ClassVar[str] = "v1"
    keys: ClassVar[str] = "Make an API key in its settings, and pass it as --key"

    def feeds(self) -> list[KeptFeed]:
        """Return all feeds with their entries."""
        told = self.told("feeds", list[ToldFeed])
        return [
            KeptFeed(
                each.feed_url,
                each.checked_at.timestamp(),
                [] if each.disabled else self._entries(each.id),
                active=not each.disabled,
            )
            for each in told
        ]

    def _entries(self, feed: int) -> list[Entry]:
        """Return the entries of a feed, the latest first."""
        found: list[Entry] = []
        while len(found) < _MOST:
            query = f"order=published_at&direction=desc&limit={_PAGE}&offset={len(found)}"
            told = self.told(f"feeds/{feed}/entries?{query}", ToldEntries)
            found += [
                Entry(each.published_at.timestamp(), each.created_at.timestamp(), each.starred)
                for each in told.entries
            ]
            if len(told.entries) == 0 or len(found) >= told.total:
                break
        return found


def read_miniflux(
    path: str, time_unit: str = "day", *, key: str | None = None, since: str | None = None
) -> ChangeHistory:
    """Read the entries of a running Miniflux as a change history.

    Parameters
    ----------
    path : str
        Its address, such as "http://localhost:8080".
    time_unit : str
        "second", "minute", "hour", "day" or "week".
    key : str, optional
        API key; by default that of the environment variable MINIFLUX_KEY.
    since : str, optional
        Start of the history, such as "2026-01-31"; by default each feed's oldest entry, or 60 days ago where
        it has entries that were found before.

    Returns
    -------
    ChangeHistory
        Sources are the addresses of feeds.

    Raises
    ------
    SourceDataError
        If the server cannot be reached, refuses the key, or answers what is no answer of Miniflux.

    Warns
    -----
    SourceDataWarning
        Of feeds that are disabled or have no entries; they are left out.
    """
    begin = since_told(since)
    key = key or os.environ.get("MINIFLUX_KEY", "")
    if not key:
        raise SourceDataError("Miniflux asks for a key. Pass --key, or set MINIFLUX_KEY.")
    feeds = MinifluxApi(str(path).rstrip("/"), key).feeds()
    if since is None:
        feeds = [feed._replace(entries=_kept(feed)) for feed in feeds]
    return history_of(feeds, "Miniflux", time_unit, begin)


def _kept(feed: KeptFeed) -> list[Entry]:
    """Return the entries of the time in which none has been removed."""
    begin = feed.looked - _KEPT
    if all(each.found >= begin for each in feed.entries):
        return feed.entries
    return [each for each in feed.entries if each.published >= begin]


@dataclass(frozen=True, slots=True)
class Miniflux(IntervalFormat):
    """SQL for its database, to run again and again."""

    limits: ClassVar[Limits] = Limits("Miniflux", step=60, longest=2**31 - 1, shortest=60)
    never: ClassVar[str] = "in a hundred years"
    around: ClassVar[tuple[str, str, str]] = ("BEGIN;\n", "", "COMMIT;\n")

    def text(self, names: list[str]) -> polars.Series:
        """Return names that are URLs."""
        return literals(names, "Miniflux")

    def line(self) -> polars.Expr:
        """Return the update of a feed, by its address."""
        from polars import col, format, lit, when

        after = when(col("seconds") == NEVER).then(lit("100 years")).otherwise(format("{} s", "seconds"))
        update = "UPDATE feeds SET next_check_at = checked_at + interval '{}' WHERE feed_url = '{}'"
        return format(f"{update} AND NOT disabled;\n", after, "name")
