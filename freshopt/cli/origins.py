"""Where a command's crawls or changes come from: a file, an example, a repository, another tool's records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
import numpy as np

from freshopt.arrays import Array
from freshopt.cli import inputs
from freshopt.cli.console import count
from freshopt.cli.options import Decorator
from freshopt.io.read_bing import read_bing
from freshopt.io.read_changedetection import read_changedetection
from freshopt.io.read_dbt import read_dbt
from freshopt.io.read_git import read_git
from freshopt.io.read_history import read_history
from freshopt.io.read_nutch import read_nutch
from freshopt.learning.change_history import ChangeHistory
from freshopt.learning.crawl_log import CrawlLog
from freshopt.units import convert_time

_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--git",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="The history of a git repository instead of LOG, or of a folder in one: each file is a source, "
        "each commit of the branch that touches it a change; merges count when they are merged.",
    ),
    click.option("--since", metavar="MOMENT", help="Of --git: look no further back, such as 2026-01-31."),
    click.option(
        "--files", multiple=True, metavar="PATHSPEC", help="Of --git: files to look at, such as '*.md'."
    ),
    click.option(
        "--min-changes",
        type=click.IntRange(min=0),
        metavar="N",
        help="Of --git: leave out files that changed less.",
    ),
    click.option(
        "--history",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A table of all changes (source, time) instead of LOG.",
    ),
    click.option(
        "--dbt",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="sources.json files of `dbt source freshness` instead of LOG: a folder of copies, one a run.",
    ),
    click.option(
        "--nutch",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Dumps of Apache Nutch's crawl database (readdb -dump -format csv) instead of LOG, one a run.",
    ),
    click.option(
        "--changedetection",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="The data folder of changedetection.io, or a backup of it, instead of LOG.",
    ),
    click.option(
        "--bing",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The Bing data set (urlid_offset_history.txt, urlid_imp.txt, ...) instead of LOG.",
    ),
)
ROWS = 2_000_000  # of the log of a history: with more, crawls are less often than daily
_GIT = ("since", "files", "min_changes")


@dataclass(frozen=True, slots=True)
class Found:
    """What was read.

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
        """The data as a crawl log; of a history that of daily crawls which count changes."""
        if isinstance(self.data, CrawlLog):
            return self.data
        day = convert_time(1.0, "day", self.data.time_unit)
        return self.data.to_log(max(day, float(np.sum(self.data.end - self.data.start)) / ROWS))

    @property
    def history(self) -> ChangeHistory | None:
        """All changes, if they are known."""
        return self.data if isinstance(self.data, ChangeHistory) else None

    @property
    def words(self) -> str:
        """How much was read."""
        sources = count(len(self.data.sources_), "source")
        if isinstance(self.data, CrawlLog):
            return f"{self.name}: {count(len(self.data), 'crawl')} of {sources}"
        span = float(np.max(self.data.end) - np.min(self.data.start))
        changes = count(len(self.data), "change")
        return f"{self.name}: {changes} of {sources} in {count(span, self.data.time_unit)}, all known"


@dataclass(frozen=True, slots=True)
class Origin:
    """What the command line named, LOG and --example included."""

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

    def read(self, time_unit: str) -> Found:
        """Read it, on the clock `time_unit`."""
        given = [self.log, self.example, self.git, self.history, self.dbt, self.bing]
        given += [self.nutch, self.changedetection]
        if sum(each is not None for each in given) != 1:
            raise click.UsageError(
                "Give either LOG or --example NAME, or one of --git, --history, --dbt, --nutch, "
                "--changedetection and --bing, and only one."
            )
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
        return Found(inputs.log_of(self.log, self.example, time_unit), self.example or str(self.log))


def outcome(data: CrawlLog | ChangeHistory) -> str:
    """Return how many crawls found a change, to be added to `Found.words`; a history says it by itself."""
    return f", {np.count_nonzero(data.changed):,} found a change" if isinstance(data, CrawlLog) else ""


def origin_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets one argument `origin` in place of `log`, `example` and theirs."""
    names = Origin.__dataclass_fields__

    @wraps(command)
    def with_origin(**arguments: Any) -> Any:  # noqa: ANN401 - as in click
        origin = Origin(**{name: arguments.pop(name) for name in names})
        return command(origin=origin, **arguments)

    wrapped: Callable[..., Any] = with_origin
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
