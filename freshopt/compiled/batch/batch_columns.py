"""Columns of many small problems, solved and proved in one compiled call.

A problem's sources are consecutive. Problems are solved in blocks of about `BLOCK` sources; each starts from
the price of the one before, the first of a block from a scale of its own. Blocks do not depend on the
number of threads, and neither do bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from freshopt.compiled.batch.batch_records import BatchFound, BatchGroups
from freshopt.compiled.columns import run_chunks_in_threads
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.kept_code import built
from freshopt.compiled.proof_functions import ProofCell
from freshopt.compiled.source_columns import SourceColumns
from freshopt.numerics.arrays import IntArray

# Sources of a block: a problem that starts from no neighbour takes twice the evaluations.
BLOCK = 2**18


@dataclass(frozen=True, slots=True)
class BatchCell:
    """Formulas of a batch: demand and proof, of both kinds of source.

    - `formula`, `announced`: Demand functions; the second of signalled sources, None where there are none.
    - `silent`, `other`: Likewise.
    """

    formula: Demand
    announced: Demand | None
    silent: ProofCell
    other: ProofCell | None


def solve_groups(
    cell: BatchCell,
    groups: BatchGroups,
    columns: SourceColumns,
    proof: SourceColumns,
    start: float = math.nan,
) -> BatchFound:
    """Return rates, prices and proofs of problems.

    - `columns`, `proof`: What demand functions and proofs take, contiguous arrays or single numbers.
    - `start`: A log price for the first problem to start from; NaN for none.
    """
    m, edges = len(groups.size), _blocks(groups.size)
    found = BatchFound(
        np.empty(int(groups.size.sum())),
        np.empty(m),
        np.zeros((m, 5)),
        np.empty(m, dtype=np.int64),
        np.empty(m, dtype=np.int64),
    )
    loop = built("batch.batch_loops", cell.formula, cell.announced, cell.silent, cell.other)
    largest = int(groups.size.max())

    def part(begin: int, end: int) -> None:
        for block in range(begin, end):
            guess = math.nan if block else start
            loop(int(edges[block]), int(edges[block + 1]), groups, guess, largest, columns, proof, found)

    run_chunks_in_threads(part, len(edges) - 1, 1)
    return found


def _blocks(size: IntArray) -> IntArray:
    """Return where blocks of problems begin, and the end of the last."""
    if len(size) == 1:
        return np.array([0, 1])
    before = np.cumsum(size) - size
    block = before // BLOCK
    inner = np.flatnonzero(block[1:] != block[:-1]) + 1
    return np.concatenate(([0], inner, [len(size)]))
