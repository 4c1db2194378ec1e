"""`Report`: what became of a visit.

Several are recorded at once, all or none. Those that say no more than whether a source had changed are
written together, others one by one, in the order in which they are reported. What answers tell of how often
they may be asked is heeded with them.

What a crawl saw, an ETag or a digest, is kept; a crawl that sees another is a change. It is read and written
in the transaction that records the observation, so that no change is counted twice or lost. Where it is not
known what the crawl before saw, nothing is known of the gap between them: that crawl is no evidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

from freshopt.errors import SourceDataError, shown
from freshopt.live.database import Database
from freshopt.live.pace import Answered, heed
from freshopt.live.recording import Outcome, date_of, outcome_of, put_off, record
from freshopt.live.settings import PlannerSettings
from freshopt.live.source_rows import check_name
from freshopt.logs.clock import Clock
from freshopt.logs.row_outcomes import UNKNOWN


class Report(NamedTuple):
    """What became of one visit.

    - `time` float, datetime or str: When it was crawled.
    - `changed`, `content`, `changes`, `last_modified`: As `Planner.observed` takes them.
    - `failed`: Whether nothing was found, as `Planner.failed` records it; then no outcome is told.
    - `answered`: What the server's answer told of how often it may be asked.
    """

    source: str
    time: Any
    changed: bool | None = None
    content: str | None = None
    changes: float | None = None
    last_modified: Any = None
    failed: bool = False
    answered: Answered = Answered()

    def read(self) -> Report:
        """Return the report with what its status says.

        304 is no change; any but 2xx and 3xx is a failure.
        """
        status = self.answered.get("status")
        if status is None:
            return self
        if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 999:
            raise SourceDataError(
                f"status of {shown(self.source)} is {shown(status)}. Pass one of HTTP's, such as 200."
            )
        if not 200 <= status <= 399:
            return self._replace(failed=True)
        unchanged = status == 304 and self.changed is None and self.content is None
        return self._replace(changed=False) if unchanged else self


def _is_plain(report: Report) -> bool:
    """Return whether a report can be written together with others."""
    return not report.failed and report.content is None and not report.answered


def record_reports(
    database: Database, clock: Clock, settings: PlannerSettings, reports: Iterable[Report]
) -> int:
    """Record reports, within a transaction; return how many were new."""
    new = 0
    for plain, some in groupby(reports, key=_is_plain):
        if plain:
            own = list(some)
            names = [check_name(each.source) for each in own]
            outcomes = [
                _outcome(database, clock, each, name, clock.number(each.time, "time"))
                for each, name in zip(own, names, strict=True)
            ]
            new += record(database, clock, names, outcomes, settings)
        else:
            new += sum(_record_one(database, clock, settings, each.read()) for each in some)
    return new


def _record_one(database: Database, clock: Clock, settings: PlannerSettings, report: Report) -> bool:
    """Record a failure, what a crawl saw, or what its answer told."""
    name, time = check_name(report.source), clock.number(report.time, "time")
    rows = database.rows("SELECT silent_since IS NULL FROM source WHERE name = ?", (name,))
    if report.failed:
        told = (report.changed, report.content, report.changes, report.last_modified)
        if any(each is not None for each in told):
            raise SourceDataError(
                f"the report of {shown(name)} has failed and has an outcome. Leave one out."
            )
        put_off(database, clock, name, time, settings)
        new = True
    else:
        outcome = _outcome(database, clock, report, name, time)
        new = record(database, clock, [name], [outcome], settings) == 1
    if new and report.content is not None:
        database.run("UPDATE source SET content = ? WHERE name = ?", (report.content, name))
    # An answer that is told twice slows nobody twice.
    if new and any(each is not None for each in report.answered.values()):
        heed(database, settings, name, time, report.answered, first=bool(rows[0][0]))
    return new


def _outcome(database: Database, clock: Clock, report: Report, name: str, time: float) -> Outcome:
    """Return what a crawl found, as told or by what it saw.

    A first crawl sees nothing else than the one before; the same crawl reported again is told as it was
    recorded.
    """
    date = date_of(clock, report.last_modified)
    if report.content is None:
        return outcome_of(name, time, report.changed, report.changes, date)
    _check_content(name, report.changed, report.content)
    rows = database.rows("SELECT id, content, last_crawl FROM source WHERE name = ?", (name,))
    if not rows:
        raise SourceDataError(f"there is no source {name!r}. Add it first; nothing was recorded.")
    number, before, last = rows[0]
    recorded = database.rows("SELECT changed FROM observation WHERE source = ? AND time = ?", (number, time))
    if not recorded and last is not None and time < last:
        raise SourceDataError(
            f"the crawl of {shown(name)} at {clock.moment(time)} came before one that is recorded, at "
            f"{clock.moment(last)}: its content cannot be compared any more. Report crawls in their order, "
            "or with changed."
        )
    if recorded:
        changed = recorded[0][0]
    elif before is None and last is not None:
        changed = UNKNOWN
    else:
        changed = int(before is not None and before != report.content)
    if changed == UNKNOWN:
        return time, UNKNOWN, None, None
    return outcome_of(name, time, changed == 1, report.changes, date)


# Characters; an ETag or a digest has fewer than a hundred.
LONGEST = 1000


def _check_content(name: str, changed: object, content: object) -> None:
    """Raise unless what a crawl saw is a short text, told alone."""
    if changed is not None:
        raise SourceDataError(f"changed and content of {shown(name)} are both given. Pass one of them.")
    if not isinstance(content, str) or not 0 < len(content) <= LONGEST or "\0" in content:
        raise SourceDataError(
            f"content of {shown(name)} is {shown(content)}. Pass a text of 1 to {LONGEST} characters, such "
            "as an ETag or a digest."
        )
