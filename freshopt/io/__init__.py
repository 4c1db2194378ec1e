"""Readers of logs and histories, tables, atomic output."""

from typing import TYPE_CHECKING

from freshopt.io.read_history import read_history as read_history
from freshopt.io.read_log import read_log as read_log
from freshopt.io.read_requests import read_requests as read_requests
from freshopt.moved import moved_name

__all__ = ["read_history", "read_log", "read_requests"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Return a reader that is in `freshopt.tools` now."""
        return moved_name(f"{__name__}.{name}", name, f"{__name__}.{name}")
