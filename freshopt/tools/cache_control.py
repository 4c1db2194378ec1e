"""Cache-Control: ``max-age`` of each source, as a tab-separated table.

A line holds a source's name, a tab, and the value of the header with which its responses are to be sent,
such as ``max-age=60, stale-while-revalidate=30`` (RFC 9111 [1]_, RFC 5861 [2]_). Both count whole seconds.
``max-age=0`` has every request fetch.

References
----------
.. [1] https://www.rfc-editor.org/rfc/rfc9111#section-5.2.2.1
.. [2] https://www.rfc-editor.org/rfc/rfc5861#section-3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshopt.heavy import polars
from freshopt.tools.whole_seconds import LifetimeFormat

# Line breaks of any reader (as in Python's splitlines) and control characters.
UNWRITABLE = r"[\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]"


@dataclass(frozen=True, slots=True)
class CacheControl(LifetimeFormat):
    """Table of the Cache-Control header of each source.

    Sources that are never fetched again have no line.
    """

    tool: ClassVar[str] = "Cache-Control"
    file: ClassVar[str] = "cache-control.tsv"
    refusal: ClassVar[str] = (
        "has a line break, a tab or another control character. The table has a source a line. Rename it."
    )
    windows: ClassVar[bool] = True

    def holds(self, names: polars.Series) -> polars.Series:
        """Return whether names fit into a line, before a tab."""
        return ~names.str.contains(UNWRITABLE)

    def line(self) -> polars.Expr:
        """Return names and their headers' values."""
        window = polars.format(", stale-while-revalidate={}", "window")
        shown = polars.when(polars.col("window") > 0).then(window).otherwise(polars.lit(""))
        return polars.format("{}\tmax-age={}{}\n", "name", "seconds", shown)
