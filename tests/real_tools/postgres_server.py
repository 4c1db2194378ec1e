"""A PostgreSQL server with pg_cron in a temporary folder, on a Unix socket, as an unprivileged user."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
# Debian's packages make it; initdb and the server refuse to be run by root.
USER = "postgres"
# Seconds that each program may take, and that the server may take to start or to stop.
LIMIT = 60
SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{folder}'
shared_preload_libraries = 'pg_cron'
cron.database_name = '{cron}'
cron.host = '{folder}'
cron.use_background_workers = on
fsync = off
"""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server.

    Attributes
    ----------
    folder : Path
        Of its socket.
    """

    folder: Path
    _numbers: count[int] = field(default_factory=lambda: count(1))

    # The only database in which pg_cron can be created.
    CRON = "cron"

    def url(self, database: str) -> str:
        """Return the URL of a database, for psycopg, SQLAlchemy and psql alike."""
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    @property
    def cron_url(self) -> str:
        """The URL of the database that has pg_cron."""
        return self.url(self.CRON)

    def new_database(self) -> str:
        """Return the URL of a new, empty database."""
        name = f"test_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}", "postgres")
        return self.url(name)

    def run(self, sql: str, database: str | None = None) -> list[str]:
        """Return what psql prints for a script, line by line; its first error ends it."""
        command = [
            "psql",
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            self.url(database or self.CRON),
        ]
        ran = subprocess.run(command, input=sql, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server that has pg_cron, and stop it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="freshopt-"))
    data = folder / "data"
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
        _unprivileged("initdb", "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        with (data / "postgresql.conf").open("a") as file:
            file.write(SETTINGS.format(folder=folder, cron=PostgresServer.CRON))
        _unprivileged("pg_ctl", "-D", str(data), "-l", str(folder / "log"), "-w", "-t", str(LIMIT), "start")
        try:
            server = PostgresServer(folder)
            server.run(f"CREATE DATABASE {server.CRON}", "postgres")
            server.run("CREATE EXTENSION pg_cron")
            yield server
        finally:
            _unprivileged("pg_ctl", "-D", str(data), "-w", "-t", str(LIMIT), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _unprivileged(program: str, *arguments: str) -> None:
    command = [str(PROGRAMS / program), *arguments]
    if os.geteuid() == 0:
        command = ["runuser", "-u", USER, "--", *command]
    # The server inherits what pg_ctl has open: it gets no pipe for whose end this would wait.
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            timeout=2 * LIMIT,
            cwd="/",
            check=False,
        )
        said.seek(0)
        assert done.returncode == 0, said.read()
