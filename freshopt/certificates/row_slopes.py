"""`RowSlopes`: the rows' slopes by source, dense or sparse."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshopt.heavy import sparse
from freshopt.numerics.arrays import Array
from freshopt.separable.rows import Rows

# From this share of entries on, and up to so many cells (8 MB), a dense matrix is faster: for 20 rows of 100
# sources by a factor of 10, of which SciPy's checks of a sparse one take the most.
_SHARE, _CELLS = 0.05, 1_000_000
# From so many rows on their Gram matrix is sparse: 10⁵ rows of a tree would take 80 GB, most of them 0.
_MANY = 2000


class RowSlopes:
    """Matrix J of m rows by n sources.

    - `entries` (entries,): Slope of each entry of the rows; entries of one row and source add up.
    """

    def __init__(self, rows: Rows, entries: Array) -> None:
        n, m = rows.n, len(rows)
        self._sparse: sparse.csr_array | None = None
        if n * m <= _CELLS and len(entries) >= _SHARE * n * m:
            cells = rows.source * np.int64(m) + rows.row
            self._dense: Any = np.bincount(cells, weights=entries, minlength=n * m).reshape(n, m)
        else:
            self._sparse = sparse.csr_array((entries, rows.row, rows.first), shape=(n, m))
            self._dense = None

    def by_source(self, multipliers: Array) -> Array:
        """Return Jᵀy, shape (n,)."""
        own = self._dense if self._sparse is None else self._sparse
        return np.asarray(own @ multipliers)

    def by_row(self, change: Array) -> Array:
        """Return Jx, shape (m,)."""
        own = self._dense if self._sparse is None else self._sparse
        return np.asarray(change @ own)

    def gram(self, weights: Array, diagonal: Array) -> Array | sparse.csc_array:
        """Return J·diag(w)·Jᵀ + diag(d), (m, m), sparse if m is large."""
        root = np.sqrt(weights)
        if self._sparse is None:
            scaled = self._dense * root[:, None]
            return np.asarray(scaled.T @ scaled) + np.diag(diagonal)
        own = self._sparse
        entries = own.data * np.repeat(root, np.diff(own.indptr))
        scaled = sparse.csr_array((entries, own.indices, own.indptr), shape=own.shape)
        matrix = scaled.T @ scaled
        if len(diagonal) >= _MANY:
            return (matrix + sparse.diags_array(diagonal)).tocsc()
        return np.asarray(matrix.toarray()) + np.diag(diagonal)
