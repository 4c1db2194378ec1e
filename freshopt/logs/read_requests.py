"""`read_requests`: request rates from a log of requests.

The log is that of who asks the cache: the access log of a web server, proxy or CDN, or a table. Each line is
a request, whatever its status: 304 only says that the client's own copy was current. (Change rates are
learnt by `read_log` from the log of who fetches from the origin, where 304 says that nothing has changed.)

The rate of a source is (N + ½)/t, of N requests in the time t from the log's first to its last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.logs.clock import on_own_clock
from freshopt.logs.schema import REQUESTS, read_events
from freshopt.numerics.arrays import Array
from freshopt.units import check_time_unit

if TYPE_CHECKING:
    import os

    import polars


def read_requests(
    path: str | os.PathLike[str], *, columns: Mapping[str, str] | None = None, time_unit: str = "day"
) -> polars.DataFrame:
    r"""Read how often each source is requested.

    Parameters
    ----------
    path : path
        An access log (a name with .log), CSV, Parquet or JSON lines with the columns ``source`` and ``time``,
        as `read_log` reads them. Other columns are ignored; a source may be requested twice at one time.
    columns : mapping of str to str, optional
        Names of the file's columns to ``source`` and ``time``.
    time_unit : str
        Of numeric times, and of the rates.

    Returns
    -------
    polars.DataFrame
        Columns source, requests (how many) and request_rate, sorted by source.

    Raises
    ------
    SourceDataError
        If the file cannot be read, a column is missing, or all requests are at one time.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "edge.csv"
    >>> _ = path.write_text("source,time\na,0\na,1\nb,2\na,4\n")
    >>> read_requests(path)["request_rate"].to_list()
    [0.875, 0.375]
    """
    import polars

    check_time_unit(time_unit)
    path = Path(path)
    names, codes, moments, cells = read_events(path, REQUESTS, columns, time_unit)
    times = on_own_clock(moments, "time", cells.row_name, time_unit)[0]
    if not np.isfinite(times).all():
        k = int(np.flatnonzero(~np.isfinite(times))[0])
        raise SourceDataError(f"time is no moment in {cells.row_name(k)}. Correct or drop this row.")
    span = float(np.max(times) - np.min(times))
    if span <= 0.0:
        raise SourceDataError(f"all requests of {path} are at one time. A rate needs a log of some length.")
    many = np.bincount(codes, minlength=len(names))
    return polars.DataFrame({"source": names.tolist(), "requests": many, "request_rate": (many + 0.5) / span})


def requests_of(found: polars.DataFrame, names: Sequence[Any]) -> Array:
    """Return the request rates of sources, in their order.

    Examples
    --------
    >>> import polars
    >>> found = polars.DataFrame({"source": ["a", "b"], "requests": [3, 1], "request_rate": [0.875, 0.375]})
    >>> requests_of(found, ["b", "c"])
    array([0.375, 0.125])
    """
    known = dict(zip(map(str, found["source"].to_list()), found["request_rate"].to_list(), strict=True))
    if not any(str(name) in known for name in names):
        ours, theirs = (", ".join(repr(str(name)) for name in each[:2]) for each in (names, list(known)))
        raise SourceDataError(
            f"no source of the log ({ours}) is among those that are requested ({theirs}). Name them alike in "
            "both logs."
        )
    none = float(found["request_rate"][0] / (found["requests"][0] + 0.5) * 0.5)
    return np.array([known.get(str(name), none) for name in names])
