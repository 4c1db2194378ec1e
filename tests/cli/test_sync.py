"""`freshopt sync` against servers that answer nonsense, hang, drip, or fail half-way."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from freshopt.tools.changedetection_api import ChangeDetectionApi
from tests.ground_truth.command_lines import Run
from tests.ground_truth.http_servers import Answering, serving

# Watches with an interval of an hour; the first has changed at each of ten checks, the second once.
CHECKED = 1_700_000_000
HISTORIES = {
    "u1": [CHECKED - 3600 * k for k in range(10)],
    "u2": [CHECKED - 36_000, CHECKED - 3600],
    "u3": [CHECKED - 36_000],
}


class Fake(Answering, BaseHTTPRequestHandler):
    """The interface of changedetection.io for three watches; its server fails after some intervals."""

    server: FakeServer

    def do_GET(self) -> None:
        path = self.path.removeprefix("/below/api/v1/watch").strip("/")
        uuid, _, rest = path.partition("/")
        if self.server.nonsense is not None:
            self._say(200, self.server.nonsense)
        elif self.path == "/below/api/v1/tags":
            tags = {
                "t1": {"title": "News", "uuid": "t1", "notification_muted": False},
                "t2": {"title": "Slow"},
            }
            self._say(200, json.dumps(tags))
        elif self.headers["x-api-key"] != "key":
            self._say(403, '"Invalid access"')
        elif not uuid:
            self._say(200, json.dumps({key: {} for key in HISTORIES}))
        elif rest:
            self._say(200, json.dumps({str(time): "file" for time in HISTORIES[uuid]}))
        else:
            watch = {"url": f"http://a.org/{uuid}", "last_checked": CHECKED, "paused": False}
            own = {"time_between_check_use_default": False, "time_between_check": self.server.intervals[uuid]}
            self._say(200, json.dumps(watch | own | self.server.told.get(uuid, {})))

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.fails_after == 0:
            self._say(500, "disk full\n<b>")
            return
        self.server.fails_after -= 1
        self.server.intervals[self.path.rpartition("/")[2]] = body["time_between_check"]
        self._say(200, '"OK"')

    def _say(self, status: int, text: str) -> None:
        self.answer(status, text.encode())


class FakeServer(ThreadingHTTPServer):
    nonsense: str | None = None
    fails_after = -1

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Fake)
        self.told: dict[str, dict[str, Any]] = {}
        self.intervals: dict[str, dict[str, int | None]] = {
            key: {"hours": 1, "days": None} for key in HISTORIES
        }

    @property
    def arguments(self) -> list[str]:
        return ["sync", "changedetection", "--url", f"http://127.0.0.1:{self.server_address[1]}/below/"]

    def seconds(self) -> dict[str, int]:
        units = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
        return {
            key: sum(units[unit] * (many or 0) for unit, many in own.items())
            for key, own in self.intervals.items()
        }


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as made:
        yield made


def test_intervals_are_set_below_a_path(run: Run, server: FakeServer) -> None:
    said = run(*server.arguments, "--key", "key", "--dry-run").output
    assert server.seconds() == dict.fromkeys(HISTORIES, 3600)
    lines = said.splitlines()
    assert lines[0].split() == ["watch", "changes", "per", "day", "now", "every", "planned"]
    assert [line.split()[0][-2:] for line in lines[1:4]] == ["u1", "u2", "u3"]
    assert "3 intervals would be set; nothing was changed" in said
    assert "3 intervals set" in run(*server.arguments, "--key", "key").output
    seconds = server.seconds()
    assert seconds["u1"] < seconds["u2"] < seconds["u3"]
    assert 0.99 < sum(3600 / each for each in seconds.values()) / 3.0 <= 1.0


def test_a_failure_half_way_says_what_was_set(run: Run, server: FakeServer) -> None:
    server.fails_after = 1
    said = run(*server.arguments, "--key", "key", code=2).output
    assert "with 500 (disk full <b>)" in said
    assert (
        "Of 3 intervals 1 were set before (the latest: http://a.org/u1), that of http://a.org/u2 perhaps"
        in said
    )
    assert said.count("\n") == 1
    seconds = server.seconds()
    assert seconds["u1"] != 3600
    assert seconds["u2"] == seconds["u3"] == 3600
    # The command again sets the rest; what it sets does not depend on what was set before but for the total.
    server.fails_after = -1
    run(*server.arguments, "--key", "key", "--bandwidth", "72/day")
    assert 0.99 < sum(3600 / each for each in server.seconds().values()) / 3.0 <= 1.0


@pytest.mark.parametrize(
    "text",
    ["", "<html>", "[1]", "7", '{"u": 1}', "[" * 100_000, '{"url": 7}', '{"url": "a", "last_checked": "x"}'],
)
def test_nonsense_is_one_line(run: Run, server: FakeServer, text: str) -> None:
    server.nonsense = text
    said = run(*server.arguments, "--key", "key", code=2).output
    assert "no answer of changedetection.io. Check the address" in said
    assert said.count("\n") == 1


def test_wrong_keys_and_addresses(run: Run, server: FakeServer) -> None:
    assert "refuses the key" in run(*server.arguments, "--key", "yek", code=2).output
    for url, words in (
        ("http://[::1", "is no address"),
        ("http://a:99999", "is no address"),
        ("localhost:5000", "is no address"),
        ("http://nowhere.invalid", "cannot be reached"),
    ):
        said = run("sync", "changedetection", "--url", url, "--key", "key", code=2).output
        assert words in said
        assert said.count("\n") == 1
    for options, words in (
        (["--min-interval", "2d", "--max-interval", "1d"], "are not in this order"),
        (["--bandwidth", "0.001/day"], "which take 0.1. Raise --bandwidth or --max-interval"),
        (["--bandwidth", "often"], "--bandwidth"),
    ):
        assert words in run(*server.arguments, "--key", "key", *options, code=2).output
    assert server.seconds() == dict.fromkeys(HISTORIES, 3600)


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n{"])
def test_a_server_that_hangs_or_drips_ends_in_time(run: Run, beginning: bytes) -> None:
    ended = threading.Event()

    def drip(listening: socket.socket) -> None:
        with listening.accept()[0] as held:
            try:
                held.sendall(beginning)
                while not ended.wait(0.05):
                    held.sendall(b" " if beginning else b"")
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        # Were it not ended by its time limit, it would be by this, and say something else.
        stop = threading.Timer(20.0, ended.set)
        stop.start()
        said = run("sync", "changedetection", "--url", url, "--key", "k", "--timeout", "0.5", code=2).output
        stop.cancel()
        ended.set()
        thread.join()
    assert "has not answered GET api/v1/watch within 0.5 s" in said
    assert said.count("\n") == 1


def test_an_interrupt_says_what_was_set(
    run: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_interval = ChangeDetectionApi.set_interval

    def interrupted(api: ChangeDetectionApi, key: str, seconds: int) -> None:
        if key == "u3":
            raise KeyboardInterrupt
        set_interval(api, key, seconds)

    monkeypatch.setattr(ChangeDetectionApi, "set_interval", interrupted)
    said = run(*server.arguments, "--key", "key", code=2).output
    assert "Error: interrupted. Of 3 intervals 2 were set before (the latest: http://a.org/u1, " in said
    assert server.seconds()["u3"] == 3600
