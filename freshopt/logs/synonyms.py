"""Names of columns of logs and tables, and what each may be.

Names are compared without case, blanks, signs and what stands in brackets, so that Fetched At, fetched_at and
fetchedAt are one; of names with dots, which nested JSON has, the last part may be it. The first row of names
in which a file has one decides. Two of one row are not told apart: the user says which it is, by a line to
paste.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from freshopt.heavy import polars
from freshopt.logs.cells import FLAGS
from freshopt.logs.written_dates import parse_dates

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "source": (
        "url uri page_url page_uri target_url target_uri warc_target_uri request_url feed_url loc href",
        "original page link address feed resource website document permalink quelle seite adresse",
        "table table_name dataset unique_id source_name path",
        "id guid url_id page_id source_id feed_id key name urlkey",
    ),
    "time": (
        "timestamp fetched_at fetch_time fetch_date fetch_timestamp crawled_at crawl_time crawl_date "
        "crawl_timestamp checked_at check_time visited_at retrieved_at downloaded_at scraped_at polled_at "
        "observed_at accessed_at snapshotted_at captured_at zeit zeitpunkt zeitstempel",
        "datetime date_time date ts utc when last_checked last_fetched last_crawled warc_date datum",
        "created_at at seen_at fetched crawled visited checked",
    ),
    "changed": (
        "is_changed has_changed was_changed content_changed change_detected change_found page_changed",
        "change geändert",
    ),
    "hash": (
        "content_hash body_hash page_hash html_hash text_hash hash_value payload_hash",
        "digest content_digest payload_digest body_digest warc_payload_digest",
        "sha256 content_sha256 body_sha256",
        "sha1 sha content_sha1 body_sha1 sha512",
        "md5 content_md5 body_md5 md5sum",
        "checksum content_checksum",
        "signature",  # a fingerprint is mostly one of the request
    ),
    "etag": ("http_etag entity_tag etag_header response_etag header_etag",),
    "status": (
        "http_status status_code http_status_code response_code response_status http_code http_response_code "
        "sc_status fetch_status_code fetch_2estatuscode",
        "code",
    ),
    "last_modified": (
        "last_modified_header http_last_modified last_modified_at last_modified_date lastmod modified_at",
    ),
    "host": ("hostname host_name domain netloc",),
}
# Of tables beside a log.
_OF_TABLES: Mapping[str, tuple[str, ...]] = {
    "importance": ("weight weights",),
    "limit": ("rate_limit ratelimit quota",),
    "start": ("birth born created created_at first_seen since",),
    "upstream": ("parent from source",),
    "downstream": ("child to target",),
}
# Of these a name in other letters is another thing, mostly the time that a request took.
_EXACT = ("elapsed", "changes")
_BRACKETS = re.compile(r"[(\[{].*?[)\]}]")
_CODES = (100.0, 599.0)
_DIGEST = r"^[0-9a-fA-F]{32,128}$|^[A-Z2-7]{32}$"
_ADDRESS = r"^[A-Za-z][A-Za-z0-9+.-]*://|^/|^www\."
# Share of cells that may say something else.
_MOST = 0.9


class Guess(NamedTuple):
    """What columns of a file may be.

    - `found`: Names of the file's columns to those of a log.
    - `several` dict of str to list of str: Columns of a log that two or more of the file may be, with these.
    """

    found: dict[str, str]
    several: dict[str, list[str]]


def plain(name: str) -> str:
    """Return a name without case, blanks and signs.

    Examples
    --------
    >>> plain("Fetched At"), plain("Timestamp (UTC)"), plain("@timestamp")
    ('fetchedat', 'timestamp', 'timestamp')
    """
    return "".join(sign for sign in _BRACKETS.sub("", name).casefold() if sign.isalnum())


def guessed(own: Sequence[str], wanted: Collection[str], given: Mapping[str, str]) -> Guess:
    """Return which columns of a file are those that are wanted.

    Examples
    --------
    >>> guessed(["URL", "Fetched At", "md5", "id"], ("source", "time", "hash"), {}).found
    {'URL': 'source', 'Fetched At': 'time', 'md5': 'hash'}
    """
    left = [name for name in own if name not in given]
    found: dict[str, str] = {}
    several: dict[str, list[str]] = {}
    changed = "changed" in given.values() or bool(_candidates(left, "changed"))
    for column in wanted:
        if column in given.values():
            continue
        if column in left:
            found[column] = column
        elif column not in _EXACT:
            names = _candidates(left, column)
            if column == "status" and changed:  # of a country, a currency or a program
                names = [name for name in names if plain(name) != "code"]
            found |= {names[0]: column} if len(names) == 1 else {}
            several |= {column: names} if len(names) > 1 else {}
    return Guess(found, several)


def guessed_of_table(own: Sequence[str], needed: Collection[str], known: Collection[str]) -> Guess:
    """Return which columns of a table are those that are known.

    What it may have is found by its name in any letters; a source by that of an address, too.

    Examples
    --------
    >>> guessed_of_table(["URL", "Change Rate"], (), ("source", "name", "change_rate")).found
    {'URL': 'source', 'Change Rate': 'change_rate'}
    """
    guess = guessed(own, needed, {})
    named: dict[str, list[str]] = {}
    for name in own:
        named.setdefault(plain(name), []).append(name)
    for column in known:
        same = [column] if column in own else named.get(plain(column), [])
        if column == "source" and not same and not {"name"} & named.keys():
            same = [name for each in SYNONYMS["source"][0].split() for name in named.get(plain(each), [])]
        if column not in needed and len(same) == 1:
            guess.found[same[0]] = column
        elif column not in needed and same:
            guess.several[column] = same
    return guess


def _candidates(own: Sequence[str], column: str) -> list[str]:
    """Return which names may be a column, the first row first."""
    whole = {name: plain(name) for name in own}
    last = {name: plain(name.rpartition(".")[2]) for name in own}
    for names in (column, *SYNONYMS.get(column, _OF_TABLES.get(column, ()))):
        plains = {plain(each) for each in names.split()}
        for forms in (whole, last):
            if found := [name for name, form in forms.items() if form in plains]:
                return found
    return []


def by_content(frame: polars.DataFrame, wanted: Sequence[str]) -> dict[str, str]:
    """Return which columns of text look like those that are wanted.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"x": ["https://a.example/"], "y": ["2026-01-05"], "z": ["ja"]})
    >>> by_content(frame, ["source", "time", "changed"])
    {'y': 'time', 'z': 'changed', 'x': 'source'}
    """
    found: dict[str, str] = {}
    for column in ("time", "hash", "changed", "status", "source"):
        fits = [
            name for name in frame.columns if name not in found and _looks(frame[name].drop_nulls(), column)
        ]
        if column in wanted and fits:
            found[fits[0]] = column
    return found


def _looks(cells: polars.Series, column: str) -> bool:
    """Return whether most cells of text look like a column's."""
    if len(cells) == 0:
        return False
    numbers = cells.str.strip_chars().cast(polars.Float64, strict=False)
    fits = {
        "time": parse_dates(cells)[0].is_not_null() | (numbers > 946_684_800.0),
        "hash": cells.str.contains(_DIGEST),
        "changed": cells.str.strip_chars().str.to_lowercase().is_in(list(FLAGS)),
        "status": numbers.is_between(*_CODES),
        "source": cells.str.contains(_ADDRESS) | (numbers.is_null() & (cells.n_unique() < len(cells))),
    }[column]
    return bool(fits.sum() >= _MOST * len(cells))
