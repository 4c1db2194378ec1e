"""`PlannerState`: a planner's database, opened, with its settings and its clock."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError, expect, shown
from freshopt.live.database import Database, keep, kept, new_revision, require_schema
from freshopt.live.due_times import PROMISED
from freshopt.live.featured import told_features
from freshopt.live.hand_out import keep_bucket, read_bucket
from freshopt.live.pace import forget_ages
from freshopt.live.postgres_store import PostgresStore
from freshopt.live.rates import InForce
from freshopt.live.settings import BY_SOURCE, PlannerSettings, settings_from, with_burst
from freshopt.live.signals import require_no_signals
from freshopt.live.source_rows import require_room
from freshopt.live.source_table import CHANGED_COST, forget_column, keep_columns, require_values, told_columns
from freshopt.live.sqlite_store import SqliteStore
from freshopt.logs.clock import Clock
from freshopt.tools.live_planner import SCHEMA
from freshopt.units import Time

_ADDRESSES = ("postgresql://", "postgres://")


class PlannerState:
    """Opened database of a planner, which nothing changes before `begin`."""

    def __init__(self, place: object, given: Mapping[str, Any], *, durable: bool) -> None:
        if not isinstance(place, str | os.PathLike) or not str(place):
            raise SourceDataError(f"the planner's place is {shown(place)}. Pass a folder.")
        expect(durable, (bool, np.bool_), "durable", "Pass True or False")
        columns, cost = given.get("source_columns"), given.get(CHANGED_COST)
        self._columns = {} if columns is None else told_columns(columns)
        if isinstance(cost, Mapping) or hasattr(cost, "columns"):
            told = told_columns({CHANGED_COST: cost} if isinstance(cost, Mapping) else cost)
            self._columns |= {CHANGED_COST: told.get(CHANGED_COST, {})}
            given = {**given, CHANGED_COST: None}
        if CHANGED_COST in self._columns:
            if given.get(CHANGED_COST) is not None:
                raise SourceDataError("changed_cost is told for all sources, and for each. Pass one of them.")
            given = {**given, CHANGED_COST: BY_SOURCE}
        create = given["bandwidth"] is not None
        if create:
            settings_from(None, given, "")
        features = given.get("features")
        self._columns |= {} if features is None else told_features(features)
        self._objective = given.get("objective")
        self._settings: tuple[str, PlannerSettings] | None = None
        self._clock: Clock | None = None
        self._given = given
        self.database = _opened(place, create=create, durable=durable)

    def settings(self, burst: Time | None = None) -> PlannerSettings:
        """Return the settings in force, with this burst if it is shorter."""
        text = kept(self.database, "settings")
        if text is None:
            raise SourceDataError(f"the planner in {self.database.place} has lost its settings.")
        if self._settings is None or self._settings[0] != text:
            given = {"objective": self._objective}
            self._settings = text, settings_from(text, given, self.database.place)
        found = self._settings[1]
        if found.has_appointments:
            found = replace(found, appointed=float(kept(self.database, "appointed") or 0.0))
        return found if burst is None else with_burst(found, burst)

    def known_clock(self) -> Clock | None:
        """Return the clock, None before any time was told."""
        text = kept(self.database, "clock") if self._clock is None else None
        if text is not None:
            self._clock = Clock.from_text(text)
        return self._clock

    def clock(self, times: Any) -> Clock:  # noqa: ANN401 - times as people write them
        """Return the clock, begun by these times if there is none."""
        found = self.known_clock()
        if found is not None:
            return found
        clock = Clock.beginning(self.settings().time_unit, times)
        with self.database.transaction():
            found = self.known_clock()
            if found is None:
                keep(self.database, "clock", str(clock))
        return found or clock

    def now(self, now: Any) -> tuple[Clock, float]:  # noqa: ANN401 - a time
        """Return the clock and the moment, by default this machine's."""
        clock = self.clock(datetime.now(UTC) if now is None else now)
        if now is not None:
            return clock, clock.number(now, "now")
        if not clock.dated:
            raise SourceDataError(
                f"now is missing, and this planner counts {clock.unit}s in numbers. Pass it."
            )
        return clock, clock.wall()

    def begin(self) -> None:
        """Create the tables if there are none; keep new settings."""
        database, given = self.database, self._given
        known = database.has_planner()
        if not known and given["bandwidth"] is None:
            raise SourceDataError(
                f'there is no planner in {database.place}. Pass bandwidth=, such as "200/day", to begin one.'
            )
        if known:
            require_schema(database)
            text = kept(database, "settings")
            if settings_from(text, given, database.place).to_text() == text and not self._columns:
                return
        with database.transaction():
            if not database.has_planner():
                database.create()
                keep(database, "schema", str(SCHEMA))
            new = keep_columns(database, self._columns)
            require_values(database)
            text = kept(database, "settings")
            settings = settings_from(text, given, database.place)
            if settings.to_text() == text and not new:
                return
            require_no_signals(database, settings)
            if not math.isnan(settings.changed_cost):
                forget_column(database, CHANGED_COST)
            if settings.promise:
                database.run(PROMISED)
            if settings.promise or (text is not None and json.loads(text).get("promise")):
                # None are kept until they are planned for; what answers tell gives way to them.
                forget_ages(database)
                database.run("DELETE FROM promised")
                keep(database, "appointed", "0.0")
                keep(database, "promises", "[]")
            require_room(database, settings)
            keep(database, "settings", settings.to_text())
            # What is in force was planned for other settings: the next hand-out plans anew.
            plan = kept(database, "plan")
            if plan is not None:
                keep(database, "plan", replace(InForce.from_text(plan), due=True).to_text())
            bucket = read_bucket(database)
            if bucket is not None:
                keep_bucket(database, replace(bucket, used=0.0, lost=0.0))
            new_revision(database)


def _opened(place: str | os.PathLike[str], *, create: bool, durable: bool) -> Database:
    """Return the database of a place."""
    address = str(place)
    if address.startswith(_ADDRESSES):
        return PostgresStore(address, durable=durable)
    if "://" in address:
        raise SourceDataError(
            f"{shown(address)} is no address of a database that a planner knows. Pass a folder, or "
            "postgresql://..."
        )
    return SqliteStore(Path(place), create=create, durable=durable)
