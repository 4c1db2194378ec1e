"""The real tools as fixtures; a tool that is not there fails the test.

PostgreSQL runs in a temporary folder, on a Unix socket alone, as an unprivileged user.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.real_tools.postgres_server import PostgresServer, postgres_server

if "REAL_TOOLS" not in os.environ:
    raise pytest.UsageError("run these tests by tests/real_tools/run, which installs what they need")
CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="session")
def program() -> Callable[[str, str], Path]:
    """Return the path of a program of a tool's environment: ``program("dbt", "dbt")``."""

    def path(tool: str, name: str) -> Path:
        found = Path(os.environ["REAL_TOOLS"]) / tool / "bin" / name
        assert found.is_file(), f"{found} is missing"
        return found

    return path


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Run a PostgreSQL server with pg_cron for the whole session."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """Return the URL of an empty database of the test's own."""
    return postgres.new_database()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Run Debian's Chromium, headless, under Playwright."""
    assert CHROMIUM.is_file(), f"{CHROMIUM} is missing"
    # Chromium has no sandbox for root, and a small shared memory in containers.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield launched
        launched.close()
