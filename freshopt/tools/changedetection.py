"""changedetection.io: snapshots as a crawl log; watches with their intervals.

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

What is written is an array for its programming interface. Each entry is the body of ``POST /api/v1/watch``
[2]_, or of ``PUT /api/v1/watch/{uuid}`` for a watch that is there: ``url``, and ``time_between_check`` in
weeks, days, hours, minutes and seconds. That one counts only where ``time_between_check_use_default`` is
false. (``POST /api/v1/import`` takes one interval for all.)

Cost: reading the files, and 30 bytes a check.

References
----------
.. [1] https://github.com/dgtlmoon/changedetection.io, ``model/Watch.py`` and ``docs/api-spec.yaml``
.. [2] https://changedetection.io/docs/api_v1/index.html, operation createWatch
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.heavy import polars
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, label_array
from freshopt.tools.export import refuse, urls_of
from freshopt.tools.records import Kind, typed
from freshopt.tools.whole_seconds import NEVER, IntervalFormat, Limits
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
Folder: TypeAlias = Path | zipfile.Path
Stamp: TypeAlias = int | float | str | None
# Releases put off a recheck that comes sooner than MINIMUM_SECONDS_RECHECK_TIME, 60 s by default in some.
LIMITS = Limits("changedetection.io", step=1, longest=604_800 * 52_000, shortest=60)
# Characters of a URL, by the tool's schema.
_MOST_LETTERS = 5000
_ANEW = "Take the backup anew."


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


@dataclass(frozen=True, slots=True)
class Interval:
    """Time between checks, of a watch or of the settings."""

    time_between_check: dict[str, int | None] | None = None

    @property
    def seconds(self) -> int:
        """The time, 0 if it is not told."""
        told = self.time_between_check or {}
        amounts = [told.get(name) or 0 for name in PARTS]
        if not all(0 <= many < _LAST for many in amounts):
            return 0
        return sum(many * whole for many, whole in zip(amounts, PARTS.values(), strict=True))


@dataclass(frozen=True, slots=True)
class ToldWatch(Interval):
    """Watch as a file or the interface tells it."""

    url: str = field(kw_only=True)
    last_checked: Stamp = None
    date_created: Stamp = None
    check_count: int | None = None
    time_between_check_use_default: bool | None = True
    paused: bool | None = None
    tags: list[str] | None = None
    time_schedule_limit: dict[str, Any] | None = None

    def watch(self, key: str, times: list[float], what: str, remedy: str) -> Watch:
        """Return the watch with its snapshots; `what` names it in an error."""
        checked, created = watch_time(self.last_checked or 0), watch_time(self.date_created)
        if not self.url or checked is None:
            stamp = f"last_checked {str(self.last_checked)[:60]!r}, which is no time"
            raise SourceDataError(f"{what} has {stamp if self.url else 'no url'}. {remedy}")
        own = None if self.time_between_check_use_default else self.seconds or None
        mean, count = None, self.check_count or 0
        if count > 1 and created and checked > created:
            mean = (checked - created) / (count - 1)
        return Watch(key, self.url, sorted(set(times)), checked, own, mean)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a server."""

    requests: Interval | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """``url-watches.json``, or ``changedetection.json``."""

    watching: dict[str, Any] | None = None
    settings: Settings | None = None


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
    """Return checks of watches by snapshots and `usual` intervals in seconds."""
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
        "time": (np.concatenate([first, begin[row] + since]) * 1e6).astype("datetime64[us]"),
        "changed": np.concatenate([np.zeros(len(order), dtype=np.bool_), ends & change[row]]),
    }
    labels = label_array([names[at] for at in order])
    return CrawlLog.from_columns(columns, names=labels, time_unit=time_unit)


def _checks(gaps: Array, interval: float, mean: float | None) -> tuple[Array, Array]:
    """Return how many checks each gap has, and the last one's wait."""
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
    files = [root / name for name in (LIST, SETTINGS) if (root / name).is_file()]
    read = {file.name: _document(file, Document) for file in files}
    told: dict[str, Any] = dict(read[LIST].watching or {}) if LIST in read else {}
    for folder in root.iterdir():
        if folder.is_dir() and (folder / WATCH).is_file():
            told[folder.name] = _document(folder / WATCH, ToldWatch)
    asked = [each.settings.requests for each in read.values() if each.settings is not None]
    usual = next((each.seconds for each in asked if each is not None and each.seconds), INSTALLED)
    return usual, (_watch(path, root, key, watch) for key, watch in sorted(told.items()))


def _watch(path: Path, root: Folder, key: str, told: Any) -> Watch:  # noqa: ANN401 - what JSON holds
    """Return a watch and when its snapshots were taken."""
    what, remedy = f"watch {key!r} of {path}", f"{_ANEW[:-1]}, or remove the watch."
    if "/" in key or "\\" in key or key in (".", ".."):  # another folder's files are none of its own
        raise SourceDataError(f"{what} is no name of a folder. Correct it.")
    watch = told if isinstance(told, ToldWatch) else typed(told, ToldWatch, what, remedy)
    snapshots = root / key / SNAPSHOTS
    times = list(_times(snapshots)) if snapshots.is_file() else []
    return watch.watch(key, times, what, remedy)


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
    for number, line in enumerate(_octets(file).decode(errors="backslashreplace").splitlines(), start=1):
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


def _document(file: Folder, kind: type[Kind]) -> Kind:
    """Return what is declared of a JSON file."""
    return typed(_octets(file), kind, str(file), _ANEW)


def _octets(file: Folder) -> bytes:
    """Return the content of a file, which may be in a backup."""
    try:
        if isinstance(file, zipfile.Path) and file.root.getinfo(file.at).file_size > LARGEST:
            raise SourceDataError(
                f"{file} is larger than {LARGEST >> 20} MiB unpacked. Unpack the backup itself."
            )
        return file.read_bytes()
    except (OSError, zipfile.BadZipFile) as error:
        raise SourceDataError(f"{file} cannot be read: {error}. Check the path.") from error


@dataclass(frozen=True, slots=True)
class ChangeDetection(IntervalFormat):
    """A JSON file."""

    limits: ClassVar[Limits] = LIMITS
    never: ClassVar[str] = "as paused watches"
    around: ClassVar[tuple[str, str, str]] = ("[", ",", "\n]\n")

    def text(self, names: list[str]) -> polars.Series:
        """Return names that are URLs, not templates there and not too long."""
        urls = urls_of(names, "changedetection.io")
        wrong = urls.str.contains(r"\{[{%]") | (urls.str.len_chars() > _MOST_LETTERS)
        refuse(
            names,
            wrong.arg_true(),
            f"has {{{{ or {{%, or more than {_MOST_LETTERS} letters. changedetection.io fills in such URLs "
            "as templates, and keeps none so long. Percent-encode it, or take it out.",
        )
        return urls

    def line(self) -> polars.Expr:
        """Return a watch as JSON, its interval in calendar units.

        A URL has no control characters: JSON escapes a backslash or a quote in it, nothing else.
        """
        url = polars.col("name").str.replace_many(["\\", '"'], ["\\\\", '\\"'])
        rest, parts = polars.col("seconds"), []
        for name, whole in PARTS.items():
            parts.append(polars.format(f'"{name}": {{}}', rest // whole))
            rest = rest % whole
        timed = polars.concat_str(
            polars.lit('", "time_between_check_use_default": false, "time_between_check": {'),
            polars.concat_str(parts, separator=", "),
            polars.lit("}}"),
        )
        paused = polars.lit('", "paused": true}')
        check = polars.when(polars.col("seconds") == NEVER).then(paused).otherwise(timed)
        return polars.concat_str(polars.lit('\n{"url": "'), url, check)
