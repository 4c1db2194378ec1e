"""Records of rows: what compiled passes read and write, by name.

Rows come in three parts, of which any may be empty. *Dense* rows concern about every source and are kept as
columns. *Host* rows are disjoint: a source is in one of them or in none. The others are *sparse*: entries
source by source. A row multiplies its coefficients with one *kind* of function of the rate: kind 0 is the
rate itself, the others are costs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import Array, BoolArray, IntArray

# Sums of dense rows are kept in so many lanes, which hide what a sum with its rounding error has to wait for.
LANES = 64


class RowEntries(NamedTuple):
    """Coefficients of D dense, S sparse and H host rows.

    - `dense` (D, n)
    - `dense_kind` (D,)
    - `first` (n+1,): Source k has the sparse entries first[k]:first[k+1].
    - `row` ndarray of int32: Sparse rows, rising within a source.
    - `sparse_kind` (S,)
    - `host` ndarray of int32, shape (n,), or empty: The host row of each source; −1 of none.
    - `share` ndarray, shape (n,), or empty: Its coefficient.
    - `host_kind` (H,)
    """

    dense: Array
    dense_kind: IntArray
    first: IntArray
    row: npt.NDArray[np.int32]
    coefficient: Array
    sparse_kind: IntArray
    host: npt.NDArray[np.int32]
    share: Array
    host_kind: IntArray


class FamilyColumns(NamedTuple):
    """Columns of sources whose costs are of F families.

    - `code` (F,): Of each family, from `freshopt.compiled.rows.mixed_costs`. Family f is kind 1 + f of the
      rows.
    - `which` (F,): The line of `parameter` that a family takes.
    - `valued` (F,): Whether rows ask for the family's cost.
    - `objective`: The kind that the objective is; 0 if it is none.
    - `importance` (n,): Of the sources in the objective.
    - `parameter` (lines, n)
    - `cost`, `lower`, `upper` (n,): As in `freshopt.compiled.source_columns`.
    - `near` (n,): Rates > 0 where the next search starts; a pass leaves its own there.
    """

    code: IntArray
    which: IntArray
    valued: BoolArray
    objective: int
    importance: Array
    parameter: Array
    cost: Array
    lower: Array
    upper: Array
    near: Array


class RowPrices(NamedTuple):
    """Multipliers of dense, sparse and host rows."""

    dense: Array
    sparse: Array
    host: Array


class RowSums(NamedTuple):
    """Sums over a block of sources.

    Those of all blocks have one more axis in front.

    - `dense` (D, 2, LANES): Lanes of sums and of their rounding errors; in the end the first lane has all.
    - `sparse` (S, 2)
    - `host` (H, 3 + D): Sum, rounding error, and the Gram matrix's diagonal and its entries with dense rows.
    - `dense_gram` (D, D): The lower triangle.
    - `mixed_gram` (S, D)
    - `sparse_gram` (S(S+1)/2,): The lower triangle, line by line.
    - `host_gram` (H, S): Of host rows with sparse rows.
    """

    dense: Array
    sparse: Array
    host: Array
    dense_gram: Array
    mixed_gram: Array
    sparse_gram: Array
    host_gram: Array
