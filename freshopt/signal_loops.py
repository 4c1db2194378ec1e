"""The passes of `freshopt.signal_search`, compiled: this module imports numba and is imported when needed.

The machine code is cached on disk, apart for each edition of the formulas. Mathematics is not relaxed.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.extending import register_jitable

from freshopt import signal_rules, signal_search, signal_terms
from freshopt.arrays import Array, IntArray

for _module in (signal_terms, signal_search, signal_rules):
    for _, _function in inspect.getmembers(_module, inspect.isfunction):
        if _function.__module__ == _module.__name__:
            register_jitable(_function)

EDITION = hashlib.sha256(
    "".join(inspect.getsource(module) for module in (signal_terms, signal_search, signal_rules)).encode()
).hexdigest()


def build(*, cache: bool) -> dict[str, Callable[..., None]]:
    """Return the passes by name."""
    edition = EDITION  # a variable of the closures below, hence part of what their cache is looked up by
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "cache": cache}

    @njit(**options)  # type: ignore[untyped-decorator]
    def inverse(begin: int, end: int, worth: Array, recall: Array, precision: Array, rate: Array) -> None:
        _ = edition
        signal_search.inverse(begin, end, worth, recall, precision, rate)

    @njit(**options)  # type: ignore[untyped-decorator]
    def evaluate(
        begin: int, end: int, rate: Array, recall: Array, precision: Array, stale: Array, worth: Array
    ) -> None:
        _ = edition
        signal_search.evaluate(begin, end, rate, recall, precision, stale, worth)

    @njit(**options)  # type: ignore[untyped-decorator]
    def thresholds(
        begin: int, end: int, length: Array, recall: Array, precision: Array, number: Array, wait: Array
    ) -> None:
        _ = edition
        signal_search.thresholds(begin, end, length, recall, precision, number, wait)

    @njit(**options)  # type: ignore[untyped-decorator]
    def cycles(
        begin: int,
        end: int,
        number: Array,
        wait: Array,
        recall: Array,
        precision: Array,
        length: Array,
        stale: Array,
        worth: Array,
        survival: Array,
    ) -> None:
        _ = edition
        signal_search.cycles(begin, end, number, wait, recall, precision, length, stale, worth, survival)

    @njit(**options)  # type: ignore[untyped-decorator]
    def indices(
        begin: int, end: int, number: Array, wait: Array, recall: Array, precision: Array, worth: Array
    ) -> None:
        _ = edition
        signal_search.indices(begin, end, number, wait, recall, precision, worth)

    return {
        "inverse": inverse,
        "evaluate": evaluate,
        "thresholds": thresholds,
        "cycles": cycles,
        "indices": indices,
    }


def build_rules(*, cache: bool) -> Callable[..., None]:
    """Return `signal_rules.follow`."""
    edition = EDITION

    @njit(nogil=True, error_model="numpy", cache=cache)
    def follow(
        offsets: IntArray,
        times: Array,
        coins: Array,
        signals: Array,
        wait: Array,
        bonus: Array,
        share: Array,
        horizon: float,
        counts: IntArray,
        out: Array,
    ) -> None:
        _ = edition
        signal_rules.follow(offsets, times, coins, signals, wait, bonus, share, horizon, counts, out)

    return follow
