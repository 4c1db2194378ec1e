"""`freshopt serve` as a process of its own, and clients of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from tests.ground_truth.refusals import present

TOKEN = "a-token-that-nobody-guesses"
# So many refreshes a second that tests need not wait.
QUICK = ("--bandwidth", "100000/second", "--burst", "1h")


@dataclass(frozen=True)
class Served:
    """A service that runs: its process, and a client that has its token."""

    process: subprocess.Popen[str]
    client: httpx.Client

    def put(self, *names: str, **more: float | str | None) -> None:
        """Add sources."""
        rows = [{"source": name, **more} for name in names]
        for begin in range(0, len(rows), 1000):
            self.client.put("/sources", json=rows[begin : begin + 1000]).raise_for_status()

    def due(self, limit: int = 100) -> list[dict[str, Any]]:
        """Ask what is due."""
        visits: list[dict[str, Any]] = (
            self.client.get("/due", params={"limit": limit}).raise_for_status().json()["visits"]
        )
        return visits

    def report(self, *reports: dict[str, Any]) -> httpx.Response:
        """Report visits; those without a time were now."""
        now = datetime.now(UTC).isoformat()
        return self.client.post("/observed", json=[{"time": now, **each} for each in reports])


@contextmanager
def served(folder: Path | str, *options: str, token: str | None = TOKEN) -> Iterator[Served]:
    """Serve a planner on a free port of the loopback until the block ends."""
    words = [sys.executable, "-m", "freshopt", "serve", str(folder), "--listen", "127.0.0.1:0", *options]
    named = {**os.environ, "FRESHOPT_TOKEN": token or ""}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=named)
    try:
        line = present(process.stdout).readline()
        assert line.startswith("serving at "), line + present(process.stderr).read()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        address = line.removeprefix("serving at ").strip()
        with httpx.Client(base_url=address, headers=headers, timeout=30.0, trust_env=False) as client:
            yield Served(process, client)
    finally:
        process.kill()
        process.wait()
        present(process.stdout).close()
        present(process.stderr).close()
