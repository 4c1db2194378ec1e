"""`Database`: the database that holds a planner's state, in any dialect.

The SQL of the room is written once, with ``?`` for values. Every change is made within
`Database.transaction`, wholly or not at all, and there is one writer at a time: what is handed out is counted
against one bandwidth, so that hand-outs wait for one another in any case, and rows are numbered in the order
in which they are committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.tools.live_planner import SCHEMA

# A planner's tables, of version `SCHEMA`; {key} is the number that a database gives each row, in the order in
# which rows are committed.
TABLES = (
    "CREATE TABLE planner (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE source (
        id {key}, name TEXT NOT NULL UNIQUE, active SMALLINT NOT NULL,
        importance DOUBLE PRECISION NOT NULL, refresh_cost DOUBLE PRECISION NOT NULL, host TEXT,
        min_rate DOUBLE PRECISION NOT NULL, max_rate DOUBLE PRECISION,
        change_rate DOUBLE PRECISION, rate DOUBLE PRECISION,
        last_crawl DOUBLE PRECISION, next_due DOUBLE PRECISION, lease_until DOUBLE PRECISION,
        silent_since DOUBLE PRECISION, tried_rate DOUBLE PRECISION, content TEXT,
        handed_out DOUBLE PRECISION)""",
    """CREATE TABLE observation (
        id {key}, source BIGINT NOT NULL REFERENCES source (id), time DOUBLE PRECISION NOT NULL,
        changed SMALLINT NOT NULL, changes DOUBLE PRECISION, last_modified DOUBLE PRECISION,
        UNIQUE (source, time))""",
    # Sources that are not planned yet, of which there are few or none.
    "CREATE INDEX source_new ON source (id) WHERE active = 1 AND rate IS NULL",
    # When something of a host may be handed out again, where hosts have a least gap.
    "CREATE TABLE host_turn (host TEXT PRIMARY KEY, free_at DOUBLE PRECISION NOT NULL)",
    # Covers the choice of what is handed out next.
    "CREATE INDEX source_due ON source (next_due, lease_until, rate, tried_rate, max_rate, handed_out)",
)
# Of the version before, what makes tables of this one.
BEFORE = "2"
UPGRADE = (
    "ALTER TABLE source ADD COLUMN handed_out DOUBLE PRECISION",
    "DROP INDEX source_due",
    *TABLES[-2:],
)
# The rate in force: that of the plan, or that at which a source that is down is tried.
IN_FORCE = "CASE WHEN tried_rate < rate THEN tried_rate ELSE rate END"
# Values looked up in one statement.
TOGETHER = 500

Row = tuple[Any, ...]


class Database(ABC):
    """Database with a planner's tables, in one dialect of SQL.

    - `place`: Folder or address, as messages name it; without a password.
    - `others`: Refusal of a database with other tables.
    """

    key: ClassVar[str]
    tables: ClassVar[str]
    place: str
    others: str
    _connection: Any
    _errors: Any

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Return a context in which all changes are made, or none.

        One within another is a part of it.
        """

    @abstractmethod
    def _execute(self, sql: str, values: Sequence[object]) -> Any:  # noqa: ANN401 - a cursor
        """Execute a statement."""

    @abstractmethod
    def _execute_many(self, sql: str, values: Iterable[Sequence[object]]) -> Any:  # noqa: ANN401
        """Execute a statement for each row."""

    @abstractmethod
    def _told(self, error: Exception) -> FreshoptError:
        """Return what the database says as an error of one line."""

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Return the rows of a query."""
        try:
            found: list[Row] = self._execute(sql, values).fetchall()
        except self._errors as error:
            raise self._told(error) from None
        return found

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        """Execute a statement; return how many rows it changed."""
        try:
            return int(self._execute(sql, values).rowcount)
        except self._errors as error:
            raise self._told(error) from None

    def run_many(self, sql: str, values: Iterable[Sequence[object]]) -> int:
        """Execute a statement for each row; return how many were changed."""
        try:
            return max(0, int(self._execute_many(sql, values).rowcount))
        except self._errors as error:
            raise self._told(error) from None

    def rows_among(self, sql: str, among: Sequence[object], *values: object) -> list[Row]:
        """Return rows of a query that ends with a test among {marks}.

        `values` are those of the tests before. Of many, some are looked up at a time.
        """
        found: list[Row] = []
        for begin in range(0, len(among), TOGETHER):
            some = among[begin : begin + TOGETHER]
            found += self.rows(sql.format(marks=", ".join("?" * len(some))), (*values, *some))
        return found

    def put(self, table: str, key: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write rows in place of those with their keys, in a transaction."""
        marks = ", ".join("?" * len(columns))
        changes = ", ".join(f"{each} = excluded.{each}" for each in columns)
        self.run_many(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) "
            f"ON CONFLICT ({key}) DO UPDATE SET {changes}",
            rows,
        )

    def has_planner(self) -> bool:
        """Return whether the tables are there; raise if they are somebody else's."""
        names = {name for (name,) in self.rows(self.tables)}
        if names and not {"planner", "source", "observation"} <= names:
            raise SourceDataError(self.others)
        return bool(names)

    def create(self) -> None:
        """Create the tables, within a transaction."""
        for statement in TABLES:
            self.run(statement.format(key=self.key))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def discard(self) -> None:
        """Close the connection; leave no files that it made for nothing."""
        self.close()


def kept(database: Database, key: str) -> str | None:
    """Return a value that the planner keeps beside its tables."""
    rows = database.rows("SELECT value FROM planner WHERE key = ?", (key,))
    return rows[0][0] if rows else None


def keep(database: Database, key: str, value: str) -> None:
    """Keep a value beside the tables, within a transaction."""
    database.run(
        "INSERT INTO planner (key, value) VALUES (?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )


def new_revision(database: Database) -> None:
    """Count a change, within a transaction, for other processes to see."""
    keep(database, "revision", str(int(kept(database, "revision") or 0) + 1))


def require_schema(database: Database) -> None:
    """Bring known tables up to date, or raise."""
    if kept(database, "schema") == BEFORE:
        with database.transaction():
            # Another process may have done it meanwhile.
            if kept(database, "schema") == BEFORE:
                for statement in UPGRADE:
                    database.run(statement)
                keep(database, "schema", str(SCHEMA))
    version = kept(database, "schema")
    if version != str(SCHEMA):
        raise SourceDataError(
            f"the planner in {database.place} has tables of version {version}, and this freshopt knows "
            f"version {SCHEMA}. Open it with the freshopt that made it, or a newer one."
        )


def locked(place: str, seconds: float) -> FreshoptError:
    """Return the error of a database that another process holds."""
    return FreshoptError(
        f"the planner in {place} was locked by another process for {seconds:g} s. Nothing was changed. Try "
        "again, and see which process holds a transaction open."
    )
