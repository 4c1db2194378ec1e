"""CVXPY, imported on first use.

CVXPY takes a second to import, and most uses of freshopt (a plan, a certificate of a named objective) never
build an expression. Every module that does says ``from freshopt.cvx import cp`` and writes ``cp.log(...)``.
"""

from __future__ import annotations

import importlib
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


cp: Any = _LazyCvxpy()
# CVXPY has no types; the name says what is meant.
Expression: TypeAlias = Any
