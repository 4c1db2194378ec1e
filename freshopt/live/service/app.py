"""The service as an ASGI application, thin over `Planner`.

What it does is one table of operations; what is acknowledged is committed. Calls wait in threads, so that a
plan that is being computed holds up neither reports nor metrics: due, reports and reading have a connection
each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Unpack

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.live.pace import crawl_delay_of
from freshopt.live.planner import Planner, filled_planner
from freshopt.live.service.guard import Guard, answer, check_token, refusal
from freshopt.live.service.messages import (
    MOST_OCTETS,
    MOST_ROWS,
    CountMessage,
    DueMessage,
    HostMessage,
    HostMessages,
    Names,
    ReportMessage,
    Reports,
    SignalMessage,
    Signals,
    SourceMessage,
    SourceMessages,
    VisitMessage,
    decoded,
    report_of,
)
from freshopt.live.service.metrics import Measured, Metrics
from freshopt.live.service.openapi import Operation, document, page
from freshopt.live.settings import PlannerWishes
from freshopt.live.source_rows import USUAL
from freshopt.live.status import PlannerStatus

# Of the router's own refusals.
_REASONS = {
    404: "There is nothing at this path. See /openapi.json for what there is.",
    405: "This path has another method. See /openapi.json.",
}
# Seconds in which a call's body is to arrive.
PATIENCE = 30.0
# Sources that a call is handed unless it says how many.
USUAL_LIMIT = 100
# Seconds of the longest delay between crawls; the planner's own limit is shorter.
_LONGEST = 1e6


@dataclass(frozen=True, slots=True)
class Service:
    """Planner that is served, by what is asked of it."""

    handing: Planner
    recording: Planner
    reading: Planner
    metrics: Metrics

    def due(self, limit: int) -> DueMessage:
        """Hand out what is due, or say when something will be."""
        now = datetime.now(UTC)
        visits = [VisitMessage(**visit._asdict()) for visit in self.handing.due(now, limit)]
        self.metrics.handed_out.inc(len(visits))
        following = None if visits else self.handing.next_due(now)
        return DueMessage(visits, following if isinstance(following, datetime) else None)

    def observed(self, reports: list[ReportMessage]) -> CountMessage:
        """Record what became of visits."""
        told = [report_of(each) for each in reports]
        new = self.recording.report(told)
        for report in told:
            self.metrics.reported.labels("failed" if report.read().failed else "found").inc()
        return CountMessage(new)

    def signal(self, rows: list[SignalMessage]) -> CountMessage:
        """Record that sources may have changed."""
        return CountMessage(self.recording.signal_many((row.source, row.time, row.kind) for row in rows))

    def sources(self, rows: list[SourceMessage]) -> CountMessage:
        """Add sources, or change those that are there."""
        if rows:
            columns = {key: [getattr(row, key) for row in rows] for key in USUAL}
            self.recording.add_many([row.source for row in rows], **columns)
        return CountMessage(len(rows))

    def hosts(self, rows: list[HostMessage]) -> CountMessage:
        """Keep crawls of hosts apart, as their robots.txt asks."""
        for row in rows:
            delay = row.crawl_delay if row.robots is None else crawl_delay_of(row.robots, row.agent)
            self.recording.crawl_delay(row.host, timedelta(seconds=min(delay, _LONGEST)))
        return CountMessage(len(rows))

    def removed(self, names: list[str]) -> CountMessage:
        """Take sources out of the plan."""
        self.recording.remove(*names)
        return CountMessage(len(names))

    def released(self, names: list[str]) -> CountMessage:
        """Hand back what was not crawled."""
        return CountMessage(self.recording.release(*names))

    def status(self) -> PlannerStatus:
        """Return the state of the planner, with the certificate in force."""
        return self.reading.status()


# Every operation that takes or gives JSON; the OpenAPI page is made of them.
OPERATIONS = (
    Operation("GET", "/due", "Hand out what to crawl next", Service.due, DueMessage, limit=MOST_ROWS),
    Operation("POST", "/observed", "Report what became of visits", Service.observed, CountMessage, Reports),
    Operation("POST", "/signal", "Tell signals of change", Service.signal, CountMessage, Signals),
    Operation("PUT", "/sources", "Add or change sources", Service.sources, CountMessage, SourceMessages),
    Operation(
        "PUT", "/hosts", "Keep crawls apart as robots.txt asks", Service.hosts, CountMessage, HostMessages
    ),
    Operation("POST", "/removed", "Take sources out of the plan", Service.removed, CountMessage, Names),
    Operation("POST", "/released", "Hand back what was not crawled", Service.released, CountMessage, Names),
    Operation("GET", "/status", "Tell how the plan stands", Service.status, PlannerStatus),
)


def application(
    place: str, token: str | None = None, bandwidth: str | None = None, **wishes: Unpack[PlannerWishes]
) -> Starlette:
    """Return the ASGI application of a planner of dates.

    - `place`: Folder of the planner, or address of its database.
    - `token`: What calls have to send. Without it, those to the loopback's names are answered.
    - `bandwidth`: Needed to begin a planner; see `Planner`, also for other settings.
    - raises SourceDataError if the token is short, or the planner cannot be opened or has numbers for times.
    """
    check_token(token)
    first = filled_planner(place, {"bandwidth": bandwidth, **wishes}, lambda own: _require_dates(own, place))
    try:
        # One of your own is not kept.
        goal = wishes.get("objective")
        service = Service(first, Planner(place, objective=goal), Planner(place, objective=goal), Metrics())
        service.metrics.watch(service.reading)
    except BaseException:
        first.close()
        raise

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        for planner in (service.handing, service.recording, service.reading):
            planner.close()

    told = document(OPERATIONS)
    fixed: dict[str, Callable[[], Response]] = {
        "/openapi.json": partial(answer, told),
        "/": partial(HTMLResponse, page(OPERATIONS)),
    }
    routes = [Route(each.path, partial(_call, each, service), methods=[each.method]) for each in OPERATIONS]
    routes += [Route(path, partial(_fixed, make)) for path, make in fixed.items()]
    routes.append(Route("/metrics", partial(_metrics, service)))
    for route in routes:
        # Not HEAD, which would be handed sources and not see them.
        route.methods = (route.methods or set()) - {"HEAD"}
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Measured, service.metrics, routes), Middleware(Guard, token)],
        exception_handlers={
            HTTPException: _refused,
            FreshoptError: _failed,
            ClientDisconnect: _failed,
            Exception: _failed,
        },
    )


def _require_dates(planner: Planner, place: str) -> None:
    """Raise if a planner has numbers for times."""
    try:
        planner.next_due()
    except SourceDataError:
        raise SourceDataError(
            f"the planner in '{place}' has numbers for times, and a service follows the clock. Serve one "
            "that was begun with dates."
        ) from None


async def _call(operation: Operation, service: Service, request: Request) -> Response:
    """Answer a call of the table."""
    arguments: list[Any] = []
    unknown = [key for key in request.query_params if key != "limit" or not operation.limit]
    if unknown:
        raise HTTPException(400, f"{operation.path} takes no parameter {unknown[0]!r}. Leave it out.")
    if operation.limit:
        arguments = [_limit(request.query_params.getlist("limit"), operation.limit)]
    if operation.body is not None:
        arguments = [await _body(request, operation.body)]
    return answer(await run_in_threadpool(operation.work, service, *arguments))


async def _fixed(make: Callable[[], Response], _: Request) -> Response:
    return make()


async def _metrics(service: Service, _: Request) -> Response:
    text, kind = await run_in_threadpool(service.metrics.exposition)
    return Response(text, media_type=kind)


async def _body(request: Request, kind: Any) -> Any:  # noqa: ANN401 - a type and its value
    """Return the body of a call, read within its limits."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "The body is not declared as JSON. Send Content-Type: application/json.")
    data = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                data += part
                if len(data) > MOST_OCTETS:
                    raise HTTPException(
                        413, f"The body has more than {MOST_OCTETS} octets. Send fewer rows a call."
                    )
    except TimeoutError:
        raise HTTPException(408, f"The body did not arrive in {PATIENCE:g} s. Send it again.") from None
    try:
        return decoded(bytes(data), kind)
    except ValueError as error:
        raise HTTPException(400, f"The body cannot be used: {error}. See /openapi.json.") from None


def _limit(given: list[str], most: int) -> int:
    text = given[-1] if given else str(USUAL_LIMIT)
    if len(given) > 1 or not (text.isascii() and text.isdigit() and len(text) < 9 and 0 < int(text) <= most):
        raise HTTPException(
            400, f"limit is {', '.join(given)!r:.40}. Pass one whole number from 1 to {most}."
        )
    return int(text)


async def _refused(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    reason = _REASONS.get(error.status_code, error.detail)
    return refusal(error.status_code, reason, error.headers)


async def _failed(_: Request, error: Exception) -> Response:
    """Answer 422 to bad data, 503 for what may pass, else 500."""
    if isinstance(error, ClientDisconnect):
        return refusal(400, "The call broke off. Send it again.")
    if isinstance(error, FreshoptError):
        # Data and problems are the caller's; a database that is locked or full is not.
        return refusal(422 if isinstance(error, ValueError) else 503, str(error))
    return refusal(500, "The service has a fault; its log has more. Nothing was acknowledged.")
