"""Choice of the automata loops: compiled or plain Python.

The same steps run in Python where ``FRESHOPT_COMPILED=0``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from freshopt.automata import polls, transitions
from freshopt.compiled import backend


def loops() -> Mapping[str, Callable[..., None]]:
    """Return `simulate`, `observe`, `choose_many` and `learn_many`."""
    return _compiled() if backend.compiled() else _PLAIN


_PLAIN: Mapping[str, Callable[..., None]] = {
    "simulate": polls.simulate,
    "observe": polls.observe,
    "choose_many": transitions.choose_many,
    "learn_many": transitions.learn_many,
}


@cache
def _compiled() -> Mapping[str, Callable[..., None]]:
    from freshopt.automata.loops import build  # noqa: PLC0415 - numba loads only if needed

    return build()
