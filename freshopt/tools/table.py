"""`TOOLS`: what is read, written and set of each foreign tool.

The command line has its options from here. A tool is a file of this folder and a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from freshopt.heavy import polars
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.read_events import read_history
from freshopt.tools.cache_control import CacheControl
from freshopt.tools.changedetection import ChangeDetection, read_changedetection
from freshopt.tools.changedetection_api import ChangeDetectionApi
from freshopt.tools.crontab import Crontab
from freshopt.tools.dbt import Dbt, dbt_freshness, read_dbt
from freshopt.tools.dns import Dns
from freshopt.tools.export import ToolFormat
from freshopt.tools.external_secrets import ExternalSecrets
from freshopt.tools.feeds.freshrss import FreshRss, read_freshrss
from freshopt.tools.feeds.miniflux import Miniflux, read_miniflux
from freshopt.tools.feeds.opml import read_opml
from freshopt.tools.feeds.signals import feed_signals, push_signals, sitemap_signals
from freshopt.tools.git import read_git
from freshopt.tools.nginx import Nginx
from freshopt.tools.nutch import Nutch, longest_of, read_nutch
from freshopt.tools.pg_cron import PgCron
from freshopt.tools.redis import Redis
from freshopt.tools.sitemap import read_sitemap
from freshopt.tools.stormcrawler import StormCrawler
from freshopt.tools.text_template import PLACEHOLDERS, QUOTING_WORDS, TextTemplate
from freshopt.tools.wayback import read_wayback
from freshopt.tools.whole_seconds import IntervalFormat, LifetimeFormat


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting of a tool, as an option of the command line.

    Its argument of the reader or the format is named alike but for `argument`, and is what `value` makes of
    the text; `least` is of a whole number. The help does not tell which tools have it.
    """

    name: str
    metavar: str
    help: str
    of: Literal["read", "write"]
    argument: str = ""
    many: bool = False
    least: int | None = None
    value: Callable[[Any], Any] = lambda given: given


@dataclass(frozen=True, slots=True)
class Tool:
    """Foreign tool: ``import NAME PATH``, ``schedule --format NAME``, ``sync NAME``.

    `read` makes a log or a history of a path, or the other table that it `makes`; `help` describes the path,
    and `called` names it; `write` is the format of its files; `server` is a running one, whose
    intervals can be set. Before there was the command import, some had a `flag` of their own, --NAME PATH, in
    place of a log.
    """

    name: str
    read: Callable[..., CrawlLog | ChangeHistory | polars.DataFrame] | None = None
    help: str = ""
    metavar: str = "PATH"
    called: str = "{}"
    makes: Literal["log", "signals", "limits"] = "log"
    flag: bool = False
    write: type[ToolFormat[Any]] | None = None
    server: type[ChangeDetectionApi] | None = None
    options: tuple[Setting, ...] = ()


COMMAND = Setting(
    "command",
    "WORDS",
    "command that refreshes a source; {source} stands for its name, "
    "quoted. crontab: {host} for its host; without {source} the name is appended. pg_cron: SQL; {source!i} "
    "for the name of a table or view (default REFRESH MATERIALIZED VIEW {source!i}).",
    "write",
)
SINCE = Setting("since", "MOMENT", "start of the history, such as 2026-01-31.", "read")
WHEN = Setting(
    "when",
    "WORD",
    "moment of a signal: dated, the date of the change (default), or seen, that of the first copy with it.",
    "read",
)
TOOLS = (
    Tool(
        "git",
        read_git,
        "Git repository, or a folder in one: each file is a source, each commit of the branch that touches "
        "it a change; merges count when they are merged.",
        called="git history of {}",
        flag=True,
        options=(
            SINCE,
            Setting(
                "files",
                "PATHSPEC",
                "files to include, such as '*.md' (repeatable).",
                "read",
                argument="paths",
                many=True,
            ),
            Setting("min-changes", "N", "minimum number of changes of a file (default 0).", "read", least=0),
        ),
    ),
    Tool(
        "history",
        read_history,
        "Table of all changes (source, time), as version control or a feed has them: that none is missing is "
        "its owner's word. Changes found by looking now and then are no history, but a log.",
        "FILE",
        flag=True,
    ),
    Tool(
        "dbt",
        read_dbt,
        "Folder of sources.json files of `dbt source freshness`, one per run.",
        flag=True,
        write=Dbt,
    ),
    Tool(
        "dbt-freshness",
        dbt_freshness,
        "Folder of sources.json files, as for dbt: a table of limits for plan --limits, by which sources are "
        "loaded before error_after, and are younger than warn_after most of the time.",
        makes="limits",
        options=(
            Setting(
                "share", "SHARE", "share of time that they are younger than warn_after (default 95%).", "read"
            ),
        ),
    ),
    Tool(
        "nutch",
        read_nutch,
        "Folder of dumps of Apache Nutch's crawl database (readdb -dump -format csv), one per run.",
        flag=True,
        write=Nutch,
        options=(
            Setting("longest", "TIME", "db.fetch.interval.max (default 90d).", "write", value=longest_of),
        ),
    ),
    Tool(
        "sitemap",
        read_sitemap,
        "Folder with copies of sitemaps (XML, also gzipped; of news, too), with their dates in the names: a "
        "page has changed where its lastmod has.",
    ),
    Tool(
        "wayback",
        read_wayback,
        "Index of a web archive's captures: CDX of the Wayback Machine as text, CSV or JSON, a CDX file, or "
        "CDXJ.",
        "FILE",
    ),
    Tool("stormcrawler", write=StormCrawler),
    Tool(
        "changedetection",
        read_changedetection,
        "Data folder of changedetection.io, or a backup of it.",
        flag=True,
        write=ChangeDetection,
        server=ChangeDetectionApi,
    ),
    Tool(
        "miniflux",
        read_miniflux,
        "Address of a running Miniflux: a feed changes when an entry is published. Such as "
        "http://localhost:8080.",
        "URL",
        write=Miniflux,
        options=(
            Setting("key", "KEY", "its API key (default: MINIFLUX_KEY of the environment).", "read"),
            SINCE,
        ),
    ),
    Tool(
        "freshrss",
        read_freshrss,
        "SQLite database of FreshRSS (data/users/NAME/db.sqlite): a feed changes when an entry is published.",
        "FILE",
        write=FreshRss,
        options=(
            SINCE,
            Setting(
                "table",
                "NAME",
                "FreshRSS's table of feeds (default feed, as in SQLite; else such as freshrss_ann_feed).",
                "write",
            ),
        ),
    ),
    Tool(
        "opml",
        read_opml,
        "List of feeds in OPML: a table of their limits, by tag, for plan --limits.",
        "FILE",
        makes="limits",
        options=(
            Setting(
                "interval",
                "TAG=TIME..TIME",
                "shortest and longest interval of feeds with a tag, such as News=10min..6h (repeatable); * "
                "is each feed.",
                "read",
                argument="intervals",
                many=True,
            ),
        ),
    ),
    Tool(
        "sitemap-signals",
        sitemap_signals,
        "Folder with copies of sitemaps, as for sitemap: a page signals where its date is another, or it is "
        "new.",
        makes="signals",
        options=(WHEN,),
    ),
    Tool(
        "feed-signals",
        feed_signals,
        "Folder with copies of RSS and Atom feeds (*.xml, *.rss, *.atom, also gzipped), with their dates in "
        "the names: each entry signals when it was published and updated.",
        makes="signals",
        options=(
            WHEN,
            Setting(
                "of",
                "WORD",
                "whose signals: entries, the pages that they link to (default), or feed, the feed itself.",
                "read",
            ),
        ),
    ),
    Tool(
        "push-signals",
        push_signals,
        "Log of what was pushed by WebSub, IndexNow or webhooks: an access log, or JSON lines with a moment "
        "and a body.",
        "FILE",
        makes="signals",
    ),
    Tool("crontab", write=Crontab, options=(COMMAND,)),
    Tool("pg_cron", write=PgCron, options=(COMMAND,)),
    Tool("external-secrets", write=ExternalSecrets),
    Tool(
        "template",
        write=TextTemplate,
        options=(
            Setting(
                "template",
                "TEXT",
                "Text to write for each source, with {source} and, at will, "
                f"{', '.join(f'{{{name}}}' for name in PLACEHOLDERS[1:])}; quoted as in {{source!q}}: "
                f"{QUOTING_WORDS}.",
                "write",
            ),
        ),
    ),
    Tool("cache-control", write=CacheControl),
    Tool("nginx", write=Nginx),
    Tool("redis", write=Redis),
    Tool("dns", write=Dns),
)
READ = {tool.name: tool for tool in TOOLS if tool.read is not None}
FLAGS = {name: tool for name, tool in READ.items() if tool.flag}
SERVED = {tool.name: tool.server for tool in TOOLS if tool.server is not None}
_WRITTEN = [(tool.name, tool.write) for tool in TOOLS if tool.write is not None]
INTERVALS = {name: made for name, made in _WRITTEN if issubclass(made, IntervalFormat)}
# Of caches, whose copies are refreshed on request.
LIFETIMES = {name: made for name, made in _WRITTEN if issubclass(made, LifetimeFormat)}
