"""`Report`: what became of a visit; several are recorded at once, all or none.

Those that say no more than whether a source had changed are written together, others one by one, in the order
in which they are reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

from freshopt.errors import SourceDataError, shown
from freshopt.live.content import check_content, record_content
from freshopt.live.database import Database
from freshopt.live.recording import date_of, outcome_of, put_off, record
from freshopt.live.settings import PlannerSettings
from freshopt.live.source_rows import check_name
from freshopt.logs.clock import Clock


class Report(NamedTuple):
    """What became of one visit.

    Parameters
    ----------
    source : str
    time : float, datetime or str
        When it was crawled.
    changed, content, changes, last_modified : optional
        As `Planner.observed` takes them.
    failed : bool
        Whether nothing was found, as `Planner.failed` records it; then nothing else is told.
    """

    source: str
    time: Any
    changed: bool | None = None
    content: str | None = None
    changes: float | None = None
    last_modified: Any = None
    failed: bool = False

    @property
    def plain(self) -> bool:
        """Whether it can be written together with others."""
        return not self.failed and self.content is None


def record_reports(
    database: Database, clock: Clock, settings: PlannerSettings, reports: Iterable[Report]
) -> int:
    """Record reports, within a transaction; return how many were new.

    A failure is new whenever it is reported.
    """
    new = 0
    for plain, some in groupby(reports, key=lambda report: report.plain):
        if plain:
            own = list(some)
            names = [check_name(each.source) for each in own]
            outcomes = [
                outcome_of(
                    each.source,
                    clock.number(each.time, "time"),
                    each.changed,
                    each.changes,
                    date_of(clock, each.last_modified),
                )
                for each in own
            ]
            new += record(database, clock, names, outcomes, settings)
        else:
            new += sum(_record_one(database, clock, settings, each) for each in some)
    return new


def _record_one(database: Database, clock: Clock, settings: PlannerSettings, report: Report) -> bool:
    """Record a failure, or what a crawl saw."""
    name, time = check_name(report.source), clock.number(report.time, "time")
    if not report.failed:
        content = check_content(name, report.changed, report.content)
        date = date_of(clock, report.last_modified)
        return record_content(database, clock, name, time, content, report.changes, date, settings)
    told = (report.changed, report.content, report.changes, report.last_modified)
    if any(each is not None for each in told):
        raise SourceDataError(f"the report of {shown(name)} has failed and has an outcome. Leave one out.")
    put_off(database, clock, name, time, settings)
    return True
