"""`read_bing`: Microsoft Bing's published crawl histories of 18.5 million pages.

With the importances of the pages, and their hosts.

The data of Kolobov et al., NeurIPS 2019 (and SIGIR 2019), described at
https://github.com/microsoft/Optimal-Freshness-Crawl-Scheduling, are files of tab-separated columns, no
header:

* ``urlid_offset_history.txt``: id; days from the begin of the collection to the page's first crawl; its later
  crawls ``[[gap, changed], ...]``, the crawl interval in days since the crawl before, each of which tells
  whether there was a change and not how many; an interval of 0 is a second record of one crawl;
* ``urlid_imp.txt``: id; importance;
* ``urlid_chrate_compl_obs_hist.txt``: id; changes per day, of the 4 % of pages whose sitemaps announce
  their changes;
* ``url_urlid_hostid.txt``: URL; id; the host's id;
* ``host_hostid_isconstrained.txt``: URL of the host; its id; 1 if it limits how often it may be crawled,
  0 if not.

Cost: some 20 µs a page, 9 bytes a crawl and more while the log is sorted; `limit` reads the first pages only.
"""

import gzip
import json
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

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

    Arrays follow the order of ``log.names``, the ids; the log is in days from the begin of the collection.
    Rates are NaN for pages that announce no changes. Hosts are None where the folder has no file of them, and
    so are those that limit how often they may be crawled, sorted. How often, the data do not tell:
    ``dict.fromkeys(data.constrained_hosts.tolist(), 24.0)`` are `host_limits` of 24 a day.
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
        """Return the pages as sources, of estimated rates where they announce no changes."""
        announced = ~np.isnan(self.announced_rate)
        learnt = as_vector(change_rate, len(self.importance), "change_rate")
        rate = np.where(announced, self.announced_rate, learnt)
        return Sources(rate, self.importance, names=self.log.names, host=self.host, signalled=announced)


def read_bing(folder: str | os.PathLike[str], limit: int | None = None) -> BingData:
    """Read the data set, of the first pages only if there is a limit; files may be gzipped."""
    place = Path(folder)
    if not place.is_dir():
        raise SourceDataError(
            f"{place} is not a folder. Name the one with {HISTORY}.txt and {IMPORTANCE}.txt."
        )
    if limit is not None and limit < 1:
        raise SourceDataError(f"limit is {limit}. Pass how many pages to read, 1 or more, or None for all.")
    log = _histories(_file(place, HISTORY), limit)
    pages = log.names.tolist()
    worth = partial(_number, "importance", 0.0)
    importance = _column(_file(place, IMPORTANCE), pages, worth, "no importance of {} pages")
    announced, hosts, limited = (_find(place, stem) for stem in (ANNOUNCED, PAGE_HOSTS, CONSTRAINED))
    told = {} if announced is None else _values(announced, partial(_number, "change rate", SMALLEST))
    rate = np.array([told.get(page, np.nan) for page in pages])
    host = constrained = None
    if hosts is not None:
        found = _column(hosts, pages, _integer, "no host of {} pages", fields=(1, 2, 3))
        host = read_only(np.array(found, dtype=np.int64))
    if host is not None and limited is not None:
        own = np.unique(host)
        flags = _column(limited, own.tolist(), _flag, "no line of {} hosts of pages", fields=(1, 2, 3))
        constrained = read_only(own[np.array(flags, dtype=bool)])
    return BingData(log, read_only(np.array(importance)), read_only(rate), host, constrained)


def _values(
    path: Path, parse: Callable[[str, str], Any], fields: tuple[int, int, int] = (0, 1, 2)
) -> dict[int, Any]:
    """Return what is told of each id; the fields are those of the id and the value, and their number."""
    key, value, width = fields
    return {_integer(row[key], where): parse(row[value], where) for where, row in _lines(path, width, key)}


def _column(
    path: Path,
    ids: list[int],
    parse: Callable[[str, str], Any],
    words: str,
    fields: tuple[int, int, int] = (0, 1, 2),
) -> list[Any]:
    """Return what is told of ids, all of which must be there."""
    told = _values(path, parse, fields)
    if missing := [each for each in ids if each not in told]:
        raise SourceDataError(
            f"{path} has {words.format(len(missing))}, the first being {missing[0]}. Complete the file, or "
            f"leave these pages out of {HISTORY}."
        )
    return [told[each] for each in ids]


def _histories(path: Path, limit: int | None) -> CrawlLog:
    """Read the histories into a crawl log: of each page a baseline and then a row per crawl."""
    ids, sizes = array("q"), array("q")
    intervals, changed, times = array("d"), bytearray(), array("d")
    for where, (label, offset, history) in _lines(path, 3):
        if limit is not None and len(ids) >= limit:
            break
        ids.append(_integer(label, where))
        clock, before = _number("first_crawl_time_offset", 0.0, offset, where), len(intervals)
        for wait, flag in ((np.nan, 0), *_pairs(history, where)):
            if wait == 0:
                changed[-1] |= flag
                continue
            if clock + wait == clock:
                raise SourceDataError(
                    f"a gap of {wait:g} days is lost beside the time {clock:g} in {where}. Correct them."
                )
            clock += 0.0 if np.isnan(wait) else wait
            intervals.append(wait)
            changed.append(flag)
            times.append(clock)
        sizes.append(len(intervals) - before)
    if not ids:
        raise SourceDataError(f"{path} has no lines. Check that it was unpacked completely.")
    names, codes = code_sources(ids)
    if len(names) < len(ids):
        twice = names[np.argmax(np.bincount(codes) > 1)]
        raise SourceDataError(f"{path} has page {twice} in more than one line. Keep one of them.")
    columns = {
        "source": np.repeat(codes.astype(np.int64), np.array(sizes)),
        "time": np.array(times),
        "elapsed": np.array(intervals),
        "changed": np.frombuffer(bytes(changed), dtype=np.uint8).astype(np.bool_),
    }
    return CrawlLog.from_columns(columns, names=names, time_unit="day")


def _pairs(text: str, where: str) -> Iterable[tuple[float, int]]:
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


def _lines(path: Path, columns: int, key: int = 0) -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the fields of each line.

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
                        "separated by tabs. Unpack the file anew."
                    )
                yield f"line {line} of {path}", fields
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


def _number(what: str, least: float, text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not least <= number <= LARGEST:
        raise SourceDataError(
            f"{what} is {_short(text)} in {where}. It is a number >= {least:g}. Correct it."
        )
    return number


def _flag(text: str, where: str) -> bool:
    if text.strip() not in {"0", "1"}:
        raise SourceDataError(
            f"whether the host is constrained is {_short(text)} in {where}. It is 0 or 1. Correct it."
        )
    return text.strip() == "1"


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
