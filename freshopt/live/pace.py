"""How often hosts may be asked, as their answers say.

The hand-outs of a host per time are what is planned for it until an answer asks for fewer.

* Multiplicative decrease: an answer 429 or 503, the first failure of a source by another 5xx, and an answer
  that took longer than usual (the smoothed latency and four mean deviations, as RFC 6298 has it for TCP, and
  a second) halve them. What was asked before the host had rested for a gap counts once.
* Additive increase: they grow back linearly, to all of what they were within `RECOVERY`; then the host is as
  before.
* Bounds: they are never below `FLOOR` of what they were. Retry-After and a robots.txt's crawl-delay are
  obeyed up to `LONGEST`; with a crawl-delay hand-outs are never nearer than that.
* An answer's max-age, or a feed's ttl, is the shortest gap of its source, up to `LONGEST` and as far as its
  min_rate and promises allow; the latest that was told counts.

Planning takes them as limits of hosts and sources, so that the certificate is for the limits in force; where
least rates exceed a host's, they are lowered in proportion. The tables are made with the first answer told.

Cost: some statements for an answer that tells something, 10 µs each; none for others.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import NamedTuple, TypedDict

import numpy as np

from freshopt.errors import FreshoptError, SourceDataError, shown
from freshopt.live.database import IN_FORCE, Database, keep, kept, new_revision
from freshopt.live.rates import InForce
from freshopt.live.settings import PlannerSettings
from freshopt.live.source_table import SourceTable
from freshopt.numerics.arrays import Array, as_number
from freshopt.scheduling.host_gap import JITTER
from freshopt.units import convert_time

# Time in which the whole of a host's hand-outs comes back, and the longest rest that an answer may ask for,
# in days; the least share of its hand-outs that a host keeps.
RECOVERY, LONGEST, FLOOR = 1.0, 1.0, 1.0 / 64.0
# Answers by which a server says that it is asked too often; other failures of its own count once a source.
BUSY, FAULTS = (429, 503), range(500, 600)
# Shares of the newest in the smoothed latency and in its mean deviation, and the deviations of a slow answer:
# RFC 6298. No answer within a second is slow.
NEWEST, NEWEST_SPREAD, DEVIATIONS, SLOW = 1.0 / 8.0, 1.0 / 4.0, 4.0, 1.0
_TABLES = (
    "CREATE TABLE IF NOT EXISTS host_pace (host TEXT PRIMARY KEY, turns DOUBLE PRECISION, "
    "most DOUBLE PRECISION, since DOUBLE PRECISION, least_gap DOUBLE PRECISION, latency DOUBLE PRECISION, "
    "spread DOUBLE PRECISION)",
    "CREATE INDEX IF NOT EXISTS host_slow ON host_pace (host) "
    "WHERE turns IS NOT NULL OR least_gap IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS told_gap (source BIGINT PRIMARY KEY, own DOUBLE PRECISION, "
    "used DOUBLE PRECISION NOT NULL)",
)
# Share of the time between updates after which a hand-out plans within new limits; gaps change at once.
EARLY = 1.0 / 12.0
# Hosts that are asked less often than the plan alone would.
PACED = "SELECT host FROM host_pace WHERE turns IS NOT NULL OR least_gap IS NOT NULL"


class Answered(TypedDict, total=False):
    """What a server's answer tells of how often it may be asked.

    Its status; its header Retry-After, or seconds; the seconds that it took; and the seconds for which it
    said that it stays as it is (max-age, or a feed's ttl).
    """

    status: int | None
    retry_after: float | str | None
    latency: float | None
    max_age: float | None


class Pace(NamedTuple):
    """Hand-outs of a host, as its answers allow them."""

    turns: float | None = None
    most: float | None = None
    since: float | None = None
    least_gap: float | None = None
    latency: float | None = None
    spread: float | None = None

    def turns_at(self, now: float, day: float) -> float:
        """Return the hand-outs per time unit at a moment; inf as before.

        Examples
        --------
        >>> Pace(turns=2.0, most=8.0, since=1.0).turns_at(1.5, day=1.0)
        6.0
        """
        if self.turns is None or self.most is None or self.since is None:
            return math.inf
        grown = self.turns + self.most * max(0.0, now - self.since) / (RECOVERY * day)
        return grown if grown < self.most else math.inf

    def gap(self, now: float, day: float) -> float:
        """Return the least gap between hand-outs; up to half is added."""
        return max(self.least_gap or 0.0, 1.0 / ((1.0 + 0.5 * JITTER) * self.turns_at(now, day)))

    def slowed(self, now: float, planned: float, day: float) -> Pace | None:
        """Return the pace after a decrease; None if that was counted."""
        before = self.turns_at(now, day)
        if before == math.inf:
            return self._replace(turns=0.5 * planned, most=planned, since=now)
        if self.since is None or self.most is None or now <= self.since + 1.0 / before:
            return None
        return self._replace(turns=max(0.5 * before, FLOOR * self.most), since=now)

    def after(self, latency: float) -> tuple[Pace, bool]:
        """Return the pace after an answer, and whether that was slow."""
        if self.latency is None or self.spread is None:
            return self._replace(latency=latency, spread=0.5 * latency), False
        slow = latency > max(self.latency + DEVIATIONS * self.spread, SLOW)
        spread = self.spread + NEWEST_SPREAD * (abs(latency - self.latency) - self.spread)
        smooth = self.latency + NEWEST * (latency - self.latency)
        return self._replace(latency=smooth, spread=spread), slow


def keeps_paces(database: Database) -> bool:
    """Return whether any answer or crawl-delay was told."""
    return kept(database, "paces") is not None


def pace_of(database: Database, host: str) -> Pace:
    """Return what is kept of a host."""
    rows = database.rows(f"SELECT {', '.join(Pace._fields)} FROM host_pace WHERE host = ?", (host,))
    return Pace(*rows[0]) if rows else Pace()


def paces_at(database: Database, unit: str, now: float) -> dict[str, float]:
    """Return the hand-outs per time unit of the hosts that are slowed."""
    if not keeps_paces(database):
        return {}
    sql = f"SELECT host, turns, most, since, least_gap FROM host_pace WHERE host IN ({PACED})"
    day = convert_time(1.0, "day", unit)
    gaps = {host: Pace(*told).gap(now, day) for host, *told in database.rows(sql)}
    return {host: 1.0 / ((1.0 + 0.5 * JITTER) * gap) for host, gap in gaps.items() if gap > 0.0}


def forget_recovered(database: Database, unit: str, now: float) -> None:
    """Take hosts that are as before for such, within a transaction."""
    if keeps_paces(database):
        day = RECOVERY * convert_time(1.0, "day", unit)
        database.run(
            "UPDATE host_pace SET turns = NULL WHERE turns + most * (? - since) / ? >= most", (now, day)
        )


def heed(
    database: Database,
    settings: PlannerSettings,
    source: str,
    time: float,
    answered: Answered,
    *,
    first: bool,
) -> None:
    """Count what an answer tells, within a transaction.

    `first` is for a failure that does not follow another of its source.
    """
    _begin(database)
    day = convert_time(1.0, "day", settings.time_unit)
    ((number, host, max_rate, min_rate),) = database.rows(
        "SELECT id, host, max_rate, min_rate FROM source WHERE name = ?", (source,)
    )
    status, latency, age = answered.get("status"), answered.get("latency"), answered.get("max_age")
    busy = status in BUSY or (first and status in FAULTS)
    rest = min(rest_of(source, answered.get("retry_after")) / 86_400.0, LONGEST) * day
    if host is not None:
        pace = before = pace_of(database, host)
        if latency is not None:
            pace, slow = pace.after(_positive(source, "latency", latency))
            busy = busy or slow
        if busy:
            pace = pace.slowed(time, _planned(database, settings, host), day) or pace
        if pace != before:
            _keep_pace(database, host, pace)
        if pace.turns != before.turns and pace.turns is not None:
            rest = max(rest, min(1.0 / pace.turns, LONGEST * day))
            _plan_early(database, settings, time)
        if rest > 0.0:
            database.run(
                "INSERT INTO host_turn (host, free_at) VALUES (?, ?) ON CONFLICT (host) DO UPDATE SET "
                "free_at = excluded.free_at WHERE host_turn.free_at < excluded.free_at",
                (host, time + rest),
            )
    elif rest > 0.0:
        database.run(
            "UPDATE source SET next_due = ? WHERE id = ? AND next_due < ?", (time + rest, number, time + rest)
        )
    if age is not None:
        gap = min(_positive(source, "max_age", age) / 86_400.0, LONGEST) * day
        if settings.promise:
            joined = "promised JOIN source ON source.id = promised.source"
            sql = f"SELECT COALESCE(1.0 / gap, {IN_FORCE}) FROM {joined} WHERE source.id = ?"
            min_rate = max([min_rate, *(rate or 0.0 for (rate,) in database.rows(sql, (number,)))])
        _keep_age(database, number, max_rate, min_rate, gap)


def keep_crawl_delay(database: Database, settings: PlannerSettings, host: str, gap: float) -> None:
    """Keep the least gap of a host, within a transaction."""
    _begin(database)
    longest = LONGEST * convert_time(1.0, "day", settings.time_unit)
    _keep_pace(database, host, pace_of(database, host)._replace(least_gap=min(gap, longest) or None))


def crawl_delay_of(robots: str, agent: str) -> float:
    """Return the seconds that a robots.txt asks for between crawls.

    Its Crawl-delay for an agent, or its Request-rate; 0 if it has neither.

    - raises FreshoptError if Protego is not installed.
    """
    try:
        protego = import_module("protego")
    except ModuleNotFoundError:
        raise FreshoptError('robots.txt needs Protego. Install it: pip install "freshopt[serve]".') from None
    rules = protego.Protego.parse(robots)
    rate = rules.request_rate(agent)
    delay = rules.crawl_delay(agent) or 0.0
    if rate is not None and rate.requests > 0:
        delay = max(delay, rate.seconds / rate.requests)
    return float(delay) if math.isfinite(delay) and delay > 0.0 else 0.0


def _begin(database: Database) -> None:
    """Make the tables, if they are not there."""
    if not keeps_paces(database):
        for statement in _TABLES:
            database.run(statement)
        keep(database, "paces", "1")


def _keep_pace(database: Database, host: str, pace: Pace) -> None:
    database.put("host_pace", "host", ("host", *Pace._fields), [(host, *pace)])


def _keep_age(database: Database, number: int, max_rate: float | None, least: float, gap: float) -> None:
    """Put a source's told gap in place of the one before."""
    rows = database.rows("SELECT own, used FROM told_gap WHERE source = ?", (number,))
    # Another max_rate than the one that was put there is the user's, told since.
    own = rows[0][0] if rows and rows[0][1] == max_rate else max_rate
    told = math.inf if gap == 0.0 else max(1.0 / gap, least)
    used = min(told, math.inf if own is None else own)
    if used == (math.inf if max_rate is None else max_rate):
        return
    database.run("DELETE FROM told_gap WHERE source = ?", (number,))
    if used < math.inf:
        database.run("INSERT INTO told_gap (source, own, used) VALUES (?, ?, ?)", (number, own, used))
    database.run("UPDATE source SET max_rate = ? WHERE id = ?", (None if used == math.inf else used, number))
    new_revision(database)


def _planned(database: Database, settings: PlannerSettings, host: str) -> float:
    """Return the planned hand-outs of a host per time unit."""
    sql = f"SELECT SUM({IN_FORCE}) FROM source WHERE active = 1 AND host = ?"
    ((rate,),) = database.rows(sql, (host,))
    return min(float(rate or settings.bandwidth), settings.host_turns)


def _plan_early(database: Database, settings: PlannerSettings, now: float) -> None:
    """Have the next hand-out plan within new limits, not too often."""
    plan = InForce.from_text(kept(database, "plan"))
    if plan.updated is not None and now >= plan.updated + EARLY * settings.update:
        keep(database, "plan", replace(plan, early=True).to_text())


def own_max_rates(database: Database, table: SourceTable) -> Array:
    """Return the largest rates without those that answers told."""
    found = table.max_rate.copy()
    if keeps_paces(database):
        told = {
            source: (own, used)
            for source, own, used in database.rows("SELECT source, own, used FROM told_gap")
        }
        for k in np.flatnonzero(np.isin(table.id, [*told])).tolist():
            own, used = told[int(table.id[k])]
            if used == found[k]:
                found[k] = math.inf if own is None else own
    return found


def forget_ages(database: Database) -> None:
    """Take back the shortest gaps that answers told, within a transaction."""
    if keeps_paces(database):
        told = "SELECT own FROM told_gap WHERE told_gap.source = source.id AND used = max_rate"
        database.run(f"UPDATE source SET max_rate = ({told}) WHERE EXISTS ({told})")
        database.run("DELETE FROM told_gap")


def _positive(source: str, what: str, value: object) -> float:
    remedy = "Pass seconds, 0 or more."
    found = as_number(value, f"{what} of {shown(source)}", remedy)
    if isinstance(value, bool) or not 0.0 <= found < math.inf:
        raise SourceDataError(f"{what} of {shown(source)} is {shown(value)}. {remedy}")
    return found


def rest_of(source: str, told: object) -> float:
    """Return the seconds of a header Retry-After; 0 for what is none."""
    if told is None:
        return 0.0
    if not isinstance(told, str):
        return _positive(source, "retry_after", told)
    if told.strip().isascii() and told.strip().isdigit():
        return float(told[:20])
    try:
        until = parsedate_to_datetime(told)
    except ValueError:
        return 0.0  # a server may send anything
    aware = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
