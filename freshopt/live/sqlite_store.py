"""`SqliteStore`: a planner's state in one SQLite file of a folder.

Write-ahead logging: readers do not wait for the writer, and a transaction that was committed survives the
end of the process in any way. Against a loss of power the last transactions are safe only with `durable`,
which waits for the disk at each commit; without it the file stays consistent all the same.
"""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.live.database import Database, locked
from freshopt.tools.live_planner import FILE

# Pages of the database kept in memory, in KiB: those of some hundred thousand sources.
CACHE = 65_536
# Pages of the write-ahead log after which they are moved to the database, which waits for the disk, and the
# bytes to which the log is cut then: 4 MB, those of some 200 observations, whatever one transaction needed.
CHECKPOINT = 1_000
LOG_SIZE = 4_194_304
# How long a transaction waits for another process's.
WAIT = 30.0


class SqliteStore(Database):
    """Planner's database in a folder."""

    key: ClassVar[str] = "INTEGER PRIMARY KEY"
    tables: ClassVar[str] = "SELECT name FROM sqlite_master WHERE type = 'table'"
    _errors = sqlite3.Error
    _connection: sqlite3.Connection

    def __init__(self, folder: Path, *, create: bool, durable: bool) -> None:
        self.place = f"'{folder}'"
        file = folder / FILE
        _require_ours(folder, file, create=create)
        self._file = file
        self._made = [path for path in (file, folder) if not path.exists()]
        self.others = f"{file} is an SQLite database of something else. Pass a new or empty folder."
        try:
            if create:
                folder.mkdir(parents=True, exist_ok=True)
            address = f"{file.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
            self._connection = sqlite3.connect(
                address, uri=True, timeout=WAIT, isolation_level=None, check_same_thread=False
            )
        except OSError as error:
            raise SourceDataError(
                f"the planner's folder {self.place} cannot be made: {error.strerror}. Pass another."
            ) from None
        except sqlite3.Error as error:
            raise self._told(error) from None
        try:
            self.rows("PRAGMA schema_version")
            self._set_wal()
            self.run(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self.run(f"PRAGMA cache_size = {-CACHE}")
            self.run(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")
            self.rows(f"PRAGMA journal_size_limit = {LOG_SIZE}")
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Return a context in which all changes are made, or none."""
        if self._connection.in_transaction:
            yield
            return
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise

    def discard(self) -> None:
        """Close the connection; remove a file of its own without tables."""
        if self._file in self._made:
            with suppress(FreshoptError, OSError):
                # Within a transaction: no other process is about to make the tables.
                with self.transaction():
                    empty = not self.has_planner()
                self.close()  # which removes the write-ahead log
                if empty:
                    self._file.unlink()
                    if len(self._made) == 2:
                        self._file.parent.rmdir()
        self.close()

    def _execute(self, sql: str, values: Sequence[object]) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)

    def _execute_many(self, sql: str, values: Iterable[Sequence[object]]) -> sqlite3.Cursor:
        return self._connection.executemany(sql, values)

    def _set_wal(self) -> None:
        """Switch to write-ahead logging, which waits for nobody by itself."""
        until = time.monotonic() + WAIT
        while True:
            with suppress(sqlite3.OperationalError):
                (mode,) = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
                if mode == "wal":
                    return
                raise FreshoptError(
                    f"{self._file} cannot keep a write-ahead log here (mode {mode}). Put the folder on a "
                    "local disk."
                )
            if time.monotonic() > until:
                raise locked(self.place, WAIT)
            time.sleep(0.01)

    def _told(self, error: Exception) -> FreshoptError:
        """Return what SQLite says as an error of one line."""
        said = str(error)
        if isinstance(error, sqlite3.ProgrammingError):
            return FreshoptError(f"the planner in {self.place} is closed. Open it again.")
        if isinstance(error, sqlite3.OperationalError):
            if "locked" in said or "busy" in said:
                return locked(self.place, WAIT)
            return FreshoptError(f"{self._file}: {said}. Correct it, and open the planner again.")
        return SourceDataError(
            f"{self._file} cannot be read: {said}. Restore it from a copy, or pass a new folder."
        )


def holds_planner(folder: Path) -> bool:
    """Return whether a folder has a planner; raise for anything else's."""
    file = folder / FILE
    _require_ours(folder, file, create=True)
    return file.exists()


def _require_ours(folder: Path, file: Path, *, create: bool) -> None:
    """Raise unless the folder has a planner's file, or may get one."""
    try:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is a file")
        if file.exists():
            return
        others = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise SourceDataError(f"'{folder}' cannot hold a planner: {said}. Pass a folder.") from None
    if others:
        raise SourceDataError(
            f"'{folder}' has other files, such as '{others[0]}', and no planner. "
            "Pass a planner's folder, or a new one."
        )
    if not create:
        raise SourceDataError(
            f"there is no planner in '{folder}'. Pass bandwidth=, such as \"200/day\", to begin one."
        )
