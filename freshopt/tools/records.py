"""What tools write, read: JSON documents, and snapshots taken by successive runs.

What is read of a document is declared as a dataclass; all else in it is passed over, and what is not as
declared is told by its place in the document.

Snapshots are what each run saw of each source. Two of them that differ have a change between them. Tools that
keep only the latest state of a source (a time of loading, a signature) leave a crawl log behind if a copy of
each run's output is kept. Copies overlap: what one repeats of another counts once.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from freshopt.errors import SourceDataError
from freshopt.heavy import msgspec
from freshopt.logs.crawl_log import CrawlLog

Kind = TypeVar("Kind")
# Bytes of a file: a billion zeros fit into a megabyte of gzip.
LARGEST = 1 << 28
_GZIP = b"\x1f\x8b"
# A date in a name, with or without a time of day.
_STAMP = re.compile(
    r"(?<!\d)(\d{4})[-_.]?(\d\d)[-_.]?(\d\d)(?:[T_ .-]*(\d\d)[-_.:h]?(\d\d)(?:[-_.:m]?(\d\d))?)?(?!\d)"
)
Paths: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def read_document(file: Path, kind: type[Kind], remedy: str) -> Kind:
    """Return what is declared of a JSON file's document."""
    try:
        return typed(file.read_bytes(), kind, str(file), remedy)
    except OSError as error:
        raise SourceDataError(f"{file} cannot be read: {error.strerror or error}. Check the path.") from error


def typed(given: Any, kind: type[Kind], what: str, remedy: str) -> Kind:  # noqa: ANN401 - what JSON holds
    """Return JSON, or a value that it holds, as what is declared.

    Examples
    --------
    >>> typed(b'{"a": [1, "x"]}', dict[str, list[int]], "a file", "Write it anew.")
    Traceback (most recent call last):
    ...
    freshopt.errors.SourceDataError: a file: expected int, got str at [...][1]. Write it anew.
    """
    try:
        if isinstance(given, bytes):
            return msgspec.json.decode(given, type=kind)
        return msgspec.convert(given, kind)
    except RecursionError:
        reason, place = "JSON that no tool writes", ""
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        # Which of them is raised of text that is not UTF-8 depends on msgspec's release.
        if isinstance(error, UnicodeDecodeError) or "UTF-8" in str(error):
            reason, place = f"not UTF-8 (byte {_first_undecodable(given)})", ""
        else:
            reason, _, place = str(error).replace("`", "").partition(" - at $")
    words = reason if reason.startswith("JSON") else reason[:1].lower() + reason[1:]
    where = f" at {place.removeprefix('.')}" if place else ""
    raise SourceDataError(f"{what}: {words}{where}. {remedy}")


def _first_undecodable(octets: bytes) -> int:
    """Return the place of the first byte that is not UTF-8."""
    try:
        return len(octets.decode())
    except UnicodeDecodeError as error:
        return error.start


def octets_of(file: Path, what: str) -> bytes:
    """Return the content of a copy, unpacked if it is gzipped."""
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            content = gzip.GzipFile(fileobj=raw) if packed else raw
            octets = content.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(file, what, str(error)) from error
    if len(octets) > LARGEST:
        raise unreadable(file, what, f"it has more than {LARGEST >> 20} MiB")
    return octets


def unreadable(file: Path, what: str, reason: str) -> SourceDataError:
    """Return the error about a copy that cannot be read."""
    return SourceDataError(f"{file} cannot be read as {what}: {reason}. Remove this copy, or mend it.")


def moment_of_copy(file: Path) -> datetime:
    """Return when a copy was taken, by its name or its folders'."""
    for name in (file.name, *(folder.name for folder in file.parents)):
        for found in _STAMP.finditer(name):
            year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
            try:
                return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
            except ValueError:  # digits that are no date
                continue
    return datetime.fromtimestamp(int(file.stat().st_mtime), UTC)


def moment_told(written: object) -> datetime | None:
    """Return a moment as tools write it, None if it is none.

    ISO 8601, the dates of mails and HTTP, or seconds or milliseconds since 1970; UTC where there is no zone.

    Examples
    --------
    >>> told = "Fri, 01 May 2026 03:00:00 +0200", "2026-05-01T01:00Z", "2026-05-01 01:00", 1_777_597_200
    >>> len({moment_told(written) for written in told})
    1
    """
    if isinstance(written, str) and re.fullmatch(r"\s*\d{9,13}(\.\d+)?\s*", written):
        written = float(written)
    try:
        if isinstance(written, int | float) and not isinstance(written, bool):
            return datetime.fromtimestamp(written / (1000.0 if written > 1e11 else 1.0), UTC)
        if not isinstance(written, str):
            return None
        try:
            moment = datetime.fromisoformat(written.strip())
        except ValueError:
            moment = parsedate_to_datetime(written)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


class Snapshot(NamedTuple):
    """Snapshot of one source by one run.

    Its state, None where there was none, where that stands, and when the source had last changed, if told.
    """

    source: str
    time: datetime
    state: datetime | str | None
    where: str
    modified: datetime | None = None


def files_of(path: Paths, chosen: Callable[[Path], bool], missing: str) -> list[Path]:
    """Return the files that a path denotes, in a folder those chosen."""
    if not isinstance(path, str | os.PathLike):
        return [Path(each) for each in path]
    place = Path(path)
    if not place.is_dir():
        return [place]
    found = sorted(file for file in place.rglob("*") if chosen(file) and file.is_file())
    if not found:
        raise SourceDataError(f"{place} has no {missing}")
    return found


def log_of(looks: Iterable[Snapshot], states: str, nothing: str, time_unit: str) -> CrawlLog:
    """Return the crawl log of snapshots.

    A snapshot found a change if it has another state than the one before. What it tells of the last change is
    left out where it is later than a snapshot of the same state: nobody can correct another tool's records.
    """
    seen: dict[tuple[str, datetime], Snapshot] = {}
    for look in looks:
        known = seen.setdefault((look.source, look.time), look)
        if known.state != look.state:
            raise SourceDataError(
                f"{look.where} and {known.where} have different {states.format(source=look.source)}. "
                "Remove the file that is wrong."
            )
    if not seen:
        raise SourceDataError(nothing)
    rows = sorted(seen.values(), key=lambda look: (look.source, look.time))
    changed = [a.source == b.source and a.state != b.state for a, b in pairwise(rows)]
    changed = [False, *changed]
    told: list[datetime | None] = []
    for k, look in enumerate(rows):
        if changed[k] or k == 0 or look.source != rows[k - 1].source:
            first = look.time  # seen in this state
        told.append(look.modified if look.modified is not None and look.modified <= first else None)
    return CrawlLog(
        source=[look.source for look in rows],
        time=[look.time for look in rows],
        changed=changed,
        time_unit=time_unit,
        last_modified=told,
    )
