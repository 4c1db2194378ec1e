"""`serve`: the service under Uvicorn, until it is asked to end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Unpack

import uvicorn

from freshopt.errors import SourceDataError, shown
from freshopt.live.service.app import application
from freshopt.live.service.guard import check_token, is_loopback
from freshopt.live.settings import PlannerWishes

# Calls in work at a time; further ones are answered 503.
AT_ONCE = 128
# Seconds in which calls in work are finished when the service ends.
GRACE = 10


def serve(
    place: str,
    listen: str,
    token: str | None,
    on_ready: Callable[[str], None],
    bandwidth: str | None = None,
    **wishes: Unpack[PlannerWishes],
) -> None:
    """Serve a planner until the process is asked to end.

    - `listen`: "HOST:PORT"; a free port is taken for 0.
    - `on_ready`: Takes the address at which the service listens.
    """
    check_token(token)
    bound = _bound(listen, token)
    with bound:
        app = application(place, token, bandwidth, **wishes)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            limit_concurrency=AT_ONCE,
            timeout_graceful_shutdown=GRACE,
        )
        host, port = bound.getsockname()[:2]
        on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        uvicorn.Server(config).run(sockets=[bound])


def token_of(file: Path | None) -> str | None:
    """Return the token of a file, or that of FRESHOPT_TOKEN."""
    if file is None:
        return os.environ.get("FRESHOPT_TOKEN") or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise SourceDataError(f"{file} is no text. Write the token into it, in one line.") from None


def _bound(listen: str, token: str | None) -> socket.socket:
    """Return a socket that listens; beyond the loopback a token is needed."""
    name, _, port = listen.rpartition(":")
    name = name.removeprefix("[").removesuffix("]")
    if not (name and port.isascii() and port.isdigit() and int(port) < 2**16):
        raise SourceDataError(f"--listen is {shown(listen)}. Pass a host and a port, as 127.0.0.1:8765.")
    try:
        family, *_, address = socket.getaddrinfo(name, int(port), type=socket.SOCK_STREAM)[0]
        if token is None and not is_loopback(str(address[0])):
            raise SourceDataError(
                f"--listen {listen} is open to others, and there is no token. Pass --token-file, or set "
                "FRESHOPT_TOKEN; or listen on 127.0.0.1."
            )
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise SourceDataError(
            f"nothing can listen at {listen}: {error.strerror or error}. Pass another --listen."
        ) from None
