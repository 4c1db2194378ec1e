"""`read_nutch`: crawl log from dumps of Apache Nutch's database.

Its crawl database is dumped once a run.

``bin/nutch readdb CRAWLDB -dump DIR -format csv`` writes a line per URL: its status, when it is due next
(``Fetch Time``), its interval, and the signature of its content [1]_. Of one dump that is one crawl, at the
time it is due less its interval. Dumps of several runs, kept, are a crawl log: a source has changed if its
signature is another than at the crawl before. That is one change at most between two dumps, however many
crawls were between them.

Two things of the format are to be known. It writes times as Java prints them, with the name of a time zone,
which is ambiguous but for UTC; and it writes the lower byte of each letter, so that URLs must be percent-
encoded to be distinguished. And one of the adaptive schedule: with ``db.fetch.schedule.adaptive.sync_delta``,
on by default, it moves the time that is due, and with it the crawl as it is read, to earlier by up to a fifth
of the time since the page changed. Fixed intervals (``nutch.fetchInterval.fixed``) and the default schedule
do not.

Cost: reading the files.

References
----------
.. [1] https://cwiki.apache.org/confluence/display/NUTCH/bin+nutch+readdb and class ``CrawlDbReader``
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from freshopt.errors import SourceDataError, list_offenders
from freshopt.io.run_snapshots import Paths, Snapshot, files_of, log_of
from freshopt.logs.crawl_log import CrawlLog
from freshopt.units import check_time_unit

COLUMNS = ("Url", "Status name", "Fetch Time", "Retry interval seconds", "Signature")
MODIFIED = "Modified Time"  # 1970 where the page did not tell; older dumps may lack it
FETCHED = ("db_fetched", "db_notmodified")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) (\d{2}) (\d{2}):(\d{2}):(\d{2}) (\S+) (\d{4})")


def read_nutch(path: Paths, time_unit: str = "day") -> CrawlLog:
    """Read dumps of Nutch's crawl database as a crawl log.

    Parameters
    ----------
    path : path or iterable of paths
        A folder, searched with the folders in it for files named ``part-*`` or ``*.csv``; or the files.
    time_unit : str
        "second", "minute", "hour", "day" or "week".

    Returns
    -------
    CrawlLog
        With ``last_modified`` where a page tells it (``Modified Time``). The first crawl of a URL is its
        baseline. URLs that were never fetched, or whose last fetch failed,
        are left out; so is what a later dump repeats.

    Raises
    ------
    SourceDataError
        If there is no dump, a file is none, or a line cannot be read; names the file and the line.
    """
    check_time_unit(time_unit)
    files = files_of(
        path,
        lambda file: file.name.startswith("part-") or file.suffix == ".csv",
        "file named part-* or *.csv. Write one by bin/nutch readdb CRAWLDB -dump DIR -format csv.",
    )
    return log_of(
        (snapshot for file in files for snapshot in _snapshots(file)),
        "signatures of {source!r} at one time",
        f"{path} has no URL that was fetched. Add dumps of more runs.",
        time_unit,
    )


def _snapshots(file: Path) -> Iterator[Snapshot]:
    """Yield the snapshots of fetched URLs in a dump."""
    try:
        with file.open(encoding="utf-8", errors="replace", newline="") as text:
            lines = csv.reader(text)
            header = next(lines, [])
            missing = [name for name in COLUMNS if name not in header]
            if missing:
                raise SourceDataError(
                    f"{file} has no column {list_offenders(map(repr, missing))}. Dump the crawl database "
                    "with -format csv."
                )
            at = [header.index(name) for name in COLUMNS]
            for cells in lines:
                where = f"line {lines.line_num} of {file}"
                if len(cells) <= max(at):
                    raise SourceDataError(f"{where} has {len(cells)} columns. Dump the crawl database anew.")
                url, status, due, interval, signature = (cells[k] for k in at)
                if status in FETCHED and signature != "null":
                    fetched = _fetched(due, interval, where)
                    modified = _modified(cells[header.index(MODIFIED)]) if MODIFIED in header else None
                    yield Snapshot(url, fetched, signature, where, modified)
    except OSError as error:
        raise SourceDataError(f"{file} cannot be read: {error.strerror or error}. Check the path.") from error
    except csv.Error as error:
        raise SourceDataError(f"{file} is no CSV: {error}. Dump the crawl database anew.") from None


def _modified(text: str) -> datetime | None:
    """Return when a page was modified, None where not told."""
    found = _DATE.fullmatch(text)
    try:
        return None if found is None or found[6] not in ("UTC", "GMT") else _moment(found)
    except ValueError:
        return None


def _moment(found: re.Match[str]) -> datetime:
    month, day, hour, minute, second, _, year = found.groups()
    clock = (int(hour), int(minute), int(second))
    return datetime(int(year), _MONTHS.index(month) + 1, int(day), *clock, tzinfo=UTC)


def _fetched(due: str, interval: str, where: str) -> datetime:
    """Return when a page was fetched.

    It is when it is due, less its interval.
    """
    found = _DATE.fullmatch(due)
    if found is not None and found[6] not in ("UTC", "GMT"):
        raise SourceDataError(
            f"Fetch Time in {where} is in the time zone {found[6]!r}, which may be one of several. Dump the "
            "crawl database with TZ=UTC, or the Java option -Duser.timezone=UTC."
        )
    try:
        moment = None if found is None else _moment(found) - timedelta(seconds=float(interval))
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise SourceDataError(
            f"{where} has the Fetch Time {due[:60]!r} and the interval {interval[:60]!r}. Those are such as "
            "'Sat Jan 31 06:00:00 UTC 2026' and '86400.0'. Dump the crawl database anew."
        )
    return moment
