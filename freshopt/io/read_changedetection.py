"""`read_changedetection`: the history of changes that changedetection.io has found.

Its data folder, and the backup that it makes of it (a ZIP file), hold a list of watches, ``url-watches.json``
with the key ``watching`` (or a ``watch.json`` in each watch's folder), and in the folder of each watch
``history.txt``: a line ``epoch-seconds,file`` for every snapshot [1]_. The first snapshot is when the watch
began, each later one a change; ``last_checked`` is until when it is known that there was none since.

Checks that found nothing are counted there and not listed. What is read is therefore a history of changes
and no crawl log: each is known to lie between its snapshot and the check before it, and counts as of its
snapshot. A watch without a snapshot says nothing, and is left out.

Cost: reading the files.

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

from freshopt.errors import SourceDataError
from freshopt.logs.change_history import ChangeHistory
from freshopt.numerics.arrays import label_array
from freshopt.units import check_time_unit

if TYPE_CHECKING:
    import os

LIST, WATCH, SNAPSHOTS = "url-watches.json", "watch.json", "history.txt"
_LAST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
# Bytes of a file in a backup: a billion bytes of zeros fit into a megabyte of ZIP.
LARGEST = 1 << 28
# What zipfile raises, the last two of encrypted members and of methods it does not know.
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, struct.error, RuntimeError, NotImplementedError)
Folder = Path | zipfile.Path


class Watch(NamedTuple):
    """Watch with the times of its snapshots.

    In seconds since 1970.
    """

    key: str
    url: str
    times: list[float]
    checked: float


def read_changedetection(path: str | os.PathLike[str], time_unit: str = "day") -> ChangeHistory:
    """Read the change history of changedetection.io.

    Parameters
    ----------
    path : path
        Its data folder, or a backup (ZIP).
    time_unit : str
        "second", "minute", "hour", "day" or "week".

    Returns
    -------
    ChangeHistory
        Sources are the watched URLs; where two watches have the same, ``URL [watch]``.

    Raises
    ------
    SourceDataError
        If there are no watches with snapshots, or a file cannot be used; names the file.
    """
    check_time_unit(time_unit)
    try:
        watches = [watch for watch in _watches(Path(path)) if watch.times]
    except _DAMAGED as error:
        raise SourceDataError(f"{path} is a damaged ZIP file: {error}. Take the backup anew.") from None
    if not watches:
        raise SourceDataError(
            f"{path} has no watch with a snapshot. Check that it is the data folder or a backup of "
            "changedetection.io, and that its watches have been checked."
        )
    return history_of_watches(watches, time_unit)


def names_of_watches(watches: list[Watch]) -> list[str]:
    """Return the URLs of watches; where two have the same, ``URL [watch]``."""
    often = Counter(watch.url for watch in watches)
    return [watch.url if often[watch.url] == 1 else f"{watch.url} [{watch.key}]" for watch in watches]


def history_of_watches(watches: list[Watch], time_unit: str) -> ChangeHistory:
    """Return the history of watches that have snapshots."""
    names = names_of_watches(watches)
    order = np.argsort(np.array(names), kind="stable").tolist()
    watches, names = [watches[k] for k in order], [names[k] for k in order]
    changes = [(name, time) for name, watch in zip(names, watches, strict=True) for time in watch.times[1:]]
    return ChangeHistory(
        label_array([name for name, _ in changes]),
        _moments([time for _, time in changes]),
        start=_moments([watch.times[0] for watch in watches]),
        end=_moments([max(watch.checked, watch.times[-1]) for watch in watches]),
        sources=names,
        time_unit=time_unit,
    )


def _watches(path: Path) -> Iterator[Watch]:
    """Yield the watches of a data folder or a backup."""
    if not path.exists():
        raise SourceDataError(f"there is no file or folder {path}. Check the path.")
    if not path.is_dir() and not zipfile.is_zipfile(path):
        raise SourceDataError(f"{path} is neither a folder nor a ZIP file. Name the data folder or a backup.")
    root: Folder = path if path.is_dir() else zipfile.Path(path)
    found: dict[str, Any] = {}
    if (root / LIST).is_file():
        found = _document(root / LIST).get("watching") or {}
        if not isinstance(found, dict):
            raise SourceDataError(f"'watching' in {root / LIST} is no object. Take the backup anew.")
    for folder in root.iterdir():
        if folder.is_dir() and (folder / WATCH).is_file():
            found[folder.name] = _document(folder / WATCH)
    for key, watch in sorted(found.items()):
        url = watch.get("url") if isinstance(watch, dict) else None
        if not isinstance(url, str) or not url:
            raise SourceDataError(f"watch {key!r} of {path} has no url. Take the backup anew, or remove it.")
        if "/" in key or "\\" in key or key in (".", ".."):  # another folder's files are none of its own
            raise SourceDataError(f"watch {key!r} of {path} is no name of a folder. Correct it.")
        checked = watch.get("last_checked") or 0
        if watch_time(checked) is None:
            raise SourceDataError(
                f"last_checked of watch {key!r} in {path} is {str(checked)[:60]!r}, which is no time in "
                "seconds since 1970. Correct it."
            )
        snapshots = root / key / SNAPSHOTS
        times = sorted(set(_times(snapshots))) if snapshots.is_file() else []
        yield Watch(key, url, times, float(checked))


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


def _moments(seconds: list[float]) -> np.typing.NDArray[np.datetime64]:
    return (np.array(seconds, dtype=np.float64) * 1e6).astype("datetime64[us]")
