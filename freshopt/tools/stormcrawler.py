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

import numpy as np

from freshopt.scheduling.rate_table import RateTable
from freshopt.tools.export import Exported
from freshopt.tools.text_lines import urls_of, write_lines
from freshopt.tools.whole_intervals import (
    NEVER,
    IntervalFormat,
    Limits,
    exported,
    labels,
    whole_intervals,
)

KEY = "scheduler.delay.mins"
_LIMITS = Limits(
    "StormCrawler", step=60, longest=60 * (2**31 - 1), shortest=60, remedy="Raise their min_rate."
)


@dataclass(frozen=True, slots=True)
class StormCrawler(IntervalFormat):
    """A seed file.

    Notes
    -----
    For the delay to hold beyond the first fetch, ``metadata.persist`` of the crawler's configuration must
    list ``scheduler.delay.mins``, and ``metadata.transfer`` must not, as found links would inherit it.
    """

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `ToolFormat.write`.

        Raises
        ------
        SourceDataError
            If a name is no URL, an interval is below a minute, or a source waits for signals.
        """
        import polars
        from polars import col

        names, seconds = labels(table), whole_intervals(table, _LIMITS)
        urls = urls_of(names, "StormCrawler")
        minutes = np.where(seconds == NEVER, -1, seconds // 60)
        lines = polars.DataFrame({"url": urls, "delay": minutes})
        write_lines(path, lines, polars.format(f"{{}}\t{KEY}={{}}\n", col("url"), col("delay")))
        return exported(table, seconds, f"with {KEY}=-1")
