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

import re
from dataclasses import dataclass
from typing import ClassVar

from freshopt.exporters.whole_lifetimes import LifetimeFormat

# Line breaks of any reader (as in Python's splitlines), control characters, and what UTF-8 has not.
UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


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

    def holds(self, name: str) -> bool:
        """Return whether a name fits into a line, before a tab."""
        return UNWRITABLE.search(name) is None

    def line(self, name: str, seconds: int, window: int) -> str:
        """Return a name and its header's value."""
        return f"{name}\tmax-age={seconds}{f', stale-while-revalidate={window}' if window else ''}\n"
