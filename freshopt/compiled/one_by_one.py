"""`one_by_one`: an index that compilers take for one of their own.

A loop over it is not vectorised. Rows of a table are one cache line each: eight loads of a row are sooner
done than the gathers from eight rows that a vectorised look-up consists of, twice as soon on processors with
AVX-512. This module imports numba and llvmlite and is imported when first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.extending import intrinsic


def _one_by_one(_context: Any, index: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401 - numba's types
    """Return the index; compiled code has no instruction for it."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        kind = ir.FunctionType(arguments[0].type, [arguments[0].type])
        return builder.call(ir.InlineAsm(kind, "", "=r,0", side_effect=True), arguments)

    return index(index), generate


one_by_one: Any = intrinsic(_one_by_one)
