r"""crontab: a few lines per source, for cron's five time fields.

How a rate becomes lines, and how far that is from the rate, is in `freshopt.tools.cron_fields`: never
more than the rate, and less by under 1 %, or by under one refresh a year where that is more.

A command is one line [1]_: the words that refresh a source, and its name, as one more argument or where
``{source}`` stands (``{host}`` is the host of its URL), which comes out the same under Debian's cron and
under cronie. Both cut a command at its first ``%`` and read ``\%`` as ``%``; a double backslash stays one
under cronie and is halved under Debian's. A name is therefore quoted for the shell such that no backslash
stands before another or before ``%``, and ``%`` outside the quotes, where it is right too if a cron leaves
the backslash to the shell. Both crons keep 10 000 lines of a user; Debian's keeps 998 octets of a command.

Times are those of the machine's clock, summer time included: both crons run lines with fixed hours once on
the days on which the clock is changed.

References
----------
.. [1] https://man7.org/linux/man-pages/man5/crontab.5.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from freshopt.errors import SourceDataError
from freshopt.heavy import polars
from freshopt.scheduling.rate_table import RateTable
from freshopt.tools.cron_fields import cron_lines
from freshopt.tools.export import Exported, hosts_of, refuse, text_of, urls_of
from freshopt.tools.text_template import Parts, parts_of, require_unquoted
from freshopt.tools.whole_seconds import IntervalFormat, labels, require_clocked

# Octets of a command: Debian's MAX_COMMAND is 1000, and 999 octets are taken for a command that was cut.
_LONGEST = 998
# Lines of a crontab: MAX_TAB_LINES of Debian's cron, MAX_USER_ENTRIES of cronie.
_MOST_LINES = 10_000
_HEAD = "# minute hour day month weekday command\n"
# What no line can hold, or no file in UTF-8; of the latter a column of text has none.
_UNWRITABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_CONTROL = r"[\x00-\x08\x0a-\x1f\x7f]"
# Within a quoted name: close the quotes around what must not stand within, or next to something else.
_QUOTED = {"'": r"'\''", "%": r"'\%'", "\\": "\\''"}
# Names that the shell reads as they are, by Python's shlex.
_PLAIN = r"^[A-Za-z0-9_@%+=:,./-]+$"


@dataclass(frozen=True, slots=True)
class Crontab(IntervalFormat):
    """A user's crontab, for ``crontab FILE``.

    Parameters
    ----------
    command : str
        What refreshes a source, in the shell's words, quoted for it: its name stands where ``{source}`` does,
        and its host where ``{host}`` does, both outside of quotes. Without ``{source}`` the name is appended
        as one more argument. Names that begin with ``-`` are options to most commands and need a ``--``
        before them.
    """

    command: str = "refresh"

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `ToolFormat.write`.

        Raises
        ------
        SourceDataError
            If a rate is above one a minute or below one in 365 days, a name or the command cannot stand in a
            crontab, the crontab is too long for cron, or a source waits for signals.
        """
        require_clocked(table, "cron")
        commands = self._commands(labels(table))
        fields, done = cron_lines(table, "cron")
        many = 1 + sum(map(len, fields))
        if many > _MOST_LINES:
            raise SourceDataError(
                f"the crontab has {many:,} lines for {done.sources:,} sources. cron keeps "
                f"{_MOST_LINES:,} lines of a user. Export the sources in parts, for several users."
            )
        lines = [f"{own} {command}\n" for command, each in zip(commands, fields, strict=True) for own in each]
        path.write_bytes("".join([_HEAD, *lines]).encode())
        return done

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
        text = text_of(names)
        refuse(
            names,
            text.str.contains(_CONTROL).arg_true(),
            "has a newline, another control character or a lone surrogate. A crontab has one command a line, "
            "in UTF-8. Rename it.",
        )
        parts = parts_of(command, ["source", "host"], "the command", strict=False)
        require_unquoted(parts, "the command", "'\"`")
        if ("source", "") not in parts:
            parts = [*parts[:-1], f"{parts[-1]} ", ("source", ""), ""]
        if _is_first_of_a_word(parts):
            refuse(
                names,
                text.str.starts_with("-").arg_true(),
                "begins with '-'. The command would read it as an option. Rename it; or end the command in "
                "--, or write that before {source}, if it reads names only after that.",
            )
        known = text.to_frame("source")
        if ("host", "") in parts:
            known = known.with_columns(hosts_of(urls_of(names, "{host} is that of what")).alias("host"))
        pieces = [
            polars.lit(part.replace("%", r"\%")) if isinstance(part, str) else _argument(polars.col(part[0]))
            for part in parts
        ]
        made = known.select(polars.concat_str(pieces)).to_series()
        octets = made.str.len_bytes()
        long = (octets > _LONGEST).arg_true()
        if len(long):
            k = int(long[0])
            raise SourceDataError(
                f"the command for source {names[k][:80]!r} has {octets[k]} octets. cron keeps a "
                f"command of 1 to {_LONGEST}. Shorten the name or the command."
            )
        return made.to_list()


def _is_first_of_a_word(parts: Parts) -> bool:
    """Return whether a name stands where a command reads options."""
    before = [str(parts[k - 1]) for k, part in enumerate(parts) if part == ("source", "")]
    return any(text[-1:].isspace() and text.split()[-1:] != ["--"] for text in before)


def _argument(name: polars.Expr) -> polars.Expr:
    r"""Return names as cron and the shell read them.

    Examples
    --------
    >>> import polars
    >>> names = polars.Series(["https://a.org/%41", "it's 5%", r"a\%b"])
    >>> print(*polars.select(_argument(polars.lit(names))).to_series().to_list())
    https://a.org/\%41 'it'\''s 5'\%'' 'a\'''\%'b'
    """
    plain = name.str.replace_all("%", r"\%", literal=True)
    quoted = polars.format("'{}'", name.str.replace_many(_QUOTED))
    return polars.when(name.str.contains(_PLAIN)).then(plain).otherwise(quoted)
