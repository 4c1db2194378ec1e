"""When sources are due: first crawls spread, lateness made up.

* A source that was never crawled waits for its share of a gap, the fractional part of a multiple of the
  golden ratio: sources that come one after the other are spread evenly, whatever their number. New ones are
  through when the whole bandwidth could have crawled them once, at the latest after their own gaps.
* After a crawl the next one is due a gap later. Nine tenths of its lateness are made up, so that a crawler
  that asks from time to time uses the whole bandwidth; the tenth that is not lets a backlog shrink. Lateness
  beyond half a gap is not made up, so that after an outage nobody is crawled twice in a row.
* max_rate is a shortest gap, which nothing undercuts: neither lateness that is made up nor a retry.
* When a rate changes the share of the gap that has passed stays.
* After a first crawl that failed the next try comes an eighth of a gap later. From then on each wait is as
  long as the source has been silent, counted from its first failure, which doubles the silence: how long
  nobody asked, as while the crawler itself was off, says nothing of a source. One that has not answered for
  `PATIENCE` gaps is taken to be down; while nothing else answers either, waits grow no longer. The rate of
  its tries is kept, and the next update plans with it as its largest rate, so that the others have what it
  leaves; the first success ends that at once.
* Where a promise decides a rate (`freshopt.questions.promises`), the source comes before others that are due,
  and all of its lateness is made up: its gaps are those of the rate in the mean. One with a larger rate does
  so from the end of the gap that the promise allows.
* A source with appointments is due by the next of them (`AppointmentsOnClock`). Places in a window are even
  for all, in the order in which each host's would be even for itself. The hand-out is beside the bandwidth,
  of which so much is left out for it. What fails within a window is tried again an eighth of it later, then
  ever later.
* Under Poisson refreshes gaps are exponential, drawn from the source and the moment of its crawl; beside a
  max_rate they are the shortest gap and an exponential rest.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from functools import reduce
from hashlib import blake2b

import numpy as np

from freshopt.estimators.week_clock import WEEK
from freshopt.formatting import count
from freshopt.live.database import IN_FORCE, Database, keep, kept
from freshopt.live.settings import ROUNDING, PlannerSettings
from freshopt.live.source_table import SourceTable
from freshopt.logs.clock import Clock
from freshopt.numerics.arrays import Array, IntArray, total
from freshopt.units import SECONDS

# Multiples of it modulo 1 are the most evenly spread of all.
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
# Share of lateness that is made up at the next gap, and the share of a gap beyond which none is.
MADE_UP, MOST = 0.9, 0.5
_DRAWS = 2.0**64
# Sources of promises, and from when on they come before others. Of appointments which promise it is, the
# place in windows, and when the last crawl was due; of others the gap that is allowed, NULL for the rate's.
PROMISED = (
    "CREATE TABLE IF NOT EXISTS promised (source BIGINT PRIMARY KEY, opens DOUBLE PRECISION, "
    "appointed INTEGER, place DOUBLE PRECISION, base DOUBLE PRECISION, gap DOUBLE PRECISION)"
)
_OPEN = (
    "UPDATE promised SET opens = gap + (SELECT last_crawl FROM source WHERE id = promised.source) "
    "WHERE gap IS NOT NULL"
)
_APPOINTED = (
    f"SELECT source.id, appointed, place, opens, base, last_crawl, {IN_FORCE}, max_rate, silent_since, "
    "next_due FROM source JOIN promised ON promised.source = source.id "
    "WHERE appointed IS NOT NULL AND active = 1 AND rate > 0"
)
# First retry, as a share of the gap: a try four times as early would gain a tenth of a gap.
RETRY = 0.125
# Gaps of silence after which a source is down: at the sixth retry, four gaps after its first failure.
PATIENCE = 3.0
# Longest wait, in gaps, while nothing at all answers: then it is likely the crawler that has no network, and
# nobody else could use the bandwidth.
ALL_SILENT = 4.0
# Relative excess of a rate over what a promise needs up to which the promise decides it.
BOUND = 0.01


def first_due(
    number: IntArray, rate: Array, cost: Array, last_crawl: Array, now: float, bandwidth: float
) -> Array:
    """Return when unplanned sources are due, shape (n,), NaN at rate 0."""
    new = np.isnan(last_crawl)
    through = total(cost[new]) / bandwidth
    with np.errstate(divide="ignore"):
        gap = np.where(rate > 0.0, 1.0 / rate, np.inf)
    phase = ((number - 1) * GOLDEN) % 1.0
    due = np.where(new, now + phase * np.minimum(gap, through), np.fmax(last_crawl + gap, now))
    return np.where(rate > 0.0, due, np.nan)


def retry_wait(since: float, rate: float, failed: float, *, all_silent: bool = False) -> float:
    """Return how long a source is left alone after a failure.

    Examples
    --------
    >>> retry_wait(1.0, 0.5, 1.0), retry_wait(1.0, 0.5, 1.25), retry_wait(1.0, 0.5, 19.0)
    (0.25, 0.25, 18.0)
    >>> retry_wait(1.0, 0.5, 19.0, all_silent=True)
    8.0
    """
    return min(max(failed - since, RETRY / rate), ALL_SILENT / rate if all_silent else math.inf)


def is_down(since: float, rate: float, failed: float) -> bool:
    """Return whether others get the bandwidth of a silent source."""
    return (failed - since) * rate >= PATIENCE


def next_due(
    number: int,
    rate: float | None,
    due: float | None,
    crawled: float,
    *,
    periodic: bool,
    shortest: float = 0.0,
    made_up: float = MADE_UP,
) -> float | None:
    """Return when a source is due after a crawl; None for never.

    Examples
    --------
    >>> next_due(1, 0.5, due=10.0, crawled=10.1, periodic=True), next_due(1, 0.5, 10.0, 19.0, periodic=True)
    (12.01, 20.1)
    >>> next_due(1, 0.5, due=10.0, crawled=10.1, periodic=True, shortest=2.0)
    12.1
    """
    if not rate:
        return None
    gap = max(1.0 / rate, shortest)
    if not periodic:
        return crawled + shortest - math.log(drawn(number, crawled)) * (gap - shortest)
    late = 0.0 if due is None else min(max(crawled - due, 0.0), MOST * gap)
    return crawled + max(gap - made_up * late, shortest)


def drawn(number: int, moment: float) -> float:
    """Return a random number in (0, 1] of a source and moment."""
    digest = blake2b(struct.pack("<qd", number, moment), digest_size=8).digest()
    return (int.from_bytes(digest, "little") + 1) / _DRAWS


def keep_promised(
    database: Database,
    settings: PlannerSettings,
    clock: Clock,
    table: SourceTable,
    needs: Sequence[Array],
    rate: Array,
    now: float,
    *,
    whole: bool,
) -> None:
    """Keep which sources are promised, and when they are due.

    Within a transaction. `needs` are the least rates of promises; `table` is the whole of the sources, or has
    new ones.
    """
    moments = [each.appointments for each in settings.promise]
    appointed = np.full(len(table), -1)
    for k, need in enumerate(needs):
        if moments[k] is not None:
            appointed[need > 0.0] = k
    least = reduce(np.maximum, needs)
    rows = np.flatnonzero(least > 0.0)
    # Gaps at random, or of open hours, are none that could be exceeded.
    equal = settings.periodic and settings.hours is None
    loose = (appointed < 0) & (rate > least * (1.0 + BOUND)) & equal
    place = _places(table, appointed) if whole else (table.id * GOLDEN) % 1.0
    known = database.rows("SELECT source, opens, base FROM promised WHERE place IS NOT NULL")
    before = {source: own for source, *own in known}
    if whole:
        database.run("DELETE FROM promised")
        keep(database, "short", str(np.count_nonzero(rate < least * (1.0 - ROUNDING))))
    else:
        database.run_many("DELETE FROM promised WHERE source = ?", [(each,) for each in table.id.tolist()])
    given = [each[rows].tolist() for each in (table.id, appointed, place, loose, least)]
    database.run_many(
        "INSERT INTO promised (source, gap, appointed, place, opens, base) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (source, 1.0 / need if free else None, None, None, None, None)
            if which < 0
            else (source, None, which, at, *before.get(source, (None, None)))
            for source, which, at, free, need in zip(*given, strict=True)
        ],
    )
    database.run(_OPEN)
    if settings.has_appointments:
        sums = database.rows(
            "SELECT appointed, SUM(refresh_cost) FROM promised JOIN source ON source.id = promised.source "
            "WHERE appointed IS NOT NULL AND active = 1 GROUP BY appointed"
        )
        many = {k: len(each.moments) for k, each in enumerate(moments) if each is not None}
        used = math.fsum(many.get(which, 0) * cost for which, cost in sums)
        used *= SECONDS[settings.time_unit] / WEEK
        keep(database, "appointed", repr(used))
        keep_appointments(database, settings, clock, now)


def keep_gaps(database: Database, sources: Sequence[int]) -> None:
    """Have crawled sources come first when a promised gap is over."""
    database.run_many(f"{_OPEN} AND source = ?", [(source,) for source in sources])


def _places(table: SourceTable, appointed: IntArray) -> Array:
    """Return places in windows, even ones, and nearly for each host."""
    hosts = {host: k for k, host in enumerate(dict.fromkeys(table.host.tolist()))}
    code = np.array([hosts[host] for host in table.host.tolist()], dtype=np.int64)
    group = (appointed + 1) * len(hosts) + code
    alone = (_turn(group, table.id) + (code * GOLDEN) % 1.0) / np.bincount(group)[group]
    return np.asarray(_turn(appointed + 1, alone) / np.bincount(appointed + 1)[appointed + 1])


def _turn(group: IntArray, key: Array | IntArray) -> IntArray:
    """Return the place of each in its group, by a key."""
    order = np.lexsort((key, group))
    turn = np.empty(len(group), dtype=np.int64)
    turn[order] = np.arange(len(group)) - np.searchsorted(group[order], group[order])
    return turn


def keep_appointments(
    database: Database,
    settings: PlannerSettings,
    clock: Clock,
    now: float | None = None,
    sources: Sequence[int] | None = None,
    *,
    failed: bool = False,
) -> None:
    """Have sources be due by their appointments, within a transaction.

    Some, after a crawl, or after one that `failed` now; or all.
    """
    if sources is None:
        rows = database.rows(f"{_APPOINTED} ORDER BY source.id")
    else:
        rows = database.rows_among(f"{_APPOINTED} AND source.id IN ({{marks}})", sources)
    if not rows:
        return
    found = np.array(rows, dtype=np.float64).T
    number, which, place, before, base, last, rate, most, since, due = found
    moment = last if now is None else np.full(len(last), now)
    # Who was never crawled is due by the first window that opens, once it is appointed.
    never = np.where(np.isnan(before), moment, np.nextafter(before, -np.inf))
    crawled = np.where(np.isnan(last), never, last)
    silent, shortest = ~np.isnan(since), np.nan_to_num(1.0 / most)
    new_due, opens = due.copy(), before.copy()
    # After a crawl its lateness is made up in what is due by its rate alone; before, that was kept.
    told = due - np.fmax(1.0 / rate, shortest) if now is None else base
    base = np.fmin(crawled, np.where(np.isnan(last), np.nan, told))
    for k, given in enumerate(settings.appointments_on(clock)):
        own = which == k
        if given is None or not np.any(own):
            continue
        known = (each[own] for each in (place, rate, base, crawled, moment, shortest))
        regular, slot, begins, ends = given.due(number[own].astype(np.int64), *known)
        # A source that was never crawled, or that fails, has a time of its own, but for its appointments.
        at, wait = moment[own], np.fmax(since[own], begins)
        tried = at + np.maximum(at - wait, RETRY * (ends - begins)) if failed else due[own]
        inside = (begins <= at) & silent[own]
        other = np.fmin(due[own], np.where(inside, tried, slot))
        new_due[own] = np.where(silent[own] | np.isnan(last[own]), other, regular)
        opens[own] = begins
    moved = np.flatnonzero((new_due != due) | (opens != before))
    row = number[moved].astype(np.int64).tolist()
    columns = [each[moved].tolist() for each in (new_due, opens, base)]
    database.run_many("UPDATE source SET next_due = ? WHERE id = ?", zip(columns[0], row, strict=True))
    kept_so = "UPDATE promised SET opens = ?, base = ? WHERE source = ?"
    database.run_many(kept_so, zip(*columns[1:], row, strict=True))


def promises_in_words(database: Database) -> tuple[str, ...]:
    """Return what promises need and cost, and how many are not kept."""
    told, short = json.loads(kept(database, "promises") or "[]"), int(kept(database, "short") or 0)
    less = f"{count(short, 'source')} fetched less than promised, as limits and failures leave no more"
    return (*told, less) if told and short else tuple(told)
