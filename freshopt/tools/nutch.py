"""Apache Nutch: dumps as a crawl log; seeds with fetch intervals.

Hosts have bounds, too.

``bin/nutch inject`` reads every file in the folder ``seeds``: a URL a line, then metadata ``key=value``, all
separated by tabs; lines that begin with ``#`` are skipped [1]_. ``nutch.fetchInterval.fixed`` is the interval
in seconds, an integer, which the adaptive schedule leaves alone. Pages that are found later have no such
entry; for those the adaptive schedule reads ``conf/adaptive-host-specific-intervals.txt``, host, shortest and
longest interval in seconds, separated by white space [2]_. There a host's bounds are the intervals of the
sources that were planned on it.

Two numbers of Nutch's decide what it can keep. It fetches again, whatever the interval, what is due later
than ``db.fetch.interval.max`` from now, by default 90 days; and it stores the interval as a 32-bit
float, in which whole seconds end at 194 days: longer ones are rounded up to such a number.

``bin/nutch readdb CRAWLDB -dump DIR -format csv`` writes a line per URL: its status, when it is due next
(``Fetch Time``), its interval, and the signature of its content [3]_. Of one dump that is one crawl, at the
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
.. [1] https://cwiki.apache.org/confluence/display/NUTCH/bin+nutch+inject
.. [2] https://github.com/apache/nutch/blob/master/conf/adaptive-host-specific-intervals.txt.template
.. [3] https://cwiki.apache.org/confluence/display/NUTCH/bin+nutch+readdb and class ``CrawlDbReader``
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.heavy import polars
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import IntArray
from freshopt.scheduling.rate_table import RateTable
from freshopt.tools.export import Exported, hosts_of, urls_of, write_lines
from freshopt.tools.records import Paths, Snapshot, files_of, log_of
from freshopt.tools.whole_seconds import (
    NEVER,
    IntervalFormat,
    Limits,
    exported,
    labels,
    whole_intervals,
)
from freshopt.units import check_time_unit, parse_duration

SEEDS, HOSTS = "seeds/seeds.tsv", "conf/adaptive-host-specific-intervals.txt"
# Seconds, Nutch's default of db.fetch.interval.max.
LONGEST = 7_776_000
# Seconds; a host's bounds must lie strictly between them, or be "default".
_ADAPTIVE = (60, 31_536_000)
_HEAD = "# host, shortest and longest interval in seconds, of pages without one of their own\n"
COLUMNS = ("Url", "Status name", "Fetch Time", "Retry interval seconds", "Signature")
MODIFIED = "Modified Time"  # 1970 where the page did not tell; older dumps may lack it
FETCHED = ("db_fetched", "db_notmodified")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) (\d{2}) (\d{2}):(\d{2}):(\d{2}) (\S+) (\d{4})")


def longest_of(text: str) -> int:
    """Return ``db.fetch.interval.max``, such as "90d", in seconds."""
    seconds = int(parse_duration(text, "second"))
    if not 1 <= seconds < 2**31:
        raise SourceDataError(f"{text!r} is not from 1 s to 68 years. Nutch counts so far.")
    return seconds


@dataclass(frozen=True, slots=True)
class Nutch(IntervalFormat):
    """Folder with the seed list and the hosts' intervals.

    Parameters
    ----------
    longest : int
        Seconds: what ``db.fetch.interval.max`` is set to.

    Notes
    -----
    ``inject`` leaves URLs that Nutch already knows as they are, unless it runs with ``-update``. Sources that
    are never refreshed are left out of the list; of those that it knows Nutch keeps the interval it has.
    """

    longest: int = LONGEST
    files: ClassVar[tuple[str, ...]] = (SEEDS, HOSTS)

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write into a folder.

        Parameters
        ----------
        table : RateTable
        path : Path
            An existing, empty folder.

        Raises
        ------
        SourceDataError
            If a name is no URL, an interval does not fit, or a source waits for signals.
        """
        names = labels(table)
        limits = Limits(
            "Nutch",
            step=1,
            longest=self.longest,
            shortest=1,
            remedy="Raise their min_rate; or raise db.fetch.interval.max and tell it here (--longest).",
        )
        seconds = _floats(whole_intervals(table, limits))
        urls = urls_of(names, "Nutch")
        active = polars.DataFrame({"url": urls, "seconds": seconds}).filter(polars.col("seconds") != NEVER)
        for name in self.files:
            (path / name).parent.mkdir()
        seed = polars.format("{}\tnutch.fetchInterval.fixed={}\n", polars.col("url"), polars.col("seconds"))
        write_lines(path / SEEDS, active, seed)
        hosts = active.select(hosts_of(active["url"]).alias("host"), "seconds").group_by("host")
        bounds = hosts.agg(low=polars.col("seconds").min(), high=polars.col("seconds").max()).sort("host")
        words = [
            polars.when(bound.is_between(*_ADAPTIVE, closed="none"))
            .then(bound.cast(polars.String))
            .otherwise(polars.lit("default"))
            for bound in (polars.col("low"), polars.col("high"))
        ]
        write_lines(path / HOSTS, bounds, polars.format("{} {} {}\n", polars.col("host"), *words), head=_HEAD)
        return exported(table, seconds, "left out of the seeds")


def _floats(seconds: IntArray) -> IntArray:
    """Return the intervals rounded up to 32-bit floats."""
    single = seconds.astype(np.float32)
    short = single.astype(np.int64) < seconds
    return np.where(short, np.nextafter(single, np.float32(np.inf)), single).astype(np.int64)


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
    """Return when a page was fetched: its due time less its interval."""
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
