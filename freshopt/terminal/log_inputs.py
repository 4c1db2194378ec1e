"""Origins of crawl data: files, examples, repositories, other tools' records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from freshopt.heavy import polars
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.client_copies import Client
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.file_kinds import require_file
from freshopt.logs.last_modified import since_birth
from freshopt.logs.log_files import log_hosts
from freshopt.logs.read_crawls import fetch_statuses, read_log
from freshopt.logs.read_events import is_history, read_history, requests_of
from freshopt.logs.schema import found_in
from freshopt.logs.source_index import hosts_of_urls
from freshopt.numerics.arrays import Array
from freshopt.planning.failing_window import Statuses
from freshopt.planning.request import as_crawl_log
from freshopt.report.value_words import span_text
from freshopt.terminal import inputs, options
from freshopt.terminal.console import count
from freshopt.terminal.options import Decorator, together
from freshopt.terminal.tables import starts_of
from freshopt.terminal.tool_options import flags, import_line, read_tool, require_settings_of, taken
from freshopt.terminal.wish_options import option_of
from freshopt.tools.live_planner import is_planner, read_planner
from freshopt.tools.table import FLAGS

_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--columns",
        metavar="NAMES",
        help="Names of your columns, such as url=source,fetched_at=time,sha256=hash.",
    ),
    options.answers_option,
    click.option(
        "--client",
        metavar="ADDRESS",
        help="Of a LOG with several clients: read the requests from this address alone.",
    ),
    click.option(
        "--agent",
        metavar="TEXT",
        help="Of a LOG with several clients: read the requests of agents with this in their names alone.",
    ),
    click.option(
        "--pattern",
        metavar="TEXT",
        help="For LOG in an unknown format of access logs: how a line is written, as log_format of nginx or "
        "LogFormat of Apache says.",
    ),
    *flags(),
    click.option(
        "--sources",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="For a LOG with the column last_modified: table with columns source, start, since when "
        "each source exists (empty: unknown).",
    ),
)
_OF_LOG = ("columns", "answers_are_changes", "client", "agent", "pattern", "sources")


@dataclass(frozen=True, slots=True)
class Found:
    """Crawl data with their name.

    - `name`: What it is called.
    - `importance`: Of the sources, where the data tell it.
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
        sources = count(len(self.data.names), "source")
        if isinstance(self.data, CrawlLog):
            return f"{self.name}: {count(len(self.data), 'crawl')} of {sources}"
        span = float(np.max(self.data.end) - np.min(self.data.start))
        changes = count(len(self.data), "change")
        return f"{self.name}: {changes} of {sources} in {count(span, self.data.time_unit)}, all known"


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin that the command line names, LOG and --example included."""

    log: tuple[Path, ...]
    example: str | None
    columns: str | None
    answers_are_changes: bool
    client: str | None
    agent: str | None
    pattern: str | None
    sources: Path | None
    tools: dict[str, Path]
    settings: dict[str, Any]

    @property
    def paths(self) -> list[Path]:
        """The files and folders that are read."""
        return [*self.log, *self.tools.values()]

    @property
    def files(self) -> Any:  # noqa: ANN401 - as `read_log` takes it
        """LOG as one path, or several; None without."""
        return self.log[0] if len(self.log) == 1 else [*self.log] or None

    @property
    def planner(self) -> Path | None:
        """LOG, where it is the folder of a live planner."""
        return self.log[0] if len(self.log) == 1 and is_planner(self.log[0]) else None

    @property
    def name(self) -> str:
        """What the data are called."""
        if not self.log:
            return str(self.example)
        more = f" and {len(self.log) - 1} more" if len(self.log) > 1 else ""
        return f"{'standard input' if str(self.log[0]) == '-' else self.log[0]}{more}"

    def require_log(self) -> None:
        """Raise SourceDataError where a file of LOG is missing."""
        for path in self.log:
            if str(path) != "-" and not path.exists():
                require_file(path)

    def read(self, time_unit: str) -> Found:
        """Read the data, in `time_unit`."""
        given = [each for each in (self.files, self.example) if each is not None]
        if len(given) + len(self.tools) != 1:
            raise click.UsageError(
                "Give either LOG or --example NAME, and not both. freshopt import makes a LOG of what other "
                "tools have recorded."
            )
        own = [option_of(key) for key in _OF_LOG if getattr(self, key) not in (None, False)]
        if own and not self.log:
            raise click.UsageError(f"{own[0]} is for LOG. Leave it out.")
        if self.planner is not None:
            if own:
                raise click.UsageError(
                    f"{own[0]} is for files, and {self.planner} is a planner. Leave it out."
                )
            log, weights = read_planner(self.planner, time_unit)
            return Found(log, f"live planner in {self.planner}", weights)
        require_settings_of(next(iter(self.tools), None), self.settings)
        for name, path in self.tools.items():
            line = import_line(FLAGS[name], path, self.settings)
            click.echo(
                f"Warning: --{name} goes in 0.3.0. Write {line}, and give log.parquet as LOG.", err=True
            )
            found = read_tool(FLAGS[name], path, self.settings, time_unit)
            return Found(found, FLAGS[name].called.format(path))
        if isinstance(self.files, Path) and is_history(self.files):
            return Found(read_history(self.files, time_unit=time_unit), self.name)
        if self.example is not None:
            return Found(inputs.example_log(self.example, time_unit), self.name)
        client = self.chosen
        log = read_log(
            self.files,
            time_unit,
            columns=self.names(),
            client=client.address,
            agent=client.agent,
            pattern=client.pattern,
            answers_are_changes=self.answers_are_changes,
        )
        if self.sources is not None:
            log = since_birth(log, starts_of(self.sources, log.names))
        return Found(log, self.name)

    @property
    def chosen(self) -> Client:
        """The client of an access log, and the pattern of its lines."""
        return Client(self.client, self.agent, self.pattern)

    def names(self) -> dict[str, str] | None:
        """Return the names of --columns: of the file, and of a log."""
        if self.columns is None:
            return None
        pairs = [pair.rpartition("=") for pair in self.columns.split(",")]
        wrong = [name + sign + to for name, sign, to in pairs if not (name and to)]
        if wrong:
            raise click.UsageError(
                f"--columns: {wrong[0]!r} is no pair of names. Write those of the file first, such as "
                "url=source,fetched_at=time."
            )
        return {name.strip(): to.strip() for name, _, to in pairs}

    def statuses(self, log: CrawlLog) -> Statuses | None:
        """Return the fetches behind a log, on its clock; None without statuses."""
        if not self.log or self.planner is not None:
            return None
        told = fetch_statuses(self.files, self.names(), dated=log.clock.dated, client=self.chosen)
        if told is None or not len(told.source):
            return None
        return Statuses(told.source, told.status, log.clock.offsets(told.time, "time"))

    def hosts(self) -> Callable[[Any], npt.NDArray[Any]]:
        """Return the function from source names to hosts, by column or URL."""
        path = self.files
        if path is None or self.planner is not None:
            return hosts_of_urls
        told = log_hosts(path, self.names())
        if told is None:
            return hosts_of_urls
        return lambda names: np.array(found_in(told, names.tolist(), "host", path))


def outcome(data: CrawlLog | ChangeHistory) -> str:
    """Return how many crawls found a change, and in which time."""
    found = f", {np.count_nonzero(data.changed):,} found a change" if isinstance(data, CrawlLog) else ""
    return f"{found}, {_span(data)}"


def _span(log: CrawlLog | ChangeHistory) -> str:
    """Return the time that a log covers, as dates or numbers."""
    if isinstance(log, ChangeHistory):
        begin, end = float(np.min(log.start)), float(np.max(log.end))
    else:
        begin, end = float(np.min(log.time)), log.end
        if not log.timed:
            return "without times"
    return span_text(begin, end, log.clock.date(begin), log.clock.date(end), log.time_unit)


def origin_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the origin options to a command, as one argument `origin`."""
    names = [each.name for each in fields(Origin) if each.name not in ("tools", "settings")]

    @wraps(command)
    def with_origin(**arguments: Any) -> Any:  # noqa: ANN401 - as in click
        tools, settings = taken(arguments)
        own = {name: arguments.pop(name) for name in names}
        origin = Origin(**own, tools=tools, settings=settings)
        return command(origin=origin, **arguments)

    return together(_OPTIONS)(with_origin)


def request_rates(found: polars.DataFrame, names: Sequence[Any], path: Path) -> tuple[Array, str]:
    """Return the request rates of sources, and a text."""
    asked, known = {str(name) for name in found["source"].to_list()}, {str(name) for name in names}
    missing, left = len(known - asked), len(asked - known)
    words = f"{count(int(found['requests'].sum()), 'request')} of {count(found.height, 'source')} in {path}"
    words += f"; {count(missing, 'source')} without any" if missing else ""
    words += f"; {count(left, 'source')} left out, whose changes the log does not tell" if left else ""
    return requests_of(found, names), words
