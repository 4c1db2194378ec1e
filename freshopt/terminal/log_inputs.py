"""Origins of crawl data: files, examples, repositories, other tools' records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
import numpy as np

from freshopt.io.read_bing import read_bing
from freshopt.io.read_changedetection import read_changedetection
from freshopt.io.read_dbt import read_dbt
from freshopt.io.read_git import read_git
from freshopt.io.read_history import read_history
from freshopt.io.read_nutch import read_nutch
from freshopt.logs.births import since_birth
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array
from freshopt.planning.request import as_crawl_log
from freshopt.terminal import inputs
from freshopt.terminal.console import count
from freshopt.terminal.options import Decorator
from freshopt.terminal.tables import starts_of

_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--git",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Git repository, or a folder in one, instead of LOG: each file is a source, each commit of the "
        "branch that touches it a change; merges count when they are merged.",
    ),
    click.option("--since", metavar="MOMENT", help="For --git: start of the history, such as 2026-01-31."),
    click.option(
        "--files",
        multiple=True,
        metavar="PATHSPEC",
        help="For --git: files to include, such as '*.md' (repeatable).",
    ),
    click.option(
        "--min-changes",
        type=click.IntRange(min=0),
        metavar="N",
        help="For --git: minimum number of changes of a file (default 0).",
    ),
    click.option(
        "--history",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Table of all changes (source, time) instead of LOG.",
    ),
    click.option(
        "--dbt",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Folder of sources.json files of `dbt source freshness`, one per run, instead of LOG.",
    ),
    click.option(
        "--nutch",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Dumps of Apache Nutch's crawl database (readdb -dump -format csv), one per run, instead of "
        "LOG.",
    ),
    click.option(
        "--changedetection",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Data folder of changedetection.io, or a backup of it, instead of LOG.",
    ),
    click.option(
        "--bing",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder of the Bing data set (urlid_offset_history.txt, urlid_imp.txt, ...) instead of LOG.",
    ),
    click.option(
        "--sources",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="For LOG with a column last_modified: table with columns source, start: since when each source "
        "exists, empty where not known. Without it, the date of a first crawl may be a birth.",
    ),
)
_GIT = ("since", "files", "min_changes")


@dataclass(frozen=True, slots=True)
class Found:
    """Crawl data with their name.

    Attributes
    ----------
    data : CrawlLog or ChangeHistory
    name : str
        What it is called.
    importance : ndarray or None
        Of the sources, where the data tell it.
    """

    data: CrawlLog | ChangeHistory
    name: str
    importance: Array | None = None

    @property
    def log(self) -> CrawlLog:
        """The data as a crawl log; a history becomes daily crawls."""
        return as_crawl_log(self.data, None)[0]

    @property
    def words(self) -> str:
        """Name, crawls or changes, and sources in words."""
        sources = count(len(self.data.sources_), "source")
        if isinstance(self.data, CrawlLog):
            return f"{self.name}: {count(len(self.data), 'crawl')} of {sources}"
        span = float(np.max(self.data.end) - np.min(self.data.start))
        changes = count(len(self.data), "change")
        return f"{self.name}: {changes} of {sources} in {count(span, self.data.time_unit)}, all known"


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin that the command line names, LOG and --example included."""

    log: Path | None
    example: str | None
    git: Path | None
    since: str | None
    files: tuple[str, ...]
    min_changes: int | None
    history: Path | None
    dbt: Path | None
    nutch: Path | None
    changedetection: Path | None
    bing: Path | None
    sources: Path | None

    def read(self, time_unit: str) -> Found:
        """Read the data, in `time_unit`."""
        given = [self.log, self.example, self.git, self.history, self.dbt, self.bing]
        given += [self.nutch, self.changedetection]
        if sum(each is not None for each in given) != 1:
            raise click.UsageError(
                "Give either LOG or --example NAME, or one of --git, --history, --dbt, --nutch, "
                "--changedetection and --bing, and only one."
            )
        if self.sources is not None and self.log is None:
            raise click.UsageError("--sources is for LOG. Leave it out.")
        if self.git is None:
            for key in _GIT:
                if getattr(self, key) not in (None, ()):
                    raise click.UsageError(f"--{key.replace('_', '-')} is for --git. Leave it out.")
        if self.git is not None:
            found = read_git(
                self.git,
                since=self.since,
                paths=self.files,
                min_changes=self.min_changes or 0,
                time_unit=time_unit,
            )
            return Found(found, f"git history of {self.git}")
        if self.history is not None:
            return Found(read_history(self.history, time_unit=time_unit), str(self.history))
        if self.dbt is not None:
            return Found(read_dbt(self.dbt, time_unit), str(self.dbt))
        if self.nutch is not None:
            return Found(read_nutch(self.nutch, time_unit), str(self.nutch))
        if self.changedetection is not None:
            return Found(read_changedetection(self.changedetection, time_unit), str(self.changedetection))
        if self.bing is not None:
            if time_unit != "day":
                raise click.UsageError("--bing is in days. Leave out --time-unit.")
            data = read_bing(self.bing)
            return Found(data.log, str(self.bing), data.importance)
        log = inputs.log_of(self.log, self.example, time_unit)
        if self.sources is not None:
            log = since_birth(log, starts_of(self.sources, log.sources_))
        return Found(log, self.example or str(self.log))


def outcome(data: CrawlLog | ChangeHistory) -> str:
    """Return how many crawls found a change.

    The text is appended to `Found.words`; for a change history it is empty.
    """
    return f", {np.count_nonzero(data.changed):,} found a change" if isinstance(data, CrawlLog) else ""


def origin_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the origin options to a command.

    The command gets one argument `origin` in place of `log`, `example` and these.
    """
    names = Origin.__dataclass_fields__

    @wraps(command)
    def with_origin(**arguments: Any) -> Any:  # noqa: ANN401 - as in click
        origin = Origin(**{name: arguments.pop(name) for name in names})
        return command(origin=origin, **arguments)

    wrapped: Callable[..., Any] = with_origin
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
