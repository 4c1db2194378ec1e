"""Prometheus metrics of a service; no label has a source's name."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from freshopt.live.planner import Planner
from freshopt.live.status import PlannerStatus

# A status is computed anew after so many seconds, and after so many times as it took: it passes over all
# sources, a second with a million of them.
FRESH, SHARE = 10.0, 20.0
# What is told of a plan: the attribute of its status, and what it is.
GAUGES = {
    "sources": "Sources that are planned for",
    "never_crawled": "Sources without any crawl",
    "due": "Sources that are due and not handed out",
    "leased": "Sources that are handed out",
    "slowed": "Hosts that are planned for with fewer crawls, at their request",
    "down": "Sources that have not answered for long",
    "observations": "Crawls recorded",
    "changes_found": "Crawls recorded that found a change",
    "bandwidth": "Bandwidth per time unit of the planner",
    "used": "Bandwidth that the rates in force use",
    "unused": "Share of the bandwidth lately that nobody asked for in time",
    "price": "Shadow price in force",
    "value": "Objective of the rates in force",
    "bound": "What no rates can exceed",
    "relative_gap": "Certified relative duality gap of the rates in force",
    "freshness": "Expected share of time that copies are fresh, by importance",
    "solves": "Full re-solves so far",
}


class Metrics:
    """What a service has done, and the state of its planner."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "freshopt_requests",
            "Calls by operation and status",
            ("method", "path", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "freshopt_request_seconds", "Time that calls took", ("path",), registry=self.registry
        )
        self.handed_out = Counter("freshopt_handed_out", "Sources handed out", registry=self.registry)
        self.reported = Counter(
            "freshopt_reports", "Reports by what became of the visit", ("outcome",), registry=self.registry
        )

    def watch(self, planner: Planner) -> None:
        """Tell the state of a planner, too."""
        self.registry.register(_PlannerCollector(planner))

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics as text, and its media type."""
        encode, kind = choose_encoder(accept)
        return encode(self.registry), kind


class _PlannerCollector:
    """State of a planner, computed anew when it is old."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._lock = Lock()
        self._status: PlannerStatus | None = None
        self._until = -math.inf

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics' names, for which nothing is computed."""
        for key, text in GAUGES.items():
            yield GaugeMetricFamily(f"freshopt_{key}", text)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges; those that are not known yet are NaN."""
        with self._lock:
            begin = time.monotonic()
            if self._status is None or begin >= self._until:
                self._status = self._planner.status()
                end = time.monotonic()
                self._until = end + max(FRESH, SHARE * (end - begin))
            status = self._status
        for key, text in GAUGES.items():
            value = getattr(status, key)
            yield GaugeMetricFamily(f"freshopt_{key}", text, math.nan if value is None else float(value))


@dataclass(frozen=True, slots=True)
class Measured:
    """Middleware that counts calls and their time, those refused too."""

    app: ASGIApp
    metrics: Metrics
    routes: Sequence[Route]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a call on, and count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 500
        methods = {route.path: route.methods or set() for route in self.routes}.get(scope["path"])
        path = "other" if methods is None else scope["path"]
        method = scope["method"] if methods and scope["method"] in methods else "other"

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            self.metrics.requests.labels(method, path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - begin)
