"""CVXPY, imported on first use.

CVXPY takes a second to import, and most uses of freshopt (a plan, a certificate of a named objective) never
build an expression. Every module that does says ``from freshopt.cvx import cp`` and writes ``cp.log(...)``.
"""

from __future__ import annotations

import re
import threading
import warnings
from typing import Any, TypeAlias

from freshopt.heavy import Lazy


class _Inside(threading.local):
    """How often a thread is inside `quiet`."""

    depth = 0


class _Said:
    """Pattern of a warning, matched by threads inside `quiet` alone."""

    __slots__ = ("_inside", "_pattern")

    def __init__(self, inside: _Inside, message: str) -> None:
        self._inside, self._pattern = inside, re.compile(message)

    def match(self, text: str) -> bool:
        """Return whether the warning is to be ignored."""
        return self._inside.depth > 0 and self._pattern.match(text) is not None


class _Quiet:
    """Context without the warnings of CVXPY in `SAID`.

    `warnings.catch_warnings` restores what each thread found: where threads overlap, one restores the
    filters of another, which then stay for good. Those set here may stay: they match nothing outside.
    """

    def __init__(self, *messages: str) -> None:
        self._inside = _Inside()
        self._filters = [("ignore", _Said(self._inside, each), Warning, None, 0) for each in messages]

    def __enter__(self) -> None:
        """Set the filters where they are not the first."""
        filters: Any = warnings.filters
        if filters[: len(self._filters)] != self._filters:
            filters[:0] = self._filters
        self._inside.depth += 1

    def __exit__(self, *error: object) -> None:
        """Let warnings through again."""
        self._inside.depth -= 1


# Warnings of CVXPY that the library says in its own words: by the certificate, and by a refusal.
SAID = ("Solution may be inaccurate", r"\s*This use of ``\*`` has resulted")
quiet = _Quiet(*SAID)
cp: Any = Lazy("cvxpy")
# CVXPY has no types; the name says what is meant.
Expression: TypeAlias = Any
