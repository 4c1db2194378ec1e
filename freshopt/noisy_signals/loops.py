"""Compiled passes over noisy signals.

This module imports numba and is imported when needed.

The machine code is cached on disk, apart for each edition of the formulas. Mathematics is not relaxed.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

from numba.extending import register_jitable

from freshopt.compiled.kept_code import compile_loop
from freshopt.noisy_signals import (
    cycle_terms,
    poisson_tails,
    signal_rates,
    threshold_passes,
    threshold_rule,
    threshold_search,
)

INLINED = (signal_rates, poisson_tails, cycle_terms, threshold_search, threshold_passes, threshold_rule)
PASSES = (
    threshold_passes.inverse,
    threshold_passes.evaluate,
    threshold_passes.thresholds,
    threshold_passes.cycles,
    threshold_passes.indices,
)

for _module in INLINED:
    for _, _function in inspect.getmembers(_module, inspect.isfunction):
        if _function.__module__ == _module.__name__:
            register_jitable(_function)

EDITION = hashlib.sha256("".join(inspect.getsource(module) for module in INLINED).encode()).hexdigest()


def build() -> dict[str, Callable[..., None]]:
    """Return the passes of `threshold_passes` by name."""
    return {function.__name__: _compiled(function) for function in PASSES}


def build_rules() -> Callable[..., None]:
    """Return `threshold_rule.follow`."""
    return _compiled(threshold_rule.follow)


def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    edition = EDITION  # like the function a variable of the closure below: its cache is looked up by both

    @compile_loop(nogil=True, error_model="numpy")
    def run(*given: Any) -> None:  # noqa: ANN401 - the pass's own arguments
        _ = edition
        function(*given)

    return run
