"""Lifetimes in a real Redis: keys of any name expire as exported, and are served as fresh as predicted."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from freshopt.tools import Redis, export
from tests.real_tools.played_requests import Play

SERVER, CLIENT = Path("/usr/bin/redis-server"), Path("/usr/bin/redis-cli")
# Seconds that the server may take to start or stop.
LIMIT = 30.0
ODD = (
    "it's",
    'say "hi"',
    "a b",
    "line\nbreak",
    "tab\t",
    "back\\slash",
    "\\x41",
    "ü日本",
    "{a}",
    "$(x)",
    "nul\0",
    "''",
)


class Connection:
    """A connection that speaks Redis' protocol."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def __call__(self, *words: str) -> bytes | int | None:
        octets = [word.encode() for word in words]
        parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in octets]
        self.socket.sendall(b"*%d\r\n" % len(octets) + b"".join(parts))
        kind, rest = (line := self.file.readline().rstrip(b"\r\n"))[:1], line[1:]
        assert kind != b"-", rest
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest
        return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]


def answers(path: Path) -> bool:
    """Whether a server listens there: its socket is in the folder before it does."""
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(path)) == 0


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Path]:
    assert SERVER.is_file(), f"{SERVER} is missing"
    path = tmp_path / "s"
    options = ["--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen([SERVER, *options], stdout=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + LIMIT
            while not answers(path):
                assert time.monotonic() < until, "redis-server did not start"
                time.sleep(0.02)
            yield path
        finally:
            server.terminate()
            server.wait(LIMIT)


def load(redis: Path, exported: Path) -> list[str]:
    """Return what redis-cli prints for a file of commands."""
    with exported.open("rb") as file:
        done = subprocess.run(
            [CLIENT, "-s", str(redis)], stdin=file, capture_output=True, text=True, timeout=LIMIT, check=True
        )
    return done.stdout.split()


def test_keys_of_any_name_expire_as_exported(redis: Path, tmp_path: Path) -> None:
    with closing(Connection(redis)) as ask:
        require_as_exported(ask, redis, tmp_path)


def require_as_exported(ask: Connection, redis: Path, tmp_path: Path) -> None:
    lifetimes = {name: 1000.0 + k for k, name in enumerate(ODD)} | {"never": np.inf, "soon": 0.0}
    for name in lifetimes:
        ask("SET", name, "1")
    done = export(lifetimes, Redis(), tmp_path / "expire.txt", time_unit="second")
    assert (done.sources, done.never) == (len(ODD) + 1, 1)
    assert load(redis, tmp_path / "expire.txt") == ["1"] * (len(ODD) + 1)
    for name in ODD:
        found = ask("TTL", name)
        assert isinstance(found, int)
        assert lifetimes[name] - LIMIT <= found <= lifetimes[name]
    assert ask("TTL", "never") == -1
    assert ask("PTTL", "soon") != -1  # it expires, if it has not yet: 0 would have deleted it at once


def test_served_as_fresh_as_predicted(redis: Path, tmp_path: Path) -> None:
    n = 120
    life = 1.0 + np.arange(n) % 3
    play = Play(life, np.tile([0.2, 0.5, 1.5, 4.0], n // 4), request_rate=2.0, length=12.0, skip=3.0, seed=5)
    names = [f'page:{k}:"{ODD[k % len(ODD)]}"' for k in range(n)]
    export(dict(zip(names, life.tolist(), strict=True)), Redis(), tmp_path / "expire.txt", time_unit="second")
    exported = [line.rpartition(" ")[2] for line in (tmp_path / "expire.txt").read_text().splitlines()]
    with closing(Connection(redis)) as connection:

        def ask(k: int) -> int:
            found = connection("GET", names[k])
            if isinstance(found, bytes):
                return int(found)
            version = play.version(k)
            connection("SET", names[k], str(version), "EX", exported[k])
            return version

        assert abs(play.z(ask, rounding=0.0)) < 3.0
