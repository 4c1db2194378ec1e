"""`read_bing`: Microsoft Bing's published crawl histories of 18.5 million pages.

With the importances of the pages, and their hosts.

The data of Kolobov et al., NeurIPS 2019 (and SIGIR 2019), are files of tab-separated columns, no header:

* ``urlid_offset_history.txt``: id; days from the begin of the collection to the page's first crawl; its later
  crawls ``[[gap, changed], ...]``, the crawl interval in days since the crawl before, each of which tells
  whether there was a change and not how many;
* ``urlid_imp.txt``: id; importance;
* ``urlid_chrate_compl_obs_hist.txt``: id; changes per day, of the 4 % of pages whose sitemaps announce
  their changes;
* ``url_urlid_hostid.txt``: URL; id; the host's id;
* ``host_hostid_isconstrained.txt``: URL of the host; its id; 1 if it limits how often it may be crawled,
  0 if not.

Cost: some 20 µs a page, 9 bytes a crawl and more while the log is sorted; `limit` reads the first pages only.
"""

from __future__ import annotations

import gzip
import json
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.source_index import code_sources
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, IntArray, as_vector, read_only
from freshopt.numerics.frozen_arrays import frozen_arrays

HISTORY, IMPORTANCE, ANNOUNCED = "urlid_offset_history", "urlid_imp", "urlid_chrate_compl_obs_hist"
PAGE_HOSTS, CONSTRAINED = "url_urlid_hostid", "host_hostid_isconstrained"
ENDINGS = (".txt", ".tsv", ".txt.gz", ".tsv.gz")


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BingData:
    """Crawl log and importances of the Bing data.

    Arrays follow the order of ``log.sources_``, the ids.

    Attributes
    ----------
    log : CrawlLog
        In days from the begin of the collection.
    importance : ndarray, shape (n,)
    announced_rate : ndarray, shape (n,)
        Changes per day of pages that announce them; NaN for the others.
    host : ndarray of int, shape (n,), or None
        The id of each page's host, where the folder has the file.
    constrained_hosts : ndarray of int, or None
        Ids of the hosts of these pages that limit how often they may be crawled, sorted. How often, the data
        do not tell: ``dict.fromkeys(data.constrained_hosts.tolist(), 24.0)`` are `host_limits` of 24 a day.
    """

    log: CrawlLog
    importance: Array
    announced_rate: Array
    host: IntArray | None = None
    constrained_hosts: IntArray | None = None

    def __repr__(self) -> str:
        """Return the sizes."""
        known = int(np.count_nonzero(~np.isnan(self.announced_rate)))
        return f"BingData({self.log!r}, {known} of {len(self.importance)} announce their changes)"

    def sources(self, change_rate: npt.ArrayLike) -> Sources:
        """Return the pages as sources of a problem.

        Parameters
        ----------
        change_rate : array_like, shape (n,)
            Changes per day, estimated from the log, such as
            ``MaximumLikelihood().fit(data.log).change_rate_``; pages that announce their changes have theirs
            from the data.
        """
        n = len(self.importance)
        announced = ~np.isnan(self.announced_rate)
        rate = np.where(announced, self.announced_rate, as_vector(change_rate, n, "change_rate"))
        return Sources(rate, self.importance, name=self.log.sources_, host=self.host, signalled=announced)


def read_bing(folder: str | os.PathLike[str], limit: int | None = None) -> BingData:
    """Read the data set.

    Parameters
    ----------
    folder : path
        With the five files, which may be gzipped. Where the one of announced changes is missing, no page
        announces any; where those of hosts are, the hosts are None.
    limit : int, optional
        Read the first pages of the histories only.

    Returns
    -------
    BingData

    Raises
    ------
    SourceDataError
        If a file is missing or a line cannot be used; names the file and the line.

    Notes
    -----
    A page's first crawl is its baseline. A crawl interval of 0 is a second record of one crawl, which is
    joined with it.

    References
    ----------
    .. [1] Kolobov, Peres, Lu, Horvitz, "Staying up to date with online content changes using reinforcement
       learning for scheduling", NeurIPS 2019; the data are described at
       https://github.com/microsoft/Optimal-Freshness-Crawl-Scheduling
    """
    place = Path(folder)
    if not place.is_dir():
        raise SourceDataError(
            f"{place} is not a folder. Name the one with {HISTORY}.txt and {IMPORTANCE}.txt."
        )
    if limit is not None and limit < 1:
        raise SourceDataError(f"limit is {limit}. Pass how many pages to read, 1 or more, or None for all.")
    log = _histories(_file(place, HISTORY), limit)
    importance = _values(_file(place, IMPORTANCE), log, "importance", 0.0)
    missing = np.flatnonzero(np.isnan(importance))
    if len(missing):
        raise SourceDataError(
            f"{_file(place, IMPORTANCE)} has no importance of {len(missing)} pages, the first being "
            f"{log.sources_[missing[0]]}. Complete the file, or leave these pages out of {HISTORY}."
        )
    announced = _find(place, ANNOUNCED)
    rate = (
        np.full(len(importance), np.nan)
        if announced is None
        else _values(announced, log, "change rate", SMALLEST)
    )
    hosts = _find(place, PAGE_HOSTS)
    limited = _find(place, CONSTRAINED)
    host = None if hosts is None else _page_hosts(hosts, log)
    constrained = None if host is None or limited is None else _constrained(limited, host)
    return BingData(log, read_only(importance), read_only(rate), host, constrained)


def _page_hosts(path: Path, log: CrawlLog) -> IntArray:
    """Read the host of each page."""
    position = {int(name): k for k, name in enumerate(log.sources_.tolist())}
    hosts = np.full(len(position), -1, dtype=np.int64)
    for line, (_, page, host) in _lines(path, 3, key=1):
        where = f"line {line} of {path}"
        number = _integer(host, where)
        at = position.get(_integer(page, where))
        if at is not None:
            hosts[at] = number
    missing = np.flatnonzero(hosts < 0)
    if len(missing):
        raise SourceDataError(
            f"{path} has no host of {len(missing)} pages, the first being {log.sources_[missing[0]]}. "
            f"Complete the file, or leave these pages out of {HISTORY}."
        )
    return read_only(hosts)


def _constrained(path: Path, host: IntArray) -> IntArray:
    """Read which of the pages' hosts limit their crawl rate."""
    told: dict[int, bool] = {}
    for line, (_, label, flag) in _lines(path, 3, key=1):
        where = f"line {line} of {path}"
        if flag.strip() not in {"0", "1"}:
            raise SourceDataError(
                f"whether the host is constrained is {_short(flag)} in {where}. It is 0 or 1. Correct it."
            )
        told[_integer(label, where)] = flag.strip() == "1"
    own = np.unique(host)
    unknown = [number for number in own.tolist() if number not in told]
    if unknown:
        raise SourceDataError(
            f"{path} has no line of {len(unknown)} hosts of pages, the first being {unknown[0]}. Complete "
            "the file."
        )
    return read_only(own[[told[number] for number in own.tolist()]])


def _histories(path: Path, limit: int | None) -> CrawlLog:
    """Read the histories into a crawl log.

    A page has a baseline and then a row per crawl.
    """
    ids, sizes = array("q"), array("q")
    intervals, changed, times = array("d"), bytearray(), array("d")
    for line, (label, offset, history) in _lines(path, 3):
        if limit is not None and len(ids) >= limit:
            break
        where = f"line {line} of {path}"
        ids.append(_integer(label, where))
        clock = _number(offset, "first_crawl_time_offset", where, 0.0)
        before = len(intervals)
        intervals.append(np.nan)
        changed.append(0)
        times.append(clock)
        for wait, flag in _pairs(history, where):
            if wait > 0:
                if clock + wait == clock:
                    raise SourceDataError(
                        f"a gap of {wait:g} days is lost beside the time {clock:g} in {where}. Correct them."
                    )
                clock += wait
                intervals.append(wait)
                changed.append(flag)
                times.append(clock)
            else:
                changed[-1] |= flag
        sizes.append(len(intervals) - before)
    if not ids:
        raise SourceDataError(f"{path} has no lines. Check that it was unpacked completely.")
    count = np.array(sizes)
    names, codes = code_sources(ids)
    if len(names) < len(ids):
        known = np.bincount(codes)
        raise SourceDataError(
            f"{path} has page {names[np.argmax(known > 1)]} in more than one line. Keep one of them."
        )
    columns = {
        "source": np.repeat(codes.astype(np.int64), count),
        "time": np.array(times),
        "elapsed": np.array(intervals),
        "changed": np.frombuffer(bytes(changed), dtype=np.uint8).astype(np.bool_),
    }
    return CrawlLog.from_columns(columns, names=names, time_unit="day")


def _pairs(text: str, where: str) -> list[tuple[float, int]]:
    """Return the crawls of a page."""
    try:
        history = json.loads(text)
    except (ValueError, RecursionError):  # not JSON, or a number of thousands of digits
        history = None
    if not isinstance(history, list):
        raise SourceDataError(
            f"the history is {_short(text)} in {where}. It is written [[gap, changed], ...]. Unpack the "
            "file anew."
        )
    for k, pair in enumerate(history):
        if not (isinstance(pair, list) and len(pair) == 2 and _is_interval(pair[0]) and pair[1] in (0, 1)):
            raise SourceDataError(
                f"crawl {k + 1} of the history is {_short(pair)} in {where}. It is a gap in days and 0 or 1. "
                "Correct it."
            )
    return [(float(interval), int(flag)) for interval, flag in history]


def _is_interval(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and (value == 0 or SMALLEST <= value <= LARGEST)  # type: ignore[operator]


def _values(path: Path, log: CrawlLog, what: str, least: float) -> Array:
    """Read one number per page.

    NaN for pages of the log that the file does not have.
    """
    values = np.full(len(log.sources_), np.nan)
    position = {int(name): k for k, name in enumerate(log.sources_.tolist())}
    for line, (label, text) in _lines(path, 2):
        where = f"line {line} of {path}"
        at = position.get(_integer(label, where))
        number = _number(text, what, where, least)
        if at is not None:
            values[at] = number
    return values


def _lines(path: Path, columns: int, key: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line.

    A header, where field `key` is no number, and blank lines are passed over.
    """
    try:
        with _opened(path) as file:
            for line, raw in enumerate(file, 1):
                if not raw.strip():
                    continue
                fields = raw.decode("utf-8", "backslashreplace").rstrip("\r\n").split("\t")
                if line == 1 and not fields[min(key, len(fields) - 1)].strip().lstrip("-").isdecimal():
                    continue
                if len(fields) != columns:
                    raise SourceDataError(
                        f"line {line} of {path} has {len(fields)} columns, not {columns}. They are "
                        "separated by tabs. "
                        "Unpack the file anew."
                    )
                yield line, fields
    except (OSError, EOFError) as error:
        raise SourceDataError(f"{path} cannot be read: {error}. Check that it is complete.") from error


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _integer(text: str, where: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 2**63:
        raise SourceDataError(f"the id is {_short(text)} in {where}. It is an integer >= 0. Correct it.")
    return number


def _number(text: str, what: str, where: str, least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not least <= number <= LARGEST:
        raise SourceDataError(
            f"{what} is {_short(text)} in {where}. It is a number >= {least:g}. Correct it."
        )
    return number


def _file(folder: Path, stem: str) -> Path:
    path = _find(folder, stem)
    if path is None:
        raise SourceDataError(f"{folder} has no file {stem}.txt. Unpack the data set there.")
    return path


def _find(folder: Path, stem: str) -> Path | None:
    candidates = (folder / f"{stem}{ending}" for ending in ENDINGS)
    return next((path for path in candidates if path.is_file()), None)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= 60 else text[:57] + "...")
