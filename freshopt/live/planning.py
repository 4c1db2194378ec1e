"""Bringing a plan up to date: when, and what is written.

Everything is computed outside of transactions, from what was committed, and written in one. What other
processes record meanwhile stays: a new rate rescales the due time that a row has when it is written.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np

from freshopt.estimators.features.feature_priors import FeaturePriors
from freshopt.live.database import IN_FORCE, Database, keep, kept, new_revision
from freshopt.live.due_times import first_due, keep_promised
from freshopt.live.evidence import Evidence
from freshopt.live.featured import features_in, keep_priors, kept_priors, learnt_priors
from freshopt.live.pace import forget_recovered, paces_at
from freshopt.live.rates import (
    MOVED,
    InForce,
    NewRates,
    best_response,
    priced_promises,
    problem_of,
    promised_of,
    updated_rates,
)
from freshopt.live.settings import PlannerSettings
from freshopt.live.signals import LearntSignals, in_force, keep_kinds, keep_rules, learnt_signals
from freshopt.live.source_table import SourceTable, columns_in
from freshopt.logs.clock import Clock
from freshopt.noisy_signals.with_signals import follows_signals, with_signals
from freshopt.numerics.arrays import IntArray, total

# New sources, as a share of those planned, up to which they are given best responses alone.
FEW = 0.01
# Growth of the observations after which the prior is learnt again.
GROWTH = 1.5
_UPDATE = (
    "UPDATE source SET change_rate = ?, rate = ?, next_due = CASE WHEN tried_rate IS NOT NULL THEN next_due "
    "WHEN next_due > ? AND rate > 0 THEN ? + (next_due - ?) * (rate / ?) ELSE COALESCE(next_due, ?) END "
    "WHERE id = ? AND active = 1"
)
_STOP = "UPDATE source SET change_rate = ?, rate = 0, next_due = NULL WHERE id = ? AND active = 1"


class LivePlan:
    """The plan of a planner's database, as this process remembers it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._evidence = Evidence()
        self._table: SourceTable | None = None
        self._revision = ""

    def bring_up_to_date(self, settings: PlannerSettings, now: float) -> None:
        """Plan what is due to be planned, or nothing."""
        record = self.record()
        if record.price is None or record.due or record.planned is None or record.updated is None:
            self.update(settings, now, full=True)
        elif record.early or now >= record.updated + settings.update:
            if self._claimed(record, now):
                self.update(settings, now, full=now >= record.planned + settings.replan)
        else:
            self._place_new(settings, record, now)

    def update(self, settings: PlannerSettings, now: float, *, full: bool) -> None:
        """Update the estimates and rates of all sources."""
        database, record = self._database, self.record()
        revision = kept(database, "revision") or ""
        if self._table is None or revision != self._revision:
            self._table, self._revision = SourceTable.read(database), revision
        elif self._table.columns:  # which may be changed by hand
            own = columns_in(database, self._table.name.tolist())
            self._table = replace(self._table, columns=own)
        observed = self._evidence.read(database)
        if not len(self._table):
            return
        settings = replace(settings.in_open_hours, host_paces=paces_at(database, settings.time_unit, now))
        many = len(self._evidence)
        full = full or many >= GROWTH * max(record.observations, 1)
        features = features_in(database, self._table)
        featured, words = None, ""
        if features is not None and not full:
            featured, unknown = kept_priors(database, self._table, record.prior)
            full = bool(np.any(unknown))
        if features is not None and full:
            featured, words = learnt_priors(features, self._evidence, self._table, settings.time_unit)
        learnt = learnt_signals(database, self._evidence, self._table, settings, featured) if full else None
        if learnt is None:
            settings = in_force(database, settings, self._table)
        else:
            settings = replace(
                settings, objective=with_signals(settings.objective, learnt.recall, learnt.precision)
            )
        heard = follows_signals(settings.objective)
        # Between full re-solves change rates stay that were learnt with the signals.
        known = learnt.change_rate if learnt is not None else self._table.change_rate if heard else None
        given = (self._table, self._evidence, observed, record, settings, now)
        found = updated_rates(*given, full=full, known_rates=known, featured=featured)
        if found.record.solves > record.solves:
            found = replace(found, record=replace(found.record, observations=many))
        self._put_in_force(self._table, found, settings, now, learnt, (featured, words))
        if settings.promise and found.record.solves > record.solves:
            told = priced_promises(self._table, found.change_rate, settings)
            with database.transaction():
                keep(database, "promises", json.dumps(told))
        self._table = replace(self._table, change_rate=found.change_rate, planned_rate=found.rate)

    def record(self) -> InForce:
        """Return what is kept of the plan in force."""
        return InForce.from_text(kept(self._database, "plan"))

    def evidence(self) -> Evidence:
        """Return everything observed so far; updates notice themselves what is new."""
        found = Evidence()
        found.read(self._database)
        return found

    def _claimed(self, before: InForce, now: float) -> bool:
        """Return whether this process is the one that updates."""
        with self._database.transaction():
            record = self.record()
            if record.updated != before.updated:
                return False
            keep(self._database, "plan", replace(record, updated=now, early=False).to_text())
        return True

    def _place_new(self, settings: PlannerSettings, record: InForce, now: float) -> None:
        """Plan the sources that are new, if there are any."""
        database = self._database
        new = SourceTable.read(database, "AND rate IS NULL")
        if not len(new) or record.price is None:
            return
        ((planned, cost),) = database.rows(
            "SELECT COUNT(*), SUM(refresh_cost) FROM source WHERE active = 1 AND rate IS NOT NULL"
        )
        featured, unknown = kept_priors(database, new, record.prior)
        late = record.updated is None or now >= record.updated + settings.update
        if len(new) > FEW * planned or record.prior is None or (late and bool(np.any(unknown))):
            self.update(settings, now, full=False)
            return
        usual = record.prior.shape / record.prior.exposure if featured is None else featured.mean
        change_rate = np.where(np.isnan(new.change_rate), usual, new.change_rate)
        unknown = np.zeros(len(new), dtype=np.bool_)
        settings = replace(settings.in_open_hours, host_paces=record.host_paces or {})
        among = float(cost) + total(new.refresh_cost)
        own = in_force(database, settings, new)
        problem = problem_of(new, change_rate, unknown, own, among=among)
        rate = best_response(problem, record.price, record.host_prices or {})
        found = NewRates(change_rate, rate, ~unknown, record)
        self._put_in_force(new, found, settings, now)

    def _put_in_force(
        self,
        table: SourceTable,
        found: NewRates,
        settings: PlannerSettings,
        now: float,
        learnt: LearntSignals | None = None,
        featured: tuple[FeaturePriors | None, str] = (None, ""),
    ) -> None:
        """Write the rates that moved, and the record."""
        rows: IntArray = np.flatnonzero(found.moved)
        begin = first_due(
            table.id[rows],
            found.rate[rows],
            table.refresh_cost[rows],
            table.last_crawl[rows],
            now,
            settings.bandwidth,
        ).tolist()
        columns = (table.id[rows].tolist(), found.change_rate[rows].tolist(), found.rate[rows].tolist())
        going, stopped = [], []
        for number, change_rate, rate, first in zip(*columns, begin, strict=True):
            if rate > 0.0 and math.isfinite(first):
                going.append((change_rate, rate, now, now, now, rate, first, number))
            else:
                stopped.append((change_rate, number))
        needs = promised_of(table, found.change_rate, settings)
        with self._database.transaction():
            self._database.run_many(_UPDATE, going)
            self._database.run_many(_STOP, stopped)
            keep(self._database, "plan", found.record.to_text())
            forget_recovered(self._database, settings.time_unit, now)
            if featured[1]:
                keep_priors(self._database, *featured)
            if learnt is not None:
                keep_kinds(self._database, learnt.model)
            if learnt is not None or follows_signals(settings.objective):
                keep_rules(self._database, table, settings, found.change_rate, found.rate)
            if settings.promise:
                clock = Clock.from_text(kept(self._database, "clock") or settings.time_unit)
                own = (self._database, settings, clock, table, needs, found.rate)
                keep_promised(*own, now, whole=table is self._table)
            if len(rows):
                new_revision(self._database)
                if kept(self._database, "revision") == str(int(self._revision or 0) + 1):
                    self._revision = str(int(self._revision or 0) + 1)


def plan_early(database: Database, settings: PlannerSettings) -> None:
    """Have the next hand-out plan if rates exceed a limit.

    As where sources answer again whose bandwidth others have. Within a transaction.
    """
    text = kept(database, "plan")
    used: dict[str | None, float] = dict(
        database.rows(
            f"SELECT host, SUM(refresh_cost * {IN_FORCE}) FROM source WHERE active = 1 AND rate IS NOT NULL "
            "GROUP BY host"
        )
    )
    room = 1.0 + MOVED
    over = math.fsum(used.values()) > room * settings.bandwidth or any(
        used.get(host, 0.0) > room * limit for host, limit in settings.host_limits.items()
    )
    if over and text is not None:
        keep(database, "plan", replace(InForce.from_text(text), early=True).to_text())
