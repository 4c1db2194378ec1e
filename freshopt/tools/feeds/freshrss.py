"""FreshRSS: feeds with their entries as a change history; intervals as SQL.

Its database has tables ``feed`` (``url``, ``lastUpdate``, and ``ttl``: seconds between looks, 0 for the
default, negative for a muted feed) and ``entry`` (``date``; ``id``, the microsecond at which it was found)
[1]_. Of SQLite it is the file ``data/users/NAME/db.sqlite``, which is opened for reading only. Texts in it
are escaped as those of HTML are.

What is written sets ``ttl`` by the feed's address, in one transaction; muted feeds stay so. SQLite,
PostgreSQL and MySQL read it. Looks happen when its own job runs: that should be at least as often as the
shortest interval.

References
----------
.. [1] https://github.com/FreshRSS/FreshRSS, 1.25.0, ``app/SQL/install.sql.sqlite.php``,
   ``app/Models/Feed.php``
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from freshopt.errors import SourceDataError
from freshopt.heavy import polars
from freshopt.logs.change_history import ChangeHistory
from freshopt.tools.export import refuse, urls_of
from freshopt.tools.feeds.reader_history import Entry, KeptFeed, history_of, since_told
from freshopt.tools.whole_seconds import NEVER, IntervalFormat, Limits

# As PHP's htmlspecialchars writes them, the ampersand first.
_ESCAPED = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"))
# Copies of less than limits.cache_duration of its config.php are not fetched anew: 800 s, 60 s at least.
_LIMITS = Limits("FreshRSS", step=1, longest=2**31 - 1, shortest=60)


def read_freshrss(path: Path, time_unit: str = "day", *, since: str | None = None) -> ChangeHistory:
    """Read the feeds of a SQLite database as a change history."""
    begin = since_told(since)
    if not path.is_file():
        raise SourceDataError(f"there is no file {path}. Name data/users/NAME/db.sqlite of FreshRSS.")
    entries: dict[int, list[Entry]] = {}
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            database.text_factory = lambda octets: octets.decode(errors="replace")
            for feed, date, found, starred in database.execute(
                "SELECT id_feed, CAST(date AS REAL), CAST(id AS REAL) / 1e6, is_favorite FROM entry"
            ):
                entries.setdefault(feed, []).append(Entry(date or 0.0, found, bool(starred)))
            feeds = database.execute(
                "SELECT id, url, CAST(lastUpdate AS REAL), CAST(ttl AS REAL) FROM feed"
            ).fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of names in a damaged file
        raise SourceDataError(
            f"{path} cannot be read as a database of FreshRSS: {error}. Name data/users/NAME/db.sqlite."
        ) from error
    kept = [
        KeptFeed(_plain(str(url)), looked or 0.0, entries.get(feed, []), active=(ttl or 0.0) >= 0.0)
        for feed, url, looked, ttl in feeds
    ]
    return history_of(kept, "FreshRSS", time_unit, begin)


def _plain(escaped: str) -> str:
    for letter, written in (*_ESCAPED[:0:-1], ("'", "&#039;"), _ESCAPED[0]):
        escaped = escaped.replace(written, letter)
    return escaped


class SqlUpdates(IntervalFormat):
    """SQL for the database of a reader, an update for each feed."""

    __slots__ = ()
    around: ClassVar[tuple[str, str, str]] = ("BEGIN;\n", "", "COMMIT;\n")

    def text(self, names: list[str]) -> polars.Series:
        """Return URLs as SQL has them in quotes."""
        urls = urls_of(names, self.limits.tool)
        refuse(
            names,
            urls.str.contains("\\", literal=True).arg_true(),
            "has a backslash, which databases read differently. Write it %5C.",
        )
        return urls.str.replace_all("'", "''", literal=True)


@dataclass(frozen=True, slots=True)
class FreshRss(SqlUpdates):
    """SQL for its database.

    Attributes
    ----------
    table : str
        Its table of feeds: "feed" in SQLite, else with prefix and user's name, such as "freshrss_ann_feed".
    """

    table: str = "feed"
    limits: ClassVar[Limits] = _LIMITS
    never: ClassVar[str] = "as muted feeds"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", self.table):
            raise SourceDataError(f"{self.table[:80]!r} is no name of a table. Write it such as feed.")

    def line(self) -> polars.Expr:
        """Return the update of a feed by its address, escaped or not."""
        written, quote = polars.col("name"), "`" if "-" in self.table else ""
        for letter, escaped in _ESCAPED:
            written = written.str.replace_all(letter, escaped, literal=True)
        # A day is the interval of those that somebody takes up again.
        ttl = polars.when(polars.col("seconds") == NEVER).then(-86_400).otherwise(polars.col("seconds"))
        update = f"UPDATE {quote}{self.table}{quote} SET ttl={{}} WHERE ttl>=0 AND url IN ('{{}}', '{{}}');\n"
        return polars.format(update, ttl, "name", written)
