"""`compile_loop`: compiled loops whose machine code is kept on disk.

Numba keeps it beside the source, in ``NUMBA_CACHE_DIR``, or in the user's cache folder, and finds it again
there in another process.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

_LOGGER = logging.getLogger(__name__)
Pass = TypeVar("Pass", bound=Callable[..., Any])


def compile_loop(signature: tuple[Any, ...] | None = None, **options: Any) -> Callable[[Pass], Pass]:  # noqa: ANN401
    """Return a decorator that compiles loops, kept on disk.

    Where the disk refuses, they are compiled all the same.

    Parameters
    ----------
    signature : tuple of numba types, optional
        What to compile for at once. By default for the arguments of each call.
    **options
        Of `numba.njit`.
    """
    from numba import njit

    def compiling(function: Pass) -> Pass:
        loop: Any = njit(**options)(function)
        with suppress(RuntimeError):  # no folder to keep it in can be written
            loop._cache = _kept_code()(function)
        if signature is not None:
            loop.compile(signature)
            loop.disable_compile()
        made: Pass = loop
        return made

    return compiling


def compile_passes(
    passes: Sequence[Callable[..., None]], modules: Sequence[ModuleType]
) -> dict[str, Callable[..., None]]:
    """Return passes by name, compiled with the functions of their modules inlined.

    The source of the modules is part of what their kept code is looked up by. There is no fast mathematics:
    sums and products are in the order in which Python does them.
    """
    from numba.extending import register_jitable

    for module in modules:
        for _, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__:
                register_jitable(function)
    edition = hashlib.sha256("".join(map(inspect.getsource, modules)).encode()).hexdigest()

    def compiled(function: Callable[..., None]) -> Callable[..., None]:
        @compile_loop(nogil=True, error_model="numpy")
        def run(*given: Any) -> None:  # noqa: ANN401 - the pass's own arguments
            _ = edition
            function(*given)

        return run

    return {function.__name__: compiled(function) for function in passes}


@cache
def _kept_code() -> Any:  # noqa: ANN401 - a class of numba's, which is loaded on use
    from numba.core import caching

    damaged = vars(caching)["pickle"].UnpicklingError

    class KeptCode(caching.FunctionCache):
        """Machine code on disk, where files can be written and read.

        What numba raises then (a full disk, a quota, rights, a file that was cut off) ends the call of a loop
        that has been compiled and could run.
        """

        def load_overload(self, *arguments: Any) -> Any:  # noqa: ANN401 - numba's
            with self._disabled_on_errors():
                return super().load_overload(*arguments)  # type: ignore[no-untyped-call]

        def save_overload(self, *arguments: Any) -> None:  # noqa: ANN401 - numba's
            with self._disabled_on_errors():
                super().save_overload(*arguments)  # type: ignore[no-untyped-call]

        @contextmanager
        def _disabled_on_errors(self) -> Iterator[None]:
            try:
                yield
            except (OSError, EOFError, damaged) as error:
                _LOGGER.info("machine code is not kept in %s: %s", self.cache_path, error)
                self.disable()  # type: ignore[no-untyped-call]

    return KeptCode


def kept_code_found() -> tuple[str | None, bool]:
    """Return the folder of kept machine code; whether it was used."""
    loop: Any = compile_loop()(_small)
    loop(1.0)
    return loop._cache.cache_path, bool(loop.stats.cache_hits)


def _small(value: float) -> float:
    return value + 1.0
