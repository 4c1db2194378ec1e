"""`freshopt serve` under Schemathesis, and under the calls of many sources."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tests.live.served import QUICK, TOKEN, served

# What the planner refuses is valid JSON of its kind; long names fill a body before a thousand rows do.
SETTINGS = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 413, 422]
negative_data_rejection.expected-statuses = ["4xx"]
"""
# A million of them take half an hour: SERVED_SOURCES=1000000.
MANY = int(os.environ.get("SERVED_SOURCES", "100000"))


def test_schemathesis_finds_no_fault(program: Callable[[str, str], Path], tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    with served(tmp_path / "state", *QUICK) as service:
        service.put("a", "b")
        ended = subprocess.run(
            [
                program("schemathesis", "schemathesis"),
                "run",
                str(service.client.base_url.join("/openapi.json")),
                *("--header", f"Authorization: Bearer {TOKEN}", "--checks", "all"),
                *("--max-examples", "200", "--generation-deterministic", "--no-color"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout[-3000:]
        assert "8 passed" in ended.stdout
        assert service.process.poll() is None
        metrics = service.client.get("/metrics").text
    assert 'status="500"' not in metrics


def test_the_calls_of_many_sources(tmp_path: Path) -> None:
    """Each source is added, handed out and reported once, by four clients at once."""
    with served(tmp_path, "--bandwidth", "4000/second", "--burst", "10s") as service:
        service.put(*(f"https://{k % 1000}.example/{k}" for k in range(MANY)), max_rate=1.0 / 365.0)
        handed: list[list[str]] = [[] for _ in range(4)]

        def crawl(own: list[str]) -> None:
            address, headers = service.client.base_url, service.client.headers
            with httpx.Client(base_url=address, headers=headers, timeout=600.0) as client:
                while sum(map(len, handed)) < MANY:
                    visits = client.get("/due?limit=1000").raise_for_status().json()["visits"]
                    now = datetime.now(UTC).isoformat()
                    reports = [
                        {"source": visit["source"], "time": now, "changed": k % 2 == 0}
                        for k, visit in enumerate(visits)
                    ]
                    answer = client.post("/observed", json=reports).raise_for_status().json()
                    assert answer == {"count": len(visits)}
                    own += [visit["source"] for visit in visits]

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(crawl, handed))
        assert len({name for own in handed for name in own}) == sum(map(len, handed)) == MANY
        service.client.timeout = httpx.Timeout(600.0)
        status = service.client.get("/status").json()
        assert (status["sources"], status["observations"], status["never_crawled"]) == (MANY, MANY, 0)
        assert 0.0 <= status["relative_gap"] <= 0.01
        assert f"freshopt_handed_out_total {MANY:.1f}" in service.client.get("/metrics").text.replace(
            "1e+06", "1000000.0"
        )
