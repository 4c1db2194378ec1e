r"""crontab: a few lines per source, for cron's five time fields.

How a rate becomes lines, and how far that is from the rate, is in `freshopt.exporters.cron_fields`: never
more than the rate, and less by under 1 %, or by under one refresh a year where that is more.

A command is one line [1]_: the words that refresh a source, and its name as one more argument, which comes
out the same under Debian's cron and under cronie. Both cut a command at its first ``%`` and read ``\%`` as
``%``; a double backslash stays one under cronie and is halved under Debian's. A name is therefore quoted for
the shell such that no backslash stands before another or before ``%``, and ``%`` outside the quotes, where it
is right too if a cron leaves the backslash to the shell. Both crons keep 10 000 lines of a user; Debian's
keeps 998 octets of a command.

Times are those of the machine's clock, summer time included: both crons run lines with fixed hours once on
the days on which the clock is changed.

References
----------
.. [1] https://man7.org/linux/man-pages/man5/crontab.5.html
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.exporters.cron_fields import Repetition, repetition, time_fields
from freshopt.exporters.whole_intervals import Exported, labels, largest_loss, require_clocked
from freshopt.numerics.arrays import total
from freshopt.scheduling.rate_table import RateTable
from freshopt.units import SECONDS

# Octets of a command: Debian's MAX_COMMAND is 1000, and 999 octets are taken for a command that was cut.
_LONGEST = 998
# Lines of a crontab: MAX_TAB_LINES of Debian's cron, MAX_USER_ENTRIES of cronie.
_MOST_LINES = 10_000
_HEAD = "# minute hour day month weekday command\n"
# What no line can hold, or no file in UTF-8.
_UNWRITABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
# Within a quoted name: close the quotes around what must not stand within, or next to something else.
_QUOTED = str.maketrans({"'": r"'\''", "%": r"'\%'", "\\": "\\''"})


@dataclass(frozen=True, slots=True)
class Crontab:
    """A user's crontab, for ``crontab FILE``.

    Parameters
    ----------
    command : str
        What refreshes a source, in the shell's words; its name is appended as one more argument. Names that
        begin with ``-`` are options to most commands and need one that ends in ``--``.
    """

    command: str = "refresh"

    @property
    def files(self) -> tuple[str, ...]:
        """No folder: it is one file."""
        return ()

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `IntervalFormat.write`.

        Raises
        ------
        SourceDataError
            If a rate is above one a minute or below one in 365 days, a name or the command cannot stand in a
            crontab, the crontab is too long for cron, or a source waits for signals.
        """
        require_clocked(table, "cron")
        names = labels(table)
        commands = self._commands(names)
        rates = table.rates * (SECONDS["day"] / SECONDS[table.time_unit])
        repeated = [_repetition(name, rate) for name, rate in zip(names, rates.tolist(), strict=True)]
        lines = [_HEAD]
        for command, each in zip(commands, time_fields(repeated), strict=True):
            lines += [f"{fields} {command}\n" for fields in each]
        if len(lines) > _MOST_LINES:
            raise SourceDataError(
                f"the crontab has {len(lines):,} lines for {np.count_nonzero(rates):,} sources. cron keeps "
                f"{_MOST_LINES:,} lines of a user. Export the sources in parts, for several users."
            )
        path.write_bytes("".join(lines).encode())
        per_day = np.array([0.0 if each is None else each.per_day for each in repeated])
        realised = per_day * (SECONDS[table.time_unit] / SECONDS["day"])
        never = int(np.count_nonzero(rates == 0.0))
        return Exported(
            len(names) - never,
            never,
            "left out",
            total(table.rates),
            total(realised),
            largest_loss(table.rates, realised),
            table.time_unit,
        )

    def _commands(self, names: list[str]) -> list[str]:
        """Return the command of each source, as it stands in the file."""
        command = self.command.strip()
        if not command or command[0] in "-*" or _UNWRITABLE.search(command):
            raise SourceDataError(
                f"the command {self.command!r} is empty, begins with - or *, or has a newline or another "
                "control character. A crontab has one command a line. Write another, or a script."
            )
        if re.search(r"\\(?:[\\%]|$)", command):
            raise SourceDataError(
                f"the command {self.command!r} has a backslash before another, before % or at its end. Crons "
                "read that differently. Put the command into a script."
            )
        wrong = [repr(name[:80]) for name in names if _UNWRITABLE.search(name)]
        if wrong:
            raise SourceDataError(
                f"source {list_offenders(wrong)} has a newline, another control character or a lone "
                "surrogate. A crontab has one command a line, in UTF-8. Rename it."
            )
        options = [repr(name[:80]) for name in names if name.startswith("-")]
        if options and command.split()[-1] != "--":
            raise SourceDataError(
                f"source {list_offenders(options)} begins with '-'. The command would read it as an option. "
                "Rename it; or end the command in --, if it reads names only after that."
            )
        written = command.replace("%", r"\%")
        made = [f"{written} {_argument(name)}" for name in names]
        for name, line in zip(names, made, strict=True):
            if len(line.encode()) > _LONGEST:
                raise SourceDataError(
                    f"the command for source {name[:80]!r} has {len(line.encode())} octets. cron keeps a "
                    f"command of 1 to {_LONGEST}. Shorten the name or the command."
                )
        return made


def _repetition(name: str, rate: float) -> Repetition | None:
    """Return what a rate per day becomes; None for 0."""
    repeated = repetition(rate) if rate else None
    if repeated is None and rate:
        raise SourceDataError(
            f"source {name!r} is to be refreshed {rate:.4g} times a day. cron goes from once in 365 days to "
            f"once a minute. {'Lower its max_rate' if rate > 1.0 else 'Raise its min_rate'}, or leave it out."
        )
    return repeated


def _argument(name: str) -> str:
    r"""Return a name as cron and the shell read it.

    Examples
    --------
    >>> print(_argument("https://a.org/%41"), _argument("it's 5%"), _argument(r"a\%b"))
    https://a.org/\%41 'it'\''s 5'\%'' 'a\'''\%'b'
    """
    if shlex.quote(name) == name:
        return name.replace("%", r"\%")
    return f"'{name.translate(_QUOTED)}'"
