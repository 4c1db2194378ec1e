"""`read_history`: change history from a table.

It has all changes of some sources, with one row per change. That it is complete is its owner's word: nothing
in it shows what somebody who looked now and then has missed. Changes that a check found are no such table, as
a check finds one at most: with the checks they are a crawl log.

Cost: as `read_log`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.schema import HISTORY, read_events
from freshopt.logs.timestamps import Times
from freshopt.numerics.arrays import LARGEST, labels_of

if TYPE_CHECKING:
    import os


def read_history(
    path: str | os.PathLike[str],
    start: Times | None = None,
    end: Times | None = None,
    *,
    time_unit: str = "day",
) -> ChangeHistory:
    """Read a change history from a file.

    Parameters
    ----------
    path : path
        A CSV file with a header line (.csv or .csv.gz), a Parquet file (.parquet) or JSON lines (.jsonl,
        .ndjson) with the columns ``source`` and ``time``, as `read_log` reads them. Other columns are
        ignored; rows may be in any order.
    start, end : scalar or array_like of shape (n,), optional
        As in `ChangeHistory`: by default all sources are watched from the first to the last change of all.
    time_unit : str
        The clock: "second", "minute", "hour", "day" or "week".

    Raises
    ------
    SourceDataError
        If the file cannot be read, a column is missing, or a cell cannot be used; names the file, the column
        and the row.
    """
    path = Path(path)
    names, codes, times, cells = read_events(path, HISTORY, time_unit=time_unit)
    if times.dtype.kind == "f" and not np.all(np.abs(times) <= LARGEST):
        rows = np.flatnonzero(~(np.abs(times) <= LARGEST)).tolist()
        where = list_offenders(f"{cells.row_name(k)}: {times[k]:g}" for k in rows)
        raise SourceDataError(f"time is not a finite number in {where}. Correct or drop these rows.")
    return ChangeHistory(labels_of(names, codes), times, start, end, time_unit=time_unit)
