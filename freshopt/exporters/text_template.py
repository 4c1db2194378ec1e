"""A text of one's own for each source: a template with placeholders.

``{source}``; ``{host}``, the host of its URL; ``{rate}``, refreshes per day; ``{seconds}`` and ``{minutes}``,
its interval, rounded up to whole ones; ``{cron}``, the five time fields of cron: a source that needs several
lines of a crontab has the template once for each. A template that ends in no newline gets one.

Cost: some microseconds a source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.exporters.cron_lines import cron_lines
from freshopt.exporters.placeholders import filled, parts_of, require_placeholder
from freshopt.exporters.text_lines import hosts_of, text_of, urls_of
from freshopt.exporters.tool_format import Exported
from freshopt.exporters.whole_intervals import (
    NEVER,
    IntervalFormat,
    Limits,
    exported,
    labels,
    require_clocked,
    whole_intervals,
)
from freshopt.numerics.arrays import IntArray
from freshopt.scheduling.rate_table import RateTable
from freshopt.units import SECONDS

PLACEHOLDERS = ("source", "host", "rate", "seconds", "minutes", "cron")
_WHAT = "the template"
# Control characters but tabs: a line of a text cannot hold them.
_CONTROL = r"[\x00-\x08\x0a-\x1f\x7f]"


@dataclass(frozen=True, slots=True)
class TextTemplate(IntervalFormat):
    r"""A text file with a template's text for each source.

    Parameters
    ----------
    template : str
        With ``{source}``, as it is, or quoted: ``{source!q}`` for a shell, ``{source!j}`` as JSON,
        ``{source!s}`` as an SQL string, ``{source!i}`` as an SQL name, ``{source!u}`` percent-encoded.

    Examples
    --------
    >>> import tempfile
    >>> from freshopt.exporters import export
    >>> path = Path(tempfile.mkdtemp()) / "jobs.txt"
    >>> done = export({"a b": 24.0, "never": 0.0}, TextTemplate("every {seconds} s: curl {source!q}"), path)
    >>> path.read_text()
    "every 3600 s: curl 'a b'\n"
    """

    template: str

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `ToolFormat.write`.

        Raises
        ------
        SourceDataError
            If the template has no ``{source}`` or an unknown placeholder, a name or an interval cannot be
            written, or a source waits for signals.
        """
        parts = parts_of(self.template, PLACEHOLDERS, _WHAT, strict=True)
        require_placeholder(parts, "source", _WHAT)
        used = {part[0] for part in parts if isinstance(part, tuple)}
        require_clocked(table, "a template")
        names = labels(table)
        text = text_of(names)
        wrong = text.str.contains(_CONTROL).arg_true().to_list()
        if wrong:
            raise SourceDataError(
                f"source {list_offenders(repr(names[k][:80]) for k in wrong)} has a newline, another control "
                "character or a lone surrogate, which would end its line. Rename it."
            )
        if "cron" in used:
            lines, done = cron_lines(table, "cron")
            seconds = np.zeros(len(names), dtype=np.int64)
            if used & {"seconds", "minutes"}:
                seconds = whole_intervals(table, _limits(used))
        else:
            seconds = whole_intervals(table, _limits(used))
            lines, done = (
                [[""] if own != NEVER else [] for own in seconds],
                exported(table, seconds, "left out"),
            )
        hosts = hosts_of(urls_of(names, "{host} is that of what")).to_list() if "host" in used else names
        end = "" if self.template.endswith("\n") else "\n"
        with path.open("w", encoding="utf-8", newline="") as file:
            for values in _values(names, hosts, table, seconds, lines):
                file.write(filled(parts, values) + end)
        return done


def _limits(used: set[str]) -> Limits:
    step = 60 if "minutes" in used else 1
    return Limits(_WHAT, step=step, longest=10**15, shortest=step, remedy="Raise their min_rate.")


def _values(
    names: list[str], hosts: list[str], table: RateTable, seconds: IntArray, lines: list[list[str]]
) -> Iterator[dict[str, str]]:
    """Yield what the placeholders stand for, once for each line."""
    per_day = table.rates * (SECONDS["day"] / SECONDS[table.time_unit])
    rows = zip(names, hosts, per_day.tolist(), seconds.tolist(), lines, strict=True)
    for name, host, rate, interval, own in rows:
        for fields in own:
            yield {
                "source": name,
                "host": host,
                "rate": f"{rate:.6g}",
                "seconds": str(interval),
                "minutes": str(interval // 60),
                "cron": fields,
            }
