"""`read_log`: a crawl log from a table or an access log.

CSV and JSON lines are read as text and converted here, column by column: a cell that is not what it should be
can then be named by its row and line, whatever stood in the rows before it.

Cost: some passes over the columns; 10⁷ rows of Parquet take about a second, of CSV four to ten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, by_weight, hearing, list_offenders, warn
from freshopt.formatting import count
from freshopt.logs.cells import Cells, more_than_five
from freshopt.logs.client_copies import ALL, WHOSE, Client, evidence_of_clients
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.log_files import log_frame, may_have
from freshopt.logs.row_outcomes import (
    CHANGED,
    NOT_MODIFIED,
    REPEATED,
    UNKNOWN,
    RowOutcomes,
    row_outcomes,
)
from freshopt.logs.schema import CRAWLS, SEEN_CRAWLS, require_columns, require_rows
from freshopt.logs.source_index import Codes
from freshopt.logs.timestamps import Moments
from freshopt.numerics.arrays import Array, labels_of

if TYPE_CHECKING:
    import os

    import polars

_LOGGER = logging.getLogger(__name__)
COLUMNS = ("source", "time", "changed", "elapsed", "changes", "last_modified")
_TELLING = ("changed", "elapsed")
# What crawls saw, from which `changed` follows where it is not there.
SEEN = ("hash", "etag", "status")


def read_log(
    path: str | os.PathLike[str],
    time_unit: str = "day",
    *,
    columns: Mapping[str, str] | None = None,
    client: str | None = None,
    agent: str | None = None,
    answers_are_changes: bool | None = False,
) -> CrawlLog:
    """Read a crawl log from a file.

    Parameters
    ----------
    path : path
        A CSV file with a header line (.csv or .csv.gz), a Parquet file (.parquet), JSON lines (.jsonl,
        .ndjson, or these with .gz) or the access log of a web server (a name with .log). The first three
        have the columns

        * ``source``: names, or integers;
        * ``time``: numbers in `time_unit`, or dates and times (in text: ISO 8601; without an offset: UTC);
          dates without separators, such as 20230307 and 20230307092216, are dates as numbers too;
        * ``changed``: 0 or 1, false or true; empty where that is not known. Beside it or in its place, what
          crawls saw: ``hash`` (of the content), ``etag`` or ``status`` (HTTP, of conditional requests; empty
          where there is none, 0 without an answer), one or more of them; a crawl found a change if that
          differs from the previous crawl of the same source, and a failed fetch is no evidence, see
          `freshopt.logs.row_outcomes`;
        * ``elapsed``, optional: each row's gap in `time_unit`, also the first, used instead of the
          differences of ``time``. With it ``time`` may be missing;
        * ``changes``, optional: the number of changes, empty where unknown;
        * ``last_modified``, optional: when the source had last changed, as the crawl was told, written as
          ``time`` is (dates also as servers send them), empty where it was not told.

        Other columns are ignored. Rows may be in any order. A source's first row is its baseline, unless
        ``elapsed`` says otherwise. In an access log the URL is the source, and requests by GET or HEAD are
        its crawls: answers 200 found a change, answers 304 none, others are no evidence. Where a server's log
        has several clients, each is a history of its own, see `freshopt.logs.client_copies`.
    time_unit : str
        The log's clock: "second", "minute", "hour", "day" or "week".
    columns : mapping of str to str, optional
        Names of the file's columns to those above, such as ``{"url": "source", "fetched_at": "time"}``.
    client, agent : str, optional
        The client whose requests are read: its address, or a part of its agent's name, or both. What is
        chosen counts as one client, whatever its other addresses or agents. A table has clients where
        `columns` names ``client`` or ``agent``.
    answers_are_changes : bool
        Whether answers 200 may count as changes where no row has a status 304, a hash or an ETag: true only
        of a crawler that asks conditionally and always found a change. Such a log is refused by default. None
        for a file that is part of a log: nobody is asked.

    Returns
    -------
    CrawlLog

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
    """
    path, begun = Path(path), time.perf_counter()
    with hearing() as heard:
        found, names, cells = read_columns(
            path,
            columns,
            time_unit,
            client=Client(client, agent),
            answers_are_changes=answers_are_changes,
        )
        log = CrawlLog.from_columns(found, names=names, time_unit=time_unit, row_name=cells.row_name)
        object.__setattr__(log, "warnings", by_weight(heard))
    _LOGGER.info("read %s: %r in %.2f s", path, log, time.perf_counter() - begun)
    return log


class FileRows(NamedTuple):
    """All rows of a log's file, and what they say.

    Attributes
    ----------
    columns : dict of str to ndarray of length rows
        ``source`` (positions among the names), ``changed``, ``time`` and so on, where they are told.
    names : ndarray
    cells : Cells
    told : list of str
        Which of the columns `SEEN` there are.
    said : RowOutcomes or None
        None where the column ``changed`` alone tells.
    status : ndarray, shape (rows,), or None
    whose : DataFrame or None
        The client and agent of each row, where there are several and statuses alone tell.
    """

    columns: dict[str, npt.NDArray[Any]]
    names: npt.NDArray[Any]
    cells: Cells
    told: list[str]
    said: RowOutcomes | None = None
    status: Array | None = None
    whose: polars.DataFrame | None = None


def read_rows(
    path: Path,
    columns: Mapping[str, str] | None = None,
    time_unit: str = "day",
    *,
    dated: bool | None = None,
    client: Client = ALL,
) -> FileRows:
    """Return the rows of a log's file.

    Numbers that can be dates are so if the times are known to be `dated`, and are not if they are known not
    to be.
    """
    frame, cells = log_frame(path, COLUMNS + SEEN, columns, client)
    require_columns(cells.present, SEEN_CRAWLS if set(SEEN) & set(cells.present) else CRAWLS, path)
    require_rows(frame, CRAWLS, path)
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
    if not told:
        return FileRows(found, names, cells, told)
    status = cells.statuses(frame["status"]) if "status" in told else None
    said = row_outcomes(
        codes,
        found["time"],
        status=status,
        changed=None if "changed" not in found else found["changed"].astype(np.float64),
        seen={key: frame[key] for key in told if key != "status"},
        more={key: found[key] for key in ("elapsed", "changes", "last_modified") if key in found},
    )
    several = set(WHOSE) <= set(frame.columns) and told == ["status"] and found.keys().isdisjoint(_TELLING)
    return FileRows(found, names, cells, told, said, status, frame.select(WHOSE) if several else None)


def read_columns(
    path: Path,
    columns: Mapping[str, str] | None = None,
    time_unit: str = "day",
    *,
    dated: bool | None = None,
    client: Client = ALL,
    answers_are_changes: bool | None = False,
    continued: bool = False,
) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any], Cells]:
    """Return the columns of a log's crawls, their names and cells.

    The column ``source`` holds positions among the names, and ``changed`` NaN where that is not known. Rows
    that are `continued` follow those of another log.
    """
    rows = read_rows(path, columns, time_unit, dated=dated, client=client)
    if rows.said is None:
        return rows.columns, rows.names, rows.cells
    if rows.whose is not None and rows.status is not None:
        own = rows.columns
        made = evidence_of_clients(rows.whose, own["source"], own["time"], rows.status, path, time_unit)
        known, made["source"] = np.unique(made["source"], return_inverse=True)
        return made, rows.names[known], rows.cells
    said, crawls = rows.said, rows.said.crawls
    _require_evidence(path, rows, answers_are_changes=answers_are_changes)
    kept = {key: column[crawls] for key, column in rows.columns.items()}
    if "elapsed" in kept:
        kept["elapsed"] = _summed(rows.columns["elapsed"], rows.columns["source"], said)
    outcome = said.outcome[crawls]
    changed = np.where(outcome == UNKNOWN, np.nan, outcome == CHANGED)
    if not continued:
        # Of a first row nobody asks whether it had changed; with an interval it is a baseline all the same.
        baseline = (np.diff(kept["source"], prepend=-1) != 0) & (outcome == UNKNOWN)
        changed[baseline] = 0.0
        if "elapsed" in kept:
            kept["elapsed"][baseline] = np.nan
    known, kept["source"] = np.unique(kept["source"], return_inverse=True)
    return {**kept, "changed": changed}, rows.names[known], rows.cells.of_rows(crawls)


def _summed(elapsed: Array, codes: Codes, said: RowOutcomes) -> Array:
    """Return the times since the crawl before, over rows between."""
    order = said.order[said.outcome[said.order] != REPEATED]
    crawl = said.outcome[order] >= UNKNOWN
    begins = np.diff(codes[order], prepend=-1) != 0
    begins[1:] |= crawl[:-1]
    since: Array = np.add.reduceat(elapsed[order], np.flatnonzero(begins))
    return np.asarray(since[(np.cumsum(begins) - 1)[crawl]])


def ask_about_answers(path: Path, answers_are_changes: bool | None) -> None:
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


def _require_evidence(path: Path, rows: FileRows, *, answers_are_changes: bool | None) -> None:
    """Raise unless rows are evidence; warn of contradictions and repetitions."""
    said, cells = rows.said, rows.cells
    assert said is not None, "asked of logs with more than the column changed"
    every, crawls = len(said.outcome), said.crawls
    if len(crawls) == 0:
        raise SourceDataError(
            f"no row of {path} has a value in {', '.join(rows.told)} that tells whether its source had "
            f"changed ({count(every, 'row')}). Fill one of them in, or add the column changed."
        )
    time, code = (rows.columns[key][crawls] for key in ("time", "source"))
    later = np.diff(code, prepend=-1) == 0
    by_status = rows.told == ["status"] and "changed" not in rows.columns
    changes = bool(np.any(said.outcome[crawls][later] == CHANGED))
    if by_status and changes and not np.any(rows.status == NOT_MODIFIED):
        ask_about_answers(path, answers_are_changes)
    twice = np.flatnonzero((code[1:] == code[:-1]) & (time[1:] == time[:-1]))
    if len(twice):
        pairs = ([cells.row_name(int(crawls[k + each])) for each in (1, 0)] for k in twice[:5].tolist())
        where = list_offenders(f"{one} repeats the time of {other}" for one, other in pairs)
        raise SourceDataError(
            f"{where}{more_than_five(len(twice))}, with other cells. A source has one row per crawl. "
            "Drop the repeated rows."
        )
    again = np.flatnonzero(said.outcome == REPEATED)
    for row, what, verdict in (
        (said.hashed, "status 304 stands beside another hash than the crawl before has", "is a change"),
        (said.tagged, "status 304 stands beside another ETag than the crawl before has", "is no change"),
        (again, "all columns repeat another row", "counts once"),
    ):
        if len(row):
            where = cells.row_name(int(np.min(row)))
            warn(f"{what} in {count(len(row), 'row')}, such as {where}: each {verdict}.")


class Fetches(NamedTuple):
    """Source, status and moment of each fetch whose outcome is told."""

    source: npt.NDArray[Any]
    status: Array
    time: Moments


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
        Of a crawl log, as `freshopt.logs.read_log` takes it.
    columns : mapping of str to str, optional
        Names of the file's columns to those of a log.
    dated : bool, optional
        Whether the times of the log are dates.
    client : Client, optional
        Of an access log, whose fetches are wanted. Default: everybody's.
    """
    # Most logs have none, and their rows are not read for it.
    if not may_have(path, COLUMNS + SEEN, columns).issuperset({"source", "time", "status"}):
        return None
    rows = read_rows(path, columns, dated=dated, client=client or ALL)
    if rows.said is None or rows.status is None:
        return None
    status = rows.said.statuses(rows.status)
    told = ~np.isnan(status)
    names = labels_of(rows.names, rows.columns["source"][told])
    return Fetches(names, status[told], rows.columns["time"][told])
