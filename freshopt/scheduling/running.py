"""Which passes run: compiled ones, or the same in Python where ``FRESHOPT_COMPILED=0``."""

from __future__ import annotations

import inspect
import os
import sys
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
    from numba.extending import register_jitable

    import freshopt.loops  # noqa: F401, PLC0415 - tells numba of the demands

    module = sys.modules[function.__module__]
    for name, other in inspect.getmembers(module, inspect.isfunction):
        if other.__module__ == module.__name__ and name != function.__name__:
            register_jitable(other)
    try:
        return njit(nogil=True, error_model="numpy", cache=True)(function)
    except RuntimeError:  # numba's word for: no folder to cache in can be written
        return njit(nogil=True, error_model="numpy")(function)
