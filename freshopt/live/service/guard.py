"""Who may call: those with the token, or on this machine alone.

A service without a token listens on the loopback. Web pages that a browser of this machine shows could call
it there: names that are not the loopback's (a page whose name was made to point here) and calls from pages of
other origins are refused.
"""

from __future__ import annotations

import hmac
import ipaddress
from base64 import b64decode
from binascii import Error
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from freshopt.errors import SourceDataError
from freshopt.live.service.messages import ErrorMessage

# Of refusals that have a header of their own.
HEADERS = {401: {"WWW-Authenticate": "Bearer, Basic"}, 503: {"Retry-After": "1"}}


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:  # noqa: ANN401
    """Return a value as JSON that no cache keeps; NaN is null."""
    told = {"Cache-Control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(value), status, told, "application/json")


def refusal(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a refusal."""
    return answer(
        ErrorMessage(" ".join(reason.split())), status, HEADERS.get(status, {}) | dict(headers or {})
    )


# Characters of a token: 16 of base64 are 96 bits.
SHORTEST = 16


@dataclass(frozen=True, slots=True)
class Guard:
    """Middleware that lets calls through, or answers them itself."""

    app: ASGIApp
    token: str | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 or 403, or hand the call on."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            refused = self._refused(headers)
            if refused is not None:
                await refusal(*refused)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refused(self, headers: Headers) -> tuple[int, str] | None:
        """Return status and reason if a call is refused."""
        host = headers.get("host", "")
        if self.token is None and not is_loopback(_name_of(host)):
            return 403, "This service answers to the names of the loopback only. Start it with a token."
        origin = headers.get("origin")
        foreign = origin is not None and origin.partition("://")[2] != host
        if foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "Pages of other sites may not call. Call from a program."
        if self.token is not None and not hmac.compare_digest(_told(headers), self.token.encode()):
            return 401, "The token is missing or wrong. Send the header Authorization: Bearer TOKEN."
        return None


def check_token(token: str | None) -> str | None:
    """Return a token; raise unless it is long enough and plain."""
    if token is not None and (
        len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise SourceDataError(
            f"the token is no {SHORTEST} or more letters, digits and signs without spaces. Make one: python3 "
            '-c "import secrets; print(secrets.token_urlsafe())".'
        )
    return token


def is_loopback(name: str) -> bool:
    """Return whether a name or address is this machine's own."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _name_of(host: str) -> str:
    """Return the name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets that do not close
        return ""


def _told(headers: Headers) -> bytes:
    """Return the token of a call, which a browser sends as password."""
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            return b64decode(rest, validate=True).partition(b":")[2]
        except (Error, ValueError):
            return b""
    return rest.strip().encode() if scheme.lower() == "bearer" else b""
