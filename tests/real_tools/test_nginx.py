"""Lifetimes in a real nginx with proxy_cache: the exported map is read, and serves as fresh as predicted."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote

import numpy as np

from freshopt.tools import Nginx, export
from tests.ground_truth.hostile_names import HOSTILE, hostile_names
from tests.ground_truth.http_servers import Answering, loopback
from tests.real_tools.played_requests import Play

SERVER = Path("/usr/sbin/nginx")
# Seconds that the server may take to start or stop.
LIMIT = 30.0
# As in the docstring of freshopt.tools.nginx, with all that nginx writes below one folder.
SETTINGS = """
{user}
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/lifetimes.conf;
    proxy_cache_path {folder}/cache keys_zone=fresh:10m inactive=1d;
    server {{
        listen unix:{folder}/origin.sock;
        location / {{
            proxy_pass http://127.0.0.1:{origin};
            add_header X-Accel-Expires $freshopt_lifetime always;
        }}
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://unix:{folder}/origin.sock;
            proxy_cache fresh;
            proxy_cache_key $request_uri;
            proxy_cache_valid 200 1d;
            add_header X-Lifetime $freshopt_lifetime;
        }}
    }}
}}
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def nginx(folder: Path, origin: int) -> Iterator[http.client.HTTPConnection]:
    """Run nginx with the map in lifetimes.conf; yield a connection to its cache."""
    assert SERVER.is_file(), f"{SERVER} is missing"
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(SETTINGS.format(user=user, folder=folder, origin=origin, port=port))
    command: list[str | Path] = [
        SERVER,
        "-p",
        str(folder),
        "-e",
        str(folder / "error.log"),
        "-c",
        str(folder / "nginx.conf"),
    ]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert checked.returncode == 0, checked.stderr
    with subprocess.Popen(command) as server:
        try:
            until = time.monotonic() + LIMIT
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=LIMIT).close()
                    break
                except ConnectionRefusedError:
                    assert time.monotonic() < until, "nginx did not start"
                    time.sleep(0.02)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
            yield connection
            connection.close()
        finally:
            server.terminate()
            server.wait(LIMIT)


@contextmanager
def origin(versions: dict[str, int] | None, play: Play | None) -> Iterator[int]:
    """Serve the versions of pages that change as a play tells; yield the port."""

    class Handler(Answering, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            k = 0 if versions is None else versions.get(self.path, 0)
            self.answer(200, str(0 if play is None else play.version(k)).encode())

    with loopback(Handler) as port:
        yield port


def get(connection: http.client.HTTPConnection, path: str) -> tuple[str, str | None]:
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.read().decode(), answer.getheader("X-Lifetime")


def test_requests_of_any_name_have_their_lifetime(tmp_path: Path) -> None:
    odd = {name.encode(errors="replace").decode() for name in (*HOSTILE, *hostile_names(60))}
    names = {f"/{quote(name, safe=marks)}" for name in odd for marks in ("", "\"'\\~;{}$:/?&=*,()|<>^`")}
    # nginx answers a request with a zero byte itself.
    lower: dict[str, str] = {name.lower(): name for name in names if len(name) < 2000 and "%00" not in name}
    lifetimes = {name: float(k) for k, name in enumerate(lower.values())}
    export(lifetimes, Nginx(), tmp_path / "lifetimes.conf", time_unit="second")
    with origin(None, None) as port, nginx(tmp_path, port) as connection:
        for name, life in lifetimes.items():
            assert get(connection, name)[1] == str(int(life)), name
        assert get(connection, "/unknown")[1] is None


def test_keywords_and_expressions_are_names(tmp_path: Path) -> None:
    # None of them can be requested, but a file with them is read.
    names = [
        "default",
        "hostnames",
        "volatile",
        "include",
        "~^/a",
        "~*",
        "\\~",
        "*.a",
        ".a",
        "$host",
        "a;b{c}",
        '"',
    ]
    lifetimes = dict.fromkeys(names, 7.0)
    export(lifetimes, Nginx(), tmp_path / "lifetimes.conf", time_unit="second")
    with origin(None, None) as port, nginx(tmp_path, port) as connection:
        assert get(connection, "/a")[1] is None


def test_served_as_fresh_as_predicted(tmp_path: Path) -> None:
    n = 120
    life = 1.0 + np.arange(n) % 3
    play = Play(life, np.tile([0.2, 0.5, 1.5, 4.0], n // 4), request_rate=1.5, length=13.0, skip=4.0, seed=7)
    names = [f"/page/{k}?q=%22{k}%22" for k in range(n)]
    export(
        dict(zip(names, life.tolist(), strict=True)), Nginx(), tmp_path / "lifetimes.conf", time_unit="second"
    )
    places = {name: k for k, name in enumerate(names)}
    # nginx's cache counts whole seconds of its clock: what is fetched within a second expires as it ends.
    with origin(places, play) as port, nginx(tmp_path, port) as connection:
        assert abs(play.z(lambda k: int(get(connection, names[k])[0]), rounding=1.0)) < 3.0
