"""Request rates of sources, and their log in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshopt.logs.read_events import requests_of
from freshopt.numerics.arrays import Array
from freshopt.terminal.console import count

if TYPE_CHECKING:
    import polars


def request_rates(found: polars.DataFrame, names: Sequence[Any], path: Path) -> tuple[Array, str]:
    """Return the request rates of sources, and a text."""
    asked, known = {str(name) for name in found["source"].to_list()}, {str(name) for name in names}
    missing, left = len(known - asked), len(asked - known)
    words = f"{count(int(found['requests'].sum()), 'request')} of {count(found.height, 'source')} in {path}"
    words += f"; {count(missing, 'source')} without any" if missing else ""
    words += f"; {count(left, 'source')} left out, whose changes the log does not tell" if left else ""
    return requests_of(found, names), words
