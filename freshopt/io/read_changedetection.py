"""`read_changedetection`: the crawl log behind the snapshots of changedetection.io.

Its data folder, and the backup that it makes of it (a ZIP file), hold a list of watches, ``url-watches.json``
with the key ``watching`` (or a ``watch.json`` in each watch's folder, and ``changedetection.json``), and in
the folder of each watch ``history.txt``: a line ``epoch-seconds,file`` for every snapshot [1]_. The first
snapshot is a baseline, each later one the check that found a change; ``last_checked`` is the last check.

A check takes one snapshot at most: of a page that changes more often than it is checked the snapshots count
the checks, not the changes. Checks that found nothing are not listed, but the interval between checks is, of
each watch or in the settings. So the checks are crawls: between two snapshots as many at equal distances as
the interval makes them. Rates depend on the length of the interval before each snapshot, and not on where
the others are. A watch without a snapshot says nothing, and is left out.

Intervals are those of today. Where ``check_count`` and ``date_created`` tell how many checks there were, the
log has as many: where gaps between snapshots are all alike there was one at each check; fewer than the
interval makes are missing in the longest gaps, and where most are missing in one, the watch was paused at its
end; for more the interval is made shorter.

Cost: reading the files, and 30 bytes a check.

References
----------
.. [1] https://github.com/dgtlmoon/changedetection.io, ``model/Watch.py`` and ``docs/api-spec.yaml``
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, label_array
from freshopt.units import check_time_unit

if TYPE_CHECKING:
    import os

LIST, WATCH, SNAPSHOTS, SETTINGS = "url-watches.json", "watch.json", "history.txt", "changedetection.json"
# Seconds between checks as it is installed, and of the parts in which intervals are written.
INSTALLED = 10_800
PARTS = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
# Rows of a log. Beyond, checks that found nothing are told several at a time, which loses nothing of a rate.
MOST = 2_000_000
# Gaps between snapshots in a row, the share of them within so much of their lower quartile that makes it the
# time between checks, and the largest that it may be of the interval and of the mean between checks: a page
# that changes once a day, checked every 3 hours, has such gaps, too.
ROW, ALIKE, WITHIN, INTERVALS, MEANS = 9, 2 / 3, 0.1, 1.25, 2.0
# Share of the checks that are missing, from which they are missing in one gap at once.
PAUSED = 0.5
_LAST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
# Bytes of a file in a backup: a billion bytes of zeros fit into a megabyte of ZIP.
LARGEST = 1 << 28
# What zipfile raises, the last two of encrypted members and of methods it does not know.
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, struct.error, RuntimeError, NotImplementedError)
Folder = Path | zipfile.Path


class Watch(NamedTuple):
    """Watch with the times of its snapshots.

    In seconds since 1970; its interval between checks, None for the server's default, and the mean time
    between them, None where it is not told, in seconds.
    """

    key: str
    url: str
    times: list[float]
    checked: float
    interval: int | None = None
    mean: float | None = None


def read_changedetection(path: str | os.PathLike[str], time_unit: str = "day") -> CrawlLog:
    """Read the checks of changedetection.io as a crawl log.

    Parameters
    ----------
    path : path
        Its data folder, or a backup (ZIP).
    time_unit : str
        "second", "minute", "hour", "day" or "week".

    Returns
    -------
    CrawlLog
        Sources are the watched URLs; where two watches have the same, ``URL [watch]``. Checks that found a
        change are those of the snapshots, the others are put in between as the interval between checks tells.

    Raises
    ------
    SourceDataError
        If there are no watches with snapshots, or a file cannot be used; names the file.
    """
    check_time_unit(time_unit)
    try:
        usual, every = _watches(Path(path))
        watches = [watch for watch in every if watch.times]
    except _DAMAGED as error:
        raise SourceDataError(f"{path} is a damaged ZIP file: {error}. Take the backup anew.") from None
    if not watches:
        raise SourceDataError(
            f"{path} has no watch with a snapshot. Check that it is the data folder or a backup of "
            "changedetection.io, and that its watches have been checked."
        )
    return log_of_watches(watches, time_unit, usual)


def names_of_watches(watches: list[Watch]) -> list[str]:
    """Return the URLs of watches; where two have the same, ``URL [watch]``."""
    often = Counter(watch.url for watch in watches)
    return [watch.url if often[watch.url] == 1 else f"{watch.url} [{watch.key}]" for watch in watches]


def log_of_watches(watches: list[Watch], time_unit: str, usual: float) -> CrawlLog:
    """Return the checks of watches with snapshots.

    `usual` is the server's default interval in seconds.
    """
    names = names_of_watches(watches)
    order = sorted(range(len(watches)), key=names.__getitem__)
    parts: list[tuple[npt.NDArray[Any], ...]] = []
    for k, at in enumerate(order):
        watch = watches[at]
        times = np.array(watch.times)
        edges = np.append(times, watch.checked) if watch.checked > times[-1] else times
        gaps = np.diff(edges)
        many, last = _checks(gaps, float(watch.interval or usual), watch.mean)
        change = np.arange(len(gaps)) < len(times) - 1
        parts.append((np.full(len(gaps), k), edges[:-1], gaps, many - 1.0, last, change))
    own, begin, gap, quiet, last, change = (np.concatenate(each) for each in zip(*parts, strict=True))
    # Checks that found nothing, several at a time if there are too many.
    quiet = np.ceil(quiet / max(1.0, np.ceil(np.sum(quiet) / MOST))).astype(np.int64)
    row = np.repeat(np.arange(len(gap)), quiet + 1)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(quiet + 1) - quiet - 1, quiet + 1) + 1
    ends = turn > quiet[row]
    since = np.where(ends, gap[row], turn / np.maximum(quiet, 1)[row] * (gap - last)[row])
    first = np.array([watches[at].times[0] for at in order])
    columns = {
        "source": np.concatenate([np.arange(len(order)), own[row]]),
        "time": _moments(np.concatenate([first, begin[row] + since])),
        "changed": np.concatenate([np.zeros(len(order), dtype=np.bool_), ends & change[row]]),
    }
    labels = label_array([names[at] for at in order])
    return CrawlLog.from_columns(columns, names=labels, time_unit=time_unit)


def _checks(gaps: Array, interval: float, mean: float | None) -> tuple[Array, Array]:
    """Return the number of checks in each gap between snapshots.

    And the time before the last of them.
    """
    many = np.maximum(1.0, np.rint(gaps / interval))
    if mean is None or len(gaps) == 0:
        return many, gaps / many
    told = _told_by_snapshots(gaps, max(INTERVALS * interval, MEANS * mean))
    total = float(np.sum(gaps)) / mean

    def made(every: float) -> Array:
        return np.maximum(1.0, np.rint(gaps / np.fmax(told, np.where(np.isnan(told), every, 0.0))))

    many = made(interval)
    if np.sum(many) > total:
        # The largest count K with Σ min(many, K) = total: with k gaps above it, total less the others over k.
        ordered = np.sort(many)
        others = np.cumsum(ordered) - ordered
        most = max(1.0, np.ceil(np.max((total - others) / np.arange(len(ordered), 0, -1))))
        missing = np.maximum(0.0, many - most)
        paused = missing > PAUSED * np.sum(missing)
        many, every = np.minimum(many, most), gaps / np.where(paused, many, np.minimum(many, most))
        return many, np.where(paused, gaps - (many - 1.0) * every, every)
    low, high = min(1.0, interval), interval
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.sum(made(middle)) > total else (low, middle)
    return made(high), gaps / made(high)


def _told_by_snapshots(gaps: Array, longest: float) -> Array:
    """Return the time between checks that like gaps tell, else NaN."""
    if len(gaps) < ROW:
        return np.full(len(gaps), np.nan)
    rows = np.lib.stride_tricks.sliding_window_view(gaps, ROW)
    low = np.quantile(rows, 0.25, axis=1)
    alike = np.mean(np.abs(rows - low[:, None]) <= WITHIN * low[:, None], axis=1) >= ALIKE
    near = np.clip(np.arange(len(gaps)) - ROW // 2, 0, len(rows) - 1)
    return np.where(alike & (low <= longest), low, np.nan)[near]


def _watches(path: Path) -> tuple[int, Iterator[Watch]]:
    """Return the default interval and the watches."""
    if not path.exists():
        raise SourceDataError(f"there is no file or folder {path}. Check the path.")
    if not path.is_dir() and not zipfile.is_zipfile(path):
        raise SourceDataError(f"{path} is neither a folder nor a ZIP file. Name the data folder or a backup.")
    root: Folder = path if path.is_dir() else zipfile.Path(path)
    found: dict[str, Any] = {}
    settings: object = None
    if (root / LIST).is_file():
        document = _document(root / LIST)
        found, settings = document.get("watching") or {}, document.get("settings")
        if not isinstance(found, dict):
            raise SourceDataError(f"'watching' in {root / LIST} is no object. Take the backup anew.")
    if not settings and (root / SETTINGS).is_file():
        settings = _document(root / SETTINGS).get("settings")
    for folder in root.iterdir():
        if folder.is_dir() and (folder / WATCH).is_file():
            found[folder.name] = _document(folder / WATCH)
    return _usual(settings), (_watch(path, root, key, watch) for key, watch in sorted(found.items()))


def _usual(settings: object) -> int:
    """Return the seconds between checks of the settings."""
    requests = settings.get("requests") if isinstance(settings, dict) else None
    return interval_of(requests if isinstance(requests, dict) else {}) or INSTALLED


def _watch(path: Path, root: Folder, key: str, watch: object) -> Watch:
    """Return a watch and when its snapshots were taken."""
    url = watch.get("url") if isinstance(watch, dict) else None
    if not isinstance(watch, dict) or not isinstance(url, str) or not url:
        raise SourceDataError(f"watch {key!r} of {path} has no url. Take the backup anew, or remove it.")
    if "/" in key or "\\" in key or key in (".", ".."):  # another folder's files are none of its own
        raise SourceDataError(f"watch {key!r} of {path} is no name of a folder. Correct it.")
    checked = checked_time(watch)
    if checked is None:
        raise SourceDataError(
            f"last_checked of watch {key!r} in {path} is {str(watch['last_checked'])[:60]!r}, which is no "
            "time in seconds since 1970. Correct it."
        )
    snapshots = root / key / SNAPSHOTS
    times = sorted(set(_times(snapshots))) if snapshots.is_file() else []
    return Watch(key, url, times, checked, own_interval(watch), mean_interval(watch))


def interval_of(document: dict[str, Any]) -> int:
    """Return the seconds between checks, 0 if not told.

    Of a watch, or of the settings.

    Examples
    --------
    >>> interval_of({"time_between_check": {"weeks": None, "hours": 3, "minutes": 30}}), interval_of({})
    (12600, 0)
    """
    parts = document.get("time_between_check")
    amounts = [parts.get(name) or 0 for name in PARTS] if isinstance(parts, dict) else []
    if not all(isinstance(many, int) and 0 <= many < _LAST for many in amounts):
        return 0
    return sum(many * whole for many, whole in zip(amounts, PARTS.values(), strict=False))


def own_interval(watch: dict[str, Any]) -> int | None:
    """Return the interval of a watch, None for the default."""
    return None if watch.get("time_between_check_use_default", True) else interval_of(watch) or None


def mean_interval(watch: dict[str, Any]) -> float | None:
    """Return the mean seconds between checks, None if not counted."""
    count, begin, end = (
        watch.get("check_count"),
        *map(watch_time, map(watch.get, ("date_created", "last_checked"))),
    )
    if not isinstance(count, int) or count < 2 or not begin or not end or end <= begin:
        return None
    return (end - begin) / (count - 1)


def checked_time(watch: dict[str, Any]) -> float | None:
    """Return when a watch was checked last.

    0 if never, and None if that cannot be read.
    """
    return watch_time(watch.get("last_checked") or 0)


def watch_time(stamp: object) -> float | None:
    """Return a time in seconds since 1970, or None.

    It is a number, or the digits of one.

    Examples
    --------
    >>> watch_time("1700000000"), watch_time(0), watch_time("yesterday")
    (1700000000.0, 0.0, None)
    """
    if isinstance(stamp, str) and stamp.strip().isdecimal():
        stamp = float(stamp)
    valid = isinstance(stamp, int | float) and not isinstance(stamp, bool) and 0 <= stamp < _LAST
    return float(stamp) if valid and isinstance(stamp, int | float) else None


def _times(file: Folder) -> Iterator[float]:
    """Yield when the snapshots of a watch were taken."""
    for number, line in enumerate(_text(file).splitlines(), start=1):
        if not line.strip():
            continue
        stamp, comma, _ = line.partition(",")
        time = watch_time(stamp)
        if not comma or time is None:
            raise SourceDataError(
                f"line {number} of {file} is {line[:60]!r}, and not seconds since 1970, a comma and a file. "
                "Correct or remove it."
            )
        yield time


def _document(file: Folder) -> dict[str, Any]:
    try:
        document = json.loads(_text(file))
    except (RecursionError, ValueError):  # JSONDecodeError is one
        raise SourceDataError(f"{file} is not JSON. Take the backup anew.") from None
    if not isinstance(document, dict):
        raise SourceDataError(f"{file} holds no object. Take the backup anew.")
    return document


def _text(file: Folder) -> str:
    try:
        if isinstance(file, zipfile.Path) and file.root.getinfo(file.at).file_size > LARGEST:
            raise SourceDataError(
                f"{file} is larger than {LARGEST >> 20} MiB unpacked. Unpack the backup itself."
            )
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceDataError(f"{file} is not UTF-8 (byte {error.start}). Take the backup anew.") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise SourceDataError(f"{file} cannot be read: {error}. Check the path.") from error


def _moments(seconds: Array) -> np.typing.NDArray[np.datetime64]:
    return (seconds * 1e6).astype("datetime64[us]")
