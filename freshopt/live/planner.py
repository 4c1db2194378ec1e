"""`Planner`: a plan that is carried out while it is learnt.

Hand out what is due, record what was found, plan again: the loop of a crawler, with its state in a database.
The database is the truth. Every call is one transaction, so that the end of a process at any moment loses
nothing that was acknowledged, and several processes share one plan.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from threading import RLock
from types import TracebackType
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from freshopt.live.hand_out import Visit, hand_back, hand_out
from freshopt.live.pace import Answered, keep_crawl_delay
from freshopt.live.planning import LivePlan
from freshopt.live.reading import PlannerKnowledge
from freshopt.live.recording import outcomes_of, record
from freshopt.live.reports import Report, record_reports
from freshopt.live.settings import PlannerWishes
from freshopt.live.signals import record_signal
from freshopt.live.source_rows import add_rows, check_name, columns_of, remove_rows
from freshopt.live.source_table import columns_beside, keep_columns, kept_names
from freshopt.live.state import PlannerState
from freshopt.numerics.arrays import as_whole
from freshopt.planning.wishes import taking
from freshopt.units import Time, gap_of

# What a source may be told with, beside its name.
_OF_SOURCES = ("importance", "host", "refresh_cost", "min_rate", "max_rate")


class Planner(PlannerKnowledge):
    """Live planner: hands out, records, plans again.

    Parameters
    ----------
    place : str or path
        A folder, which is made if it is not there, or the address of a PostgreSQL database
        (``postgresql://...``, with ``freshopt[postgresql]``), whose schema ``freshopt`` the planner takes.
    bandwidth : float or str, optional
        Refreshes per time unit, or with its unit, such as "200/day". Needed to begin a planner.
    objective : Objective, optional
        By default ``HarmonicStaleness(Refresh.PERIODIC)``. Its discipline decides whether gaps are equal or
        exponential. One of your own is not kept, and is passed at each opening.
    host_limits : mapping of str to float or str, or dataframe, optional
        Bandwidth that a host may take; a table has the columns host, limit.
    replan : float, str or timedelta, optional
        Time between full re-solves, in which the prior is learnt again, "1d" by default.
    update : float, str or timedelta, optional
        Time between updates of the estimates, by default a 24th of `replan`.
    gap_limit : float, optional
        Relative duality gap of the rates in force above which an update solves again, 0.01 by default.
    half_life : float, str or timedelta, optional
        Age at which a crawl counts half, for rates that drift; inf, the default, for never.
    lease : float, str or timedelta, optional
        How long a source that was handed out is given to nobody else, "1h" by default.
    burst : float, str or timedelta, optional
        Time of which the whole bandwidth may be handed out at once, "10min" by default. One that is shorter
        than the time between two calls of `due` leaves bandwidth unused.
    host_gap : float, str or timedelta, optional
        Least time between two hand-outs of one host, such as "2s"; up to half as long again, at random. 0,
        the default, for none.
    explore : float, optional
        Least rate of every source, as a share of equal rates, 0.02 by default: what is never crawled is
        never learnt. Sources crawled less than twice have half an equal rate at least.
    hours : str or sequence of str, optional
        Times of the week at which sources are handed out, on the clock of UTC or of a zone: "workdays
        8:00-20:00 Europe/Berlin", "not 22-6". Gaps are counted in open hours; "" ends it. Of dates alone.
    promise : str or sequence of str, optional
        Promises in the words of `plan`, kept as far as limits allow; "" ends them. Ages are least rates, by
        the change rates learnt at each plan. At moments, of dates alone, copies are as young as that, fetched
        a `burst` before. Without signals.
    changed_cost : number, mapping or dataframe, optional
        What a fetch that finds a change uses beyond refresh_cost, of all or of each source, as of `plan`; 0
        ends it. It is counted when the change is reported. Without signals.
    source_columns : dataframe or mapping, optional
        Columns that an objective of your own reads, as ``sources["size"]``: a dataframe with the column
        source, or a mapping of names to ``{source: value}``. They are kept; what is told again takes their
        place, and a source without a value is refused.
    features : dataframe, path or "url", optional
        What may tell the change rates of sources, as of `plan`: a table with a row a source, those to come
        too, or what their URLs tell. Kept as columns are, and learnt from at each re-solve, once 30 sources
        were crawled twice.
    time_unit : str, optional
        Of the clock: "second", "minute", "hour", "day" (default) or "week".
    durable : bool
        Wait for the disk at every commit. Without it a loss of power may take the last moments; the end of
        the process takes nothing either way.

    Raises
    ------
    SourceDataError
        If a setting cannot be used, the place is something else's, or there is no planner and no bandwidth.
        Nothing is written then.
    FreshoptError
        If another process holds the database for more than 30 s.

    Notes
    -----
    Settings are kept: a planner that is opened again goes on with them, and those that are passed take the
    place of the ones before from the next hand-out on, also in other processes.

    Times are numbers in time units or datetimes, as in a `CrawlLog`: all of one kind. Dates without an offset
    are taken as UTC. A planner of dates takes the present moment where none is passed. Unlike `plan` it
    follows no weekly cycle of changes. Threads may share it; a process that is forked opens its own.

    Examples
    --------
    >>> import freshopt as fo, tempfile
    >>> with fo.Planner(tempfile.mkdtemp(), bandwidth="2/day", burst="1d") as planner:
    ...     planner.add_many(["a", "b"], importance=[2.0, 1.0])
    ...     for day in range(1, 4):
    ...         for visit in planner.due(day):
    ...             _ = planner.observed(visit.source, day, changed=visit.source == "a")
    ...     print(planner.log())
    CrawlLog(5 crawls of 2 sources over 2 days, 2 found a change)
    """

    @taking(PlannerWishes, dict.fromkeys(PlannerWishes.__annotations__))
    def __init__(
        self,
        place: str | os.PathLike[str],
        bandwidth: float | str | None = None,
        *,
        durable: bool = False,
        **wishes: Unpack[PlannerWishes],
    ) -> None:
        self._open(place, {"bandwidth": bandwidth, **wishes}, durable=durable)

    def _open(
        self,
        place: str | os.PathLike[str],
        given: dict[str, Any],
        fill: Callable[[Planner], None] | None = None,
        *,
        durable: bool = False,
    ) -> None:
        """Open the database; keep settings, with all that `fill` does, or nothing."""
        self._lock = RLock()
        self._state = PlannerState(place, given, durable=durable)
        self._database = self._state.database
        self._plan = LivePlan(self._database)
        try:
            with nullcontext() if fill is None else self._database.transaction():
                self._state.begin()
                if fill is not None:
                    fill(self)
        except BaseException:
            self._database.discard()
            raise

    # Sources

    def add(
        self,
        source: str,
        *,
        importance: float | None = None,
        host: str | None = None,
        refresh_cost: float | None = None,
        min_rate: float | str | None = None,
        max_rate: float | str | None = None,
    ) -> None:
        """Add a source, or change one that is there.

        Parameters
        ----------
        source : str
        importance : float, optional
            Weight ≥ 0 in the objective, 1 unless told.
        host : str, optional
            For `host_limits` and `host_gap`; that of a URL unless told.
        refresh_cost : float, optional
            Bandwidth that one refresh uses, > 0, 1 unless told.
        min_rate, max_rate : float or str, optional
            Bounds on its refresh rate. No two hand-outs are nearer than 1/max_rate. Least rates that use up a
            limit, or more than a slowed host's, are lowered alike; sources without have a hundredth of it.

        Raises as `add_many`.
        """
        given = zip(_OF_SOURCES, (importance, host, refresh_cost, min_rate, max_rate), strict=True)
        self.add_many([source], **dict(given))

    def add_many(
        self,
        sources: Any,  # noqa: ANN401 - whatever names sources
        *,
        importance: npt.ArrayLike | None = None,
        host: npt.ArrayLike | None = None,
        refresh_cost: npt.ArrayLike | None = None,
        min_rate: Any = None,  # noqa: ANN401 - rates may be text
        max_rate: Any = None,  # noqa: ANN401
    ) -> None:
        """Add several sources at once, all or none.

        Parameters
        ----------
        sources : sequence of str, dataframe, or Sources
            A dataframe has the column ``source`` and any of those of `add`. Of `Sources` the change rates are
            not used: a planner learns them, and recall and precision of their signals (`signal`). Columns of
            your own are kept as those of `source_columns`.
        importance, host, refresh_cost, min_rate, max_rate : optional
            As in `add`: one for all, or one each.

        Raises
        ------
        SourceDataError
            If a value cannot be used.
        InfeasibleProblemError
            If all least rates together exceed the bandwidth or a host's limit.
        """
        given = dict(zip(_OF_SOURCES, (importance, host, refresh_cost, min_rate, max_rate), strict=True))
        with self._lock:
            settings = self._state.settings()
            columns = columns_of(sources, given, settings.time_unit)
            own = columns_beside(sources, columns["name"], kept_names(self._database))
            with self._database.transaction():
                keep_columns(self._database, own)
                add_rows(self._database, columns, settings)

    def remove(self, *sources: str) -> None:
        """Take sources out of the plan, all or none.

        Their observations are kept. A source that is added again goes on from there.

        Raises
        ------
        SourceDataError
            If one is not there.
        """
        names = [check_name(source) for source in sources]
        with self._lock, self._database.transaction():
            remove_rows(self._database, names)

    # The loop

    def due(
        self,
        now: Any = None,  # noqa: ANN401 - a time
        limit: int | None = 100,
        *,
        burst: Time | None = None,
    ) -> list[Visit]:
        """Return what to crawl next, leased to the caller.

        Plans first what is new or due to be planned again.

        Parameters
        ----------
        now : float, datetime or str, optional
            The present moment; a planner of dates takes that of this machine by default.
        limit : int, optional
            Largest number of sources; None for all that are due and within the bandwidth.
        burst : float, str or timedelta, optional
            Shorter than the planner's, for a loop that asks all the time and never needs more at once.

        Returns
        -------
        list of Visit
            The one whose gap is exceeded by the largest share first. Each has ``source``, ``due``,
            ``until`` and ``last_crawl``.

        Raises
        ------
        SourceDataError
            If `now` is no time, or of another kind than the times before.
        """
        if limit is not None:
            limit = as_whole(limit, "limit", 0, 2**53)
        with self._lock:
            clock, moment = self._state.now(now)
            self._plan.bring_up_to_date(self._state.settings(), moment)
            with self._database.transaction():
                return hand_out(self._database, self._state.settings(burst), clock, moment, limit)

    def observed(
        self,
        source: str,
        time: Any,  # noqa: ANN401 - a time
        changed: bool | None = None,
        *,
        content: str | None = None,
        changes: float | None = None,
        last_modified: Any = None,  # noqa: ANN401
        **answered: Unpack[Answered],
    ) -> bool:
        """Record what a crawl found; committed when it returns.

        Parameters
        ----------
        source : str
            Also one that was removed since.
        time : float, datetime or str
            When it was crawled. Reports may come in any order; the latest crawl says when the source is due
            again.
        changed : bool, optional
            Whether it had changed since its previous crawl; of a first crawl not used.
        content : str, optional
            In its place, what the crawl saw, such as an ETag or a digest: it is kept, and another one at the
            next crawl is a change. Where it is not known what the crawl before saw, nothing is learnt of the
            gap between them.
        changes : float, optional
            How often it had, where that is known.
        last_modified : float, datetime or str, optional
            When it had last changed, as the crawl was told. Dates that contradict a crawl are not used.
        status, retry_after, latency, max_age : optional
            What the server's answer told: its HTTP status (304 is no change, and what is neither 2xx nor 3xx
            has failed), its header Retry-After, the seconds it took, and those for which it stays as it is.
            A host that is asked too often is then asked less for a while.

        Returns
        -------
        bool
            False if the same was recorded before: to report again is safe.

        Raises
        ------
        SourceDataError
            If the source is unknown, a value cannot be used, the time is more than a day ahead of now (of
            numbers: a day and a lease ahead of the latest hand-out), or another outcome of this source and
            time is recorded. Nothing is recorded then.
        """
        told = Report(source, time, changed, content, changes, last_modified, answered=answered)
        return self.report([told]) == 1

    def observed_many(
        self,
        source: Any,  # noqa: ANN401 - text, one each
        time: Any,  # noqa: ANN401
        changed: npt.ArrayLike,
        *,
        changes: npt.ArrayLike | None = None,
        last_modified: Any = None,  # noqa: ANN401
    ) -> int:
        """Record what several crawls found, all or none.

        Parameters
        ----------
        source : array_like of str, shape (m,)
        time : array_like, shape (m,) or ()
        changed : array_like of bool, shape (m,)
            NaN or None where it is not known whether a source had changed.
        changes : array_like of float, shape (m,), optional
            NaN where they are not known.
        last_modified : array_like, shape (m,), optional
            None, NaN or NaT where it was not told.

        Returns
        -------
        int
            How many were new.

        Raises
        ------
        SourceDataError
            As `observed`, or if lengths differ.
        """
        names = [check_name(name) for name in np.asarray(source, dtype=object).reshape(-1).tolist()]
        if not names:
            return 0
        with self._lock:
            clock = self._state.clock(time)
            outcomes = outcomes_of(clock, names, time, changed, changes, last_modified)
            with self._database.transaction():
                return record(self._database, clock, names, outcomes, self._state.settings())

    def signal(self, source: str, time: Any = None, kind: str | None = None) -> bool:  # noqa: ANN401 - a time
        """Record a signal of change; return False if it was known.

        Recall and precision are learnt; a signal then brings its source forward, within all limits.

        Parameters
        ----------
        source : str
        time : float, datetime or str, optional
            When it came; a planner of dates takes the present moment by default.
        kind : str, optional
            Such as "sitemap". A kind that tells nothing is left out.

        Raises
        ------
        SourceDataError, ObjectiveError
            If the source is unknown, a value cannot be used, or the objective is planned for without signals.
        """
        return self.signal_many([(source, time, kind)]) > 0

    def signal_many(self, signals: Iterable[tuple[str, Any, str | None]]) -> int:
        """Record signals, all or none; return how many were new.

        Parameters
        ----------
        signals : iterable of (source, time, kind)
            As `signal` takes them.

        Raises
        ------
        SourceDataError, ObjectiveError
            As `signal`.
        """
        told = [(check_name(source), time, kind) for source, time, kind in signals]
        with self._lock:
            moments = [self._state.now(time) for _, time, _ in told]
            with self._database.transaction():
                settings = self._state.settings()
                return sum(
                    record_signal(self._database, clock, name, moment, kind, settings)
                    for (name, _, kind), (clock, moment) in zip(told, moments, strict=True)
                )

    def failed(self, source: str, time: Any, **answered: Unpack[Answered]) -> None:  # noqa: ANN401 - a time
        """End the lease of a source whose crawl failed.

        It is due again an eighth of a gap later, and from then on after as long as it has been silent since
        its first failure. After four gaps the next update gives others what it leaves, until it answers.
        Nothing is learnt of it. What its server answered, if it did, is as of `observed`.
        """
        self.report([Report(source, time, failed=True, answered=answered)])

    def report(self, reports: Sequence[Report]) -> int:
        """Record what became of several visits, all or none.

        In the order in which they are passed, each as `observed` or `failed` records it, and raises.

        Returns
        -------
        int
            How many were new; to report again is safe.
        """
        if not reports:
            return 0
        check_name(reports[0].source)
        with self._lock:
            clock, settings = self._state.clock(reports[0].time), self._state.settings()
            with self._database.transaction():
                return record_reports(self._database, clock, settings, reports)

    def crawl_delay(self, host: str, delay: Time) -> None:
        """Keep hand-outs of a host apart, as its robots.txt asks.

        Up to half as long again is added, as of `host_gap`. 0 is for none; more than a day is a day.
        """
        with self._lock:
            settings = self._state.settings()
            gap = gap_of("delay", delay, settings.time_unit)
            with self._database.transaction():
                keep_crawl_delay(self._database, settings, check_name(host), gap)

    def release(self, *sources: str) -> int:
        """Hand back sources not crawled; return how many had a lease."""
        names = [check_name(source) for source in sources]
        with self._lock, self._database.transaction():
            return hand_back(self._database, self._state.settings(), names)

    def replan(self, now: Any = None) -> None:  # noqa: ANN401 - a time
        """Learn the prior, estimate all sources and solve, now."""
        with self._lock:
            _, moment = self._state.now(now)
            self._plan.update(self._state.settings(), moment, full=True)

    def close(self) -> None:
        """Close the database; everything acknowledged is in it."""
        self._database.close()

    def __enter__(self) -> Planner:
        """Return the planner."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the database."""
        self.close()


def filled_planner(place: str, wishes: Mapping[str, Any], fill: Callable[[Planner], None]) -> Planner:
    """Return a planner that was filled at its opening, all or nothing."""
    planner = Planner.__new__(Planner)
    planner._open(place, {"bandwidth": None, **wishes}, fill)
    return planner
