"""`read_history`: change history from a CSV or Parquet file.

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
from freshopt.logs.cells import Cells
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.tables import column_names, read_table, table_ending, without_blank_end
from freshopt.logs.timestamps import Times
from freshopt.numerics.arrays import LARGEST, labels_of

if TYPE_CHECKING:
    import os

COLUMNS = ("source", "time")


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
        A CSV file with a header line (.csv or .csv.gz) or a Parquet file (.parquet) with the columns
        ``source`` and ``time``, as `read_log` reads them. Other columns are ignored; rows may be in any
        order.
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
    present = column_names(path)
    missing = [name for name in COLUMNS if name not in present]
    if missing:
        raise SourceDataError(
            f"{path} has no column {list_offenders(map(repr, missing))}; "
            f"it has {list_offenders(map(repr, present))}. A history has source and time. Rename or add the "
            "columns."
        )
    is_text = table_ending(path) != ".parquet"
    frame = read_table(path, columns=COLUMNS, as_text=is_text)
    frame = without_blank_end(frame) if is_text else frame
    if frame.height == 0:
        raise SourceDataError(f"{path} has column names but no rows. Check that it was written completely.")
    cells = Cells(path, is_text)
    names, codes = cells.sources(frame["source"])
    times = cells.times(frame["time"], time_unit=time_unit)
    if times.dtype.kind == "f" and not np.all(np.abs(times) <= LARGEST):
        rows = np.flatnonzero(~(np.abs(times) <= LARGEST)).tolist()
        where = list_offenders(f"{cells.row_name(k)}: {times[k]:g}" for k in rows)
        raise SourceDataError(f"time is not a finite number in {where}. Correct or drop these rows.")
    return ChangeHistory(labels_of(names, codes), times, start, end, time_unit=time_unit)
