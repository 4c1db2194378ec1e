"""`read_log`: a crawl log from a table or an access log.

CSV and JSON lines are read as text and converted here, column by column: a cell that is not what it should be
can then be named by its row and line, whatever stood in the rows before it.

Cost: some passes over the columns; 10⁷ rows of Parquet take about a second, of CSV four to ten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, by_weight, hearing, list_offenders, warn
from freshopt.formatting import count
from freshopt.frames import POLARS
from freshopt.logs.client_copies import ALL, WHOSE, Client, evidence_of_clients
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.file_kinds import Frame
from freshopt.logs.log_files import (
    Given,
    LogPart,
    called,
    joined,
    log_frame,
    logs_of,
    may_have,
    naming_line,
)
from freshopt.logs.row_outcomes import (
    ANSWERED,
    CHANGED,
    NOT_MODIFIED,
    OK,
    REPEATED,
    SILENT,
    UNKNOWN,
    OtherFetches,
    RowOutcomes,
    failed,
    row_outcomes,
)
from freshopt.logs.schema import CRAWLS, EVENT, SEEN_CRAWLS, require_columns, require_log, require_rows
from freshopt.logs.source_index import Codes
from freshopt.logs.timestamps import Moments, Times
from freshopt.logs.written_dates import RowName
from freshopt.numerics.arrays import Array, IntArray, labels_of
from freshopt.renamed import keywords

_LOGGER = logging.getLogger(__name__)
COLUMNS = ("source", "time", "changed", "elapsed", "changes", "last_modified")
_TELLING = ("changed", "elapsed")
# Rows without a state, and their part of a log, from which on they are told of.
SOME_WITHOUT, MANY_WITHOUT = 10, 0.1
# What crawls saw, from which `changed` follows where it is not there.
SEEN = ("hash", "etag", "status")


@keywords()
def read_log(
    path: Given,
    time_unit: str = "day",
    *,
    columns: Mapping[str, str] | None = None,
    client: str | None = None,
    agent: str | None = None,
    pattern: str | None = None,
    answers_are_changes: bool | None = False,
    start: Times | None = None,
) -> CrawlLog:
    """Read a crawl log from a file or a dataframe.

    Parameters
    ----------
    path : path, or several
        A table or an access log; a folder is all that it holds, ``-`` the standard input, and a stream is
        read as well. Tables are CSV, whatever parts its cells (comma, semicolon, tab, bar),
        Parquet, JSON lines or JSON, as they are or packed (gz, xz, bz2, zst). They have the columns below,
        whatever the case of their names, or what others call so, such as ``URL``, ``Fetched At``,
        ``Content Hash`` or ``HTTP Status``. Where two may be one, or none may, the message is what to pass
        as `columns`.

        * ``source``: names, or integers;
        * ``time``: numbers in `time_unit`, or dates and times as programs, databases and spreadsheets write
          them (without an offset: UTC); dates without separators, such as 20230307 and 20230307092216, and
          seconds, ms, µs and ns since 1970 are dates as numbers too;
        * ``changed``: 0 or 1, false or true, yes or no; empty where that is not known. Beside it or in its
          place, what crawls saw: ``hash`` (of the content), ``etag`` or ``status`` (HTTP, of conditional
          requests; empty where there is none, 0 without an answer), one or more of them; a crawl found a
          change if that differs from the previous crawl of the same source, and a failed fetch is no
          evidence, see `freshopt.logs.row_outcomes`;
        * ``elapsed``, optional: each row's gap in `time_unit`, also the first, used instead of the
          differences of ``time``. With it ``time`` may be missing;
        * ``changes``, optional: the number of changes, empty where unknown;
        * ``last_modified``, optional: when the source had last changed, as the crawl was told, written as
          ``time`` is (dates also as servers send them), empty where it was not told.

        Other columns are ignored. Rows may be in any order. A source's first row is its baseline, unless
        ``elapsed`` says otherwise. In an access log (of nginx, Apache, Caddy, Squid, Varnish, CloudFront or
        Heritrix) the URL is the source, and requests by GET or HEAD are its crawls: answers 200 found a
        change, answers 304 none, others are no evidence. Where a server's log has several clients, each is a
        history of its own, see `freshopt.logs.client_copies`; where a cache's log says what it asked the
        origin, that is read, see `freshopt.logs.access_log`.
    time_unit : str
        The log's clock: "second", "minute", "hour", "day" or "week".
    columns : mapping of str to str, optional
        Names of the file's columns to those above, such as ``{"url": "source", "fetched_at": "time"}``.
    client, agent : str, optional
        The client whose requests are read: its address, or a part of its agent's name, or both. What is
        chosen counts as one client, whatever its other addresses or agents. A table has clients where
        `columns` names ``client`` or ``agent``.
    pattern : str, optional
        How a line of an access log is written, where its format is not known: ``log_format`` of nginx, such
        as ``$remote_addr [$time_local] "$request" $status``, or ``LogFormat`` of Apache, such as
        ``%h %l %u %t "%r" %>s %b``.
    answers_are_changes : bool
        Whether answers 200 may count as changes where no row has a status 304, a hash or an ETag: true only
        of a crawler that asks conditionally and always found a change. Such a log is refused by default. None
        for a file that is part of a log: nobody is asked.
    start : scalar or array_like, optional
        Since when the sources were watched, as in `CrawlLog`.

    Returns
    -------
    CrawlLog
        Its `library` is that of the dataframe: tables made from it are dataframes of that library.

    Raises
    ------
    SourceDataError
        If the file cannot be read, a column is missing, or a cell that the log's owner wrote cannot be used;
        names the file, the column and the row. Rows are counted from 1, lines with the header line.

    Warns
    -----
    SourceDataWarning
        As `CrawlLog`, with the row's line. Of rows that contradict themselves, and of statuses and dates of
        last change that cannot be read and are left out, with their number; of malformed lines in an access
        log.

    Examples
    --------
    >>> import polars as pl
    >>> seen = {"url": ["a"] * 3, "fetched_at": ["2026-03-01", "2026-03-02", "2026-03-04"]}
    >>> read_log(pl.DataFrame({**seen, "hash": ["5d41", "5d41", "7d79"]}))
    CrawlLog(3 crawls of 1 source over 3 days, 1 found a change)
    """
    begun = time.perf_counter()
    logs = logs_of(path)
    library = logs[0].library if isinstance(logs[0], Frame) else POLARS
    with hearing() as heard:
        told = read_rows(logs, columns, time_unit, client=Client(client, agent, pattern))
        found, names, row_name = crawl_columns(told, time_unit, answers_are_changes=answers_are_changes)
        log = CrawlLog.from_columns(found, names=names, start=start, time_unit=time_unit, row_name=row_name)
        object.__setattr__(log, "warnings", by_weight(heard))
        object.__setattr__(log, "library", library)
        object.__setattr__(log, "other_fetches", other_fetches(told, log.names, log.clock))
    _LOGGER.info("read %s: %r in %.2f s", path, log, time.perf_counter() - begun)
    return log


class ToldRows(NamedTuple):
    """All rows of a log, and what they say.

    - `log`: What it is called.
    - `told`: Which of the columns `SEEN` there are.
    - `said`: None where the column ``changed`` alone tells.
    """

    log: str
    rows: LogPart
    told: list[str]
    said: RowOutcomes | None = None


def read_rows(
    logs: Given,
    columns: Mapping[str, str] | None = None,
    time_unit: str = "day",
    *,
    dated: bool | None = None,
    client: Client = ALL,
) -> ToldRows:
    """Return the rows of a log.

    Numbers that can be dates are so if the times are known to be `dated`, and are not if they are known not
    to be.
    """
    every = logs_of(logs)
    alone = len(every) == 1
    parts = (_read_part(each, columns, time_unit, dated=dated, client=client, alone=alone) for each in every)
    rows = joined([*parts])
    told = [key for key in SEEN if key in rows.seen or key in rows.columns]
    if not told:
        return ToldRows(called(every), rows, told)
    found = rows.columns
    said = row_outcomes(
        found["source"],
        found["time"],
        status=found.get("status"),
        changed=None if "changed" not in found else found["changed"].astype(np.float64),
        seen=rows.seen,
        more={key: found[key] for key in ("elapsed", "changes", "last_modified") if key in found},
    )
    return ToldRows(called(every), rows, told, said)


def _read_part(
    path: Path,
    columns: Mapping[str, str] | None,
    time_unit: str,
    *,
    dated: bool | None,
    client: Client,
    alone: bool,
) -> LogPart:
    """Return the rows of one file, which may be `alone`."""
    frame, cells = log_frame(path, COLUMNS + SEEN, columns, client, alone=alone)
    if EVENT in cells.present and not {"changed", *SEEN} & {*cells.present}:
        raise SourceDataError(
            f"{cells.path} has all changes of its sources, and no crawls. Read it with "
            "freshopt.logs.read_history."
        )
    if not columns:
        require_log(cells.own, cells.present, cells.path)
    schema = SEEN_CRAWLS if set(SEEN) & set(cells.present) else CRAWLS
    remedy = partial(naming_line, path, columns)
    require_columns(cells.present, schema, cells.path, remedy, cells.own)
    require_rows(frame, CRAWLS, cells.path)
    names, codes = cells.sources(frame["source"])
    found: dict[str, npt.NDArray[Any]] = {"source": codes}
    told = [key for key in SEEN if key in frame.columns]
    if "changed" in frame.columns:
        flags = cells.flags(frame["changed"])
        if not told and flags.null_count() == len(flags):
            cells.require_filled(flags)
        found["changed"] = (flags.cast(float).fill_null(np.nan) if flags.has_nulls() else flags).to_numpy()
    if "time" in frame.columns:
        found["time"] = np.asarray(cells.times(frame["time"], time_unit, dated=dated))
    for key in ("elapsed", "changes"):
        if key in frame.columns:
            found[key] = cells.numbers(frame[key]).fill_null(np.nan).to_numpy()
    if "last_modified" in frame.columns:
        found["last_modified"] = cells.dates(frame["last_modified"], found.get("time"))
    several = set(WHOSE) <= set(frame.columns) and told == ["status"] and found.keys().isdisjoint(_TELLING)
    if "status" in told:
        found["status"] = cells.statuses(frame["status"])
    states = {key: frame[key] for key in told if key != "status"}
    return LogPart(names, found, cells.row_name, states, frame.select(WHOSE) if several else None)


def crawl_columns(
    told_rows: ToldRows,
    time_unit: str = "day",
    *,
    answers_are_changes: bool | None = False,
    continued: bool = False,
) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any], RowName]:
    """Return the columns of a log's crawls, with names of rows.

    The column ``source`` holds positions among the names, and ``changed`` NaN where that is not known. Rows
    that are `continued` follow those of another log.
    """
    log, rows, told, said = told_rows
    own = rows.columns
    if said is None:
        return own, rows.names, rows.row_name
    if rows.whose is not None:
        made = evidence_of_clients(rows.whose, own["source"], own["time"], own["status"], log, time_unit)
        known, made["source"] = np.unique(made["source"], return_inverse=True)
        return made, rows.names[known], rows.row_name
    crawls = said.crawls
    _require_evidence(log, rows, told, said, answers_are_changes=answers_are_changes)
    without = _without_state(told_rows, said)
    if len(without) >= max(SOME_WITHOUT, MANY_WITHOUT * len(said.outcome)):
        states = " or ".join(key for key in told if key != "status")
        some, every = f"{len(without):,}", count(len(said.outcome), "row")
        warn(
            f"{some} of {every}, such as {rows.row_name(int(without[0]))}, have no {states}: they count as "
            "fetches, but nothing is learnt of them. Write it down at every fetch."
        )
    kept = {key: column[crawls] for key, column in own.items() if key != "status"}
    if "elapsed" in kept:
        kept["elapsed"] = _summed(own["elapsed"], own["source"], said)
    outcome = said.outcome[crawls]
    changed = np.where(outcome == UNKNOWN, np.nan, outcome == CHANGED)
    if not continued:
        # Of a first row nobody asks whether it had changed; with an interval it is a baseline all the same.
        baseline = (np.diff(kept["source"], prepend=-1) != 0) & (outcome == UNKNOWN)
        changed[baseline] = 0.0
        if "elapsed" in kept:
            kept["elapsed"][baseline] = np.nan
    known, kept["source"] = np.unique(kept["source"], return_inverse=True)
    return {**kept, "changed": changed}, rows.names[known], lambda k: rows.row_name(int(crawls[k]))


def other_fetches(told: ToldRows, names: npt.NDArray[Any], clock: Clock) -> OtherFetches | None:
    """Return the fetches that are no crawls, of sources with these names.

    None where every fetch is a crawl, or nothing tells.
    """
    rows, said = told.rows, told.said
    if said is None or rows.whose is not None or "time" not in rows.columns:
        return None
    status = said.statuses(rows.columns.get("status", np.full(len(said.outcome), np.nan)))
    without = _without_state(told, said)
    lost = failed(status)
    if not (np.any(lost) or len(without)):
        return None
    other = ~np.isnan(status)
    other[without] = True
    other[said.crawls] = False
    time = clock.offsets(rows.columns["time"][other], "time")
    return OtherFetches(rows.columns["source"][other], time, ~lost[other]).among(rows.names, names)


def _without_state(told: ToldRows, said: RowOutcomes) -> IntArray:
    """Return the answers without a state where others have one."""
    states = [key for key in told.told if key != "status"]
    if not states:
        return np.zeros(0, dtype=np.int64)
    redirected = told.rows.columns.get("status", np.full(len(said.outcome), np.nan)) > OK
    return np.flatnonzero((said.outcome == SILENT) | ((said.outcome == ANSWERED) & ~redirected))


def _summed(elapsed: Array, codes: Codes, said: RowOutcomes) -> Array:
    """Return the times since the crawl before, over rows between."""
    order = said.order[said.outcome[said.order] != REPEATED]
    crawl = said.outcome[order] >= UNKNOWN
    begins = np.diff(codes[order], prepend=-1) != 0
    begins[1:] |= crawl[:-1]
    since: Array = np.add.reduceat(elapsed[order], np.flatnonzero(begins))
    return np.asarray(since[(np.cumsum(begins) - 1)[crawl]])


def ask_about_answers(path: str | Path, answers_are_changes: bool | None) -> None:
    """Raise, or warn, where every answer would be a change.

    Neither where that is None: of the file as a part of a log.
    """
    if answers_are_changes is False:
        raise SourceDataError(
            f"{path} has no status 304, hash or ETag: answers 200 alone do not tell whether anything had "
            "changed. Add hashes of the content, or let the crawler ask conditionally (If-None-Match, "
            "If-Modified-Since); if it does, and all had changed, say --answers-are-changes, or "
            "answers_are_changes=True in Python."
        )
    if answers_are_changes:
        warn(
            f"{path} has no status 304, hash or ETag: every answer counts as a change, and change rates are "
            "too high by far if the crawler does not ask conditionally.",
            of_rates=True,
        )


def _require_evidence(
    path: str, rows: LogPart, told: list[str], said: RowOutcomes, *, answers_are_changes: bool | None
) -> None:
    """Raise unless rows are evidence; warn of contradictions and repetitions."""
    every, crawls = len(said.outcome), said.crawls
    if len(crawls) == 0:
        raise SourceDataError(
            f"no row of {path} has a value in {', '.join(told)} that tells whether its source had "
            f"changed ({count(every, 'row')}). Fill one of them in, or add the column changed."
        )
    time, code = (rows.columns[key][crawls] for key in ("time", "source"))
    later = np.diff(code, prepend=-1) == 0
    by_status = told == ["status"] and "changed" not in rows.columns
    changes = bool(np.any(said.outcome[crawls][later] == CHANGED))
    if by_status and changes and not np.any(rows.columns["status"] == NOT_MODIFIED):
        ask_about_answers(path, answers_are_changes)
    twice = np.flatnonzero((code[1:] == code[:-1]) & (time[1:] == time[:-1]))
    if len(twice):
        pairs = ([rows.row_name(int(crawls[k + each])) for each in (1, 0)] for k in twice.tolist())
        where = list_offenders((f"{one} repeats the time of {other}" for one, other in pairs), len(twice))
        raise SourceDataError(
            f"{where}, with other cells. A source has one row per crawl. Drop the repeated rows."
        )
    again = np.flatnonzero(said.outcome == REPEATED)
    for row, what, verdict in (
        (said.hashed, "status 304 stands beside another hash than the crawl before has", "is a change"),
        (said.tagged, "status 304 stands beside another ETag than the crawl before has", "is no change"),
        (again, "all columns repeat another row", "counts once"),
    ):
        if len(row):
            where = rows.row_name(int(np.min(row)))
            warn(f"{what} in {count(len(row), 'row')}, such as {where}: each {verdict}.")


class Fetches(NamedTuple):
    """Source, status and moment of each fetch whose outcome is told."""

    source: npt.NDArray[Any]
    status: Array
    time: Moments


def fetch_statuses(
    logs: Given,
    columns: Mapping[str, str] | None = None,
    *,
    dated: bool | None = None,
    client: Client | None = None,
) -> Fetches | None:
    """Return the fetches of a log with statuses, or None.

    None without a column ``status`` or ``time``. A crawl that is evidence and has no status was answered.

    - `logs` path, or several: A crawl log, as `freshopt.logs.read_log` takes it.
    - `columns`: Names of the file's columns to those of a log.
    - `dated`: Whether the times of the log are dates.
    - `client`: Of an access log, whose fetches are wanted. Default: everybody's.
    """
    # Most logs have none, and their rows are not read for it.
    wanted = {"source", "time", "status"}
    if not any(may_have(each, COLUMNS + SEEN, columns, client) >= wanted for each in logs_of(logs)):
        return None
    whose = ALL if client is None else client
    _, rows, _, said = read_rows(logs, columns, dated=dated, client=whose)
    if said is None or "status" not in rows.columns:
        return None
    status = said.statuses(rows.columns["status"])
    told = ~np.isnan(status)
    names = labels_of(rows.names, rows.columns["source"][told])
    return Fetches(names, status[told], rows.columns["time"][told])
