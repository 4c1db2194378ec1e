"""`FreshoptAddon`: Scrapy crawls what a live planner hands out.

In the project's ``settings.py``::

    ADDONS = {"freshopt.live.scrapy.FreshoptAddon": 500}
    FRESHOPT_BANDWIDTH = "2000/day"

A spider's start URLs are the sources: those that the planner does not have are added, with their hosts. What
it hands out is requested in place of them, with the ETag of the crawl before as ``If-None-Match``. An answer
304, or one with the same ETag (without one: the same body), is recorded as no change, any other success as a
change. What fails, after Scrapy's own retries, is no evidence, and due again early, then ever later. A host
that answers that it is busy is asked less for a while, and not at all while it asks to rest. Start
requests that are no plain GET are left as they are. An answer 304 does not reach the spider.

A planner hands out no more than its bandwidth allows since it was made: a first crawl of many sources takes
as long as the bandwidth says.

Settings
--------
FRESHOPT_BANDWIDTH : refreshes per day, or with a unit; needed to begin a planner.
FRESHOPT_OBJECTIVE : a name such as "binary", or an objective of your own, ``Mine(2.0)``.
FRESHOPT_BURST : time of which the bandwidth may be used at once, "10min"; for a spider that is started every
day and ends, "1d".
FRESHOPT_PLANNER : the folder, or the address of a PostgreSQL database, of the planner; "freshopt-planner".
FRESHOPT_KEEP_GOING : True for a spider that waits for what is due next until it is stopped, instead of ending
when nothing more is due; False.

Needs Scrapy 2.13, as in ``freshopt[scrapy]``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from freshopt.live.hand_out import Visit
from freshopt.live.pace import Answered, rest_of
from freshopt.live.planner import Planner
from freshopt.live.reports import LONGEST

if TYPE_CHECKING:
    from scrapy import Request

# Where a request tells whose crawl it is. Retries and redirects keep it.
KEY = "freshopt_source"
# Closer to the spider than Scrapy's retries, redirects and decompression: it sees what the spider would.
_PLACE = 50
# Sources that are leased at a time, and the longest wait, in seconds, until the planner is asked again.
_TOGETHER, _PATIENCE = 32, 1.0


class FreshoptAddon:
    """Add-on for Scrapy's setting ``ADDONS``."""

    def update_settings(self, settings: Any) -> None:  # noqa: ANN401 - Scrapy's settings
        """Add the middleware that feeds the spider and records its answers."""
        for kind in ("SPIDER_MIDDLEWARES", "DOWNLOADER_MIDDLEWARES"):
            settings[kind][PlannerMiddleware] = _PLACE


class PlannerMiddleware:
    """Middleware of spiders and of downloads, one object each of them."""

    def __init__(self, crawler: Any) -> None:  # noqa: ANN401
        from scrapy import signals

        settings = crawler.settings
        place = settings.get("FRESHOPT_PLANNER", "freshopt-planner")
        self.planner = Planner(
            place,
            settings.get("FRESHOPT_BANDWIDTH"),
            objective=settings.get("FRESHOPT_OBJECTIVE"),
            burst=settings.get("FRESHOPT_BURST"),
        )
        self.keep_going = settings.getbool("FRESHOPT_KEEP_GOING")
        self.crawler = crawler
        self.closed = False
        self.leased: set[str] = set()
        self.resting: dict[str | None, float] = {}
        crawler.signals.connect(self.close, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Any) -> PlannerMiddleware:  # noqa: ANN401
        """Return the middleware of a crawler; it is made once."""
        found = getattr(crawler, "freshopt", None)
        if found is None:
            found = crawler.freshopt = cls(crawler)
        return found

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield what is due in place of the spider's start requests."""
        from scrapy import Request

        given: dict[str, Request] = {}
        async for each in start:
            plain = isinstance(each, Request) and each.method == "GET" and not each.body
            if plain:
                given[each.url] = each
            else:
                yield each
        new = [url for url in given if url not in self.planner]
        if new:
            self.planner.add_many(new)
        begin = datetime.now(UTC)
        while not self.closed:
            now = datetime.now(UTC) if self.keep_going else begin
            visits = self.planner.due(now, limit=_TOGETHER)
            self.leased |= {visit.source for visit in visits}
            for visit in visits:
                yield self._request(visit, given.get(visit.source))
            if not visits:
                if not self.keep_going:
                    return
                await self._wait()

    async def _wait(self) -> None:
        """Wait until something is due, or for a while."""
        from scrapy.utils.defer import maybe_deferred_to_future
        from twisted.internet import reactor
        from twisted.internet.task import deferLater

        due = self.planner.next_due()
        seconds = _PATIENCE
        if isinstance(due, datetime):
            seconds = min(max((due - datetime.now(UTC)).total_seconds(), 0.01), _PATIENCE)
        await maybe_deferred_to_future(deferLater(reactor, seconds))

    def _request(self, visit: Visit, given: Request | None) -> Request:
        """Return the request of a visit, conditional where an ETag is known."""
        from scrapy import Request

        request = Request(visit.source) if given is None else given
        headers = request.headers.copy()
        if visit.content is not None and visit.content.startswith(('"', 'W/"')):
            headers[b"If-None-Match"] = visit.content.encode("latin-1")
        meta = {**request.meta, KEY: visit.source}
        return request.replace(headers=headers, meta=meta, dont_filter=True)

    def process_request(self, request: Any, spider: Any = None) -> None:  # noqa: ANN401, ARG002
        """Hand back what waits for a host that rests."""
        from scrapy.exceptions import IgnoreRequest

        source = request.meta.get(KEY)
        if source in self.leased and self.resting.get(urlsplit(source).hostname, 0.0) > time.monotonic():
            self.leased.discard(source)
            self.planner.release(source)
            raise IgnoreRequest(f"the host of {source} rests")

    def process_response(self, request: Any, response: Any, spider: Any = None) -> Any:  # noqa: ANN401, ARG002
        """Record what an answer tells; one that says not modified is dropped."""
        from scrapy.exceptions import IgnoreRequest

        source = request.meta.get(KEY)
        if source is None or source not in self.leased:
            return response
        self.leased.discard(source)
        now, answered = datetime.now(UTC), _answered(request, response)
        rest = rest_of(source, answered.get("retry_after"))
        if rest > 0.0:
            self.resting[urlsplit(source).hostname] = time.monotonic() + rest
        if response.status == 304:
            self.planner.observed(source, now, changed=False, **answered)
            raise IgnoreRequest(f"{source} has not changed")
        if 200 <= response.status < 300:
            self.planner.observed(source, now, content=_content(response), **answered)
        else:
            self.planner.failed(source, now, **answered)
        return response

    def process_exception(self, request: Any, exception: Any, spider: Any = None) -> None:  # noqa: ANN401, ARG002
        """Put off a source whose request failed for good."""
        source = request.meta.get(KEY)
        if source in self.leased:
            self.leased.discard(source)
            self.planner.failed(source, datetime.now(UTC))

    def close(self, spider: Any) -> None:  # noqa: ANN401, ARG002 - as Scrapy calls it
        """Hand back what was not crawled, and close the planner."""
        self.closed = True
        if self.leased:
            self.planner.release(*self.leased)
        self.planner.close()


def _answered(request: Any, response: Any) -> Answered:  # noqa: ANN401 - Scrapy's
    """Return what an answer says of the load of its host."""
    told: Answered = {"status": response.status}
    if b"Retry-After" in response.headers:
        told["retry_after"] = response.headers[b"Retry-After"].decode("latin-1")
    if "download_latency" in request.meta:
        told["latency"] = request.meta["download_latency"]
    return told


def _content(response: Any) -> str:  # noqa: ANN401 - Scrapy's response
    """Return an answer's ETag, or a digest of its body."""
    tag = str((response.headers.get("ETag") or b"").decode("latin-1")).strip()
    if tag.startswith(('"', 'W/"')) and len(tag) <= LONGEST and tag.isprintable():
        return tag
    return hashlib.sha256(response.body).hexdigest()
