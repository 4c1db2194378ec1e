"""Backend of the passes: numba, or Python where ``FRESHOPT_COMPILED=0``.

Loading numba and a first loop takes about .9 s, which one small solve does not make up for. An account is
kept of the work that NumPy does in this process: evaluations of single sources, of about 45 ns each. Numba is
loaded once they have taken as long as loading does, or when the present problem alone will; so a process
never takes more than twice the time of the better choice. There is no clock and no thread in it: the same
calls take the same route, and return the same bits. The route of a call, and with it the last bits of a
result, depends on what the process did before. `freshopt.warm` loads at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

from freshopt.compiled.kept_code import compile_loop, compile_passes, functions_of

Pass = TypeVar("Pass", bound=Callable[..., Any])

# Evaluations of single sources that NumPy makes in the .9 s of loading numba and a first loop.
LOADING = 2e7
# The same for another loop, of 20 ms, once numba is loaded.
ANOTHER = 5e5
# From so many sources on a loop that is loaded is faster.
AT_HAND = 100


@dataclass(slots=True)
class Account:
    """Account of a process: what NumPy has done that loops would do.

    - `done`: Evaluations of single sources, by the loops that would have made them.
    - `loaded`: Loops that make them from now on.
    - `loads`: Whether loops are loaded whatever the work, as `loading` asks for.
    - `has_numba`: Whether numba is loaded already, by loops that NumPy does not stand in for.
    """

    done: dict[Hashable, float] = field(default_factory=dict)
    loaded: set[Hashable] = field(default_factory=set)
    loads: bool = False
    has_numba: bool = False


account = Account()


def takes(loops: Hashable, n: int, evaluations: float, *, entered: bool = True) -> bool:
    """Return whether loops are to evaluate n sources; else enter NumPy's work.

    - `loops`: What is loaded as one.
    - `evaluations`: Of each source, about, that NumPy will make.
    - `entered`: False if that work will be entered in parts.
    """
    if n < AT_HAND or not compiled():
        return False
    if loops in account.loaded:
        return True
    present = n * evaluations
    if account.loads:
        enough = True
    elif account.loaded or account.has_numba:
        enough = account.done.get(loops, 0.0) + present >= ANOTHER
    else:
        enough = sum(account.done.values()) + present >= LOADING
    if enough:
        account.loaded.add(loops)
    elif entered:
        account.done[loops] = account.done.get(loops, 0.0) + present
    return enough


@contextmanager
def loading() -> Iterator[None]:
    """Load all loops that are asked for meanwhile."""
    before, account.loads = account.loads, True
    try:
        yield
    finally:
        account.loads = before


def compiled() -> bool:
    """Return whether passes are compiled."""
    return os.environ.get("FRESHOPT_COMPILED", "1") != "0"


def plain_or_compiled(
    passes: Sequence[Callable[..., None]], modules: Sequence[ModuleType]
) -> Callable[[], Mapping[str, Callable[..., None]]]:
    """Return a function of passes by name: compiled, or as they are.

    They are compiled on first use, with the functions of their modules.
    """
    plain = {function.__name__: function for function in passes}
    made = cache(lambda: compile_passes(passes, modules))
    return lambda: made() if compiled() else plain


def fast(function: Pass) -> Pass:
    """Return a function compiled, or as it is.

    Compiling takes seconds once per machine.
    """
    if not compiled():
        return function
    account.has_numba = True
    loop: Pass = _compiled(function)
    return loop


@cache
def _compiled(function: Any) -> Any:  # noqa: ANN401 - a function as a function
    from numba.extending import register_jitable

    import freshopt.compiled.loops  # noqa: F401, PLC0415 - tells numba of the demands

    module = sys.modules[function.__module__]
    for other in functions_of(module):
        if other is not function:
            register_jitable(other)
    return compile_loop()(function)
