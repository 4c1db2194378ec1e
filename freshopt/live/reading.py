"""What a planner knows, read from its database: log, certificate, status, table."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from threading import RLock
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from freshopt.certificates.solution import Answer, Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution, run_solver
from freshopt.errors import FreshoptError, SourceDataError
from freshopt.heavy import polars
from freshopt.live.database import IN_FORCE, Database
from freshopt.live.due_times import promises_in_words
from freshopt.live.featured import features_in_words
from freshopt.live.hand_out import FREE, latest_now, next_hand_out, next_turn, read_bucket
from freshopt.live.planning import LivePlan
from freshopt.live.rates import InForce, problem_of, usage
from freshopt.live.settings import PlannerSettings
from freshopt.live.signals import in_force, signals_in_words
from freshopt.live.source_table import SourceTable
from freshopt.live.state import PlannerState
from freshopt.live.status import PlannerStatus
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.fetches.conditional_fetches import with_numerics
from freshopt.modelling.objective import value_at
from freshopt.modelling.problem import Problem
from freshopt.noisy_signals.with_signals import follows_signals, stale_with_signals
from freshopt.numerics.arrays import Array, total
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.solvers.proportional import shared_rates
from freshopt.solvers.square_root import square_root_shape


@dataclass(frozen=True, slots=True)
class RatesInForce:
    """Rates of a live plan as a solver's answer, to be certified."""

    answer: Answer
    sampled: ClassVar[bool] = True
    conditional_fetches: ClassVar[bool] = True

    def __repr__(self) -> str:
        """Return the name alone."""
        return "RatesInForce()"

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002 - of the protocol
        """Return None: rates can be certified for any problem."""
        return None

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Return the rates in force with their certificate."""
        return certified_solution(self, problem, options, lambda *_: self.answer)


class PlannerKnowledge:
    """What a planner knows, read from its database."""

    _lock: RLock
    _state: PlannerState
    _database: Database
    _plan: LivePlan

    def __repr__(self) -> str:
        """Return the place and the number of sources."""
        try:
            settings = self.settings
        except FreshoptError:
            return f"Planner({self._database.place}, closed)"
        return (
            f"Planner({self._database.place}, {len(self)} sources, {settings.bandwidth:g} refreshes per "
            f"{settings.time_unit})"
        )

    def __len__(self) -> int:
        """Return the number of sources."""
        with self._lock:
            return int(self._database.rows("SELECT COUNT(*) FROM source WHERE active = 1")[0][0])

    def __contains__(self, source: object) -> bool:
        """Return whether a source is planned for."""
        with self._lock:
            sql = "SELECT 1 FROM source WHERE name = ? AND active = 1"
            return isinstance(source, str) and bool(self._database.rows(sql, (source,)))

    @property
    def settings(self) -> PlannerSettings:
        """The settings in force."""
        with self._lock:
            return self._state.settings()

    def log(self) -> CrawlLog:
        """Return everything observed, also of removed sources, as a log.

        Raises
        ------
        SourceDataError
            If nothing was observed.
        """
        with self._lock:
            clock = self._state.known_clock()
            names: dict[int, str] = dict(self._database.rows("SELECT id, name FROM source"))
            log = None if clock is None else self._plan.evidence().log(clock, names=names)
        if log is None:
            raise SourceDataError("nothing was observed yet. Record what crawls find first.")
        return log

    def solution(self) -> Solution:
        """Return the rates in force, certified for the estimates in force.

        Raises
        ------
        SourceDataError
            If there is no plan yet.
        """
        with self._lock:
            settings, record = self._state.settings(), self._plan.record()
            found = _certified_in_force(self._database, settings, record, _planned(self._database))
        if found is None:
            raise SourceDataError("there is no plan yet. Add sources, and ask what is due.")
        return found

    def status(self, now: Any = None) -> PlannerStatus:  # noqa: ANN401 - a time
        """Return the state of the planner, with the certificate in force.

        Parameters
        ----------
        now : float, datetime or str, optional
            For what is due and handed out; by default the latest moment that the planner was told, or that
            of this machine.
        """
        with self._lock:
            clock = self._state.known_clock()
            moment = None
            if now is not None or (clock is not None and clock.dated):
                clock, moment = self._state.now(now)
            return status_of(self._database, self._state.settings(), self._plan.record(), clock, moment)

    def next_due(self, now: Any = None) -> float | datetime | None:  # noqa: ANN401 - a time
        """Return when something can be handed out next, or None.

        None if nothing is planned; it may lie before `now`. A loop can wait so long.
        """
        with self._lock:
            clock, moment = self._state.now(now)
            found = next_hand_out(self._database, self._state.settings(), moment, clock)
            return _moment(clock, found)

    def next_turn(self, now: Any, due: Any) -> float | datetime | None:  # noqa: ANN401 - times
        """Return when a host is free for what was `due` then."""
        with self._lock:
            clock, moment = self._state.now(now)
            found = next_turn(self._database, self._state.settings(), moment, clock.number(due, "due"))
            return _moment(clock, found)

    def to_frame(self) -> polars.DataFrame:
        """Return a polars table of the sources and what is in force.

        Columns are source, importance, change_rate, rate, interval, last_crawl and next_due, null before.
        """
        with self._lock:
            table = SourceTable.read(self._database)
            said = partial(_said, self._state.known_clock())
        with np.errstate(divide="ignore"):
            interval = np.where(table.rate > 0.0, 1.0 / table.rate, np.nan)
        columns = {
            "source": polars.Series(table.name.tolist(), dtype=polars.String),
            "importance": table.importance,
            "change_rate": table.change_rate,
            "rate": table.rate,
            "interval": interval,
            "last_crawl": said(table.last_crawl),
            "next_due": said(table.next_due),
        }
        return polars.DataFrame(columns).with_columns(polars.selectors.float().fill_nan(None))


def _certified_in_force(
    database: Database, settings: PlannerSettings, record: InForce, table: SourceTable
) -> Solution | None:
    """Return the rates in force, certified; None without a plan.

    Rates that earlier settings, sources or observations made smaller than what explores now stay feasible.
    """
    if record.price is None or not len(table):
        return None
    known, settings = _crawled_twice(database, table), in_force(database, settings, table)
    settings = replace(settings, host_paces=record.host_paces or {})
    problem = problem_of(table, table.change_rate, known, settings, named=True, least=table.rate)
    hosts = {host: (record.host_prices or {}).get(host, 0.0) for host in problem.hosts.names}
    _, used = with_numerics(problem, table.rate)
    rates = RatesInForce(Answer(used, price=record.price, host_prices=hosts or None))
    return run_solver(rates, problem, SolveOptions(tolerance=settings.gap_limit))


def _planned(database: Database) -> SourceTable:
    """Return the sources that have a rate in force."""
    return SourceTable.read(database, "AND rate IS NOT NULL")


def status_of(
    database: Database,
    settings: PlannerSettings,
    record: InForce,
    clock: Clock | None,
    now: float | None,
) -> PlannerStatus:
    """Return the state of a planner."""
    moment = latest_now(database) if now is None else now
    ((sources, never, used, least, most),) = database.rows(
        f"SELECT COUNT(*), COUNT(*) - COUNT(last_crawl), SUM(refresh_cost * {IN_FORCE}), MIN(refresh_cost), "
        "MAX(refresh_cost) FROM source WHERE active = 1"
    )
    ((due, leased),) = database.rows(
        f"SELECT SUM(CASE WHEN {FREE} THEN 1 ELSE 0 END), "
        "SUM(CASE WHEN lease_until > ? THEN 1 ELSE 0 END) FROM source WHERE active = 1",
        (moment, moment, moment, moment),
    )
    ((down,),) = database.rows("SELECT COUNT(tried_rate) FROM source WHERE active = 1")
    ((observations, found),) = database.rows(
        "SELECT COUNT(*), SUM(CASE WHEN changed = 1 THEN 1 ELSE 0 END) FROM observation"
    )
    said, updated = partial(_moment, clock), record.updated
    later = None if updated is None else updated + settings.update
    replan = None if record.planned is None else record.planned + settings.replan
    table = _planned(database)
    freshness, simple = _freshness(table, in_force(database, settings, table))
    bucket = read_bucket(database)
    if settings.changed_cost:
        used = total(usage(table, table.change_rate, settings)(table.rate))
    outdated = record.due and record.price is not None
    proof = None
    if not outdated:
        solution = _certified_in_force(database, settings, record, table)
        proof = None if solution is None else solution.certificate
    objective = settings.objective
    return PlannerStatus(
        place=database.place,
        time_unit=settings.time_unit,
        sources=sources,
        never_crawled=never,
        due=due or 0,
        leased=leased or 0,
        down=down,
        observations=observations,
        changes_found=found or 0,
        bandwidth=settings.bandwidth,
        used=float(used or 0.0),
        unused=0.0 if bucket is None else bucket.unused,
        burst=settings.burst,
        counted=(least, most) == (1.0, 1.0) and not settings.changed_cost,
        price=record.price,
        objective=repr(objective),
        kind=type(objective).__name__,
        maximised=objective.sense == "maximise",
        refresh=objective.refresh.value,
        unplanned=sources - len(table),
        value=math.nan if proof is None else proof.value,
        bound=math.nan if proof is None else proof.bound,
        relative_gap=math.inf if proof is None else proof.relative_gap,
        infeasibility=0.0 if proof is None else proof.infeasibility,
        freshness=freshness,
        simple=simple,
        next_due=said(next_hand_out(database, settings, moment, clock)),
        planned=said(record.planned),
        updated=said(updated),
        next_update=said(later),
        next_replan=said(replan),
        solves=record.solves,
        outdated=outdated,
        slowed=len(record.host_paces or {}),
        signals=signals_in_words(database),
        features=features_in_words(database),
        promises=promises_in_words(database) if settings.promise else (),
    )


def _moment(clock: Clock | None, number: float | None) -> float | datetime | None:
    """Return a moment as the planner's user writes it, None for none."""
    return None if number is None or clock is None else clock.moment(number)


def _said(clock: Clock | None, numbers: Array) -> Any:  # noqa: ANN401 - a column
    """Return a column of moments as the planner's user writes them."""
    if clock is None or not clock.dated:
        return numbers
    return [None if math.isnan(each) else clock.moment(each) for each in numbers.tolist()]


def _freshness(table: SourceTable, settings: PlannerSettings) -> tuple[float, dict[str, float]]:
    """Return the expected share of fresh time, and simple rules'."""
    weight = total(table.importance)
    if not weight > 0.0:
        return math.nan, {}
    every = np.ones(len(table), dtype=np.bool_)
    own = replace(settings, objective=BinaryFreshness(settings.objective.refresh), explore=0.0)
    free = replace(table, min_rate=np.zeros(len(table)))
    problem = problem_of(
        free, table.change_rate, every, replace(own, host_limits={}, host_gap=0.0, promise=())
    )
    bounded = problem_of(table, table.change_rate, every, own)
    if (problem.per_bandwidth or problem).numerics is None:
        return math.nan, {}

    def share_fresh(rate: Array) -> float:
        own, used = with_numerics(problem, rate)
        assert own.numerics is not None, "every cell of freshness has a kernel"
        cost = total(own.numerics.cost(used))
        return value_at(own.objective, own.numerics, own.sources, used, cost) / weight

    shapes = {
        "uniform": np.ones(len(table)),
        "proportional": table.change_rate,
        "square-root": square_root_shape(bounded.sources),
    }
    rates = {rule: shared_rates(bounded, shape) for rule, shape in shapes.items()}
    if follows_signals(settings.objective):
        stale = stale_with_signals(settings.objective, table.rate, problem.sources)
        fresh = 1.0 - total(problem.sources.importance * stale) / weight
    else:
        fresh = share_fresh(table.rate)
    return fresh, {rule: share_fresh(rate) for rule, rate in rates.items() if rate is not None}


def _crawled_twice(database: Database, table: SourceTable) -> npt.NDArray[np.bool_]:
    """Return which sources have two observations or more."""
    rows = database.rows("SELECT source FROM observation GROUP BY source HAVING COUNT(*) > 1")
    return np.isin(table.id, np.array([number for (number,) in rows], dtype=np.int64))
