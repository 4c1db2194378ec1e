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
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, TypedDict

from freshopt.errors import SourceDataError
from freshopt.heavy import polars
from freshopt.logs.change_history import ChangeHistory
from freshopt.tools.changedetection_api import JsonApi
from freshopt.tools.feeds.freshrss import SqlUpdates
from freshopt.tools.feeds.reader_history import Entry, KeptFeed, history_of, since_told
from freshopt.tools.whole_seconds import NEVER, Limits

_KEPT = 60 * 86_400.0
# Entries of one answer, and of a feed: older ones tell nothing of today.
_PAGE, _MOST = 1000, 10_000


class _Feed(TypedDict):
    id: int
    feed_url: str
    checked_at: datetime
    disabled: bool


class _Entry(TypedDict):
    published_at: datetime
    created_at: datetime
    starred: bool


class _Entries(TypedDict):
    total: int
    entries: list[_Entry]


@dataclass(frozen=True, slots=True)
class MinifluxApi(JsonApi):
    """A server of Miniflux."""

    tool: ClassVar[str] = "Miniflux"
    header: ClassVar[str] = "X-Auth-Token"
    prefix: ClassVar[str] = "v1"
    keys: ClassVar[str] = "Make an API key in its settings, and pass it as --key"

    def feeds(self) -> list[KeptFeed]:
        """Return all feeds with their entries."""
        found = []
        for each in self.told("feeds", list[_Feed]):
            entries = [] if each["disabled"] else [*self._entries(each["id"])]
            looked = each["checked_at"].timestamp()
            found.append(KeptFeed(each["feed_url"], looked, entries, not each["disabled"]))
        return found

    def _entries(self, feed: int) -> Iterator[Entry]:
        """Yield the entries of a feed, the latest first."""
        many = 0
        while many < _MOST:
            query = f"order=published_at&direction=desc&limit={_PAGE}&offset={many}"
            told = self.told(f"feeds/{feed}/entries?{query}", _Entries)
            for each in told["entries"]:
                yield Entry(each["published_at"].timestamp(), each["created_at"].timestamp(), each["starred"])
            many += len(told["entries"])
            if not told["entries"] or many >= told["total"]:
                return


def read_miniflux(
    path: str, time_unit: str = "day", *, key: str | None = None, since: str | None = None
) -> ChangeHistory:
    """Read the feeds of a running server as a change history."""
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
class Miniflux(SqlUpdates):
    """SQL for its database, to run again and again."""

    limits: ClassVar[Limits] = Limits("Miniflux", step=60, longest=2**31 - 1, shortest=60)
    never: ClassVar[str] = "in a hundred years"

    def line(self) -> polars.Expr:
        """Return the update of a feed, by its address."""
        after = (
            polars.when(polars.col("seconds") == NEVER)
            .then(polars.lit("100 years"))
            .otherwise(polars.format("{} s", "seconds"))
        )
        update = "UPDATE feeds SET next_check_at = checked_at + interval '{}' WHERE feed_url = '{}'"
        return polars.format(f"{update} AND NOT disabled;\n", after, "name")
