"""Compiled passes of declared constraints at given multipliers.

A pass returns the best responses, what they use of every row, and the Gram matrix H = Σ_k g_k' g_k'ᵀ/φ_k'' of
the sources strictly inside their bounds: minus the Jacobian of what is used. Sources are divided into a fixed
number of blocks with sums of their own, so that the bits do not depend on the number of threads. What is used
of a row is summed with its rounding errors. Where host rows are disjoint the matrix is an arrow, and only its
parts are formed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from freshopt.compiled import backend
from freshopt.compiled.columns import run_chunks_in_threads
from freshopt.compiled.cost_functions import Value
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.kept_code import built
from freshopt.compiled.rows.row_products import LEAST, SHARED, added_blocks
from freshopt.compiled.rows.row_records import LANES, FamilyColumns, RowEntries, RowPrices, RowSums
from freshopt.compiled.source_columns import SourceColumns
from freshopt.numerics.arrays import Array, IntArray

# Blocks of sources: as many as threads may share, fewer where each has a large matrix to be added up.
BLOCKS, FEW_BLOCKS = 16, 4
# Evaluations of every source that a solve under rows takes: some forty steps, of cost, slope and curvature
# and of what rows use. So 65 536 sources are compiled whatever was done before, as partitions ask for.
EVALUATIONS = 306.0
# Numbers of a block's sums up to which there are `BLOCKS`: together 4 MiB.
SMALL = 2**15


class ArrowGram(NamedTuple):
    """Gram matrix of disjoint host rows and the other rows.

    - `diagonal` (H,): Of the host rows.
    - `cross` (H, q): Of host rows with the other rows.
    - `corner` (q, q): Of the other rows.
    """

    diagonal: Array
    cross: Array
    corner: Array


class RowEvaluation(NamedTuple):
    """Best responses at the rows' multipliers.

    - `rates` (n,)
    - `used` (m,): Σ_k g_jk(ρ_k) of every row.
    - `gram` ndarray, shape (m, m), or ArrowGram
    """

    rates: Array
    used: Array
    gram: Array | ArrowGram | None


@dataclass(frozen=True, slots=True, eq=False)
class RowColumns:
    """Columns of sources and the entries of their rows, for compiled passes.

    - `formula`, `announced`: Demand functions, as in `freshopt.compiled.columns.Columns`; None for costs of
      several families.
    - `value`: Cost of one source that belongs to the demand; needed by rows of the cost.
    - `columns`: `cost` is the price per unit of rate besides those of rows.
    - `dense`, `sparse`, `hosts`: The declared index of each dense, sparse and host row.
    """

    n: int
    formula: Demand | None
    announced: Demand | None
    value: Value | None
    columns: SourceColumns | FamilyColumns
    entries: RowEntries
    dense: IntArray
    sparse: IntArray
    hosts: IntArray

    def __len__(self) -> int:
        """Return the number m of rows."""
        return len(self.dense) + len(self.sparse) + len(self.hosts)

    def evaluate(self, multipliers: Array, *, gram: bool = True) -> RowEvaluation:
        """Return best responses, used amounts and the Gram matrix.

        - `multipliers` (m,)
        - `gram`: Whether the matrix is asked for: None without.
        """
        (scan, unpack), rates = self._loops(), np.empty(self.n)
        prices = RowPrices(multipliers[self.dense], multipliers[self.sparse], multipliers[self.hosts])
        sums, blocks = self._room(gram)
        size = -(-self.n // blocks)

        def part(begin: int, end: int) -> None:
            scan(begin, end, self.n, size, self.columns, self.entries, prices, gram, sums, rates)

        run_chunks_in_threads(part, blocks, 1 if self.n >= SHARED else blocks)
        used = np.empty(len(self))
        for rows, own in (
            (self.dense, sums.dense[:, :, :, 0]),
            (self.sparse, sums.sparse),
            (self.hosts, sums.host),
        ):
            if len(rows):
                used[rows] = added_blocks(own[:, :, 0], own[:, :, 1])
        return RowEvaluation(rates, used, self._gram(unpack, sums) if gram else None)

    def _room(self, gram: bool) -> tuple[RowSums, int]:
        """Return zeros for the blocks' sums, and the number of blocks."""
        d, s, h = len(self.dense), len(self.sparse), len(self.hosts)
        pairs = s * (s + 1) // 2
        size = d * (2 * LANES + d) + s * (2 + d) + h * (3 + d + s) + pairs
        # What a block is depends on the number of sources alone.
        blocks = max(1, min(BLOCKS if size <= SMALL else FEW_BLOCKS, self.n // LEAST))
        return RowSums(
            np.zeros((blocks, d, 2, LANES)),
            np.zeros((blocks, s, 2)),
            np.zeros((blocks, h, 3 + d if gram else 2)),
            np.zeros((blocks, d, d)),
            np.zeros((blocks, s, d)),
            np.zeros((blocks, pairs if gram else 0)),
            np.zeros((blocks, h if gram else 0, s)),
        ), blocks

    def _loops(self) -> Any:  # noqa: ANN401 - compiled
        if self.formula is None:
            return built("rows.mixed_loops")
        return built("rows.row_loops", self.formula, self.announced, self.value)

    def _gram(self, unpack: Callable[..., None], sums: RowSums) -> Array | ArrowGram:
        """Return the sum of the blocks' matrices in the declared order."""
        d, s = len(self.dense), len(self.sparse)
        corner = np.empty((d + s, d + s))
        low = np.sum(sums.dense_gram, axis=0)
        corner[:d, :d] = low + np.tril(low, -1).T
        order = np.arange(d)
        if s:
            corner[d:, :d] = np.sum(sums.mixed_gram, axis=0)
            corner[:d, d:] = corner[d:, :d].T
            unpack(sums.sparse_gram, corner[d:, d:])
            order = np.argsort(np.concatenate((self.dense, self.sparse)))
            if np.any(order != np.arange(d + s)):
                corner = corner[np.ix_(order, order)]
        if not len(self.hosts):
            return corner
        diagonal: Array = np.sum(sums.host[:, :, 2], axis=0)
        cross = np.concatenate((np.sum(sums.host[:, :, 3:], axis=0), np.sum(sums.host_gram, axis=0)), axis=1)
        return ArrowGram(diagonal, cross[:, order], corner)


def rows_enabled(n: int, formula: Demand | None, announced: Demand | None, value: Value | None) -> bool:
    """Return whether passes over n sources are to be compiled.

    They are for many sources, or once the loops are at hand (`freshopt.compiled.backend`).
    """
    return backend.takes((formula, announced, value), n, EVALUATIONS)
