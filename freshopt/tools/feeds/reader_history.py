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

import numpy as np

from freshopt.errors import SourceDataError, warn
from freshopt.formatting import count
from freshopt.logs.change_history import ChangeHistory
from freshopt.tools.records import moment_told
from freshopt.units import check_time_unit


class Entry(NamedTuple):
    """Entry of a feed, in seconds since 1970: published, found; whether it is starred."""

    published: float
    found: float
    starred: bool


class KeptFeed(NamedTuple):
    """Feed with its entries, last looked at in seconds since 1970; whether it is looked at."""

    url: str
    looked: float
    entries: list[Entry]
    active: bool = True


def since_told(since: str | None) -> float:
    """Return the start of a history, as an option tells it, in seconds since 1970."""
    if since is None:
        return 0.0
    moment = moment_told(since)
    if moment is None:
        raise SourceDataError(f"--since {since!r} is no moment. Write it such as 2026-01-31.")
    return moment.timestamp()


def history_of(feeds: Iterable[KeptFeed], reader: str, time_unit: str, since: float) -> ChangeHistory:
    """Return the history of feeds, from a moment on at the earliest."""
    check_time_unit(time_unit)
    watched: dict[str, tuple[float, float, list[float]]] = {}
    paused = short = 0
    for feed in feeds:
        own = [
            (min(each.published, each.found) if each.published > 0.0 else each.found, each)
            for each in feed.entries
        ]
        start = max(since, min((time for time, each in own if not each.starred), default=np.inf))
        end = max(feed.looked, max((time for time, _ in own), default=0.0))
        paused += not feed.active
        short += feed.active and not start < end
        if feed.active and start < end:
            times = sorted({float(int(time)) for time, _ in own if start < time})
            watched[feed.url] = start, end, times
    if not watched:
        raise SourceDataError(
            f"{reader} has no feed with entries that it still looks at. Let it look for a while."
        )
    if paused or short:
        warn(
            f"{reader}: left out are {count(paused, 'feed')} not looked at, {short} without entries to tell."
        )
    names = sorted(watched)
    start_end = [[datetime.fromtimestamp(watched[name][k], UTC) for name in names] for k in (0, 1)]
    changes = [
        (name, datetime.fromtimestamp(max(time, watched[name][0]), UTC))
        for name in names
        for time in watched[name][2]
    ]
    source, time = zip(*changes, strict=True) if changes else ((), ())
    return ChangeHistory(list(source), list(time), *start_end, names=names, time_unit=time_unit)
