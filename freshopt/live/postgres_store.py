"""`PostgresStore`: a planner's state in a PostgreSQL database.

The tables are those of `SqliteStore`, in the schema ``freshopt``. A transaction begins by an advisory lock,
which makes it the only writer; readers wait for nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.live.database import TABLES, Row, locked

# How long a transaction waits for another.
WAIT = 30.0
# Of the advisory lock of all planners: "freshopt" in eight bytes.
LOCK = int.from_bytes(b"freshopt", "big")


class PostgresStore:
    """Planner's database on a server."""

    def __init__(self, address: str, *, durable: bool) -> None:
        self.place = "'" + re.sub(r"//([^/@:]*):[^/@]*@", r"//\1:***@", address) + "'"
        try:
            self._driver: Any = import_module("psycopg")
        except ModuleNotFoundError:
            raise FreshoptError(
                'a planner in PostgreSQL needs psycopg. Install it: pip install "freshopt[postgresql]".'
            ) from None
        with self._told():
            self._connection = self._driver.connect(address, autocommit=True, connect_timeout=int(WAIT))
        try:
            self.run(f"SET lock_timeout = '{int(WAIT)}s'")
            if durable:
                self.run("SET synchronous_commit = on")
            self.run("SET search_path = freshopt")
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Return a context in which all changes are made, or none."""
        with self._told(), self._connection.transaction():
            self.run(f"SELECT pg_advisory_xact_lock({LOCK})")
            yield

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Return the rows of a query."""
        with self._told():
            found: list[Row] = self._connection.execute(sql.replace("?", "%s"), values or None).fetchall()
        return found

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        """Execute a statement; return how many rows it changed."""
        with self._told():
            return int(self._connection.execute(sql.replace("?", "%s"), values or None).rowcount)

    def run_many(self, sql: str, values: Iterable[Sequence[object]]) -> int:
        """Execute a statement for each row; return how many were changed."""
        with self._told(), self._connection.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), list(values))
            return max(0, int(cursor.rowcount))

    def has_planner(self) -> bool:
        """Return whether the tables are there; raise if they are somebody else's."""
        rows = self.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'freshopt'")
        names = {name for (name,) in rows}
        if names and not {"planner", "source", "observation"} <= names:
            raise SourceDataError(
                f"the schema freshopt of {self.place} is something else's. Pass another database."
            )
        return bool(names)

    def create(self) -> None:
        """Create the tables, within a transaction."""
        self.run("CREATE SCHEMA IF NOT EXISTS freshopt")
        for statement in TABLES:
            self.run(statement.format(key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise what the server says as one line."""
        try:
            yield
        except self._driver.errors.LockNotAvailable:
            raise locked(self.place, WAIT) from None
        except self._driver.Error as error:
            said = " ".join(str(error).split())
            raise SourceDataError(f"the planner in {self.place} cannot be used: {said}.") from None
