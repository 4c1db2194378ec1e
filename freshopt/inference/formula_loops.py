"""`register_formulas`: formulas of `scalar_source` made known to numba.

This module imports numba and is imported when first needed.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from numba.extending import overload, register_jitable

from freshopt.numerics import lane_math, scalar_source
from freshopt.numerics.scalar_source import Numbers

# Formulas keep the order in which they are written; sums may be taken in any, and so in lanes.
FAITHFUL: Any = {"forceinline": True, "fastmath": {"contract"}}


def register_formulas(module: ModuleType, options: Any = FAITHFUL) -> str:  # noqa: ANN401 - numba's
    """Let numba inline functions of a module; return their source's digest.

    What is inlined elsewhere is part of what compiled code in the cache is looked up by.
    """
    for _, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__:
            register_jitable(**options)(function)
    sources = (lane_math, scalar_source, sys.modules[__name__], module)
    return hashlib.sha256("".join(map(inspect.getsource, sources)).encode()).hexdigest()


def _stands_in(function: Callable[..., Any], lane: Callable[..., Any]) -> None:
    """Let numba compile one function in place of another."""

    @overload(function, strict=False, jit_options=FAITHFUL)
    def implementation(*_: Any) -> Any:  # noqa: ANN401 - numba types
        return lane


def _select(condition: Numbers, one: Numbers, other: Numbers) -> Numbers:
    return one if condition else other


def _log(x: Numbers) -> Numbers:
    return math.log(x)


def _log1p(x: Numbers) -> Numbers:
    return math.log1p(x)


def _itself(condition: Numbers) -> Numbers:
    return condition


register_formulas(lane_math)
for _function, _lane in (
    (scalar_source.exp, lane_math.lane_exp),
    (scalar_source.expm1, lane_math.lane_expm1),
    (scalar_source.log, _log),
    (scalar_source.log1p, _log1p),
    (scalar_source.select, _select),
    (scalar_source.somewhere, _itself),
    (scalar_source.everywhere, _itself),
):
    _stands_in(_function, _lane)
