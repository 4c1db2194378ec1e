"""Recording what crawls found: once each, whoever reports it and however often.

An observation is a source and a moment. Reported again it changes nothing; reported again with another
outcome it is refused. Reports may come in any order: the log is sorted by time, and only a source's latest
crawl says when it is due again.

Cost: one transaction with four statements for one observation, some 50 µs; 10 µs each in batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError, list_offenders, shown
from freshopt.live.database import Database, new_revision
from freshopt.live.due_times import MADE_UP, is_down, keep_appointments, keep_gaps, next_due, retry_wait
from freshopt.live.hand_out import charge, latest_now
from freshopt.live.planning import plan_early
from freshopt.live.settings import PlannerSettings
from freshopt.live.signals import follow_rules
from freshopt.logs.clock import Clock
from freshopt.logs.row_outcomes import UNCHANGED, UNKNOWN
from freshopt.logs.told_dates import read_dates
from freshopt.scheduling.hours import HoursOnClock

# Columns of an observation but for its source, as the table has them.
Outcome = tuple[float, int, float | None, float | None]
_SOURCE = (
    "id, active, rate, max_rate, next_due, last_crawl, host, silent_since, tried_rate, "
    "(SELECT COUNT(*) FROM planner WHERE key = 'signals'), lease_until IS NOT NULL"
)
_OF_PROMISES = "(SELECT COUNT(*) FROM promised WHERE promised.source = source.id)"
_UPDATE = (
    "UPDATE source SET last_crawl = ?, next_due = ?, content = CASE WHEN ? = 1 THEN NULL ELSE content END, "
    "lease_until = NULL, silent_since = NULL, tried_rate = NULL WHERE id = ?"
)
_FAIL = "UPDATE source SET next_due = ?, silent_since = ?, tried_rate = ?, lease_until = NULL WHERE id = ?"
# Where nothing had answered since a source fell silent, the silence was the host's or the crawler's own.
_WAKE = (
    "UPDATE source SET next_due = ?, silent_since = NULL, tried_rate = NULL WHERE tried_rate IS NOT NULL "
    "AND silent_since > ? "
    "AND silent_since > COALESCE((SELECT MAX(last_crawl) FROM source WHERE last_crawl < ?{here}), ?){here}"
)
_INSERT = (
    "INSERT INTO observation (source, time, changed, changes, last_modified) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (source, time) DO NOTHING"
)


@dataclass(slots=True)
class _Known:
    """Source as the database has it and a batch leaves it."""

    number: int
    active: int
    rate: float | None
    most: float | None
    due: float | None
    last: float | None
    host: str | None
    since: float | None
    tried: float | None
    hears: int
    leased: bool
    promised: int = 0
    moved: bool = False
    other: int = 0
    before: float = -math.inf

    def observe(self, time: float, changed: int, hours: HoursOnClock | None, *, periodic: bool) -> None:
        """Count a crawl and what it found, if it is the latest."""
        if self.last is not None and time <= self.last:
            return
        planned = self.due if hours is None or self.due is None else time - hours.span(self.due, time)
        # Gaps that promises decide are those of the rate in the mean.
        own = {"shortest": self.shortest, "made_up": 1.0 if self.promised else MADE_UP}
        due = next_due(self.number, self.rate, planned, time, periodic=periodic, **own)
        if hours is not None and due is not None:
            due = max(hours.later(time, due - time), hours.following(time + self.shortest))
        if not self.moved and self.last is not None:
            self.before = self.last
        self.last, self.due, self.moved = time, due if self.active else None, True
        self.other = int(self.other or changed != UNCHANGED)

    @property
    def shortest(self) -> float:
        """The shortest gap that max_rate allows."""
        return 1.0 / self.most if self.most else 0.0


def record(
    database: Database,
    clock: Clock,
    names: Sequence[str],
    outcomes: Sequence[Outcome],
    settings: PlannerSettings,
) -> int:
    """Record observations, within a transaction; return how many were new."""
    times = [time for time, *_ in outcomes]
    _require_past(database, clock, names, times, settings)
    known = _known(database, names, settings)
    missing = list(dict.fromkeys(repr(name) for name in names if name not in known))
    if missing:
        raise SourceDataError(
            f"there is no source {list_offenders(missing)}. Add it first; nothing was recorded."
        )
    rows = [(known[name].number, *outcome) for name, outcome in zip(names, outcomes, strict=True)]
    new = database.run_many(_INSERT, rows) if len(rows) > 1 else database.run(_INSERT, rows[0])
    if new < len(rows):
        _require_agreement(database, clock, names, rows)
    hours = settings.hours_on(clock)
    for name, (time, changed, *_) in zip(names, outcomes, strict=True):
        known[name].observe(time, changed, hours, periodic=settings.periodic)
    if settings.changed_cost:
        found = [(known[name], changed) for name, (_, changed, *_) in zip(names, outcomes, strict=True)]
        charge(database, settings, [each.number for each, what in found if each.leased and what != UNCHANGED])
    moved = [(each.last, each.due, each.other, each.number) for each in known.values() if each.moved]
    if len(moved) == 1:
        database.run(_UPDATE, moved[0])
    else:
        database.run_many(_UPDATE, moved)
    for each in known.values():
        if each.moved and each.hears:
            follow_rules(database, each.number)
    if settings.promise:
        promised = [each.number for each in known.values() if each.moved and each.promised]
        keep_gaps(database, promised)
        keep_appointments(database, settings, clock, sources=promised)
    back = [each for each in known.values() if each.moved and each.tried is not None]
    if back:
        _wake(database, back)
        plan_early(database, settings)
        new_revision(database)
    return new


def put_off(database: Database, clock: Clock, name: str, time: float, settings: PlannerSettings) -> None:
    """End a failed crawl's lease, and wait, within a transaction."""
    known = _known(database, [name], settings).get(name)
    if known is None:
        raise SourceDataError(f"there is no source {name!r}. Add it first.")
    if known.last is not None and time <= known.last:
        return
    _require_past(database, clock, [name], [time], settings)
    since = time if known.since is None else min(known.since, time)
    if not known.active or not known.rate:
        database.run(_FAIL, (None, since, known.tried, known.number))
        return
    down = is_down(since, known.rate, time)
    ((latest,),) = database.rows("SELECT MAX(last_crawl) FROM source") if down else ((None,),)
    wait = retry_wait(since, known.rate, time, all_silent=down and (latest is None or latest <= since))
    due = time + max(wait, known.shortest)
    database.run(_FAIL, (due, since, 1.0 / wait if down else known.tried, known.number))
    if known.promised:
        keep_appointments(database, settings, clock, time, [known.number], failed=True)
    if down:
        new_revision(database)


def _wake(database: Database, back: Sequence[_Known]) -> None:
    """Try at once what was silent as long as all around it."""
    for host in {None, *(each.host for each in back)}:
        here = "" if host is None else " AND host = ?"
        own = () if host is None else (host,)
        mine = [each for each in back if host in (None, each.host)]
        answered = [each.last or 0.0 for each in mine]
        before = max(each.before for each in mine)
        values = (max(answered), before, min(answered), *own, -math.inf, *own)
        database.run(_WAKE.format(here=here), values)


def outcome_of(
    name: str, time: float, changed: object, changes: object, last_modified: float | None
) -> Outcome:
    """Return a checked observation as the table has it."""
    if isinstance(changed, str) or changed not in (True, False):
        raise SourceDataError(f"changed of {shown(name)} is {shown(changed)}. Pass True or False.")
    many = None
    if changes is not None and changes == changes:
        whole = (
            isinstance(changes, bool | str) or not isinstance(changes, int | float) or changes % 1.0 != 0.0
        )
        if whole or not 0.0 <= changes < math.inf or (changes > 0.0) is not bool(changed):  # type: ignore[operator]
            raise SourceDataError(
                f"changes of {shown(name)} is {shown(changes)}, and changed is {bool(changed)}. Pass a whole "
                "number, above 0 if it had changed."
            )
        many = float(changes)  # type: ignore[arg-type]
    return time, int(bool(changed)), many, last_modified


def outcomes_of(
    clock: Clock,
    names: Sequence[str],
    time: Any,  # noqa: ANN401
    changed: Any,  # noqa: ANN401
    changes: Any,  # noqa: ANN401
    last_modified: Any,  # noqa: ANN401
) -> list[Outcome]:
    """Return several observations, checked, as the table has them."""
    m = len(names)
    moments = clock.numbers(time, "time")
    moments = np.broadcast_to(moments, (m,)) if len(moments) == 1 else moments
    found = np.atleast_1d(np.asarray(changed)).tolist()
    many = [None] * m if changes is None else np.atleast_1d(np.asarray(changes, dtype=object)).tolist()
    dates: list[float | None] = [None] * m
    if last_modified is not None:
        told = read_dates(last_modified, clock.dated, lambda k: f"row {k}")
        if told is not None:
            known = np.flatnonzero(~np.isnat(told) if told.dtype.kind == "M" else ~np.isnan(told))
            dates = [None] * len(told)
            for row, date in zip(
                known.tolist(), clock.numbers(told[known], "last_modified").tolist(), strict=True
            ):
                dates[row] = date
    for key, column in (("time", moments), ("changed", found), ("changes", many), ("last_modified", dates)):
        if len(column) != m:
            raise SourceDataError(f"{key} has {len(column)} values for {m} sources. Pass one each.")
    return [
        (at, UNKNOWN, None, None) if one is None or one != one else outcome_of(name, at, one, times, date)
        for name, at, one, times, date in zip(names, moments.tolist(), found, many, dates, strict=True)
    ]


def date_of(clock: Clock, last_modified: Any) -> float | None:  # noqa: ANN401
    """Return a date of last change, None where it cannot be used."""
    told = None if last_modified is None else [last_modified]
    found = None if told is None else read_dates(told, clock.dated, lambda _: "this crawl")
    return None if found is None else clock.number(found[0], "last_modified")


def _known(database: Database, names: Sequence[str], settings: PlannerSettings) -> dict[str, _Known]:
    """Return the sources of these names that there are."""
    own = f"{_SOURCE}, {_OF_PROMISES}" if settings.promise else _SOURCE
    sql = f"SELECT name, {own} FROM source WHERE name IN ({{marks}}) ORDER BY id"
    return {name: _Known(*row) for name, *row in database.rows_among(sql, sorted(set(names)))}


def _require_past(
    database: Database, clock: Clock, names: Sequence[str], times: Sequence[float], settings: PlannerSettings
) -> None:
    """Raise if a crawl is said to be in the future.

    Numbers have no present but the latest moment that hand-outs were told; a crawl may follow it by the time
    of a lease. Before the first hand-out any number is taken.
    """
    dated = clock.dated
    if dated and not clock.is_ahead(max(times), clock.wall()):
        return
    # A planner may be told that it is later than this machine's clock says, as in a simulation.
    now = max(latest_now(database), clock.wall()) if dated else latest_now(database)
    lent = 0.0 if dated else settings.lease
    if now == -math.inf:
        return
    for name, time in zip(names, times, strict=True):
        if clock.is_ahead(time, now + lent):
            far = "a day" if dated else "a day and a lease"
            remedy = "the clock" if dated else "ask first what is due at that time"
            raise SourceDataError(
                f"time of {shown(name)} is {clock.moment(time)}, more than {far} ahead of now, "
                f"{clock.moment(now)}. Correct it, or {remedy}."
            )


def _require_agreement(
    database: Database,
    clock: Clock,
    names: Sequence[str],
    rows: Sequence[tuple[int, float, int, float | None, float | None]],
) -> None:
    """Raise if an observation contradicts one of its source and time."""
    sql = "SELECT changed, changes FROM observation WHERE source = ? AND time = ?"
    for name, (number, time, changed, changes, _) in zip(names, rows, strict=True):
        for before, counted in database.rows(sql, (number, time)):
            if before != changed or (None not in (counted, changes) and counted != changes):
                raise SourceDataError(
                    f"the crawl of {shown(name)} at {clock.moment(time)} is recorded as "
                    f"{_word(before, counted)}, and now reported as {_word(changed, changes)}. Report each "
                    "crawl once, or with the same outcome; nothing was recorded."
                )


def _word(changed: int, changes: float | None) -> str:
    word = {1: "changed", 0: "unchanged"}.get(changed, "not known to be changed or not")
    return word if changes is None else f"{word} ({changes:g} changes)"
