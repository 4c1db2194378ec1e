"""Handing out what is due, to one worker, within the bandwidth.

A source that is handed out is leased: nobody else gets it until it is observed or the lease ends. Among those
that are due the one comes first whose gap is exceeded by the largest share. All gaps are then stretched by
the same factor while there is more due than can be crawled, which is the plan for a smaller bandwidth but for
second order; the order of due times would stretch short gaps most.

What is handed out is counted against the bandwidth (a token bucket): after an outage, when everything is
due, no more is handed out at once than the bandwidth of the time `burst`, and one refresh. A planner begins
with one refresh.

Two gaps are kept here, whatever says that a source is due: of a source with a max_rate no two hand-outs are
nearer than 1/max_rate, and where there is a `host_gap` no two of one host are nearer than that. Gaps of hosts
are up to half as long again, at random, so that crawls keep no beat. Rates keep to the limits of hosts; where
signals bring crawls forward, many may come at once, and a host then takes turns at its limit, with as much
at once as the limit leaves in the time `burst` (the generic cell rate algorithm).

Sources whose rates promises decide come first. Of appointments one hand-out each, since its window opened, is
beside the bandwidth, of which their mean is left out for others: windows need more in a short time.

A fetch that finds a change is counted with what that costs (`changed_cost`) when it is reported.

Outside of `hours` nothing is handed out, and within them the bandwidth of the whole week.

Cost: one pass over what is due in an index, some 0.1 µs a source, and two statements for each handed out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import NamedTuple

from freshopt.live.database import IN_FORCE, Database, keep, kept
from freshopt.live.due_times import drawn
from freshopt.live.pace import PACED, keeps_paces, pace_of
from freshopt.live.settings import PlannerSettings
from freshopt.logs.clock import Clock
from freshopt.scheduling.host_gap import JITTER
from freshopt.units import convert_time

# When a source may be handed out for its max_rate's sake. The quotient is the same float as in `due_times`.
_RESTED = "handed_out + 1.0 / NULLIF(max_rate, 0.0)"
FREE = (
    "next_due <= ? AND (lease_until IS NULL OR lease_until <= ?) "
    f"AND (handed_out IS NULL OR max_rate IS NULL OR {_RESTED} <= ?)"
)
# Whether the hand-out is that of an appointment, and a source of a promise.
_BESIDE = "place IS NOT NULL AND (handed_out IS NULL OR handed_out < opens)"
_KEPT = f"CASE WHEN {_BESIDE} AND opens <= ? THEN 1 ELSE 0 END"
_FIRST = f"CASE WHEN {_KEPT} = 1 THEN 0 WHEN opens IS NULL OR opens <= ? THEN 1 ELSE 2 END"
_CHOICE = (
    "SELECT id, name, next_due, refresh_cost, last_crawl, content, host, {kept} FROM {table} WHERE {where} "
    "{order} LIMIT ?"
)
# The largest share by which a gap is exceeded comes first.
_ORDER = f"(? - next_due) * ({IN_FORCE}) DESC, id"
# Of each host that is free, one.
_TURN = (
    f"{FREE} AND (host IS NULL OR id IN (SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY host "
    f"{{order}}) AS place FROM {{table}} WHERE {FREE} AND host IS NOT NULL AND host NOT IN "
    "(SELECT host FROM host_turn WHERE free_at > ?)) AS turns WHERE turns.place = 1))"
)
# Of each host that is slowed, one; of others that rest, none.
_RESTING = "SELECT host FROM host_turn WHERE free_at > ?"
_PACED = (
    f"{FREE} AND (host IS NULL OR (host NOT IN ({_RESTING}) AND host NOT IN ({PACED})) OR id IN (SELECT id "
    f"FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY host {{order}}) AS place FROM {{table}} WHERE {FREE} "
    f"AND host IN ({PACED}) AND host NOT IN ({_RESTING})) AS turns WHERE turns.place = 1))"
)


class Visit(NamedTuple):
    """One crawl that is due.

    - `due`: When it was due.
    - `until`: End of the lease.
    - `last_crawl`: The latest crawl recorded.
    - `content`: What it saw, if that was told: an ETag to ask with, for example.
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

    - `tokens`: In refresh cost; below 0 by one refresh at most.
    - `time`: As of when.
    - `used`, `lost`: What was handed out lately, and what was not though it was due, as nobody asked within a
      burst.
    """

    tokens: float
    time: float
    used: float = 0.0
    lost: float = 0.0

    def at(self, now: float, bandwidth: float, burst: float) -> Bucket:
        """Return the bucket at a later moment; earlier ones add nothing."""
        filled = min(self.tokens + bandwidth * max(0.0, now - self.time), bandwidth * burst)
        tokens = max(filled, self.tokens) if now <= self.time else filled
        return replace(self, tokens=tokens, time=max(now, self.time))

    def after(self, used: float, lost: float, lately: float) -> Bucket:
        """Return the bucket after a hand-out.

        Of what was before, refreshes for the bandwidth of `lately` count at most.
        """
        kept = min(1.0, lately / max(self.used + self.lost, math.ulp(0.0)))
        return Bucket(self.tokens - used, self.time, kept * self.used + used, kept * self.lost + lost)

    @property
    def unused(self) -> float:
        """Share of the bandwidth lately that nobody asked for in time."""
        return self.lost / (self.used + self.lost) if self.lost > 0.0 else 0.0


def read_bucket(database: Database) -> Bucket | None:
    """Return the bucket kept, None before the first hand-out."""
    text = kept(database, "bucket")
    return None if text is None else Bucket(**json.loads(text))


def keep_bucket(database: Database, bucket: Bucket) -> None:
    """Keep the bucket, within a transaction."""
    keep(database, "bucket", json.dumps(asdict(bucket)))


def hand_out(
    database: Database,
    settings: PlannerSettings,
    clock: Clock,
    now: float,
    limit: int | None,
) -> list[Visit]:
    """Lease what is due and return it, within a transaction."""
    hours = settings.hours_on(clock)
    if hours is not None and hours.following(now) > now:
        return []
    before = read_bucket(database) or Bucket(0.0, now)
    bucket = before.at(now, settings.hand_out_rate, settings.burst)
    if (bucket.tokens < 0.0 and not settings.has_appointments) or limit == 0:
        return []
    many = 2**62 if limit is None else limit
    turning, paced = takes_turns(database, settings), keeps_paces(database)
    day = convert_time(1.0, "day", settings.time_unit)
    words = {"table": "source", "kept": "0", "order": f"ORDER BY {_ORDER}"}
    if settings.promise:
        joined = "source LEFT JOIN promised ON promised.source = source.id"
        first = f"CASE WHEN promised.source IS NULL THEN 2 ELSE {_FIRST} END"
        words = {"table": joined, "kept": _KEPT, "order": f"ORDER BY {first}, {_ORDER}"}
    where = _TURN if turning else _PACED if paced else FREE
    sql = _CHOICE.format(**words, where=where.format(**words))
    # All that is asked is whether moments are over.
    rows = database.rows(sql, [*[now] * (sql.count("?") - 1), many])
    used, until, visits, leased, turns = 0.0, now + settings.lease, [], [], []
    for number, name, due, cost, last, content, host, appointed in rows:
        if not appointed:
            if bucket.tokens < used:
                break
            used += cost
        leased.append((until, now, number))
        gap = settings.host_gap
        if host is not None and paced:
            gap = max(gap, pace_of(database, host).gap(now, day))
        if host is not None and (turning or gap > 0.0):
            longer = 1.0 + JITTER * drawn(number, now)
            until_free = now + longer * gap if gap > 0.0 else now - settings.burst
            turns.append((host, max(until_free, _by_limit(database, settings, host, cost, now))))
        crawled = None if last is None else clock.moment(last)
        visits.append(Visit(name, clock.moment(due), clock.moment(until), crawled, content, host))
    database.run_many("UPDATE source SET lease_until = ?, handed_out = ? WHERE id = ?", leased)
    if turns:
        database.put("host_turn", "host", ("host", "free_at"), turns)
    spilt = before.tokens + settings.hand_out_rate * (bucket.time - before.time) - bucket.tokens
    waiting = math.fsum(cost for _, _, _, cost, *_ in rows[len(visits) :])
    lost = min(max(0.0, spilt), waiting)
    keep_bucket(database, bucket.after(used, lost, settings.bandwidth * settings.replan))
    return visits


def charge(database: Database, settings: PlannerSettings, sources: Sequence[int]) -> None:
    """Count what fetches that found a change used besides, within a transaction."""
    bucket = read_bucket(database)
    if bucket is None or not sources:
        return
    cost = settings.changed_cost * len(sources)
    if math.isnan(cost):
        sql = (
            "SELECT number FROM source_column JOIN source ON source.name = source_column.source "
            "WHERE source_column.name = 'changed_cost' AND source.id = ?"
        )
        cost = math.fsum(number for each in sources for (number,) in database.rows(sql, (each,)))
    keep_bucket(database, replace(bucket, tokens=bucket.tokens - cost, used=bucket.used + cost))


def takes_turns(database: Database, settings: PlannerSettings) -> bool:
    """Return whether hosts have gaps, or limits that signals might exceed."""
    return settings.host_gap > 0.0 or (bool(settings.host_limits) and kept(database, "signals") is not None)


def _by_limit(database: Database, settings: PlannerSettings, host: str, cost: float, now: float) -> float:
    """Return when a host may be asked again for its limit's sake."""
    limit = settings.host_limits.get(host, math.inf)
    if not limit < math.inf or kept(database, "signals") is None:
        return -math.inf
    known = database.rows("SELECT free_at FROM host_turn WHERE host = ?", (host,))
    before = max(known[0][0] if known else -math.inf, now - settings.burst)
    return before + cost / limit if limit > 0.0 else math.inf


def hand_back(database: Database, settings: PlannerSettings, names: list[str]) -> int:
    """End leases of sources not crawled, within a transaction; return how many."""
    cost = "refresh_cost"
    if settings.has_appointments:
        # What an appointment was given is not of this bandwidth.
        beside = "SELECT source FROM promised WHERE place IS NOT NULL AND opens <= handed_out"
        cost = f"CASE WHEN id IN ({beside}) THEN 0 ELSE refresh_cost END"
    leased = f"SELECT id, {cost} FROM source WHERE lease_until IS NOT NULL AND name IN ({{marks}})"
    rows = database.rows_among(leased, [*dict.fromkeys(names)])
    # The hand-out before this one was a shortest gap earlier at least.
    ended = "UPDATE source SET lease_until = NULL, handed_out = NULL WHERE id = ?"
    database.run_many(ended, [(number,) for number, _ in rows])
    bucket = read_bucket(database)
    if bucket is not None and rows:
        returned = bucket.tokens + math.fsum(each for _, each in rows)
        tokens = min(returned, max(bucket.tokens, settings.bandwidth * settings.burst))
        keep_bucket(database, replace(bucket, tokens=tokens))
    return len(rows)


def next_hand_out(
    database: Database, settings: PlannerSettings, now: float, clock: Clock | None = None
) -> float | None:
    """Return when something can be handed out next, None without a plan."""
    moments = ["next_due", "lease_until", f"CASE WHEN max_rate IS NULL THEN NULL ELSE {_RESTED} END"]
    joined = ""
    if takes_turns(database, settings) or keeps_paces(database):
        moments.append("free_at")
        joined = "LEFT JOIN host_turn ON host_turn.host = source.host"
    latest = moments[0]
    for moment in moments[1:]:
        latest = f"CASE WHEN {moment} > {latest} THEN {moment} ELSE {latest} END"
    rows = database.rows(f"SELECT MIN({latest}) FROM source {joined} WHERE next_due IS NOT NULL")
    if rows[0][0] is None:
        return None
    bucket = read_bucket(database)
    filled = now
    if bucket is not None:
        bucket = bucket.at(now, settings.hand_out_rate, settings.burst)
        filled = now + max(0.0, -bucket.tokens / settings.hand_out_rate)
    found, hours = max(float(rows[0][0]), filled), None if clock is None else settings.hours_on(clock)
    if settings.has_appointments:
        # Those of appointments wait for no bandwidth.
        latest = f"CASE WHEN opens > {latest} THEN opens ELSE {latest} END"
        joined = f"{joined} JOIN promised ON promised.source = source.id"
        still = f"{_BESIDE} AND next_due IS NOT NULL"
        ((soonest,),) = database.rows(f"SELECT MIN({latest}) FROM source {joined} WHERE {still}")
        found = found if soonest is None else min(found, float(soonest))
    return found if hours is None else hours.following(found)


def next_turn(database: Database, settings: PlannerSettings, now: float, due: float) -> float | None:
    """Return when a host may be asked for what waits for it.

    None if nothing that was due at a moment waits for its host alone, but for the bandwidth, say.
    """
    bucket = read_bucket(database)
    if bucket is None or not (takes_turns(database, settings) or keeps_paces(database)):
        return None
    if bucket.at(now, settings.hand_out_rate, settings.burst).tokens < 0.0:
        return None
    sql = (
        "SELECT MIN(free_at) FROM source JOIN host_turn ON host_turn.host = source.host "
        f"WHERE {FREE} AND free_at > ?"
    )
    ((moment,),) = database.rows(sql, (due, now, now, now))
    return None if moment is None else float(moment)


def latest_now(database: Database) -> float:
    """Return the latest moment that the planner was told to be now."""
    bucket = read_bucket(database)
    return -math.inf if bucket is None else bucket.time
