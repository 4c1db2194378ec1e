"""Answers in JSON; every refusal is one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

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
