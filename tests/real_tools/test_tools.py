"""The fixtures themselves: a database, its pg_cron, and a browser."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from playwright.sync_api import Browser

from tests.real_tools.postgres_server import PostgresServer


def test_databases_are_empty_and_apart(postgres: PostgresServer, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE t (x integer)")
        connection.execute("INSERT INTO t VALUES (7)")
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT x FROM t").fetchall() == [(7,)]
    with psycopg.connect(postgres.new_database()) as other, pytest.raises(psycopg.errors.UndefinedTable):
        other.execute("SELECT x FROM t")


def test_pg_cron_is_there(postgres: PostgresServer) -> None:
    assert postgres.run("SELECT extname FROM pg_extension WHERE extname = 'pg_cron'") == ["pg_cron"]


def test_the_browser_runs_scripts(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<title>old</title><script>document.title = 'new'</script>")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.title() == "new"
    page.close()
