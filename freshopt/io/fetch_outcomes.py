"""`fetch_statuses`: the fetches of a log with their HTTP statuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.io.log_files import log_frame, may_have
from freshopt.io.read_log import COLUMNS, SEEN, Cells, filled
from freshopt.numerics.arrays import Array, labels_of

_NEEDED = frozenset({"source", "time", "status"})


class Fetches(NamedTuple):
    """Source, status and time of each fetch.

    A status is NaN where there was no answer.
    """

    source: npt.NDArray[Any]
    status: Array
    time: Array


def fetch_statuses(path: Path, columns: Mapping[str, str] | None = None) -> Fetches | None:
    """Return the fetches of a log with statuses, or None.

    None without a column ``status`` or ``time``, or where ``changed`` takes its place.

    Parameters
    ----------
    path : Path
        Of a crawl log, as `freshopt.io.read_log` takes it.
    columns : mapping of str to str, optional
        Names of the file's columns to those of a log.

    Raises
    ------
    SourceDataError
        If the file cannot be read, or a cell cannot be used.
    """
    # Most logs have none, and their rows are not read for it.
    if not may_have(path, COLUMNS + SEEN, columns).issuperset(_NEEDED):
        return None
    frame, layout = log_frame(path, COLUMNS + SEEN, columns)
    if "changed" in frame.columns or not set(frame.columns) >= _NEEDED:
        return None
    cells = Cells(path, layout.head is not None, layout.head or 0, layout.line)
    names, codes = cells.sources(frame["source"])
    time = np.asarray(cells.times(frame["time"]))
    clock = time.astype("datetime64[us]").astype(np.int64) if time.dtype.kind == "M" else time
    status = np.asarray(cells.numbers(filled(frame["status"])).to_numpy(), dtype=np.float64)
    return Fetches(labels_of(names, codes), status, clock.astype(np.float64))
