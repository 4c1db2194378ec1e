"""Make `freshopt/datasets/gstreamer-plugins.csv`: when the code of GStreamer's plugins changed.

Input: the changelogs of GStreamer 1.18.4 as Debian 11 (bullseye) ships them with six packages. Each lists
every commit to one repository since its beginning, with the moment, its time zone and the files changed::

    2019-09-02 09:33:15 -0400  A Developer <...>

        * ext/x264/gstx264enc.c:
        * gst/asfdemux/gstasfdemux.c:
              What was changed and why

Only the names of the directories and the UTC minutes are kept. On a machine with Debian 11's packages::

    apt-get download $(python benchmarks/pages/extract_gstreamer_plugins.py --packages)
    for package in *.deb; do dpkg-deb -x $package unpacked; done
    python benchmarks/pages/extract_gstreamer_plugins.py unpacked --out gstreamer-plugins.csv

It prints the first table of numbers that `freshopt/datasets/gstreamer-plugins.md` quotes.

Choices
-------
* A source is a directory of plugins, named ``repository/directory``; those below it are sources of their own.
  It changes when a commit changes a file of program code in it (`CODE`): no build file, so the switch from
  one build system to another within the window is not a change of everything.
* Every commit counts, also one that changes many directories at once.
* The window is 208 whole weeks, from a Monday to the Monday before the branch of version 1.18, from which on
  the changelogs show that branch only.
* A directory counts if any of its files, build files included, changed in the window. Since the build files
  of all directories were replaced in it, this holds for those that existed, also if no code in them changed.
* What happened before the window is known. Each source that is older than the window has one row more: its
  last change before it. A source without such a row was born with its first change.
* Moments are rounded down to the minute, and a directory has at most one change a minute.
"""

import argparse
import csv
import gzip
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import numpy as np

from freshopt.datasets.change_histories import weekly_crawls

START, END = datetime(2016, 9, 5, tzinfo=UTC), datetime(2020, 8, 31, tzinfo=UTC)  # Mondays
# Package: the repository whose changelog it has.
PACKAGES = {
    "gstreamer1.0-plugins-base": "base",
    "gstreamer1.0-plugins-good": "good",
    "gstreamer1.0-plugins-ugly": "ugly",
    "gstreamer1.0-plugins-bad": "bad",
    "gstreamer1.0-libav": "libav",
    "gstreamer1.0-vaapi": "vaapi",
}
CODE = {".c", ".cc", ".cpp", ".h", ".hpp", ".m", ".mm"}
PLUGINS = {"ext", "gst", "sys"}  # where repositories have their plugins

_COMMIT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4})  \S")
_FILE = re.compile(r"\t\* (\S+):")


@dataclass(slots=True)
class Commit:
    """One commit: its moment and the files that it changed."""

    moment: datetime
    files: list[PurePosixPath] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """What the changelogs tell of one directory.

    Attributes
    ----------
    minutes : set of datetime
        When its code changed.
    seen : bool
        Whether any of its files changed in the window.
    """

    minutes: set[datetime] = field(default_factory=set)
    seen: bool = False

    def rows(self) -> list[datetime]:
        """Return the moments to write: the last one before the window, if any, then those in it."""
        known = sorted(minute for minute in self.minutes if minute < END)
        return known[max(0, bisect_left(known, START) - 1) :]


def read_commits(text: str) -> Iterator[Commit]:
    """Yield the commits of a changelog, newest first; other lines are passed over."""
    commit: Commit | None = None
    for line in text.splitlines():
        if found := _COMMIT.match(line):
            if commit is not None:
                yield commit
            commit = Commit(datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S %z").astimezone(UTC))
        elif commit is not None and (found := _FILE.match(line)):
            commit.files.append(PurePosixPath(found[1]))
    if commit is not None:
        yield commit


def collect(changelogs: Mapping[str, str]) -> dict[str, History]:
    """Return one history per directory from the changelogs of repositories, sorted by name."""
    histories: defaultdict[str, History] = defaultdict(History)
    for repository, text in changelogs.items():
        for commit in read_commits(text):
            for file in commit.files:
                if file.parts[0] not in PLUGINS:
                    continue
                history = histories[f"{repository}/{file.parent}"]
                history.seen |= START <= commit.moment < END
                if file.suffix in CODE:
                    history.minutes.add(commit.moment.replace(second=0))
    return {name: history for name, history in sorted(histories.items()) if history.seen and history.rows()}


def summary(histories: Mapping[str, History]) -> list[tuple[str, str]]:
    """Return the numbers that the provenance note quotes."""
    source = np.repeat(np.arange(len(histories)), [len(history.rows()) for history in histories.values()])
    minute = [minute.replace(tzinfo=None) for history in histories.values() for minute in history.rows()]
    time = np.array(minute, dtype="datetime64[m]")
    inside = time >= np.datetime64(START.replace(tzinfo=None))
    changes = np.bincount(source[inside], minlength=len(histories))
    of, _, changed, _ = weekly_crawls(source, time, START.date(), END.date())
    rate = changes / (END - START).days
    return [
        ("sources", f"{len(histories)}"),
        ("sources older than the window", f"{np.count_nonzero(~inside)}"),
        ("changes in the window", f"{changes.sum()}"),
        ("sources without a change", f"{np.count_nonzero(changes == 0)}"),
        ("median rate of changes per day", f"{np.median(rate):.5f}"),
        ("largest rate", f"{rate.max():.5f}"),
        ("sum of the rates", f"{rate.sum():.3f}"),
        (
            "sources that one minute changed, at most",
            f"{np.unique(time[inside], return_counts=True)[1].max()}",
        ),
        ("crawls in the weekly log", f"{len(of)}"),
        ("crawls that find a change", f"{np.count_nonzero(changed)}"),
    ]


def main() -> None:
    """Read the changelogs, write the table, print its numbers."""
    parser = argparse.ArgumentParser(description="Extract when the code of GStreamer's plugins changed.")
    parser.add_argument("unpacked", type=Path, nargs="?", help="folder with the unpacked packages")
    parser.add_argument("--packages", action="store_true", help="print the names of the packages, and stop")
    parser.add_argument("--out", type=Path, help="the CSV file to write")
    options = parser.parse_args()
    if options.packages:
        print(*PACKAGES)
        return
    if options.unpacked is None or options.out is None:
        parser.error("name the folder with the unpacked packages, and --out FILE")
    changelogs = {
        repository: gzip.decompress(
            (options.unpacked / "usr/share/doc" / package / "changelog.gz").read_bytes()
        ).decode("utf-8", errors="replace")
        for package, repository in PACKAGES.items()
    }
    histories = collect(changelogs)
    with options.out.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["source", "time"])
        for source, history in histories.items():
            writer.writerows((source, f"{minute:%Y-%m-%dT%H:%MZ}") for minute in history.rows())
    print("| what | number |\n|---|---|")
    for what, number in summary(histories):
        print(f"| {what} | {number} |")


if __name__ == "__main__":
    main()
