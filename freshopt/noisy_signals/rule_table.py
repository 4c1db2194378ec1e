"""Rules of crawls that follow signals, from a plan's table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs.schema import Schema, Table, naming
from freshopt.logs.tables import column_names
from freshopt.noisy_signals.age_thresholds import AgeThresholds
from freshopt.noisy_signals.signal_thresholds import SignalThresholds
from freshopt.noisy_signals.signal_waits import SignalWaits
from freshopt.numerics.arrays import Array

RULE = Schema(
    "A rule",
    ("source", "signals", "wait", "crawl_probability|share"),
    key=None,
    gaps=("wait",),
    rows="Plan again.",
    has="the columns of the table waits, thresholds or ages that freshopt plan --signals writes",
)
AGES = Schema(
    "A rule", ("source", "age", "unheard", "precision"), key=None, gaps=("age",), rows="Plan again."
)
# Largest table of waits: 1 GB.
MOST_WAITS = 1e8


def read_rule(
    path: Path, names: npt.NDArray[Any], time_unit: str = "day"
) -> SignalWaits | SignalThresholds | AgeThresholds:
    """Return a file's rule for these sources; others are never crawled."""
    by_age = {"age", "unheard"} <= set(column_names(path))
    table = Table.read(path, AGES if by_age else RULE)
    position = {str(name): k for k, name in enumerate(names.tolist())}
    given = [str(name) for name in table.frame["source"].to_list()]
    unknown = sorted({name for name in given if name not in position})
    if unknown:
        raise SourceDataError(
            f"{path} crawls {list_offenders(map(repr, unknown))}, of which no changes are known. Add their "
            "changes, or drop these rows."
        )
    source, n = np.array([position[name] for name in given], dtype=np.int64), len(names)
    threshold = "crawl_probability" in table.frame.columns
    signals = np.zeros(len(source)) if by_age else _times(table, "signals")
    twice = np.stack([source, np.zeros(len(source)) if threshold else signals])
    if np.unique(twice, axis=1).shape[1] < len(source):
        raise SourceDataError(f"{path} has a row of one source twice. Keep one row each.")
    with naming(path):
        if by_age:
            ages, unheard, precision = np.full(n, np.inf), np.zeros(n), np.zeros(n)
            ages[source] = _times(table, "age")
            unheard[source], precision[source] = table.numbers("unheard"), table.numbers("precision")
            return AgeThresholds(ages, unheard, precision, names, time_unit)
        share, wait = table.numbers("crawl_probability" if threshold else "share"), _times(table, "wait")
        if threshold:
            columns = (signals, wait, _times(table, "bonus"), share)
            made = [np.zeros(n) for _ in columns]
            made[1] = np.full(n, np.inf)
            for own, column in zip(made, columns, strict=True):
                own[source] = column
            return SignalThresholds(made[0], made[1], made[2], made[3], names, time_unit)
        if not bool(np.all((signals == np.floor(signals)) & (n * (signals + 1.0) <= MOST_WAITS))):
            raise SourceDataError("signals are no whole numbers, or too many. Plan again.")
        waits, shares = np.zeros((n, int(np.max(signals)) + 1)), np.zeros(n)
        waits[source, signals.astype(np.int64)] = wait
        shares[source] = share
        waits[np.setdiff1d(np.arange(n), source), 0] = np.inf
        return SignalWaits(waits, shares, names, time_unit)


def _times(table: Table, column: str) -> Array:
    """Return a column of numbers, inf where it is empty."""
    if column not in table.frame.columns:
        raise SourceDataError(f"{table.cells.path} has no column '{column}'. Plan again.")
    cells = table.cells.numbers(table.frame[column]).fill_null(np.inf)
    return np.asarray(cells.to_numpy(), dtype=np.float64)
