"""Signals of a live planner: recorded once each, learnt from, acted upon.

What signals tell is learnt at every full re-solve from all crawls and all signals so far, pooled by host,
and change rates with it; each source then has its rule at the price in force. A source is due when the time
since its last crawl, and its bonus for each signal since, reach the threshold (freshness), when the wait for
so many signals is over (delay, harmonic staleness), or when a copy is expected to be so old (age): a signal
brings it forward, and no further than the bandwidth, its max_rate and the turns of its host let it come.

The tables are made with the first signal; a planner without signals has none of them.

Cost: five statements a signal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError, shown
from freshopt.estimators.features.feature_priors import FeaturePriors
from freshopt.formatting import percent
from freshopt.live.database import Database, keep, kept
from freshopt.live.evidence import Evidence
from freshopt.live.settings import PlannerSettings
from freshopt.live.source_table import SourceTable
from freshopt.logs.clock import Clock
from freshopt.modelling.sources import Sources
from freshopt.noisy_signals.age_thresholds import AgeThresholds, due_after
from freshopt.noisy_signals.pooled_signals import PooledSignals
from freshopt.noisy_signals.signal_table import UNNAMED, SignalTable
from freshopt.noisy_signals.signal_thresholds import SignalThresholds
from freshopt.noisy_signals.signal_waits import SignalWaits
from freshopt.noisy_signals.with_signals import quality_of, require_signals, rule_of, with_signals
from freshopt.numerics.arrays import Array, total

# Characters of a kind at most: a feed's address, say.
LONGEST = 200
_TABLES = (
    "CREATE TABLE IF NOT EXISTS signal (source BIGINT NOT NULL REFERENCES source (id), "
    "time DOUBLE PRECISION NOT NULL, kind TEXT NOT NULL, PRIMARY KEY (source, time, kind))",
    "CREATE TABLE IF NOT EXISTS signal_rule (source BIGINT PRIMARY KEY REFERENCES source (id), "
    "recall DOUBLE PRECISION NOT NULL, precise DOUBLE PRECISION NOT NULL, "
    "threshold DOUBLE PRECISION NOT NULL, bonus DOUBLE PRECISION NOT NULL, heard INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS signal_wait (source BIGINT NOT NULL REFERENCES source (id), "
    "heard INTEGER NOT NULL, wait DOUBLE PRECISION NOT NULL, PRIMARY KEY (source, heard))",
    "CREATE TABLE IF NOT EXISTS silent_kind (kind TEXT PRIMARY KEY)",
)
_COUNT = (
    "UPDATE signal_rule SET heard = (SELECT COUNT(DISTINCT time) FROM signal WHERE signal.source = "
    "signal_rule.source AND kind NOT IN (SELECT kind FROM silent_kind) AND time > "
    "(SELECT last_crawl FROM source WHERE id = signal_rule.source))"
)
# A source that fails waits for its next try.
_DUE = (
    "UPDATE source SET next_due = (SELECT source.last_crawl + COALESCE((SELECT wait FROM signal_wait WHERE "
    "signal_wait.source = source.id AND signal_wait.heard = signal_rule.heard), threshold - heard * bonus) "
    "FROM signal_rule WHERE signal_rule.source = source.id) WHERE active = 1 AND rate > 0 "
    "AND last_crawl IS NOT NULL AND silent_since IS NULL AND id IN (SELECT source FROM signal_rule)"
)


# Of rules by age, whose threshold is that age, and whose bonus the rate of changes that no signal announces.
_AGES = (
    "SELECT source.id, last_crawl, threshold, bonus, precise FROM signal_rule JOIN source "
    "ON source.id = signal_rule.source WHERE active = 1 AND rate > 0 AND last_crawl IS NOT NULL "
    "AND silent_since IS NULL"
)
_HEARD = (
    "SELECT DISTINCT source, time FROM signal JOIN source AS one ON one.id = source WHERE time > last_crawl "
    "AND kind NOT IN (SELECT kind FROM silent_kind)"
)


@dataclass(frozen=True, slots=True, eq=False)
class LearntSignals:
    """What signals tell; NaN, 0 and 1 of sources never crawled."""

    model: PooledSignals
    change_rate: Array
    recall: Array
    precision: Array


def hears(database: Database) -> bool:
    """Return whether a planner was ever told a signal."""
    return kept(database, "signals") is not None


def _without_signals(settings: PlannerSettings) -> str:
    """Return what signals do not go with; empty if there is none."""
    return "promise" if settings.promise else "changed_cost" if settings.changed_cost else ""


def require_no_signals(database: Database, settings: PlannerSettings) -> None:
    """Raise if signals were told that settings do not go with."""
    what = _without_signals(settings)
    if what and hears(database):
        raise SourceDataError(
            f"{what} does not go with signals, and this planner was told some. Leave it out, or begin "
            "another planner."
        )


def record_signal(
    database: Database, clock: Clock, name: str, time: float, kind: str | None, settings: PlannerSettings
) -> bool:
    """Record a signal, within a transaction; return whether it is new."""
    require_signals(settings.objective)
    word = UNNAMED if kind is None else kind
    if not isinstance(word, str) or not word or len(word) > LONGEST or "\0" in word:
        raise SourceDataError(f"kind is {shown(kind)}. Pass a short text, such as 'sitemap'.")
    what = _without_signals(settings)
    if what:
        end = "promise='', or --no-promise" if what == "promise" else "changed_cost=0"
        raise SourceDataError(
            f"signals do not go with the {what} of this planner. Leave them out, or open it with {end}."
        )
    if settings.half_life < np.inf:
        raise SourceDataError(
            f"half_life is {settings.half_life:g} {settings.time_unit}s, and with signals all crawls count "
            "alike. Pass half_life=inf."
        )
    if clock.dated and clock.is_ahead(time, clock.wall()):
        raise SourceDataError(
            f"the signal of {shown(name)} is of {clock.moment(time)}, more than a day ahead of now. Correct "
            "it."
        )
    rows = database.rows("SELECT id FROM source WHERE name = ?", (name,))
    if not rows:
        raise SourceDataError(f"there is no source {name!r}. Add it first; no signal was recorded.")
    if not hears(database):
        for statement in _TABLES:
            database.run(statement)
        keep(database, "signals", json.dumps({}))
    ((number,),) = rows
    sql = "INSERT INTO signal (source, time, kind) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    new = database.run(sql, (number, time, word)) > 0
    if new:
        follow_rules(database, number)
    return new


def follow_rules(database: Database, number: int | None = None) -> None:
    """Set when one source, or all, are due by their rules."""
    one = ("", "", ()) if number is None else (" WHERE source = ?", " AND id = ?", (number,))
    database.run(f"{_COUNT}{one[0]}", one[2])
    if not kept(database, "signal_ages"):
        database.run(f"{_DUE}{one[1]}", one[2])
        return
    few = "" if number is None else " AND source.id = ?", "" if number is None else " AND one.id = ?"
    heard: dict[int, list[float]] = {}
    for source, time in database.rows(f"{_HEARD}{few[1]}", one[2]):
        heard.setdefault(source, []).append(time)
    due = []
    for source, last, age, unheard, precise in database.rows(f"{_AGES}{few[0]}", one[2]):
        since = [time - last for time in heard.get(source, [])]
        due.append((last + due_after(since, age, unheard, precise), source))
    database.run_many("UPDATE source SET next_due = ? WHERE id = ?", due)


def learnt_signals(
    database: Database,
    evidence: Evidence,
    table: SourceTable,
    settings: PlannerSettings,
    prior: FeaturePriors | None = None,
) -> LearntSignals | None:
    """Return what all signals so far tell, None without any."""
    log = evidence.log(Clock(settings.time_unit), table.id) if hears(database) else None
    rows = (
        database.rows("SELECT source, time, kind FROM signal ORDER BY source, time")
        if log is not None
        else []
    )
    if log is None or not rows:
        return None
    source, time, kind = zip(*rows, strict=True)
    numbers = np.array(source, dtype=np.int64)
    place = np.minimum(np.searchsorted(log.names, numbers), len(log.names) - 1)
    here = np.flatnonzero(log.names[place] == numbers)
    kinds, codes = np.unique(np.array(kind, dtype=object).astype(str), return_inverse=True)
    given = SignalTable(
        place[here],
        np.array(time, dtype=np.float64)[here],
        codes[here].astype(np.int64),
        tuple(map(str, kinds)),
    )
    at = np.searchsorted(table.id, log.names)
    hosts = np.array([host or "" for host in table.host[at].tolist()])
    model = PooledSignals(given, hosts, prior).fit(log)
    columns = np.full(len(table), np.nan), np.zeros(len(table)), np.ones(len(table))
    for column, own in zip(columns, (model.change_rate_, model.recall_, model.precision_), strict=True):
        column[at] = own
    return LearntSignals(model, *columns)


def in_force(database: Database, settings: PlannerSettings, table: SourceTable) -> PlannerSettings:
    """Return settings whose objective follows the signals that rates in force do."""
    rows = database.rows("SELECT source, recall, precise FROM signal_rule") if hears(database) else []
    if not rows or not len(table):
        return settings
    known = {number: quality for number, *quality in rows}
    recall, precision = np.array([known.get(number, [0.0, 1.0]) for number in table.id.tolist()]).T
    return replace(settings, objective=with_signals(settings.objective, recall, precision))


def keep_kinds(database: Database, model: PooledSignals) -> None:
    """Keep which kinds of signals tell something, and how much."""
    silent = [kind.name for kind in model.kinds_ if not kind.tells]
    database.run("DELETE FROM silent_kind")
    database.run_many("INSERT INTO silent_kind (kind) VALUES (?)", [(name,) for name in silent])
    told: dict[str, Any] = {"left_out": silent}
    if len(model.signals_):
        true = total(model.precision_ * model.signal_rate_)
        told |= {"recall": true / total(model.change_rate_), "precision": true / total(model.signal_rate_)}
    keep(database, "signals", json.dumps(told))


def keep_rules(
    database: Database, table: SourceTable, settings: PlannerSettings, change_rate: Array, rate: Array
) -> None:
    """Keep the rule of rates, and follow it, within a transaction."""
    own = settings.objective
    rule = rule_of(own, rate, Sources(change_rate, time_unit=settings.time_unit))
    database.run("DELETE FROM signal_rule")
    database.run("DELETE FROM signal_wait")
    keep(database, "signal_ages", "yes" if isinstance(rule, AgeThresholds) else "")
    if rule is not None:
        recall, precision = quality_of(own)
        silent = rule.waiting(0.0)
        some = np.flatnonzero((recall > 0.0) & (rate > 0.0) & np.isfinite(silent))
        whole = silent[some]
        # More than the threshold is no more than to be due at once, as with more signals than have a wait.
        bonus = np.minimum(rule.bonus[some], whole) if isinstance(rule, SignalThresholds) else whole
        if isinstance(rule, AgeThresholds):
            whole, bonus = rule.threshold[some], rule.unheard[some]
        if isinstance(rule, SignalWaits):
            row, heard = np.nonzero(rule.waits[some, 1:] > 0.0)
            each = table.id[some][row], heard + 1, rule.waits[some[row], heard + 1]
            listed = zip(*(column.tolist() for column in each), strict=True)
            database.run_many("INSERT INTO signal_wait VALUES (?, ?, ?)", list(listed))
        columns = (table.id[some], recall[some], precision[some], whole, bonus)
        rows = zip(*(column.tolist() for column in columns), [0] * len(some), strict=True)
        database.run_many("INSERT INTO signal_rule VALUES (?, ?, ?, ?, ?, ?)", rows)
    follow_rules(database)


def signals_in_words(database: Database) -> str:
    """Return what signals tell, for the status; empty without any."""
    text = kept(database, "signals")
    if text is None:
        return ""
    told = json.loads(text)
    ((many,),) = database.rows("SELECT COUNT(*) FROM signal")
    parts = [f"{many:,} heard"]
    if "recall" in told:
        parts.append(f"{percent(told['recall'], space=' ')} of the changes announced")
        parts.append(f"{percent(told['precision'], space=' ')} of the signals true")
    if told.get("left_out"):
        parts.append(f"left out, as they say nothing: {', '.join(map(repr, told['left_out']))}")
    return ", ".join(parts)
