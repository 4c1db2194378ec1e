"""Signals of changes: from sitemaps, feeds, and what was pushed.

A signal says that a source has changed. Crawlers get them by looking at a sitemap or a feed, which tell of
many pages at once, or have them sent to: WebSub [1]_, IndexNow [2]_, webhooks. The table has a row for each:
``source``, ``time`` and ``kind``. How many changes signals tell of, and how many signals are false, is learnt
where the table is read, beside a log.

The time is the moment that is told: lastmod, or the date of an entry, but no later than the copy that has it;
or that copy's own, where a day is told without a time of day, or nothing. With ``seen`` it is always the
copy's: when a crawler that keeps these copies could have known.

References
----------
.. [1] https://www.w3.org/TR/websub/
.. [2] https://www.indexnow.org/documentation
"""

from __future__ import annotations

import calendar
import io
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urljoin

from freshopt.errors import SourceDataError, one_of, shown, warn
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.logs.access_log import is_access_text, read_pushes
from freshopt.tools.records import (
    Paths,
    files_of,
    moment_of_copy,
    moment_told,
    octets_of,
    typed,
    unreadable,
)
from freshopt.tools.sitemap import dated_pages

WHEN, OF = ("dated", "seen"), ("entries", "feed")
_FEEDS = (".xml", ".rss", ".atom", ".rdf", ".feed")
_DAY = re.compile(r"\s*\d{4}(-\d\d(-\d\d)?)?\s*")
_WEB = ("http://", "https://")
# What receivers call the moment, and where they keep the body.
_MOMENTS = ("time", "received_at", "timestamp", "@timestamp", "date", "at", "ts")
_BODIES = ("body", "payload", "data", "json")
# Whose changes are told, and by what.
_PUSHED = (
    ("urlList", "indexnow"),
    ("hub.topic", "websub"),
    ("topic", "websub"),
    ("url", "webhook"),
    ("source", "webhook"),
)


class Signal(NamedTuple):
    """Signal of a source."""

    source: str
    time: datetime
    kind: str


def sitemap_signals(path: Paths, *, when: str = "dated") -> polars.DataFrame:
    """Read the signals between kept copies of sitemaps.

    A page signals where a copy has another date of it than the copy before, or has it for the first time.
    """
    one_of(when, WHEN, "--when")
    dated = dated_pages(path)
    first = min(moment for _, moment in dated)
    before: dict[str, object] = {}
    found = []
    for (url, moment), entry in sorted(dated.items(), key=lambda item: item[0][1]):
        if before.get(url) != entry.state and moment > first:
            found.append(Signal(url, _time(entry.written, moment, when), "sitemap"))
        before[url] = entry.state
    return _table(found, "the copies are alike: no date changes between them. Keep more of them.")


def feed_signals(path: Paths, *, when: str = "dated", of: str = "entries") -> polars.DataFrame:
    """Read the signals of entries in kept copies of feeds.

    Each signals when it was published and updated; a single copy has those of its entries. Sources are the
    pages that they link to, or the feed itself.
    """
    one_of(when, WHEN, "--when")
    one_of(of, OF, "--of")
    files = files_of(
        path,
        lambda file: file.name.lower().removesuffix(".gz").endswith(_FEEDS),
        f"feed, such as *{' *'.join(_FEEDS)}, also gzipped. Keep copies.",
    )
    moments = {file: moment_of_copy(file) for file in files}
    seen: set[tuple[str, str, str]] = set()
    first: dict[str, datetime] = {}
    found, lost = [], 0
    for file in sorted(files, key=moments.__getitem__):
        feed = _feed(file)
        own = _address(feed) or file.parent.name
        begun = first.setdefault(own, moments[file])
        for entry in feed.entries:
            source = own if of == "feed" else _absolute(own, str(entry.get("link", "")))
            which = str(entry.get("id") or entry.get("link") or entry.get("title"))
            for date in _dates(entry):
                # What the first copy has without a moment was there before, nobody knows since when.
                known = moments[file] > begun or (when == "dated" and isinstance(date, datetime))
                lost += not known or not source.startswith(_WEB)
                if known and source.startswith(_WEB) and (own, which, str(date)) not in seen:
                    found.append(Signal(source, _time(date, moments[file], when), "feed"))
                seen.add((own, which, str(date)))
    if lost:
        warn(f"{count(lost, 'date')} of entries left out: without a link, or no moment told in a first copy.")
    return _table(found, f"no entry of {files[0]} tells of a change. Keep a copy of each day.")


def push_signals(path: Paths) -> polars.DataFrame:
    """Read the signals that a log has of what was pushed.

    In access logs, requests with ``?url=`` are IndexNow's, those by POST to a path that was subscribed (``GET
    ...?hub.mode=subscribe&hub.topic=...``) WebSub's. JSON lines have a request each: its moment (time,
    received_at, timestamp) and its body, ``urlList`` of IndexNow, ``topic`` of WebSub, else ``url`` or
    ``source`` of a webhook; ``kind`` says it otherwise.
    """
    found: list[Signal] = []
    for file in files_of(
        path, lambda file: ".jsonl" in file.name or ".log" in file.name, "file *.jsonl or *.log"
    ):
        found += _requested(file) if is_access_text(file) else _received(file)
    return _table(found, f"{path} has no signal. Check that it is the log of what receives them.")


def _table(signals: Iterable[Signal], nothing: str) -> polars.DataFrame:
    """Return signals in order of time, each once."""
    rows = sorted(set(signals), key=lambda each: (each.time, each.source, each.kind))
    if not rows:
        raise SourceDataError(nothing)
    text, moment = polars.String(), polars.Datetime("us", "UTC")
    schema: dict[str, polars.DataType] = {"source": text, "time": moment, "kind": text}
    return polars.DataFrame(rows, schema=schema, orient="row")


def _time(date: str | datetime, seen: datetime, when: str) -> datetime:
    """Return the moment of a signal that stands in a copy."""
    told = date if isinstance(date, datetime) else None if _DAY.fullmatch(date) else moment_told(date)
    return seen if told is None or when == "seen" else min(told, seen)


def _feed(file: Path) -> Any:  # noqa: ANN401 - what feedparser returns
    """Return a feed."""
    try:
        import feedparser
    except ImportError:
        raise SourceDataError(
            "feedparser is not installed. Install it with: pip install 'freshopt[feeds]'"
        ) from None
    octets = octets_of(file, "a feed").lstrip()
    try:
        # Of bytes it would look for a file with that name.
        read = feedparser.parse(io.BytesIO(octets), sanitize_html=False, resolve_relative_uris=False)
    except (ValueError, LookupError) as error:  # of an encoding that is none
        raise unreadable(file, "a feed", str(error)) from error
    if not read.get("version") and not read.entries:
        raise unreadable(file, "a feed", str(read.get("bozo_exception", "no RSS or Atom")))
    return read


def _address(feed: Any) -> str:  # noqa: ANN401
    """Return the address of a feed, as it tells it."""
    links = [link for link in feed.feed.get("links", ()) if link.get("rel") == "self"]
    return str(links[0].get("href", "") if links else feed.feed.get("link", ""))


def _absolute(feed: str, link: str) -> str:
    """Return the address of a page, empty if it is none."""
    try:
        return urljoin(feed, link)
    except ValueError:
        return ""


def _dates(entry: Any) -> list[str | datetime]:  # noqa: ANN401
    """Return when an entry was published and updated.

    Days are as they are written; an empty text where there is neither.
    """
    told: set[str | datetime] = set()
    for name in ("published", "updated"):
        # Its own lookup would take the one for the other.
        written, parsed = dict.get(entry, name, ""), dict.get(entry, f"{name}_parsed")
        if parsed is not None:
            told.add(
                written if _DAY.fullmatch(written) else datetime.fromtimestamp(calendar.timegm(parsed), UTC)
            )
    return sorted(told, key=str) or [""]


def _requested(file: Path) -> Iterator[Signal]:
    """Yield the signals of an access log."""
    topics: dict[str, str] = {}
    for url, sent, time in read_pushes(file):
        path, _, query = url.partition("?")
        told = parse_qs(query)
        if "hub.topic" in told:
            # It was verified: a subscription begins, or ends.
            topics.pop(path, None)
            topics |= {path: told["hub.topic"][0]} if told.get("hub.mode") == ["subscribe"] else {}
        elif sent and path in topics:
            yield Signal(topics[path], time, "websub")
        else:
            yield from (Signal(source, time, "indexnow") for source in told.get("url", ()))


def _received(file: Path) -> Iterator[Signal]:
    """Yield the signals of JSON lines."""
    for number, line in enumerate(octets_of(file, "JSON lines").splitlines(), start=1):
        if not line.strip():
            continue
        what = f"line {number} of {file}"
        row = typed(line, dict[str, Any], what, "Correct or remove it.")
        body = next((row[name] for name in _BODIES if name in row), row)
        if isinstance(body, str):
            body = typed(body.encode(), dict[str, Any], f"the body in {what}", "Correct or remove it.")
        time = next((moment_told(row[name]) for name in _MOMENTS if name in row), None)
        key, kind = next(
            ((key, kind) for key, kind in _PUSHED if isinstance(body, dict) and key in body), ("", "")
        )
        if time is None or not kind:
            raise SourceDataError(
                f"{what} has {'no source' if time else 'no moment'}: {shown(json.loads(line))}. Give it "
                f"{'url, urlList or topic' if time else 'time'}, or remove it."
            )
        told = body[key] if isinstance(body[key], list) else [body[key]]
        yield from (Signal(str(source), time, str(row.get("kind") or kind)) for source in told)
