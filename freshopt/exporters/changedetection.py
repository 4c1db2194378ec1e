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

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshopt.errors import SourceDataError, list_offenders
from freshopt.exporters.whole_intervals import (
    NEVER,
    Exported,
    Limits,
    exported,
    labels,
    require_urls,
    whole_intervals,
)
from freshopt.scheduling.rate_table import RateTable
from freshopt.units import SECONDS

_PARTS = ("week", "day", "hour", "minute", "second")
# Releases put off a recheck that comes sooner than MINIMUM_SECONDS_RECHECK_TIME, 60 s by default in some.
_LIMITS = Limits(
    "changedetection.io", step=1, longest=604_800 * 52_000, shortest=60, remedy="Raise their min_rate."
)
# Characters of a URL, by the tool's schema.
_MOST_LETTERS = 5000


@dataclass(frozen=True, slots=True)
class ChangeDetection:
    """A JSON file."""

    @property
    def files(self) -> tuple[str, ...]:
        """No folder: it is one file."""
        return ()

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `IntervalFormat.write`.

        Raises
        ------
        SourceDataError
            If a name is no URL, an interval does not fit, or a source waits for signals.
        """
        names, seconds = labels(table), whole_intervals(table, _LIMITS)
        require_urls(names, "changedetection.io")
        _require_plain(names)
        with path.open("wb") as file:
            for k, (name, interval) in enumerate(zip(names, seconds.tolist(), strict=True)):
                watch = json.dumps(_watch(name, interval), ensure_ascii=False)
                file.write(f"{',' if k else '['}\n{watch}".encode())
            file.write(b"\n]\n")
        return exported(table, seconds, "as paused watches")


def _require_plain(names: list[str]) -> None:
    """Raise if URLs are templates there or too long."""
    wrong = [repr(name[:80]) for name in names if "{{" in name or "{%" in name or len(name) > _MOST_LETTERS]
    if wrong:
        raise SourceDataError(
            f"source {list_offenders(wrong)} has {{{{ or {{%, or more than {_MOST_LETTERS} letters. "
            "changedetection.io fills in such URLs as templates, and keeps none so long. Percent-encode it, "
            "or take it out."
        )


def _watch(url: str, interval: int) -> dict[str, Any]:
    """Return a watch with its time in calendar units.

    Examples
    --------
    >>> _watch("https://example.org/", 93_784)["time_between_check"]
    {'weeks': 0, 'days': 1, 'hours': 2, 'minutes': 3, 'seconds': 4}
    """
    if interval == NEVER:
        return {"url": url, "paused": True}
    parts = {}
    for unit in _PARTS:
        parts[f"{unit}s"], interval = divmod(interval, int(SECONDS[unit]))
    return {"url": url, "time_between_check_use_default": False, "time_between_check": parts}
