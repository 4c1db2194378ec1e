"""`read_access_log`: requests of a server's, proxy's, cache's or crawler's log.

How its lines are written, the first of them tell, or a pattern does; see `freshopt.logs.access_formats`. A
client that asks conditionally (If-None-Match, If-Modified-Since) gets 304 where nothing has changed and 200
where something has: the log tells both.

The log of a cache tells more: which requests it passed on, and whether its own copy was still good (nginx's
REVALIDATED, Squid's TCP_REFRESH_UNMODIFIED, CloudFront's RefreshHit) or had changed. Those are the crawls of
the cache, and what it answered from its copy is no crawl of the source. Where it had no copy and fetched one,
it is not known whether anything had changed.

Cost: a few passes of regular expressions over the lines; 10⁷ lines take about half a minute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError, shown, warn
from freshopt.formatting import count
from freshopt.heavy import msgspec, polars
from freshopt.logs.access_formats import (
    FORMATS,
    KNOWN,
    expression,
    held_at,
    json_places,
    tells_requests,
    w3c_expression,
)
from freshopt.logs.client_copies import WHOSE, Client, requests_of_client
from freshopt.logs.file_kinds import content, kind_of, parsing
from freshopt.logs.synonyms import guessed
from freshopt.numerics.arrays import IntArray

# A separator that no line holds, so that polars reads each line as one cell.
_NOTHING = "\x01"
# Lines that tell how all are written.
_HEAD = 1000
_FETCHING, _SENDING = ("GET", "HEAD"), ("POST",)
_ABSOLUTE = "^[A-Za-z][A-Za-z0-9+.-]*://"
_MOMENT = "%d/%b/%Y:%H:%M:%S %z"
# What caches call a request that asked whether their copy was still good, by the answer; one for a copy that
# they did not have; one that failed; and what they answered on their own.
_ASKED = {
    304: ("REVALIDATED", "TCP_REFRESH_UNMODIFIED", "TCP_REFRESH_HIT", "RefreshHit"),
    200: ("EXPIRED", "TCP_REFRESH_MODIFIED", "TCP_REFRESH_MISS"),
}
_FETCHED = ("MISS", "BYPASS", "TCP_MISS", "TCP_CLIENT_REFRESH_MISS", "Miss")
_FAILED = ("STALE", "TCP_REFRESH_FAIL", "TCP_REFRESH_FAIL_OLD")
_ALSO = ("HIT", "UPDATING")
# One of these words, as nginx and Squid append them to a line.
_CACHE = f'[" ]({"|".join((*_ASKED[304], *_ASKED[200], *_FETCHED, *_FAILED, *_ALSO))}|TCP_[A-Z_]+)(?:[": ]|$)'
_GATEWAY_TIMEOUT = 504
_REFUSED = 400
_EXAMPLE = """--pattern '$remote_addr - $remote_user [$time_local] "$request" $status'"""


def read_access_log(path: Path, client: Client | None = None) -> tuple[polars.DataFrame, IntArray]:
    """Read an access log's requests by GET and HEAD, with their lines.

    Those of a client, or of everybody; with None all requests, whatever a cache did with them. Columns are
    source, time, and as the log has them status, hash, host; changed in a cache's log; client and agent where
    there are several clients and none was chosen. Lines are counted from 0.

    - warns if some lines are in none of the formats; they are left out, and counted.
    """
    lines, pattern = _lines(path), None if client is None else client.pattern
    parts = _parts(lines, pattern)
    parts = parts.with_columns(_url(parts.columns).alias("url"), _time(parts.columns).alias("time"))
    _report(path, lines, parts["time"].is_null(), pattern)
    asked = parts.filter(polars.col("url").is_not_null() & polars.col("time").is_not_null())
    if asked.height == 0:
        raise SourceDataError(f"{path} has no request by GET or HEAD. Check that it is a crawler's log.")
    if client is not None and (not client or "edge" in asked.columns):
        asked = _by_cache(asked)
    line, kept = asked["row"].to_numpy().astype(np.int64), np.arange(asked.height)
    if client is not None:
        asked, kept = requests_of_client(asked, client, path)
    source = polars.col("url")
    if "host" in asked.columns:
        whole = polars.col("url").str.contains(_ABSOLUTE)
        source = (
            polars.when(whole | polars.col("host").is_null())
            .then(polars.col("url"))
            .otherwise(polars.col("host") + polars.col("url"))
        )
    told = [name for name in ("hash", "host", "changed", *WHOSE) if name in asked.columns]
    status = [polars.col("status").cast(polars.Float64, strict=False)] if "status" in asked.columns else []
    frame = asked.select(source.alias("source"), "time", *status, *told)
    return frame, line[kept]


def read_pushes(path: Path) -> Iterator[tuple[str, bool, datetime]]:
    """Yield URLs of requests, whether by POST, and moments in UTC."""
    lines = _lines(path)
    parts = _parts(lines, None)
    urls = _url(parts.columns).alias("url"), _url(parts.columns, _SENDING).alias("sent")
    parts = parts.with_columns(*urls, _time(parts.columns).alias("time"))
    _report(path, lines, parts["time"].is_null(), None)
    for url, sent, time in (
        parts.filter(polars.col("time").is_not_null()).select("url", "sent", "time").iter_rows()
    ):
        if url or sent:
            yield url or sent, bool(sent), time.replace(tzinfo=UTC)


def is_access_text(path: Path) -> bool:
    """Return whether the first lines of a file are requests."""
    lines = _lines(path, _HEAD)
    lines = lines.filter(lines.str.len_bytes() > 0)
    if lines.is_empty():
        return False
    if lines[0].startswith("{"):
        objects = [*_objects(lines)]
        places, keys = json_places(objects), {key for each in objects for key in each}
        # A table of a crawler's has none of these, or has more.
        told = guessed(sorted(keys), ("changed", "hash", "etag", "elapsed"), {})
        if told.found or told.several or ({"source", "time"} <= keys and "request" not in places):
            return False
        return tells_requests(places) and not {"request", "method", "client"}.isdisjoint(places)
    if lines[0].startswith("#"):
        return any(w3c_expression(each) is not None for each in lines if each.startswith("#Fields"))
    return any(lines.str.contains(expression(each)).any() for each in FORMATS)


def _lines(path: Path, many: int | None = None) -> polars.Series:
    """Return the lines of a file, or the first ones."""
    with parsing(path, "text"):
        lines = polars.read_csv(
            content(path, kind_of(path)),
            has_header=False,
            separator=_NOTHING,
            quote_char=None,
            schema={"line": polars.String},
            encoding="utf8-lossy",
            truncate_ragged_lines=True,
            glob=False,
            n_rows=many,
        )["line"]
    return lines.str.strip_chars_end("\r").fill_null("")


def _parts(lines: polars.Series, pattern: str | None) -> polars.DataFrame:
    """Return what each line tells; of malformed ones all is empty."""
    head = lines.filter(lines.str.len_bytes() > 0).head(_HEAD)
    if pattern is not None:
        return _of_text(lines, [expression(pattern)])
    if len(head) and head[0].startswith("{"):
        return _of_json(lines, json_places([*_objects(head)]))
    w3c = [w3c_expression(each) for each in head if each.startswith("#Fields")]
    known = [each for each in w3c if each] or [*map(expression, FORMATS)]
    # Those that none of the first lines is in come last.
    return _of_text(lines, sorted(known, key=lambda each: not head.str.contains(each).any()))


def _of_text(lines: polars.Series, expressions: Sequence[str]) -> polars.DataFrame:
    """Return each line's groups by the first expression that it matches."""
    read, left = [], lines.to_frame("line").with_row_index("row")
    for each in expressions:
        found = left.with_columns(polars.col("line").str.extract_groups(each).alias("told")).unnest("told")
        matched = polars.col("line").str.contains(each)
        read.append(found.filter(matched).drop("line"))
        left = left.filter(~matched)
        if left.is_empty():
            break
    return polars.concat([*read, left.drop("line")], how="diagonal").sort("row")


def _of_json(lines: polars.Series, places: Mapping[str, list[str]]) -> polars.DataFrame:
    """Return what stands at places of the objects of lines, as text."""
    told: dict[str, list[str | None]] = {field: [] for field in places}
    for each in _objects(lines):
        for field, path in places.items():
            value = held_at(each, path)
            told[field].append(None if value is None else str(value))
    return polars.DataFrame(told, schema=dict.fromkeys(places, polars.String)).with_row_index("row")


def _objects(lines: polars.Series) -> Iterator[dict[str, Any]]:
    """Yield each line's object, an empty one where it is none."""
    for line in lines:
        try:
            found = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            found = None
        yield found if isinstance(found, dict) else {}


def _url(told: Collection[str], methods: Sequence[str] = _FETCHING) -> polars.Expr:
    """Return the URL of a request by GET or HEAD, or others."""
    if "request" in told:
        fetched = polars.col("request").str.extract(
            rf"^(?:{'|'.join(methods)}) (?P<url>\S+)(?: HTTP/[0-9.]+)?$", 1
        )
        return fetched.fill_null(polars.col("url")) if "url" in told and "method" not in told else fetched
    if "url" not in told:
        return polars.lit(None, dtype=polars.String)
    url = polars.col("url")
    if "query" in told:
        query = polars.col("query").str.strip_prefix("?")
        url = polars.when(query.is_in(["", "-"]).fill_null(value=True)).then(url).otherwise(url + "?" + query)
    known = polars.col("method").is_in(methods) if "method" in told else url.str.contains("^https?://|^/")
    return polars.when(known).then(url)


def _time(told: Collection[str]) -> polars.Expr:
    """Return the moment of a request in UTC."""
    named = [polars.col(name) for name in ("local", "moment") if name in told]
    named += [polars.col("day") + "T" + polars.col("clock")] if {"day", "clock"} <= {*told} else []
    text = polars.coalesce(*named, polars.lit(None, dtype=polars.String))
    number = text.cast(polars.Float64, strict=False).abs()
    # Seconds, milliseconds and so on since 1970 differ in length: the first ten digits tell.
    micro = sum((number > 10.0**k).cast(polars.Float64) for k in (11, 14, 17))
    ticks = (number * 10.0 ** (6.0 - 3.0 * micro)).round().cast(polars.Int64, strict=False)
    written = (
        text.str.to_datetime(_MOMENT, time_unit="us", strict=False),
        text.str.to_datetime("%+", time_unit="us", strict=False),
        (text + "Z").str.to_datetime("%+", time_unit="us", strict=False),
    )
    zoned = (each.dt.replace_time_zone(None) for each in written)
    return polars.coalesce(*zoned, ticks.cast(polars.Datetime("us")))


def _by_cache(asked: polars.DataFrame) -> polars.DataFrame:
    """Return the requests that a cache passed on; of other logs, all.

    Edges have a copy each, as clients have.
    """
    if "cache" not in asked.columns:
        if "rest" not in asked.columns:
            return asked
        asked = asked.with_columns(polars.col("rest").str.extract(_CACHE, 1).alias("cache"))
    word = polars.col("cache")
    if not asked["cache"].is_in([*_ASKED[304], *_ASKED[200]]).any():
        return asked
    status = polars.col("status").cast(polars.Int64, strict=False)
    told = polars.when(word.is_in(_ASKED[304])).then(polars.lit(304)).otherwise(polars.lit(200))
    told = (
        polars.when(word.is_in(_FAILED))
        .then(polars.lit(_GATEWAY_TIMEOUT))
        .when(status >= _REFUSED)
        .then(status)
        .otherwise(told)
    )
    passed = [*_ASKED[304], *_ASKED[200], *_FETCHED, *_FAILED]
    kept = asked.filter(word.is_in(passed)).with_columns(told.alias("status"))
    if "edge" in asked.columns:
        return kept.with_columns(client=polars.col("edge"), agent=polars.col("edge"))
    kept = kept.with_columns(client=polars.lit("cache"), agent=polars.lit("cache"))
    if not asked["cache"].is_in(_ASKED[304]).any():
        return kept  # it never asks, and an answer is no evidence
    changed = (
        polars.when(word.is_in(_ASKED[304]))
        .then(polars.lit(0.0))
        .when(word.is_in(_ASKED[200]))
        .then(polars.lit(1.0))
    )
    return kept.with_columns(changed.alias("changed"))


def _report(path: Path, lines: polars.Series, wrong: polars.Series, pattern: str | None) -> None:
    """Warn of malformed lines; raise if all but empty ones are."""
    written = (lines.str.len_bytes() > 0) & ~lines.str.starts_with("#")
    wrong = wrong & written
    many, filled = int(wrong.sum()), int(written.sum())
    if filled == 0:
        raise SourceDataError(f"{path} is empty. An access log has a line for each request.")
    if many == 0:
        return
    k = int(wrong.arg_true()[0])
    example = f"line {k + 1}: {shown(lines[k])}"
    form = "of the pattern" if pattern else f"in a format {KNOWN}"
    if many == filled:
        raise SourceDataError(
            f"no line of {path} is {form}, such as {example}. Say how they are written, as the server's "
            f"configuration does: {_EXAMPLE} (pattern=... in Python). Or write a table with columns source, "
            "time, status."
        )
    left = f"{count(many, 'line')} of {filled:,} left out, not written as the others are"
    warn(f"{path}: {left}, such as {example}")
