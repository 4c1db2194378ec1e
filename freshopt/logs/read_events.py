"""Events, one a row: `read_history` of changes, `read_requests`, and `table_of`.

A change history has all changes of some sources. That it is complete is its owner's word: nothing in it shows
what somebody who looked now and then has missed. Changes that a check found are no such table, as a check
finds one at most: with the checks they are a crawl log. A table with the column ``history`` says it itself:
its rows are changes, and the beginning and the end of the time in which each source was watched. Such tables
are what `table_of` makes of histories; of logs it makes what `read_log` reads.

A log of requests is that of who asks the cache: the access log of a web server, proxy or CDN, or a table.
Each line is a request, whatever its status: 304 only says that the client's own copy was current. (Change
rates are learnt by `read_log` from the log of who fetches from the origin, where 304 says that nothing has
changed.) The rate of a source is (N + ½)/t, of N requests in the time t from the log's first to its last.

Cost: as `read_log`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, shown
from freshopt.heavy import polars
from freshopt.logs.cells import FLAGS
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.clock import on_own_clock
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.log_columns import rows_table
from freshopt.logs.log_files import Given, LogPart, called, joined, log_frame, logs_of
from freshopt.logs.read_crawls import SEEN
from freshopt.logs.row_outcomes import NOT_MODIFIED, UNCHANGED, row_outcomes
from freshopt.logs.schema import (
    CHANGE,
    END,
    EVENT,
    HISTORY,
    REQUESTS,
    START,
    Schema,
    require_columns,
    require_rows,
)
from freshopt.logs.source_index import Codes
from freshopt.logs.synonyms import guessed
from freshopt.logs.tables import ENDINGS, column_names
from freshopt.logs.timestamps import Moments, Times
from freshopt.numerics.arrays import LARGEST, Array, BoolArray, labels_of
from freshopt.units import check_time_unit


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
        ignored; rows may be in any order. With a column ``history`` a row is a ``change``, or the ``start``
        or ``end`` of the time in which its source was watched.
    start, end : scalar or array_like of shape (n,), optional
        As in `ChangeHistory`: by default all sources are watched from the first to the last change of all, or
        as the table says.
    time_unit : str
        The clock: "second", "minute", "hour", "day" or "week".

    Raises
    ------
    SourceDataError
        If the file cannot be read, a column is missing, or a cell cannot be used; names the file, the column
        and the row.
    """
    rows = read_events(path, HISTORY, time_unit=time_unit, more=(EVENT, "changed"), told=SEEN)
    _refuse_crawls(rows)
    names, codes, times, row_name = rows.names, rows.columns["source"], rows.columns["time"], rows.row_name
    if times.dtype.kind == "f" and not np.all(np.abs(times) <= LARGEST):
        wrong = np.flatnonzero(~(np.abs(times) <= LARGEST)).tolist()
        where = list_offenders(f"{row_name(k)}: {times[k]:g}" for k in wrong)
        raise SourceDataError(f"time is not a finite number in {where}. Correct or drop these rows.")
    labels = labels_of(names, codes)
    if EVENT not in rows.seen:
        return ChangeHistory(labels, times, start, end, time_unit=time_unit)
    event = rows.seen[EVENT].fill_null("").to_numpy()
    wrong = np.flatnonzero(~np.isin(event, (START, CHANGE, END))).tolist()
    if wrong:
        where = list_offenders(f"{row_name(k)}: {shown(event[k])}" for k in wrong)
        raise SourceDataError(f"{EVENT} is not {START}, {CHANGE} or {END} in {where}. Correct these rows.")
    start = _edge(names, codes, times, event == START, START) if start is None else start
    end = _edge(names, codes, times, event == END, END) if end is None else end
    is_change = event == CHANGE
    return ChangeHistory(labels[is_change], times[is_change], start, end, names=names, time_unit=time_unit)


def _refuse_crawls(rows: LogPart) -> None:
    """Raise if a row says, or shows, that nothing had changed."""
    told = {name: rows.seen[name] for name in ("changed", "status", "hash", "etag") if name in rows.seen}
    if not told:
        return
    empty = polars.Series([None], dtype=polars.String).new_from_index(0, len(rows.columns["source"]))
    flags = told.get("changed", empty).str.strip_chars().str.to_lowercase()
    flag = flags.replace_strict(FLAGS, default=np.nan, return_dtype=polars.Float64).to_numpy()
    status = told.get("status", empty).str.strip_chars().cast(polars.Float64, strict=False)
    number = status.fill_null(np.nan).to_numpy()
    states: dict[str, polars.Series] = {name: told[name] for name in ("hash", "etag") if name in told}
    said = row_outcomes(
        rows.columns["source"], rows.columns["time"], status=number, changed=flag, seen=states
    )
    same = np.flatnonzero((flag == 0.0) | (said.outcome == UNCHANGED)).tolist()
    if same:
        k = same[0]
        shows = {"changed": flag[k] == 0.0, "status": number[k] == NOT_MODIFIED}
        name = next(name for name in told if told[name][k] and shows.get(name, True))
        raise SourceDataError(
            f"{name} is {told[name][k]} in {rows.row_name(k)}: a crawl without change. "
            "A history has changes alone. Take the table as a log, as freshopt plan does, or drop these rows."
        )


def _edge(names: npt.NDArray[Any], codes: Codes, times: Moments, rows: BoolArray, what: str) -> Moments:
    """Return one end of the watched time of each source."""
    many = np.bincount(codes[rows], minlength=len(names))
    wrong = np.flatnonzero(many != 1).tolist()
    if wrong:
        where = list_offenders(f"{names.item(k)!r} has {many[k]}" for k in wrong)
        raise SourceDataError(f"not each source has one row with {EVENT} {what}: {where}. Correct it.")
    edge = np.empty(len(names), dtype=times.dtype)
    edge[codes[rows]] = times[rows]
    return edge


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
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "edge.csv"
    >>> _ = path.write_text("source,time\na,0\na,1\nb,2\na,4\n")
    >>> read_requests(path)["request_rate"].to_list()
    [0.875, 0.375]
    """
    check_time_unit(time_unit)
    rows = read_events(path, REQUESTS, columns, time_unit)
    names, row_name = rows.names, rows.row_name
    times = on_own_clock(rows.columns["time"], "time", row_name, time_unit)[0]
    if not np.isfinite(times).all():
        k = int(np.flatnonzero(~np.isfinite(times))[0])
        raise SourceDataError(f"time is no moment in {row_name(k)}. Correct or drop this row.")
    span = float(np.max(times) - np.min(times))
    if span <= 0.0:
        raise SourceDataError(
            f"all requests of {called(logs_of(path))} are at one time. A rate needs a log of some length."
        )
    many = np.bincount(rows.columns["source"], minlength=len(names))
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


def read_events(
    logs: Given,
    schema: Schema,
    columns: Mapping[str, str] | None = None,
    time_unit: str = "day",
    more: tuple[str, ...] = (),
    told: tuple[str, ...] = (),
) -> LogPart:
    """Return the sources and moments of events, and `more` columns of text.

    What crawlers have `told` of each look is kept where one column alone may be it.
    """
    parts = []
    for log in logs_of(logs):
        looked = [*guessed(column_names(log), told, {}).found.values()] if told else []
        frame, cells = log_frame(log, (*schema.needed, *more, *looked), columns, access=schema.access)
        require_columns(cells.present, schema, cells.path)
        require_rows(frame, schema, cells.path)
        names, codes = cells.sources(frame["source"])
        own = {"source": codes, "time": cells.times(frame["time"], time_unit)}
        seen = {name: cells.texts(frame[name].cast(polars.String)) for name in more if name in frame.columns}
        plain = polars.selectors.string(include_categorical=True) | polars.selectors.numeric()
        seen |= {text.name: text.cast(polars.String) for text in frame.select(looked).select(plain)}
        parts.append(LogPart(names, own, cells.row_name, seen))
    return joined(parts)


def table_of(data: CrawlLog | ChangeHistory) -> polars.DataFrame:
    """Return a log or history as a table.

    Examples
    --------
    >>> table_of(ChangeHistory(["a"], [2.0], start=0.0, end=8.0)).rows()
    [('a', 0.0, 'start'), ('a', 2.0, 'change'), ('a', 8.0, 'end')]
    >>> table_of(CrawlLog(["a", "a"], [0.0, 2.0], [0, 1])).rows()
    [('a', 0.0, False), ('a', 2.0, True)]
    """
    return rows_table(data) if isinstance(data, CrawlLog) else _events(data)


def is_history(path: Path) -> bool:
    """Return whether a file is the table of a history."""
    if not path.is_file() or not path.name.lower().endswith(ENDINGS):
        return False
    return {"source", "time", EVENT} <= {*column_names(path)}


def _events(history: ChangeHistory) -> polars.DataFrame:
    """Return the beginning, the changes and the end of each source."""
    every, n = history.names, len(history.names)
    parts = (
        (np.arange(n), history.start, START),
        (history.source_index, history.time, CHANGE),
        (np.arange(n), history.end, END),
    )
    source, time = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    event = np.repeat([part[2] for part in parts], [len(part[0]) for part in parts])
    rank = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    order = np.lexsort((np.arange(len(source)), rank, source))
    return polars.DataFrame(
        {
            "source": labels_of(every, source[order]),
            "time": history.clock.moments(time[order]),
            EVENT: event[order],
        }
    )
