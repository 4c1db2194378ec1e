"""Compiled products of the rows' sparse matrix.

This module imports numba and is imported when first needed. Sums over a row's entries are kept with their
rounding errors, in the order of the entries: nothing here may be reordered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from freshopt.compiled.kept_code import compile_loop
from freshopt.numerics.arrays import Array, IntArray

Ints = npt.NDArray[np.int32]


def _given(kind: Any, dimensions: int = 1) -> Any:  # noqa: ANN401 - a type of numba's
    """Return the type of an argument that may be read-only."""
    return types.Array(kind, dimensions, "C", readonly=True)


_ENTRIES = (_given(types.int64), _given(types.int32), _given(types.int32), _given(types.float64))
_USED = (
    types.int64,
    types.int64,
    types.int64,
    types.int64,
    *_ENTRIES,
    _given(types.float64, 2),
    types.float64[:, :, ::1],
)
_PAID = (types.int64, types.int64, *_ENTRIES, _given(types.float64), types.float64[:, ::1])


def build() -> tuple[Callable[..., None], Callable[..., None]]:
    """Return the loops (used, paid)."""
    return compile_loop(_USED)(used), compile_loop(_PAID)(paid)


def used(
    begin: int,
    end: int,
    n: int,
    size: int,
    first: IntArray,
    row: Ints,
    kind: Ints,
    coefficient: Array,
    values: Array,
    sums: Array,
) -> None:
    """Add up Σ a·T in blocks: sum, rounding error, Σ |a·T|."""
    for block in range(begin, end):
        own = sums[block]
        for k in range(block * size, min(n, (block + 1) * size)):
            for e in range(first[k], first[k + 1]):
                # An entry of no weight adds nothing, even where its curve is infinite.
                if coefficient[e] == 0.0:
                    continue
                amount = coefficient[e] * values[kind[e], k]
                j = row[e]
                total = own[j, 0]
                following = total + amount
                taken = following - total
                own[j, 0] = following
                own[j, 1] += (total - (following - taken)) + (amount - taken)
                own[j, 2] += abs(amount)


def paid(
    begin: int,
    end: int,
    first: IntArray,
    row: Ints,
    kind: Ints,
    coefficient: Array,
    multipliers: Array,
    out: Array,
) -> None:
    """Write Σ y·a of consecutive sources, kind by kind."""
    for t in range(len(out)):
        for k in range(begin, end):
            out[t, k] = 0.0
    for k in range(begin, end):
        for e in range(first[k], first[k + 1]):
            out[kind[e], k] += multipliers[row[e]] * coefficient[e]
