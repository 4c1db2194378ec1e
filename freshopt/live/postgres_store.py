"""`PostgresStore`: a planner's state in a PostgreSQL database.

The tables are those of `SqliteStore`, in the schema ``freshopt``. A transaction begins by an advisory lock,
which makes it the only writer; readers wait for nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.live.database import Database, locked

# How long a transaction waits for another.
WAIT = 30.0
# Of the advisory lock of all planners: "freshopt" in eight bytes.
LOCK = int.from_bytes(b"freshopt", "big")


class PostgresStore(Database):
    """Planner's database on a server."""

    key: ClassVar[str] = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    tables: ClassVar[str] = "SELECT tablename FROM pg_tables WHERE schemaname = 'freshopt'"

    def __init__(self, address: str, *, durable: bool) -> None:
        self.place = "'" + re.sub(r"//([^/@:]*):[^/@]*@", r"//\1:***@", address) + "'"
        try:
            self._driver: Any = import_module("psycopg")
        except ModuleNotFoundError:
            raise FreshoptError(
                'a planner in PostgreSQL needs psycopg. Install it: pip install "freshopt[postgresql]".'
            ) from None
        self._errors = self._driver.Error
        self.others = f"the schema freshopt of {self.place} is something else's. Pass another database."
        try:
            self._connection = self._driver.connect(address, autocommit=True, connect_timeout=int(WAIT))
        except self._errors as error:
            raise self._told(error) from None
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
        try:
            with self._connection.transaction():
                self.run(f"SELECT pg_advisory_xact_lock({LOCK})")
                yield
        except self._errors as error:
            raise self._told(error) from None

    def create(self) -> None:
        """Create the schema and its tables, within a transaction."""
        self.run("CREATE SCHEMA IF NOT EXISTS freshopt")
        super().create()

    def _execute(self, sql: str, values: Sequence[object]) -> Any:  # noqa: ANN401 - a cursor
        return self._connection.execute(sql.replace("?", "%s"), values or None)

    def _execute_many(self, sql: str, values: Iterable[Sequence[object]]) -> Any:  # noqa: ANN401 - a cursor
        cursor = self._connection.cursor()
        cursor.executemany(sql.replace("?", "%s"), list(values))
        return cursor

    def _told(self, error: Exception) -> FreshoptError:
        if isinstance(error, self._driver.errors.LockNotAvailable):
            return locked(self.place, WAIT)
        said = " ".join(str(error).split())
        return SourceDataError(f"the planner in {self.place} cannot be used: {said}.")
