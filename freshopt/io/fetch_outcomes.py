"""`fetch_statuses`: the fetches of a log with their HTTP statuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.io.access_clients import ALL, Client
from freshopt.io.log_files import may_have
from freshopt.io.read_log import COLUMNS, SEEN, read_rows
from freshopt.numerics.arrays import Array, labels_of

_NEEDED = frozenset({"source", "time", "status"})


class Fetches(NamedTuple):
    """Source, status and time of each fetch whose outcome is told."""

    source: npt.NDArray[Any]
    status: Array
    time: Array


def fetch_statuses(
    path: Path,
    columns: Mapping[str, str] | None = None,
    *,
    dated: bool | None = None,
    client: Client | None = None,
) -> Fetches | None:
    """Return the fetches of a log with statuses, or None.

    None without a column ``status`` or ``time``. A crawl that is evidence and has no status was answered.

    Parameters
    ----------
    path : Path
        Of a crawl log, as `freshopt.io.read_log` takes it.
    columns : mapping of str to str, optional
        Names of the file's columns to those of a log.
    dated : bool, optional
        Whether the times of the log are dates.
    client : Client, optional
        Of an access log, whose fetches are wanted. Default: everybody's.

    Raises
    ------
    SourceDataError
        If the file cannot be read, or a cell cannot be used.
    """
    # Most logs have none, and their rows are not read for it.
    if not may_have(path, COLUMNS + SEEN, columns).issuperset(_NEEDED):
        return None
    rows = read_rows(path, columns, dated=dated, client=client or ALL)
    if rows.said is None or rows.status is None:
        return None
    time = rows.columns["time"]
    clock = time.astype("datetime64[us]").astype(np.int64) if time.dtype.kind == "M" else time
    status = rows.said.statuses(rows.status)
    told = ~np.isnan(status)
    names = labels_of(rows.names, rows.columns["source"][told])
    return Fetches(names, status[told], clock.astype(np.float64)[told])
