"""Compiled loops over the sources of declared expressions.

This module imports numba and is imported when first needed.

Each structure of an expression (`freshopt.autodiff.tape_description`) becomes a module of generated source,
with the functions it needs copied in, so that nothing that other loops ask of numba changes a bit of it. The
source is kept in a file of the user's cache folder, beside which numba keeps the machine code: it is compiled
once per machine, and looked up by the text itself. Where no folder can be written, it is compiled once per
process.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkstemp
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import types
from numba.core import config
from numba.extending import register_jitable

from freshopt.compiled.kept_code import compile_loop, functions_of
from freshopt.compiled.tapes import atom_functions, marginal_search
from freshopt.compiled.tapes.tape_source import Part, numbers_of
from freshopt.compiled.tapes.tape_templates import loop_source
from freshopt.numerics import vector_math

# Products and sums of the polynomials may be fused; formulas keep their roundings, by which ties are found.
CONTRACT = {"contract"}
MODULES = (vector_math, atom_functions, marginal_search)
# What few sources need is called, everything else inlined.
CALLED = ("off_zero_onto_jumps",)

# Nothing but the loop is called from Python or C; wrappers would be a fifth of the compilation.
_INNER: dict[str, Any] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_GIVEN = types.Array(types.float64, 1, "C", readonly=True)
_TABLE = types.Array(types.float64, 2, "C", readonly=True)
_FILLED = types.float64[::1]
_FILLED_TABLE = types.float64[:, ::1]


@cache
def loop(kind: str, parts: tuple[Part, ...], *, objective: bool = True) -> Callable[..., None]:
    """Return the compiled loop of a structure.

    See `freshopt.compiled.tapes.tape_templates.loop_source`.
    """
    text = loop_source(kind, parts, objective=objective)
    constants = [
        _GIVEN if vector else types.float64 for part in parts for _, vector in numbers_of(part.description)
    ]
    if kind == "rows":
        signature: tuple[Any, ...] = (types.int64, types.int64, _TABLE, _GIVEN, _GIVEN, _GIVEN, *constants)
        signature += (_FILLED_TABLE, _FILLED_TABLE, _FILLED, _FILLED)
    elif kind == "inverse":
        signature = (_GIVEN, _GIVEN, *constants, _FILLED)
    else:
        signature = (_GIVEN, types.float64, *constants, _FILLED, _FILLED, _FILLED)
    return _compiled(text, signature)


def _compiled(text: str, signature: tuple[Any, ...]) -> Callable[..., None]:
    """Return ``run`` of a generated source, compiled for one signature."""
    name = f"tape_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    path = _kept(name, text)
    # Numba looks up the module of what it loads from its cache.
    module = sys.modules[name] = ModuleType(name)
    names: dict[str, Any] = module.__dict__
    names.update(inf=np.inf, nan=np.nan)
    for source in MODULES:
        names.update({k: v for k, v in vars(source).items() if k.isupper() or k in ("np", "max", "min")})
    for function in functions_of(*MODULES):
        key = function.__name__
        own = FunctionType(function.__code__, names, key)
        flags = CONTRACT if function.__module__ == vector_math.__name__ else set()
        names[key] = register_jitable(fastmath=flags, forceinline=key not in CALLED, **_INNER)(own)
    exec(compile(text, str(path or name), "exec"), names)
    for key, function in inspect.getmembers(module, inspect.isfunction):
        if key != "run":
            register_jitable(forceinline=True, **_INNER)(function)
    run = names["run"]
    compiled: Callable[..., None] = compile_loop(signature)(run)
    return compiled


def _kept(name: str, text: str) -> Path | None:
    """Return the file of a generated source, or None.

    It is None where no folder can be written.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    given = [Path(folder)] if (folder := getattr(config, "CACHE_DIR", "")) else []
    for folder in (*given, Path(__file__).parent / "__pycache__", home / "freshopt"):
        path = folder / f"{name}.py"
        try:
            if path.is_file() and path.read_text(encoding="utf-8") == text:
                return path
            folder.mkdir(parents=True, exist_ok=True)
            handle, other = mkstemp(dir=folder, suffix=".tmp")
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            Path(other).replace(path)
        except OSError:
            continue
        return path
    return None
