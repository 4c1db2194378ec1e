"""Readers of other tools' records."""

from importlib import import_module
from typing import Any
from warnings import warn

from freshopt.io.read_bing import BingData as BingData
from freshopt.io.read_bing import read_bing as read_bing
from freshopt.io.read_changedetection import read_changedetection as read_changedetection
from freshopt.io.read_dbt import read_dbt as read_dbt
from freshopt.io.read_git import read_git as read_git
from freshopt.io.read_nutch import read_nutch as read_nutch

__all__ = [
    "BingData",
    "read_bing",
    "read_changedetection",
    "read_dbt",
    "read_git",
    "read_nutch",
]
# Names that live in another room now, and that room.
_MOVED = dict.fromkeys(("read_history", "read_log", "read_requests"), "freshopt.logs")


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any name of a module
    """Return what has moved, and warn."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn(f"freshopt.io.{name} is {_MOVED[name]}.{name} now", DeprecationWarning, stacklevel=2)
    return getattr(import_module(_MOVED[name]), name)
