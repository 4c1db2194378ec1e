"""Which passes run: compiled ones, or the same in Python where ``FRESHOPT_COMPILED=0``."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

Pass = TypeVar("Pass", bound=Callable[..., Any])


def compiled() -> bool:
    """Tell whether passes are compiled."""
    return os.environ.get("FRESHOPT_COMPILED", "1") != "0"


def fast(function: Pass) -> Pass:
    """Return a function compiled, which takes seconds once per machine, or as it is."""
    return _compiled(function) if compiled() else function


@cache
def _compiled(function: Any) -> Any:  # noqa: ANN401 - a function as a function
    from numba import njit

    try:
        return njit(nogil=True, error_model="numpy", cache=True)(function)
    except RuntimeError:  # numba's word for: no folder to cache in can be written
        return njit(nogil=True, error_model="numpy")(function)
