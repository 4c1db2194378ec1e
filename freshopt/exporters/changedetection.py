"""changedetection.io: JSON watches with the time between checks.

An array for its programming interface.

Each entry is the body of ``POST /api/v1/watch`` [1]_, or of ``PUT /api/v1/watch/{uuid}`` for a watch that is
there: ``url``, and ``time_between_check`` in weeks, days, hours, minutes and seconds. That one counts only
where ``time_between_check_use_default`` is false. (``POST /api/v1/import`` takes one interval for all.)

References
----------
.. [1] https://changedetection.io/docs/api_v1/index.html, operation createWatch
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freshopt.errors import SourceDataError, list_offenders
from freshopt.exporters.text_lines import urls_of, write_lines
from freshopt.exporters.tool_format import Exported
from freshopt.exporters.whole_intervals import (
    NEVER,
    IntervalFormat,
    Limits,
    exported,
    labels,
    whole_intervals,
)
from freshopt.scheduling.rate_table import RateTable
from freshopt.units import SECONDS

if TYPE_CHECKING:
    import polars

_PARTS = ("week", "day", "hour", "minute", "second")
# Releases put off a recheck that comes sooner than MINIMUM_SECONDS_RECHECK_TIME, 60 s by default in some.
LIMITS = Limits(
    "changedetection.io", step=1, longest=604_800 * 52_000, shortest=60, remedy="Raise their min_rate."
)
# Characters of a URL, by the tool's schema.
_MOST_LETTERS = 5000


@dataclass(frozen=True, slots=True)
class ChangeDetection(IntervalFormat):
    """A JSON file."""

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `ToolFormat.write`.

        Raises
        ------
        SourceDataError
            If a name is no URL, an interval does not fit, or a source waits for signals.
        """
        import polars

        names, seconds = labels(table), whole_intervals(table, LIMITS)
        urls = urls_of(names, "changedetection.io")
        _require_plain(names, urls)
        watches = polars.DataFrame({"url": urls, "interval": seconds})
        write_lines(path, watches, _watch(), head="[" if names else "", between=",", end="\n]\n")
        return exported(table, seconds, "as paused watches")


def _require_plain(names: list[str], urls: polars.Series) -> None:
    """Raise if URLs are templates there or too long."""
    wrong = urls.str.contains(r"\{[{%]") | (urls.str.len_chars() > _MOST_LETTERS)
    if wrong.any():
        offenders = [repr(names[k][:80]) for k in wrong.arg_true().to_list()]
        raise SourceDataError(
            f"source {list_offenders(offenders)} has {{{{ or {{%, or more than {_MOST_LETTERS} letters. "
            "changedetection.io fills in such URLs as templates, and keeps none so long. Percent-encode it, "
            "or take it out."
        )


def _watch() -> polars.Expr:
    """Return a watch as JSON, its interval in calendar units.

    A URL has no control characters: JSON escapes a backslash or a quote in it, nothing else.
    """
    import polars
    from polars import col

    url = col("url").str.replace_many(["\\", '"'], ["\\\\", '\\"'])
    rest, parts = col("interval"), []
    for unit in _PARTS:
        whole = int(SECONDS[unit])
        parts.append(polars.format(f'"{unit}s": {{}}', rest // whole))
        rest = rest % whole
    timed = polars.concat_str(
        polars.lit('", "time_between_check_use_default": false, "time_between_check": {'),
        polars.concat_str(parts, separator=", "),
        polars.lit("}}"),
    )
    paused = polars.lit('", "paused": true}')
    check = polars.when(col("interval") == NEVER).then(paused).otherwise(timed)
    return polars.concat_str(polars.lit('\n{"url": "'), url, check)
