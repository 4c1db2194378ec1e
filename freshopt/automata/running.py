"""Which loops run: compiled ones, or the same steps in Python where ``FRESHOPT_COMPILED=0``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache

from freshopt.automata import steps


def loops() -> Mapping[str, Callable[..., None]]:
    """Return `simulate`, `observe`, `choose_many` and `learn_many`."""
    return _compiled() if os.environ.get("FRESHOPT_COMPILED", "1") != "0" else _PLAIN


_PLAIN: Mapping[str, Callable[..., None]] = {
    "simulate": steps.simulate,
    "observe": steps.observe,
    "choose_many": steps.choose_many,
    "learn_many": steps.learn_many,
}


@cache
def _compiled() -> Mapping[str, Callable[..., None]]:
    from freshopt.automata.loops import build  # noqa: PLC0415 - numba loads only if needed

    try:
        return build(cache=True)
    except RuntimeError:  # numba's word for: no folder to cache in can be written
        return build(cache=False)
