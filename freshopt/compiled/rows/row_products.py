"""Compiled products with the sparse matrix of rows.

Each is one compiled read of the entries, source by source, whatever the functions that they multiply. Sources
are divided into a fixed number of blocks with sums of their own, so that the bits do not depend on the number
of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.compiled import backend
from freshopt.compiled.columns import run_chunks_in_threads
from freshopt.compiled.kept_code import built
from freshopt.numerics.arrays import CACHED, Array, IntArray

# Blocks of sources: as many as threads may share, fewer where there are many rows to be added up.
BLOCKS, FEW_BLOCKS = 16, 4
# Rows up to which there are `BLOCKS`: their sums take 4 MiB.
SMALL = 10_000
# Sources of a block at least, and of a pass that threads share: to start them takes as long as 10⁴ sources.
LEAST, SHARED = 4096, 65_536

LOOPS = "rows.row_product_loops"


class Entries(NamedTuple):
    """Entries of a sparse matrix per kind of function.

    - `first` (n+1,): Source k has the entries first[k]:first[k+1].
    - `row`, `kind` ndarray of int32 (entries,)
    - `coefficient` (entries,)
    """

    first: IntArray
    row: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int32]
    coefficient: Array


def row_products(entries: Entries, values: Array, m: int) -> tuple[Array, Array]:
    """Return Σ a·T and Σ |a·T| of every row, shape (m,) each.

    The first is right to an ulp or two of its larger part.

    - `values` (kinds, n): T of every kind at the sources.
    - `m`: Number of rows.
    """
    n = values.shape[1]
    # What a block is depends on the numbers of sources and rows alone.
    blocks = max(1, min(BLOCKS if m <= SMALL else FEW_BLOCKS, n // LEAST))
    sums, size, loop = np.zeros((blocks, m, 3)), -(-n // blocks), built(LOOPS)[0]
    given, values = _contiguous(entries), np.ascontiguousarray(values)

    def part(begin: int, end: int) -> None:
        loop(begin, end, n, size, *given, values, sums)

    run_chunks_in_threads(part, blocks, 1 if n >= SHARED else blocks)
    return added_blocks(sums[:, :, 0], sums[:, :, 1]), np.sum(sums[:, :, 2], axis=0)


def source_prices(entries: Entries, multipliers: Array, kinds: int) -> Array:
    """Return Σ_j y_j a_jk per kind and source, shape (kinds, n)."""
    n = len(entries.first) - 1
    out, loop = np.empty((kinds, n)), built(LOOPS)[1]
    given, y = _contiguous(entries), np.ascontiguousarray(multipliers)

    def part(begin: int, end: int) -> None:
        loop(begin * CACHED, min(n, end * CACHED), *given, y, out)

    run_chunks_in_threads(part, -(-n // CACHED), 8)
    return out


def added_blocks(totals: Array, lost: Array) -> Array:
    """Return the sums of blocks with their rounding errors.

    Both have the shape (blocks, rows).
    """
    error = np.sum(lost, axis=0)
    with np.errstate(all="ignore"):
        while len(totals) > 1:  # in pairs, the first with the second half
            half = len(totals) // 2
            one, other = totals[:half], totals[half : 2 * half]
            both = one + other
            taken = both - one
            error += np.sum((one - (both - taken)) + (other - taken), axis=0)
            totals = np.concatenate((both, totals[2 * half :]))
        total = totals[0]
        exact = total + error
    # What is infinite has no rounding error.
    found: Array = np.where(np.isfinite(exact), exact, total)
    return found


def products_enabled(n: int) -> bool:
    """Return whether products over n sources are to be compiled.

    They are for many sources, or once the loops are at hand (`freshopt.compiled.backend`).
    """
    return backend.takes(LOOPS, n, 1.0)


def _contiguous(entries: Entries) -> tuple[Array, ...]:
    return tuple(np.ascontiguousarray(column) for column in entries)
