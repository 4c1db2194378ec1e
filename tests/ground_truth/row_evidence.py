"""What a row of a log is evidence of, told row by row as a reader of the log would.

Written apart from the library: a walk along each source's rows with what is known so far, in plain Python.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """A row of a log, as text; empty where a cell is."""

    source: str
    time: float
    status: str = ""
    hash: str = ""
    etag: str = ""
    changed: str = ""


class Crawl(NamedTuple):
    """A crawl that is evidence: since when, and whether it found a change (None where nobody knows)."""

    source: str
    time: float
    since: float | None
    changed: bool | None


FAILURES = {"0", "408", "425", "429", *map(str, range(500, 600))}
ENDS = {"404", "410"}


def fetch_of(row: Row) -> str:
    """Return what a row says of its fetch: failure, end, success, or nothing."""
    if row.status in FAILURES:
        return "failure"
    if row.status in ENDS:
        return "end"
    told = row.status or row.hash or row.etag or row.changed
    return "success" if told else "nothing"


def _usable(row: Row) -> bool:
    """Return whether a row can be evidence."""
    if fetch_of(row) != "success" or row.status.startswith("4"):
        return False
    return row.status in ("", "200", "304") or row.changed != ""


def crawls_of(rows: Sequence[Row]) -> list[Crawl]:
    """Return the crawls of a log with hashes or ETags, or with `changed`."""
    return [
        crawl
        for source in sorted({row.source for row in rows})
        for crawl in _of_one(sorted((row for row in rows if row.source == source), key=lambda row: row.time))
    ]


def _of_one(rows: list[Row]) -> Iterator[Crawl]:
    usable = [row for row in rows if _usable(row)]
    alone = not any(row.hash or row.etag or row.changed for row in usable)
    alone = alone and any(row.status == "304" for row in usable)
    since: float | None = None
    before = ("", "")
    for row, then in zip(usable, [*usable[1:], None], strict=True):
        says_same = row.changed == "0" or (row.changed == "" and row.status == "304")
        blank = not (row.hash or row.etag or row.changed or row.status == "304" or alone)
        if blank and not (then and (then.changed or (then.status == "304" and not then.hash))):
            continue
        digest = row.hash or (before[0] if says_same else "")
        verdict: bool | None = None
        lost = False
        if row.changed:
            verdict = row.changed == "1"
        elif digest and before[0]:
            verdict = digest != before[0]
            lost = verdict and says_same
        elif row.status == "304":
            verdict = False
        tag = row.etag or (before[1] if says_same and not lost else "")
        if verdict is None and tag and before[1]:
            verdict = tag != before[1]
        if verdict is None and alone and since is not None:
            verdict = True
        yield Crawl(row.source, row.time, since, verdict)
        since, before = row.time, (digest, tag)
