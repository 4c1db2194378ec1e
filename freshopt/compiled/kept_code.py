"""`compile_loop`: compiled loops whose machine code is kept on disk.

Numba keeps it beside the source, in ``NUMBA_CACHE_DIR``, or in the user's cache folder, and finds it again
there in another process, unless formulas have changed that are compiled into it: all source of `compiled` and
`numerics`, and NumPy's version, of which the tables in it are made, are part of what it is looked up by.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np

_LOGGER = logging.getLogger(__name__)
Pass = TypeVar("Pass", bound=Callable[..., Any])


@cache
def built(module: str, *cells: Any) -> Any:  # noqa: ANN401 - loops, or several
    """Return the loops that `build` of a module makes of cells, once.

    They are compiled for the columns' kinds when these first occur. Numba loads only then.
    """
    return importlib.import_module(f"freshopt.compiled.{module}").build(*cells)


def functions_of(*modules: ModuleType) -> list[FunctionType]:
    """Return the functions that modules define."""
    return [
        function
        for module in modules
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
    ]


@cache
def edition() -> str:
    """Return what is common to the source of all loops."""
    root = Path(__file__).parent.parent
    files = (path for room in ("compiled", "numerics") for path in (root / room).rglob("*.py"))
    text = (path.read_bytes() for path in sorted(files) if "__pycache__" not in path.parts)
    return hashlib.sha256(np.__version__.encode() + b"".join(text)).hexdigest()


def told(value: Any) -> str:  # noqa: ANN401 - what loops are closures over
    """Return what a value is, alike in every process.

    A pickle is not: of equal strings it tells whether they are one object, which depends on whether Python
    compiled a file or found it compiled. Functions of modules are told by name, those made in others by their
    code and closure.
    """
    value = getattr(value, "py_func", value)
    if isinstance(value, FunctionType):
        name = f"{value.__module__}.{value.__qualname__}"
        inner = [cell.cell_contents for cell in value.__closure__ or ()]
        return told((name, value.__code__, value.__defaults__, inner)) if "<locals>" in name else name
    if isinstance(value, CodeType):
        return told((value.co_code, value.co_names, value.co_consts))
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(told, value))})"
    return repr(value)


def compile_loop(
    signature: tuple[Any, ...] | None = None,
    *,
    also: str = "",
    **options: Any,  # noqa: ANN401
) -> Callable[[Pass], Pass]:
    """Return a decorator that compiles loops, kept on disk.

    Where the disk refuses, they are compiled all the same.

    - `signature` tuple of numba types: What to compile for at once. By default for the arguments of each
      call.
    - `also`: Source of elsewhere that is compiled into it.
    - `**options`: Of `numba.njit`, besides those by which loops run in threads and divide as NumPy does.
    """
    from numba import njit

    def compiling(function: Pass) -> Pass:
        loop: Any = njit(**{"nogil": True, "error_model": "numpy", **options})(function)
        with suppress(RuntimeError):  # no folder to keep it in can be written
            loop._cache = _kept_code()(function)
            loop._cache.also = also
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

    for function in functions_of(*modules):
        register_jitable(function)
    source = "".join(map(inspect.getsource, modules))

    def compiled(function: Callable[..., None]) -> Callable[..., None]:
        @compile_loop(also=source)
        def run(*given: Any) -> None:  # noqa: ANN401 - the pass's own arguments
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

        also = ""

        def _index_key(self, signature: Any, codegen: Any) -> Any:  # noqa: ANN401 - numba's
            function = self._py_func
            cells = [cell.cell_contents for cell in function.__closure__ or ()]
            own = (function.__code__.co_code, told(cells).encode(), self.also.encode(), edition().encode())
            return signature, codegen.magic_tuple(), *(hashlib.sha256(each).hexdigest() for each in own)

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
