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
from typing import ClassVar

from freshopt.heavy import polars
from freshopt.tools.export import urls_of
from freshopt.tools.whole_seconds import NEVER, IntervalFormat, Limits

KEY = "scheduler.delay.mins"


@dataclass(frozen=True, slots=True)
class StormCrawler(IntervalFormat):
    """A seed file.

    Notes
    -----
    For the delay to hold beyond the first fetch, ``metadata.persist`` of the crawler's configuration must
    list ``scheduler.delay.mins``, and ``metadata.transfer`` must not, as found links would inherit it.
    """

    limits: ClassVar[Limits] = Limits("StormCrawler", step=60, longest=60 * (2**31 - 1), shortest=60)
    never: ClassVar[str] = f"with {KEY}=-1"

    def text(self, names: list[str]) -> polars.Series:
        """Return names that are URLs."""
        return urls_of(names, "StormCrawler")

    def line(self) -> polars.Expr:
        """Return seeds with their delays."""
        seconds = polars.col("seconds")
        minutes = polars.when(seconds == NEVER).then(-1).otherwise(seconds // 60)
        return polars.format(f"{{}}\t{KEY}={{}}\n", "name", minutes)
