"""pg_cron: a script of SQL that schedules a job for each source.

``psql -v ON_ERROR_STOP=1 -f FILE`` runs it in one transaction: the jobs of an earlier script go, the new ones
come, or all stays as it was. Jobs are called ``freshopt N.K SOURCE``, N the source's place in the table and K
the line of cron; names that begin with ``freshopt`` and a space are this script's own. A source is refreshed
by the same fields as in a crontab (`freshopt.tools.cron_fields`), in the time zone of ``cron.timezone``;
one that is refreshed more than once a minute every N seconds, which pg_cron knows from 1.5 on: the script
says so where it is older [1]_.

A command names its source by ``{source}``, a string of SQL (escaped so that it is read alike whatever the
server's settings), or by ``{source!i}``, the name of a table or view.

References
----------
.. [1] https://github.com/citusdata/pg_cron
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from freshopt.errors import SourceDataError, list_offenders
from freshopt.scheduling.rate_table import RateTable
from freshopt.tools.cron_fields import cron_lines
from freshopt.tools.export import Exported
from freshopt.tools.text_template import (
    filled,
    parts_of,
    require_placeholder,
    require_unquoted,
    sql_literal,
)
from freshopt.tools.whole_seconds import IntervalFormat, labels

_WHAT = "the command"
# Octets of a job's name: its type was `name` before pg_cron 1.5.
_NAME_OCTETS = 63
# What no text of PostgreSQL can hold.
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
_HEAD = """\
BEGIN;
SELECT cron.unschedule(jobid) FROM cron.job
    WHERE jobname LIKE 'freshopt %' AND username = current_user AND database = current_database();
"""
_NEEDS_SECONDS = """\
DO $$ BEGIN
    IF (SELECT string_to_array(split_part(extversion, '-', 1), '.')::int[] < '{1,5}'
        FROM pg_extension WHERE extname = 'pg_cron') THEN
        RAISE EXCEPTION 'sources are refreshed more than once a minute, which pg_cron knows from 1.5 on. '
            'Update it, or plan with a max_rate of 1440 per day.';
    END IF;
END $$;
"""


@dataclass(frozen=True, slots=True)
class PgCron(IntervalFormat):
    """A script for psql.

    Parameters
    ----------
    command : str
        The statement that refreshes a source. The default is for sources that are materialized views.
    """

    command: str = "REFRESH MATERIALIZED VIEW {source!i}"

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `ToolFormat.write`.

        Raises
        ------
        SourceDataError
            If a rate is above one a second or below one in 365 days, the command has no ``{source}`` or has
            it within quotes, a name has a zero byte, or a source waits for signals.
        """
        parts = parts_of(self.command, ["source"], _WHAT, strict=False)
        require_placeholder(parts, "source", _WHAT)
        require_unquoted(parts, _WHAT, "'\"")
        names = labels(table)
        wrong = [repr(name[:80]) for name in [self.command, *names] if _UNWRITABLE.search(name)]
        if wrong:
            raise SourceDataError(
                f"{list_offenders(wrong)} has a zero byte or a lone surrogate, which no text of PostgreSQL "
                "has. Rename it."
            )
        lines, done = cron_lines(table, "pg_cron", seconds=True)
        fast = any(own.endswith("seconds") for each in lines for own in each)
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(_HEAD + (_NEEDS_SECONDS if fast else ""))
            for number, (name, own) in enumerate(zip(names, lines, strict=True), start=1):
                command = sql_literal(filled(parts, {"source": name}, "s"))
                for k, fields in enumerate(own, start=1):
                    octets = f"freshopt {number}.{k} {name}".encode()[:_NAME_OCTETS]
                    job = sql_literal(octets.decode(errors="ignore"))
                    file.write(f"SELECT cron.schedule({job}, '{fields}', {command});\n")
            file.write("COMMIT;\n")
        return done
