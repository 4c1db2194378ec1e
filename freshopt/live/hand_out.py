"""Handing out what is due, to one worker, within the bandwidth.

A source that is handed out is leased: nobody else gets it until it is observed or the lease ends. Among those
that are due the one comes first whose gap is exceeded by the largest share. All gaps are then stretched by
the same factor while there is more due than can be crawled, which is the plan for a smaller bandwidth but for
second order; the order of due times would stretch short gaps most.

What is handed out is counted against the bandwidth (a token bucket): after an outage, when everything is
due, no more is handed out at once than the bandwidth of the time `burst`, and one refresh. A planner begins
with one refresh.

Cost: one pass over what is due in an index, some 0.1 µs a source, and two statements for each handed out.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from freshopt.live.clock import Clock
from freshopt.live.database import Database, keep, kept
from freshopt.live.settings import PlannerSettings

_FREE = "next_due <= ? AND (lease_until IS NULL OR lease_until <= ?)"


class Visit(NamedTuple):
    """One crawl that is due.

    Parameters
    ----------
    source : str
    due : float or datetime
        When it was due.
    until : float or datetime
        End of the lease.
    last_crawl : float or datetime, or None
        The latest crawl recorded.
    content : str or None
        What it saw, if that was told: an ETag to ask with, for example.
    host : str or None
    """

    source: str
    due: float | datetime
    until: float | datetime
    last_crawl: float | datetime | None
    content: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Bucket:
    """Bandwidth that may be handed out now.

    Attributes
    ----------
    tokens : float
        In refresh cost; below 0 by one refresh at most.
    time : float
        As of when.
    """

    tokens: float
    time: float

    def at(self, now: float, bandwidth: float, burst: float) -> Bucket:
        """Return the bucket at a later moment.

        Time that runs back adds nothing.
        """
        filled = min(self.tokens + bandwidth * max(0.0, now - self.time), bandwidth * burst)
        return Bucket(max(filled, self.tokens) if now <= self.time else filled, max(now, self.time))


def read_bucket(database: Database) -> Bucket | None:
    """Return the bucket kept, None before the first hand-out."""
    text = kept(database, "bucket")
    return None if text is None else Bucket(**json.loads(text))


def hand_out(
    database: Database, settings: PlannerSettings, clock: Clock, now: float, limit: int | None
) -> list[Visit]:
    """Lease what is due and return it, within a transaction."""
    before = read_bucket(database) or Bucket(0.0, now)
    bucket = before.at(now, settings.bandwidth, settings.burst)
    if bucket.tokens < 0.0 or limit == 0:
        return []
    rows = database.rows(
        f"SELECT id, name, next_due, refresh_cost, last_crawl, content, host FROM source WHERE {_FREE} "
        "ORDER BY (? - next_due) * rate DESC, id LIMIT ?",
        (now, now, now, 2**62 if limit is None else limit),
    )
    tokens, until, visits, leased = bucket.tokens, now + settings.lease, [], []
    for number, name, due, cost, last, *rest in rows:
        if tokens < 0.0:
            break
        tokens -= cost
        leased.append((until, number))
        crawled = None if last is None else clock.moment(last)
        visits.append(Visit(name, clock.moment(due), clock.moment(until), crawled, *rest))
    database.run_many("UPDATE source SET lease_until = ? WHERE id = ?", leased)
    keep(database, "bucket", json.dumps({"tokens": tokens, "time": bucket.time}))
    return visits


def hand_back(database: Database, settings: PlannerSettings, names: list[str]) -> int:
    """End leases of sources not crawled; return how many.

    Within a transaction.
    """
    returned = 0.0
    many = 0
    for name in names:
        rows = database.rows(
            "SELECT id, refresh_cost FROM source WHERE name = ? AND lease_until IS NOT NULL",
            (name,),
        )
        for number, cost in rows:
            many += database.run("UPDATE source SET lease_until = NULL WHERE id = ?", (number,))
            returned += cost
    bucket = read_bucket(database)
    if bucket is not None and many:
        tokens = min(bucket.tokens + returned, max(bucket.tokens, settings.bandwidth * settings.burst))
        keep(database, "bucket", json.dumps({"tokens": tokens, "time": bucket.time}))
    return many


def next_hand_out(database: Database, settings: PlannerSettings, now: float) -> float | None:
    """Return when something can be handed out next, or None.

    None if nothing is planned.
    """
    rows = database.rows(
        "SELECT MIN(CASE WHEN lease_until > next_due THEN lease_until ELSE next_due END) FROM source "
        "WHERE next_due IS NOT NULL"
    )
    if rows[0][0] is None:
        return None
    bucket = read_bucket(database)
    filled = now
    if bucket is not None:
        bucket = bucket.at(now, settings.bandwidth, settings.burst)
        filled = now + max(0.0, -bucket.tokens / settings.bandwidth)
    return max(float(rows[0][0]), filled)


def latest_now(database: Database) -> float:
    """Return the latest moment that the planner was told to be now."""
    bucket = read_bucket(database)
    return -math.inf if bucket is None else bucket.time
