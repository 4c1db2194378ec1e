"""The OpenAPI document and page, from the table of operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from typing import Any

import msgspec

from freshopt.live.service.messages import MOST_OCTETS, ErrorMessage

_REF = "#/components/schemas/{name}"
# What every operation may answer besides, and those that read a body.
REFUSALS = {
    400: "No call that this operation takes",
    401: "No token, or a wrong one",
    403: "A page of another site, or another name than the loopback's",
    422: "Refused by the planner; nothing was recorded",
    503: "The database is locked or cannot be written; nothing was recorded",
}
OF_BODIES = {
    408: "The body did not arrive in time",
    413: f"More than {MOST_OCTETS} octets",
    415: "The body is not declared as JSON",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """Operation of the service: how it is called, and what it does.

    `work` takes the service and what `body` or `limit` declares.
    """

    method: str
    path: str
    text: str
    work: Callable[..., Any]
    answer: Any
    body: Any = None
    limit: int = 0

    @property
    def word(self) -> str:
        """Name for clients that are generated."""
        return self.work.__name__


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    kinds = [each.answer for each in operations] + [each.body for each in operations if each.body is not None]
    schemas, components = msgspec.json.schema_components([*kinds, ErrorMessage], ref_template=_REF)
    for schema in components["PlannerStatus"]["properties"].values():
        if schema.get("type") == "number":  # NaN, where nothing is known, is null
            schema["type"] = ["number", "null"]
    answers, bodies = schemas[: len(operations)], iter(schemas[len(operations) :])
    paths: dict[str, Any] = {}
    for each, schema in zip(operations, answers, strict=True):
        refusals = REFUSALS | (OF_BODIES if each.body is not None else {})
        told: dict[str, Any] = {
            "operationId": each.word,
            "summary": each.text,
            "responses": {
                "200": {"description": each.text, "content": _json(schema)},
                **{
                    str(code): {"description": why, "content": _json(schemas[-1])}
                    for code, why in refusals.items()
                },
            },
        }
        if each.limit:
            most = {"type": "integer", "minimum": 1, "maximum": each.limit}
            told["parameters"] = [
                {"name": "limit", "in": "query", "schema": most, "description": "Most sources."}
            ]
        if each.body is not None:
            told["requestBody"] = {"required": True, "content": _json(next(bodies))}
        paths[each.path] = {each.method.lower(): told}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "freshopt",
            "version": version("freshopt"),
            "description": "A live planner of crawls.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def page(operations: Sequence[Operation]) -> str:
    """Return the operations as a page that needs no network."""
    rows = "".join(
        f"<tr><td><code>{each.method} {escape(each.path)}</code><td>{escape(each.text)}"
        f"<td><code>{escape(_called(each))}</code>"
        for each in operations
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>freshopt</title>'
        "<style>body{font:16px sans-serif;margin:2em}td{padding:.3em 1em .3em 0;vertical-align:top}</style>"
        '<h1>freshopt</h1><p>A live planner. For programs: <a href="openapi.json">openapi.json</a>, '
        f'<a href="metrics">metrics</a>.<table>{rows}</table></html>'
    )


def _called(operation: Operation) -> str:
    """Return how curl calls an operation."""
    body = "" if operation.body is None else " -H 'Content-Type: application/json' -d @body.json"
    method = "" if operation.method == "GET" else f" -X {operation.method}"
    return f'curl{method} -H "Authorization: Bearer $TOKEN"{body} $SERVICE{operation.path}'


def _json(schema: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"application/json": {"schema": schema}}
