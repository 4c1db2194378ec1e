"""What clients send and get, as typed messages.

JSON that is none of them is refused in one line. The schemas of the OpenAPI page come from these classes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from freshopt.errors import shortened
from freshopt.live.pace import Answered
from freshopt.live.reports import Report

# Rows of one call: what is written in a tenth of a second.
MOST_ROWS = 1_000
# Octets of one call: a thousand rows with names of a thousand.
MOST_OCTETS = 2**21

# Longer ones are no URL that servers take.
Name = Annotated[str, Meta(min_length=1, max_length=8_000)]
Moment = Annotated[datetime, Meta(tz=True, description="Date with its offset, as 2026-01-31T06:00:00Z.")]
Weight = Annotated[float, Meta(ge=0.0)]
Rate = Annotated[float, Meta(ge=0.0, description="Refreshes per time unit of the planner.")]
Seconds = Annotated[float, Meta(ge=0.0, le=1e12)]
Names = Annotated[list[Name], Meta(max_length=MOST_ROWS)]
Message = TypeVar("Message")


class SourceMessage(Struct, forbid_unknown_fields=True):
    """Source to plan for; what is not given is as usual."""

    source: Name
    importance: Weight = 1.0
    refresh_cost: Annotated[float, Meta(gt=0.0)] = 1.0
    host: Name | None = None
    min_rate: Rate = 0.0
    max_rate: Rate | None = None


class ReportMessage(Struct, forbid_unknown_fields=True):
    """What became of one visit."""

    source: Name
    time: Annotated[Moment, Meta(description="When it was crawled. To report the same again is safe.")]
    changed: Annotated[bool | None, Meta(description="Whether it had changed since its last crawl.")] = None
    content: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1_000)] | None,
        Meta(description="In place of changed: an ETag or digest, which is kept and compared."),
    ] = None
    changes: Annotated[float, Meta(ge=0, le=2**53, multiple_of=1.0)] | None = None
    last_modified: Moment | None = None
    failed: Annotated[bool, Meta(description="Nothing was found: it is due again early, then later.")] = False
    status: Annotated[
        Annotated[float, Meta(ge=100.0, le=999.0, multiple_of=1.0)] | None,
        Meta(description="Of HTTP. 304 is no change; what is neither 2xx nor 3xx has failed."),
    ] = None
    retry_after: Annotated[
        Seconds | Annotated[str, Meta(max_length=100)] | None,
        Meta(description="The header Retry-After, as it came or in seconds."),
    ] = None
    latency: Annotated[Seconds | None, Meta(description="Seconds that the answer took.")] = None
    max_age: Annotated[
        Seconds | None, Meta(description="Seconds for which it stays as it is: max-age, or a feed's ttl.")
    ] = None


Reports = Annotated[list[ReportMessage], Meta(max_length=MOST_ROWS)]
SourceMessages = Annotated[list[SourceMessage], Meta(max_length=MOST_ROWS)]


class SignalMessage(Struct, forbid_unknown_fields=True):
    """Signal that a source may have changed."""

    source: Name
    time: Annotated[
        Moment | None, Meta(description="When it came; by default now. To tell the same again is safe.")
    ] = None
    kind: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)] | None,
        Meta(description="Such as sitemap. What each kind is worth is learnt."),
    ] = None


Signals = Annotated[list[SignalMessage], Meta(max_length=MOST_ROWS)]


class HostMessage(Struct, forbid_unknown_fields=True):
    """Delay between crawls that a host's robots.txt asks for."""

    host: Name
    crawl_delay: Annotated[Seconds, Meta(description="Seconds; 0 for none.")] = 0.0
    robots: Annotated[
        Annotated[str, Meta(max_length=500_000)] | None,
        Meta(description="In place of crawl_delay, the text of robots.txt, which is read for the agent."),
    ] = None
    agent: Annotated[str, Meta(max_length=200)] = "*"


HostMessages = Annotated[list[HostMessage], Meta(max_length=MOST_ROWS)]


class VisitMessage(Struct):
    """Source that is due, leased to the client."""

    source: str
    due: datetime
    until: Annotated[datetime, Meta(description="End of the lease.")]
    last_crawl: datetime | None
    content: Annotated[str | None, Meta(description="What the last crawl saw, such as an ETag to ask with.")]
    host: str | None


class DueMessage(Struct):
    """What to crawl now; if nothing, when to ask again."""

    visits: list[VisitMessage]
    next: datetime | None


class CountMessage(Struct):
    """How many rows the call has changed."""

    count: int


class ErrorMessage(Struct):
    """Why a call was refused, and what to do."""

    error: str


def decoded(data: bytes, kind: type[Message]) -> Message:
    """Return a message; raise ValueError, of one line, if it is none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(shortened(" ".join(str(error).split()))) from None


def report_of(message: ReportMessage) -> Report:
    """Return a message as the planner takes it."""
    told = msgspec.structs.asdict(message)
    answered = {key: told.pop(key) for key in Answered.__annotations__}
    known = {key: value for key, value in answered.items() if value is not None}
    if message.status is not None:  # JSON's 200.0 is 200
        known["status"] = int(message.status)
    return Report(**told, answered=cast("Answered", known))
