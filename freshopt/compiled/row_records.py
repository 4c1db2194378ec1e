"""Records of rows: what compiled passes read and write, by name.

Rows come in three parts, of which any may be empty. *Dense* rows concern about every source and are kept as
columns. *Host* rows are disjoint: a source is in one of them or in none. The others are *sparse*: entries
source by source. A row multiplies its coefficients with the rate, or with the source's cost: a *curved* row.
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

    Attributes
    ----------
    dense : ndarray, shape (D, n)
    dense_curved : ndarray of bool, shape (D,)
    first : ndarray of int, shape (n+1,)
        Source k has the sparse entries first[k]:first[k+1].
    row : ndarray of int32
        Sparse rows, rising within a source.
    coefficient : ndarray
    sparse_curved : ndarray of bool, shape (S,)
    host : ndarray of int32, shape (n,), or empty
        The host row of each source; −1 of none.
    share : ndarray, shape (n,), or empty
        Its coefficient.
    host_curved : ndarray of bool, shape (H,)
    """

    dense: Array
    dense_curved: BoolArray
    first: IntArray
    row: npt.NDArray[np.int32]
    coefficient: Array
    sparse_curved: BoolArray
    host: npt.NDArray[np.int32]
    share: Array
    host_curved: BoolArray


class RowPrices(NamedTuple):
    """Multipliers of dense, sparse and host rows, shape (2, rows) each.

    The first line is that of rows of the rate and the second that of curved rows; 0 in the other line.
    """

    dense: Array
    sparse: Array
    host: Array


class RowSums(NamedTuple):
    """Sums over a block of sources.

    Those of all blocks have one more axis in front.

    Attributes
    ----------
    dense : ndarray, shape (D, 2, LANES)
        Lanes of sums and of their rounding errors; in the end the first lane has all.
    sparse : ndarray, shape (S, 2)
    host : ndarray, shape (H, 3 + D)
        Sum, rounding error, and the Gram matrix's diagonal and its entries with dense rows.
    dense_gram : ndarray, shape (D, D)
        The lower triangle.
    mixed_gram : ndarray, shape (S, D)
    sparse_gram : ndarray, shape (S(S+1)/2,)
        The lower triangle, line by line.
    host_gram : ndarray, shape (H, S)
        Of host rows with sparse rows.
    """

    dense: Array
    sparse: Array
    host: Array
    dense_gram: Array
    mixed_gram: Array
    sparse_gram: Array
    host_gram: Array
