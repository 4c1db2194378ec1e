"""`read_planner`: a live planner's folder as a log, and its rates.

Only the tables' names and columns are known here; `freshopt.live` writes them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import CrawlLog, derived_log
from freshopt.logs.last_modified import usable_dates
from freshopt.logs.source_index import code_sources
from freshopt.numerics.arrays import Array
from freshopt.units import convert_time

# A planner's database in its folder, the version of its tables, and those whose tables are read here.
FILE = "planner.sqlite"
SCHEMA = 3
_READ = ("2", "3")


def is_planner(path: Path) -> bool:
    """Return whether a path is the folder of a live planner."""
    return (path / FILE).is_file()


def read_planner(folder: Path, time_unit: str = "day") -> tuple[CrawlLog, Array]:
    """Return what a planner observed of present sources, and their importances."""
    with _opened(folder) as database:
        kept = dict(database.execute("SELECT key, value FROM planner WHERE key = 'clock'"))
        rows = database.execute(
            "SELECT name, time, changed, changes, observation.last_modified FROM observation JOIN source "
            "ON source.id = observation.source WHERE active = 1"
        ).fetchall()
        weights = dict(database.execute("SELECT name, importance FROM source WHERE active = 1"))
    if not rows:
        raise SourceDataError(f"the planner in '{folder}' has observed none of its sources yet. Crawl first.")
    clock = Clock.from_text(kept["clock"])
    scale = convert_time(1.0, clock.unit, time_unit)
    name, *found = zip(*rows, strict=True)
    names, source = code_sources(name)
    time, changed, changes, dates = (np.array(column, dtype=np.float64) for column in found)
    columns = {"source": source, "time": time * scale, "changed": changed, "changes": changes}
    columns["last_modified"] = dates * scale
    log = observed_log(columns, names, Clock(time_unit, clock.origin), hosts=names)
    return log, np.array([weights[each] for each in names.tolist()])


def observed_log(
    columns: Mapping[str, npt.NDArray[Any]],
    names: npt.NDArray[Any],
    clock: Clock,
    *,
    hosts: npt.NDArray[Any] | None = None,
) -> CrawlLog:
    """Return the log of observations in any order.

    Sources are positions. What was found is below 0 where it is not known. Dates that contradict a crawl are
    left out, and with `hosts`, the sources' names, those that a whole host gets wrong (`usable_dates`).
    """
    order = np.lexsort((columns["time"], columns["source"]))
    told = {key: columns[key][order].astype(np.float64) for key in ("time", "changed", "changes")}
    told["changed"][told["changed"] < 0.0] = np.nan
    source, dates = columns["source"][order].astype(np.int64), columns["last_modified"][order]
    told["last_modified"] = usable_dates(source, told["time"], told["changed"], dates, clock.unit, hosts)
    known = {key: column for key, column in told.items() if not np.isnan(column).all()}
    return derived_log({"source": source, **known}, names, clock)


def planned_rates(folder: Path) -> tuple[dict[str, float], str]:
    """Return a planner's rates in force, by source, and their unit."""
    with _opened(folder) as database:
        ((settings,),) = database.execute("SELECT value FROM planner WHERE key = 'settings'")
        # Sources that are down are tried at another rate than the plan's.
        rates = dict(
            database.execute(
                "SELECT name, CASE WHEN tried_rate < rate THEN tried_rate ELSE rate END FROM source "
                "WHERE active = 1 AND rate IS NOT NULL"
            )
        )
    if not rates:
        raise SourceDataError(f"the planner in '{folder}' has no rates in force yet. Crawl first.")
    return rates, json.loads(settings)["time_unit"]


@contextmanager
def _opened(folder: Path) -> Iterator[sqlite3.Connection]:
    """Yield a planner's database, to be read."""
    file = folder / FILE
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)) as database:
            found = database.execute("SELECT value FROM planner WHERE key = 'schema'").fetchone()
            if found is None or found[0] not in _READ:
                raise SourceDataError(
                    f"{file} is not of version {SCHEMA}, which this freshopt reads. Use its own."
                )
            yield database
    except sqlite3.Error as error:
        raise SourceDataError(
            f"{file} cannot be read as a planner's: {error}. Restore it from a copy."
        ) from None
