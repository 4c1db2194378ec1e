"""A planner over HTTP: a real server, and clients in other processes than its own."""

import asyncio
import json
import random
import signal
import socket
import sqlite3
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main
from freshopt.live.service import app
from tests.ground_truth.command_lines import refuse
from tests.ground_truth.refusals import present
from tests.ground_truth.strata import exhaustive
from tests.live.served import QUICK, TOKEN, Served, served

NAMES = [f"s{k}" for k in range(60)]
HOSTILE = [
    "'; DROP TABLE source; --",
    '"quoted"',
    "two\nlines\t",
    "\x1b[31mred",
    "<script>x</script>",
    "🦊/é",
    "%",
]
OPERATIONS = [
    "/due",
    "/observed",
    "/signal",
    "/sources",
    "/removed",
    "/released",
    "/hosts",
    "/status",
    "/metrics",
    "/openapi.json",
    "/",
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve an empty planner, with a token, to all tests of this file that do not mind one another."""
    with served(tmp_path_factory.mktemp("service") / "state", *QUICK) as running:
        yield running


def refused(answer: httpx.Response, status: int, words: str) -> None:
    """Assert that a call was refused in one line of JSON."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    (error,) = answer.json().values()
    assert words in error
    assert "\n" not in error
    assert error.endswith(".")


def recorded(folder: Path) -> dict[tuple[str, str], int]:
    """Return the outcomes in the database by source and time, read without freshopt's planner."""
    with sqlite3.connect(folder / "planner.sqlite") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        ((clock,),) = database.execute("SELECT value FROM planner WHERE key = 'clock'")
        origin = datetime.fromisoformat(clock.partition(" ")[2])
        sql = "SELECT name, time, changed FROM observation JOIN source ON source.id = observation.source"
        rows = database.execute(sql).fetchall()
    at = [(origin + timedelta(microseconds=round(time * 86_400e6))).isoformat() for _, time, _ in rows]
    return {(name, moment): changed for (name, _, changed), moment in zip(rows, at, strict=True)}


def test_a_crawler_in_plain_http(tmp_path: Path) -> None:
    with served(tmp_path / "state", *QUICK, token=None) as service:
        assert service.due() == []
        service.put("a", "b", "c", host="h.org", importance=2.0, max_rate=1e9)
        seen: Counter[str] = Counter()
        while len(seen) < 3 or min(seen.values()) < 2:
            visits = service.due()
            for visit in visits:
                assert visit["host"] == "h.org"
                assert visit["content"] == (None if visit["source"] not in seen else "tag")
                seen[visit["source"]] += 1
            reports = [{"source": visit["source"], "content": "tag"} for visit in visits]
            assert service.report(*reports).json() == {"count": len(reports)}
        again = {"source": "a", "time": "2026-01-02T03:04:05+01:00", "changed": True, "changes": 2}
        # An old report is sorted in, and told again changes nothing.
        assert [service.report(again).json()["count"] for _ in range(2)] == [1, 0]
        refused(service.report({**again, "changed": False, "changes": None}), 422, "is recorded as changed")
        status = service.client.get("/status").json()
        assert (status["sources"], status["observations"]) == (3, seen.total() + 1)
        assert 0.0 <= status["relative_gap"] <= 0.01
        (visit,) = service.due(limit=1)
        assert service.client.post("/released", json=[visit["source"]]).json() == {"count": 1}
        assert service.client.post("/removed", json=["b"]).json() == {"count": 1}
        refused(service.client.post("/removed", json=["c", "b"]), 422, "there is no source 'b'")
        assert service.client.get("/status").json()["sources"] == 2
        page = service.client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert all(path in page.text for path in OPERATIONS[:7])
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(20) == -signal.SIGTERM
        assert present(service.process.stderr).read() == ""
    with fo.Planner(tmp_path / "state") as planner:
        assert len(planner.log()) == seen.total() + 1
        assert planner.to_frame()["importance"].to_list() == [2.0, 2.0]


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Bearer x{TOKEN}",
        TOKEN,
        f"Token {TOKEN}",
        "Basic " + b64encode(b"user:wrong").decode(),
        "Basic ####",
        "Bearer \xe9",
    ],
)
def test_no_one_is_in_without_the_token(service: Served, header: str | None) -> None:
    headers = [] if header is None else [(b"Authorization", header.encode("latin-1"))]
    with httpx.Client(base_url=service.client.base_url, trust_env=False) as client:
        for path in OPERATIONS if header is None else ("/due", "/sources", "/metrics"):
            for method in ("GET", "PUT") if header else ("GET", "POST", "PUT", "HEAD", "OPTIONS"):
                answer = client.request(method, path, headers=headers, json=[{"source": "intruder"}])
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer, Basic"
                if method != "HEAD":
                    refused(answer, 401, "The token is missing or wrong")
    names = service.client.get("/metrics").text
    assert "intruder" not in names
    refused(service.client.post("/removed", json=["intruder"]), 422, "there is no source")


def test_a_browser_has_the_token_as_its_password(service: Served) -> None:
    with httpx.Client(base_url=service.client.base_url, trust_env=False, auth=("anyone", TOKEN)) as client:
        assert client.get("/").status_code == 200
        # A page of another site, whose browser knows the password.
        for headers in ({"Origin": "http://evil.org"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            refused(client.get("/due", headers=headers), 403, "Pages of other sites may not call")
        own = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
        assert client.get("/status", headers=own).status_code == 200


def test_a_service_without_a_token_is_for_this_machine(tmp_path: Path) -> None:
    with served(tmp_path, *QUICK, token=None) as service:
        port = service.client.base_url.port
        for host in ("evil.org", f"evil.org:{port}", "127.0.0.1.evil.org", "10.0.0.1", "[::1", ""):
            refused(service.client.get("/due", headers={"Host": host}), 403, "the loopback only")
        for host in ("localhost", f"localhost:{port}", "[::1]:80", "127.0.0.1"):
            assert service.client.get("/due", headers={"Host": host}).status_code == 200
        # A form of a page cannot say that it is JSON.
        form = service.client.post("/removed", content=b'["a"]', headers={"Content-Type": "text/plain"})
        refused(form, 415, "Send Content-Type: application/json")


NOW = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("", 400, "The body cannot be used"),
        ("[", 400, "truncated"),
        ("{}", 400, "Expected `array`"),
        ("[" * 100_000, 400, "The body cannot be used"),
        ('[{"source": "a"}]', 400, "missing required field `time`"),
        (f'[{{"source": "a", "time": "{NOW[:-1]}", "changed": true}}]', 400, "timezone"),
        ('[{"source": "a", "time": 5, "changed": true}]', 400, "Expected `datetime`"),
        (f'[{{"source": "a", "time": "{NOW}", "changed": 1}}]', 400, "Expected `bool | null`"),
        (f'[{{"source": "a", "time": "{NOW}", "changed": true, "more": 1}}]', 400, "unknown field `more`"),
        (f'[{{"source": "", "time": "{NOW}", "changed": true}}]', 400, "length >= 1"),
        (f'[{{"source": "\\ud800", "time": "{NOW}", "changed": true}}]', 400, "The body cannot be used"),
        (f'[{{"source": "a\\u0000", "time": "{NOW}", "changed": true}}]', 422, "without the character 0"),
        (f'[{{"source": "{"a" * 8001}", "time": "{NOW}", "changed": true}}]', 400, "length <= 8000"),
        (f'[{{"source": "gone", "time": "{NOW}", "changed": true}}]', 422, "there is no source 'gone'"),
        (f'[{{"source": "a", "time": "{NOW}"}}]', 422, "changed of 'a' is None"),
        (f'[{{"source": "a", "time": "{NOW}", "changed": true, "content": "x"}}]', 422, "are both given"),
        (f'[{{"source": "a", "time": "{NOW}", "changed": true, "failed": true}}]', 422, "Leave one out"),
        ('[{"source": "a", "time": "2999-01-01T00:00:00Z", "changed": true}]', 422, "ahead of now"),
        (f"[{', '.join(['{}'] * 1001)}]", 400, "missing required field"),
        (
            f'[{{"source": "a", "time": "{NOW}", "content": "{"x" * 2**21}"}}]',
            413,
            "more than 2097152 octets",
        ),
    ],
)
def test_bad_reports_are_refused_in_one_line_and_record_nothing(
    service: Served, body: str, status: int, words: str
) -> None:
    service.put("a", "good")
    good = f'[{{"source": "good", "time": "{NOW}", "changed": true}}, '
    whole = good + body[1:] if body.startswith("[{") and body.endswith("}]") else body
    before = service.client.get("/status").json()["observations"]
    kind = {"Content-Type": "application/json; charset=utf-8"}
    for content in (whole.encode("utf-8"), iter([whole[:9].encode(), whole[9:].encode("utf-8")])):
        refused(service.client.post("/observed", content=content, headers=kind), status, words)
    assert service.client.get("/status").json()["observations"] == before


@pytest.mark.parametrize(
    ("row", "status", "words"),
    [
        ({"source": "a", "importance": -1}, 400, ">= 0"),
        ({"source": "a", "importance": 1e308}, 422, "importance of 'a' is 1e+308"),
        ({"source": "a", "refresh_cost": 0}, 400, "> 0"),
        ({"source": "a", "min_rate": 2.0, "max_rate": 1.0}, 422, "min_rate exceeds max_rate for 'a'"),
        ({"source": "a", "min_rate": 1e12}, 422, "bandwidth is 8.64e+09"),
        ({"source": "a", "host": 5}, 400, "Expected `str | null`"),
        ({"name": "a"}, 400, "unknown field `name`"),
    ],
)
def test_bad_sources_are_refused(service: Served, row: dict[str, Any], status: int, words: str) -> None:
    refused(service.client.put("/sources", json=[{"source": "other"}, row]), status, words)
    refused(service.client.put("/sources", json=[{"source": "b"}, {"source": "b"}]), 422, "named twice")
    refused(service.client.post("/removed", json=["other"]), 422, "there is no source 'other'")


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "1.5", "", "٣", "9" * 400, "5&limit=6"])
def test_limits_are_whole_numbers(service: Served, limit: str) -> None:
    refused(service.client.get(f"/due?limit={limit}"), 400, "Pass one whole number from 1 to 1000")


def test_what_is_not_there_is_said(service: Served) -> None:
    refused(service.client.get("/nothing"), 404, "See /openapi.json")
    refused(service.client.get("/due?now=2026-01-01"), 400, "/due takes no parameter 'now'")
    refused(service.client.get("/status?limit=5"), 400, "takes no parameter 'limit'")
    assert service.client.head("/due").status_code == 405  # it would be handed sources, and see none
    answer = service.client.post("/due")
    refused(answer, 405, "another method")
    assert answer.headers["allow"] == "GET"


def test_a_body_that_does_not_arrive_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "PATIENCE", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield b"["
        await asyncio.sleep(60.0)

    async def called() -> httpx.Response:
        served_here = app.application(str(tmp_path), None, "1/day")
        transport = httpx.ASGITransport(served_here)
        async with (
            served_here.router.lifespan_context(served_here),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            kind = {"Content-Type": "application/json"}
            return await client.post("/observed", content=slow(), headers=kind)

    refused(asyncio.run(called()), 408, "The body did not arrive in 0.05 s")


def test_hostile_names_come_back_as_they_went(service: Served) -> None:
    service.put(*HOSTILE, host="<b>'")
    handed: dict[str, Any] = {}
    while not set(HOSTILE) <= set(handed):
        handed |= {visit["source"]: visit for visit in service.due()}
    reports = [{"source": name, "content": name} for name in HOSTILE]
    assert service.report(*reports).json() == {"count": len(HOSTILE)}
    handed.clear()
    while not set(HOSTILE) <= set(handed):
        handed |= {visit["source"]: visit for visit in service.due()}
    assert all((handed[name]["content"], handed[name]["host"]) == (name, "<b>'") for name in HOSTILE)
    text = service.client.get("/metrics").text
    assert not any(name in text for name in HOSTILE[:6])


def test_metrics_are_those_of_the_status(service: Served) -> None:
    service.put("measured")
    service.report({"source": "measured", "failed": True}).raise_for_status()
    # A test before this one may have asked for metrics, whose state is then some seconds old.
    told, end = {"freshopt_sources": 0.0}, time.monotonic() + 30.0
    while told["freshopt_sources"] < 1.0 and time.monotonic() < end:
        answer = service.client.get("/metrics")
        lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
        told = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
    assert answer.headers["content-type"].startswith("text/plain")
    assert told["freshopt_bandwidth"] == service.client.get("/status").json()["bandwidth"]
    assert told['freshopt_reports_total{outcome="failed"}'] >= 1.0
    assert told["freshopt_sources"] >= 1.0
    assert told['freshopt_requests_total{method="POST",path="/observed",status="200"}'] >= 1.0
    # Paths and methods of strangers are one label.
    service.client.request("BREW", "/coffee")
    text = service.client.get("/metrics").text
    assert "coffee" not in text
    assert "BREW" not in text


def test_openapi_has_every_operation_and_answer(service: Served) -> None:
    told = service.client.get("/openapi.json").json()
    assert sorted(told["paths"]) == sorted(OPERATIONS[:8])
    schema = told["components"]["schemas"]
    assert set(service.client.get("/status").json()) == set(schema["PlannerStatus"]["properties"])
    service.put("told")
    visits: list[dict[str, Any]] = []
    while not visits:
        visits = service.due(limit=1)
    (visit,) = visits
    assert set(visit) == set(schema["VisitMessage"]["properties"])
    # Whatever is referred to is there.
    named = [part.split('"')[0] for part in json.dumps(told).split('"#/components/schemas/')[1:]]
    assert set(named) == set(schema)


def test_answers_and_robots_slow_their_hosts(tmp_path: Path) -> None:
    robots = "User-agent: *\nCrawl-delay: 3600\n"
    with served(tmp_path, *QUICK) as service:
        service.put("a1", "a2", host="a.org")
        service.put("b1", "b2", host="b.org")
        service.put("c1", "c2", host="c.org")
        rows = [{"host": "b.org", "robots": robots, "agent": "mine"}, {"host": "c.org", "crawl_delay": 0.001}]
        assert service.client.put("/hosts", json=rows).json() == {"count": 2}
        service.due(limit=1)
        told = {"source": "a1", "status": 429, "retry_after": "3600", "latency": 0.2, "max_age": 60}
        assert service.report(told).json() == {"count": 1}
        assert service.report({"source": "c1", "status": 304}).json() == {"count": 1}
        refused(service.report({"source": "c1", "status": 99}), 400, ">= 100")
        refused(service.report({"source": "c1", "status": 200}), 422, "changed of 'c1' is None")
        handed = [visit["source"] for _ in range(30) for visit in service.due()]
        # Of the busy host nothing for an hour; of the one with a delay of an hour one at most.
        assert not {"a1", "a2"} & set(handed)
        assert sum(name[0] == "b" for name in handed) <= 1
        assert {"c1", "c2"} <= set(handed)
        text = service.client.get("/metrics").text
        assert 'freshopt_reports_total{outcome="failed"} 1.0' in text
    with fo.Planner(tmp_path) as planner:
        planner.replan()
        assert planner.status().slowed == 3
        hosts = planner.solution().problem.hosts
        assert dict(zip(hosts.names, hosts.limits, strict=True))["b.org"] == pytest.approx(24.0 / 1.25)


def test_two_clients_at_once_are_handed_nothing_twice(tmp_path: Path) -> None:
    with served(tmp_path, *QUICK) as service:
        # Each is due once: the second time is a year later.
        service.put(*(f"s{k}" for k in range(120)), max_rate=1.0 / 365.0)

        def crawl(seed: int) -> list[tuple[str, str, bool]]:
            own: list[tuple[str, str, bool]] = []
            rng = random.Random(seed)
            with httpx.Client(base_url=service.client.base_url, headers=service.client.headers) as client:
                while len(handed) < 120:
                    for visit in client.get("/due?limit=5").json()["visits"]:
                        handed.append(visit["source"])
                        now, found = datetime.now(UTC).isoformat(), rng.random() < 0.5
                        report = {"source": visit["source"], "time": now, "changed": found}
                        assert client.post("/observed", json=[report]).json() == {"count": 1}
                        own.append((visit["source"], now, found))
            return own

        handed: list[str] = []
        with ThreadPoolExecutor(4) as pool:
            acknowledged = [each for own in pool.map(crawl, range(4)) for each in own]
    assert sorted(handed) == sorted(f"s{k}" for k in range(120))
    inside = recorded(tmp_path)
    assert inside == {(name, now): int(found) for name, now, found in acknowledged}


@pytest.mark.parametrize(
    ("rounds", "seed"), [(2, 1), *(pytest.param(8, seed, marks=exhaustive) for seed in (2, 3))]
)
def test_a_service_that_is_killed_loses_and_doubles_nothing(tmp_path: Path, rounds: int, seed: int) -> None:
    """End a service by SIGKILL while clients report; check what is recorded after each."""
    rng = random.Random(seed)
    acknowledged: dict[tuple[str, str], int] = {}
    unsaid: list[dict[str, Any]] = []
    for _ in range(rounds):
        with served(tmp_path, *QUICK) as service:
            service.put(*NAMES)
            # What was not acknowledged is reported again: recorded once, whether it had been or not.
            for report in unsaid:
                assert service.report(report).json()["count"] in (0, 1)
                acknowledged[report["source"], report["time"]] = report["changed"]
            unsaid.clear()

            def crawl(first: int, service: Served = service, unsaid: list[dict[str, Any]] = unsaid) -> None:
                with httpx.Client(base_url=service.client.base_url, headers=service.client.headers) as client:
                    for k in range(100_000):
                        now = datetime.now(UTC).isoformat(timespec="microseconds")
                        report: dict[str, Any] = {
                            "source": NAMES[first + k % 30],
                            "time": now,
                            "changed": k % 3 == 0,
                        }
                        try:
                            client.get("/due?limit=2").raise_for_status()
                            unsaid.append(report)
                            client.post("/observed", json=[report]).raise_for_status()
                        except httpx.TransportError:
                            return
                        unsaid.remove(report)
                        acknowledged[report["source"], now] = report["changed"]

            with ThreadPoolExecutor(2) as pool:
                clients = [pool.submit(crawl, first) for first in (0, 30)]
                many = len(acknowledged) + rng.randrange(1, 60)
                while len(acknowledged) < many:
                    time.sleep(0.001)
                service.process.send_signal(signal.SIGKILL)
                for each in clients:
                    each.result()
        inside = recorded(tmp_path)
        assert acknowledged.items() <= inside.items()
        told = {(each["source"], each["time"]): each["changed"] for each in unsaid}
        assert inside.items() - acknowledged.items() <= told.items()
    assert len(acknowledged) > rounds


def test_refusals_to_begin_are_one_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRESHOPT_TOKEN", raising=False)
    Path("short").write_text("secret\n")
    with fo.Planner("numbers", bandwidth=1.0) as planner:
        planner.add("a")
        planner.due(0.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, said in (
            (["new"], 'Pass bandwidth=, such as "200/day"'),
            (["numbers"], "has numbers for times"),
            (["numbers", "--bandwidth", "9/day"], "has numbers for times"),
            (["new", "--bandwidth", "0/day"], "--bandwidth is 0"),
            (
                ["new", "--bandwidth", "1/day", "--listen", "0.0.0.0:0"],
                "is open to others, and there is no token",
            ),
            (["new", "--bandwidth", "1/day", "--listen", "8765"], "Pass a host and a port"),
            (["new", "--bandwidth", "1/day", "--listen", "127.0.0.1:99999"], "Pass a host and a port"),
            (["new", "--bandwidth", "1/day", "--listen", f"127.0.0.1:{port}"], "nothing can listen at"),
            (["new", "--bandwidth", "1/day", "--token-file", "short"], "the token is no 16 or more"),
            (["new", "--bandwidth", "1/day", "--token-file", "none"], "'none' does not exist"),
        ):
            refuse(
                here, ["serve", *words, *([] if "--listen" in words else ["--listen", "127.0.0.1:0"])], [said]
            )
    assert not Path("new").exists()


def test_the_extra_is_named_where_it_is_missing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("freshopt.live.service")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    said = CliRunner().invoke(main, ["serve", "state", "--bandwidth", "1/day"])
    assert (said.exit_code, said.output.count("\n")) == (2, 1)
    assert 'needs uvicorn. Install it: pip install "freshopt[serve]"' in said.output
    assert list(here.iterdir()) == []


def test_signals_are_recorded_once_all_or_none(tmp_path: Path) -> None:
    with served(tmp_path, *QUICK, "--objective", "binary") as service:
        service.put("a", "b")
        now = datetime.now(UTC).replace(microsecond=0).isoformat()
        rows = [{"source": "a", "time": now, "kind": "feed"}, {"source": "b", "time": now}]
        unknown = [{"source": "a", "time": now}, {"source": "nobody"}]
        refused(service.client.post("/signal", json=unknown), 422, "no source 'nobody'")
        assert service.client.post("/signal", json=rows).json() == {"count": 2}
        assert service.client.post("/signal", json=rows).json() == {"count": 0}
        refused(service.client.post("/signal", json=[{"source": "a", "kind": ""}]), 400, "kind")
    with sqlite3.connect(tmp_path / "planner.sqlite") as database:
        told = database.execute("SELECT name, kind FROM signal JOIN source ON id = source ORDER BY name")
        assert told.fetchall() == [("a", "feed"), ("b", "signal")]
