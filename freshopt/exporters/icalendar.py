"""iCalendar: every refresh of a schedule as an event.

For people and for whatever reads a calendar.

RFC 5545 [1]_: content lines end in CRLF and are folded at 75 octets, between characters, never within one
(section 3.1); each VEVENT has a UID and a DTSTAMP (3.6.1); text escapes backslash, comma, semicolon and
newline (3.3.11); times end in Z, UTC, in whole seconds (3.3.5). Events are single, not recurring: refreshes
of a source are not whole seconds apart, and a rule that rounds its interval drifts away from the schedule.

References
----------
.. [1] https://www.rfc-editor.org/rfc/rfc5545
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.scheduling.schedule import Schedule
from freshopt.units import SECONDS

# Octets of a line, without its end.
FOLD = 75
# CONTROL of RFC 5545, and what UTF-8 has not; newlines are escaped.
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_LAST = datetime(9999, 12, 31, tzinfo=UTC)


def write_icalendar(schedule: Schedule, start: datetime, path: Path) -> int:
    """Write a schedule's refreshes as events.

    Returns how many there are.

    Parameters
    ----------
    schedule : Schedule
    start : datetime
        The moment of time 0; without a time zone it is UTC. It is the events' DTSTAMP too, so that equal
        schedules make equal files.
    path : Path

    Raises
    ------
    SourceDataError
        If there is no refresh, a source waits for signals, a name has a control character or a lone
        surrogate, or the schedule goes beyond the year 9999.
    """
    begin = start.replace(tzinfo=UTC) if start.tzinfo is None else start.astimezone(UTC)
    named = schedule.names
    names = [str(k) for k in range(len(schedule.rates))] if named is None else list(map(str, named.tolist()))
    _require_writable(schedule, names, begin)
    summaries = [b"".join(_fold(f"SUMMARY:{_escape(f'refresh {name}')}")) for name in names]
    marks = [hashlib.sha256(name.encode()).hexdigest()[:16] for name in names]
    stamp = _moment(begin)
    seconds = np.floor(schedule.time * SECONDS[schedule.time_unit]).astype(np.int64)
    turns = [0] * len(names)
    with path.open("wb") as file:
        file.write(b"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//freshopt//schedule//EN\r\n")
        for k, offset in zip(schedule.source.tolist(), seconds.tolist(), strict=True):
            turns[k] += 1
            file.write(
                f"BEGIN:VEVENT\r\nUID:{marks[k]}-{stamp}-{turns[k]}@freshopt\r\nDTSTAMP:{stamp}\r\n"
                f"DTSTART:{_moment(begin + timedelta(seconds=offset))}\r\n".encode()
            )
            file.write(summaries[k] + b"TRANSP:TRANSPARENT\r\nEND:VEVENT\r\n")
        file.write(b"END:VCALENDAR\r\n")
    return len(schedule)


def _require_writable(schedule: Schedule, names: list[str], begin: datetime) -> None:
    """Raise if a calendar cannot hold the schedule."""
    if schedule.crawl_probability is not None:
        waiting = np.flatnonzero(~np.isnan(schedule.crawl_probability)).tolist()
        raise SourceDataError(
            f"source {list_offenders(repr(names[k]) for k in waiting)} is refreshed on its signals. A "
            "calendar goes by the clock. Take it out of the table and crawl it when it signals."
        )
    if len(schedule) == 0:
        raise SourceDataError(
            f"no refresh falls into {schedule.horizon:g} {schedule.time_unit}s. A calendar has at least one "
            "event. Lengthen the horizon."
        )
    wrong = [repr(name[:80]) for name in names if _NO_TEXT.search(name)]
    if wrong:
        raise SourceDataError(
            f"source {list_offenders(wrong)} has a control character or a lone surrogate. A calendar's text "
            "has none. Rename it."
        )
    last = float(schedule.time[-1]) * SECONDS[schedule.time_unit]
    if last > (_LAST - begin).total_seconds():
        raise SourceDataError(
            f"the schedule goes on for {schedule.horizon:g} {schedule.time_unit}s. A calendar ends with the "
            "year 9999. Shorten the horizon."
        )


def _moment(time: datetime) -> str:
    return f"{time.year:04d}{time:%m%dT%H%M%S}Z"


def _escape(text: str) -> str:
    r"""Return text as a value.

    Examples
    --------
    >>> print(_escape("a;b,c\\d\ne"))
    a\;b\,c\\d\ne
    """
    for letter in "\\;,":
        text = text.replace(letter, f"\\{letter}")
    return text.replace("\n", "\\n")


def _fold(line: str) -> Iterator[bytes]:
    """Yield a content line in pieces of ≤ 75 octets.

    Each with its end.
    """
    piece = b""
    for letter in line:
        octets = letter.encode()
        if len(piece) + len(octets) > FOLD:
            yield piece + b"\r\n"
            piece = b" "
        piece += octets
    yield piece + b"\r\n"
