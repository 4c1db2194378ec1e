"""Make `freshopt/datasets/debian-uploads.csv`: the days on which Debian source packages were uploaded.

Input: the changelogs that Debian installs with packages, ``/usr/share/doc/*/changelog.Debian.gz``. The
header of an entry names the source and the suites it went to, its last line the moment it was signed off::

    foo (1.2-3) unstable; urgency=medium
     -- A Maintainer <...>  Sun, 07 Jul 2019 00:10:00 +0200

Only the name and the UTC day of that moment are kept. Run it on a Debian machine::

    python benchmarks/pages/extract_debian_uploads.py --out freshopt/datasets/debian-uploads.csv

It prints the table of numbers that `freshopt/datasets/debian-uploads.md` quotes.

Choices
-------
* An entry counts if every suite in its header is Debian's own (`SUITE`): that leaves out entries that were
  never uploaded (UNRELEASED and its misspellings, SKIPPED) and the releases of derivatives.
* A changelog belongs to the source of its newest entry. Older entries of another source are left out: most
  describe the previous version of a versioned series (python3.10 below python3.11, gcc-11 below gcc-12),
  which is a source of its own. `RENAMED` lists the one plain renaming that reaches into the window.
* Several installed packages can come from one source: the union of their days.
* Debian's packaging tools cut off entries from before 2019-07-06 (the release of Debian 10), save a few where
  the record is short, and leave a remark; hence the window's start. Its end precedes the freeze of Debian 12.
* A source is older than the window if it has an earlier upload, or if its changelog was cut below an entry
  of its own. What was cut off is unknown, so each such source gets one row for the eve of the window instead
  of its last upload before it: it says that the source existed, not that anything happened on that day.
"""

import argparse
import csv
import gzip
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import numpy as np

from freshopt.datasets.change_histories import daily_crawls

START, END = date(2019, 7, 6), date(2023, 2, 1)  # days START..END-1
EVE = START - timedelta(days=1)
RENAMED = {"setuptools": {"python-setuptools"}}  # newest name: its earlier names
CUT = "# Older entries have been removed from this changelog."

_RELEASE = "woody|sarge|etch|lenny|squeeze|wheezy|jessie|stretch|buster|bullseye|bookworm"
_POCKET = "security|proposed-updates|updates|backports|backports-sloppy"
SUITE = re.compile(
    rf"unstable|sid|experimental|frozen|(?:testing|stable|oldstable|{_RELEASE})(?:-(?:{_POCKET}))?"
)
_HEADER = re.compile(r"(\S+) \([^()\s]+\)((?: +[-+.\w]+)+) *;")
_SIGNED = re.compile(r" --.*<[^<>]*> +(.+?)\s*")


@dataclass(frozen=True, slots=True)
class Entry:
    """One changelog entry: its source, whether it went to Debian, and the UTC day (None if unreadable)."""

    source: str
    uploaded: bool
    day: date | None


@dataclass(slots=True)
class History:
    """What the changelogs tell of one source."""

    days: set[date] = field(default_factory=set)
    cut: bool = False

    @property
    def older(self) -> bool:
        """Whether the source existed before the window."""
        return self.cut or any(day < START for day in self.days)

    def rows(self) -> list[date]:
        """Return the days to write: the eve of the window if the source is older, then the days in it."""
        return [EVE] * self.older + sorted(day for day in self.days if START <= day < END)


def read_entries(text: str) -> Iterator[Entry]:
    """Yield the entries of a changelog, newest first; other lines are passed over."""
    header: re.Match[str] | None = None
    for line in text.splitlines():
        if found := _HEADER.match(line):
            header = found
        elif header is not None and (signed := _SIGNED.fullmatch(line)):
            uploaded = all(SUITE.fullmatch(suite) for suite in header[2].split())
            yield Entry(header[1], uploaded, utc_day(signed[1]))
            header = None


def utc_day(stamp: str) -> date | None:
    """Return the UTC day of a date such as ``Sun, 07 Jul 2019 00:10:00 +0200``, None if it is malformed."""
    try:
        moment = parsedate_to_datetime(stamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).date()


def collect(changelogs: Iterable[str]) -> dict[str, History]:
    """Merge changelog texts into one history per source; sources without an upload to Debian are left out."""
    histories: defaultdict[str, History] = defaultdict(History)
    for text in changelogs:
        entries = list(read_entries(text))
        if not entries:
            continue
        source = entries[0].source
        own = {source} | RENAMED.get(source, set())
        days = {e.day for e in entries if e.source in own and e.uploaded and e.day is not None}
        if days:
            histories[source].days |= days
            histories[source].cut |= CUT in text and entries[-1].source in own
    return {source: history for source, history in sorted(histories.items()) if history.rows()}


def summary(histories: dict[str, History]) -> list[tuple[str, str]]:
    """Return the numbers that the provenance note quotes."""
    rows = [(k, day) for k, history in enumerate(histories.values()) for day in history.rows()]
    source = np.array([k for k, _ in rows])
    day = np.array([day for _, day in rows], dtype="datetime64[D]")
    of, _, changed = daily_crawls(source, day, START, END)
    gaps = np.bincount(of) - 1
    rate = np.bincount(of, weights=changed) / np.maximum(gaps, 1)
    older = sum(history.older for history in histories.values())
    return [
        ("sources", f"{len(histories)}"),
        ("sources older than the window", f"{older}"),
        ("upload days in the window", f"{len(rows) - older}"),
        ("crawls in the daily log", f"{len(of)}"),
        ("crawls that find a change", f"{np.count_nonzero(changed)}"),
        ("sources without a change", f"{np.count_nonzero(rate == 0)}"),
        ("median rate of changed days", f"{np.median(rate):.5f}"),
        ("sum of the rates", f"{rate.sum():.3f}"),
    ]


def main() -> None:
    """Read the installed changelogs, write the table, print its numbers."""
    parser = argparse.ArgumentParser(description="Extract the upload days of Debian source packages.")
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to write")
    out: Path = parser.parse_args().out
    files = sorted(Path("/usr/share/doc").glob("*/changelog.Debian.gz"))
    texts = [gzip.decompress(file.read_bytes()).decode("utf-8", errors="replace") for file in files]
    histories = collect(texts)
    with out.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["source", "day"])
        writer.writerows((source, day) for source, history in histories.items() for day in history.rows())
    unreadable = sum(entry.day is None for text in texts for entry in read_entries(text))
    print(f"{len(files)} changelogs, {unreadable} entries with an unreadable date (skipped)\n")
    print("| what | number |\n|---|---|")
    for what, number in summary(histories):
        print(f"| {what} | {number} |")
    print(f"\nextracted on {datetime.now(UTC).date()}")


if __name__ == "__main__":
    main()
