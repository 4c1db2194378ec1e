"""Sources that come and go: what `Planner.add` takes, row by row.

A source that is removed keeps its row and its observations, and nothing of it is planned; added again it goes
on from its last crawl.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from freshopt.errors import InfeasibleProblemError, SourceDataError, list_offenders, shown
from freshopt.live.database import Database, new_revision
from freshopt.live.pace import own_max_rates
from freshopt.live.settings import PlannerSettings
from freshopt.live.source_table import SourceTable, require_values
from freshopt.logs.source_index import host_of_url
from freshopt.logs.tables import frame_columns
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, label_array, shape_of
from freshopt.questions.promises import promised_rates
from freshopt.scheduling.appointments import Appointed
from freshopt.units import SECONDS, rate_of

# What a source is unless told; None is without limit. That of a URL is at its host.
USUAL: dict[str, Any] = {
    "importance": 1.0,
    "refresh_cost": 1.0,
    "host": None,
    "min_rate": 0.0,
    "max_rate": None,
}
RATES = ("min_rate", "max_rate")
# A bandwidth met but for rounding is met.
ROUNDING = 1e-9


def columns_of(sources: Any, given: Mapping[str, Any], time_unit: str) -> dict[str, list[Any]]:  # noqa: ANN401
    """Return the columns of several sources, names among them.

    - `sources` Sources, dataframe, or sequence of str: `Sources` with names, a dataframe with the column
      ``source`` (or ``name``) and any of those of `Planner.add`, or names alone.
    - `given`: Columns beside: one value for all or one each; None for what is not told.
    - `time_unit`: The planner's.
    """
    if isinstance(sources, Sources):
        columns = _of_sources(sources, time_unit)
    elif hasattr(sources, "columns"):
        key = "source" if "source" in list(sources.columns) else "name"
        frame = frame_columns(sources, "the table of sources", (key,), tuple(USUAL))
        columns = {name: label_array(column).tolist() for name, column in frame.items()}
        columns["name"] = columns.pop(key)
    elif isinstance(sources, str) or not isinstance(sources, Iterable):
        raise SourceDataError(f"sources is {shown(sources)}. Pass several names, or call add for one.")
    else:
        columns = {"name": np.asarray(list(sources), dtype=object).reshape(-1).tolist()}
    n = len(columns["name"])
    for key, value in given.items():
        if value is None:
            continue
        if key in columns:
            raise SourceDataError(f"{key} is given twice, beside the sources and with them. Drop one.")
        own = (
            [value] * n if isinstance(value, str) or not shape_of(value, key) else label_array(value).tolist()
        )
        if len(own) != n:
            raise SourceDataError(f"{key} has {len(own)} values for {n} sources. Pass one each.")
        columns[key] = own
    for key in (each for each in RATES if each in columns):
        columns[key] = [
            value if value is None else rate_of(f"{key} of {name!r}", value, time_unit)
            for name, value in zip(columns["name"], columns[key], strict=True)
        ]
    _require_values(columns)
    return columns


def add_rows(database: Database, columns: Mapping[str, list[Any]], settings: PlannerSettings) -> None:
    """Add or change sources, within a transaction."""
    told = [key for key in USUAL if key in columns]
    values = {key: columns.get(key, [usual] * len(columns["name"])) for key, usual in USUAL.items()}
    if "host" not in columns:
        values["host"] = [host_of_url(name) for name in columns["name"]]
    changes = "".join(f", {key} = excluded.{key}" for key in told)
    database.run_many(
        "INSERT INTO source (name, active, importance, refresh_cost, host, min_rate, max_rate) "
        f"VALUES (?, 1, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET active = 1{changes}",
        zip(columns["name"], *values.values(), strict=True),
    )
    sql = "SELECT name FROM source WHERE min_rate > max_rate AND name IN ({marks}) ORDER BY id"
    crossed = database.rows_among(sql, columns["name"])
    if crossed:
        who = list_offenders(repr(name) for (name,) in crossed)
        raise SourceDataError(f"min_rate exceeds max_rate for {who}. Swap or widen them.")
    require_values(database, columns["name"])
    # Sources without a least rate need no room, and a pass over all is not cheap.
    lowered = "min_rate" in columns and not any(columns["min_rate"])
    if settings.promise or (
        not lowered and ("min_rate" in columns or "refresh_cost" in columns or "host" in columns)
    ):
        require_room(database, settings)
    new_revision(database)


def remove_rows(database: Database, names: list[str]) -> None:
    """Take sources out of the plan, within a transaction."""
    unknown = []
    for name in names:
        sql = (
            "UPDATE source SET active = 0, rate = NULL, next_due = NULL, lease_until = NULL, "
            "silent_since = NULL, tried_rate = NULL WHERE name = ? AND active = 1"
        )
        if database.run(sql, (name,)) == 0:
            unknown.append(repr(name))
    if unknown:
        raise SourceDataError(f"there is no source {list_offenders(unknown)}. Nothing was removed.")
    new_revision(database)


def require_room(database: Database, settings: PlannerSettings) -> None:
    """Raise if least rates exceed the bandwidth or a host's limit."""
    used = database.rows(
        "SELECT host, SUM(refresh_cost * min_rate), MIN(refresh_cost) FROM source WHERE active = 1 "
        "GROUP BY host HAVING SUM(min_rate) > 0"
    )
    why = "min_rate"
    if settings.promise:
        used, why = _with_promises(database, settings), "min_rate and promises"
    need = math.fsum(each for _, each, _ in used)
    unit = settings.time_unit
    if need > settings.bandwidth * (1.0 + ROUNDING):
        raise InfeasibleProblemError(
            f"the sources' {why} need {need:.6g} refreshes per {unit} but bandwidth is "
            f"{settings.bandwidth:.6g}. Raise the bandwidth or lower {why}."
        )
    for host, each, cheapest in used:
        limit = settings.host_limits.get(host, math.inf)
        turns = math.inf if host is None else settings.host_turns * cheapest
        if each > min(limit, turns) * (1.0 + ROUNDING):
            what, remedy = (
                ("limit is", "Raise the limit") if limit <= turns else ("gap leaves", "Shorten the gap")
            )
            raise InfeasibleProblemError(
                f"{why} of the sources of host {host!r} need {each:.6g} refreshes per {unit} but its "
                f"{what} {min(limit, turns):.6g}. {remedy} or lower {why}."
            )


def _with_promises(database: Database, settings: PlannerSettings) -> list[tuple[str | None, float, float]]:
    """Return by host what promised rates use, and the cheapest refresh.

    What is promised of missed changes depends on rates that are learnt; plans keep it as far as they can.
    """
    table = SourceTable.read(database)
    known = [each for each in settings.kept_promises() if not each.behind]
    most = own_max_rates(database, table)
    given = settings.objective.refresh, settings.hours, settings.time_unit
    needs = promised_rates(known, table.name, np.ones(len(table)), None, most, given)
    for promise, need in zip(known, needs, strict=True):
        if promise.appointments is not None:
            rows = np.flatnonzero(need)
            kept = Appointed(promise.appointments, rows, promise.attempts(np.ones(len(rows))))
            kept.check(most[rows], settings.time_unit, f"promise {shown(promise.text)}")
    use = table.refresh_cost * np.max([table.min_rate, *needs], axis=0)
    found: dict[str | None, tuple[float, float]] = {}
    for host, each, cost in zip(table.host.tolist(), use.tolist(), table.refresh_cost.tolist(), strict=True):
        before, cheapest = found.get(host, (0.0, math.inf))
        found[host] = before + each, min(cheapest, cost)
    return [(host, *values) for host, values in found.items()]


def check_name(name: object) -> str:
    """Return a source's name, text that every database takes."""
    if not isinstance(name, str):
        raise SourceDataError(f"source is {shown(name)}. A planner's sources are named by text.")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SourceDataError(f"source {shown(name)} is no text that can be written. Correct it.") from None
    if not name or "\0" in name:
        raise SourceDataError(f"source is {shown(name)}. A name is text without the character 0.")
    return str(name)


def _of_sources(sources: Sources, time_unit: str) -> dict[str, list[Any]]:
    """Return the columns of `Sources` but for the change rates."""
    if sources.names is None:
        raise SourceDataError("the sources have no names. Pass fo.Sources(..., names=[...]).")
    scale = SECONDS[time_unit] / SECONDS[sources.time_unit]
    columns = {
        "name": sources.names.tolist(),
        "importance": sources.importance.tolist(),
        "refresh_cost": sources.refresh_cost.tolist(),
        "min_rate": (scale * sources.min_rate).tolist(),
        "max_rate": [None if rate == np.inf else scale * rate for rate in sources.max_rate.tolist()],
    }
    return columns if sources.host is None else columns | {"host": sources.host.tolist()}


def _require_values(columns: Mapping[str, list[Any]]) -> None:
    """Raise unless names are unique text and numbers are in range."""
    names = [check_name(name) for name in columns["name"]]
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = [repr(name) for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
        raise SourceDataError(f"source {list_offenders(twice)} is named twice. Name each once.")
    for name, host in zip(names, columns.get("host", ()), strict=False):
        if host is not None and not isinstance(host, str):
            raise SourceDataError(f"host of {name!r} is {shown(host)}. Hosts are text.")
    for key in ("importance", "refresh_cost", *RATES):
        for k, value in enumerate(columns.get(key, ())):
            if value is None and key == "max_rate":
                continue
            zero = key != "refresh_cost"
            number = _number(value)
            if key == "max_rate" and number == math.inf:
                columns[key][k] = None
            elif not (SMALLEST <= number <= LARGEST or (zero and number == 0.0)):
                rule = "0 or more" if zero else "> 0"
                raise SourceDataError(f"{key} of {names[k]!r} is {shown(value)}. Pass a number {rule}.")
            else:
                columns[key][k] = number


def _number(value: object) -> float:
    """Return a number, or NaN for what is none."""
    try:
        return math.nan if isinstance(value, bool | str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
