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
import operator
import os
from datetime import UTC, datetime

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.heavy import polars
from freshopt.logs.atomic_output import complete_file
from freshopt.numerics.arrays import IntArray, chunks
from freshopt.scheduling.schedule import Schedule
from freshopt.tools.export import TOGETHER, refuse, text_of
from freshopt.units import SECONDS

# Octets of a line, without its end.
FOLD = 75
# CONTROL of RFC 5545; newlines are escaped. A name that UTF-8 has not is a zero byte in its column.
_NO_TEXT = r"[\x00-\x08\x0b-\x1f\x7f]"
_LAST = datetime(9999, 12, 31, tzinfo=UTC)


def write_icalendar(
    schedule: Schedule, start: datetime, path: str | os.PathLike[str], *, overwrite: bool = True
) -> int:
    """Write a schedule's refreshes as events, all of them or no file.

    Returns how many there are.

    Parameters
    ----------
    schedule : Schedule
    start : datetime
        The moment of time 0; without a time zone it is UTC. It is the events' DTSTAMP too, so that equal
        schedules make equal files.
    path : path
        The file to make, its parent folders too where they are missing.
    overwrite : bool
        Whether a file that is there may be replaced.

    Raises
    ------
    SourceDataError
        If there is no refresh, a source waits for signals, a name has a control character or a lone
        surrogate, the schedule goes beyond the year 9999, or the path cannot be written.
    """
    begin = start.replace(tzinfo=UTC) if start.tzinfo is None else start.astimezone(UTC)
    own = schedule.names
    names = [str(k) for k in range(len(schedule.rates))] if own is None else list(map(str, own.tolist()))
    text = text_of(names)
    _require_writable(schedule, names, text, begin)
    stamp = _moment(begin)
    named = polars.DataFrame({"name": text}).select(
        summary=_folded(polars.format("SUMMARY:refresh {}", _escaped(polars.col("name")))),
        mark=_marks(names, np.flatnonzero(np.bincount(schedule.source, minlength=len(names)))),
    )
    event = polars.format(
        f"BEGIN:VEVENT\r\nUID:{{}}-{stamp}-{{}}@freshopt\r\nDTSTAMP:{stamp}\r\n"
        "DTSTART:{}\r\n{}TRANSP:TRANSPARENT\r\nEND:VEVENT\r\n",
        "mark",
        "turn",
        polars.col("moment").dt.strftime("%Y%m%dT%H%M%SZ"),
        "summary",
    )
    first, begun = np.datetime64(begin.replace(tzinfo=None, microsecond=0), "us"), begin.microsecond / 1e6
    turns = np.zeros(len(names), dtype=np.int64)
    with complete_file(path, overwrite) as staging, staging.open("wb") as file:
        file.write(b"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//freshopt//schedule//EN\r\n")
        for part in chunks(len(schedule), TOGETHER):
            source = schedule.source[part]
            offset = np.floor(schedule.time[part] * SECONDS[schedule.time_unit] + begun).astype(
                "timedelta64[s]"
            )
            table = named[source].with_columns(
                moment=polars.Series(first + offset), turn=polars.Series(_turns(source, turns))
            )
            file.write(table.select(event.str.join()).item().encode())
        file.write(b"END:VCALENDAR\r\n")
    return len(schedule)


def _turns(source: IntArray, turns: IntArray) -> IntArray:
    """Return each event's number, updating `turns`, among its source's."""
    order = np.argsort(source, kind="stable")
    ordered = source[order]
    head = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(np.append(head, len(source)))
    number = np.empty(len(source), dtype=np.int64)
    number[order] = np.arange(len(source)) - np.repeat(head, sizes) + turns[ordered] + 1
    turns[ordered[head]] += sizes
    return number


def _marks(names: list[str], used: IntArray) -> polars.Series:
    """Return marks, of 16 letters, of names with events."""
    some = [names[k] for k in used.tolist()] if len(used) < len(names) else names
    digests = map(operator.methodcaller("hexdigest"), map(hashlib.sha256, map(str.encode, some)))
    found = polars.Series(list(digests), dtype=polars.String).str.slice(0, 16)
    if len(used) == len(names):
        return found
    return polars.Series([""], dtype=polars.String).new_from_index(0, len(names)).scatter(used, found)


def _require_writable(schedule: Schedule, names: list[str], text: polars.Series, begin: datetime) -> None:
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
    wrong = text.str.contains(_NO_TEXT).arg_true()
    refuse(
        names, wrong, "has a control character or a lone surrogate. A calendar's text has none. Rename it."
    )
    last = float(schedule.time[-1]) * SECONDS[schedule.time_unit]
    if last > (_LAST - begin).total_seconds():
        raise SourceDataError(
            f"the schedule goes on for {schedule.horizon:g} {schedule.time_unit}s. A calendar ends with the "
            "year 9999. Shorten the horizon."
        )


def _moment(time: datetime) -> str:
    return f"{time.year:04d}{time:%m%dT%H%M%S}Z"


def _escaped(text: polars.Expr) -> polars.Expr:
    r"""Return text as a value.

    Examples
    --------
    >>> import polars
    >>> print(polars.select(_escaped(polars.lit("a;b,c\\d\ne"))).item())
    a\;b\,c\\d\ne
    """
    return text.str.replace_many(["\\", ";", ",", "\n"], ["\\\\", "\\;", "\\,", "\\n"])


def _folded(line: polars.Expr) -> polars.Expr:
    """Return content lines with their ends, long ones folded."""
    long = polars.when(line.str.len_bytes() > FOLD).then(line)
    return long.map_elements(_fold, return_dtype=polars.String).fill_null(polars.format("{}\r\n", line))


def _fold(line: str) -> str:
    r"""Return a content line in pieces of ≤ 75 octets.

    Each has its end.

    Examples
    --------
    >>> [len(piece) for piece in _fold(50 * "ü").encode().split(b"\r\n ")]
    [74, 28]
    """
    octets = line.encode()
    pieces, begin, room = [], 0, FOLD
    while len(octets) - begin > room:
        end = begin + room
        while octets[end] & 0xC0 == 0x80:  # within a letter
            end -= 1
        pieces.append(octets[begin:end])
        begin, room = end, FOLD - 1  # the next piece begins with a space
    return b"\r\n ".join([*pieces, octets[begin:]]).decode() + "\r\n"
