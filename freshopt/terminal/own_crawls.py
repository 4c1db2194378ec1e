"""Crawls of the plan itself, which continue its log.

A file has the columns of a log (source, time, changed). In a log of its own a source's first row would be a
baseline, of which nothing is learnt; here it follows the source's last crawl in the log, and tells whether
the source changed since then.

A line of a crontab plans again after each period: cron knows no intervals: a period must divide an hour or a
day, or be a day or a week. The command is written out as it was given, from the folder in which it was given,
by this very interpreter: cron knows no other.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import OPTIONAL, CrawlLog, derived_log
from freshopt.logs.read_crawls import ToldRows, crawl_columns, other_fetches, read_rows
from freshopt.logs.row_outcomes import OtherFetches
from freshopt.logs.source_index import joined_names
from freshopt.logs.tables import column_names, read_table, table_ending, without_blank_end
from freshopt.numerics.arrays import Array, IntArray
from freshopt.units import parse_duration

# Minutes of an hour, and hours of a day, that whole numbers of periods fill.
_MINUTES = tuple(m for m in range(1, 60) if 60 % m == 0)
_HOURS = tuple(h for h in range(1, 24) if 24 % h == 0)


def cron_fields(period: str) -> str:
    """Return the time fields of a period.

    Examples
    --------
    >>> cron_fields("7d"), cron_fields("1d"), cron_fields("6h"), cron_fields("15min")
    ('0 0 * * 1', '0 0 * * *', '0 */6 * * *', '*/15 * * * *')
    """
    try:
        minutes = parse_duration(period, "minute")
    except SourceDataError as error:
        raise SourceDataError(f"--every: {error}") from None
    whole = round(minutes)
    if abs(minutes - whole) < 1e-9 * max(minutes, 1.0):
        if whole in _MINUTES:
            return f"*/{whole} * * * *" if whole > 1 else "* * * * *"
        if whole % 60 == 0 and whole // 60 in _HOURS:
            return f"0 */{whole // 60} * * *" if whole > 60 else "0 * * * *"
        if whole == 1440:
            return "0 0 * * *"
        if whole == 7 * 1440:
            return "0 0 * * 1"
    raise SourceDataError(
        f"--every {period}: cron does not repeat that. Choose 7d, 1d, or hours or minutes that divide a day "
        "or an hour, such as 6h."
    )


def crontab_line(period: str, command: str, folder: Path | None = None) -> str:
    r"""Return the line that runs a freshopt command after each period.

    Examples
    --------
    >>> line = crontab_line("1d", "freshopt plan log.csv --out 100%", Path("/srv"))
    >>> line.replace(sys.executable, "python")
    '0 0 * * * cd /srv && python -m freshopt plan log.csv --out 100\\%'
    """
    where = shlex.quote(str(Path(os.getcwd()) if folder is None else folder))
    program = shlex.join([sys.executable, "-m", "freshopt"])
    rest = command.removeprefix("freshopt")
    # cron takes a percent sign for the end of the line.
    job = f"cd {where} && {program}{rest}".replace("%", "\\%")
    return f"{cron_fields(period)} {job}"


def with_own_crawls(
    log: CrawlLog, paths: Sequence[Path], *, empty: bool = False, answers_are_changes: bool = False
) -> CrawlLog:
    """Return a log continued by the crawls in files.

    - `paths`: Tables with the columns source, time and changed, and perhaps changes and last_modified; times
      are written as those of the log are.
    - `empty`: Whether a file may have column names alone: nothing was crawled yet.
    - `answers_are_changes`: As in `freshopt.logs.read_log`.
    """
    if not paths:
        return log
    if not log.timed:
        raise SourceDataError(
            "the log has no times, so that nothing can continue it. Give it a column 'time'."
        )
    if empty:
        paths = [path for path in paths if not _without_rows(path)]
        if not paths:
            return log
    names, source = [log.names], [log.source_index]
    told: dict[str, list[Array]] = {"time": [log.time], "changed": [log.changed.astype(np.float64)]}
    for key in OPTIONAL:
        own = getattr(log, key)
        told[key] = [np.full(len(log), np.nan) if own is None else own]
    read: list[ToldRows] = []
    for path in paths:
        told_rows = read_rows(path, None, log.time_unit, dated=log.clock.dated)
        columns, labels, _ = crawl_columns(
            told_rows, log.time_unit, answers_are_changes=answers_are_changes, continued=True
        )
        if "time" not in columns:
            raise SourceDataError(f"{path} has no column 'time'. Own crawls need the times of the log.")
        read.append(told_rows)
        names.append(labels)
        source.append(np.asarray(columns["source"], dtype=np.int64))
        count = len(source[-1])
        told["time"].append(_clocked(columns["time"], log.clock, path))
        told["changed"].append(np.asarray(columns["changed"], dtype=np.float64))
        told["changes"].append(np.asarray(columns.get("changes", np.full(count, np.nan)), dtype=np.float64))
        dates = columns.get("last_modified")
        blank = dates is None or (np.asarray(dates).dtype.kind == "f" and bool(np.isnan(dates).all()))
        known = np.full(count, np.nan) if blank else _clocked(dates, log.clock, path)
        told["last_modified"].append(known)
    every, code = joined_names(names, source)
    at = {key: np.concatenate(parts) for key, parts in told.items()}
    order = np.lexsort((at["time"], code))
    elapsed = _elapsed(log, every, code, at["time"], order)
    result: dict[str, Any] = {
        "source": code,
        "time": log.clock.moments(at["time"]),
        "changed": at["changed"],
        "elapsed": elapsed,
    }
    if not np.isnan(at["changes"]).all():
        result["changes"] = at["changes"]
    if not np.isnan(at["last_modified"]).all():
        result["last_modified"] = log.clock.moments(at["last_modified"])
    continued = derived_log(result, every, Clock(log.time_unit))
    # Fetches that tell nothing cost as much.
    others = [other_fetches(told_rows, every, log.clock) for told_rows in read]
    others += [] if log.other_fetches is None else [log.other_fetches.among(log.names, every)]
    joined = OtherFetches.joined([each for each in others if each is not None])
    object.__setattr__(continued, "other_fetches", joined)
    return continued


def _without_rows(path: Path) -> bool:
    """Return whether a table is a log without rows."""
    if not {"source", "time", "changed"} <= set(column_names(path)):
        return False
    is_text = table_ending(path) != ".parquet"
    frame = read_table(path, columns=("source", "time", "changed"), as_text=is_text)
    return (without_blank_end(frame) if is_text else frame).height == 0


def _clocked(times: Any, clock: Clock, path: Path) -> Array:  # noqa: ANN401 - numbers or dates
    """Return the times of a file on the clock of the log."""
    try:
        return clock.offsets(np.asarray(times), "time")
    except SourceDataError as error:
        raise SourceDataError(f"{path}: {error}") from None


def _elapsed(log: CrawlLog, names: npt.NDArray[Any], code: IntArray, time: Array, order: IntArray) -> Array:
    """Return the crawl interval of each row; NaN of a baseline."""
    new = order >= len(log)
    same = code[order][1:] == code[order][:-1]
    early = np.flatnonzero(same & new[:-1] & ~new[1:])
    repeated = np.flatnonzero(same & new[1:] & ~(np.diff(time[order]) > 0.0))
    for wrong, words in ((early, "before the log's last crawl of"), (repeated, "twice at one time of")):
        if len(wrong):
            some = dict.fromkeys(repr(names.item(code[order[k]])) for k in wrong.tolist())
            raise SourceDataError(
                f"the own crawls have rows {words} {list_offenders(some)}. Keep the log as it was, and only "
                "crawls after it, each once."
            )
    elapsed = np.full(len(code), np.nan)
    elapsed[: len(log)] = log.interval
    since = np.full(len(code), np.nan)
    since[order[1:][same]] = np.diff(time[order])[same]
    return np.where(np.arange(len(code)) < len(log), elapsed, since)
