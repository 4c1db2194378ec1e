"""`Gram`, `NewtonSystem`: the matrix and the system of one Newton step.

(H + D) x = r with H the Gram matrix of a pass and D > 0 diagonal, whose entries lie many decades apart.
Scaling by the diagonal of H + D makes Cholesky's factorisation blind to that. A matrix over many disjoint
rows and a few others is kept in its parts (`ArrowGram`), never as a whole, and reduced to its corner: O(H q²)
for H disjoint rows and q others. The limits of hosts are such rows, and budgets in several units the others;
the matrix has the shape of an arrow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.rows import Rows

# Up to so many rows a chunk's derivatives are multiplied as a dense matrix, 8 MB of it.
DENSE = 64
# Added to a unit diagonal: what rounding may have taken from a singular matrix, such as that of equal rows.
_SHIFT = 1e-15
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


class ArrowGram(NamedTuple):
    """Matrix of H disjoint rows and q others, in parts.

    - `diagonal` (H,): Of the disjoint rows, which share no source.
    - `cross` (H, q)
    - `corner` (q, q)
    - `arrow`: Which rows these are.
    """

    diagonal: Array
    cross: Array
    corner: Array
    arrow: Arrow


Gram = Array | ArrowGram


def empty_gram(m: int, arrow: Arrow | None) -> Gram:
    """Return a matrix of zeros, in parts with an arrow."""
    if arrow is None:
        return np.zeros((m, m))
    hosts, q = len(arrow.hosts), len(arrow.others)
    return ArrowGram(np.zeros(hosts), np.zeros((hosts, q)), np.zeros((q, q)), arrow)


def with_products(gram: Gram, values: Array, source: IntArray, row: IntArray, n: int) -> Gram:
    """Return the matrix with the part VᵀV of n sources added."""
    if isinstance(gram, ArrowGram):
        return _added_arrow(gram, values, source, row, n)
    m = len(gram)
    if m <= DENSE:
        dense = np.bincount(source * m + row, weights=values, minlength=n * m).reshape(n, m)
        gram += dense.T @ dense
        return gram
    from scipy.sparse import csr_array

    sparse = csr_array((values, (source, row)), shape=(n, m))
    gram += (sparse.T @ sparse).toarray()
    return gram


def _added_arrow(gram: ArrowGram, values: Array, source: IntArray, row: IntArray, n: int) -> ArrowGram:
    hosts, q = gram.cross.shape
    place = gram.arrow.place[row]
    disjoint = place < hosts
    # A source is in one of the disjoint rows at most, perhaps by several kinds of function.
    own = np.bincount(source[disjoint], weights=values[disjoint], minlength=n)
    host = np.zeros(n, dtype=np.int64)
    host[source[disjoint]] = place[disjoint]
    shared = np.flatnonzero(~disjoint)
    cells = source[shared] * q + place[shared] - hosts
    others = np.bincount(cells, weights=values[shared], minlength=n * q).reshape(n, q)
    diagonal = gram.diagonal + np.bincount(host, weights=own * own, minlength=hosts)
    for j in range(q):
        gram.cross[:, j] += np.bincount(host, weights=own * others[:, j], minlength=hosts)
    return gram._replace(diagonal=diagonal, corner=gram.corner + others.T @ others)


def product(gram: Gram, vector: Array) -> Array:
    """Return H·x, shape (m,)."""
    if not isinstance(gram, ArrowGram):
        return gram @ vector
    host, other = vector[gram.arrow.hosts], vector[gram.arrow.others]
    head = gram.diagonal * host + gram.cross @ other
    return np.concatenate((head, gram.cross.T @ host + gram.corner @ other))[gram.arrow.place]


def divided(gram: Gram, scale: Array) -> Gram:
    """Return the matrix with rows and columns divided by scales, shape (m,)."""
    if not isinstance(gram, ArrowGram):
        return gram / scale[:, None] / scale
    host, other = scale[gram.arrow.hosts], scale[gram.arrow.others]
    return ArrowGram(
        gram.diagonal / host / host,
        gram.cross / host[:, None] / other,
        gram.corner / other[:, None] / other,
        gram.arrow,
    )


class NewtonSystem:
    """Factorised matrix H + D, with `diagonal` (m,) > 0."""

    def __init__(self, gram: Gram, diagonal: Array) -> None:
        self._arrow = gram.arrow if isinstance(gram, ArrowGram) else None
        if isinstance(gram, ArrowGram):
            # In the order of the parts, disjoint rows first.
            diagonal = diagonal[np.concatenate((gram.arrow.hosts, gram.arrow.others))]
            hosts = len(gram.diagonal)
            size = np.sqrt(np.concatenate((gram.diagonal, np.diagonal(gram.corner))) + diagonal)
            scale, tail = 1.0 / size[:hosts], 1.0 / size[hosts:]
            self._cross = gram.cross * scale[:, None] * tail
            corner = gram.corner * tail[:, None] * tail
            np.fill_diagonal(corner, 1.0)
            self._size, self._hosts = size, hosts
            self._factor = _cholesky(corner - self._cross.T @ self._cross)
        else:
            self._size, self._hosts = np.sqrt(np.diagonal(gram) + diagonal), 0
            unit = gram / self._size[:, None] / self._size
            np.fill_diagonal(unit, 1.0)
            self._factor = _cholesky(unit)

    def solve(self, right: Array) -> Array:
        """Return (H + D)⁻¹ r, shape (m,) or (m, columns)."""
        arrow, hosts = self._arrow, self._hosts
        own = right if arrow is None else right[np.concatenate((arrow.hosts, arrow.others))]
        own = (own.T / self._size).T
        if arrow is None:
            found = _solved(self._factor, own)
        else:
            tail = _solved(self._factor, own[hosts:] - self._cross.T @ own[:hosts])
            found = np.concatenate((own[:hosts] - self._cross @ tail, tail))
        found = (found.T / self._size).T
        return found if arrow is None else found[arrow.place]


def _cholesky(matrix: Array) -> Array:
    """Return a Cholesky factor, of a shifted matrix if need be."""
    unit, shift = np.eye(len(matrix)), _SHIFT
    while True:
        try:
            factor: Array = np.asfortranarray(np.linalg.cholesky(matrix + shift * unit))
        except np.linalg.LinAlgError:
            shift *= 100.0
            if shift > 1.0 or not bool(np.all(np.isfinite(matrix))):
                raise
        else:
            return factor


def _solved(factor: Array, right: Array) -> Array:
    from scipy.linalg.lapack import dpotrs

    if not len(right):
        return right
    # Two triangular solves; the routine itself, since checks around it take a fifth of a millisecond.
    return np.asarray(dpotrs(factor, right, lower=1)[0])


def reach_of(values: Array, steps: Array) -> float:
    """Return the step length at which a first value becomes 0."""
    falling = steps < 0.0
    return float(np.min(-values[falling] / steps[falling], initial=np.inf))
