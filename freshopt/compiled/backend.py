"""Backend of the passes: numba, or Python where ``FRESHOPT_COMPILED=0``."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

Loops = TypeVar("Loops")
Pass = TypeVar("Pass", bound=Callable[..., Any])


def compiled() -> bool:
    """Return whether passes are compiled."""
    return os.environ.get("FRESHOPT_COMPILED", "1") != "0"


def fast(function: Pass) -> Pass:
    """Return a function compiled, or as it is.

    Compiling takes seconds once per machine.
    """
    return _compiled(function) if compiled() else function


def built(build: Callable[..., Loops]) -> Loops:
    """Return compiled loops, cached on disk where possible."""
    try:
        return build(cache=True)
    except RuntimeError:  # numba's error where no folder to cache in can be written
        return build(cache=False)


@cache
def _compiled(function: Any) -> Any:  # noqa: ANN401 - a function as a function
    from numba import njit
    from numba.extending import register_jitable

    import freshopt.compiled.loops  # noqa: F401, PLC0415 - tells numba of the demands

    module = sys.modules[function.__module__]
    for name, other in inspect.getmembers(module, inspect.isfunction):
        if other.__module__ == module.__name__ and name != function.__name__:
            register_jitable(other)
    return built(lambda cache: njit(nogil=True, error_model="numpy", cache=cache)(function))
