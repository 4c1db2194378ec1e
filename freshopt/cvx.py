"""CVXPY, imported on first use.

CVXPY takes a second to import, and most uses of freshopt (a plan, a certificate of a named objective) never
build an expression. Every module that does says ``from freshopt.cvx import cp`` and writes ``cp.log(...)``.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from typing import Any, TypeAlias


class _LazyCvxpy:
    """Stand-in for the ``cvxpy`` module, imported on first attribute access."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a module's attributes have no common type
        """Return the attribute of the real module."""
        return getattr(importlib.import_module("cvxpy"), name)

    def __repr__(self) -> str:
        """Return a description without importing CVXPY."""
        return "<cvxpy, imported on first use>"


class _Quiet:
    """Context without the warnings of CVXPY in `SAID`.

    `warnings.catch_warnings` alone restores what each thread found: where threads overlap, one restores the
    filters of another, which then stay for good.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._before = warnings.catch_warnings()

    def __enter__(self) -> None:
        """Set the filters, for the first thread."""
        with self._lock:
            if not self._inside:
                self._before = warnings.catch_warnings()
                self._before.__enter__()
                for message in SAID:
                    warnings.filterwarnings("ignore", message=message)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        """Restore the filters, after the last thread."""
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._before.__exit__(None, None, None)


# Warnings of CVXPY that the library says in its own words: by the certificate, and by a refusal.
SAID = ("Solution may be inaccurate", r"\s*This use of ``\*`` has resulted")
quiet = _Quiet()
cp: Any = _LazyCvxpy()
# CVXPY has no types; the name says what is meant.
Expression: TypeAlias = Any
