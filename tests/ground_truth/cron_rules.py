"""What two crons make of a crontab, transcribed from their sources: Debian's cron 3.0pl1 and cronie 1.7.

`load` is load_user, load_env and load_entry (user.c, env.c, entry.c); `Job.runs_on` is find_jobs (cron.c),
and `given_to_shell` the loop over ``%`` in child_process (do_command.c). Both programs read octets.
"""

import re
from dataclasses import dataclass
from datetime import date

from tests.ground_truth.named import present

FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
SPACES = b" \t\n\v\f\r"


class CronError(Exception):
    """The crontab is not installed, or not run."""


@dataclass(frozen=True)
class Cron:
    """Where the two differ.

    ``most_command`` is MAX_COMMAND; what is before ``%`` loses a backslash before each of `unescaped`;
    ``has_options``: a command that begins with ``-`` begins with an option of cron's, and none is an error;
    ``empty_setting``: ``NAME=`` sets a variable.
    """

    name: str
    most_command: int
    most_lines: int
    most_entries: int
    unescaped: bytes
    has_options: bool
    empty_setting: bool


DEBIAN = Cron("cron", 1000, 10_000, 10**9, b"%\\", False, False)
CRONIE = Cron("cronie", 131_072, 10**9, 10_000, b"%", True, True)
CRONS = (DEBIAN, CRONIE)


@dataclass(frozen=True)
class Job:
    """An entry: what its five fields allow, whether they begin with a star, and its command."""

    fields: tuple[frozenset[int], ...]
    stars: tuple[bool, ...]
    command: bytes

    def runs_on(self, day: date) -> bool:
        """Day of month and of week are alternatives if neither begins with a star."""
        by_month, by_week = day.day in self.fields[2], day.isoweekday() % 7 in self.fields[4]
        either = by_month or by_week
        both = by_month and by_week
        return day.month in self.fields[3] and (both if self.stars[2] or self.stars[4] else either)


def load(octets: bytes, cron: Cron) -> list[Job]:
    """The entries of a user's crontab, in their order."""
    last = octets.rpartition(b"\n")[2].lstrip(b" \t")
    if last and not last.startswith(b"#"):
        raise CronError("missing newline before EOF")
    if octets.count(b"\n") > cron.most_lines:
        raise CronError("crontab is too long")
    found = []
    for raw in octets.split(b"\n")[:-1]:
        line = raw.lstrip(b" \t")
        if not line or line.startswith(b"#") or _is_setting(line[: cron.most_command - 2], cron):
            continue
        found.append(_entry(line, cron))
    if len(found) > cron.most_entries:
        raise CronError("too many entries")
    return found


def _is_setting(line: bytes, cron: Cron) -> bool:
    """load_env: NAME = VALUE, each of them quoted or not; its states in their order."""
    name, before_equals, after_equals, value, end = range(5)
    state, quote, at = name, 0, 0
    if line[:1] in (b"'", b'"'):
        quote, at = line[0], 1
    while at < len(line):
        octet = line[at]
        if state in (name, value):
            if quote and octet == quote:
                state += 1
            elif quote and state == name and octet == ord("="):
                return False
            elif not quote and state == name and octet == ord("="):
                state, at = before_equals, at - 1
            elif not quote and state == name and octet in SPACES:
                state = before_equals
        elif state == before_equals:
            if octet == ord("="):
                state, quote = after_equals, 0
            elif octet not in SPACES:
                return False
        elif state == after_equals and octet not in SPACES:
            state = value
            if octet in b"'\"":
                quote = octet
            else:
                at -= 1
        elif state == end and octet not in SPACES:
            return False
        at += 1
    return state == end or (state == value and not quote) or (state == after_equals and cron.empty_setting)


def _entry(line: bytes, cron: Cron) -> Job:
    """load_entry, of a user's crontab: no user name stands before the command."""
    if line.startswith(b"@"):
        raise CronError("an @ word, which this transcription leaves out")
    fields, stars, rest = [], [], line
    for low, high in FIELDS:
        word = present(re.match(rb"[^ \t]*", rest))
        stars.append(rest.startswith(b"*"))
        fields.append(_numbers(word[0], low, high))
        rest = rest[word.end() :].lstrip(b" \t")
    if fields[4] & {0, 7}:
        fields[4] |= {0, 7}
    if rest.startswith(b"*") or (cron.has_options and (not rest or rest.startswith(b"-"))):
        raise CronError("bad command, or an option")
    if len(rest) >= cron.most_command - 1:  # cronie cuts it instead, which is no better
        raise CronError("command too long")
    return Job(tuple(map(frozenset, fields)), tuple(stars), rest)


def _numbers(word: bytes, low: int, high: int) -> set[int]:
    """get_list: numbers, ranges and steps; names of months and days are left out."""
    found: set[int] = set()
    for item in word.split(b","):
        parts = re.fullmatch(rb"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?", item)
        if parts is None or (parts[3] and (parts[1] and not parts[2])) or parts[3] == b"0":
            raise CronError(f"bad field {word!r}")
        first = int(parts[1] or low)
        last = int(parts[2] or parts[1] or high)
        if not (low <= first <= high and low <= last <= high):
            raise CronError(f"out of range: {word!r}")
        found |= set(range(first, last + 1, int(parts[3] or 1)))
    return found


def given_to_shell(command: bytes, cron: Cron) -> tuple[bytes, bytes]:
    """What the shell is given after -c, and what it may read: do_command.c, before its fork."""
    kept = bytearray()
    escaped = False
    for at, octet in enumerate(command):
        kept.append(octet)
        if escaped:
            if octet in cron.unescaped:
                del kept[-2]
            escaped = False
        elif octet == ord("\\"):
            escaped = True
        elif octet == ord("%"):
            return bytes(kept[:-1]), command[at + 1 :]
    return bytes(kept), b""
