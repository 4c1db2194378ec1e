"""`Arrow`: many rows that share no source, and a few others.

The limits of hosts are such rows, and budgets in several units the others. Newton's matrix over the
multipliers is then diagonal but for the others' rows and columns, the shape of an arrow.
"""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.rows import Rows

# Fewer rows than these are solved as a dense matrix in less than a millisecond.
FEW = 128
# The others may be so large a share of the disjoint rows: their cross part is then a quarter of the whole.
MOST = 0.25


@frozen_value()
class Arrow:
    """Disjoint rows and the others.

    - `hosts` (H,): Rows of which no two have a source in common.
    - `others` (q,)
    - `place` (m,): Where each row is in ``concatenate((hosts, others))``.
    """

    hosts: IntArray
    others: IntArray
    place: IntArray

    @classmethod
    def of(cls, rows: Rows) -> Arrow:
        """Return a set of disjoint rows, the smaller first, and the others."""
        m = len(rows)
        size = np.bincount(rows.row, minlength=m)
        rank = np.empty(m, dtype=np.int64)
        rank[np.argsort(size, kind="stable")] = np.arange(m)
        # A row is chosen if it is the smallest one of every source that it has.
        source, own = rows.source, rank[rows.row]
        smallest = np.full(rows.n, m, dtype=np.int64)
        np.minimum.at(smallest, source, own)
        disjoint = np.ones(m, dtype=np.bool_)
        disjoint[rows.row[own > smallest[source]]] = False
        hosts, others = np.flatnonzero(disjoint), np.flatnonzero(~disjoint)
        place = np.empty(m, dtype=np.int64)
        place[np.concatenate((hosts, others))] = np.arange(m)
        return cls(hosts, others, place)


def arrow_of(rows: Rows) -> Arrow | None:
    """Return the arrow that rows form, None for a dense matrix."""
    if len(rows) <= FEW:
        return None
    arrow = Arrow.of(rows)
    return arrow if len(arrow.others) <= MOST * len(arrow.hosts) else None
