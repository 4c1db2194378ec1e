"""Apache StormCrawler: seeds with their fetch delay as metadata.

It is the delay until the next fetch.

A seed file has a URL a line, then metadata ``key=value``, all separated by tabs, as its ``StringTabScheme``
reads them. Its ``DefaultScheduler`` takes the minutes until the next fetch from the metadata
``scheduler.delay.mins`` before any other setting, and -1 means never [1]_.

References
----------
.. [1] https://github.com/apache/stormcrawler, class ``DefaultScheduler`` (``DELAY_METADATA``)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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

KEY = "scheduler.delay.mins"
_LIMITS = Limits(
    "StormCrawler", step=60, longest=60 * (2**31 - 1), shortest=60, remedy="Raise their min_rate."
)


@dataclass(frozen=True, slots=True)
class StormCrawler:
    """A seed file.

    Notes
    -----
    For the delay to hold beyond the first fetch, ``metadata.persist`` of the crawler's configuration must
    list ``scheduler.delay.mins``, and ``metadata.transfer`` must not, as found links would inherit it.
    """

    @property
    def files(self) -> tuple[str, ...]:
        """No folder: it is one file."""
        return ()

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `IntervalFormat.write`.

        Raises
        ------
        SourceDataError
            If a name is no URL, an interval is below a minute, or a source waits for signals.
        """
        names, seconds = labels(table), whole_intervals(table, _LIMITS)
        require_urls(names, "StormCrawler")
        minutes = [-1 if interval == NEVER else interval // 60 for interval in seconds.tolist()]
        lines = (f"{name}\t{KEY}={delay}\n" for name, delay in zip(names, minutes, strict=True))
        path.write_bytes("".join(lines).encode())
        return exported(table, seconds, f"with {KEY}=-1")
