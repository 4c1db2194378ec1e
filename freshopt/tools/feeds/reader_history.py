"""What a feed reader keeps of feeds, as a change history.

A feed changes when an entry is published. Readers keep the entries for some time, with the dates that feeds
tell: between the oldest and the last look all changes are known. Entries of one second are one change; a date
after the look that found it is that look's. The oldest entry begins the history and is no change of it; what
readers keep beyond their time (starred entries) is left out where it is older than all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from freshopt.errors import SourceDataError, warn
from freshopt.formatting import count
from freshopt.logs.change_history import ChangeHistory
from freshopt.tools.records import moment_told
from freshopt.units import check_time_unit

_LAST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


class Entry(NamedTuple):
    """Entry of a feed: published, found (seconds since 1970), starred."""

    published: float
    found: float
    starred: bool


class KeptFeed(NamedTuple):
    """Feed with its entries.

    Last looked at, in seconds since 1970, and whether it still is.
    """

    url: str
    looked: float
    entries: list[Entry]
    active: bool = True


class _Watched(NamedTuple):
    """Watched time of a feed with its changes, in seconds since 1970."""

    start: float
    end: float
    changes: list[float]


def since_told(since: str | None) -> float:
    """Return the start of a history in seconds since 1970."""
    if since is None:
        return 0.0
    moment = moment_told(since)
    if moment is None:
        raise SourceDataError(f"--since {since!r} is no moment. Write it such as 2026-01-31.")
    return moment.timestamp()


def history_of(feeds: Iterable[KeptFeed], reader: str, time_unit: str, since: float) -> ChangeHistory:
    """Return the history of feeds, from a moment on at the earliest."""
    check_time_unit(time_unit)
    watched: dict[str, _Watched] = {}
    paused = short = 0
    for feed in feeds:
        own = [(_time(each), each.starred) for each in feed.entries]
        own = [(time, starred) for time, starred in own if 0.0 < time < _LAST]
        start = max(since, min((time for time, starred in own if not starred), default=_LAST))
        end = min(max(feed.looked, max((time for time, _ in own), default=0.0)), _LAST)
        paused += not feed.active
        short += feed.active and not start < end
        if feed.active and start < end:
            times = sorted({float(int(time)) for time, _ in own if start < time})
            watched[feed.url] = _Watched(start, end, [max(time, start) for time in times])
    if not watched:
        raise SourceDataError(
            f"{reader} has no feed with entries that it still looks at. Let it look for a while."
        )
    if paused or short:
        warn(
            f"{reader}: left out are {count(paused, 'feed')} not looked at, {short} without entries to tell."
        )
    names = sorted(watched)
    changes = [(name, _moment(time)) for name in names for time in watched[name].changes]
    return ChangeHistory(
        [name for name, _ in changes],
        [time for _, time in changes],
        [_moment(watched[name].start) for name in names],
        [_moment(watched[name].end) for name in names],
        names=names,
        time_unit=time_unit,
    )


def _time(entry: Entry) -> float:
    """Return when an entry was published, if that can be."""
    return min(entry.published, entry.found) if entry.published > 0.0 else entry.found


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
